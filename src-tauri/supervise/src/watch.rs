//! The live view: which files of the workspace change.
//!
//! Invariant: names are data. Only directories are opened, beneath the root and never through a symbolic link, and `notify` is
//! handed the descriptor's own name in `/proc`, so that it resolves no path of the workspace. What is told decides nothing.

use crate::fact::Fact;
use crate::tell::{Teller, Told};
use model::event::FileOp;
use model::path::RawPath;
use notify::event::{CreateKind, ModifyKind, RemoveKind, RenameMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Directories that hold much, change much and are not the person's work.
const HEAVY: [&str; 4] = [".git", "node_modules", "target", ".venv"];
/// Directories watched at a time, each by a descriptor that stays open.
const BUDGET: usize = 8192;
/// Changes that wait to be gathered, as many as the kernel keeps.
const WAITING: usize = 16_384;
/// How long changes of a file are gathered.
const GATHER: Duration = Duration::from_millis(150);
/// How long an end waits for the changes before it.
const LAST: Duration = Duration::from_secs(1);

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
    /// The kernel or the library refused.
    #[error("the workspace can't be watched: {0}; raise `fs.inotify.max_user_instances` or the limit of open files")]
    Notify(#[from] notify::Error),
}

/// Watches one workspace until dropped.
#[derive(Debug)]
pub struct Watch {
    /// A file without a name that is watched as well: a write to it is heard after every change before it.
    end: File,
    news: SyncSender<News>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    told: Told,
}

impl Watch {
    /// Starts watching; paths are told relative to `root`, ignored heavy directories are left out. Raises this process's soft
    /// limit of open files as far as it may, since each watched directory is held open.
    pub fn start(root: &Path, sink: impl Fn(Fact) + Send + Sync + 'static) -> Result<Watch, WatchError> {
        Watch::with_budget(root, affordable(), sink)
    }

    fn with_budget(root: &Path, budget: usize, sink: impl Fn(Fact) + Send + Sync + 'static) -> Result<Watch, WatchError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fail = |source: Errno| WatchError::Root { path: root.to_path_buf(), source: source.into() };
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(fail)?;
        let end = tempfile::tempfile()?;
        let (news, from) = sync_channel(WAITING);
        let lost = Arc::new(AtomicBool::new(false));
        let mut watcher = notify::recommended_watcher(hear(end.as_raw_fd(), news.clone(), lost.clone()))?;
        watcher.watch(&name(&end), RecursiveMode::NonRecursive)?;
        let (teller, told) = Teller::start(sink)?;
        let (tell_done, done) = sync_channel(1);
        let mut tree = Tree {
            root,
            watcher,
            lost,
            budget,
            dirs: HashMap::new(),
            inodes: HashMap::new(),
            retired: Vec::new(),
            changes: Vec::new(),
            latest: HashMap::new(),
            halves: HashMap::new(),
            partial: false,
            teller,
        };
        // Before returning, so that nothing that happens afterwards is missed.
        tree.add(PathBuf::new(), Listing::Old);
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            tree.run(&from);
            // Nobody waits where the end was not asked for.
            let _ = tell_done.try_send(());
        })?;
        Ok(Watch { end, news, done, thread: Some(thread), told })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Either may fail where the kernel has dropped changes; the wait is bounded then.
        drop(self.end.write_all(b"end"));
        if self.done.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            drop(self.news.send(News::End));
        }
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed already.
            drop(thread.join());
        }
        self.told.wait();
    }
}

/// How many directories can be held open: half of the descriptors that this process may have.
fn affordable() -> usize {
    static SOFT: OnceLock<usize> = OnceLock::new();
    *SOFT.get_or_init(|| {
        let now = rustix::process::getrlimit(Resource::Nofile);
        let enough = u64::try_from(4 * BUDGET).unwrap_or(u64::MAX);
        let wanted = now.maximum.unwrap_or(enough).min(enough);
        let soft = match now.current {
            Some(soft) if soft < wanted => {
                let raised = Rlimit { current: Some(wanted), maximum: now.maximum };
                rustix::process::setrlimit(Resource::Nofile, raised).map_or(soft, |()| wanted)
            }
            soft => soft.unwrap_or(enough),
        };
        usize::try_from(soft / 2).unwrap_or(BUDGET).min(BUDGET)
    })
}

