//! From an allowed target to a connection outside: its name resolved, its addresses checked, or a proxy of the person's asked.

use crate::address::{globally_reachable, is_own, reachable_within};
use crate::arbiter::Limits;
use crate::proxy::Proxies;
use policy::{Destination, Leads, Target};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::client::TlsStream;

/// Addresses of one name that are tried.
const TRIED: usize = 8;

/// Why an allowed connection leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The address check refuses every address of the name.
    #[error("{0}")]
    Closed(String),
    /// The name has no address outside.
    #[error("{0} has no address outside: {1}")]
    Unknown(String, std::io::Error),
    /// No address answered.
    #[error("{0} did not take the connection: {1}")]
    Refused(SocketAddr, std::io::Error),
    /// The person's proxy does not connect.
    #[error(transparent)]
    Proxy(#[from] crate::proxy::Failed),
    /// It took too long.
    #[error("no answer from outside within {} s", .0.as_secs())]
    Late(Duration),
}

/// The ways to the outside.
pub(crate) struct Roads {
    resolving: Arc<Semaphore>,
    within: Duration,
    proxies: Proxies,
}

/// A connection outside.
pub(crate) struct Dialled {
    pub(crate) road: Road,
    pub(crate) end: End,
}

/// Bytes to the outside and back.
#[derive(Debug)]
pub(crate) enum Road {
    Plain(TcpStream),
    /// Inside a connection to a proxy that is spoken to over TLS.
    Wrapped(Box<TlsStream<TcpStream>>),
}

impl Road {
    /// What carries it.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Wrapped(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Road {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Wrapped(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Road {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Wrapped(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Wrapped(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Wrapped(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Where a connection outside ends.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// At an address that was checked.
    At(SocketAddr),
    /// Beyond a proxy of the person's, which resolves names by itself; that one in words.
    Beyond(String),
}

impl End {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(*address),
            Self::Beyond(_) => None,
        }
    }

    /// A reason with what is to be said of the end.
    pub(crate) fn told(&self, reason: &str) -> String {
        match self {
            Self::At(_) => reason.to_owned(),
            Self::Beyond(proxy) => {
                let between = if reason.is_empty() { "" } else { "; " };
                format!("{reason}{between}by the proxy {proxy}, so that where its name leads was not checked")
            }
        }
    }
}

impl Roads {
    pub(crate) fn new(limits: &Limits, proxies: Proxies) -> Self {
        Self { resolving: Arc::new(Semaphore::new(limits.resolving)), within: limits.connect, proxies }
    }

    /// How long connecting may take.
    pub(crate) fn within(&self) -> Duration {
        self.within
    }

    /// Connects to where an allowed target leads.
    pub(crate) async fn dial(&self, target: &Target, leads: Leads) -> Result<Dialled, Failed> {
        let work = async {
            if leads == Leads::Public {
                if let Destination::Address(ip) = target.to {
                    reachable(SocketAddr::new(ip, target.port), leads)?;
                }
                if let Some(road) = self.proxies.connect(target).await {
                    let end = End::Beyond(self.proxies.words().unwrap_or_default());
                    return Ok(Dialled { road: road?, end });
                }
            }
            let addresses = match leads {
                Leads::At(a) => vec![a],
                Leads::Public | Leads::Within(_) => checked(resolve(target, &self.resolving).await?, leads)?,
            };
            let mut last = Failed::Closed(format!("{target} has no address"));
            for a in addresses.into_iter().take(TRIED) {
                match TcpStream::connect(a).await {
                    Ok(stream) => return Ok(Dialled { road: Road::Plain(stream), end: End::At(a) }),
                    Err(e) => last = Failed::Refused(a, e),
                }
            }
            Err(last)
        };
        tokio::time::timeout(self.within, work).await.unwrap_or(Err(Failed::Late(self.within)))
    }
}

