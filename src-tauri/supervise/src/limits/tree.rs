//! What the processes of one jail take, as `/proc` shows it.

use crate::cgroup::Scope;
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Processor time between two looks that counts as running, in nanoseconds.
const RAN: i64 = 1_000_000;
/// Longest wait for the end of a process that was killed.
const END: Duration = Duration::from_millis(300);

/// One process, told from a later one of the same number by when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) pid: i32,
    pub(super) begun: u64,
}

/// What it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Takes {
    /// Anonymous, shared and swapped-out memory, in bytes.
    memory: u64,
    threads: u64,
    /// Room in its table of descriptors.
    slots: u64,
    /// Processor time in nanoseconds.
    used: i64,
}

/// All processes of one jail, its init among them.
pub(super) struct Tree {
    init: Id,
    scope: Option<Arc<Scope>>,
    seen: HashMap<Id, Takes>,
}

impl Tree {
    pub(super) fn of(init: i32, scope: Option<Arc<Scope>>) -> io::Result<Self> {
        let begun = begun(init).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the jail has ended"))?;
        Ok(Self { init: Id { pid: init, begun }, scope, seen: HashMap::new() })
    }

    /// Looks at all of them; whether one ran since the last look. `None` where the jail is gone.
    pub(super) fn look(&mut self) -> Option<bool> {
        if begun(self.init.pid) != Some(self.init.begun) {
            return None;
        }
        let before = std::mem::take(&mut self.seen);
        for pid in self.members() {
            if let (Some(begun), Some(takes)) = (begun(pid), takes(pid)) {
                self.seen.insert(Id { pid, begun }, takes);
            }
        }
        Some(self.seen.iter().any(|(id, now)| before.get(id).is_none_or(|then| now.used - then.used >= RAN)))
    }

    /// Numbers of all that were seen.
    pub(super) fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.seen.keys().map(|id| id.pid)
    }

    /// Whether there is one that was not seen.
    pub(super) fn changed(&self) -> bool {
        let known: Vec<i32> = self.pids().collect();
        self.members().iter().any(|pid| !known.contains(pid))
    }

    fn commands(&self) -> impl Iterator<Item = (&Id, &Takes)> {
        self.seen.iter().filter(|(id, _)| **id != self.init)
    }

    /// Bytes that they hold; what several share is counted for each.
    pub(super) fn memory(&self) -> u64 {
        self.commands().map(|(_, t)| t.memory).sum()
    }

    /// Bytes that they hold together, and the one that holds most, whose share is its own.
    pub(super) fn exact_memory(&self) -> (u64, Option<(Id, u64)>) {
        let shares: Vec<(Id, u64)> = self.commands().map(|(id, t)| (*id, share(id.pid).unwrap_or(t.memory))).collect();
        (shares.iter().map(|(_, s)| s).sum(), shares.into_iter().max_by_key(|(_, s)| *s))
    }

    /// Processes and threads, init not counted.
    pub(super) fn threads(&self) -> u64 {
        self.commands().map(|(_, t)| t.threads).sum()
    }

    pub(super) fn with_most_threads(&self) -> Option<i32> {
        // Of many with one each, the parent that made them is what there is to name.
        let parents = self.commands().filter_map(|(id, _)| parent(id.pid));
        let mut children: HashMap<i32, u64> = HashMap::new();
        parents.for_each(|p| *children.entry(p).or_default() += 1);
        let weight = |id: &Id, t: &Takes| t.threads + children.get(&id.pid).copied().unwrap_or(0);
        self.commands().max_by_key(|(id, t)| weight(id, t)).map(|(id, _)| id.pid)
    }

    /// The oldest with at least so many open files, which its children may have from it, and how many.
    pub(super) fn with_open_files(&self, least: u64) -> Option<(i32, u64)> {
        self.commands()
            .filter(|(_, t)| t.slots >= least)
            .filter_map(|(id, _)| Some((id.pid, std::fs::read_dir(format!("/proc/{}/fd", id.pid)).ok()?.count() as u64)))
            .filter(|(_, open)| *open >= least)
            .min_by_key(|(pid, _)| begun(*pid))
    }

    /// The one that wrote most to disks so far.
    pub(super) fn with_most_written(&self) -> Option<i32> {
        let written = |pid: i32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            text.lines().find_map(|l| l.strip_prefix("write_bytes: ")?.parse::<u64>().ok())
        };
        self.commands()
            .filter_map(|(id, _)| Some((id.pid, written(id.pid).filter(|n| *n > 0)?)))
            .max_by_key(|(_, n)| *n)
            .map(|(pid, _)| pid)
    }

    /// Waits a moment for one that was killed.
    pub(super) fn wait_for_end(&self, id: Id) {
        let until = std::time::Instant::now() + END;
        while std::time::Instant::now() < until && begun(id.pid) == Some(id.begun) && share(id.pid).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Host pids of all there are now.
    fn members(&self) -> Vec<i32> {
        if let Some(pids) = self.scope.as_ref().and_then(|s| s.processes().ok()) {
            return pids;
        }
        let mut found = vec![self.init.pid];
        let mut at = 0;
        while let Some(pid) = found.get(at).copied() {
            at += 1;
            for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                match std::fs::read_to_string(task.path().join("children")) {
                    Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<i32>().ok())),
                    // A kernel without that list; whatever it is, the slow look misses nothing.
                    Err(e) if e.kind() == io::ErrorKind::NotFound && pid == self.init.pid => return crate::freeze::tree(pid),
                    Err(_) => {}
                }
            }
        }
        found
    }
}

