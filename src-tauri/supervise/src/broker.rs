//! Makes calls in the place of a jail that has no namespaces: connections, and changes of files that Landlock does not judge.
//!
//! Invariant: none of these calls ever goes on by itself. What a call says is copied once and acted on here, on descriptors that
//! are held; whatever is unclear is refused. It knows nothing of tiers: whoever has a listener for such calls can have a broker.

mod files;
mod flows;
mod places;

pub use flows::{Flows, WayOut};

use crate::notify::{Memory, int};
use crate::who::{Who, pidfd};
use files::Change;
use jail_plan::Plan;
use nix::errno::Errno;
use nix::libc;
use places::Places;
use rustix::process::PidfdGetfdFlags;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use sys::seccomp_notify::{Notification, answer_result, is_waiting};

/// Calls that are made at once.
const WORKERS: usize = 4;
/// Calls that wait to be made. Those of callers that were killed meanwhile are among them, so their number has no other bound.
const QUEUE: usize = 16_384;
/// Connections that are made at once, each on a thread of its own: any of them may wait for its other end.
const WAITING: usize = 128;

/// What a call is asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Connect,
    Bind,
    Listen,
    Change(Change),
}

fn made(nr: i64) -> Option<Made> {
    #[cfg(target_arch = "x86_64")]
    if nr == libc::SYS_chmod {
        return Some(Made::Change(Change::Mode { at: None, path: Some(0), mode: 1, flags: None }));
    }
    Some(match nr {
        libc::SYS_connect => Made::Connect,
        libc::SYS_bind => Made::Bind,
        libc::SYS_listen => Made::Listen,
        libc::SYS_fchmod => Made::Change(Change::Mode { at: Some(0), path: None, mode: 1, flags: None }),
        libc::SYS_fchmodat => Made::Change(Change::Mode { at: Some(0), path: Some(1), mode: 2, flags: None }),
        // fchmodat2, which has this number on every architecture.
        452 => Made::Change(Change::Mode { at: Some(0), path: Some(1), mode: 2, flags: Some(3) }),
        libc::SYS_utimensat => Made::Change(Change::Times),
        _ => return None,
    })
}

/// What a broker may do.
#[derive(Debug)]
pub struct Reach {
    /// Directories beneath which files may be changed and sockets are reached, by their real paths.
    pub roots: Vec<PathBuf>,
    /// Where connections to Internet addresses really go; without it there are none.
    pub way_out: Option<WayOut>,
}

/// The directories that a plan lets its jail write.
pub fn roots(plan: &Plan) -> Vec<PathBuf> {
    let writable = plan.landlock.writable.iter().map(|p| p.as_path());
    writable.filter(|p| !p.starts_with("/dev") && p.is_dir()).map(Path::to_owned).collect()
}

/// Serves the calls of one jail until dropped.
#[derive(Debug)]
pub struct Broker {
    queue: SyncSender<Notification>,
    flows: Arc<Flows>,
}

/// One jail's calls.
struct Desk {
    listener: OwnedFd,
    places: Places,
    way_out: Option<WayOut>,
    flows: Arc<Flows>,
    who: Arc<Who>,
    memory: Box<dyn Memory>,
    waiting: AtomicUsize,
}

impl Broker {
    /// Starts serving. The listener is a copy of the one whose calls are handed to [`Broker::take`].
    pub(crate) fn start(listener: OwnedFd, reach: Reach, who: Arc<Who>, memory: Box<dyn Memory>) -> io::Result<Broker> {
        let flows = Arc::new(Flows::default());
        let places = Places::open(&reach.roots)?;
        let desk =
            Desk { listener, places, way_out: reach.way_out, flows: flows.clone(), who, memory, waiting: AtomicUsize::new(0) };
        let (queue, calls) = sync_channel(QUEUE);
        let (desk, calls) = (Arc::new(desk), Arc::new(Mutex::new(calls)));
        for _ in 0..WORKERS {
            let (desk, calls) = (desk.clone(), calls.clone());
            std::thread::Builder::new().name("broker".into()).spawn(move || {
                while let Some(call) = next(&calls) {
                    desk.make(&call);
                }
            })?;
        }
        Ok(Broker { queue, flows })
    }

