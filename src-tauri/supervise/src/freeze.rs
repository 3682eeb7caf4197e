//! Stops a whole jail from outside and lets it go on, without the help of anything inside.
//!
//! Every process of a pid namespace descends from its init (whatever loses its parent gets init for one), so the tree
//! below init is all of it. Parents are stopped before children and continued after them: a shell that saw its child stop
//! would take it for job control.

use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A stop takes microseconds; a process that shows nothing for this long waits for something that is stopped itself.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Host pids of init and all below it, parents first.
pub(crate) fn tree(init: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        if let Some(parent) = field(pid, "PPid:").and_then(|v| v.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = if field(init, "PPid:").is_some() { vec![init] } else { Vec::new() };
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        found.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// Stops everything; true when two looks in a row saw every process stopped. One look is not enough: a process that was
/// still running may have continued another that had been seen stopped.
pub(crate) fn freeze(init: i32) -> bool {
    for _ in 0..2 {
        if stop(init) {
            return true;
        }
        // A vfork child that was stopped holds its parent in an uninterruptible wait; a second of running undoes that.
        thaw(init);
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Continues everything, children first.
pub(crate) fn thaw(init: i32) {
    for pid in tree(init).into_iter().rev() {
        signal(pid, Signal::CONT);
    }
}

fn stop(init: i32) -> bool {
    let deadline = Instant::now() + STOP_LIMIT;
    let mut looks = 0;
    while Instant::now() < deadline {
        let processes = tree(init);
        // Where not even init is seen (a /proc that hides others' processes), nothing can be said of the rest.
        let mut all = processes.first() == Some(&init);
        for pid in processes {
            if !stopped(pid) {
                all = false;
                signal(pid, Signal::STOP);
            }
        }
        looks = if all { looks + 1 } else { 0 };
        if looks == 2 {
            return true;
        }
        if !all {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    false
}

/// Whether no thread of the process can run: stopped, stopped by a tracer, or dead.
fn stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let status = std::fs::read(thread.path().join("status")).unwrap_or_default();
        let state = value(&status, "State:");
        state.is_none_or(|s| s.starts_with(['T', 't', 'Z', 'X']))
    })
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended meanwhile.
        _ = rustix::process::kill_process(pid, signal);
    }
}

/// A field of `/proc/PID/status`; `None` where the process is gone. A program chooses its own name in it, with any bytes
/// but a newline, so fields are found at the start of a line.
pub(crate) fn field(pid: i32, name: &str) -> Option<String> {
    value(&std::fs::read(format!("/proc/{pid}/status")).ok()?, name)
}

fn value(status: &[u8], name: &str) -> Option<String> {
    let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(name.as_bytes()))?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}
