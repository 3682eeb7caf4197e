//! Who ends a jail without namespaces. The guard is the starter's child and the parent of all orphans inside. Guard, second
//! guard and jail are in one Landlock domain that lets no signal out of it, the jail also in an inner one that lets none reach
//! the guards: a signal from the guard to every process then reaches exactly the jail, at once, and no fork gets by.

use crate::REFUSED;
use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::link::Link;
use jail_plan::{Say, Stage};
use landlock::{CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetStatus, Scope};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitOptions, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Duration;
use sys::clone::Side;
use sys::proc::Stat;

/// Looks at what descends before what is seen is killed, where there is no better way.
const LOOKS: u32 = 200;

/// Ends of children and the wish to end come as words to read.
pub(super) fn hold_signals() -> Step<SignalFd> {
    let what = || "taking signals as words".to_owned();
    let mut set = SigSet::empty();
    set.add(NixSignal::SIGCHLD);
    set.add(NixSignal::SIGTERM);
    set.thread_block().or_refuse(Stage::Start, UNEXPECTED, what)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).or_refuse(Stage::Start, UNEXPECTED, what)
}

/// This process once it is one.
pub(super) struct Guard {
    second: Option<Second>,
}

/// Waits for the first one's death, and then ends all.
struct Second {
    pid: i32,
    /// Held by the first alone.
    _alive: OwnedFd,
}

impl Guard {
    /// Enters the domain, where the kernel has one that keeps signals in, and starts the second guard.
    pub(super) fn new(link: &Link) -> Step<Self> {
        let what = || "starting the second guard".to_owned();
        if !scope(link)? {
            return Ok(Self { second: None });
        }
        let (wait, alive) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_refuse(Stage::Start, UNEXPECTED, what)?;
        match sys::clone::fork_plain(0).or_refuse(Stage::Start, UNEXPECTED, what)? {
            Side::Parent { pid, .. } => Ok(Self { second: Some(Second { pid, _alive: alive }) }),
            Side::Child => {
                drop(alive);
                second(&wait)
            }
        }
    }

    /// Whether signals are kept in.
    pub(super) fn scoped(&self) -> bool {
        self.second.is_some()
    }

    /// Waits for the command's end, the starter's, or a word; ends whatever is left; says how it went.
    pub(super) fn run(&self, link: &Link, signals: &SignalFd, command: i32) -> ! {
        let (exit, signal) = loop {
            let mut poll = [PollFd::new(signals, PollFlags::IN), link.poll()];
            match rustix::event::poll(&mut poll, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break (None, None),
                Ok(_) => {}
            }
            let gone = !poll[1].revents().is_empty();
            let mut asked = false;
            while let Ok(Some(word)) = signals.read_signal() {
                asked |= word.ssi_signo == NixSignal::SIGTERM as u32;
            }
            if let Some(ended) = self.reap(command) {
                break ended;
            }
            if gone || asked {
                break (None, Some(Signal::KILL.as_raw()));
            }
        };
        self.end_all();
        drop(link.say(&Say::Ended { exit, signal }, &[]));
        std::process::exit(exit.unwrap_or(128 + signal.unwrap_or_default()))
    }

    /// Takes ended children; how it went once the command or the second guard is among them.
    fn reap(&self, command: i32) -> Option<(Option<i32>, Option<i32>)> {
        let mut how = None;
        while let Ok(Some((pid, ended))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if pid == command {
                how = Some((ended.exit_status(), ended.terminating_signal()));
            } else if self.second.as_ref().is_some_and(|second| second.pid == pid) {
                // Nobody would stand in for this one any more.
                how = how.or(Some((None, Some(Signal::KILL.as_raw()))));
            }
        }
        how
    }

    /// Until this process has no child left.
    fn end_all(&self) {
        loop {
            if self.scoped() {
                kill_domain();
            } else {
                kill_descendants();
            }
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(None) => break,
                    Err(rustix::io::Errno::CHILD) => return,
                    Ok(_) | Err(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Enters a domain that keeps signals in; false where the kernel has none. That it does so is tried on the starter: a signal
/// to every process would else reach all of the person's.
fn scope(link: &Link) -> Step<bool> {
    let what = || "keeping signals in".to_owned();
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(|r| r.create())
        .and_then(|r| r.restrict_self());
    let Ok(status) = made else { return Ok(false) };
    let starter = link.starter().or_refuse(Stage::Start, UNEXPECTED, what)?;
    let closed = starter.map(rustix::process::test_kill_process) == Some(Err(rustix::io::Errno::PERM));
    let sure = if status.ruleset == RulesetStatus::FullyEnforced && closed { Ok(true) } else { Err("they get out") };
    sure.or_refuse(Stage::Landlock, UNEXPECTED, what)
}

/// Every process of the domain but this one. Only ever called in a domain that was tried.
fn kill_domain() {
    _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), NixSignal::SIGKILL);
}

fn second(wait: &OwnedFd) -> ! {
    let fail = || std::process::exit(i32::from(REFUSED));
    // Stopped with the rest, it goes on when the first dies.
    let ready = rustix::process::set_parent_process_death_signal(Some(Signal::CONT)).is_ok()
        && rustix::thread::set_name(c"airlock-guard2").is_ok()
        && rustix::stdio::dup2_stdin(wait).is_ok()
        && sys::inherit::close_from(1).is_ok();
    if !ready {
        fail();
    }
    while rustix::io::read(rustix::stdio::stdin(), &mut [0; 1]) == Err(rustix::io::Errno::INTR) {}
    kill_domain();
    std::process::exit(0)
}

/// A process, told from a later one of the same number by when it began.
type Process = (i32, u64);

/// Stops whatever descends from this process until two looks see nothing new, then kills it.
fn kill_descendants() {
    let mut known = BTreeSet::new();
    for _ in 0..LOOKS {
        let seen = descendants();
        let new: Vec<Process> = seen.difference(&known).copied().collect();
        if new.is_empty() {
            break;
        }
        signal(new, Signal::STOP);
        known = seen;
    }
    signal(known, Signal::KILL);
}

/// What could not be signalled is seen at the next look.
fn signal(processes: impl IntoIterator<Item = Process>, signal: Signal) {
    for (pid, begun) in processes {
        drop(sys::proc::signal(pid, begun, signal));
    }
}

fn descendants() -> BTreeSet<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = Stat::of(pid) else { continue };
        children.entry(stat.parent).or_default().push((pid, stat.begun));
    }
    let mut found = BTreeSet::new();
    let mut todo = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(pid) = todo.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.insert(child);
            todo.push(child.0);
        }
    }
    found
}
