//! Hidden places: a file system in which every touch is refused at once and told with the process. Where the policy asks, the
//! person's answer serves the retry.
//!
//! Invariant: a request waits for nothing but a bounded look into `/proc`, and one that is served for the person's own disk.
//! If this server ends, the places fail closed.

mod served;
pub mod wire;

use crate::fact::Fact;
use crate::tell::{Teller, Told};
use crate::who::Who;
use jail_plan::{Ground, Looks, Plan, Step};
use model::event::{FileOp, Process, Verdict};
use model::path::RawPath;
use nix::libc;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
pub use served::{Doorkeeper, Doors, Pass};
use served::{Serving, Spot};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::{Answer, Ask, Node, Request};

/// So much of a second goes into naming who touches; beyond it touches are told by place, without a process.
const NAMING: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);

/// Why the hidden places can't be served.
#[derive(Debug, Error)]
pub enum DecoyError {
    /// No thread or descriptor left.
    #[error("the hidden places can't be served: {0}; raise the limit of processes or open files")]
    Start(#[from] std::io::Error),
}

/// A hidden place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// As the person knows it.
    pub path: RawPath,
    /// Where it lies, inside as outside.
    pub real: PathBuf,
    /// What it seems to be; counts for how an open of a file is answered.
    pub looks: Looks,
}

/// A place as the person knows it: one of their home begins with `~`.
pub fn shown(place: &std::path::Path, home: &std::path::Path) -> RawPath {
    let bytes = place.as_os_str().as_bytes();
    match place.strip_prefix(home) {
        Ok(rest) if !home.as_os_str().is_empty() && !rest.as_os_str().is_empty() => {
            RawPath([b"~/", rest.as_os_str().as_bytes()].concat())
        }
        _ => bytes.into(),
    }
}

/// The hidden places of a plan, in the order of its decoys; those of the home begin with `~`, as a policy writes them.
pub fn places(plan: &Plan) -> Vec<Hidden> {
    let home = plan.env.iter().find(|(key, _)| key.as_bytes() == b"HOME").map_or(b"".as_slice(), |(_, home)| home.as_bytes());
    let of = |step: &Step| match step {
        Step::Decoy { target, on } => {
            let looks = match on {
                Ground::Own { looks } => *looks,
                Ground::Shown { .. } => Looks::File,
            };
            let path = shown(target.as_path(), std::path::Path::new(std::ffi::OsStr::from_bytes(home)));
            Some(Hidden { path, real: target.as_path().to_owned(), looks })
        }
        _ => None,
    };
    plan.root.iter().filter_map(of).collect()
}

/// Serves the hidden places of one jail. Until [`Decoys::tell`] touches are refused and not told. Dropping it closes the
/// file system: the places fail then.
#[derive(Debug)]
pub struct Decoys(Arc<Shared>);

/// Decoys whose touches are told. Dropping it closes them, and waits until what was told has reached the sink.
#[derive(Debug)]
pub struct Telling {
    decoys: Option<Decoys>,
    told: Told,
}

/// Closes the file system of a jail whose end it holds up.
#[derive(Debug, Clone)]
pub(crate) struct Closer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The file system's other end, held by nobody while a process is looked at: closing it can't be held up by that.
    fuse: Mutex<Option<Arc<OwnedFd>>>,
    stop: OwnedFd,
    witness: OnceLock<Witness>,
}

/// Who touches is looked up here and told there.
#[derive(Debug)]
struct Witness {
    who: Arc<Who>,
    teller: Teller,
    doors: Option<Doors>,
}

