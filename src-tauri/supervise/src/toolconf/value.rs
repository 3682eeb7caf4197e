//! Kinds of values that may be handed on.

use std::fmt::Write as _;

/// What a key's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An address of a registry or mirror: http or https, without a user, a password, a query or a part that looks like a key.
    Url,
    /// Several of them, by white space.
    Urls,
    /// `true` or `false`, `yes` or `no`, `on` or `off`.
    Flag,
    /// Digits, with a unit of at most two letters.
    Number,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A short name: letters, digits, `.`, `_`, `-`.
    Name,
    /// Hosts or patterns of them, by comma or white space.
    Hosts,
}

/// The value, as it is handed on; none where it is not of its kind.
pub(super) fn keep(kind: Kind, text: &str) -> Option<String> {
    let text = text.trim();
    match kind {
        Kind::Url => url(text),
        Kind::Urls => {
            let all: Vec<String> = text.split_whitespace().filter_map(url).collect();
            (!all.is_empty()).then(|| all.join(" "))
        }
        Kind::Flag => ["true", "false", "yes", "no", "on", "off", "1", "0"].contains(&text).then(|| text.to_owned()),
        Kind::Number => number(text),
        Kind::OneOf(words) => words.contains(&text).then(|| text.to_owned()),
        Kind::Name => name(text).then(|| text.to_owned()),
        Kind::Hosts => {
            let host = |h: &&str| {
                h.len() <= 253
                    && h.chars().all(|c| c.is_ascii_alphanumeric() || "*.-_/:[]".contains(c))
                    && !h.split('/').any(looks_like_a_key)
            };
            let all: Vec<&str> = text.split([',', ' ', '\t', '\n', '\r']).filter(|h| !h.is_empty()).filter(host).collect();
            (!all.is_empty()).then(|| all.join(","))
        }
    }
}

/// An address without what could be secret in it.
pub(super) fn url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let inner = scheme.strip_prefix("sparse+").or_else(|| scheme.strip_prefix("registry+")).unwrap_or(scheme);
    if !["http", "https"].contains(&inner) || rest.len() > 500 {
        return None;
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    // A user ends at the last `@`: a password may hold one.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        Some(_) if !host.ends_with(']') => return None,
        _ => (host, None),
    };
    let plain = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let good = match plain {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty() && name.len() <= 253 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
        }
    };
    let part = |p: &str| p.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-~+@%".contains(&b)) && !looks_like_a_key(p);
    if !good || name.split('.').any(looks_like_a_key) || !path.is_none_or(|p| p.split('/').all(part)) {
        return None;
    }
    let mut out = format!("{scheme}://{name}");
    for (before, what) in [(':', port), ('/', path)] {
        if let Some(what) = what {
            _ = write!(out, "{before}{what}");
        }
    }
    Some(out)
}

fn number(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let good =
        !digits.is_empty() && digits.len() <= 12 && digits.bytes().all(|b| b.is_ascii_digit()) && text.len() - digits.len() <= 2;
    good.then(|| text.to_owned())
}

/// Whether it is a short name, and none that looks like a key.
pub(super) fn name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !looks_like_a_key(text)
}

/// Whether a part of a path or a name looks like a key: long, and letters and digits mixed in one piece.
pub(super) fn looks_like_a_key(part: &str) -> bool {
    part.split(['-', '_', '.', '~', '+', '@', '%', ':']).any(|piece| {
        let (digits, letters) = piece.bytes().fold((0, 0), |(d, l), b| if b.is_ascii_digit() { (d + 1, l) } else { (d, l + 1) });
        piece.len() >= 16 && digits >= 2 && letters >= 2
    })
}

/// Text for a line: no control character, and no address with a login.
pub(super) fn plain(text: &str) -> bool {
    let login = text.split_once("://").is_some_and(|(_, after)| after.contains('@'));
    text.len() <= 200 && !login && !text.chars().any(model::path::hides)
}
