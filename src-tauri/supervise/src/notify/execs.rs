//! Programs that start and end: an exec is told only once it happened, an exit only of what was told.
//!
//! A `$PATH` search notifies one exec per candidate, and nothing notifies success. So the process is compared with what it
//! was: at its next notification, by short polls, and when it ends.

use crate::fact::Fact;
use crate::tell::Teller;
use crate::who::{Who, exe, program, stat};
use model::event::{Origin, Process};
use model::path::RawPath;
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::proc::Stat;

/// Processes whose end is waited for at a time; each costs a descriptor.
const WATCHED: usize = 400;
const FIRST_LOOK: Duration = Duration::from_millis(1);
const SLOWEST_LOOK: Duration = Duration::from_millis(250);
/// After so long without a sign, an exec failed.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Longest wait for the ends of the last programs.
const DRAIN: Duration = Duration::from_secs(1);
/// Values of [`Execs`]'s `end`.
const RUNS: u8 = 0;
const DRAINS: u8 = 1;
const STOPS: u8 = 2;
/// Length of the kernel's short name.
const COMM: usize = 15;

/// Execs under way and programs that run.
#[derive(Debug)]
pub(crate) struct Execs {
    who: Arc<Who>,
    teller: Teller,
    epoll: OwnedFd,
    wake: OwnedFd,
    state: Mutex<State>,
    under_way: AtomicUsize,
    end: AtomicU8,
}

#[derive(Debug, Default)]
struct State {
    by_tgid: HashMap<u32, Watch>,
    limited: bool,
}

#[derive(Debug)]
struct Watch {
    pidfd: Option<OwnedFd>,
    start: u64,
    attempt: Option<Attempt>,
    runs: Option<Arc<Process>>,
}

/// What an exec asks for; each `None` where it could not be read.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Absolute path.
    pub(crate) path: Option<PathBuf>,
    /// Where the executable file there lies; also `None` where there is none.
    pub(crate) program: Option<PathBuf>,
    /// Arguments.
    pub(crate) argv: Option<Vec<RawPath>>,
}

#[derive(Debug)]
struct Attempt {
    tid: u32,
    /// Absolute, as asked for.
    path: Option<PathBuf>,
    /// Where the executable file at that path lay when it was asked for.
    program: Option<PathBuf>,
    argv: Option<Vec<RawPath>>,
    before: Print,
    known: Option<Arc<Process>>,
    since: Instant,
    look: Instant,
    wait: Duration,
}

