//! Where an allowed name may lead.

use crate::host::canonical;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Where what a rule allows leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leads {
    /// To whatever the name service says, as long as it is of the public internet.
    #[default]
    Public,
    /// There, always; the name service is not asked. The only way to this machine.
    At(SocketAddr),
    /// To what the name service says, as long as it is in there; the way to networks that are not public.
    Within(Range),
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: IpAddr,
    bits: u8,
}

impl Range {
    /// Reads `10.20.0.0/16`.
    ///
    /// # Errors
    /// What is wrong with it, and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "as in \"10.20.0.0/16\" or \"fd12:3456::/32\"";
        let parts = text.split_once('/').and_then(|(ip, bits)| Some((ip.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?)));
        let Some((first, bits)) = parts else { return Err(FORM.into()) };
        let (all, least) = match first {
            IpAddr::V4(_) => (32, 8),
            IpAddr::V6(_) => (128, 16),
        };
        if bits > all || canonical(first) != first {
            return Err(FORM.into());
        }
        if bits < least {
            return Err(format!("it is too wide to say where a name leads: at least /{least}"));
        }
        let range = Self { first, bits };
        match range.start() {
            start if start == first => Ok(range),
            start => Err(format!("it begins at {start}: write {start}/{bits}")),
        }
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && Self { first: address, bits: self.bits }.start() == self.first
    }

    fn start(&self) -> IpAddr {
        let bits = u32::from(self.bits);
        match self.first {
            IpAddr::V4(a) => IpAddr::V4((a.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into()),
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() & u128::MAX.checked_shl(128 - bits).unwrap_or(0)).into()),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_range_holds_its_addresses_and_no_others() {
        for (range, inside, outside) in [
            ("10.20.0.0/16", "10.20.255.255", "10.21.0.0"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.7.9/32", "192.168.7.9", "192.168.7.8"),
            ("fd12:3456::/32", "fd12:3456:ffff::1", "fd12:3457::"),
            ("fd00::1/128", "fd00::1", "fd00::2"),
            ("10.20.0.0/16", "10.20.0.0", "::ffff:10.20.0.1"),
        ] {
            let range = Range::parse(range).unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{inside} is in {range}");
            assert!(!range.contains(outside.parse().unwrap()), "{outside} is not in {range}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused_with_its_cure() {
        for (bad, cure) in [
            ("10.20.0.0", "as in"),
            ("10.20.0.0/33", "as in"),
            ("10.20.0.0/x", "as in"),
            ("::ffff:10.0.0.0/112", "as in"),
            ("0.0.0.0/0", "too wide"),
            ("::/0", "too wide"),
            ("10.20.0.1/16", "write 10.20.0.0/16"),
            ("fd00::1/64", "write fd00::/64"),
        ] {
            let why = Range::parse(bad).unwrap_err();
            assert!(why.contains(cure), "{bad}: {why}");
        }
    }
}
