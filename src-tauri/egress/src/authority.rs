//! The certificate authority of one run: its key lives in this process's memory and ends with it.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Certificates that are kept; made anew beyond it.
const KEPT: usize = 1024;

/// What both ends speak, the better first.
pub(crate) const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Makes certificates that only what runs inside trusts.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
    pem: String,
    made: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

/// Why there is no authority or certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It can't be made.
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    /// It can't be used.
    #[error("a certificate could not be used: {0}")]
    Use(#[from] rustls::Error),
}

impl Authority {
    /// A fresh one, named after its run.
    ///
    /// # Errors
    /// A machine without randomness.
    pub fn new(run: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("Airlock run {run}"));
        let pem = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, key: KeyPair::generate()?, pem, made: Mutex::default() })
    }

    /// Its certificate, for what runs inside.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What a server for this name is set up with.
    pub(crate) fn server(&self, name: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        if let Some(known) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(known));
        }
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "read by Airlock");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key.into())?;
        // It would keep some hundred sessions for each name.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        let config = Arc::new(config);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= KEPT {
            made.clear();
        }
        made.insert(name.to_owned(), Arc::clone(&config));
        Ok(config)
    }
}
