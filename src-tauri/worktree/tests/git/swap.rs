//! Links, files and directories that change places, with a trap behind every link.

use crate::apply::{Memory, contents, main, plan};
use crate::fixture::{Task, World, exit_id, listing, same, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use worktree::{ApplyError, Outcome, Plan, Step, act, plan_undo, recover};

/// What stands at `place` before or after; the directory has a file that also lies behind the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    File,
    Link,
    Dir,
}

pub(crate) const CHANGES: [(Shape, Shape); 6] = [
    (Shape::Link, Shape::Dir),
    (Shape::Dir, Shape::Link),
    (Shape::File, Shape::Dir),
    (Shape::Dir, Shape::File),
    (Shape::Link, Shape::File),
    (Shape::File, Shape::Link),
];

pub(crate) fn make(at: &Path, shape: Shape, outside: &Path) {
    match shape {
        Shape::File => std::fs::write(at, "a file\n").unwrap(),
        Shape::Link => symlink(outside, at).unwrap(),
        Shape::Dir => {
            write(&at.join("keep"), "inside\n");
            write(&at.join("deep/er/keep"), "inside, deeper\n");
        }
    }
}

pub(crate) fn unmake(at: &Path, shape: Shape) {
    match shape {
        Shape::Dir => std::fs::remove_dir_all(at).unwrap(),
        _ => std::fs::remove_file(at).unwrap(),
    }
}

/// A repository in which every change is made by one task, all at once.
pub(crate) fn swapped(world: &World, changes: &[(Shape, Shape)]) -> Task {
    let outside = world.dir.path().join("outside");
    write(&outside.join("keep"), "outside\n");
    write(&outside.join("deep/er/keep"), "outside, deeper\n");
    for (n, (old, _)) in changes.iter().enumerate() {
        make(&world.repo.join(format!("place{n}")), *old, &outside);
    }
    world.commit("places");
    let task = world.create();
    for (n, (old, new)) in changes.iter().enumerate() {
        let at = task.tree().join(format!("place{n}"));
        unmake(&at, *old);
        make(&at, *new, &outside);
    }
    task.write("a.txt", "changed\n");
    task
}

fn undo(world: &World, applied: &Plan) -> Result<(), ApplyError> {
    let plan = plan_undo(&world.layout, &world.home, &exit_id(2), applied)?;
    act(&world.layout, &plan, &Memory::default())
}

#[test]
fn each_is_applied_and_undone_in_one_go() {
    for change in CHANGES {
        for full in [true, false] {
            let world = World::new();
            let task = swapped(&world, &[change]);
            let outside = world.dir.path().join("outside");
            if !full {
                std::fs::remove_dir_all(&outside).unwrap();
                std::fs::create_dir(&outside).unwrap();
            }
            let (before, beyond) = (contents(&world), listing(&outside));
            let tree = task.candidate().tree;
            let all: Vec<_> = worktree::changes(&task.git, None, &tree).unwrap().into_iter().map(|f| f.path).collect();
            assert_eq!(worktree::result_tree(&task.git, &tree, &all).unwrap(), tree, "{change:?}: all accepted is all of it");
            let plan = plan(&world, &task, &main()).unwrap();
            act(&world.layout, &plan, &Memory::default()).unwrap();
            assert_eq!(world.git(["rev-parse", "HEAD^{tree}"]), plan.tree.as_str(), "{change:?}");
            assert_eq!(world.git(["status", "--porcelain", "-uall"]), "", "{change:?}: files, index and branch agree");
            same(&listing(&outside), &beyond, &format!("{change:?}: nothing behind a link is touched"));
            // What comes to lie behind the link in between does not matter either.
            write(&outside.join("keep"), "made since\n");
            write(&outside.join("deep/er/keep"), "made since\n");
            let beyond = listing(&outside);
            undo(&world, &plan).unwrap_or_else(|e| panic!("{change:?}: undone: {e}"));
            same(&contents(&world), &before, &format!("{change:?}: every file is back"));
            assert_eq!(world.git(["status", "--porcelain", "-uall"]), "", "{change:?}: and the index");
            same(&listing(&outside), &beyond, &format!("{change:?}: nothing behind a link is touched"));
            assert!(!world.repo.join(".git/index.lock").exists(), "{change:?}: no lock is left");
        }
    }
}