/// What names a descriptor to a library that takes paths: the kernel leads from it to the very object, not by its path.
fn name(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// What `notify` heard, as far as it counts.
#[derive(Debug)]
enum News {
    /// Something happened to an entry of the directory with this descriptor.
    Entry(RawFd, OsString, Happened),
    /// The kernel dropped some.
    Overflow,
    /// Everything before the end has been handed over.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Created {
        dir: bool,
    },
    Deleted {
        dir: bool,
    },
    Changed,
    /// The two halves of a rename share a number.
    MovedFrom(usize),
    MovedTo(usize),
}

/// Runs on the thread of `notify` and never waits.
fn hear(end: RawFd, news: SyncSender<News>, lost: Arc<AtomicBool>) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    move |event| {
        let Some(said) = event.ok().and_then(|event| understood(&event, end)) else { return };
        if news.try_send(said).is_err() {
            lost.store(true, Ordering::Release);
        }
    }
}

fn understood(event: &notify::Event, end: RawFd) -> Option<News> {
    if event.need_rescan() {
        return Some(News::Overflow);
    }
    // It opens files too, which is no change; what happens to a watched directory itself, its parent tells.
    let happened = match event.kind {
        EventKind::Create(kind) => Happened::Created { dir: kind == CreateKind::Folder },
        EventKind::Remove(kind) => Happened::Deleted { dir: kind == RemoveKind::Folder },
        EventKind::Modify(ModifyKind::Data(_)) => Happened::Changed,
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) => Happened::MovedFrom(event.tracker()?),
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => Happened::MovedTo(event.tracker()?),
        _ => return None,
    };
    let mut parts = event.paths.first()?.strip_prefix("/proc/self/fd").ok()?.iter();
    let fd = parts.next()?.to_str()?.parse().ok()?;
    match parts.next() {
        Some(name) => Some(News::Entry(fd, name.to_owned(), happened)),
        None => (fd == end).then_some(News::End),
    }
}

/// A directory that is watched as long as its descriptor is open, so that no other takes its number.
#[derive(Debug)]
struct Held {
    fd: OwnedFd,
    path: PathBuf,
    inode: (u64, u64),
}

struct Tree {
    root: OwnedFd,
    watcher: RecommendedWatcher,
    /// Set where changes came faster than they were taken.
    lost: Arc<AtomicBool>,
    budget: usize,
    dirs: HashMap<RawFd, Held>,
    inodes: HashMap<(u64, u64), RawFd>,
    /// No longer watched, but named by changes that still wait.
    retired: Vec<Held>,
    changes: Vec<Change>,
    /// Where in `changes` a path was last named.
    latest: HashMap<PathBuf, usize>,
    /// First halves of renames that wait for the second.
    halves: HashMap<usize, Half>,
    partial: bool,
    teller: Teller,
}

/// The first half of a rename.
#[derive(Debug)]
struct Half {
    /// Where in `changes` it is.
    index: usize,
    from: PathBuf,
    /// What is watched of it.
    held: Vec<RawFd>,
}

#[derive(Debug, PartialEq, Eq)]
struct Change {
    op: FileOp,
    path: PathBuf,
    to: Option<PathBuf>,
}

/// Whether what a directory holds is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Old,
    New,
}

