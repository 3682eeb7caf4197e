//! What the processes of one jail take, as `/proc` shows it.

use crate::cgroup::Scope;
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sys::proc::Stat;

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
            let Ok(stat) = Stat::of(pid) else { continue };
            let shown_by = if stat.is_dead() { living(pid).unwrap_or(pid) } else { pid };
            if let Some(takes) = takes(pid, shown_by) {
                self.seen.insert(Id { pid, begun: stat.begun }, takes);
            }
        }
        Some(self.seen.iter().any(|(id, now)| before.get(id).is_none_or(|then| now.used - then.used >= RAN)))
    }

    /// Numbers of all that were seen.
    pub(super) fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.seen.keys().map(|id| id.pid)
    }

    /// Whether it is the init or a guard, which hold no files of the run's: guards are under no filter that this process is not
    /// under, and everything of the command is.
    pub(super) fn watches(&self, pid: i32) -> bool {
        pid == self.init.pid || filters(pid).is_some_and(|n| filters("self").is_some_and(|own| n <= own))
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
        let parents = self.commands().filter_map(|(id, _)| Some(Stat::of(id.pid).ok()?.parent));
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

    /// Waits a moment for one that was killed: until none of its threads lives, which holds its memory. That can be asked of
    /// each process, whatever it closed.
    pub(super) fn wait_for_end(&self, id: Id) {
        let until = std::time::Instant::now() + END;
        while std::time::Instant::now() < until && begun(id.pid) == Some(id.begun) && living(id.pid).is_some() {
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

fn begun(pid: i32) -> Option<u64> {
    Stat::of(pid).ok().map(|stat| stat.begun)
}

/// A thread by whose number `/proc` shows what a process holds: its first, or another where that ended before the rest and
/// shows nothing any more. `None` where none is left.
fn living(pid: i32) -> Option<i32> {
    let lives = |tid: &i32| Stat::of(tid).is_ok_and(|stat| !stat.is_dead());
    if lives(&pid) { Some(pid) } else { threads(pid).into_iter().find(lives) }
}

/// Numbers of a process's threads.
pub(super) fn threads(pid: i32) -> Vec<i32> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task"));
    listed.into_iter().flatten().flatten().filter_map(|t| t.file_name().to_str()?.parse().ok()).collect()
}

/// How many filters of calls judge a process, which no process can lower.
fn filters(pid: impl std::fmt::Display) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Seccomp_filters:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

fn takes(pid: i32, shown_by: i32) -> Option<Takes> {
    let text = std::fs::read(format!("/proc/{shown_by}/status")).ok()?;
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

/// Its part of anonymous, shared and swapped-out memory, each page by how many hold it; `None` for one that has none any
/// more, or that closed itself to such looks.
fn share(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", living(pid)?)).ok()?;
    let fields = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
    let kib = |l: &str| fields.iter().find_map(|f| l.strip_prefix(f)?.split_ascii_whitespace().next()?.parse::<u64>().ok());
    let parts: Vec<u64> = text.lines().filter_map(kib).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<u64>() << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A process that ordinary users can't look into, as root can.
    fn closed() -> std::process::Child {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        // What can't be read makes a process that can't be read.
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o111)).unwrap();
        #[allow(clippy::disallowed_methods, reason = "a process to look at")]
        std::process::Command::new(program).arg("60").spawn().unwrap()
    }

    #[test]
    fn the_end_of_a_process_is_waited_for_though_it_closed_itself() {
        let tree = Tree::of(i32::try_from(std::process::id()).unwrap(), None).unwrap();
        let mut child = closed();
        let pid = i32::try_from(child.id()).unwrap();
        let id = Id { pid, begun: begun(pid).unwrap() };
        let start = std::time::Instant::now();
        tree.wait_for_end(id);
        assert!(start.elapsed() >= END, "it lives: {:?}", start.elapsed());
        child.kill().unwrap();
        let start = std::time::Instant::now();
        tree.wait_for_end(id);
        assert!(start.elapsed() < END, "it is dead, though nobody reaped it: {:?}", start.elapsed());
        assert_eq!(living(pid), None);
        child.wait().unwrap();
    }

    #[test]
    fn what_threads_hold_is_seen_though_the_first_one_ended() {
        let script = "import ctypes, threading, time\nheld = bytearray(b'x' * (64 << 20))\n\
                      threading.Thread(target=time.sleep, args=(60,)).start()\nctypes.CDLL(None).pthread_exit(None)";
        #[allow(clippy::disallowed_methods, reason = "a process to look at")]
        let mut child = std::process::Command::new("python3").args(["-c", script]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while std::time::Instant::now() < until && Stat::of(pid).is_ok_and(|stat| !stat.is_dead()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let tid = living(pid).unwrap();
        assert_ne!(tid, pid, "the first thread is dead");
        assert!(takes(pid, tid).unwrap().memory >= 64 << 20, "its memory is that of the others");
        assert!(share(pid).unwrap() >= 64 << 20);
        child.kill().unwrap();
        child.wait().unwrap();
    }

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
