//! Which addresses outside may be connected to without a rule that pins them.

use policy::Range;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {kind}{cure}")]
pub struct Unreachable {
    /// The address.
    pub address: IpAddr,
    /// What it is.
    pub kind: &'static str,
    /// What leads there all the same; empty where nothing more is to say.
    pub cure: &'static str,
}

/// What somebody may have as a network of their own.
const NETWORKS: [&str; 3] = ["a private network", "shared by a carrier's customers", "for benchmarks"];

/// Whether an address is a plain one of the public internet: not this machine, not a network of its owner, no metadata service, and
/// no form that carries another address inside.
///
/// # Errors
/// What it is instead.
pub fn globally_reachable(address: IpAddr) -> Result<(), Unreachable> {
    let kind = match address {
        IpAddr::V4(a) => v4(a),
        IpAddr::V6(a) => v6(a),
    };
    let cure = |kind| match NETWORKS.contains(&kind) {
        true => "; only a rule with `address` or `cidr` leads there",
        false => "; only a rule with `address` leads there",
    };
    kind.map_or(Ok(()), |kind| Err(Unreachable { address, kind, cure: cure(kind) }))
}

/// Whether an address is in a range that the person's rule names. What is no network of anybody's stays closed all the same: this
/// machine, link-local addresses, with metadata services among them, and forms that carry another address inside.
///
/// # Errors
/// What it is instead.
pub(crate) fn reachable_within(address: IpAddr, range: Range) -> Result<(), Unreachable> {
    match globally_reachable(address) {
        _ if !range.contains(address) => Err(Unreachable { address, kind: "not in the range that its rule names", cure: "" }),
        Err(closed) if !NETWORKS.contains(&closed.kind) => Err(closed),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Special-purpose blocks: first address, prefix length, what it is.
const V4: [(Ipv4Addr, u32, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by a carrier's customers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local (metadata services)"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "set aside for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "a multicast tunnel"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved or broadcast"),
];

fn v4(a: Ipv4Addr) -> Option<&'static str> {
    let within = |net: Ipv4Addr, bits: u32| (a.to_bits() ^ net.to_bits()).leading_zeros() >= bits;
    V4.iter().find(|(net, bits, _)| within(*net, *bits)).map(|(_, _, kind)| *kind)
}

/// Everything outside 2000::/3 is closed; these are the exceptions inside it.
const V6: [(Ipv6Addr, u32, &str); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a Teredo tunnel"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "set aside for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
];

fn v6(a: Ipv6Addr) -> Option<&'static str> {
    let within = |net: Ipv6Addr, bits: u32| (a.to_bits() ^ net.to_bits()).leading_zeros() >= bits;
    let first = a.segments()[0];
    if a.is_loopback() {
        Some("this machine")
    } else if a.to_ipv4_mapped().is_some() {
        Some("an IPv4 address in disguise")
    } else if first == 0x64 && a.segments()[1] == 0xff9b {
        Some("a NAT64 form of an IPv4 address")
    } else if first & 0xfe00 == 0xfc00 {
        Some("a private network")
    } else if first & 0xffc0 == 0xfe80 {
        Some("link-local")
    } else if first & 0xff00 == 0xff00 {
        Some("multicast")
    } else if first & 0xe000 != 0x2000 {
        Some("not part of the public internet")
    } else {
        V6.iter().find(|(net, bits, _)| within(*net, *bits)).map(|(_, _, kind)| *kind)
    }
}

/// Whether an address belongs to this machine. A list that can't be read counts as yes.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return true };
    interfaces.filter_map(|i| i.address).any(|a| {
        let v4 = a.as_sockaddr_in().map(|s| IpAddr::V4(s.ip()));
        let v6 = a.as_sockaddr_in6().map(|s| IpAddr::V6(s.ip()));
        v4.or(v6) == Some(address)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nothing_but_the_public_internet_is_reachable() {
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(globally_reachable(bad.parse().unwrap()).is_err(), "{bad}");
        }
        for good in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "2606:4700::1",
            "2a00:1450:4001::1",
        ] {
            assert_eq!(globally_reachable(good.parse().unwrap()), Ok(()), "{good}");
        }
    }

    #[test]
    fn this_machines_addresses_are_its_own() {
        assert!(is_own("127.0.0.1".parse().unwrap()), "loopback is an interface too");
        assert!(!is_own("1.1.1.1".parse().unwrap()));
    }
}
