//! Killing any process at any moment loses nothing of the person's and leaves nothing behind.

use crate::steps::{apply, approve, candidate, look, show, text, untouched};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use testkit::{Sandbox, eventually};

/// Moments spread over the life of a run, in milliseconds after its start; fixed, so that a failure repeats.
const MOMENTS: [u64; 6] = [0, 7, 40, 130, 400, 900];

#[test]
fn a_killed_warden_leaves_no_process_and_the_next_command_recovers() {
    let person = Sandbox::new();
    let repo = person.dirty_repo();
    let before = look(&repo.path);
    for wait in MOMENTS {
        let mark = format!("{}", 7_000_000 + wait);
        let script =
            format!("echo x > x.txt; sleep {mark} & setsid sleep {mark} & while :; do echo y >> y.txt; sleep 0.01; done");
        let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
        c.arg(&repo.path).args(["--", "sh", "-c", &script]);
        let task = text(&person.finish(c, b"").ok().json(), "task");
        std::thread::sleep(Duration::from_millis(wait));
        let wardens = person.wardens();
        assert_eq!(wardens.len(), 1, "a run has one warden: {wardens:?}");
        kill(Pid::from_raw(wardens[0]), Signal::SIGKILL).unwrap();
        eventually("every process of the jail is gone", Duration::from_secs(20), || sleepers(&mark).is_empty().then_some(()));
        untouched(&before, &repo.path, &format!("after the warden was killed at {wait} ms"));
        eventually("the task is seen as ended", Duration::from_secs(20), || {
            (show(&person, &task)["state"] == "ended").then_some(())
        });
        let tree = candidate(&person, &task);
        assert!(!tree.is_empty(), "what the agent made until then can be reviewed");
        person.airlock(["task", "discard", &task]).ok();
    }
    assert_eq!(person.airlock(["task", "list", "--json"]).ok().json_lines().len(), 0, "every task could be discarded");
}

#[test]
fn a_command_line_killed_while_it_creates_leaves_a_task_that_can_be_discarded() {
    let person = Sandbox::new();
    let repo = person.dirty_repo();
    let before = look(&repo.path);
    for wait in [1, 20, 60, 150, 300] {
        let mut c = person.airlock_command(["run", "--repo"]);
        c.arg(&repo.path).args(["--", "sh", "-c", "echo x > x.txt"]);
        let live = testkit::Live::start(c);
        std::thread::sleep(Duration::from_millis(wait));
        // It may have ended before.
        let _ = kill(Pid::from_raw(live.pid()), Signal::SIGKILL);
        drop(live);
        untouched(&before, &repo.path, &format!("after `airlock run` was killed at {wait} ms"));
    }
    // A warden that was just started goes on without its starter, so a task may still begin and end.
    eventually("every task can be discarded", Duration::from_secs(60), || {
        let tasks = person.airlock(["task", "list", "--json"]).ok().json_lines();
        let busy = tasks.iter().filter(|t| person.airlock(["task", "discard", &text(t, "id")]).code() != 0).count();
        (busy == 0).then_some(())
    });
    let ran = person.run_script(&repo.path, &[], "echo x > x.txt").ok().json();
    assert_eq!(ran["exit"], 0, "the next run works: {ran}");
}

#[test]
fn a_keeper_killed_while_it_takes_the_candidate_costs_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let script = "mkdir big; i=0; while [ $i -lt 3000 ]; do echo $i > big/$i; i=$((i+1)); done; echo x > x.txt";
    let task = text(&person.run_script(&repo.path, &[], script).ok().json(), "task");
    let mut hit = 0;
    for _ in 0..10 {
        let diff = testkit::Live::start(person.airlock_command(["diff", &task, "--json"]));
        let keeper = eventually("a keeper or the end", Duration::from_secs(60), || {
            let keepers = keepers_of(diff.pid());
            (!keepers.is_empty() || !std::path::Path::new(&format!("/proc/{}/exe", diff.pid())).exists()).then_some(keepers)
        });
        for pid in &keeper {
            hit += usize::from(kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok());
        }
        diff.end(testkit::airlock::LIMIT);
        untouched(&before, &repo.path, "after a keeper was killed");
    }
    assert!(hit > 0, "a keeper was met at work");
    let tree = candidate(&person, &task);
    let result = text(&approve(&person, &task, &tree, &["x.txt"], &["."]), "result");
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.read("x.txt"), "x\n", "the next candidate is whole");
}

