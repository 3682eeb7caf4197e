//! The person's proxy on the way out: it is spoken to here alone, and nothing inside knows of it.

use crate::roads::Road;
use percent_encoding::percent_decode_str;
use policy::{Destination, Direct, ProxyAddress, ProxyForm, Target};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrets::Secret;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Largest head of a proxy's answer, in bytes.
const HEAD: usize = 16 * 1024;

/// Through which proxies connections to the public internet leave, and which leave directly.
#[derive(Default)]
pub struct Proxies {
    /// For port 80.
    plain: Option<Proxy>,
    /// For all others.
    others: Option<Proxy>,
    direct: Direct,
}

/// One proxy.
#[derive(Clone)]
struct Proxy {
    address: ProxyAddress,
    /// `user:password`.
    user: Option<Arc<Secret>>,
    /// How it is spoken to over TLS, where it is.
    tls: Option<Arc<ClientConfig>>,
}

/// Why there is no proxy to use.
#[derive(Debug, thiserror::Error)]
#[error("{name} names no proxy that can be used: {why}")]
pub struct BadProxy {
    /// The variable, or the policy's key.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Why a proxy did not connect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It is not there.
    #[error("the proxy {0} can't be reached: {1}")]
    Gone(ProxyAddress, std::io::Error),
    /// It refuses.
    #[error("the proxy {0} refused: {1}")]
    Refused(ProxyAddress, String),
}

