//! Real changes in real directories.
use super::*;
use std::sync::mpsc;

type Row = (FileOp, String, Option<String>);

/// Collects what is told until `last` was.
fn until(facts: &mpsc::Receiver<Fact>, last: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    while let Ok(fact) = facts.recv_timeout(Duration::from_secs(20)) {
        match fact {
            Fact::Seen { op, path, to } => {
                let done = path.to_string() == last;
                rows.push((op, path.to_string(), to.map(|to| to.to_string())));
                if done {
                    return (rows, notes);
                }
            }
            Fact::Incomplete { detail } => notes.push(detail),
            other => notes.push(format!("{other:?}")),
        }
    }
    unreachable!("{last} was never told after {rows:?} {notes:?}")
}

fn watch(root: &Path, budget: usize) -> (Watch, mpsc::Receiver<Fact>) {
    let (tell, facts) = mpsc::channel();
    (Watch::with_budget(root, budget, move |fact| drop(tell.send(fact))).unwrap(), facts)
}

#[test]
fn changes_are_told_relative_to_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::create_dir_all(root.join("src/deep")).unwrap();
    std::fs::create_dir_all(root.join("node_modules/x")).unwrap();
    std::fs::write(root.join("src/old"), "").unwrap();
    let (_watch, facts) = watch(root, BUDGET);
    std::fs::write(root.join("node_modules/x/index.js"), "").unwrap();
    std::fs::write(root.join("src/deep/new"), "1").unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"src/\xff\n")), "1").unwrap();
    std::fs::rename(root.join("src/old"), root.join("src/moved")).unwrap();
    std::fs::remove_file(root.join("src/moved")).unwrap();
    std::fs::write(root.join("end"), "").unwrap();
    let (rows, notes) = until(&facts, "end");
    let row = |op, path: &str| (op, path.to_owned(), None);
    assert!(rows.contains(&row(FileOp::Create, "src/deep/new")), "{rows:?}");
    assert!(rows.contains(&row(FileOp::Create, "src/\\xff\\x0a")), "a name that is no text is told: {rows:?}");
    assert!(rows.contains(&(FileOp::Rename, "src/old".into(), Some("src/moved".into()))), "{rows:?}");
    assert!(rows.contains(&row(FileOp::Delete, "src/moved")), "{rows:?}");
    assert!(!rows.iter().any(|(_, path, _)| path.starts_with("node_modules")), "heavy directories are left out: {rows:?}");
    assert_eq!(notes, Vec::<String>::new(), "nothing is missing, so nothing is said to be");
}

#[test]
fn a_directory_made_or_moved_is_watched_under_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (_watch, facts) = watch(root, BUDGET);
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/first"), "").unwrap();
    let (_, notes) = until(&facts, "a/b/first");
    assert_eq!(notes, Vec::<String>::new());
    std::fs::rename(root.join("a"), root.join("c")).unwrap();
    std::fs::write(root.join("c/b/second"), "").unwrap();
    let (rows, _) = until(&facts, "c/b/second");
    assert!(rows.contains(&(FileOp::Rename, "a".into(), Some("c".into()))), "{rows:?}");
}

#[test]
fn links_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
    let (_watch, facts) = watch(root, BUDGET);
    std::os::unix::fs::symlink(outside.path(), root.join("later")).unwrap();
    std::fs::write(outside.path().join("secret"), "").unwrap();
    std::fs::write(root.join("end"), "").unwrap();
    let (rows, _) = until(&facts, "end");
    assert!(!rows.iter().any(|(_, path, _)| path.contains("secret")), "what links point at is not watched: {rows:?}");
    assert!(Watch::start(&root.join("link"), |_| ()).is_err(), "a root that is a link is refused");
}

#[test]
fn a_budget_that_does_not_suffice_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for i in 0..20 {
        std::fs::create_dir(root.join(format!("d{i}"))).unwrap();
    }
    let (_watch, facts) = watch(root, 5);
    std::fs::create_dir(root.join("more")).unwrap();
    std::fs::write(root.join("end"), "").unwrap();
    let (_, notes) = until(&facts, "end");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes.iter().all(|note| note.contains("5 directories")), "{notes:?}");
}

#[test]
fn a_rename_that_brings_very_many_files_in_is_kept_in_bounds_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::create_dir_all(root.join("target/many")).unwrap();
    for i in 0..WAITING + 10 {
        std::fs::File::create(root.join(format!("target/many/{i}"))).unwrap();
    }
    let (_watch, facts) = watch(root, BUDGET);
    std::fs::rename(root.join("target/many"), root.join("many")).unwrap();
    let note = std::iter::from_fn(|| facts.recv_timeout(Duration::from_secs(20)).ok())
        .find_map(|fact| if let Fact::Incomplete { detail } = fact { Some(detail) } else { None });
    assert!(note.as_deref().is_some_and(|note| note.contains("than are kept")), "{note:?}");
}

#[test]
fn an_end_comes_after_everything_before_it() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..20 {
        let (watch, facts) = watch(dir.path(), BUDGET);
        std::fs::write(dir.path().join(format!("f{i}")), "").unwrap();
        drop(watch);
        let (rows, notes) = until(&facts, &format!("f{i}"));
        assert_eq!(rows, [(FileOp::Create, format!("f{i}"), None)], "the last change before the end is told");
        assert_eq!(notes, Vec::<String>::new());
    }
}

#[test]
fn reading_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("old"), "x").unwrap();
    let (_watch, facts) = watch(dir.path(), BUDGET);
    for _ in 0..8000 {
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap(), b"x");
    }
    std::fs::write(dir.path().join("end"), "").unwrap();
    let (rows, notes) = until(&facts, "end");
    assert_eq!(rows, [(FileOp::Create, "end".into(), None)], "opens are heard and not told");
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn what_left_the_workspace_is_not_watched_and_what_takes_its_name_is() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    let (_watch, facts) = watch(root, BUDGET);
    std::fs::rename(root.join("a"), outside.path().join("gone")).unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/first"), "").unwrap();
    until(&facts, "a/b/first");
    // The window in which both halves of a rename are joined is over once something later was told.
    std::fs::write(root.join("later"), "").unwrap();
    until(&facts, "later");
    std::fs::write(outside.path().join("gone/b/secret"), "").unwrap();
    std::fs::remove_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/second"), "").unwrap();
    let (rows, notes) = until(&facts, "a/b/second");
    assert!(!rows.iter().any(|(_, path, _)| path.contains("secret")), "what was moved out is the person's: {rows:?}");
    assert_eq!(notes, Vec::<String>::new());
}
