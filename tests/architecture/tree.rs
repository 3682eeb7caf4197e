//! The shape of the checkout: the fixed top level, short files, honest tests, and words that must not stand in it.

use crate::source::{Tree, code, lines_with};
use std::collections::BTreeSet;

const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "src-tauri",
    "ui",
    "icons",
    "policies",
    "tests",
    "README.md",
    "package.json",
    "package-lock.json",
    "LICENSE",
];

const LONGEST: usize = 800;

/// Generated, not written: names of hosts in it are the tools' own.
const LOCKS: &[&str] = &["Cargo.lock", "package-lock.json"];

/// Entries of the top level that are not in the fixed list.
pub(crate) fn extra_at_top(tree: &Tree) -> Vec<String> {
    let names: BTreeSet<&str> = tree.all().filter_map(|(path, _)| path.split('/').next()).collect();
    names
        .into_iter()
        .filter(|n| !n.starts_with('.') && !TOP.contains(n))
        .map(|n| format!("{n}: the top level is fixed"))
        .collect()
}

/// Files of more than [`LONGEST`] lines.
pub(crate) fn long_files(tree: &Tree) -> Vec<String> {
    let lines = |text: &str| text.lines().count();
    tree.with(&["rs", "ts", "svelte", "css", "mjs"])
        .filter(|(_, text)| lines(text) > LONGEST)
        .map(|(path, text)| format!("{path}: {} lines, at most {LONGEST}", lines(text)))
        .collect()
}

/// Rust files that do not begin with a sentence about themselves.
pub(crate) fn silent_files(tree: &Tree) -> Vec<String> {
    tree.rust(&[])
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| format!("{path}: its first line must be a //! sentence"))
        .collect()
}

/// Tests that can't fail: a file of tests without an assertion, one that is true as it stands, one put aside without a reason.
pub(crate) fn toothless_tests(tree: &Tree) -> Vec<String> {
    let mut bad = vec![];
    for (path, text) in tree.rust(&[]) {
        let code = code(text);
        let tests = ["#[test]", "#[tokio::test"].iter().any(|mark| code.contains(mark));
        if tests && !["assert", "expect_err(", "unwrap_err(", "should_panic"].iter().any(|word| code.contains(word)) {
            bad.push(format!("{path}: tests without an assertion"));
        }
        for word in ["assert!(true)", "assert!(true,", "#[ignore]", "todo!(", "unimplemented!("] {
            bad.extend(lines_with(&code, word).into_iter().map(|line| format!("{path}:{line}: {word}")));
        }
    }
    for (path, text) in tree.with(&["ts", "mjs"]).filter(|(path, _)| path.contains(".test.")) {
        if !text.contains("expect") && !text.contains("assert") {
            bad.push(format!("{path}: tests without an assertion"));
        }
        for word in [".skip(", ".only(", ".todo("] {
            bad.extend(lines_with(text, word).into_iter().map(|line| format!("{path}:{line}: {word}")));
        }
    }
    bad
}

/// Hosts of package registries: they come from lockfiles and tool configuration. Each name is put together here, so that this
/// file does not hold it.
pub(crate) fn registry_hosts(tree: &Tree) -> Vec<String> {
    let names = [
        ["registry.", "npmjs"],
        ["pypi", ".org"],
        ["static.", "crates.io"],
        ["index.", "crates.io"],
        ["pythonhost", "ed"],
        ["deb.", "debian.org"],
    ];
    mentions(tree, &names.map(|parts| parts.concat()))
}

/// Paths of one machine.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<String> {
    let roots = [["/wo", "rk/"], ["/fa", "rm/"]].map(|parts| parts.concat());
    let part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let mut bad = vec![];
    for (path, text) in tree.all().filter(|(path, _)| !LOCKS.contains(path)) {
        for (n, line) in text.lines().enumerate() {
            for root in &roots {
                if line.match_indices(root).any(|(at, _)| !line[..at].chars().next_back().is_some_and(part)) {
                    bad.push(format!("{path}:{}: a path of one machine: {root}", n + 1));
                }
            }
        }
    }
    bad
}

fn mentions(tree: &Tree, words: &[String]) -> Vec<String> {
    let mut bad = vec![];
    for (path, text) in tree.all().filter(|(path, _)| !LOCKS.contains(path)) {
        for (n, line) in text.lines().enumerate() {
            bad.extend(words.iter().filter(|w| line.contains(w.as_str())).map(|w| format!("{path}:{}: {w}", n + 1)));
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Tree) -> Vec<String>;

    fn clean(check: Check, why: &str) {
        assert_eq!(check(&Tree::checkout()), Vec::<String>::new(), "{why}");
    }

    fn finds(check: Check, path: &str, text: &str) {
        assert_eq!(check(&Tree::of(&[(path, text)])).len(), 1, "{path}: {text}");
    }

    fn passes(check: Check, path: &str, text: &str) {
        assert_eq!(check(&Tree::of(&[(path, text)])), Vec::<String>::new(), "{path}: {text}");
    }

    #[test]
    fn the_top_level_is_fixed() {
        clean(extra_at_top, "put it below src-tauri, ui, policies or tests");
        finds(extra_at_top, "NOTES.md", "");
        finds(extra_at_top, "docs/a.md", "");
        passes(extra_at_top, ".ci/run", "");
    }

    #[test]
    fn files_are_short() {
        clean(long_files, "split it by what it is about");
        finds(long_files, "ui/src/a.svelte", &"x\n".repeat(801));
        passes(long_files, "src-tauri/model/src/a.rs", &"x\n".repeat(800));
    }

    #[test]
    fn files_say_what_they_are() {
        clean(silent_files, "begin with a sentence");
        finds(silent_files, "src-tauri/model/src/a.rs", "use std::fs;\n");
    }

    #[test]
    fn tests_can_fail() {
        clean(toothless_tests, "a test without an assertion shows nothing");
        finds(toothless_tests, "tests/jail/a.rs", "#[test]\nfn f() { g(); } // assert\n");
        finds(toothless_tests, "tests/jail/a.rs", "#[test]\nfn f() { assert!(true); }\n");
        finds(toothless_tests, "tests/jail/a.rs", "#[test]\n#[ignore]\nfn f() { assert!(g()); }\n");
        finds(toothless_tests, "ui/src/a.test.ts", "test.skip('x', () => expect(1).toBe(1))");
        finds(toothless_tests, "ui/src/a.test.ts", "test('x', () => f())");
        passes(toothless_tests, "tests/jail/a.rs", "#[test]\nfn f() { assert!(g()); }\n");
    }

    #[test]
    fn no_registry_is_named() {
        clean(registry_hosts, "derive it from lockfiles or tool configuration");
        finds(registry_hosts, "policies/a.toml", &["host = \"registry.", "npmjs.org\""].concat());
        passes(registry_hosts, "Cargo.lock", &["https://index.", "crates.io"].concat());
    }

    #[test]
    fn no_machine_is_named() {
        clean(machine_paths, "a path of one machine means nothing on another");
        finds(machine_paths, "README.md", &["see `/wo", "rk/main`"].concat());
        passes(machine_paths, "README.md", "/home/x/work/y");
    }
}