#[test]
fn empty_directories_are_in_nobodys_way() {
    let world = World::new();
    let task = swapped(&world, &[(Shape::Dir, Shape::File)]);
    std::fs::create_dir_all(world.repo.join("place0/empty/empty")).unwrap();
    let plan = plan(&world, &task, &main()).unwrap();
    act(&world.layout, &plan, &Memory::default()).unwrap();
    assert_eq!(std::fs::read_to_string(world.repo.join("place0")).unwrap(), "a file\n");
    undo(&world, &plan).unwrap();
    assert_eq!(world.git(["status", "--porcelain"]), "");
}

/// Someone who edits in the moment in which the branch has moved.
struct Meanwhile<'a>(&'a dyn Fn(), Memory);

impl worktree::Journal for Meanwhile<'_> {
    fn record(&self, step: &Step) -> Result<(), worktree::JournalError> {
        if matches!(step, Step::Moved) {
            (self.0)();
        }
        self.1.record(step)
    }
}

#[test]
fn what_somebody_puts_there_meanwhile_stays_and_all_else_comes_back() {
    let world = World::new();
    let task = swapped(&world, &[(Shape::Link, Shape::Dir)]);
    let old = world.git(["rev-parse", "HEAD"]);
    let plan = plan(&world, &task, &main()).unwrap();
    let place = world.repo.join("place0");
    let edit = || {
        std::fs::remove_file(&place).unwrap();
        symlink("/nowhere", &place).unwrap();
    };
    let error = act(&world.layout, &plan, &Meanwhile(&edit, Memory::default())).expect_err("it was edited");
    assert!(matches!(error, ApplyError::Busy { .. }), "{error}");
    assert_eq!(world.git(["rev-parse", "HEAD"]), old, "the branch is back");
    assert_eq!(std::fs::read_link(&place).unwrap(), Path::new("/nowhere"), "what was put there stays");
    assert_eq!(world.git(["status", "--porcelain"]), " M place0", "and nothing else differs");
}

#[test]
fn a_half_way_stop_never_says_that_nothing_was_done() {
    let world = World::new();
    let task = swapped(&world, &[(Shape::Link, Shape::Dir)]);
    let plan = plan(&world, &task, &main()).unwrap();
    let exit = world.layout.data.join("exits").join(plan.exit.as_str());
    // The staging areas go in the middle, so that it can be neither finished nor taken back.
    let sabotage = || std::fs::rename(exit.join("new"), exit.join("away")).unwrap();
    let journal = Meanwhile(&sabotage, Memory::default());
    let error = act(&world.layout, &plan, &journal).expect_err("it can't go on");
    assert!(matches!(error, ApplyError::HalfWay { .. }), "{error}");
    let steps = journal.1.0.lock().unwrap().clone();
    let again = recover(&world.layout, &steps, &Memory::default()).expect_err("nor now");
    for said in [error.to_string(), again.to_string()] {
        let words = said.to_lowercase();
        assert!(!words.contains("nothing was done") && !words.contains("as before"), "the branch did move: {said}");
        assert!(words.contains("may have changed"), "{said}");
    }
    std::fs::rename(exit.join("away"), exit.join("new")).unwrap();
    assert_eq!(recover(&world.layout, &steps, &Memory::default()).unwrap(), Outcome::Finished);
    assert_eq!(world.git(["rev-parse", "HEAD^{tree}"]), plan.tree.as_str());
    assert_eq!(world.git(["status", "--porcelain"]), "", "mended, it is finished");
    assert!(!exit.exists());
}
