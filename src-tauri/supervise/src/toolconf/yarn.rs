//! `.yarnrc` of yarn 1 and `.yarnrc.yml` of those after it.

use super::ini::unquoted;
use super::value::{Kind, keep, name};
use super::yaml;

const CLASSIC: &[(&str, Kind)] = &[
    ("registry", Kind::Url),
    ("network-concurrency", Kind::Number),
    ("network-timeout", Kind::Number),
    ("ignore-scripts", Kind::Flag),
    ("save-prefix", Kind::OneOf(&["^", "~"])),
];

const BERRY: &[(&str, Kind)] = &[
    ("npmRegistryServer", Kind::Url),
    ("checksumBehavior", Kind::OneOf(&["throw", "update", "reset", "ignore"])),
    ("compressionLevel", Kind::OneOf(&["mixed", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"])),
    ("defaultSemverRangePrefix", Kind::OneOf(&["^", "~"])),
    ("enableProgressBars", Kind::Flag),
    ("enableScripts", Kind::Flag),
    ("enableTelemetry", Kind::Flag),
    ("httpRetry", Kind::Number),
    ("httpTimeout", Kind::Number),
    ("networkConcurrency", Kind::Number),
    ("nmHoistingLimits", Kind::OneOf(&["none", "workspaces", "dependencies"])),
    ("nodeLinker", Kind::OneOf(&["pnp", "pnpm", "node-modules"])),
];

pub(super) fn classic(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with('#')) {
        let Some((key, value)) = line.split_once(char::is_whitespace) else { continue };
        let key = unquoted(key.trim_end_matches(':'));
        let scope = key.strip_prefix('@').and_then(|k| k.strip_suffix(":registry")).filter(|s| name(s));
        let kind = scope.map(|_| Kind::Url).or_else(|| CLASSIC.iter().find(|(k, _)| *k == key).map(|(_, kind)| *kind));
        if let Some(value) = kind.and_then(|kind| keep(kind, unquoted(value.trim()))) {
            out.push_str(&format!("\"{key}\" \"{value}\"\n"));
        }
    }
    out
}

pub(super) fn berry(text: &str) -> String {
    let (mut out, mut scopes) = (String::new(), String::new());
    for (path, value) in yaml::values(text) {
        match path[..] {
            [key] => {
                let kind = BERRY.iter().find(|(k, _)| *k == key).map(|(_, kind)| *kind);
                if let Some(value) = kind.and_then(|kind| keep(kind, value)) {
                    out.push_str(&format!("{key}: \"{value}\"\n"));
                }
            }
            ["npmScopes", scope, "npmRegistryServer"] if name(scope) => {
                if let Some(value) = keep(Kind::Url, value) {
                    scopes.push_str(&format!("  \"{scope}\":\n    npmRegistryServer: \"{value}\"\n"));
                }
            }
            _ => {}
        }
    }
    if !scopes.is_empty() {
        out.push_str("npmScopes:\n");
        out.push_str(&scopes);
    }
    out
}
