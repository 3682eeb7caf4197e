//! git's configuration: who commits, and how text, merges and output look. Never an alias, a helper, a hook, a filter, a pager, an
//! editor, an address or a key.

use super::value::{Kind, keep, plain};
use std::path::{Path, PathBuf};

const STYLE: Kind = Kind::OneOf(&["merge", "diff3", "zdiff3"]);
const COLOR: Kind = Kind::OneOf(&["auto", "always", "never", "true", "false"]);

/// Section, key, kind; names are in lower case, as git compares them.
const KEYS: &[(&str, &str, Kind)] = &[
    ("init", "defaultbranch", Kind::Name),
    ("pull", "rebase", Kind::OneOf(&["true", "false", "merges", "interactive"])),
    ("pull", "ff", Kind::OneOf(&["true", "false", "only"])),
    ("merge", "conflictstyle", STYLE),
    ("merge", "ff", Kind::OneOf(&["true", "false", "only"])),
    ("rebase", "autosquash", Kind::Flag),
    ("rebase", "autostash", Kind::Flag),
    ("rebase", "updaterefs", Kind::Flag),
    ("branch", "autosetuprebase", Kind::OneOf(&["never", "local", "remote", "always"])),
    ("branch", "sort", Kind::OneOf(&["committerdate", "-committerdate", "refname", "-refname"])),
    ("tag", "sort", Kind::OneOf(&["taggerdate", "-taggerdate", "version:refname", "-version:refname", "refname"])),
    ("core", "autocrlf", Kind::OneOf(&["true", "false", "input"])),
    ("core", "eol", Kind::OneOf(&["lf", "crlf", "native"])),
    ("core", "safecrlf", Kind::OneOf(&["true", "false", "warn"])),
    ("core", "quotepath", Kind::Flag),
    ("core", "abbrev", Kind::Number),
    ("color", "ui", COLOR),
    ("color", "diff", COLOR),
    ("color", "status", COLOR),
    ("color", "branch", COLOR),
    ("diff", "algorithm", Kind::OneOf(&["default", "myers", "minimal", "patience", "histogram"])),
    ("diff", "colormoved", Kind::OneOf(&["no", "default", "plain", "blocks", "zebra", "dimmed-zebra", "true", "false"])),
    ("diff", "context", Kind::Number),
    ("diff", "mnemonicprefix", Kind::Flag),
    ("diff", "noprefix", Kind::Flag),
    ("diff", "renames", Kind::OneOf(&["true", "false", "copies", "copy"])),
    ("fetch", "prune", Kind::Flag),
    ("log", "date", Kind::OneOf(&["relative", "local", "iso", "iso-strict", "rfc", "short", "raw", "human", "default"])),
    ("push", "default", Kind::OneOf(&["nothing", "current", "upstream", "simple", "matching"])),
    ("push", "followtags", Kind::Flag),
    ("push", "autosetupremote", Kind::Flag),
    ("rerere", "enabled", Kind::Flag),
    ("rerere", "autoupdate", Kind::Flag),
    ("commit", "verbose", Kind::Flag),
    ("column", "ui", Kind::OneOf(&["always", "never", "auto"])),
    ("status", "short", Kind::Flag),
    ("status", "branch", Kind::Flag),
    ("status", "showuntrackedfiles", Kind::OneOf(&["no", "normal", "all"])),
];

/// Files that include others do so at most so deep.
const DEPTH: usize = 4;

/// The files of a home: configuration, ignored names, attributes.
pub(super) fn of_home(home: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    let mut named: [Option<PathBuf>; 2] = [None, None];
    for file in [".config/git/config", ".gitconfig"] {
        let mut entries = Vec::new();
        collect(home, &home.join(file), read, 0, &mut entries);
        for entry in entries.iter().filter(|e| e.section == "core") {
            for (n, key) in ["excludesfile", "attributesfile"].iter().enumerate() {
                if entry.key == *key {
                    named[n] = place(home, home, &entry.value);
                }
            }
        }
        out.push((file.into(), written(&entries)));
    }
    let [ignored, attributes] = named;
    for (named, usual) in [(ignored, ".config/git/ignore"), (attributes, ".config/git/attributes")] {
        let path = named.unwrap_or_else(|| home.join(usual));
        // Patterns are lines of text; what is not is not a file of patterns.
        let lines = read(&path).map(|t| t.lines().filter(|l| plain(l)).map(|l| format!("{l}\n")).collect::<String>());
        out.extend(lines.map(|l| (usual.into(), l)));
    }
    out
}

struct Entry {
    section: String,
    /// Of a section that has one; such are never handed on.
    has_name: bool,
    key: String,
    value: String,
}

fn collect(home: &Path, file: &Path, read: &dyn Fn(&Path) -> Option<String>, depth: usize, out: &mut Vec<Entry>) {
    let Some(text) = read(file).filter(|_| depth < DEPTH) else { return };
    for entry in entries(&text) {
        if entry.section == "include" && !entry.has_name && entry.key == "path" {
            let beside = file.parent().unwrap_or(home);
            if let Some(other) = place(home, beside, &entry.value) {
                collect(home, &other, read, depth + 1, out);
            }
        } else {
            out.push(entry);
        }
    }
}

/// Where a path of the file leads.
fn place(home: &Path, beside: &Path, value: &str) -> Option<PathBuf> {
    let path = value.strip_prefix("~/").map_or_else(|| beside.join(value), |below| home.join(below));
    let plain = path.components().all(|c| !matches!(c, std::path::Component::ParentDir));
    (plain && !value.is_empty()).then_some(path)
}

fn written(entries: &[Entry]) -> String {
    let mut out = String::new();
    for entry in entries.iter().filter(|e| !e.has_name) {
        let value = match (entry.section.as_str(), entry.key.as_str()) {
            ("user", "name" | "email") => Some(entry.value.clone()).filter(|v| plain(v) && !v.is_empty()),
            (section, key) => {
                let kind = KEYS.iter().find(|(s, k, _)| *s == section && *k == key).map(|(_, _, kind)| *kind);
                kind.and_then(|kind| keep(kind, &entry.value))
            }
        };
        if let Some(value) = value {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            out.push_str(&format!("[{}]\n\t{} = \"{value}\"\n", entry.section, entry.key));
        }
    }
    out
}

/// The entries of a file, in order; a line that is not understood is passed over.
fn entries(text: &str) -> Vec<Entry> {
    let mut out = Vec::new();
    let (mut section, mut has_name) = (String::new(), true);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((head, rest)) = rest.split_once(']') else { continue };
            let words = head.trim();
            let end = words.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(words.len());
            section = words[..end].to_ascii_lowercase();
            has_name = end < words.len();
            line = rest.trim();
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, "true".to_owned()), |(k, v)| (k, v.trim().to_owned()));
        let mut value = value;
        // A backslash at the end of a line continues it.
        while value.ends_with('\\') && !value.ends_with("\\\\") {
            value.pop();
            value.push_str(lines.next().unwrap_or_default().trim());
        }
        out.push(Entry { section: section.clone(), has_name, key: key.trim().to_ascii_lowercase(), value: unquoted(&value) });
    }
    out
}

/// A value without its quotes, escapes and comment.
fn unquoted(text: &str) -> String {
    let (mut out, mut inside) = (String::new(), false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => inside = !inside,
            '#' | ';' if !inside => break,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    out.trim().to_owned()
}
