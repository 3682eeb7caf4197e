//! AWS's Signature Version 4: a request that was signed with the placeholder is signed anew.

use crate::body::{AnyBody, Broken};
use crate::doors;
use crate::otherwise::plain;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use policy::Scope;
use secrets::Secret;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;

/// Largest body whose hash is made here.
const HASHED: usize = 8 << 20;
/// Longest address that is signed. It is written anew for that, and what was one byte may then be nine.
const ADDRESS: usize = 60_000;
/// Headers that have a server read from another place than the one that is judged.
const SOURCES: [&str; 2] = ["x-amz-copy-source", "x-amz-rename-source"];
/// What says which hash of the body is signed.
const HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// A pair of keys, and the token of a session with its end.
pub(crate) struct Keys(Credentials);

impl Keys {
    /// Reads `ID:SECRET`, `ID:SECRET:TOKEN`, or what a `credential_process` prints.
    pub(crate) fn read(secret: &Secret) -> Result<Self, &'static str> {
        const NONE: &str =
            "it holds no pair of keys: `ID:SECRET`, `ID:SECRET:TOKEN`, or JSON with AccessKeyId and SecretAccessKey";
        let text = secret.reveal();
        if !text.starts_with('{') {
            let mut parts = text.splitn(3, ':').filter(|p| !p.is_empty());
            let (Some(id), Some(key)) = (parts.next(), parts.next()) else { return Err(NONE) };
            return Ok(Self(Credentials::new(id, key, parts.next().map(str::to_owned), None, "airlock")));
        }
        #[derive(serde::Deserialize, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
        #[serde(rename_all = "PascalCase")]
        struct Printed {
            access_key_id: String,
            secret_access_key: String,
            session_token: Option<String>,
            expiration: Option<String>,
        }
        let printed: Printed = serde_json::from_str(text).map_err(|_| NONE)?;
        let (id, key) = (printed.access_key_id.as_str(), printed.secret_access_key.as_str());
        let end = printed.expiration.as_deref().map(|end| OffsetDateTime::parse(end, &Rfc3339)).transpose();
        let end = end.map_err(|_| "its Expiration is no time")?.map(SystemTime::from);
        Ok(Self(Credentials::new(id, key, printed.session_token.clone(), end, "airlock")))
    }

    /// Whether its session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.expiry().is_some_and(|end| end <= now())
    }

    /// What may not come back.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        [Some(self.0.secret_access_key()), self.0.session_token()].into_iter().flatten()
    }
}

/// What such a signature begins with.
pub(crate) const SCHEME: &str = "AWS4-HMAC-SHA256 ";

/// A part of it.
pub(crate) fn part<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(SCHEME)?.split(',').find_map(|p| p.trim().strip_prefix(name)?.strip_prefix('='))
}

/// How a program inside signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brought {
    scope: Scope,
    headers: Vec<HeaderName>,
}

impl Brought {
    /// Reads `AWS4-HMAC-SHA256 Credential=ID/DAY/REGION/SERVICE/aws4_request, SignedHeaders=…, Signature=…`.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let scope: Vec<&str> = part(text, "Credential")?.split('/').collect();
        let [_, _, region, service, "aws4_request"] = scope.as_slice() else { return None };
        let headers = part(text, "SignedHeaders")?.split(';').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let scope = Scope { region: (*region).to_owned(), service: (*service).to_owned() };
        Some(Self { scope, headers })
    }

    /// Whether it was for what a credential may sign.
    pub(crate) fn is_for(&self, scope: &Scope) -> Result<(), String> {
        if self.scope == *scope {
            return Ok(());
        }
        let shown = |s: &Scope| format!("{}/{}", s.region, s.service);
        Err(format!("the request is signed for {:?}, and the policy binds it to {}", shown(&self.scope), shown(scope)))
    }
}

