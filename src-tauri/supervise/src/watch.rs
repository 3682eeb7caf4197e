//! The live view: which files of the workspace change.
//!
//! Invariant: names are data. Only directories are opened, beneath the root and never through a symbolic link, to be watched
//! by descriptor; what is told decides nothing.

use crate::fact::Fact;
use crate::tell::{Teller, Told};
use model::event::FileOp;
use model::path::RawPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Directories that hold much, change much and are not the person's work.
const HEAVY: [&str; 4] = [".git", "node_modules", "target", ".venv"];
/// Directories watched at a time: a small part of what the kernel gives a user.
const BUDGET: usize = 8192;
/// How long changes of a file are gathered.
const GATHER: Duration = Duration::from_millis(150);

/// Why the workspace can't be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The root is gone or no directory.
    #[error("the workspace {path} can't be watched: {source}; the live view of its files stays empty")]
    Root {
        /// The root.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No descriptor or thread left.
    #[error("the workspace can't be watched: {0}; raise `fs.inotify.max_user_instances` or the limit of open files")]
    Start(#[from] std::io::Error),
}

/// Watches one workspace until dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    told: Told,
}

impl Watch {
    /// Starts watching; paths are told relative to `root`, ignored heavy directories are left out.
    pub fn start(root: &Path, sink: impl Fn(Fact) + Send + Sync + 'static) -> Result<Watch, WatchError> {
        Watch::with_budget(root, BUDGET, sink)
    }

    fn with_budget(root: &Path, budget: usize, sink: impl Fn(Fact) + Send + Sync + 'static) -> Result<Watch, WatchError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fail = |source: Errno| WatchError::Root { path: root.to_path_buf(), source: source.into() };
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(fail)?;
        let queue =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let stop = Arc::new(stop);
        let (teller, told) = Teller::start(sink)?;
        let mut tree = Tree {
            root,
            queue,
            budget,
            dirs: HashMap::new(),
            changes: Vec::new(),
            latest: HashMap::new(),
            halves: HashMap::new(),
            partial: false,
            teller,
        };
        // Before returning, so that nothing that happens afterwards is missed.
        tree.add(PathBuf::new(), Listing::Old);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || tree.run(&stopped))?;
        Ok(Watch { stop, thread: Some(thread), told })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The counter can't be full: this is its only write.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed already.
            drop(thread.join());
        }
        self.told.wait();
    }
}

struct Tree {
    root: OwnedFd,
    queue: OwnedFd,
    budget: usize,
    dirs: HashMap<i32, PathBuf>,
    changes: Vec<Change>,
    /// Where in `changes` a path was last named.
    latest: HashMap<PathBuf, usize>,
    /// Where in `changes` the first half of a rename waits for the second.
    halves: HashMap<u32, usize>,
    partial: bool,
    teller: Teller,
}

#[derive(Debug, PartialEq, Eq)]
struct Change {
    op: FileOp,
    path: PathBuf,
    to: Option<PathBuf>,
    /// Joins the two halves of a rename; 0 for others.
    cookie: u32,
    dir: bool,
}

/// Whether what a directory holds is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Old,
    New,
}

