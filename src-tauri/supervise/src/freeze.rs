//! Stops a whole jail from outside and lets it go on, without the help of anything inside.
//!
//! Every process of a pid namespace descends from its init (whatever loses its parent gets init for one), so the tree
//! below init is all of it. Parents are stopped before children and continued after them: a shell that saw its child stop
//! would take it for job control.
//!
//! An error is never taken for an answer: what can't be read is not stopped, and what was stopped is remembered until it
//! was continued. All of it runs on a table of descriptors of its own, since a shortage of them in this process must not
//! leave a jail stopped.

use nix::libc;
use rustix::process::{Pid, Signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::proc::{Stat, is_gone, unclear};

/// A stop takes microseconds, or as long as a process waits for an answer from outside. One that shows nothing for this long
/// may wait for something that is stopped itself, which only letting all go on ends.
const STOP_LIMITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(2)];
/// And that often, however long it takes: on a machine that has much to do, a second may be two looks.
const STOP_LOOKS: u32 = 50;
/// Looks in a row that must see every process stopped. One is not enough: a process that was still running may have continued
/// another that had been seen stopped.
const LOOKS: u32 = 2;
/// That many where some are in a vfork: they can't be told from one that is about to have made its child.
const LOOKS_AT_VFORK: u32 = 20;
/// The calls in which a parent waits until its child became another program.
#[cfg(target_arch = "x86_64")]
const MAKES_A_PROCESS: &[i64] = &[libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];
#[cfg(not(target_arch = "x86_64"))]
const MAKES_A_PROCESS: &[i64] = &[libc::SYS_clone, libc::SYS_clone3];

/// A process that was continued and is still seen stopped after this long stopped again by itself, as shells' jobs do.
const SEEN_RUNNING_LIMIT: Duration = Duration::from_millis(200);

/// A process, told from a later one of the same number by when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    begun: u64,
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Some thread can run.
    Running,
    /// None can before something happened that no signal hurries: the child of a vfork, an answer from outside.
    Waiting,
    /// None can: stopped, or stopped by a tracer.
    Stopped,
    /// None ever will again.
    Dead,
    /// There is no such process any more.
    Gone,
    /// It could not be looked at.
    Unknown,
}

/// A look at `/proc`: init and all below it, parents first.
struct Tree {
    processes: Vec<Process>,
    /// Why some process may be missing.
    missed: Option<io::Error>,
}

/// Which processes of a jail were stopped and not yet continued.
#[derive(Debug, Default)]
pub(crate) struct Frozen(Mutex<Vec<Process>>);

impl Frozen {
    /// Stops everything; true when every process was seen stopped. False leaves them running.
    pub(crate) fn freeze(&self, init: i32) -> bool {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = &mut *remembered;
        apart(move || {
            for limit in STOP_LIMITS {
                if stop(init, remembered, limit) {
                    return true;
                }
                proceed(init, remembered);
                std::thread::sleep(Duration::from_millis(50));
            }
            false
        })
    }

    /// Continues everything, children first, and returns when that is done or the jail is gone.
    pub(crate) fn thaw(&self, init: i32) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = &mut *remembered;
        apart(move || proceed(init, remembered));
    }
}

/// Ends exactly this process, not a later one of its number.
pub(crate) fn kill(pid: i32, begun: u64) -> io::Result<()> {
    send(Process { pid, begun }, Signal::KILL)
}

/// Host pids of init and all below it, parents first, as far as they are seen.
pub(crate) fn tree(init: i32) -> Vec<i32> {
    apart(move || walk(init).processes.into_iter().map(|p| p.pid).collect())
}

