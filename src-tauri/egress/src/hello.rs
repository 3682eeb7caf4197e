//! The first bytes of a tunnel: TLS must be for the name that was judged.

use policy::{Destination, Target};
use rustls::server::Acceptor;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest hello that is read, in bytes.
const LARGEST: usize = 64 * 1024;
/// How long a hello may take once it has begun.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// Why a tunnel is cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Odd {
    /// It names another server.
    #[error(
        "TLS for {asked:?} on a connection that was judged for {judged}; where its hello is encrypted (ECH), a rule with `ech = true` lets it through"
    )]
    OtherName {
        /// What it names.
        asked: String,
        /// What was judged.
        judged: String,
    },
    /// It is no TLS where only TLS is expected.
    #[error("443 is for TLS; a rule with `protocol = \"tcp\"` lets anything else through")]
    NoTls,
    /// It begins like TLS and is none, or never ends.
    #[error("the TLS hello can't be read: {0}")]
    Broken(String),
}

/// Whom TLS must be for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Who was judged.
    pub(crate) target: &'a Target,
    /// Whether it may name another all the same.
    pub(crate) hides: bool,
}

/// Reads the hello into `first`, behind what is there already. Nothing of it is lost: all that was read is in `first`.
pub(crate) async fn check(from: &mut (impl AsyncRead + Unpin), first: &mut Vec<u8>, named: Named<'_>) -> Result<(), Odd> {
    let Named { target, hides } = named;
    first.reserve(4096);
    if first.is_empty() && !matches!(from.read_buf(first).await, Ok(1..)) {
        return Ok(());
    }
    if first.first() != Some(&HANDSHAKE) {
        return if target.port == 443 { Err(Odd::NoTls) } else { Ok(()) };
    }
    let asked = match tokio::time::timeout(PATIENCE, name(from, first)).await {
        Ok(found) => found,
        Err(_) => Err("it did not come to an end".to_owned()),
    };
    // Elsewhere another protocol may begin with the same byte.
    let asked = match asked {
        Err(why) if target.port == 443 => return Err(Odd::Broken(why)),
        Err(_) | Ok(None) => return Ok(()),
        Ok(Some(asked)) => asked,
    };
    let judged = match &target.to {
        Destination::Name(host) => host.to_string(),
        Destination::Address(ip) => ip.to_string(),
    };
    if asked == judged || hides { Ok(()) } else { Err(Odd::OtherName { asked, judged }) }
}

/// Whether a tunnel to a target carries what begins with these bytes, and that all of them go on. For whoever wants to try it.
pub async fn hello(target: &Target, bytes: &[u8]) -> (bool, Vec<u8>) {
    let (mut first, mut from) = (Vec::new(), bytes);
    let found = check(&mut from, &mut first, Named { target, hides: false }).await;
    (found.is_ok(), [first, from.to_vec()].concat())
}

async fn name(from: &mut (impl AsyncRead + Unpin), first: &mut Vec<u8>) -> Result<Option<String>, String> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        while fed < first.len() {
            let n = acceptor.read_tls(&mut &first[fed..]).map_err(|e| e.to_string())?;
            if n == 0 {
                break;
            }
            fed += n;
            if let Some(accepted) = acceptor.accept().map_err(|(e, _)| e.to_string())? {
                return Ok(accepted.client_hello().server_name().map(|n| n.trim_end_matches('.').to_ascii_lowercase()));
            }
        }
        if first.len() >= LARGEST {
            return Err("it is too long".into());
        }
        if !matches!(from.read_buf(first).await, Ok(1..)) {
            return Err("it broke off".into());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    fn hello(name: &str) -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut out = Vec::new();
        client.write_tls(&mut out).unwrap();
        out
    }

    async fn checked(bytes: &[u8], target: &str) -> (Result<(), Odd>, Vec<u8>) {
        let (mut first, mut from) = (Vec::new(), bytes);
        let target = &Target::parse(target).unwrap();
        let found = check(&mut from, &mut first, Named { target, hides: false }).await;
        (found, [first, from.to_vec()].concat())
    }

    #[tokio::test]
    async fn p4_another_name_passes_where_a_rule_says_that_it_may_hide_and_what_is_no_tls_does_not() {
        let target = &Target::parse("inner.test:443").unwrap();
        let found = async |bytes: &[u8]| check(&mut &*bytes, &mut Vec::new(), Named { target, hides: true }).await;
        assert_eq!(found(&hello("front.test")).await, Ok(()));
        assert_eq!(found(b"GET / HTTP/1.1\r\n").await, Err(Odd::NoTls));
    }

    #[tokio::test]
    async fn p4_tls_for_another_name_is_cut() {
        let right = hello("model.test");
        let (found, kept) = checked(&right, "model.test:443").await;
        assert_eq!((found, kept), (Ok(()), right.clone()), "the right one passes, and every byte of it goes on");
        let (found, _) = checked(&right, "other.test:443").await;
        assert_eq!(found, Err(Odd::OtherName { asked: "model.test".into(), judged: "other.test".into() }));
        assert!(checked(&right, "other.test:8443").await.0.is_err(), "on any port");
        assert!(checked(&right, "93.184.216.34:443").await.0.is_err(), "a name behind a bare address was not judged");
        assert_eq!(checked(&hello("93.184.216.34"), "93.184.216.34:443").await.0, Ok(()), "none is named");
    }

    #[tokio::test]
    async fn p4_what_is_no_tls_has_no_business_on_443() {
        for odd in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", b"\x16", b"\x16\x03\x01\x00\x02ab", b"\x16\x03\x01\xff\xff"]
        {
            assert!(checked(odd, "model.test:443").await.0.is_err(), "{odd:?}");
            assert_eq!(checked(odd, "model.test:22").await, (Ok(()), odd.to_vec()), "{odd:?}");
        }
        assert_eq!(checked(b"", "model.test:443").await.0, Ok(()), "nothing was said");
    }

    proptest! {
        #[test]
        fn no_first_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200, byte: u8) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut damaged = hello("model.test");
            let at = at % damaged.len();
            damaged[at] = byte;
            for input in [bytes.clone(), [vec![0x16, 3, 1], bytes].concat(), damaged] {
                let (_, kept) = runtime.block_on(checked(&input, "model.test:443"));
                prop_assert_eq!(kept, input);
            }
        }
    }
}
