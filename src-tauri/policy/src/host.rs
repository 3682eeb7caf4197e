//! Host names, normalised once, and the patterns that rules name them by.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A host name: lower-case ASCII labels of letters, digits and inner hyphens, at most 253 bytes, no final dot, never something that a
/// resolver would take for an address.
///
/// A [`Host`] and a [`HostPattern`] can't be mixed up:
/// ```compile_fail
/// let h: policy::Host = policy::HostPattern::parse("example.org")?;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(String);

/// Why a text is no host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// Nothing there.
    #[error("the host name is empty")]
    Empty,
    /// Longer than DNS can carry.
    #[error("the host name is longer than 253 bytes or one of its labels is longer than 63")]
    Long,
    /// Something other than letters, digits and inner hyphens.
    #[error("a host name has letters, digits, hyphens inside a label, and dots; nothing else")]
    Letters,
    /// A resolver would read it as an address.
    #[error("the last label is a number, so this would be read as an address")]
    Number,
    /// Not a valid internationalised name.
    #[error("this is not a valid internationalised host name")]
    Idna,
    /// `*` elsewhere than as the whole first label.
    #[error("`*` may only stand as the whole first label, as in `*.example.org`")]
    Star,
    /// The port is missing or out of range.
    #[error("a port from 1 to 65535 is needed, as in `example.org:443`")]
    Port,
}

impl Host {
    /// Reads a name that came over the wire: ASCII only, upper case folded, one final dot dropped.
    pub fn from_ascii(name: &str) -> Result<Self, BadHost> {
        let name = name.strip_suffix('.').unwrap_or(name);
        Self::from_labels(name.split('.').map(str::as_bytes))
    }

    /// Reads a name from the labels of a DNS question, where a label may hold any byte.
    pub fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Result<Self, BadHost> {
        let mut out = String::new();
        let mut last = "";
        for label in labels {
            let text = std::str::from_utf8(label).map_err(|_| BadHost::Letters)?;
            if text.len() > 63 {
                return Err(BadHost::Long);
            }
            if text.is_empty() {
                return Err(BadHost::Empty);
            }
            let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            if !text.bytes().all(inner) || text.starts_with('-') || text.ends_with('-') {
                return Err(BadHost::Letters);
            }
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&text.to_ascii_lowercase());
            last = text;
            if out.len() > 253 {
                return Err(BadHost::Long);
            }
        }
        if out.is_empty() {
            return Err(BadHost::Empty);
        }
        let hex = last.get(..2).is_some_and(|p| p.eq_ignore_ascii_case("0x"))
            && last.get(2..).is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        if last.bytes().all(|b| b.is_ascii_digit()) || hex {
            return Err(BadHost::Number);
        }
        Ok(Self(out))
    }

    /// Reads a name that a person wrote: internationalised names become their ASCII form.
    pub fn parse(name: &str) -> Result<Self, BadHost> {
        if name.is_empty() {
            return Err(BadHost::Empty);
        }
        if name.is_ascii() {
            return Self::from_ascii(name);
        }
        let ascii = idna::domain_to_ascii_strict(name).map_err(|_| BadHost::Idna)?;
        Self::from_ascii(&ascii)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `localhost` or under it, which never leaves the jail.
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }

    /// Whether this lies under `suffix` (not: is `suffix`).
    fn under(&self, suffix: &Self) -> bool {
        self.0.strip_suffix(&suffix.0).is_some_and(|head| head.ends_with('.'))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a connection is for: a name that was asked for, or a bare address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A name.
    Name(Host),
    /// A bare address.
    Address(IpAddr),
}

/// A destination with its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Where to.
    pub to: Destination,
    /// Which TCP port.
    pub port: u16,
}

impl Target {
    /// Reads `host:port`, `1.2.3.4:port` or `[v6]:port`.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if let Ok(a) = text.parse::<SocketAddr>() {
            return Self::checked(Destination::Address(canonical(a.ip())), a.port());
        }
        let (host, port) = text.rsplit_once(':').ok_or(BadHost::Port)?;
        Self::checked(Destination::Name(Host::parse(host)?), port.parse().map_err(|_| BadHost::Port)?)
    }

    fn checked(to: Destination, port: u16) -> Result<Self, BadHost> {
        if port == 0 { Err(BadHost::Port) } else { Ok(Self { to, port }) }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(h) => h.fmt(f),
            Self::Address(IpAddr::V6(a)) => write!(f, "[{a}]"),
            Self::Address(IpAddr::V4(a)) => a.fmt(f),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.to, self.port)
    }
}

/// An IPv4 address that is written as IPv6 is the IPv4 address.
pub(crate) fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// What a rule's `host` names: one host, all hosts under a name, or one address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this name.
    Exact(Host),
    /// Every name under this one, itself not included.
    Under(Host),
    /// Exactly this address, dialled without a name.
    Address(IpAddr),
}

