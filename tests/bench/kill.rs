//! Ending 600 processes that went into the background and ignore every signal: a jail against bubblewrap's own init.

use crate::jail::Task;
use crate::{Side, compare, start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Sandbox, eventually};

const PROCESSES: usize = 600;
const ROUNDS: usize = 20;

/// Starts them, each with a session of its own and its parent gone, then says so by a file and stays.
fn script() -> String {
    format!(
        "rm -f ready; trap '' TERM HUP INT; i=0; while [ $i -lt {PROCESSES} ]; do (setsid sleep 1000 </dev/null >/dev/null 2>&1 &); i=$((i+1)); done; \
         touch ready; exec sleep 1000"
    )
}

fn ready(dir: &Path) {
    eventually("600 processes run", Duration::from_secs(60), || dir.join("ready").exists().then_some(()));
}

fn child(of: u32) -> i32 {
    eventually("bubblewrap has its init", Duration::from_secs(10), || {
        std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?.split_whitespace().next()?.parse().ok()
    })
}

pub(crate) fn table(person: &Sandbox) -> Value {
    let repo = person.small_repo_at(person.projects().join("kill"));
    let task = Task::new(person, &repo.path);
    let script = script();
    let jail = || {
        drop(std::fs::remove_file(task.tree().join("ready")));
        let running = task.start(&["/bin/sh", "-c", &script], &[]);
        ready(&task.tree());
        let start = Instant::now();
        running.jail.kill();
        running.jail.wait().expect("the jail ends");
        start.elapsed()
    };
    let bubblewrap = || {
        drop(std::fs::remove_file(repo.path.join("ready")));
        let mut command: Command = start::bubblewrap(person, &repo.path, &["/bin/sh", "-c", &script]);
        let mut outer = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("bubblewrap starts");
        ready(&repo.path);
        let init = child(outer.id());
        let start = Instant::now();
        kill(Pid::from_raw(init), Signal::SIGKILL).expect("its init can be killed");
        outer.wait().expect("bubblewrap ends");
        start.elapsed()
    };
    compare(
        "ending 600 processes in the background",
        ROUNDS,
        &mut [Side::new("Airlock's jail", jail), Side::new("bubblewrap, SIGKILL to its init", bubblewrap)],
    )
}
