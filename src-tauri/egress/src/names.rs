//! The addresses that stand for names inside the jail: one per name and run, never used again for another.

use policy::Host;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 198.18.0.0/15: set aside for benchmarks, so no host of the internet has one.
const V4: u32 = 0xc612_0000;
/// The top 96 bits of the addresses for IPv6, from the range for private use.
const V6: u128 = 0xfd53_4258_0000_0000_0000_0000_0000_0000;
/// The first addresses stay free, as some programs take `x.x.0.y` for odd.
const FIRST: u32 = 256;

/// Names of one run with their addresses.
pub(crate) struct Names {
    most: usize,
    numbers: HashMap<Host, u32>,
    list: Vec<Host>,
}

/// What an address inside the jail stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A name that was answered with it.
    Name(Host),
    /// Nothing: it is from the range for names, and no name has it.
    Nobody,
    /// Itself.
    Itself(IpAddr),
}

impl Names {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.min(100_000), numbers: HashMap::new(), list: Vec::new() }
    }

    /// The name's two addresses; [`None`] when the run has had all the names it may.
    pub(crate) fn give(&mut self, host: &Host) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let number = match self.numbers.get(host) {
            Some(n) => *n,
            None if self.list.len() >= self.most => return None,
            None => {
                let n = FIRST + u32::try_from(self.list.len()).ok()?;
                self.list.push(host.clone());
                self.numbers.insert(host.clone(), n);
                n
            }
        };
        Some((Ipv4Addr::from_bits(V4 + number), Ipv6Addr::from_bits(V6 | u128::from(number))))
    }

    /// What an address that was dialled stands for.
    pub(crate) fn meaning(&self, ip: IpAddr) -> Meaning {
        let number = match ip {
            IpAddr::V4(a) if a.to_bits() & 0xfffe_0000 == V4 => u128::from(a.to_bits() - V4),
            IpAddr::V6(a) if a.to_bits() >> 64 == V6 >> 64 => a.to_bits() - V6,
            IpAddr::V4(_) | IpAddr::V6(_) => return Meaning::Itself(ip),
        };
        let at = number.checked_sub(u128::from(FIRST)).and_then(|n| usize::try_from(n).ok());
        at.and_then(|n| self.list.get(n)).map_or(Meaning::Nobody, |h| Meaning::Name(h.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_shares_them_with_none() {
        let mut names = Names::new(2);
        let (a, b) = (Host::parse("a.test").unwrap(), Host::parse("b.test").unwrap());
        let (a4, a6) = names.give(&a).unwrap();
        let (b4, _) = names.give(&b).unwrap();
        assert_eq!(names.give(&a), Some((a4, a6)));
        assert_ne!(a4, b4);
        assert_eq!(names.meaning(a4.into()), Meaning::Name(a.clone()));
        assert_eq!(names.meaning(a6.into()), Meaning::Name(a));
        assert_eq!(names.give(&Host::parse("c.test").unwrap()), None, "the run has had all its names");
    }

    #[test]
    fn an_address_that_no_name_has_stands_for_nobody() {
        let names = Names::new(2);
        for ip in ["198.18.0.1", "198.18.1.0", "198.19.255.255", "fd53:4258::100", "fd53:4258::ffff:ffff:ffff:ffff"] {
            assert_eq!(names.meaning(ip.parse().unwrap()), Meaning::Nobody, "{ip}");
        }
        for ip in ["198.17.1.0", "198.20.0.0", "fd53:4259::1", "fd53:4258:0:1::1", "8.8.8.8"] {
            assert_eq!(names.meaning(ip.parse().unwrap()), Meaning::Itself(ip.parse().unwrap()), "{ip}");
        }
    }
}