impl Proxies {
    /// What a policy says; variables are asked for by name.
    ///
    /// # Errors
    /// A variable that is set and names no proxy.
    pub fn of(policy: Option<&policy::Proxy>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadProxy> {
        let found = |names: [&str; 4]| -> Result<Option<Proxy>, BadProxy> {
            let set = names.into_iter().find_map(|n| Some((n, variable(n).filter(|v| !v.trim().is_empty())?)));
            let Some((name, value)) = set else { return Ok(None) };
            let bad = |why| BadProxy { name: name.to_owned(), why };
            let (address, user) = ProxyAddress::parse(value.trim()).map_err(bad)?;
            let secret = |user: String| {
                let plain = percent_decode_str(&user).decode_utf8().map_err(|_| bad("its user and password are no text"))?;
                let plain = if plain.contains(':') { plain.into_owned() } else { format!("{plain}:") };
                Secret::new(plain).map(Arc::new).map_err(|_| bad("its user and password can't be sent"))
            };
            Ok(Some(Proxy::new(address, user.map(secret).transpose()?)))
        };
        Ok(match policy {
            None => Self::default(),
            Some(policy::Proxy::At(address)) => {
                let one = Proxy::new(address.clone(), None);
                Self { plain: Some(one.clone()), others: Some(one), direct: Direct::default() }
            }
            Some(policy::Proxy::Environment) => Self {
                plain: found(["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])?,
                others: found(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?,
                direct: Direct::parse(&variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default()),
            },
        })
    }

    /// Where connections go, in words; [`None`] where all of them leave directly.
    pub fn words(&self) -> Option<String> {
        let one = self.others.as_ref().or(self.plain.as_ref())?;
        Some(one.address.to_string())
    }

    /// Connects through the proxy that is for this target; [`None`] where none is.
    pub(crate) async fn connect(&self, target: &Target) -> Option<Result<Road, Failed>> {
        let proxy = if target.port == 80 { &self.plain } else { &self.others }.as_ref()?;
        if self.direct.means(target) {
            return None;
        }
        Some(proxy.connect(target).await)
    }
}

impl Proxy {
    fn new(address: ProxyAddress, user: Option<Arc<Secret>>) -> Self {
        let tls = (address.form == ProxyForm::Https).then(|| Arc::new(crate::upstream::client(crate::system_roots())));
        Self { address, user, tls }
    }

    async fn connect(&self, target: &Target) -> Result<Road, Failed> {
        let gone = |e| Failed::Gone(self.address.clone(), e);
        let at = (self.address.at.to.to_string().trim_matches(['[', ']']).to_owned(), self.address.at.port);
        let stream = TcpStream::connect(at.clone()).await.map_err(gone)?;
        let mut road = match &self.tls {
            None => Road::Plain(stream),
            Some(tls) => {
                let name = ServerName::try_from(at.0).map_err(|e| gone(std::io::Error::other(e)))?;
                let shake = tokio_rustls::TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
                Road::Wrapped(Box::new(shake.map_err(gone)?))
            }
        };
        let said = match self.address.form {
            ProxyForm::Http | ProxyForm::Https => self.http(&mut road, target).await,
            ProxyForm::Socks5 => self.socks(&mut road, target).await,
        };
        match said.map_err(gone)? {
            Ok(()) => Ok(road),
            Err(why) => Err(Failed::Refused(self.address.clone(), why)),
        }
    }

    async fn http<S>(&self, stream: &mut S, target: &Target) -> std::io::Result<Result<(), String>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        use base64::Engine as _;
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(user) = &self.user {
            let words = base64::prelude::BASE64_STANDARD.encode(user.reveal());
            head.push_str(&format!("Proxy-Authorization: Basic {words}\r\n"));
        }
        let head = zeroize::Zeroizing::new(head + "\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        // A byte at a time: what follows the head is the server's already.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= HEAD {
                return Ok(Err("its answer has no end".into()));
            }
            answer.push(stream.read_u8().await?);
        }
        let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
        let mut words = line.split(' ');
        let version = words.next().unwrap_or_default();
        let status: Option<u16> = words.next().and_then(|s| s.parse().ok());
        Ok(match status {
            Some(200..=299) if version.starts_with("HTTP/1.") => Ok(()),
            Some(407) if self.user.is_none() => Err("it wants a user and password: put them into HTTPS_PROXY".into()),
            Some(407) => Err("it does not take this user and password".into()),
            Some(status) => Err(format!("it answers {status}")),
            None => Err("it does not speak HTTP".into()),
        })
    }

    /// RFC 1928 and 1929. The name goes to the proxy, which resolves it.
    async fn socks<S>(&self, stream: &mut S, target: &Target) -> std::io::Result<Result<(), String>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let method = if self.user.is_some() { 2 } else { 0 };
        stream.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            let wants = if chosen == [5, 255] { "it wants another way to say who asks" } else { "it does not speak SOCKS 5" };
            return Ok(Err(wants.into()));
        }
        if let Some(user) = &self.user {
            let (name, password) = user.reveal().split_once(':').unwrap_or_default();
            let (Ok(n), Ok(p)) = (u8::try_from(name.len()), u8::try_from(password.len())) else {
                return Ok(Err("its user or password is too long".into()));
            };
            let words = [&[1, n], name.as_bytes(), &[p], password.as_bytes()].concat();
            stream.write_all(&zeroize::Zeroizing::new(words)).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Ok(Err("it does not take this user and password".into()));
            }
        }
        let mut ask = vec![5, 1, 0];
        match &target.to {
            Destination::Name(host) => {
                // A name has at most 253 bytes.
                ask.extend([3, u8::try_from(host.as_str().len()).unwrap_or(u8::MAX)]);
                ask.extend(host.as_str().as_bytes());
            }
            Destination::Address(std::net::IpAddr::V4(a)) => ask.extend([&[1], a.octets().as_slice()].concat()),
            Destination::Address(std::net::IpAddr::V6(a)) => ask.extend([&[4], a.octets().as_slice()].concat()),
        }
        ask.extend(target.port.to_be_bytes());
        stream.write_all(&ask).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        let bound = match answer[3] {
            1 => 4,
            3 => usize::from(stream.read_u8().await?),
            4 => 16,
            _ => return Ok(Err("its answer can't be read".into())),
        };
        stream.read_exact(&mut vec![0; bound + 2]).await?;
        Ok(match answer[1] {
            0 => Ok(()),
            2 => Err("it does not allow this connection".into()),
            3 | 4 => Err("it finds no way there".into()),
            5 => Err("the server refused".into()),
            code => Err(format!("it answers with code {code}")),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;
    use tokio::net::TcpListener;

    /// A server that reads pieces of these lengths and answers each; it hands back all that it read.
    async fn scripted(answers: Vec<(usize, Vec<u8>)>) -> (u16, tokio::task::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let read = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            for (length, answer) in answers {
                let mut piece = vec![0; length];
                stream.read_exact(&mut piece).await.unwrap();
                all.extend(piece);
                stream.write_all(&answer).await.unwrap();
            }
            all
        });
        (port, read)
    }