/// Whether a request does what its method and path say, and nothing that they do not.
pub(crate) fn is_plain(request: &Parts) -> Result<(), String> {
    if let Some(name) = request.headers.keys().find(|n| SOURCES.contains(&plain(n.as_str()).as_str())) {
        return Err(format!("`{name}` has another object read than the one that is judged"));
    }
    let query = request.uri.query().unwrap_or_default();
    if request.uri.path().len() + 9 * query.len() > ADDRESS {
        return Err("its address is too long to be signed".into());
    }
    if percent_decode_str(query).decode_utf8().is_err() {
        return Err("its query is no text, so that another one than the server reads would be signed".into());
    }
    if doors::parameters(Some(query)).any(|(name, _)| name.eq_ignore_ascii_case("session")) {
        return Err("keys of a session would come back".into());
    }
    Ok(())
}

/// Signs a request as it leaves; gives the signature too, which may not come back. Its body is read whole where the program did not say
/// what it hashes to and it is not `known`.
pub(crate) async fn signed(
    mut request: Request<AnyBody>,
    host: &str,
    (keys, brought): (&Keys, Brought),
    known: Option<Bytes>,
    room: &Arc<Semaphore>,
) -> Result<(Request<AnyBody>, String), Broken> {
    let storage = brought.scope.service.starts_with("s3");
    let said = request.headers().get(&HASH).map(|v| v.to_str().map(str::to_owned)).transpose()?;
    let hash = match said {
        Some(said) if said.starts_with("STREAMING-AWS4-") => {
            return Err(
                "each piece of its body is signed by itself, which can't be done anew; let the tool sign the head alone \
                        (over TLS it does so by itself)"
                    .into(),
            );
        }
        Some(said) => SignableBody::Precomputed(said),
        None => SignableBody::Precomputed(match known {
            Some(bytes) => hex(&bytes),
            None => {
                let (back, bytes) = doors::whole(request, room, HASHED).await?;
                request = back;
                hex(&bytes)
            }
        }),
    };
    let mut settings = SigningSettings::default();
    if storage {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    let identity = keys.0.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&brought.scope.region)
        .name(&brought.scope.service)
        .time(now())
        .settings(settings)
        .build()?
        .into();
    for made in ["x-amz-date", "x-amz-security-token"] {
        request.headers_mut().remove(made);
    }
    let uri = format!("https://{host}{}", request.uri());
    let signs = |name: &HeaderName| {
        *name == HOST || *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-") || brought.headers.contains(name)
    };
    let headers = request.headers().iter().filter(|(name, _)| signs(name));
    let headers = headers.map(|(name, value)| Ok((name.as_str(), value.to_str()?))).collect::<Result<Vec<_>, Broken>>()?;
    let signable = SignableRequest::new(request.method().as_str(), uri, headers.into_iter(), hash)?;
    let (made, signature) = sign(signable, &params)?.into_parts();
    let (made, _) = made.into_parts();
    for header in made {
        let mut value = HeaderValue::from_str(header.value())?;
        value.set_sensitive(header.sensitive() || header.name() == AUTHORIZATION);
        request.headers_mut().insert(HeaderName::from_static(header.name()), value);
    }
    Ok((request, signature))
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(sys::clock::unix_millis())
}

fn hex(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &str) -> Result<Keys, &'static str> {
        Keys::read(&Secret::new(text.to_owned()).unwrap())
    }

    #[test]
    fn keys_are_read_in_each_form_and_a_session_ends() {
        let parts = |text: &str| read(text).map(|k| k.secrets().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parts("AKID:a/b+c").unwrap(), ["a/b+c"]);
        assert_eq!(parts("AKID:key:to:ken").unwrap(), ["key", "to:ken"]);
        let printed =
            |end: &str| format!("{{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"k\",\"SessionToken\":\"t\"{end}}}");
        assert_eq!(parts(&printed("")).unwrap(), ["k", "t"]);
        for odd in ["", ":key", "AKID", "AKID:", "{}", "{\"AccessKeyId\":\"A\"}", &printed(",\"Expiration\":\"tomorrow\"")] {
            assert!(odd.is_empty() || read(odd).is_err(), "{odd}");
        }
        let over = |end: &str| read(&printed(&format!(",\"Expiration\":\"{end}\""))).unwrap().is_over();
        assert!(over("2020-01-01T00:00:00Z") && !over("2999-01-01T00:00:00+00:00"));
    }
}
