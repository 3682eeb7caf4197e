//! The person's proxy: through which connections to the public internet leave the machine.

use crate::host::{Host, Target};
use crate::problem::quote;
use crate::read::{At, Notes, Table};
use crate::source::Whose;
use std::fmt;

/// Which proxy is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// The one that the person's environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`).
    Environment,
    /// This one.
    At(ProxyAddress),
}

/// Where a proxy is and what it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    /// What it speaks.
    pub form: ProxyForm,
    /// Where.
    pub at: Target,
}

/// What a proxy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyForm {
    /// `CONNECT` of HTTP/1.1.
    Http,
    /// The same over TLS.
    Https,
    /// SOCKS version 5.
    Socks5,
}

impl ProxyAddress {
    /// Reads `http://proxy.example.org:3128`, with the user and password in it, still escaped, as `user:password`.
    ///
    /// # Errors
    /// What is wrong with it, and how it is written. The words repeat nothing of it: there may be a password.
    pub fn parse(text: &str) -> Result<(Self, Option<String>), &'static str> {
        const FORM: &str = "it is written as in \"http://proxy.example.org:3128\" or \"socks5://127.0.0.1:1080\", with `https://` where it speaks TLS";
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let form = match scheme {
            "http" => ProxyForm::Http,
            "socks5" | "socks5h" => ProxyForm::Socks5,
            "https" => ProxyForm::Https,
            _ => return Err(FORM),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, at) = match rest.rsplit_once('@') {
            Some((user, at)) => (Some(user.to_owned()), at),
            None => (None, rest),
        };
        let at = Target::parse(at).map_err(|_| FORM)?;
        Ok((Self { form, at }, user))
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.form {
            ProxyForm::Http => "http",
            ProxyForm::Https => "https",
            ProxyForm::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", self.at)
    }
}

pub(crate) fn proxy(t: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> Option<Proxy> {
    let At { value, span } = t.text(notes, "proxy")?;
    if whose == Whose::Repository {
        crate::network::only_person(notes, &span, "network.proxy");
        return None;
    }
    if value == "environment" {
        return Some(Proxy::Environment);
    }
    match ProxyAddress::parse(&value) {
        Ok((_, Some(_))) => notes.problem(
            &span,
            "a user and password are not kept in a policy",
            "write proxy = \"environment\" and put them into HTTPS_PROXY, as other programs have it",
        ),
        Ok((address, None)) => return Some(Proxy::At(address)),
        Err(why) => notes.problem(&span, format!("{} is no proxy", quote(&value)), format!("{why}, or \"environment\"")),
    }
    None
}

/// Whom `NO_PROXY` names: connections to them go out directly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Direct(Vec<Exception>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    All,
    /// A name with all names under it, on one port or on each.
    Name(Host, Option<u16>),
    Address(std::net::IpAddr, Option<u16>),
    Range(crate::Range),
}

impl Direct {
    /// Reads a list as curl, Go and Python do: names with what is under them, addresses, ranges, `*`, each with a port or without.
    /// What is none of these names nobody.
    pub fn parse(text: &str) -> Self {
        let one = |word: &str| {
            let word = word.trim();
            if word == "*" {
                return Some(Exception::All);
            }
            if let Ok(range) = crate::Range::parse(word) {
                return Some(Exception::Range(range));
            }
            let word = word.strip_prefix("*.").or_else(|| word.strip_prefix('.')).unwrap_or(word);
            if let Ok(ip) = word.parse() {
                return Some(Exception::Address(ip, None));
            }
            match Target::parse(word) {
                Ok(Target { to: crate::Destination::Name(host), port }) => Some(Exception::Name(host, Some(port))),
                Ok(Target { to: crate::Destination::Address(ip), port }) => Some(Exception::Address(ip, Some(port))),
                Err(_) => Host::parse(word).ok().map(|host| Exception::Name(host, None)),
            }
        };
        Self(text.split(',').filter_map(one).collect())
    }

    /// Whether a target is meant.
    pub fn means(&self, target: &Target) -> bool {
        let on = |port: &Option<u16>| port.is_none_or(|p| p == target.port);
        self.0.iter().any(|e| match (e, &target.to) {
            (Exception::All, _) => true,
            (Exception::Name(host, port), crate::Destination::Name(asked)) => {
                on(port) && asked.as_str().strip_suffix(host.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Exception::Address(ip, port), crate::Destination::Address(asked)) => on(port) && ip == asked,
            (Exception::Range(range), crate::Destination::Address(asked)) => range.contains(*asked),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_proxy_is_read_with_its_user_apart() {
        let read = |t: &str| ProxyAddress::parse(t).map(|(a, user)| (a.to_string(), user));
        assert_eq!(read("http://proxy.test:3128"), Ok(("http://proxy.test:3128".into(), None)));
        assert_eq!(read("https://proxy.test:443"), Ok(("https://proxy.test:443".into(), None)));
        assert_eq!(read("proxy.test:3128/"), Ok(("http://proxy.test:3128".into(), None)));
        assert_eq!(read("socks5h://u:p%40ss@[::1]:1080"), Ok(("socks5://[::1]:1080".into(), Some("u:p%40ss".into()))));
        for bad in ["ftp://proxy.test:1", "http://proxy.test", "http://", "", "http://a b:1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_is_reached_directly_is_read_as_other_programs_read_it() {
        let direct = Direct::parse("intern.test, .corp.example, 10.0.0.0/8,192.0.2.7 ,port.test:8443,*.wild.test,,no good");
        for (asked, is) in [
            ("intern.test:443", true),
            ("wiki.intern.test:443", true),
            ("notintern.test:443", false),
            ("corp.example:443", true),
            ("a.corp.example:80", true),
            ("10.1.2.3:443", true),
            ("11.1.2.3:443", false),
            ("192.0.2.7:1", true),
            ("port.test:8443", true),
            ("port.test:443", false),
            ("x.wild.test:443", true),
        ] {
            assert_eq!(direct.means(&Target::parse(asked).unwrap()), is, "{asked}");
        }
        assert!(Direct::parse("*").means(&Target::parse("any.test:1").unwrap()));
        assert!(!Direct::parse("").means(&Target::parse("any.test:1").unwrap()));
    }
}
