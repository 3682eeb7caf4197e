//! `pip.conf`.

use super::ini;
use super::value::{Kind, keep};

const KEYS: &[(&str, Kind)] = &[
    ("index-url", Kind::Url),
    ("extra-index-url", Kind::Urls),
    ("find-links", Kind::Urls),
    ("trusted-host", Kind::Hosts),
    ("disable-pip-version-check", Kind::Flag),
    ("no-compile", Kind::Flag),
    ("no-input", Kind::Flag),
    ("prefer-binary", Kind::Flag),
    ("progress-bar", Kind::OneOf(&["on", "off", "raw"])),
    ("quiet", Kind::Number),
    ("require-virtualenv", Kind::Flag),
    ("retries", Kind::Number),
    ("timeout", Kind::Number),
    ("verbose", Kind::Number),
];

const SECTIONS: &[&str] = &["global", "install", "download", "wheel", "list"];

pub(super) fn anew(text: &str) -> String {
    let mut out = String::new();
    let mut section = "";
    for line in ini::lines(text, true) {
        let Some(known) = SECTIONS.iter().find(|s| **s == line.section) else { continue };
        // pip takes both spellings.
        let key = line.key.replace('_', "-");
        let kind = KEYS.iter().find(|(k, _)| *k == key).map(|(_, kind)| *kind);
        if let Some(value) = kind.and_then(|kind| keep(kind, &line.value)) {
            if section != *known {
                out.push_str(&format!("[{known}]\n"));
                section = known;
            }
            // Lists go over lines.
            out.push_str(&format!("{key} = {}\n", value.replace([' ', ','], "\n    ")));
        }
    }
    out
}
