//! Killed at any step, an exit is finished or undone, and a creation is removed: by a child process that ends itself there.

use crate::apply::{Memory, contents, main, plan};
use crate::fixture::{World, exit_id, same, task_id};
use crate::swap::{CHANGES, swapped};
use model::layout::Layout;
use std::cell::Cell;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use worktree::{CreateSpec, Journal, JournalError, Outcome, Plan, Step, act, clean_up, create, inspect, plan_undo, recover};

/// A journal in a file that ends its process at the n-th moment.
struct Deadly<'a> {
    file: &'a Path,
    left: Cell<u32>,
}

impl Deadly<'_> {
    fn moment(&self) {
        if self.left.get() == 0 {
            std::process::abort();
        }
        self.left.set(self.left.get() - 1);
    }
}

impl Journal for Deadly<'_> {
    fn record(&self, step: &Step) -> Result<(), JournalError> {
        self.moment();
        let mut file = std::fs::File::options().create(true).append(true).open(self.file).unwrap();
        writeln!(file, "{}", serde_json::to_string(step).unwrap()).unwrap();
        self.moment();
        Ok(())
    }
    fn passed(&self, _point: &str) {
        self.moment();
    }
}

/// Runs one of the ignored tests below in a process of its own.
fn child(name: &str, world: &World, at: u32) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--quiet"])
        .env("AIRLOCK_TEST_WORLD", world.dir.path())
        .env("AIRLOCK_TEST_MOMENT", at.to_string())
        .output()
        .unwrap()
        .status
}

fn world_of_parent() -> (std::path::PathBuf, Layout, u32) {
    let dir = std::path::PathBuf::from(std::env::var_os("AIRLOCK_TEST_WORLD").unwrap());
    let layout = Layout { data: dir.join("data/airlock"), config: dir.join("config/airlock"), runtime: dir.join("run/airlock") };
    (dir, layout, std::env::var("AIRLOCK_TEST_MOMENT").unwrap().parse().unwrap())
}

#[test]
#[ignore = "a process of its own for the test below"]
fn exit_process() {
    let (dir, layout, left) = world_of_parent();
    let plan: Plan = serde_json::from_slice(&std::fs::read(dir.join("plan.json")).unwrap()).unwrap();
    act(&layout, &plan, &Deadly { file: &dir.join("journal"), left: Cell::new(left) }).unwrap();
}

#[test]
#[ignore = "a process of its own for the test below"]
fn creation_process() {
    let (dir, layout, left) = world_of_parent();
    let (home, left) = (dir.join("home"), Cell::new(left));
    let repo = inspect(&dir.join("repo"), &layout, &home).unwrap();
    let id = model::id::TaskId::from_random([9; 8]);
    let repo_id = model::id::RepoId::from_random([7; 8]);
    let spec = CreateSpec { layout: &layout, home: &home, repo: &repo, repo_id: &repo_id, task_id: &id, base: None, branch: "x" };
    create(&spec, &|_| {
        if left.get() == 0 {
            std::process::abort();
        }
        left.set(left.get() - 1);
    })
    .unwrap();
}