/// Fields of `/proc/PID/stat` after the name, which a program chooses.
fn stat_field(pid: i32, number: usize) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = text.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn begun(pid: i32) -> Option<u64> {
    stat_field(pid, 22)
}

fn parent(pid: i32) -> Option<i32> {
    stat_field(pid, 4).and_then(|p| i32::try_from(p).ok())
}

fn takes(pid: i32) -> Option<Takes> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let mut takes = Takes { used: used(pid).unwrap_or(0), ..Takes::default() };
    for line in text.split(|b| *b == b'\n') {
        let value = |head: &[u8]| -> Option<u64> {
            std::str::from_utf8(line.strip_prefix(head)?).ok()?.split_ascii_whitespace().next()?.parse().ok()
        };
        if let Some(kib) = value(b"RssAnon:").or_else(|| value(b"RssShmem:")).or_else(|| value(b"VmSwap:")) {
            takes.memory += kib << 10;
        } else if let Some(n) = value(b"Threads:") {
            takes.threads = n;
        } else if let Some(n) = value(b"FDSize:") {
            takes.slots = n;
        }
    }
    Some(takes)
}

/// Processor time so far, in nanoseconds.
fn used(pid: i32) -> Option<i64> {
    let time = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(ClockId::now).ok()?;
    Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// Its part of anonymous, shared and swapped-out memory, each page by how many hold it; `None` for one that has none any more.
fn share(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let fields = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
    let kib = |l: &str| fields.iter().find_map(|f| l.strip_prefix(f)?.split_ascii_whitespace().next()?.parse::<u64>().ok());
    let parts: Vec<u64> = text.lines().filter_map(kib).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<u64>() << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn this_very_process_is_seen_as_it_is() {
        let me = i32::try_from(std::process::id()).unwrap();
        let held = vec![1u8; 64 << 20];
        let mut tree = Tree::of(me, None).unwrap();
        assert_eq!(tree.look(), Some(true), "what is new counts as running");
        let mine = tree.seen[&tree.init];
        assert!(mine.memory >= held.len() as u64 && mine.threads >= 2 && mine.slots >= 64 && mine.used > 0, "{mine:?}");
        assert!(share(me).unwrap() >= held.len() as u64);
        assert_eq!(tree.threads(), 0, "init is not counted");
    }
}
