//! Differences: the list, git's own text, and rows ready to be drawn.

use crate::fixture::{Task, World};
use model::diff::{ChangeKind, Class, FileDiff, Mark, RowKind};
use model::path::RawPath;
use std::os::unix::fs::{PermissionsExt, symlink};
use worktree::{DiffError, changes, file_diff, unified};

fn rows(task: &Task, path: &str) -> FileDiff {
    let tree = task.candidate().tree;
    file_diff(&task.git, None, &tree, &RawPath::from(path), 3).unwrap()
}

fn line(diff: &FileDiff, n: usize) -> String {
    diff.rows[n].spans.iter().map(|s| s.text.as_str()).collect()
}

#[test]
fn the_list_says_what_became_of_each_file() {
    let world = World::new();
    world.write("big.txt", "line\n".repeat(40));
    world.write("mode.sh", "#!/bin/sh\necho a script\n");
    world.commit("more");
    let task = world.create();
    task.write("a.txt", "one\n2\nthree\nfour\n");
    std::fs::rename(task.tree().join("big.txt"), task.tree().join("moved.txt")).unwrap();
    std::fs::set_permissions(task.tree().join("mode.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    task.remove("src/lib.rs");
    task.write("bin", b"\0\x01\x02");
    task.write(".github/workflows/ci.yml", "on: push\n");
    task.write("package.json", "{}\n");
    task.write("Cargo.lock", "x\n");
    task.write("hidden.rs", "let a\u{202e} = 1;\n");
    symlink("../../etc/passwd", task.tree().join("out")).unwrap();
    let list = changes(&task.git, None, &task.candidate().tree).unwrap();
    let get = |p: &str| list.iter().find(|f| f.path == RawPath::from(p)).unwrap_or_else(|| panic!("{p} is in {list:?}"));
    assert_eq!((get("a.txt").kind, get("a.txt").added, get("a.txt").removed), (ChangeKind::Modified, 2, 1));
    assert_eq!((get("moved.txt").kind, get("moved.txt").old_path.clone()), (ChangeKind::Renamed, Some(RawPath::from("big.txt"))));
    assert_eq!((get("mode.sh").kind, get("mode.sh").marks.clone()), (ChangeKind::Mode, vec![Mark::Executable]));
    assert_eq!((get("src/lib.rs").kind, get("src/lib.rs").new_mode), (ChangeKind::Deleted, 0));
    assert!(get("bin").binary && get("bin").marks.contains(&Mark::Binary));
    for (path, mark) in [
        (".github/workflows/ci.yml", Mark::Ci),
        ("package.json", Mark::Runs),
        ("Cargo.lock", Mark::Lockfile),
        ("hidden.rs", Mark::Bidi),
        ("out", Mark::Escapes),
    ] {
        assert!(get(path).marks.contains(&mark), "{path} has {mark:?}: {:?}", get(path).marks);
    }
    assert!(list.is_sorted_by_key(|f| f.path.clone()), "by path");
}

#[test]
fn what_git_would_take_for_a_repository_is_said_to_run() {
    let world = World::new();
    world.write("half/objects/k", "");
    world.write("old/objects/k", "");
    world.write("old/refs/k", "");
    world.write("old/readme", "");
    world.commit("half a repository, and one that was there");
    let task = world.create();
    let planted = ["HEAD", "config", "objects/k", "refs/k", "hooks/deep/er", "readme"];
    for name in planted {
        task.write(format!("lib/{name}"), format!("{name}\n"));
    }
    for name in ["half/HEAD", "half/refs/k", "half/config"] {
        task.write(name, "ref: refs/heads/main\n");
    }
    task.write("old/config", "[core]\n");
    // One whose other half lies elsewhere.
    task.write("linked/HEAD", "ref: refs/heads/main\n");
    task.write("linked/commondir", "../shared\n");
    for name in ["config", "objects/k", "refs/k"] {
        task.write(format!("shared/{name}"), "x\n");
    }
    task.write("plain/HEAD", "x\n");
    task.write("plain/refs/k", "x\n");
    task.write("a.txt", "changed\n");
    let list = changes(&task.git, None, &task.candidate().tree).unwrap();
    for file in &list {
        let name = file.path.to_string();
        let harmless = name.starts_with("plain/") || name == "a.txt";
        assert_eq!(!file.marks.contains(&Mark::Runs), harmless, "{name}: {:?}", file.marks);
    }
    assert_eq!(list.len(), planted.len() + 3 + 1 + 2 + 3 + 2 + 1);
    // It does run, where nobody looks: git in that directory starts what its configuration says.
    let ran = world.dir.path().join("ran");
    let lib = task.tree().join("lib");
    std::fs::write(lib.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(
        lib.join("config"),
        format!(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch {};:\"\n",
            ran.display()
        ),
    )
    .unwrap();
    let out = world.command(&lib).args(["status"]).output().unwrap();
    assert!(ran.exists(), "which is why it has a mark: {out:?}");
}

#[test]
fn a_name_that_hides_something_is_marked() {
    let world = World::new();
    let task = world.create();
    for name in ["exe\u{202e}txt.rs", "zero\u{200b}width", "line\nend", "\u{202e}dir/plain"] {
        task.write(name, "x\n");
    }
    task.write("déjà vu.txt", "x\n");
    let list = changes(&task.git, None, &task.candidate().tree).unwrap();
    for file in &list {
        let hidden = file.path != RawPath::from("déjà vu.txt");
        assert_eq!(file.marks.contains(&Mark::Bidi), hidden, "{:?}: {:?}", file.path, file.marks);
    }
    assert_eq!(list.len(), 5);
}

#[test]
fn the_text_is_gits_own() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", "one\n2\nthree\n");
    // The candidate's own attributes hide nothing from the reader.
    task.write(".gitattributes", "*.txt -diff\n");
    let tree = task.candidate().tree;
    let text = String::from_utf8(unified(&task.git, None, &tree).unwrap()).unwrap();
    assert!(text.contains("diff --git a/a.txt b/a.txt\n") && text.contains("\n-two\n+2\n"), "{text}");
    let back = unified(&task.git, Some(&tree), &task.created.base_tree).unwrap();
    assert!(String::from_utf8(back).unwrap().contains("\n-2\n+two\n"), "any two trees can be compared");
}

#[test]
fn rows_have_numbers_pairs_words_and_colours() {
    let world = World::new();
    let task = world.create();
    task.write("src/lib.rs", "pub fn f() -> u8 {\n    2\n}\n// new");
    let diff = rows(&task, "src/lib.rs");
    let kinds: Vec<RowKind> = diff.rows.iter().map(|r| r.kind).collect();
    use RowKind::{Add, Context, Del, Hunk, Note};
    assert_eq!(kinds, [Hunk, Context, Del, Add, Context, Add, Note], "{:?}", diff.rows);
    assert_eq!((diff.rows[2].old, diff.rows[2].new, diff.rows[3].old, diff.rows[3].new), (Some(2), None, None, Some(2)));
    assert_eq!((diff.rows[2].pair, diff.rows[3].pair), (Some(3), Some(2)));
    assert_eq!(diff.rows[1].spans.iter().find(|s| s.text.contains("fn")).map(|s| s.class), Some(Class::Kw), "{:?}", diff.rows[1]);
    assert!(diff.rows[5].spans.iter().all(|s| s.class == Class::Com), "a comment: {:?}", diff.rows[5]);
    assert_eq!(line(&diff, 5), "// new");
}

#[test]
fn added_removed_binary_and_large_files_have_rows_or_a_reason() {
    let world = World::new();
    let task = world.create();
    task.write("new.txt", "a\nb");
    task.remove("a.txt");
    task.write("bin", b"\0\x01");
    task.write("large.txt", "x\n".repeat(5 << 20));
    task.write("empty", "");
    let new = rows(&task, "new.txt");
    assert_eq!(new.rows.iter().map(|r| r.kind).collect::<Vec<_>>(), [RowKind::Hunk, RowKind::Add, RowKind::Add, RowKind::Note]);
    let gone = rows(&task, "a.txt");
    assert_eq!((gone.rows.len(), gone.rows[3].old, gone.sizes), (4, Some(3), (14, 0)));
    assert_eq!(rows(&task, "bin").note.as_deref(), Some("binary file"));
    let large = rows(&task, "large.txt");
    assert!(large.rows.is_empty() && large.note.unwrap().contains("too large"));
    assert!(rows(&task, "empty").rows.is_empty());
    let tree = task.candidate().tree;
    let missing = file_diff(&task.git, None, &tree, &RawPath::from("src/lib.rs"), 3);
    assert!(matches!(missing, Err(DiffError::NoSuchFile(_))), "a file that did not change has no difference");
}

#[test]
fn twenty_thousand_lines_are_fine() {
    let world = World::new();
    let text = |mark: &str| {
        (0..20_000).map(|n| if n % 2 == 0 { format!("line {n} {mark}\n") } else { format!("line {n}\n") }).collect::<String>()
    };
    world.write("long.txt", text("old"));
    world.commit("long");
    let task = world.create();
    task.write("long.txt", text("new"));
    let diff = rows(&task, "long.txt");
    assert_eq!((diff.file.added, diff.file.removed), (10_000, 10_000));
    assert_eq!(diff.rows.iter().filter(|r| r.kind == RowKind::Context).count(), 10_000);
    let first = diff.rows.iter().find(|r| r.kind == RowKind::Add).unwrap();
    assert_eq!(
        first.spans.iter().filter(|s| s.word).map(|s| s.text.as_str()).collect::<String>(),
        "new",
        "the changed word is marked"
    );
}

#[test]
fn hostile_bytes_are_text() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", b"one\n\x1b]0;title\x07 \xff\xfe\nthree\n--- a\n+++ b\n@@ -1 +1 @@\n");
    let diff = rows(&task, "a.txt");
    let all: String = (0..diff.rows.len()).map(|n| line(&diff, n)).collect::<Vec<_>>().join("\n");
    assert!(all.contains("\\x1b]0;title\\x07 \\xff\\xfe"), "{all}");
    assert_eq!(diff.rows.iter().filter(|r| r.kind == RowKind::Hunk).count(), 1, "content that looks like a header is content");
    assert!(
        !diff.rows.iter().flat_map(|r| &r.spans).any(|s| s.text.chars().any(char::is_control)),
        "nothing unprintable is left"
    );
}