impl Tree {
    fn run(mut self, stop: &OwnedFd) {
        let mut due: Option<Instant> = None;
        loop {
            let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            let mut fds = [PollFd::new(&self.queue, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ended = !fds[1].revents().is_empty();
            self.read();
            if !self.changes.is_empty() && due.is_none() {
                due = Some(Instant::now() + GATHER);
            }
            if ended || due.is_some_and(|due| due <= Instant::now()) {
                self.tell();
                due = None;
            }
            if ended {
                return;
            }
        }
    }

    /// Watches a directory and those in it.
    fn add(&mut self, from: PathBuf, listing: Listing) {
        let mut todo = vec![from];
        while let Some(path) = todo.pop() {
            if self.dirs.len() >= self.budget {
                self.incomplete(format!(
                    "the workspace has more than {} directories; files in some are not shown live",
                    self.budget
                ));
                return;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            let shown = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            // One that vanished or became something else in between is not watched.
            let Ok(dir) = openat2(&self.root, shown, flags, Mode::empty(), resolve) else { continue };
            let wanted = WatchFlags::CREATE
                | WatchFlags::MODIFY
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::ONLYDIR
                | WatchFlags::EXCL_UNLINK;
            match inotify::add_watch(&self.queue, format!("/proc/self/fd/{}", dir.as_raw_fd()), wanted) {
                Ok(id) => drop(self.dirs.insert(id, path.clone())),
                Err(Errno::NOSPC) => {
                    let detail = "the kernel gives this user no more watches; files in some directories are not shown live";
                    self.incomplete(format!("{detail} (`fs.inotify.max_user_watches`)"));
                    return;
                }
                Err(_) => continue,
            }
            self.list(&dir, &path, listing, &mut todo);
        }
    }

    fn list(&mut self, dir: &OwnedFd, path: &Path, listing: Listing, todo: &mut Vec<PathBuf>) {
        let Ok(entries) = Dir::read_from(dir) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            let is_dir = kind == FileType::Directory;
            if listing == Listing::New {
                self.change(FileOp::Create, path.join(name), 0, is_dir);
            }
            if is_dir && !heavy(name) {
                todo.push(path.join(name));
            }
        }
    }

    fn read(&mut self) {
        let mut seen = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_os_string());
                    seen.push((event.wd(), event.events(), event.cookie(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
            // The rest waits for the next round, so that telling is not put off for ever.
            if seen.len() >= 4096 && reader.is_buffer_empty() {
                break;
            }
        }
        for (id, flags, cookie, name) in seen {
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.incomplete("more files changed at once than the kernel keeps; the live view may lack some".into());
            } else if flags.contains(ReadFlags::IGNORED) {
                self.dirs.remove(&id);
            } else if let (Some(dir), Some(name)) = (self.dirs.get(&id), name) {
                let path = dir.join(&name);
                self.event(flags, cookie, path, heavy(&name));
            }
        }
    }

    fn event(&mut self, flags: ReadFlags, cookie: u32, path: PathBuf, heavy: bool) {
        let dir = flags.contains(ReadFlags::ISDIR);
        if flags.contains(ReadFlags::MOVED_TO) {
            let half = self.halves.remove(&cookie).and_then(|index| self.changes.get_mut(index));
            if let Some(from) = half {
                from.op = FileOp::Rename;
                from.to = Some(path.clone());
                let from = from.path.clone();
                if dir {
                    self.moved(&from, &path);
                }
                return;
            }
            self.change(FileOp::Create, path.clone(), 0, dir);
        } else if flags.contains(ReadFlags::CREATE) {
            self.change(FileOp::Create, path.clone(), 0, dir);
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            self.change(FileOp::Delete, path, cookie, dir);
            return;
        } else if flags.contains(ReadFlags::DELETE) {
            self.change(FileOp::Delete, path, 0, dir);
            return;
        } else {
            self.change(FileOp::Change, path, 0, dir);
            return;
        }
        if dir && !heavy {
            self.add(path, Listing::New);
        }
    }

    fn moved(&mut self, from: &Path, to: &Path) {
        for path in self.dirs.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
    }

    /// Gathers changes of one file: what was made and then written was made.
    fn change(&mut self, op: FileOp, path: PathBuf, cookie: u32, dir: bool) {
        let last = self.latest.get(&path).and_then(|index| self.changes.get(*index)).map(|change| change.op);
        if last == Some(op) && cookie == 0 || (last == Some(FileOp::Create) && op == FileOp::Change) {
            return;
        }
        let index = self.changes.len();
        self.latest.insert(path.clone(), index);
        if cookie != 0 {
            self.halves.insert(cookie, index);
        }
        self.changes.push(Change { op, path, to: None, cookie, dir });
    }

    fn tell(&mut self) {
        self.latest.clear();
        self.halves.clear();
        for change in std::mem::take(&mut self.changes) {
            if change.dir && change.op == FileOp::Delete && change.cookie != 0 {
                self.left(&change.path);
            }
            let raw = |path: PathBuf| RawPath::from(path.as_os_str().as_bytes());
            self.teller.tell(Fact::Seen { op: change.op, path: raw(change.path), to: change.to.map(raw) });
        }
    }

    /// Stops watching a directory that was moved out of the workspace.
    fn left(&mut self, path: &Path) {
        let gone: Vec<i32> = self.dirs.iter().filter(|(_, dir)| dir.starts_with(path)).map(|(id, _)| *id).collect();
        for id in gone {
            self.dirs.remove(&id);
            // It may be gone with its directory.
            let _ = inotify::remove_watch(&self.queue, id);
        }
    }

    fn incomplete(&mut self, detail: String) {
        if !std::mem::replace(&mut self.partial, true) {
            self.teller.tell(Fact::Incomplete { detail });
        }
    }
}

fn heavy(name: &OsStr) -> bool {
    HEAVY.iter().any(|heavy| name == *heavy)
}

#[cfg(test)]
mod tests;
