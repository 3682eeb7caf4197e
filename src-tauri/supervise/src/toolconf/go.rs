//! Go's `env`.

use super::ini;
use super::value::{Kind, keep, url};

const KEYS: &[(&str, Kind)] = &[
    ("GOPRIVATE", Kind::Hosts),
    ("GONOPROXY", Kind::Hosts),
    ("GONOSUMDB", Kind::Hosts),
    ("GOINSECURE", Kind::Hosts),
    ("GOSUMDB", Kind::Name),
    ("CGO_ENABLED", Kind::Flag),
    ("GOARCH", Kind::Name),
    ("GOOS", Kind::Name),
    ("GOAMD64", Kind::OneOf(&["v1", "v2", "v3", "v4"])),
    ("GO111MODULE", Kind::OneOf(&["on", "off", "auto"])),
    ("GOTELEMETRY", Kind::OneOf(&["on", "off", "local"])),
];

/// Flags of the compiler that name no program.
const FLAGS: &[&str] = &[
    "-mod=mod",
    "-mod=readonly",
    "-mod=vendor",
    "-trimpath",
    "-buildvcs=false",
    "-buildvcs=auto",
    "-buildvcs=true",
    "-v",
    "-race",
];

pub(super) fn anew(text: &str) -> String {
    let mut out = String::new();
    for line in ini::lines(text, false) {
        let value = match line.key {
            "GOPROXY" => proxies(&line.value),
            "GOFLAGS" => Some(line.value.split_whitespace().filter(|f| FLAGS.contains(f)).collect::<Vec<_>>().join(" ")),
            "GOTOOLCHAIN" => Some(line.value.clone()).filter(|v| {
                let version =
                    |v: &str| ["local", "auto", "path"].contains(&v) || v.strip_prefix("go").is_some_and(super::value::name);
                v.split('+').all(version)
            }),
            key => KEYS.iter().find(|(k, _)| *k == key).and_then(|(_, kind)| keep(*kind, &line.value)),
        };
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            out.push_str(&format!("{}={value}\n", line.key));
        }
    }
    out
}

/// A list by `,` and `|`, whose signs mean different things and are kept.
fn proxies(value: &str) -> Option<String> {
    let mut out = String::new();
    for piece in value.split_inclusive([',', '|']) {
        let (entry, sign) = piece
            .strip_suffix(',')
            .map(|p| (p, ","))
            .or_else(|| piece.strip_suffix('|').map(|p| (p, "|")))
            .unwrap_or((piece, ""));
        let entry = entry.trim();
        if let Some(kept) = if ["direct", "off"].contains(&entry) { Some(entry.to_owned()) } else { url(entry) } {
            out.push_str(&kept);
            out.push_str(sign);
        }
    }
    Some(out.trim_end_matches([',', '|']).to_owned())
}