    fn proxies(url: &str) -> Proxies {
        Proxies::of(Some(&policy::Proxy::Environment), |n| (n == "HTTPS_PROXY").then(|| url.to_owned())).unwrap()
    }

    async fn through(url: &str, target: &str) -> Result<Road, String> {
        let target = Target::parse(target).unwrap();
        proxies(url).connect(&target).await.expect("it is for this target").map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn p4_a_proxy_of_http_is_asked_for_the_name_and_nothing_of_the_server_is_lost() {
        let head = "CONNECT model.test:8443 HTTP/1.1\r\nHost: model.test:8443\r\nProxy-Authorization: Basic dTpwQHNz\r\n\r\n";
        let (port, read) = scripted(vec![(head.len(), b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nfirst".to_vec())]).await;
        let mut stream = through(&format!("http://u:p%40ss@127.0.0.1:{port}"), "model.test:8443").await.unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!((&first, String::from_utf8(read.await.unwrap()).unwrap()), (b"first", head.to_owned()));
    }

    #[tokio::test]
    async fn a_proxy_of_http_that_refuses_is_told_by_its_answer() {
        for (answer, want) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "it wants a user and password"),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answers 403"),
            ("SSH-2.0-x\r\n\r\n", "it does not speak HTTP"),
            ("", "can't be reached"),
        ] {
            let (port, _) = scripted(vec![(40, answer.as_bytes().to_vec())]).await;
            let why = through(&format!("http://127.0.0.1:{port}"), "a.test:443").await.unwrap_err();
            assert!(why.contains(want) && why.contains(&port.to_string()), "{why}");
        }
    }

    #[tokio::test]
    async fn p4_a_proxy_of_socks_is_asked_for_the_name() {
        let name = [&[5, 1, 0, 3, 10], b"model.test".as_slice(), &[0x20, 0xfb]].concat();
        let answers = vec![(3, vec![5, 2]), (6, vec![1, 0]), (name.len(), vec![5, 0, 0, 1, 0, 0, 0, 0, 0, 0, b'!'])];
        let (port, read) = scripted(answers).await;
        let mut stream = through(&format!("socks5h://u:pw@127.0.0.1:{port}"), "model.test:8443").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'!', "what follows is the server's");
        assert_eq!(read.await.unwrap(), [&[5, 1, 2, 1, 1, b'u', 2, b'p', b'w'], name.as_slice()].concat());
        let refused = [
            (vec![(3, vec![5, 255])], "another way"),
            (vec![(3, vec![5, 0]), (10, vec![5, 2, 0, 1, 0, 0, 0, 0, 0, 0])], "allow"),
        ];
        for (answers, want) in refused {
            let (port, _) = scripted(answers).await;
            let why = through(&format!("socks5://127.0.0.1:{port}"), "192.0.2.7:443").await.unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }

    #[test]
    fn variables_are_read_as_other_programs_read_them() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
            Proxies::of(Some(&policy::Proxy::Environment), move |n| set.iter().find(|(k, _)| k == n).map(|(_, v)| v.clone()))
        };
        let both =
            of(&[("ALL_PROXY", "socks5://a.test:1080"), ("https_proxy", "b.test:3128"), ("HTTPS_PROXY", "c.test:1")]).unwrap();
        assert_eq!(both.words().as_deref(), Some("http://b.test:3128"));
        assert_eq!(both.plain.unwrap().address.to_string(), "socks5://a.test:1080");
        assert_eq!(of(&[("HTTPS_PROXY", " ")]).unwrap().words(), None);
        let bad = of(&[("HTTPS_PROXY", "ftp://user:secret@c.test:1")]).err().unwrap().to_string();
        assert!(bad.contains("HTTPS_PROXY") && !bad.contains("secret"), "{bad}");
        assert_eq!(Proxies::of(None, |_| Some("http://a.test:1".into())).unwrap().words(), None, "only where the policy says so");
    }
}
