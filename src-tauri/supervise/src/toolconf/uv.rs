//! `uv.toml`.

use super::value::{Kind, keep, name};
use toml::{Table, Value};

const KEYS: &[(&str, Kind)] = &[
    ("index-url", Kind::Url),
    ("compile-bytecode", Kind::Flag),
    ("concurrent-builds", Kind::Number),
    ("concurrent-downloads", Kind::Number),
    ("concurrent-installs", Kind::Number),
    ("index-strategy", Kind::OneOf(&["first-index", "unsafe-first-match", "unsafe-best-match"])),
    ("link-mode", Kind::OneOf(&["clone", "copy", "hardlink", "symlink"])),
    ("native-tls", Kind::Flag),
    ("no-build-isolation", Kind::Flag),
    ("prerelease", Kind::OneOf(&["disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"])),
    ("python-downloads", Kind::OneOf(&["automatic", "manual", "never"])),
    ("python-preference", Kind::OneOf(&["only-managed", "managed", "system", "only-system"])),
    ("resolution", Kind::OneOf(&["highest", "lowest", "lowest-direct"])),
];
const LISTS: &[(&str, Kind)] = &[("extra-index-url", Kind::Url), ("find-links", Kind::Url), ("allow-insecure-host", Kind::Hosts)];

pub(super) fn anew(text: &str) -> String {
    let Ok(table) = text.parse::<Table>() else { return String::new() };
    let mut out = settings(&table);
    let indexes =
        |t: &Table| -> Vec<Value> { t.get("index").and_then(Value::as_array).into_iter().flatten().filter_map(index).collect() };
    if let Some(pip) = table.get("pip").and_then(Value::as_table).map(settings).filter(|t| !t.is_empty()) {
        out.insert("pip".into(), pip.into());
    }
    let indexes = indexes(&table);
    if !indexes.is_empty() {
        out.insert("index".into(), indexes.into());
    }
    super::cargo::written(out)
}

fn settings(table: &Table) -> Table {
    let mut out = Table::new();
    for (key, kind) in KEYS {
        out.extend(table.get(*key).and_then(|v| super::cargo::kept(*kind, v)).map(|v| ((*key).to_owned(), v)));
    }
    for (key, kind) in LISTS {
        let all: Vec<Value> = table
            .get(*key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|v| super::cargo::kept(*kind, v))
            .collect();
        if !all.is_empty() {
            out.insert((*key).to_owned(), all.into());
        }
    }
    out
}

/// One `[[index]]`, which is nothing without its address.
fn index(value: &Value) -> Option<Value> {
    let table = value.as_table()?;
    let mut out = Table::new();
    out.insert("url".into(), keep(Kind::Url, table.get("url")?.as_str()?)?.into());
    if let Some(own) = table.get("name").and_then(Value::as_str).filter(|n| name(n)) {
        out.insert("name".into(), own.into());
    }
    for flag in ["default", "explicit"] {
        out.extend(table.get(flag).and_then(Value::as_bool).map(|b| (flag.to_owned(), b.into())));
    }
    Some(out.into())
}
