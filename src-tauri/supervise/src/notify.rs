//! Serves a seccomp notification listener: every call is let through, what it asks for is told.
//!
//! Invariant: nothing here answers anything but "continue", and no call waits for memory, a database or a person. Calls that a
//! broker makes are handed to it unread, and never go on.

mod announced;
mod calls;
mod execs;
mod memory;

pub use crate::fact::Fact;
pub use announced::Announced;

pub(crate) use announced::plain;
pub(crate) use calls::int;
pub(crate) use memory::{Address, Memory, fill_all as fill, parse_address, text};

use crate::broker::{Broker, Flows, Reach};
use crate::fact::stays_inside;
use crate::limits::Stir;
use crate::tell::{Teller, Told};
use crate::who::{DEADLINE, STUCK_CAP, Who, status};
use calls::Call;
use execs::{Asked, Execs};
use model::event::Process;
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags};
use rustix::net::SocketType;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use sys::seccomp_notify::{NATIVE_ARCH, Notification, answer_continue, answer_result, is_waiting, receive, set_sync_wake_up};
use thiserror::Error;

/// How often an open read is looked at; it adds to the deadline.
const TICK: Duration = Duration::from_millis(5);
/// So long a read may take that waits for nothing but a processor: a connection that nobody announced is closed.
const STARVED: Duration = Duration::from_millis(500);
/// Ticks without a call after which the timer sleeps.
const QUIET: u32 = 50;

/// Why a listener can't be served.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// No descriptor or thread left.
    #[error("the calls of the jail can't be observed: {0}; raise the limit of open files or processes")]
    Start(#[from] std::io::Error),
}

/// Observes one jail until dropped, or until its last process is gone. After a drop every observed call of a process
/// that still lives fails with `ENOSYS`, so end the jail first.
#[derive(Debug)]
pub struct Notify {
    server: Arc<Server>,
    served: mpsc::Receiver<()>,
    execs: Option<JoinHandle<()>>,
    told: Told,
}

struct Server {
    listener: OwnedFd,
    stop: OwnedFd,
    stopping: AtomicBool,
    who: Arc<Who>,
    teller: Teller,
    announced: Arc<Announced>,
    broker: Option<Broker>,
    execs: Arc<Execs>,
    memory: Box<dyn Memory>,
    turn: Mutex<Turn>,
    stuck: AtomicUsize,
    asleep: AtomicBool,
    timer: OnceLock<Thread>,
    served: mpsc::SyncSender<()>,
    stir: Arc<Stir>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

/// Which serving thread is the current one, and the call whose memory it reads.
#[derive(Debug, Default)]
struct Turn {
    number: u64,
    calls: u64,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    since: Instant,
    /// Who reads.
    thread: u32,
    n: Notification,
}

/// Whether a read takes too long. On a machine that has much to do, a thread that has not even got a processor is not stuck.
fn late(waited: Duration, thread: u32) -> bool {
    waited >= STARVED || (waited >= DEADLINE && !wants_processor(thread))
}

/// Whether one of this process's threads could go on at once.
fn wants_processor(thread: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// What a call asks for, as far as it can be looked up while the caller waits.
enum Wants {
    /// To become another program.
    Program(Asked),
    /// To connect a stream.
    Stream(std::net::SocketAddr),
    /// Something else.
    Other(Call),
}

/// Why a serving thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It was told to.
    Stopped,
    /// No process of the jail is left.
    HungUp,
    /// It hung in a read, and another took its place.
    Replaced,
}

/// What a call asks for, spelled out, in a process whose whole memory is `bytes`, from the address `base` on; `None` for a call
/// that nothing is told of. It looks at no process: the way from hostile bytes to words, for whoever wants to try it.
pub fn spelled(n: &Notification, base: u64, bytes: Vec<u8>) -> Option<String> {
    calls::read(n, Some(&memory::Bytes { base, bytes })).map(|call| format!("{call:?}"))
}

impl Notify {
    /// Starts serving. `sink` is called on a thread of the sensor's own and may take its time: what it can't take is counted.
    pub fn serve(listener: OwnedFd, who: Arc<Who>, sink: impl Fn(Fact) + Send + Sync + 'static) -> Result<Notify, NotifyError> {
        Notify::serve_with(listener, who, None, sink, Box::new(memory::Remote))
    }