impl Decoys {
    /// Serves the `/dev/fuse` descriptor (non-blocking) of a mounted file system; returns at once. `owner` is the user and
    /// group that the places seem to belong to, as numbers inside.
    pub fn serve(fuse: OwnedFd, places: Vec<Hidden>, owner: (u32, u32)) -> Result<Decoys, DecoyError> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let shared = Arc::new(Shared { fuse: Mutex::new(Some(Arc::new(fuse))), stop, witness: OnceLock::new() });
        let (shared_too, serving) = (Arc::clone(&shared), Serving::default());
        let mut server = Server { shared: shared_too, places, serving, owner, begun: Instant::now(), spent: Duration::ZERO };
        std::thread::Builder::new().name("decoys".into()).spawn(move || server.run())?;
        Ok(Decoys(shared))
    }

    /// Tells touches from now on, and serves what `doors` opens. `sink` is called on a thread of its own and may take its time:
    /// what it can't take is counted.
    pub fn tell(
        self,
        who: Arc<Who>,
        doors: Option<Doors>,
        sink: impl Fn(Fact) + Send + Sync + 'static,
    ) -> Result<Telling, DecoyError> {
        let (teller, told) = Teller::start(sink)?;
        // Only here, and this takes `self`.
        drop(self.0.witness.set(Witness { who, teller, doors }));
        Ok(Telling { decoys: Some(self), told })
    }

    pub(crate) fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.0))
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        drop(self.decoys.take());
        self.told.wait();
    }
}

