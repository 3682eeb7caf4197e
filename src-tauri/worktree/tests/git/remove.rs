//! Removal: whatever an agent made, and nothing else.

use crate::fixture::{World, exit_id, same, write};
use std::os::unix::fs::{PermissionsExt, symlink};
use worktree::{clean_up, remove_repo, remove_task};

#[test]
fn everything_of_a_task_goes_and_nothing_else() {
    let world = World::new();
    let task = world.create();
    let other = world.create();
    let outside = world.dir.path().join("outside");
    write(&outside.join("file"), "stays");
    symlink(&outside, task.tree().join("link")).unwrap();
    for dir in ["locked", "locked/in/side"] {
        task.write(format!("{dir}/file"), "x");
    }
    for dir in ["locked/in/side", "locked/in", "locked"] {
        std::fs::set_permissions(task.tree().join(dir), std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    let before = world.listing();
    remove_task(&world.layout, &world.repo_id, &task.git.task).unwrap();
    assert!(!task.git.dir().path().exists(), "its files are gone");
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "stays", "a link is removed, not followed");
    let store = world.layout.repo(&world.repo_id).join("store.git");
    let list = world.git_in(&store, ["--git-dir=.", "worktree", "list"]);
    assert!(
        !list.contains(task.git.task.as_str()) && list.contains(other.git.task.as_str()),
        "the store forgot it alone: {list}"
    );
    other.write("b.txt", "b\n");
    assert_eq!(other.files(&world, other.candidate().tree.as_str()).len(), 4, "the other task works on");
    same(&world.listing(), &before, "it is as it was");
    remove_task(&world.layout, &world.repo_id, &task.git.task).unwrap();
    remove_repo(&world.layout, &world.repo_id).unwrap();
    assert!(!store.exists());
}

#[test]
fn a_tree_deeper_than_any_path_goes() {
    let world = World::new();
    let task = world.create();
    let mut at = rustix::fs::open(task.tree(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    rustix::fs::openat(&at, "file", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY, rustix::fs::Mode::RUSR).unwrap();
    let taken = task.candidate();
    assert!(taken.left_out.iter().any(|(_, why)| why.contains("deep")), "a candidate tells that it did not go there");
    remove_task(&world.layout, &world.repo_id, &task.git.task).unwrap();
    assert!(!task.git.dir().path().exists());
    assert!(clean_up(&world.layout).unwrap().is_empty());
}

#[test]
fn history_that_nobody_uses_goes_but_for_the_last() {
    let world = World::new();
    let dirs = || std::fs::read_dir(world.layout.repo(&world.repo_id).join("history")).unwrap().count();
    let first = world.create();
    world.git(["checkout", "-q", "--orphan", "else"]);
    world.commit("unrelated");
    world.git(["branch", "-D", "main"]);
    let second = world.create();
    assert_ne!(first.created.history, second.created.history);
    remove_task(&world.layout, &world.repo_id, &first.git.task).unwrap();
    assert!(!first.created.history[0].exists(), "unused history goes");
    assert!(second.created.history[0].exists(), "used history stays");
    remove_task(&world.layout, &world.repo_id, &second.git.task).unwrap();
    assert_eq!(dirs(), 2, "the last one stays, with its record, for the next task");
    assert_eq!(world.create().created.history, second.created.history);
}

#[test]
fn an_exit_that_was_only_planned_goes_and_one_that_was_begun_stays() {
    let world = World::new();
    world.create();
    let exits = world.layout.data.join("exits");
    let place = |n: u8| exits.join(exit_id(n).as_str());
    for n in 1..=4 {
        write(&place(n).join("new/file"), "x");
    }
    write(&place(2).join("begun"), "");
    let held = std::fs::File::create(place(3).join("lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 3600);
    for n in 1..=3 {
        std::fs::File::open(place(n)).unwrap().set_modified(long_ago).unwrap();
    }
    clean_up(&world.layout).unwrap();
    assert!(!place(1).exists(), "nobody does this any more");
    assert!(place(2).exists(), "the journal names this one");
    assert!(place(3).exists(), "somebody is at this one");
    assert!(place(4).exists(), "this one was planned just now");
}

#[test]
fn an_exit_is_begun_once_its_journal_names_it() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", "changed\n");
    let plan = crate::apply::plan(&world, &task, &crate::apply::main()).unwrap();
    let place = world.layout.data.join("exits").join(plan.exit.as_str());
    assert!(!place.join("begun").exists(), "planned only");
    struct Looks(std::path::PathBuf, std::cell::Cell<u32>);
    impl worktree::Journal for Looks {
        fn record(&self, step: &worktree::Step) -> Result<(), worktree::JournalError> {
            if !matches!(step, worktree::Step::Intent(_)) {
                assert!(self.0.exists(), "before anything else is written down");
                self.1.set(self.1.get() + 1);
            }
            Ok(())
        }
    }
    let journal = Looks(place.join("begun"), std::cell::Cell::new(0));
    worktree::act(&world.layout, &plan, &journal).unwrap();
    assert!(journal.1.get() >= 3 && !place.exists(), "and done, nothing is left");
}
