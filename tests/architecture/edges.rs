//! Who may use whom: the workspace's own edges, and the libraries that one crate fences.

use crate::source::Tree;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Every crate with the workspace crates that it may use. The levels are drawn in src-tauri/ARCHITECTURE.md.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("jail-plan", &[]),
    ("sys", &[]),
    ("policy", &["model", "jail-plan"]),
    ("secrets", &[]),
    ("egress", &["model", "policy", "secrets", "sys"]),
    ("supervise", &["model", "policy", "jail-plan", "sys"]),
    ("stores", &[]),
    ("worktree", &["model", "sys", "stores"]),
    ("db", &["model"]),
    ("jail", &["jail-plan", "sys"]),
    ("warden", &["model", "policy", "jail-plan", "sys", "secrets", "egress", "supervise", "worktree", "db", "stores"]),
    ("engine", &["model", "policy", "jail-plan", "sys", "secrets", "egress", "supervise", "worktree", "db", "stores"]),
    ("cli", &["engine", "model", "policy"]),
    ("app", &["engine", "model"]),
];

/// The tests may use everything.
const TESTS: &[&str] = &["promises", "fuzz"];

/// Libraries that stand for one kind of outside world, and the one crate that has it.
const FENCED: &[(&str, &str)] = &[
    ("tauri", "app"),
    ("tauri-build", "app"),
    ("rusqlite", "db"),
    ("git2", "worktree"),
    ("hickory-proto", "egress"),
    ("hyper", "egress"),
    ("rcgen", "egress"),
    ("rustls", "egress"),
    ("landlock", "jail"),
    ("libc", "sys"),
];

/// Crates without I/O, clock or system: what they may use of the world's libraries.
const PURE: &[(&str, &[&str])] = &[
    ("model", &["serde", "serde_json", "thiserror", "sha2"]),
    ("jail-plan", &["serde", "serde_json", "thiserror"]),
    ("policy", &["serde", "serde_json", "thiserror", "toml", "idna"]),
];

/// Every edge or library that the tables don't allow.
pub(crate) fn forbidden(tree: &Tree) -> Vec<String> {
    let mut bad = vec![];
    let manifests: Vec<(&str, Table)> = tree
        .all()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .filter_map(|(path, text)| match text.parse::<Table>() {
            Ok(table) => Some((path, table)),
            Err(error) => {
                bad.push(format!("{path}: {error}"));
                None
            }
        })
        .collect();
    let names: Vec<String> = manifests.iter().map(|(_, m)| name_of(m)).collect();
    for (path, manifest) in &manifests {
        let name = name_of(manifest);
        if TESTS.contains(&name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            bad.push(format!("{path}: the crate {name} has no line in tests/architecture/edges.rs"));
            continue;
        };
        for (dependency, only_tests) in dependencies(manifest) {
            if names.contains(&dependency) {
                if !allowed.contains(&dependency.as_str()) {
                    bad.push(format!("{path}: {name} may not use {dependency}"));
                }
            } else if !only_tests {
                if let Some((_, owner)) = FENCED.iter().find(|(d, owner)| *d == dependency && *owner != name) {
                    bad.push(format!("{path}: only {owner} may use {dependency}"));
                }
                if let Some((_, pure)) = PURE.iter().find(|(n, _)| *n == name)
                    && !pure.contains(&dependency.as_str())
                {
                    bad.push(format!("{path}: {name} is pure and may not use {dependency}"));
                }
            }
        }
    }
    bad
}

fn name_of(manifest: &Table) -> String {
    manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Every dependency by its real name, with whether only tests have it; per-target tables count as well.
fn dependencies(manifest: &Table) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let targets =
        manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|t| t.values()).filter_map(Value::as_table);
    for table in std::iter::once(manifest).chain(targets) {
        for (kind, only_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            for (key, value) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                let real = value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned();
                let entry = found.entry(real).or_insert(only_tests);
                *entry = *entry && only_tests;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(name: &str, rest: &str) -> Vec<String> {
        let own = format!("[package]\nname = \"{name}\"\n{rest}");
        forbidden(&Tree::of(&[
            ("src-tauri/x/Cargo.toml", &own),
            ("src-tauri/engine/Cargo.toml", "[package]\nname = \"engine\"\n"),
            ("src-tauri/db/Cargo.toml", "[package]\nname = \"db\"\n"),
        ]))
    }

    #[test]
    fn the_workspace_keeps_to_its_edges() {
        assert_eq!(forbidden(&Tree::checkout()), Vec::<String>::new(), "edges are those of tests/architecture/edges.rs");
    }

    #[test]
    fn an_edge_upwards_is_seen() {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
            assert_eq!(bad("worktree", &format!("[{kind}]\nengine.workspace = true\n")).len(), 1, "{kind}");
        }
        assert_eq!(
            bad("policy", "[dependencies]\nd = { package = \"db\", path = \"../db\" }\n").len(),
            1,
            "a rename hides nothing"
        );
        assert_eq!(bad("cli", "[dependencies]\nengine.workspace = true\n"), Vec::<String>::new());
    }

    #[test]
    fn a_fenced_library_elsewhere_is_seen() {
        for library in ["tauri", "rusqlite", "git2", "libc"] {
            assert_eq!(bad("engine", &format!("[dependencies]\n{library} = \"1\"\n")).len(), 1, "{library}");
        }
        assert_eq!(bad("model", "[dependencies]\ntokio = \"1\"\n").len(), 1, "model is pure");
    }

    #[test]
    fn an_unknown_crate_and_a_broken_manifest_are_seen() {
        assert_eq!(bad("helpers", "").len(), 1);
        assert!(!forbidden(&Tree::of(&[("src-tauri/x/Cargo.toml", "[package\n")])).is_empty());
    }
}