impl Tree {
    fn run(mut self, news: &Receiver<News>) {
        let mut due: Option<Instant> = None;
        loop {
            let next = match due {
                Some(due) => news.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut ended = matches!(next, Err(RecvTimeoutError::Disconnected));
            // The rest waits for the next round, so that telling is not put off for ever.
            let first = next.ok();
            let whole = first.into_iter().chain(news.try_iter()).take(WAITING).fold(0, |count, said| {
                match said {
                    News::Entry(fd, name, happened) => self.event(fd, &name, happened),
                    News::Overflow => self.overflow(),
                    News::End => ended = true,
                }
                count + 1
            }) < WAITING;
            if whole && self.halves.is_empty() {
                // All that named them has been read.
                self.retired.clear();
            }
            if self.lost.swap(false, Ordering::AcqRel) {
                self.overflow();
            }
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
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            let shown = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            let dir = match openat2(&self.root, shown, flags, Mode::empty(), resolve) {
                Ok(dir) => dir,
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.incomplete(
                        "no more files can be opened; files in some directories are not shown live (`ulimit -n`)".into(),
                    );
                    return;
                }
                // One that vanished or became something else in between is not watched.
                Err(_) => continue,
            };
            let Ok(stat) = rustix::fs::fstat(&dir) else { continue };
            let inode = (stat.st_dev, stat.st_ino);
            if let Some(known) = self.inodes.get(&inode).and_then(|fd| self.dirs.get_mut(fd)) {
                known.path.clone_from(&path);
                self.list(&dir, &path, listing, &mut todo);
                continue;
            }
            if self.dirs.len() >= self.budget {
                self.too_many();
                return;
            }
            match self.watcher.watch(&name(&dir), RecursiveMode::NonRecursive) {
                Ok(()) => {}
                Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                    let detail = "the kernel gives this user no more watches; files in some directories are not shown live";
                    self.incomplete(format!("{detail} (`fs.inotify.max_user_watches`)"));
                    return;
                }
                Err(_) => continue,
            }
            self.list(&dir, &path, listing, &mut todo);
            let number = dir.as_raw_fd();
            self.inodes.insert(inode, number);
            self.dirs.insert(number, Held { fd: dir, path, inode });
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
                self.change(FileOp::Create, path.join(name));
            }
            if is_dir && !heavy(name) {
                if todo.len() >= self.budget {
                    self.too_many();
                } else {
                    todo.push(path.join(name));
                }
            }
        }
    }

    fn event(&mut self, fd: RawFd, name: &OsStr, happened: Happened) {
        let Some(path) = self.dirs.get(&fd).map(|dir| dir.path.join(name)) else { return };
        let looked_into = match happened {
            Happened::Created { dir } => {
                self.change(FileOp::Create, path.clone());
                dir
            }
            Happened::Deleted { dir } => {
                if dir {
                    self.forget(&self.under(&path));
                }
                self.change(FileOp::Delete, path);
                return;
            }
            Happened::Changed => {
                self.change(FileOp::Change, path);
                return;
            }
            Happened::MovedFrom(number) => {
                let index = self.changes.len();
                self.latest.insert(path.clone(), index);
                self.changes.push(Change { op: FileOp::Delete, path: path.clone(), to: None });
                self.halves.insert(number, Half { index, held: self.under(&path), from: path });
                return;
            }
            Happened::MovedTo(number) => match self.halves.remove(&number) {
                Some(half) => {
                    self.moved(half, &path);
                    return;
                }
                None => {
                    self.change(FileOp::Create, path.clone());
                    // Whether it is a directory shows when it is opened as one.
                    true
                }
            },
        };
        if looked_into && !heavy(name) {
            self.add(path, Listing::New);
        }
    }

    /// What is watched at and below a path.
    fn under(&self, path: &Path) -> Vec<RawFd> {
        let path = path.as_os_str().as_bytes();
        let below = |dir: &Path| {
            let rest = dir.as_os_str().as_bytes().strip_prefix(path);
            rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/'))
        };
        self.dirs.iter().filter(|(_, dir)| below(&dir.path)).map(|(fd, _)| *fd).collect()
    }

    fn moved(&mut self, half: Half, to: &Path) {
        if let Some(change) = self.changes.get_mut(half.index) {
            change.op = FileOp::Rename;
            change.to = Some(to.to_path_buf());
        }
        for fd in half.held {
            if let Some(dir) = self.dirs.get_mut(&fd)
                && let Ok(rest) = dir.path.strip_prefix(&half.from)
            {
                dir.path = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
    }

    /// Gathers changes of one file: what was made and then written was made.
    fn change(&mut self, op: FileOp, path: PathBuf) {
        let last = self.latest.get(&path).and_then(|index| self.changes.get(*index)).map(|change| change.op);
        if last == Some(op) || (last == Some(FileOp::Create) && op == FileOp::Change) {
            return;
        }
        // One rename may bring millions of files in.
        if self.changes.len() >= WAITING {
            self.overflow();
            return;
        }
        self.latest.insert(path.clone(), self.changes.len());
        self.changes.push(Change { op, path, to: None });
    }

    fn tell(&mut self) {
        self.latest.clear();
        // A half that stays alone was moved out of the workspace.
        for half in std::mem::take(&mut self.halves).into_values() {
            self.forget(&half.held);
        }
        for change in std::mem::take(&mut self.changes) {
            let raw = |path: PathBuf| RawPath::from(path.as_os_str().as_bytes());
            self.teller.tell(Fact::Seen { op: change.op, path: raw(change.path), to: change.to.map(raw) });
        }
    }

    /// Stops watching directories.
    fn forget(&mut self, gone: &[RawFd]) {
        for fd in gone {
            let Some(dir) = self.dirs.remove(fd) else { continue };
            self.inodes.remove(&dir.inode);
            // It may be gone with its directory.
            drop(self.watcher.unwatch(&name(&dir.fd)));
            self.retired.push(dir);
        }
    }

    fn overflow(&mut self) {
        self.incomplete("more files changed at once than are kept; the live view may lack some".into());
    }

    fn too_many(&mut self) {
        self.incomplete(format!("the workspace has more than {} directories; files in some are not shown live", self.budget));
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
