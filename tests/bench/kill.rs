//! Ending 600 processes that went into the background and ignore every signal: a jail against bubblewrap's own init.

use crate::jail::Task;
use crate::side::{Measured, Side, Table, compare};
use crate::start;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Sandbox, eventually};

const PROCESSES: usize = 600;
/// How long they are left alone before their end.
const SETTLED: Duration = Duration::from_millis(300);
const BUBBLEWRAP: &str = "bubblewrap, SIGKILL to its init";

/// Starts them, each with a session of its own and its parent gone, says by a file that every one has become its program, and stays.
fn script() -> String {
    format!(
        "rm -f ready; trap '' TERM HUP INT; i=0; while [ $i -lt {PROCESSES} ]; do (setsid sleep 1000 </dev/null >/dev/null 2>&1 &); i=$((i+1)); done; \
         until [ $(grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | wc -l) -ge {PROCESSES} ]; do sleep 0.1; done; touch ready; exec sleep 1000"
    )
}

fn ready(dir: &Path) {
    eventually("600 processes run", Duration::from_secs(60), || dir.join("ready").exists().then_some(()));
    // What a watcher still has to do for the start is no part of the end.
    std::thread::sleep(SETTLED);
}

fn child(of: u32) -> i32 {
    eventually("bubblewrap has its init", Duration::from_secs(10), || {
        std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?.split_whitespace().next()?.parse().ok()
    })
}

pub(crate) fn table(person: &Sandbox, rounds: usize) -> Table {
    let repo = person.small_repo_at(person.projects().join("kill"));
    let task = Task::new(person, &repo.path);
    let script = script();
    let jail = || -> Measured {
        drop(std::fs::remove_file(task.tree().join("ready")));
        let running = task.start(&["/bin/sh", "-c", &script], &[])?;
        ready(&task.tree());
        let start = Instant::now();
        running.jail.kill();
        running.jail.wait().map_err(|e| e.to_string())?;
        Ok(start.elapsed())
    };
    let bubblewrap = || -> Measured {
        drop(std::fs::remove_file(repo.path.join("ready")));
        let mut command: Command = start::bubblewrap(person, &repo.path, &["/bin/sh", "-c", &script]);
        let mut outer = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|e| format!("bwrap: {e}"))?;
        ready(&repo.path);
        let init = child(outer.id());
        let start = Instant::now();
        kill(Pid::from_raw(init), Signal::SIGKILL).map_err(|e| format!("its init can't be killed: {e}"))?;
        outer.wait().map_err(|e| e.to_string())?;
        Ok(start.elapsed())
    };
    compare(
        "ending 600 processes in the background",
        rounds,
        &mut [Side::new("Airlock's jail", jail).at_most(1.2, BUBBLEWRAP), Side::new(BUBBLEWRAP, bubblewrap)],
    )
}