impl HostPattern {
    /// Reads `example.org`, `*.example.org`, `192.0.2.1` or `2001:db8::1`.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Self::Address(canonical(ip)));
        }
        match text.strip_prefix("*.") {
            Some(suffix) if !suffix.contains('*') => Host::parse(suffix).map(Self::Under),
            _ if text.contains('*') => Err(BadHost::Star),
            _ => Host::parse(text).map(Self::Exact),
        }
    }

    /// Whether `to` is meant.
    pub fn matches(&self, to: &Destination) -> bool {
        match (self, to) {
            (Self::Exact(h), Destination::Name(n)) => h == n,
            (Self::Under(suffix), Destination::Name(n)) => n.under(suffix),
            (Self::Address(a), Destination::Address(b)) => *a == canonical(*b),
            (Self::Exact(_) | Self::Under(_), Destination::Address(_)) | (Self::Address(_), Destination::Name(_)) => false,
        }
    }

    /// Whether it means more than one host.
    pub(crate) fn is_wild(&self) -> bool {
        matches!(self, Self::Under(_))
    }

    /// Whether what stands before a wildcard's own name is so long that a name alone could tell somebody something.
    pub(crate) fn says_much(&self, to: &Destination) -> bool {
        /// Characters of one label, and of all of them, that names of servers seldom have.
        const LABEL: usize = 32;
        const ALL: usize = 48;
        let (Self::Under(suffix), Destination::Name(name)) = (self, to) else { return false };
        let free = name.as_str().strip_suffix(suffix.as_str()).unwrap_or_default();
        free.len() > ALL || free.split('.').any(|label| label.len() > LABEL)
    }

    /// How narrow it is; larger is narrower.
    pub(crate) fn narrowness(&self) -> usize {
        match self {
            Self::Exact(_) | Self::Address(_) => usize::MAX,
            Self::Under(suffix) => suffix.as_str().len(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(h) => h.fmt(f),
            Self::Under(h) => write!(f, "*.{h}"),
            Self::Address(a) => a.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_resolver_would_take_for_an_address_is_no_name() {
        for bad in ["127.1", "1.2.3.4", "0x7f.1", "0x7f000001", "a.0x1f", "2130706433", "example.1", "127.0.0.1."] {
            assert_eq!(Host::from_ascii(bad), Err(BadHost::Number), "{bad}");
        }
        assert!(Host::from_ascii("1password.com").is_ok() && Host::from_ascii("0xide.computer").is_ok());
    }

    #[test]
    fn odd_names_are_refused() {
        for bad in ["", ".", "a..b", ".a", "a b", "a\0b", "a_b.c", "-a.b", "a-.b", "a.b..", "bücher.example", "a/b", "a:b"] {
            assert!(Host::from_ascii(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Host::from_ascii(&"a.".repeat(127)).unwrap().as_str().len(), 253);
        assert_eq!(Host::from_ascii(&"a.".repeat(128)), Err(BadHost::Long));
        assert_eq!(Host::from_ascii(&"a".repeat(64)), Err(BadHost::Long));
        assert_eq!(
            Host::from_labels([&b"a.b"[..], b"example"].into_iter()),
            Err(BadHost::Letters),
            "a dot inside a label is no dot"
        );
    }

    #[test]
    fn names_are_written_one_way() {
        for (given, want) in [("API.Example.ORG.", "api.example.org"), ("Bücher.example", "xn--bcher-kva.example")] {
            assert_eq!(Host::parse(given).unwrap().as_str(), want);
        }
        assert_eq!(HostPattern::parse("::ffff:10.0.0.1").unwrap(), HostPattern::Address("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_suffix_is_a_suffix_of_labels() {
        let p = HostPattern::parse("*.example.org").unwrap();
        let m = |n: &str| p.matches(&Destination::Name(Host::parse(n).unwrap()));
        assert!(m("a.example.org") && m("a.b.example.org"));
        assert!(!m("example.org") && !m("evil-example.org") && !m("example.org.evil.test"));
        assert_eq!(HostPattern::parse("a*.example.org"), Err(BadHost::Star));
        assert_eq!(HostPattern::parse("*"), Err(BadHost::Star));
        assert_eq!(HostPattern::parse("*.*.org"), Err(BadHost::Star));
    }

    proptest! {
        #[test]
        fn a_name_read_twice_is_the_same_name(text in "\\PC{0,40}") {
            if let Ok(h) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(h.as_str()), Ok(h.clone()));
                prop_assert_eq!(Host::from_ascii(&h.as_str().to_ascii_uppercase()), Ok(h));
            }
        }
    }
}