#[test]
fn an_apply_killed_half_way_is_finished_or_undone() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let main = repo.git(["rev-parse", "main"]);
    let script = "i=0; while [ $i -lt 300 ]; do echo $i > f$i.txt; i=$((i+1)); done";
    let ran = person.run_script(&repo.path, &[], script).ok().json();
    let task = text(&ran, "task");
    let files: Vec<String> = (0..300).map(|i| format!("f{i}.txt")).collect();
    let accept: Vec<&str> = files.iter().map(String::as_str).collect();
    let (lock, mut met) = (repo.path.join(".git/index.lock"), 0);
    for wait in [0, 10, 30, 60, 100, 150, 220] {
        let result = text(&approve(&person, &task, &text(&ran, "tree"), &accept, &[]), "result");
        let live = testkit::Live::start(person.airlock_command(["apply", &task, "--tree", &result]));
        // From its lock on it acts.
        eventually("an apply at work or at its end", Duration::from_secs(60), || {
            (lock.exists() || !std::path::Path::new(&format!("/proc/{}/exe", live.pid())).exists()).then_some(())
        });
        std::thread::sleep(Duration::from_millis(wait));
        // It may have ended before.
        let _ = kill(Pid::from_raw(live.pid()), Signal::SIGKILL);
        drop(live);
        met += usize::from(lock.exists());
        // Whatever is asked next mends first.
        show(&person, &task);
        assert!(!lock.exists(), "killed at {wait} ms: the index is locked no more");
        let there = files.iter().filter(|f| repo.path.join(f).exists()).count();
        let now = repo.git(["rev-parse", "main"]);
        let expected = if now == main { 0 } else { files.len() };
        assert_eq!(there, expected, "killed at {wait} ms: branch and working copy moved together or not at all");
        assert_eq!(repo.git(["status", "--porcelain"]), "", "killed at {wait} ms");
        if now != main {
            person.airlock(["undo", &task]).ok();
            assert_eq!(repo.git(["rev-parse", "main"]), main);
        }
    }
    assert!(met > 0, "an apply was met half-way");
}

#[test]
fn what_a_killed_creation_left_goes_with_the_next_command() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let kept = text(&person.run_script(&repo.path, &[], "echo x > x.txt").ok().json(), "task");
    // Files without a record: a kill between the first of them and the record leaves that.
    let left = person.task_dir(model::id::TaskId::from_random([3; 8]).as_str());
    std::fs::create_dir_all(left.join("tree/deep")).unwrap();
    std::fs::write(left.join("tree/deep/file"), "x").unwrap();
    person.airlock(["task", "list"]).ok();
    assert!(!left.exists(), "it is removed");
    assert!(person.task_dir(&kept).join("tree/x.txt").exists(), "and a task that has a record stays");
}

/// Processes `sleep MARK` anywhere on the machine.
fn sleepers(mark: &str) -> Vec<i32> {
    processes(|cmdline| cmdline.starts_with(b"sleep\0") && cmdline.split(|b| *b == 0).any(|w| w == mark.as_bytes()))
}

/// Keepers among the descendants of a process.
fn keepers_of(ancestor: i32) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let below = |pid: &i32| {
        let mut at = Some(*pid);
        while let Some(p) = at.filter(|p| *p > 1) {
            if p == ancestor {
                return true;
            }
            at = parent(p);
        }
        false
    };
    processes(|cmdline| cmdline.split(|b| *b == 0).any(|w| w == b"keeper")).into_iter().filter(below).collect()
}

fn processes(wanted: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        if std::fs::read(entry.path().join("cmdline")).is_ok_and(|c| wanted(&c)) {
            found.push(pid);
        }
    }
    found
}