    /// The same for a jail without namespaces, of which some calls are made here.
    pub fn serve_making(
        listener: OwnedFd,
        who: Arc<Who>,
        reach: Reach,
        sink: impl Fn(Fact) + Send + Sync + 'static,
    ) -> Result<Notify, NotifyError> {
        let broker = Broker::start(listener.try_clone()?, reach, who.clone(), Box::new(memory::Remote))?;
        Notify::serve_with(listener, who, Some(broker), sink, Box::new(memory::Remote))
    }

    fn serve_with(
        listener: OwnedFd,
        who: Arc<Who>,
        broker: Option<Broker>,
        sink: impl Fn(Fact) + Send + Sync + 'static,
        memory: Box<dyn Memory>,
    ) -> Result<Notify, NotifyError> {
        if let Err(error) = set_sync_wake_up(listener.as_fd()) {
            tracing::debug!(%error, "this kernel can't hand the processor over at a notification");
        }
        who.execs_are_told();
        let (teller, told) = Teller::start(sink)?;
        let execs = Arc::new(Execs::new(who.clone(), teller.clone())?);
        let (tell_served, served) = mpsc::sync_channel(1);
        let server = Arc::new(Server {
            listener,
            stop: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?,
            stopping: AtomicBool::new(false),
            who,
            teller,
            announced: Arc::default(),
            broker,
            execs: execs.clone(),
            memory,
            turn: Mutex::default(),
            stuck: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            timer: OnceLock::new(),
            served: tell_served,
            stir: Arc::new(Stir::new()?),
        });
        let timed = server.clone();
        let timer = thread("call-timer", move || timed.time())?;
        // Set once, here.
        drop(server.timer.set(timer.thread().clone()));
        let tracked = execs.clone();
        let started = thread("execs", move || tracked.run()).and_then(|execs| server.start(0).map(|()| execs));
        match started {
            Ok(execs) => Ok(Notify { server, served, execs: Some(execs), told }),
            Err(error) => {
                server.shut();
                Err(error.into())
            }
        }
    }

    /// Who is about to connect where, for the way out.
    pub fn announced(&self) -> Arc<Announced> {
        self.server.announced.clone()
    }

    /// Connections that were made for the jail, where a broker makes them.
    pub fn flows(&self) -> Option<Arc<Flows>> {
        self.server.broker.as_ref().map(Broker::flows)
    }