/// Host pid of the command: pid 2 of the jail's own numbering, which init forked first and nobody else can be.
pub(crate) fn command(init: i32) -> io::Result<Pid> {
    apart(move || {
        let Tree { processes, mut missed } = walk(init);
        for process in processes {
            match numbers(process.pid) {
                Ok(numbers) if numbers.last() == Some(&2) => {
                    return Pid::from_raw(process.pid).ok_or_else(|| io::ErrorKind::NotFound.into());
                }
                Err(e) if !is_gone(&e) => missed = Some(e),
                Ok(_) | Err(_) => {}
            }
        }
        Err(missed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the command has ended")))
    })
}

/// On a table of descriptors of its own; where none can be made, on this one.
fn apart<T: Send>(mut job: impl FnMut() -> T + Send) -> T {
    sys::fd::with_own_table(&mut job).unwrap_or_else(|_| job())
}

/// Looks until everything is seen stopped. A parent can't be before the child of its vfork became another program, and where
/// that child is stopped it goes nowhere either: a shell that starts one program after the other is often met so.
fn stop(init: i32, remembered: &mut Vec<Process>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let (mut looks, mut tries) = (0, 0);
    while Instant::now() < deadline || tries < STOP_LOOKS {
        tries += 1;
        let tree = walk(init);
        // Where not even init is seen (a /proc that hides others' processes), nothing can be said of the rest.
        let mut all = tree.missed.is_none() && tree.processes.first().is_some_and(|p| p.pid == init);
        let mut enough = LOOKS;
        for process in tree.processes {
            let signalled = remembered.contains(&process);
            match judge(threads(process.pid)) {
                State::Stopped | State::Dead | State::Gone => continue,
                State::Waiting if signalled && waits_for_a_child(process.pid) => {
                    enough = LOOKS_AT_VFORK;
                    continue;
                }
                State::Waiting | State::Running | State::Unknown => {}
            }
            all = false;
            // Before the signal, so that no stop is ever forgotten.
            if !signalled {
                remembered.push(process);
            }
            // One that could not be sent is seen at the next look.
            drop(send(process, Signal::STOP));
        }
        looks = if all { looks + 1 } else { 0 };
        if looks >= enough {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Whether every thread that is not stopped is in a call that makes a process.
fn waits_for_a_child(pid: i32) -> bool {
    let waits = |thread: io::Result<std::fs::DirEntry>| -> io::Result<bool> {
        let thread = thread?.path();
        let stopped = Stat::parse(&std::fs::read(thread.join("stat"))?).is_some_and(|s| s.state != b'D');
        let call = std::fs::read_to_string(thread.join("syscall"))?;
        let number = call.split(' ').next().and_then(|n| n.parse::<i64>().ok());
        Ok(stopped || number.is_some_and(|n| MAKES_A_PROCESS.contains(&n)))
    };
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|mut all| all.all(|thread| waits(thread).unwrap_or(false)))
}

/// Continues what was stopped, and whatever is there beside. What was stopped is tried until the signal reached it.
fn proceed(init: i32, remembered: &mut Vec<Process>) {
    let begun = Instant::now();
    loop {
        let tree = walk(init);
        let mut unsure = tree.missed.is_some();
        let mut unreached = false;
        let known: HashSet<Process> = remembered.iter().copied().collect();
        let more = tree.processes.into_iter().filter(|p| !known.contains(p));
        let all: Vec<Process> = remembered.iter().copied().chain(more).collect();
        for process in all.iter().rev() {
            unreached |= send(*process, Signal::CONT).is_err() && known.contains(process);
            unsure |= matches!(judge(threads(process.pid)), State::Stopped | State::Unknown);
        }
        if !unreached && (!unsure || begun.elapsed() > SEEN_RUNNING_LIMIT) {
            remembered.clear();
            return;
        }
        std::thread::sleep(Duration::from_millis(if unreached { 50 } else { 5 }));
    }
}

fn send(process: Process, signal: Signal) -> io::Result<()> {
    sys::proc::signal(process.pid, process.begun, signal)
}

fn walk(init: i32) -> Tree {
    let mut missed = None;
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let mut found = Vec::new();
    let mut look = || -> io::Result<()> {
        for entry in std::fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            match Stat::of(pid) {
                Ok(stat) if pid == init => found.push(Process { pid, begun: stat.begun }),
                Ok(stat) => children.entry(stat.parent).or_default().push(Process { pid, begun: stat.begun }),
                Err(e) if is_gone(&e) => {}
                Err(e) => missed = Some(e),
            }
        }
        Ok(())
    };
    let looked = look();
    let mut at = 0;
    while let Some(process) = found.get(at) {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        at += 1;
    }
    Tree { processes: found, missed: looked.err().or(missed) }
}

/// What each thread's `stat` says.
fn threads(pid: i32) -> io::Result<Vec<io::Result<Vec<u8>>>> {
    std::fs::read_dir(format!("/proc/{pid}/task"))?.map(|t| Ok(std::fs::read(t?.path().join("stat")))).collect()
}

fn judge(threads: io::Result<Vec<io::Result<Vec<u8>>>>) -> State {
    let threads = match threads {
        Ok(threads) => threads,
        Err(e) if is_gone(&e) => return State::Gone,
        Err(_) => return State::Unknown,
    };
    let (mut unknown, mut waiting, mut stopped, mut dead) = (false, false, false, false);
    for thread in threads {
        match thread.map(|stat| Stat::parse(&stat)) {
            Ok(Some(Stat { state: b'T' | b't', .. })) => stopped = true,
            Ok(Some(Stat { state: b'Z' | b'X', .. })) => dead = true,
            Ok(Some(Stat { state: b'D', .. })) => waiting = true,
            Ok(Some(_)) => return State::Running,
            Err(e) if is_gone(&e) => {}
            Ok(None) | Err(_) => unknown = true,
        }
    }
    match (unknown, waiting, stopped, dead) {
        (true, ..) => State::Unknown,
        (false, true, ..) => State::Waiting,
        (false, false, true, _) => State::Stopped,
        (false, false, false, true) => State::Dead,
        (false, false, false, false) => State::Gone,
    }
}

/// A process's number in each pid namespace, the innermost last. Its name stands in the same file, but holds no newline.
fn numbers(pid: i32) -> io::Result<Vec<i32>> {
    let status = std::fs::read(format!("/proc/{pid}/status"))?;
    let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"NSpid:")).ok_or_else(|| unclear(pid))?;
    Ok(String::from_utf8_lossy(line).split_whitespace().filter_map(|n| n.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn stat(state: char) -> io::Result<Vec<u8>> {
        Ok(format!("7 (a ) T (name) {state} 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0").into_bytes())
    }

    fn error(errno: Errno) -> io::Error {
        io::Error::from(errno)
    }

    #[test]
    fn an_error_is_never_taken_for_stopped() {
        for bad in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::PERM, Errno::NOMEM, Errno::INTR, Errno::IO] {
            assert_eq!(judge(Err(error(bad))), State::Unknown, "{bad}: its threads can't be listed");
            assert_eq!(judge(Ok(vec![stat('T'), Err(error(bad))])), State::Unknown, "{bad}: one of its threads can't be read");
            assert_eq!(judge(Ok(vec![stat('S'), Err(error(bad))])), State::Running, "{bad}: but another is seen running");
        }
        assert_eq!(judge(Ok(vec![stat('T'), Ok(Vec::new())])), State::Unknown, "an empty answer is none");
    }

    #[test]
    fn a_process_is_stopped_when_every_thread_that_is_left_is() {
        for gone in [Errno::NOENT, Errno::SRCH] {
            assert_eq!(judge(Err(error(gone))), State::Gone, "{gone}");
            assert_eq!(judge(Ok(vec![Err(error(gone))])), State::Gone, "{gone}: its last thread ended meanwhile");
            assert_eq!(judge(Ok(vec![stat('T'), Err(error(gone))])), State::Stopped, "{gone}: a thread ended meanwhile");
        }
        assert_eq!(judge(Ok(vec![stat('Z'), stat('t')])), State::Stopped, "a dead leader's threads count");
        assert_eq!(judge(Ok(vec![stat('Z'), stat('R')])), State::Running, "a dead leader's threads count");
        assert_eq!(judge(Ok(vec![stat('Z')])), State::Dead);
        assert_eq!(judge(Ok(vec![stat('T'), stat('D')])), State::Waiting, "a call that can't be interrupted can change files");
        assert_eq!(judge(Ok(vec![stat('D'), stat('R')])), State::Running, "another thread can run");
        for state in ['R', 'S', 'I', 'W', 'P'] {
            assert_eq!(judge(Ok(vec![stat('T'), stat(state)])), State::Running, "`{state}` can run");
        }
    }

    #[test]
    fn a_process_of_another_beginning_is_not_signalled() {
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        assert!(send(Process { pid: me, begun: 1 }, Signal::KILL).is_ok(), "a number that is another's by now is passed over");
        let tree = walk(me);
        assert_eq!(tree.processes.first().map(|p| p.pid), Some(me), "and the one that is meant is found");
        assert_ne!(tree.processes.first().map(|p| p.begun), Some(1));
    }
}