/// What changes when a process becomes another program, even the same one again (addresses are random).
#[derive(Debug)]
struct Print {
    exe: Option<Vec<u8>>,
    comm: Vec<u8>,
    start_stack: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Sign {
    Became,
    Same,
    Gone,
}

/// What is known of a program that nobody saw run.
#[derive(Debug)]
enum Became {
    /// Where its file lies.
    At(PathBuf),
    /// The kernel's short name for it.
    Named(Vec<u8>),
}

impl Execs {
    /// Makes the descriptors; [`Execs::run`] serves them.
    pub(crate) fn new(who: Arc<Who>, teller: Teller) -> std::io::Result<Execs> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Execs { who, teller, epoll, wake, state: Mutex::default(), under_way: AtomicUsize::new(0), end: AtomicU8::new(RUNS) })
    }

    /// An exec is about to be let through; its caller still waits.
    pub(crate) fn began(&self, tid: u32, tgid: u32, asked: Asked) {
        self.check(tid, tgid);
        let Some((stat, before)) = Print::of(tgid) else { return };
        let known = self.who.known(tid);
        self.who.changing(tgid);
        let now = Instant::now();
        let Asked { path, program, argv } = asked;
        let attempt = Attempt { tid, path, program, argv, before, known, since: now, look: now + FIRST_LOOK, wait: FIRST_LOOK };
        let mut state = self.state();
        // A parent that forked has come through its own exec, and is told first.
        let above = u32::try_from(stat.parent).unwrap_or(0);
        let parent = state.by_tgid.get(&above).and_then(|watch| watch.attempt.as_ref());
        if parent.is_some_and(|attempt| attempt.sign(above) == Sign::Became) {
            self.became(&mut state, above);
        }
        // The number may have been another process's, whose end has not been told yet.
        if state.by_tgid.get(&tgid).is_some_and(|watch| watch.start != stat.begun) {
            self.ended(&mut state, tgid);
        }
        let room = state.by_tgid.len() < WATCHED;
        let watch = state.by_tgid.entry(tgid).or_insert_with(|| Watch {
            pidfd: room.then(|| self.watch(tgid)).flatten(),
            start: stat.begun,
            attempt: None,
            runs: None,
        });
        let unwatched = watch.pidfd.is_none();
        if watch.attempt.replace(attempt).is_none() {
            self.under_way.fetch_add(1, Ordering::AcqRel);
        }
        if unwatched && !std::mem::replace(&mut state.limited, true) {
            let detail = format!("more than {WATCHED} programs run at once; the end of some is not told");
            self.teller.tell(Fact::Incomplete { detail });
        }
        drop(state);
        self.wake();
    }

    /// Looks at a thread that waits in another call: an exec of it has succeeded or failed by now.
    pub(crate) fn check(&self, tid: u32, tgid: u32) {
        if !self.any() {
            return;
        }
        let mut state = self.state();
        let Some(attempt) = state.by_tgid.get(&tgid).and_then(|watch| watch.attempt.as_ref()) else { return };
        match attempt.sign(tgid) {
            Sign::Became => self.became(&mut state, tgid),
            // Another thread of the process says nothing about the one that waits in its exec.
            Sign::Same if attempt.tid == tid => self.failed(&mut state, tgid),
            Sign::Same | Sign::Gone => {}
        }
    }

    /// Whether an exec is under way, so that a check is worth its price.
    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Ends [`Execs::run`] after a last look, unless it is ending already.
    pub(crate) fn stop(&self) {
        let _ = self.end.compare_exchange(RUNS, STOPS, Ordering::AcqRel, Ordering::Acquire);
        self.wake();
    }

    /// Ends [`Execs::run`] when every program has ended: the last thread of the jail lets go of the listener a moment before
    /// its end can be seen.
    pub(crate) fn drain(&self) {
        let _ = self.end.compare_exchange(RUNS, DRAINS, Ordering::AcqRel, Ordering::Acquire);
        self.wake();
    }

    /// Polls until [`Execs::stop`]; sleeps where no exec is under way and nothing ends.
    pub(crate) fn run(&self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut drained_by = None;
        loop {
            let end = self.end.load(Ordering::Acquire);
            let timeout = match end {
                RUNS => self.next_look(),
                DRAINS => {
                    let left = drained_by.get_or_insert_with(|| Instant::now() + DRAIN).saturating_duration_since(Instant::now());
                    Some(self.next_look().unwrap_or(left).min(left))
                }
                _ => Some(Duration::ZERO),
            };
            let timeout = timeout.and_then(|wait| rustix::event::Timespec::try_from(wait).ok());
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let mut state = self.state();
            let mut any = false;
            for event in &events {
                // Packed: copied before use.
                let data = event.data;
                match u32::try_from(data.u64()) {
                    Ok(0) | Err(_) => {
                        let mut count = [0u8; 8];
                        // Only empties the counter; there is nothing to do about a failure.
                        let _ = rustix::io::read(&self.wake, &mut count);
                    }
                    Ok(tgid) => {
                        any = true;
                        self.ended(&mut state, tgid);
                    }
                }
            }
            self.look(&mut state, end != RUNS);
            let over = drained_by.is_some_and(|by| state.by_tgid.is_empty() || by <= Instant::now());
            if over || (end == STOPS && !any) {
                return;
            }
        }
    }

    fn look(&self, state: &mut State, last: bool) {
        let now = Instant::now();
        let due: Vec<u32> = state
            .by_tgid
            .iter()
            .filter(|(_, watch)| watch.attempt.as_ref().is_some_and(|attempt| last || attempt.look <= now))
            .map(|(tgid, _)| *tgid)
            .collect();
        for tgid in due {
            let Some(watch) = state.by_tgid.get_mut(&tgid) else { continue };
            let watched = watch.pidfd.is_some();
            let Some(attempt) = watch.attempt.as_mut() else { continue };
            match attempt.sign(tgid) {
                Sign::Became => self.became(state, tgid),
                // The pidfd tells the end, with the same judgement.
                Sign::Gone if !watched => self.ended(state, tgid),
                Sign::Same if now.duration_since(attempt.since) > GIVE_UP => self.failed(state, tgid),
                Sign::Same | Sign::Gone => {
                    attempt.wait = (attempt.wait * 2).min(SLOWEST_LOOK);
                    attempt.look = now + attempt.wait;
                }
            }
        }
    }

    fn next_look(&self) -> Option<Duration> {
        let state = self.state();
        let next = state.by_tgid.values().filter_map(|watch| watch.attempt.as_ref()).map(|attempt| attempt.look).min();
        next.map(|look| look.saturating_duration_since(Instant::now()))
    }

    fn became(&self, state: &mut State, tgid: u32) {
        let Some(attempt) = self.settle(state, tgid) else { return };
        let process = self
            .who
            .after_exec(tgid, attempt.argv.clone())
            .or_else(|| attempt.afterwards(&self.who, attempt.program.clone().map(Became::At)));
        self.tell(state, tgid, process);
    }

    fn tell(&self, state: &mut State, tgid: u32, process: Option<Arc<Process>>) {
        let Some(process) = process else { return };
        if let Some(watch) = state.by_tgid.get_mut(&tgid) {
            watch.runs = Some(process.clone());
            if watch.pidfd.is_none() {
                state.by_tgid.remove(&tgid);
            }
        }
        self.teller.tell(Fact::Exec { process });
    }

    fn failed(&self, state: &mut State, tgid: u32) {
        self.settle(state, tgid);
        if state.by_tgid.get(&tgid).is_some_and(|watch| watch.runs.is_none()) {
            // Closing the pidfd takes it out of the set.
            state.by_tgid.remove(&tgid);
        }
    }

    /// A process ended: an exec of it that nobody saw succeed did so if there is a program at its path.
    fn ended(&self, state: &mut State, tgid: u32) {
        let Some(watch) = state.by_tgid.get(&tgid) else { return };
        let start = watch.start;
        let how = |pidfd: Option<&OwnedFd>| sys::seccomp_notify::exit_status(pidfd?.as_fd());
        let status = how(watch.pidfd.as_ref());
        // Hundreds may end at once, whose end a look into `/proc` would hold up.
        let zombie = (status.is_none() || watch.attempt.is_some()).then(|| stat(tgid)).flatten();
        let zombie = zombie.filter(|stat| stat.begun == start);
        if let Some(attempt) = self.settle(state, tgid)
            && let Some(became) = attempt.became(zombie.as_ref())
        {
            let process = attempt.afterwards(&self.who, Some(became));
            self.tell(state, tgid, process);
        }
        let Some(Watch { runs: Some(process), pidfd: Some(pidfd), .. }) = state.by_tgid.remove(&tgid) else { return };
        // Asked again: it may have been reaped between the two looks.
        let status = status.or(zombie.map(|stat| stat.exit_code)).or_else(|| how(Some(&pidfd)));
        let status = status.map(|raw| if raw & 0x7f == 0 { (raw >> 8) & 0xff } else { 128 + (raw & 0x7f) });
        self.teller.tell(Fact::Exit { process, status });
    }

    fn settle(&self, state: &mut State, tgid: u32) -> Option<Attempt> {
        let attempt = state.by_tgid.get_mut(&tgid)?.attempt.take()?;
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.who.settled(tgid);
        Some(attempt)
    }

    fn watch(&self, tgid: u32) -> Option<OwnedFd> {
        let pid = i32::try_from(tgid).ok().and_then(Pid::from_raw)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(u64::from(tgid)), epoll::EventFlags::IN).ok()?;
        Some(pidfd)
    }

    fn wake(&self) {
        // A full counter has woken already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Print {
    fn of(tgid: u32) -> Option<(Stat, Print)> {
        let stat = stat(tgid)?;
        let print = Print { exe: exe(tgid), comm: stat.comm.clone(), start_stack: stat.start_stack };
        Some((stat, print))
    }
}

