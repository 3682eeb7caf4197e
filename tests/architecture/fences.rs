//! What may stand in the code of which crate: unsafe blocks, starting processes, and switches that change a judgement.

use crate::source::{Tree, code, is_test_file, lines_with, without_tests};

/// Where a process may be started. Everything else asks `supervise`, or `worktree::git` for git.
const STARTS_PROCESSES: &[&str] = &["src-tauri/supervise/src/", "src-tauri/worktree/src/git.rs"];

/// Where a process may become two: the jail, which is both sides of its own start, and the calls that it uses.
const FORKS: &[&str] = &["src-tauri/jail/src/", "src-tauri/sys/src/"];

/// Where an exemption from `.clippy.toml` may stand: the places that it names as replacements, and those with a reason of their own.
const EXEMPT: &[&str] = &[
    "src-tauri/supervise/src/",
    "src-tauri/worktree/src/git.rs",
    "src-tauri/sys/src/",
    // Follows the person's own agent to its install, outside every workspace, to show it in the jail.
    "src-tauri/engine/src/kits.rs",
    // Becomes the window; the window becomes itself anew, with an environment that WebKit reads early.
    "src-tauri/cli/src/main.rs",
    "src-tauri/src/main.rs",
];

/// Crates that judge: nothing but the policy and the request may matter there.
const JUDGES: &[&str] = &["src-tauri/policy/src/", "src-tauri/egress/src/", "src-tauri/warden/src/", "src-tauri/model/src/"];

/// `unsafe` outside `sys`.
pub(crate) fn unsafe_outside_sys(tree: &Tree) -> Vec<String> {
    tree.rust(&[])
        .filter(|(path, _)| !path.starts_with("src-tauri/sys/"))
        .flat_map(|(path, text)| at(path, &code(text), "unsafe"))
        .collect()
}

/// Processes started elsewhere than in [`STARTS_PROCESSES`] and [`FORKS`], tests apart.
pub(crate) fn starts_processes(tree: &Tree) -> Vec<String> {
    let outside = |path: &str, places: &[&str]| !places.iter().any(|p| path.starts_with(p));
    let mut bad = vec![];
    for (path, code) in product(tree).filter(|(path, _)| outside(path, STARTS_PROCESSES)) {
        // A process that becomes another program starts none beside it.
        let starts: String = code.lines().flat_map(|line| [if line.contains(".exec()") { "" } else { line }, "\n"]).collect();
        bad.extend(at(&path, &starts, "Command::new"));
        if outside(&path, FORKS) {
            ["fork(", "clone3(", "posix_spawn"].iter().for_each(|word| bad.extend(at(&path, &code, word)));
        }
    }
    bad
}

/// Exemptions from the forbidden calls of `.clippy.toml` outside [`EXEMPT`], and any that gives no reason.
pub(crate) fn exemptions(tree: &Tree) -> Vec<String> {
    product(tree)
        .filter(|(path, _)| !EXEMPT.iter().any(|p| path.starts_with(p)))
        .flat_map(|(path, code)| at(&path, &code, "disallowed_methods"))
        .collect()
}

/// Switches that could change a judgement: compiled for tests, by feature, by profile, or read from the environment.
pub(crate) fn switches(tree: &Tree) -> Vec<String> {
    let mut bad = vec![];
    for (path, text) in tree.rust(JUDGES).filter(|(path, _)| !is_test_file(path)) {
        let code = code(text);
        let rest = without_test_modules(&code);
        // What is left of any `cfg` is a switch; of the environment only `policy`, `egress` and `model` may know nothing.
        for word in ["cfg(", "cfg!(", "cfg_attr(", "option_env!("] {
            bad.extend(at(path, &rest, word));
        }
        if !path.starts_with("src-tauri/warden/") {
            for word in ["env::var(", "env::var_os(", "env::vars(", "env::vars_os(", "env::args("] {
                bad.extend(at(path, &rest, word));
            }
        }
    }
    bad
}

/// Only `#[cfg(test)] mod tests` is taken out; `#[cfg(test)]` on anything else stays and is found.
fn without_test_modules(code: &str) -> String {
    let mark = "#[cfg(test)]";
    let mut rest = code.to_owned();
    let mut from = 0;
    while let Some(at) = rest[from..].find(mark).map(|n| n + from) {
        let item: Vec<&str> = rest[at + mark.len()..].split_whitespace().take(2).collect();
        let is_module = item.first() == Some(&"mod") && item.get(1).is_some_and(|n| n.trim_end_matches([';', '{']) == "tests");
        if is_module {
            let cleaned = without_tests(&rest[at..]);
            // Only this module: later ones are looked at on their own.
            let end = end_of_item(&rest[at..]) + at;
            let blank = cleaned[..end - at].to_owned();
            rest.replace_range(at..end, &blank);
        }
        from = at + mark.len();
    }
    rest
}

fn end_of_item(code: &str) -> usize {
    let mut depth = 0_u32;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, '}' | ';') {
            return i + 1;
        }
    }
    code.len()
}