impl Closer {
    /// Ends every request that waits, and every later one, with an error.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn fuse(&self) -> Option<Arc<OwnedFd>> {
        self.fuse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn close(&self) {
        drop(self.fuse.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Its only write, so that the counter can't be full; whoever waits for a request lets go of the descriptor.
        _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

struct Server {
    shared: Arc<Shared>,
    places: Vec<Hidden>,
    serving: Serving,
    owner: (u32, u32),
    /// The current second of naming.
    begun: Instant,
    spent: Duration,
}

impl Server {
    fn run(&mut self) {
        let mut buffer = vec![0; wire::REQUEST];
        loop {
            let length = match self.next(&mut buffer) {
                Ok(Some(length)) => length,
                Ok(None) | Err(Errno::NODEV) => return,
                Err(error) => {
                    if let Some(witness) = self.shared.witness.get() {
                        let detail = format!("hidden places stay closed, but touches are no longer told: {error}");
                        witness.teller.tell(Fact::Incomplete { detail });
                    }
                    return;
                }
            };
            let Some(request) = buffer.get(..length).and_then(wire::decode) else { continue };
            // Whoever asks still waits while it is told, and can be looked at.
            let Some(answer) = self.answer(&request) else { continue };
            let Some(fuse) = self.shared.fuse() else { return };
            // An error means that nobody waits any more.
            _ = rustix::io::write(&*fuse, &wire::encode(request.unique, &answer, self.owner));
        }
    }

    /// Waits for a request; `None` where the file system was closed.
    fn next(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            let Some(fuse) = self.shared.fuse() else { return Ok(None) };
            match rustix::io::read(&*fuse, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // NOENT: who asked was killed in between.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
            let mut fds = [PollFd::new(&*fuse, PollFlags::IN), PollFd::new(&self.shared.stop, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Option<Answer> {
        let node = request.node;
        Some(match (request.ask, node) {
            (Ask::Note | Ask::Destroy, _) => return None,
            (Ask::Forget(finds), _) => {
                self.serving.forget(node, finds);
                return None;
            }
            (Ask::ForgetAll(body), _) => {
                wire::forgotten(body).for_each(|(node, finds)| self.serving.forget(node, finds));
                return None;
            }
            (Ask::Init { major: 7 }, _) => Answer::Init,
            (Ask::Init { .. }, _) => Answer::Error(libc::EPROTO),
            (Ask::Access, _) => Answer::Done,
            // The kernel then asks no more and says that there are none.
            (Ask::Optional, _) => Answer::Error(libc::ENOSYS),
            (Ask::Room, _) => Answer::Room,
            (Ask::Read(part) | Ask::List(part), _) => self.serving.read(part),
            (Ask::Close(number), _) => {
                self.serving.close(number);
                Answer::Done
            }
            (Ask::Attributes, Node::Root) => Answer::Attributes(node),
            (Ask::Lookup(name), Node::Root) => {
                wire::named(name, self.places.len()).map_or(Answer::Error(libc::ENOENT), Answer::Entry)
            }
            (_, Node::Root) => Answer::Error(libc::EACCES),
            (_, Node::Place { number, .. }) => self.in_place(request, usize::try_from(number).ok()?, Vec::new())?,
            (_, Node::Below(id)) => match self.serving.known(id) {
                Some((number, below)) => self.in_place(request, number, below)?,
                None => Answer::Error(libc::ESTALE),
            },
        })
    }

    /// What is asked of a place, or of something below it.
    fn in_place(&mut self, request: &Request<'_>, number: usize, below: Vec<u8>) -> Option<Answer> {
        let Hidden { path: shown, real, looks } = self.places.get(number)?.clone();
        let node = request.node;
        let shared = Arc::clone(&self.shared);
        let witness = shared.witness.get();
        let open = |doors: &&Doors| match node {
            Node::Place { directory, .. } => doors.has(&real, directory),
            Node::Root | Node::Below(_) => true,
        };
        // Nobody inside has the number 0: Airlock itself asks whether a program exists.
        let doors = witness.and_then(|w| w.doors.as_ref()).filter(open).filter(|_| request.thread != 0);
        let mut spot = Spot { number, shown: &shown, real: &real, below };
        let (op, errno, wish) = match request.ask {
            Ask::Attributes => {
                let served = doors.and_then(|doors| self.serving.attributes(doors, &spot, node));
                return Some(served.unwrap_or(match node {
                    Node::Below(_) => Answer::Error(libc::EACCES),
                    Node::Root | Node::Place { .. } => Answer::Attributes(node),
                }));
            }
            Ask::Link => {
                return Some(doors.and_then(|doors| self.serving.link(doors, &spot)).unwrap_or(Answer::Error(libc::EACCES)));
            }
            Ask::Lookup(name) => {
                match served::below(&spot.below, name) {
                    Some(below) => spot.below = below,
                    None => return Some(Answer::Error(libc::ENOENT)),
                }
                (FileOp::Read, libc::EACCES, Some(Wish::Find))
            }
            Ask::Open(flags) => (opened(flags), wire::refusal(looks), Some(Wish::Open { directory: false })),
            Ask::OpenDirectory => (FileOp::Read, libc::EACCES, Some(Wish::Open { directory: true })),
            Ask::Change => (FileOp::Change, libc::EACCES, None),
            Ask::Make => (FileOp::Create, libc::EACCES, None),
            _ => (FileOp::Read, libc::EACCES, None),
        };
        let Some(witness) = witness.filter(|_| request.thread != 0) else { return Some(Answer::Error(errno)) };
        let named = self.named(&witness.who, request.thread);
        let process = named.clone().flatten();
        if let (Some(doors), Some(wish), FileOp::Read) = (doors, wish, op) {
            let answer = match wish {
                Wish::Open { directory } => self.serving.open(doors, &spot, process.as_deref(), directory),
                Wish::Find => self.serving.find(doors, &spot, process.as_deref()),
            };
            if let Some(answer) = answer {
                if let Answer::Opened(_) = answer {
                    let (path, verdict) = (spot.path(), Verdict::Allowed);
                    witness.teller.tell(Fact::File { process, op, path, to: None, verdict, count: 1 });
                }
                return Some(answer);
            }
        }
        // Without a process only the place is told, so that a flood of names is one row.
        let path = if named.is_some() { spot.path() } else { shown.clone() };
        witness.teller.tell(Fact::Decoy { process, op, path, count: 1 });
        Some(Answer::Error(errno))
    }

    /// Who a thread is; `None` where naming has had its share of this second.
    fn named(&mut self, who: &Who, thread: u32) -> Option<Option<Arc<Process>>> {
        let now = Instant::now();
        if now.duration_since(self.begun) >= SECOND {
            (self.begun, self.spent) = (now, Duration::ZERO);
        }
        if self.spent >= NAMING {
            return None;
        }
        let process = who.known_inside(thread);
        self.spent += now.elapsed();
        Some(process)
    }
}

impl Drop for Server {
    /// Also where it panicked: whoever waits must not wait for ever.
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// What can be granted.
#[derive(Clone, Copy)]
enum Wish {
    Find,
    Open { directory: bool },
}

/// What an open with these flags is for.
fn opened(flags: u32) -> FileOp {
    let flags = flags.cast_signed();
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & libc::O_TRUNC == 0;
    if reads { FileOp::Read } else { FileOp::Write }
}

#[cfg(test)]
mod tests;