    /// Rung at each call that is told of.
    pub fn stir(&self) -> Arc<Stir> {
        self.server.stir.clone()
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        // The counter can't be full: this is its only write.
        let _ = rustix::io::write(&self.server.stop, &1u64.to_ne_bytes());
        // A thread that hangs in a jailed process's memory ends with that process; nothing waits for it.
        let _ = self.served.recv_timeout(Duration::from_secs(1));
        self.server.shut();
        if let Some(execs) = self.execs.take() {
            // A panic of that thread has been printed already.
            drop(execs.join());
        }
        self.told.wait();
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

impl Server {
    fn start(self: &Arc<Self>, number: u64) -> std::io::Result<()> {
        let server = self.clone();
        thread("calls", move || {
            let left = server.receive_all(number);
            if left != Left::Replaced {
                if left == Left::HungUp {
                    server.execs.drain();
                }
                server.shut();
                // Somebody may have been told before.
                let _ = server.served.try_send(());
            }
        })
        .map(drop)
    }

    fn shut(&self) {
        self.stopping.store(true, Ordering::Release);
        self.execs.stop();
        if let Some(timer) = self.timer.get() {
            timer.unpark();
        }
    }

    fn receive_all(&self, number: u64) -> Left {
        loop {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Left::Stopped,
            }
            let [call, stop] = fds.map(|fd| fd.revents());
            if !stop.is_empty() {
                return Left::Stopped;
            }
            if !call.contains(PollFlags::IN) && !call.is_empty() {
                return Left::HungUp;
            }
            let n = match receive(self.listener.as_fd()) {
                Ok(n) => n,
                // Its caller was killed or interrupted in between.
                Err(Errno::ENOENT | Errno::EINTR) => continue,
                Err(_) => return Left::Stopped,
            };
            self.stir.ring();
            if let Some(broker) = &self.broker
                && (Broker::makes(&n) || n.arch != NATIVE_ARCH)
            {
                if n.arch != NATIVE_ARCH || !broker.take(&n) {
                    // An error means that its caller is gone.
                    _ = answer_result(self.listener.as_fd(), n.id, Err(Errno::ENOSYS));
                }
                continue;
            }
            if n.arch == NATIVE_ARCH {
                self.begin(&n);
                let call = self.read(&n, true);
                if !self.end(number) {
                    self.stuck.fetch_sub(1, Ordering::AcqRel);
                    return Left::Replaced;
                }
                self.finish(&n, call);
            } else {
                self.answer(&n);
            }
        }
    }

    /// What the call asks for; `None` for one that nothing is told of.
    fn read(&self, n: &Notification, may_wait: bool) -> Option<Wants> {
        let open = may_wait && self.stuck.load(Ordering::Acquire) < STUCK_CAP;
        Some(match calls::read(n, open.then_some(&*self.memory))? {
            Call::Exec { at, argv } => {
                let path = calls::place(n.tid, &at).1;
                let program = path.as_deref().filter(|_| open).and_then(|path| calls::program_at(n.tid, path));
                Wants::Program(Asked { path, program, argv })
            }
            // A connect of a datagram socket sends nothing; resolvers make them to sort addresses.
            Call::Connect { socket, address: Some(Address::Inet(to)) } => {
                let stream = calls::socket_type(n.tid, socket).is_none_or(|kind| kind == SocketType::STREAM);
                if stream { Wants::Stream(to) } else { return None }
            }
            call => Wants::Other(call),
        })
    }

    /// Names the caller while it waits, lets it go, and tells.
    fn finish(&self, n: &Notification, wants: Option<Wants>) {
        let fact = wants.and_then(|wants| self.fact(n, wants));
        self.answer(n);
        if let Some(fact) = fact {
            self.teller.tell(fact);
        }
    }

    fn fact(&self, n: &Notification, wants: Wants) -> Option<Fact> {
        let waits = || is_waiting(self.listener.as_fd(), n.id);
        if let Wants::Program(asked) = wants {
            let ids = status(n.tid).filter(|_| waits())?;
            self.execs.began(n.tid, ids.tgid, asked);
            return None;
        }
        if self.execs.any()
            && let Some(ids) = status(n.tid)
        {
            self.execs.check(n.tid, ids.tgid);
        }
        let process = || self.who.known(n.tid);
        let fact = match wants {
            Wants::Other(Call::Connect { address: None, .. }) => Fact::Unreadable { process: process(), call: "connect" },
            Wants::Other(Call::Bind { address: None }) => Fact::Unreadable { process: process(), call: "bind" },
            Wants::Stream(to) => {
                let process = process();
                let waits = waits();
                if let Some(process) = process.clone().filter(|_| waits && !stays_inside(to.ip())) {
                    self.announced.announce(to, process);
                }
                Fact::Connect { process, address: to.ip().to_canonical(), port: to.port() }
            }
            Wants::Other(Call::Bind { address: Some(Address::Inet(at)) }) => {
                Fact::Bind { process: process(), address: at.ip().to_canonical(), port: at.port() }
            }
            Wants::Other(Call::File { op, at, to }) => {
                if at.path.is_none() || to.as_ref().is_some_and(|to| to.path.is_none()) {
                    Fact::Unreadable { process: process(), call: "change of a file" }
                } else {
                    self.file(n.tid, op, &at, to.as_ref(), process)?
                }
            }
            Wants::Program(_) | Wants::Other(_) => return None,
        };
        // Who was killed or interrupted in between asks for nothing any more, and its number may be another's.
        waits().then_some(fact)
    }

    fn file(
        &self,
        tid: u32,
        op: model::event::FileOp,
        at: &calls::At,
        to: Option<&calls::At>,
        process: impl Fn() -> Option<Arc<Process>>,
    ) -> Option<Fact> {
        let (path, whole) = calls::place(tid, at);
        if whole.as_deref().is_some_and(calls::keeps_nothing) {
            return None;
        }
        let (to, to_whole) = to.map(|to| calls::place(tid, to)).unzip();
        let quiet = |path: Option<&Path>| path.and_then(|path| calls::quiet(path, self.who.jail()));
        if let Some(place) = quiet(whole.as_deref())
            && to_whole.as_ref().is_none_or(|to| quiet(to.as_deref()) == Some(place))
        {
            return Some(Fact::Folded { process: process(), path: place.as_os_str().as_bytes().into(), count: 1 });
        }
        let judge = |path: Option<&Path>| calls::verdict(path, self.who.jail());
        let verdict = to_whole.flatten().map_or(model::event::Verdict::Noted, |to| judge(Some(&to)));
        let verdict = if verdict == model::event::Verdict::Denied { verdict } else { judge(whole.as_deref()) };
        Some(Fact::File { process: process(), op, path, to, verdict, count: 1 })
    }

    fn answer(&self, n: &Notification) {
        if let Err(error) = answer_continue(self.listener.as_fd(), n.id)
            && error != Errno::ENOENT
        {
            tracing::warn!(%error, "a system call of the jail could not be let through");
        }
    }

    fn begin(&self, n: &Notification) {
        let mut turn = self.turn();
        turn.calls += 1;
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        turn.reading = Some(Reading { since: Instant::now(), thread, n: *n });
        drop(turn);
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(timer) = self.timer.get()
        {
            timer.unpark();
        }
    }

    fn end(&self, number: u64) -> bool {
        let mut turn = self.turn();
        let mine = turn.number == number;
        if mine {
            turn.reading = None;
        }
        mine
    }

    /// Answers calls whose memory takes too long, and replaces the thread that hangs in it.
    fn time(self: &Arc<Self>) {
        let mut quiet = 0;
        let mut seen = 0;
        let mut unserved = None;
        while !self.stopping.load(Ordering::Acquire) {
            let mut turn = self.turn();
            let late = turn.reading.take_if(|reading| late(reading.since.elapsed(), reading.thread));
            quiet = if turn.reading.is_some() || turn.calls != seen { 0 } else { quiet + 1 };
            seen = turn.calls;
            if let Some(Reading { n, .. }) = late {
                turn.number += 1;
                unserved = Some(turn.number);
                self.stuck.fetch_add(1, Ordering::AcqRel);
                drop(turn);
                let call = self.read(&n, false);
                self.finish(&n, call);
            } else {
                drop(turn);
            }
            // Where no thread can be had now, one may be at the next tick.
            unserved = unserved.filter(|number| self.start(*number).is_err());
            if quiet < QUIET || unserved.is_some() {
                std::thread::sleep(TICK);
                continue;
            }
            self.asleep.store(true, Ordering::Release);
            let idle = {
                let turn = self.turn();
                turn.reading.is_none() && turn.calls == seen
            };
            if idle && !self.stopping.load(Ordering::Acquire) {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::Release);
            quiet = 0;
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