/// Code that ships: no test files, no test modules.
fn product(tree: &Tree) -> impl Iterator<Item = (String, String)> {
    tree.rust(&["src-tauri/"])
        .filter(|(path, _)| !is_test_file(path))
        .map(|(path, text)| (path.to_owned(), without_tests(&code(text))))
}

fn at(path: &str, code: &str, word: &str) -> Vec<String> {
    lines_with(code, word).into_iter().map(|line| format!("{path}:{line}: {word}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    #[test]
    fn only_sys_is_unsafe() {
        assert_eq!(unsafe_outside_sys(&Tree::checkout()), Vec::<String>::new(), "unsafe code belongs into the crate sys");
    }

    #[test]
    fn unsafe_elsewhere_is_seen_and_words_about_it_are_not() {
        assert_eq!(unsafe_outside_sys(&one("src-tauri/db/src/a.rs", "fn f() { unsafe { g() } }")).len(), 1);
        assert_eq!(unsafe_outside_sys(&one("tests/jail/a.rs", "unsafe impl Send for X {}")).len(), 1, "tests are no exception");
        let words = "// unsafe\n/* unsafe */ const S: &str = \"unsafe\"; #![forbid(unsafe_code)]";
        assert_eq!(unsafe_outside_sys(&one("src-tauri/db/src/a.rs", words)), Vec::<String>::new());
    }

    #[test]
    fn processes_start_in_two_places() {
        assert_eq!(starts_processes(&Tree::checkout()), Vec::<String>::new(), "ask supervise, or worktree::git for git");
    }

    #[test]
    fn a_process_started_elsewhere_is_seen() {
        let start = "fn f() { std::process::Command::new(\"ls\"); }";
        assert_eq!(starts_processes(&one("src-tauri/engine/src/a.rs", start)).len(), 1);
        assert_eq!(starts_processes(&one("src-tauri/worktree/src/diff.rs", start)).len(), 1);
        assert_eq!(starts_processes(&one("src-tauri/supervise/src/spawn.rs", start)), Vec::<String>::new());
        assert_eq!(
            starts_processes(&one("src-tauri/jail/src/init.rs", start)).len(),
            1,
            "the jail forks, it starts no program by path"
        );
        assert_eq!(starts_processes(&one("src-tauri/jail/src/init.rs", "fn f() { sys::clone::fork(); }")), Vec::<String>::new());
        assert_eq!(starts_processes(&one("src-tauri/engine/src/a.rs", "fn f() { sys::clone::fork(); }")).len(), 1);
        let becomes = "fn f() { std::process::Command::new(\"ls\").exec(); }";
        assert_eq!(
            starts_processes(&one("src-tauri/cli/src/main.rs", becomes)),
            Vec::<String>::new(),
            "nothing is started beside it"
        );
        let in_tests = format!("#[cfg(test)]\nmod tests {{ {start} }}");
        assert_eq!(starts_processes(&one("src-tauri/engine/src/a.rs", &in_tests)), Vec::<String>::new());
    }

    #[test]
    fn exemptions_stand_where_the_replacements_are() {
        assert_eq!(exemptions(&Tree::checkout()), Vec::<String>::new(), "use the replacement that .clippy.toml names");
    }

    #[test]
    fn an_exemption_elsewhere_is_seen() {
        let text = "#[expect(clippy::disallowed_methods, reason = \"x\")] fn f() {}";
        assert_eq!(exemptions(&one("src-tauri/egress/src/a.rs", text)).len(), 1);
        assert_eq!(exemptions(&one("src-tauri/sys/src/clock.rs", text)), Vec::<String>::new());
    }

    #[test]
    fn no_switch_changes_a_judgement() {
        assert_eq!(
            switches(&Tree::checkout()),
            Vec::<String>::new(),
            "a judgement knows the policy and the request, nothing else"
        );
    }

    #[test]
    fn each_kind_of_switch_is_seen() {
        let kinds = [
            "fn f() { if cfg!(test) { g() } }",
            "#[cfg(test)] fn f() {}",
            "#[cfg(not(test))] fn f() {}",
            "#[cfg(feature = \"x\")] fn f() {}",
            "#[cfg_attr(test, derive(Debug))] struct S;",
            "fn f() { std::env::var(\"X\"); }",
            "fn f() { env::var_os(\"X\"); }",
            "const X: Option<&str> = option_env!(\"X\");",
            "#[cfg(test)] mod tests {}\n#[cfg(debug_assertions)] fn f() {}",
            "#[cfg(test)] mod testing { pub fn f() {} }",
        ];
        for text in kinds {
            assert!(!switches(&one("src-tauri/egress/src/a.rs", text)).is_empty(), "{text}");
        }
        let honest = "fn f() {}\n#[cfg(test)]\nmod tests {\n  #[cfg(feature = \"x\")] fn f() { std::env::var(\"X\"); }\n}\n";
        assert_eq!(switches(&one("src-tauri/policy/src/a.rs", honest)), Vec::<String>::new());
    }
}