    /// Whether this call is one that is made here; such a call must not go on, whatever else becomes of it.
    pub(crate) fn makes(n: &Notification) -> bool {
        made(n.nr).is_some()
    }

    /// Takes a call over. False where too many wait, or nobody is left to make it.
    pub(crate) fn take(&self, n: &Notification) -> bool {
        self.queue.try_send(*n).is_ok()
    }

    /// Where connections that were made were meant to go.
    pub(crate) fn flows(&self) -> Arc<Flows> {
        self.flows.clone()
    }
}

fn next(calls: &Mutex<Receiver<Notification>>) -> Option<Notification> {
    calls.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

type Wait = Box<dyn FnOnce(&Desk) -> Result<i64, Errno> + Send>;

/// The result of a call, or a connection that is to be made.
enum Step {
    Done(i64),
    /// May wait for its other end.
    Waits(Wait),
}

impl Desk {
    fn make(self: &Arc<Self>, n: &Notification) {
        let step = match made(n.nr) {
            Some(Made::Connect) => self.connect(n),
            Some(Made::Bind) => self.bind(n).map(Step::Done),
            Some(Made::Listen) => self.listen(n).map(Step::Done),
            Some(Made::Change(change)) => self.change(n, change).map(Step::Done),
            None => Err(Errno::ENOSYS),
        };
        match step {
            Ok(Step::Done(value)) => self.answer(n, Ok(value)),
            Ok(Step::Waits(wait)) => self.wait(n, wait),
            Err(errno) => self.answer(n, Err(errno)),
        }
    }

    fn wait(self: &Arc<Self>, n: &Notification, wait: Wait) {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return self.answer(n, Err(Errno::EAGAIN));
        }
        let (desk, n) = (self.clone(), *n);
        let started = std::thread::Builder::new().name("connection".into()).spawn(move || {
            let result = wait(&desk);
            desk.waiting.fetch_sub(1, Ordering::AcqRel);
            desk.answer(&n, result);
        });
        if started.is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.answer(&n, Err(Errno::EAGAIN));
        }
    }

    fn answer(&self, n: &Notification, result: Result<i64, Errno>) {
        if let Err(error) = answer_result(self.listener.as_fd(), n.id, result)
            && error != Errno::ENOENT
        {
            tracing::warn!(%error, "a call of the jail could not be answered");
        }
    }

    /// A copy of a descriptor of the caller's: the same open file, whatever its number becomes.
    fn descriptor(&self, n: &Notification, register: u64) -> Result<OwnedFd, Errno> {
        let process = pidfd(n.tid).map_err(errno)?;
        let fd = rustix::process::pidfd_getfd(&process, int(register), PidfdGetfdFlags::empty()).map_err(errno);
        self.still(n)?;
        fd
    }

    /// Bytes of the caller's memory, read once.
    fn bytes(&self, n: &Notification, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut buf = vec![0; len];
        let got = crate::notify::fill(&*self.memory, n.tid, address, &mut buf);
        self.still(n)?;
        if got == len { Ok(buf) } else { Err(Errno::EFAULT) }
    }

    /// Text of the caller's memory up to its NUL, read once.
    fn text(&self, n: &Notification, address: u64) -> Result<Vec<u8>, Errno> {
        let text = crate::notify::text(&*self.memory, n.tid, address);
        self.still(n)?;
        let text = text.ok_or(Errno::EFAULT)?;
        if text.len() >= crate::who::TEXT_CAP { Err(Errno::ENAMETOOLONG) } else { Ok(text) }
    }

    /// The caller still waits: what was looked up under its number was its own.
    fn still(&self, n: &Notification) -> Result<(), Errno> {
        if is_waiting(self.listener.as_fd(), n.id) { Ok(()) } else { Err(Errno::ESRCH) }
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

#[cfg(test)]
mod tests;