/// Kills an exit at every moment; each time it must be whole or not there, and nothing may be left of it.
fn at_every_moment(make: &dyn Fn(&World) -> Plan) -> (u32, u32) {
    let (mut finished, mut undone) = (0, 0);
    for moment in 0.. {
        let world = World::new();
        let plan = make(&world);
        std::fs::write(world.dir.path().join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
        let (before, old) = (contents(&world), world.git(["rev-parse", "main"]));
        let status = child("kill::exit_process", &world, moment);
        let steps: Vec<Step> = std::fs::read_to_string(world.dir.path().join("journal"))
            .unwrap_or_default()
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let outcome = recover(&world.layout, &steps, &Memory::default()).unwrap();
        if steps.is_empty() {
            worktree::discard_plan(&world.layout, &plan).unwrap();
        }
        match outcome {
            Outcome::Undone => {
                assert_eq!(world.git(["rev-parse", "main"]), old, "moment {moment}: the branch is where it was");
                same(&contents(&world), &before, &format!("moment {moment}: so are the files"));
                undone += 1;
            }
            Outcome::Finished => {
                assert_eq!(
                    world.git(["rev-parse", "main"]),
                    plan.new.as_ref().unwrap().as_str(),
                    "moment {moment}: the branch moved"
                );
                finished += 1;
            }
        }
        assert_eq!(world.git(["status", "--porcelain", "-uall"]), "", "moment {moment}: files, index and branch agree");
        assert!(!world.repo.join(".git/index.lock").exists(), "moment {moment}: no lock is left");
        assert!(!world.listing().keys().any(|p| p.to_string_lossy().contains("airlock")), "moment {moment}: no file is left");
        assert!(!world.layout.data.join("exits").join(plan.exit.as_str()).exists(), "moment {moment}: nor of its own");
        if status.success() {
            return (finished, undone);
        }
        assert_eq!(status.signal(), Some(6), "moment {moment}: the child ended itself there");
    }
    unreachable!("the loop ends when the child does")
}

fn work(world: &World) -> Plan {
    let task = world.create();
    task.write("a.txt", "changed\n");
    task.write("new/file.txt", "new\n");
    task.remove("src/lib.rs");
    plan(world, &task, &main()).unwrap()
}

#[test]
fn an_apply_killed_at_any_moment_is_finished_or_undone() {
    let (finished, undone) = at_every_moment(&work);
    assert!(finished >= 6 && undone >= 6, "both ways were met: {finished} finished, {undone} undone");
}

#[test]
fn an_undo_killed_at_any_moment_is_finished_or_undone() {
    let (finished, undone) = at_every_moment(&|world| {
        let applied = work(world);
        act(&world.layout, &applied, &Memory::default()).unwrap();
        plan_undo(&world.layout, &world.home, &exit_id(2), &applied).unwrap()
    });
    assert!(finished >= 6 && undone >= 6, "both ways were met: {finished} finished, {undone} undone");
}

fn swap(world: &World) -> Plan {
    let task = swapped(world, &CHANGES);
    plan(world, &task, &main()).unwrap()
}

#[test]
fn changes_of_place_killed_at_any_moment_are_finished_or_undone() {
    let (finished, undone) = at_every_moment(&swap);
    assert!(finished >= 20 && undone >= 6, "both ways were met: {finished} finished, {undone} undone");
}

#[test]
fn their_undo_killed_at_any_moment_is_finished_or_undone() {
    let (finished, undone) = at_every_moment(&|world| {
        let applied = swap(world);
        act(&world.layout, &applied, &Memory::default()).unwrap();
        plan_undo(&world.layout, &world.home, &exit_id(2), &applied).unwrap()
    });
    assert!(finished >= 20 && undone >= 6, "both ways were met: {finished} finished, {undone} undone");
}

#[test]
fn a_creation_killed_at_any_moment_is_removed() {
    let mut killed = 0;
    for moment in 0.. {
        let world = World::new();
        let before = world.listing();
        let status = child("kill::creation_process", &world, moment);
        same(&world.listing(), &before, &format!("moment {moment}: the person's repository is as it was"));
        let id = model::id::TaskId::from_random([9; 8]);
        if status.success() {
            assert!(clean_up(&world.layout).unwrap().is_empty(), "a task that was made whole stays");
            break;
        }
        killed += 1;
        // A git that was just being started has the dead process's files for a moment, and with them the marker's lock.
        let mut gone = Vec::new();
        for _ in 0..200 {
            gone = clean_up(&world.layout).unwrap();
            if !gone.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(gone, std::slice::from_ref(&id), "moment {moment}: what was half made goes");
        assert!(!world.layout.task(&id).path().exists());
        world.create_as(&id, None).unwrap();
        assert!(clean_up(&world.layout).unwrap().is_empty(), "and can be made anew");
    }
    assert!(killed >= 4, "it was killed {killed} times");
}

#[test]
fn cleaning_up_leaves_a_creation_that_lives_alone() {
    let world = World::new();
    let repo = world.facts();
    let id = task_id();
    let spec = CreateSpec {
        layout: &world.layout,
        home: &world.home,
        repo: &repo,
        repo_id: &world.repo_id,
        task_id: &id,
        base: None,
        branch: "x",
    };
    let calls = Cell::new(0);
    create(&spec, &|_| {
        assert!(clean_up(&world.layout).unwrap().is_empty(), "it is being made");
        calls.set(calls.get() + 1);
    })
    .unwrap();
    assert!(calls.get() >= 4 && world.layout.task(&id).tree().join("a.txt").exists());
}

#[test]
fn a_recovery_waits_for_a_move_that_is_under_way() {
    let world = World::new();
    let plan = work(&world);
    let lock = world.layout.data.join("exits").join(plan.exit.as_str()).join("lock");
    let held = std::fs::File::create(&lock).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let steps = [Step::Intent(Box::new(plan.clone()))];
    std::thread::scope(|s| {
        let recovery = s.spawn(|| recover(&world.layout, &steps, &Memory::default()).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!recovery.is_finished(), "as long as a git holds the exit's lock nothing is judged");
        drop(held);
        assert_eq!(recovery.join().unwrap(), Outcome::Undone);
    });
}
