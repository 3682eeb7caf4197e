//! `.npmrc` of npm and pnpm.

use super::ini;
use super::value::{Kind, keep, name};

const KEYS: &[(&str, Kind)] = &[
    ("registry", Kind::Url),
    ("audit", Kind::Flag),
    ("auto-install-peers", Kind::Flag),
    ("color", Kind::OneOf(&["true", "false", "always"])),
    ("engine-strict", Kind::Flag),
    ("fetch-retries", Kind::Number),
    ("fetch-retry-factor", Kind::Number),
    ("fetch-retry-maxtimeout", Kind::Number),
    ("fetch-retry-mintimeout", Kind::Number),
    ("fetch-timeout", Kind::Number),
    ("foreground-scripts", Kind::Flag),
    ("fund", Kind::Flag),
    ("ignore-scripts", Kind::Flag),
    ("install-strategy", Kind::OneOf(&["hoisted", "nested", "shallow", "linked"])),
    ("legacy-peer-deps", Kind::Flag),
    ("loglevel", Kind::OneOf(&["silent", "error", "warn", "notice", "http", "info", "verbose", "silly"])),
    ("maxsockets", Kind::Number),
    ("network-concurrency", Kind::Number),
    ("node-linker", Kind::OneOf(&["isolated", "hoisted", "pnp"])),
    ("package-lock", Kind::Flag),
    ("prefer-offline", Kind::Flag),
    ("progress", Kind::Flag),
    ("save-exact", Kind::Flag),
    ("save-prefix", Kind::OneOf(&["^", "~"])),
    ("shamefully-hoist", Kind::Flag),
    ("strict-peer-dependencies", Kind::Flag),
    ("strict-peer-deps", Kind::Flag),
    ("update-notifier", Kind::Flag),
];

/// Keys of the allowlist, and registries of scopes.
pub(super) fn anew(text: &str) -> String {
    let mut out = String::new();
    for line in ini::lines(text, false).iter().filter(|l| l.section.is_empty()) {
        let scope = line.key.strip_prefix('@').and_then(|k| k.strip_suffix(":registry")).filter(|s| name(s));
        let kind = match scope {
            Some(_) => Some(Kind::Url),
            None => KEYS.iter().find(|(k, _)| *k == line.key).map(|(_, kind)| *kind),
        };
        if let Some(value) = kind.and_then(|kind| keep(kind, &line.value)) {
            out.push_str(&format!("{}={value}\n", line.key));
        }
    }
    out
}