/// Whether a bare address may be connected to at all: known before anybody is asked.
pub(crate) fn reachable(address: SocketAddr, leads: Leads) -> Result<(), Failed> {
    match leads {
        Leads::At(_) => Ok(()),
        Leads::Public | Leads::Within(_) => checked(vec![address], leads).map(drop),
    }
}

async fn resolve(target: &Target, resolving: &Arc<Semaphore>) -> Result<Vec<SocketAddr>, Failed> {
    let host = match &target.to {
        Destination::Address(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Destination::Name(h) => h,
    };
    let closed = || Failed::Closed("the way out is closing".into());
    let permit = Arc::clone(resolving).acquire_owned().await.map_err(|_| closed())?;
    // The final dot keeps the host's search domains out: the name that was judged is the name that is resolved.
    let asked = (format!("{host}."), target.port);
    let answer = tokio::task::spawn_blocking(move || {
        // The system's resolver can't be called off: its place is taken until it answers, however long ago the caller gave up.
        let found = std::net::ToSocketAddrs::to_socket_addrs(&asked).map(Iterator::collect);
        drop(permit);
        found
    });
    match answer.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(e)) => Err(Failed::Unknown(host.to_string(), e)),
        Err(_) => Err(closed()),
    }
}

/// The addresses that may be connected to. They are connected to as they are here, so a name that changes later changes nothing.
fn checked(found: Vec<SocketAddr>, leads: Leads) -> Result<Vec<SocketAddr>, Failed> {
    let mut good = Vec::new();
    let mut why = String::new();
    for a in found {
        let may = match leads {
            Leads::Within(range) => reachable_within(a.ip(), range),
            Leads::Public | Leads::At(_) => globally_reachable(a.ip()),
        };
        match may {
            Err(e) => why = e.to_string(),
            Ok(()) if is_own(a.ip()) => {
                why = format!("{} is an address of this machine; only a rule with `address` leads there", a.ip())
            }
            Ok(()) => good.push(a),
        }
    }
    if good.is_empty() && !why.is_empty() { Err(Failed::Closed(why)) } else { Ok(good) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_that_leads_home_leads_nowhere() {
        let a = |t: &str| t.parse::<SocketAddr>().unwrap();
        for home in
            ["127.0.0.1:443", "[::1]:443", "10.1.2.3:443", "169.254.169.254:80", "[fe80::1]:443", "[::ffff:127.0.0.1]:443"]
        {
            assert!(matches!(checked(vec![a(home)], Leads::Public), Err(Failed::Closed(_))), "{home}");
        }
        let mixed = checked(vec![a("127.0.0.1:443"), a("1.1.1.1:443"), a("10.0.0.1:443")], Leads::Public).unwrap();
        assert_eq!(mixed, [a("1.1.1.1:443")], "a name that also leads home keeps its public addresses only");
    }

    #[test]
    fn p4_a_range_is_the_only_place_that_its_rule_leads_to() {
        let a = |t: &str| t.parse::<SocketAddr>().unwrap();
        let within = |range: &str, found: &[&str]| {
            checked(found.iter().map(|f| a(f)).collect(), Leads::Within(policy::Range::parse(range).unwrap()))
        };
        let found = within("10.20.0.0/16", &["10.20.1.2:443", "10.21.1.2:443", "1.1.1.1:443", "127.0.0.1:443"]).unwrap();
        assert_eq!(found, [a("10.20.1.2:443")], "nothing beside it, be it public");
        assert_eq!(within("fd12::/16", &["[fd12::1]:443"]).unwrap(), [a("[fd12::1]:443")]);
        for (range, home) in [
            ("127.0.0.0/8", "127.0.0.1:443"),
            ("169.254.0.0/16", "169.254.169.254:80"),
            ("224.0.0.0/8", "224.0.0.1:443"),
            ("fe80::/16", "[fe80::1]:443"),
            ("64:ff9b::/96", "[64:ff9b::a01:203]:443"),
            ("2002::/16", "[2002:a01:203::1]:443"),
        ] {
            assert!(matches!(within(range, &[home]), Err(Failed::Closed(_))), "{home} stays closed within {range}");
        }
    }
}