impl Attempt {
    fn sign(&self, tgid: u32) -> Sign {
        match Print::of(tgid) {
            // One that ended has no executable any more.
            None => Sign::Gone,
            Some((_, now)) if now.exe.is_none() => Sign::Gone,
            // A program may change its own names; that alone is no exec.
            Some((_, now)) if now.exe == self.before.exe && now.start_stack == self.before.start_stack => Sign::Same,
            Some(_) => Sign::Became,
        }
    }

    /// What a process became that ended before anybody looked again; `None` where its exec failed.
    fn became(&self, zombie: Option<&Stat>) -> Option<Became> {
        let changed = zombie.map(|stat| &stat.comm).filter(|comm| **comm != self.before.comm);
        let Some(path) = &self.path else { return changed.cloned().map(Became::Named) };
        let name = path.file_name().unwrap_or_default().as_bytes();
        let name = &name[..name.len().min(COMM)];
        if zombie.is_some() && changed.is_none() && name != self.before.comm {
            return None;
        }
        // One that the kernel names after it did run, though it may have been removed since.
        self.program.clone().or_else(|| changed.filter(|comm| *comm == name).map(|_| path.clone())).map(Became::At)
    }

    /// Who it was, of one that ended before it could be looked at again.
    fn afterwards(&self, who: &Who, became: Option<Became>) -> Option<Arc<Process>> {
        let mut process = Process::clone(self.known.as_deref()?);
        match became {
            Some(Became::At(exe)) => {
                let exe = exe.as_os_str().as_bytes();
                process.program = program(Some(exe), &[]);
                process.origin = who.origin(exe);
                process.exe = RawPath::from(exe);
            }
            Some(Became::Named(comm)) => {
                process.program = RawPath(comm);
                process.origin = Origin::Unknown;
                process.exe = RawPath::default();
            }
            None => {}
        }
        if let Some(argv) = &self.argv {
            process.argv = argv.clone();
        }
        Some(Arc::new(process))
    }
}
