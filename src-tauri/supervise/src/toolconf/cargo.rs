//! cargo's `config.toml`.

use super::value::{Kind, keep, name};
use toml::{Table, Value};

/// Tables of which single keys are kept; `*` stands for every name.
const KEYS: &[(&[&str], &str, Kind)] = &[
    (&["source", "*"], "registry", Kind::Url),
    (&["source", "*"], "replace-with", Kind::Name),
    (&["registries", "*"], "index", Kind::Url),
    (&["registries", "*"], "protocol", Kind::OneOf(&["git", "sparse"])),
    (&["registry"], "default", Kind::Name),
    (&["net"], "retry", Kind::Number),
    (&["net"], "offline", Kind::Flag),
    (&["http"], "timeout", Kind::Number),
    (&["http"], "low-speed-limit", Kind::Number),
    (&["http"], "multiplexing", Kind::Flag),
    (&["build"], "jobs", Kind::Number),
    (&["build"], "incremental", Kind::Flag),
    (&["build"], "target", Kind::Name),
    (&["term"], "quiet", Kind::Flag),
    (&["term"], "verbose", Kind::Flag),
    (&["term"], "color", Kind::OneOf(&["auto", "always", "never"])),
    (&["term", "progress"], "when", Kind::OneOf(&["auto", "always", "never"])),
    (&["term", "progress"], "width", Kind::Number),
    (&["resolver"], "incompatible-rust-versions", Kind::OneOf(&["allow", "fallback"])),
];

pub(super) fn anew(text: &str) -> String {
    let Ok(table) = text.parse::<Table>() else { return String::new() };
    let mut out = Table::new();
    for (path, key, kind) in KEYS {
        copy(&table, &mut out, path, key, *kind);
    }
    written(out)
}

fn copy(from: &Table, to: &mut Table, path: &[&str], key: &str, kind: Kind) {
    let Some((first, rest)) = path.split_first() else {
        to.extend(from.get(key).and_then(|v| kept(kind, v)).map(|v| (key.to_owned(), v)));
        return;
    };
    for (found, value) in from.iter().filter(|(k, _)| *first == "*" && name(k) || k == first) {
        let Some(inner) = value.as_table() else { continue };
        let mut below = to.get(found).and_then(Value::as_table).cloned().unwrap_or_default();
        copy(inner, &mut below, rest, key, kind);
        if !below.is_empty() {
            to.insert(found.clone(), below.into());
        }
    }
}

/// A value of its kind, of the type that it had.
pub(super) fn kept(kind: Kind, value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => keep(kind, text).map(Value::String),
        Value::Integer(n) => (kind == Kind::Number).then_some(Value::Integer(*n)),
        Value::Boolean(b) => (kind == Kind::Flag).then_some(Value::Boolean(*b)),
        _ => None,
    }
}

pub(super) fn written(table: Table) -> String {
    if table.is_empty() { String::new() } else { table.to_string() }
}
