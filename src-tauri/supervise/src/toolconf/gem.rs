//! `.gemrc`.

use super::value::{Kind, keep};
use super::yaml;

const KEYS: &[(&str, Kind)] = &[
    (":backtrace", Kind::Flag),
    (":bulk_threshold", Kind::Number),
    (":concurrent_downloads", Kind::Number),
    (":update_sources", Kind::Flag),
    (":verbose", Kind::OneOf(&["true", "false", ":loud"])),
];

/// Options that a command gets by itself.
const OPTIONS: &[&str] = &["--no-document", "--no-ri", "--no-rdoc", "--minimal-deps", "--conservative", "--no-prerelease"];

pub(super) fn anew(text: &str) -> String {
    let (mut out, mut sources) = (String::new(), String::new());
    for (path, value) in yaml::values(text) {
        match path[..] {
            [":sources" | "sources"] => {
                if let Some(source) = keep(Kind::Url, value) {
                    sources.push_str(&format!("  - \"{source}\"\n"));
                }
            }
            [command @ ("gem" | "install" | "update")] => {
                let kept = value.split_whitespace().filter(|o| OPTIONS.contains(o)).collect::<Vec<_>>().join(" ");
                if !kept.is_empty() {
                    out.push_str(&format!("{command}: \"{kept}\"\n"));
                }
            }
            [key] => {
                let kind = KEYS.iter().find(|(k, _)| *k == key).map(|(_, kind)| *kind);
                if let Some(value) = kind.and_then(|kind| keep(kind, value)) {
                    out.push_str(&format!("{key}: {value}\n"));
                }
            }
            _ => {}
        }
    }
    if !sources.is_empty() {
        out.push_str(":sources:\n");
        out.push_str(&sources);
    }
    out
}
