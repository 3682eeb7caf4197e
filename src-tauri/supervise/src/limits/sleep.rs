//! Waiting without waking: until a process of the jail runs.

use super::tree::Tree;
use super::{FAST, USUAL};
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Processor time that ends the sleep.
const USED: i64 = 1_000_000;
/// Where the kernel has no timer left, the jail is looked at this often.
const BLIND: Duration = Duration::from_secs(10);

/// A child that was made in a moment too short for the timers, and that makes no call that is told, is found by this look. The making
/// itself can't be told: a signal ends the wait for the listener, and no program expects a fork to be interrupted.
const ANYWAY: Duration = Duration::from_secs(60);

/// The signal of the timers: for this thread alone, which holds it back and reads it from a descriptor.
const SIGNAL: Signal = Signal::SIGVTALRM;

/// Rung once, heard for ever.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        // A counter that is full is heard as well.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn quiet(&self) {
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Ends the sleep of a watch: a call of the jail's was told of. Costs nothing while the watch is awake.
#[derive(Debug)]
pub struct Stir {
    asleep: AtomicBool,
    bell: Bell,
}

impl Stir {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), bell: Bell::new()? })
    }

    pub(crate) fn ring(&self) {
        if self.asleep.load(Ordering::Acquire) && self.asleep.swap(false, Ordering::AcqRel) {
            self.bell.ring();
        }
    }
}

/// One thread's way to wait.
pub(super) struct Sleeper {
    stop: Arc<Bell>,
    stir: Option<Arc<Stir>>,
    signals: SignalFd,
    thread: Pid,
}

impl Sleeper {
    /// For the calling thread.
    pub(super) fn new(stop: Arc<Bell>, stir: Option<Arc<Stir>>) -> io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(SIGNAL);
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { stop, stir, signals, thread: nix::unistd::gettid() })
    }

    /// False where it is over.
    pub(super) fn rest(&self, time: Duration) -> bool {
        !self.wait(Some(time), &[])
    }

    /// Waits until a process of the jail uses processor time or something is told of a call, a minute at most.
    /// False where it is over.
    pub(super) fn until_any_runs(&self, tree: &mut Tree) -> bool {
        let Some(stir) = &self.stir else { return true };
        let begun = Instant::now();
        stir.bell.quiet();
        stir.asleep.store(true, Ordering::Release);
        let armed = tree.pids().map(|pid| self.timer(pid)).collect::<Result<Vec<_>, _>>();
        // Whoever was made since the look has no timer.
        let limit = match armed {
            Ok(_) if tree.changed() => Some(FAST),
            Ok(_) => Some(ANYWAY),
            Err(e) => {
                tracing::debug!(error = %e, "no timer for a process");
                Some(BLIND)
            }
        };
        let over = self.wait(limit, &[&stir.bell]);
        drop(armed);
        stir.asleep.store(false, Ordering::Release);
        while let Ok(Some(_)) = self.signals.read_signal() {}
        // Never more than one look a second for what runs now and then.
        !over && self.rest(USUAL.saturating_sub(begun.elapsed()))
    }

    /// A timer on the processor time of another process. One that is gone needs none.
    fn timer(&self, pid: i32) -> nix::Result<Option<Timer>> {
        let made = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(|clock| {
            let tell = SigevNotify::SigevThreadId { signal: SIGNAL, thread_id: self.thread.as_raw(), si_value: 0 };
            let mut timer = Timer::new(clock, SigEvent::new(tell))?;
            timer.set(Expiration::OneShot(TimeSpec::new(0, USED)), TimerSetTimeFlags::empty())?;
            Ok(timer)
        });
        match made {
            Ok(timer) => Ok(Some(timer)),
            Err(nix::errno::Errno::ESRCH | nix::errno::Errno::EINVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// True where it is over.
    fn wait(&self, time: Option<Duration>, bells: &[&Bell]) -> bool {
        let until = time.map(|t| Instant::now() + t);
        loop {
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return false;
            }
            let limit = left.and_then(|l| Timespec::try_from(l).ok());
            let mut fds = vec![PollFd::new(&self.stop.0, PollFlags::IN)];
            if !bells.is_empty() {
                fds.push(PollFd::new(&self.signals, PollFlags::IN));
            }
            fds.extend(bells.iter().map(|b| PollFd::new(&b.0, PollFlags::IN)));
            match rustix::event::poll(&mut fds, limit.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
                Ok(_) if !fds[0].revents().is_empty() => return true,
                Ok(_) => return false,
            }
        }
    }
}
