//! Who did it, as the kernel says: from a thread id to a [`Process`], for processes of one jail only.

mod proc;

pub(crate) use proc::{Ids, exe, pidfd, program, stat, status};

use model::event::{Origin, Process};
use model::path::RawPath;
use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest name or argument kept, in bytes.
pub const TEXT_CAP: usize = 4096;
/// Most arguments kept.
pub const ARGV_CAP: usize = 64;
/// Longest argv kept, in bytes over all.
const ARGV_BYTES: usize = 16 * 1024;
const ANCESTRY_CAP: usize = 32;
/// Deepest process that is still named.
const DEPTH: usize = 512;
const CACHE_CAP: usize = 4096;
/// For so long a number is not looked at again: the kernel can't have gone through all numbers and given it to another.
const TRUST: Duration = Duration::from_millis(100);
/// Longest search of `/proc` for one id (only before Linux 6.11, or before a first process was seen, and for whom nothing
/// was told of before).
const SEARCH: Duration = Duration::from_millis(50);
/// Longest wait for memory of a jailed process.
pub(crate) const DEADLINE: Duration = Duration::from_millis(20);
/// Threads that may hang in a jailed process's memory before no more of it is read.
pub(crate) const STUCK_CAP: usize = 8;

/// What the sensors need to know of a jail.
#[derive(Debug, Clone, Default)]
pub struct JailRef {
    /// Host pid of the jail's init.
    pub init_pid: u32,
    /// Absolute paths inside under which the jail can write (workspace, home, `/tmp`, the policy's own): programs from there
    /// are the task's, and a write elsewhere is told as denied.
    pub writable: Vec<PathBuf>,
    /// Absolute paths inside of tools that the policy brought in.
    pub tools: Vec<PathBuf>,
    /// Absolute paths inside whose files nobody needs one by one, such as the private git directory: changes below one are
    /// told as writes of it, counted by process and second.
    pub quiet: Vec<PathBuf>,
}

/// Why nobody can be named.
#[derive(Debug, Error)]
pub enum WhoError {
    /// The init is gone or hidden.
    #[error("the jail's first process {pid} can't be looked at in /proc: it ended, or /proc hides it; start the run again")]
    Init {
        /// Host pid.
        pid: u32,
    },
}

/// Resolver for one jail; shared by the sensors.
#[derive(Debug)]
pub struct Who {
    jail: JailRef,
    /// The jail's pid namespace, once a process of it was seen that lets itself be looked at (its init does not).
    namespace: OnceLock<OwnedFd>,
    /// Where a process's id inside stands in the kernel's list of its ids.
    level: usize,
    cache: Mutex<Cache>,
    /// Whether each exec is told by [`Who::changing`]; else a name is too old at once, since nothing else shows an exec.
    execs_told: AtomicBool,
    stuck: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Cache {
    known: HashMap<u32, Known>,
    /// Ids of the host's by the jail's own: where to look first. The kernel's word is asked again each time.
    inside: HashMap<u32, u32>,
    changing: HashSet<u32>,
}

#[derive(Debug, Clone)]
struct Known {
    start: u64,
    tgid: u32,
    checked: Instant,
    process: Arc<Process>,
}

impl Who {
    /// Looks at the jail's init once; everything later is compared with it.
    pub fn new(jail: JailRef) -> Result<Arc<Who>, WhoError> {
        let pid = jail.init_pid;
        let ids = status(pid).ok_or(WhoError::Init { pid })?;
        let level = ids.groups.len().saturating_sub(1);
        let who = Who {
            jail,
            namespace: OnceLock::new(),
            level,
            cache: Mutex::default(),
            execs_told: AtomicBool::new(false),
            stuck: Arc::default(),
        };
        who.learn_namespace(&ids);
        Ok(Arc::new(who))
    }

    /// The jail that this resolver names processes of.
    pub fn jail(&self) -> &JailRef {
        &self.jail
    }

    /// Names a thread or process of the host's numbering. `None` where it is not in the jail or already gone.
    pub fn by_host_id(&self, id: u32) -> Option<Process> {
        self.known(id).map(Arc::unwrap_or_clone)
    }

    /// Names a thread or process of the jail's own numbering.
    pub fn by_jail_id(&self, id: u32) -> Option<Process> {
        self.known_inside(id).map(Arc::unwrap_or_clone)
    }

    /// Who it is, by the jail's own numbering.
    pub(crate) fn known_inside(&self, id: u32) -> Option<Arc<Process>> {
        let asked = self.namespace.get().map(|space| sys::seccomp_notify::thread_from_namespace(space.as_fd(), id));
        match asked {
            Some(Ok(tid)) => self.known(tid),
            Some(Err(nix::errno::Errno::ESRCH)) => None,
            Some(Err(_)) | None => {
                let seen = self.remembered(id).and_then(|tid| self.known(tid));
                seen.or_else(|| self.known(self.search(id, SEARCH)?))
            }
        }
    }

    /// Who it is, from the cache where the thread is still the same.
    pub(crate) fn known(&self, id: u32) -> Option<Arc<Process>> {
        let now = Instant::now();
        let told = self.execs_told.load(Ordering::Acquire);
        let fresh = |known: &&Known| told && now.duration_since(known.checked) < TRUST;
        if let Some(known) = self.cache().known.get(&id).filter(fresh) {
            return Some(known.process.clone());
        }
        let stat = stat(id);
        // Where nobody has the number any more, the last who had it is meant.
        let same = |known: &&mut Known| stat.as_ref().is_none_or(|stat| told && stat.begun == known.start);
        if let Some(known) = self.cache().known.get_mut(&id).filter(same) {
            known.checked = now;
            return Some(known.process.clone());
        }
        let ids = status(id)?;
        let process = match told.then(|| self.of_leader(ids.tgid, now)).flatten() {
            Some(process) => process,
            None => {
                let leader = self::stat(ids.tgid)?;
                let process = Arc::new(self.look(&ids, None)?);
                self.keep(ids.tgid, leader.begun, ids.tgid, process.clone());
                process
            }
        };
        self.remember(id, &ids);
        self.keep(id, stat?.begun, ids.tgid, process.clone());
        Some(process)
    }

    /// What is known of a process by its first thread: its others are the same program.
    fn of_leader(&self, tgid: u32, now: Instant) -> Option<Arc<Process>> {
        let known = self.cache().known.get(&tgid).cloned()?;
        let same = now.duration_since(known.checked) < TRUST || stat(tgid).is_some_and(|stat| stat.begun == known.start);
        same.then_some(known.process)
    }

    /// The thread with this id inside, where it was seen before.
    fn remembered(&self, wanted: u32) -> Option<u32> {
        let id = self.cache().inside.get(&wanted).copied()?;
        (status(id)?.threads.get(self.level) == Some(&wanted)).then_some(id)
    }

    fn remember(&self, id: u32, ids: &Ids) {
        let Some(inside) = ids.threads.get(self.level).copied() else { return };
        let mut cache = self.cache();
        if cache.inside.len() >= CACHE_CAP {
            cache.inside.clear();
        }
        cache.inside.insert(inside, id);
    }

    /// Names a process that has just become another program with these arguments.
    pub(crate) fn after_exec(&self, tgid: u32, argv: Option<Vec<RawPath>>) -> Option<Arc<Process>> {
        self.settled(tgid);
        let stat = stat(tgid)?;
        let ids = status(tgid)?;
        let process = Arc::new(self.look(&ids, argv)?);
        self.remember(tgid, &ids);
        self.keep(tgid, stat.begun, tgid, process.clone());
        Some(process)
    }

    /// From now on each exec is told.
    pub(crate) fn execs_are_told(&self) {
        self.execs_told.store(true, Ordering::Release);
    }

    /// Drops what is known of a process and its threads and keeps nothing new of it, since it is about to change.
    pub(crate) fn changing(&self, tgid: u32) {
        let mut cache = self.cache();
        cache.changing.insert(tgid);
        cache.known.retain(|_, known| known.tgid != tgid);
    }

    /// Ends [`Who::changing`].
    pub(crate) fn settled(&self, tgid: u32) {
        self.cache().changing.remove(&tgid);
    }

    /// Where a program at this path inside the jail comes from.
    pub fn origin(&self, exe: &[u8]) -> Origin {
        const SYSTEM: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];
        let path = Path::new(OsStr::from_bytes(exe));
        if !path.is_absolute() {
            return Origin::Unknown;
        }
        let under = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        if under(&self.jail.tools) {
            Origin::Tool
        } else if under(&self.jail.writable) {
            Origin::Task
        } else if SYSTEM.iter().any(|place| path.starts_with(place)) {
            Origin::System
        } else {
            Origin::Unknown
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, id: u32, start: u64, tgid: u32, process: Arc<Process>) {
        let mut cache = self.cache();
        if cache.changing.contains(&tgid) {
            return;
        }
        if cache.known.len() >= CACHE_CAP {
            cache.known.clear();
        }
        cache.known.insert(id, Known { start, tgid, checked: Instant::now(), process });
    }

    /// Names a process; `None` for one that does not descend from the jail's init, which is one outside.
    fn look(&self, ids: &Ids, argv: Option<Vec<RawPath>>) -> Option<Process> {
        let tgid = ids.tgid;
        let own = stat(tgid)?;
        let first = tgid == self.jail.init_pid;
        // A parent that ends in between hands its children on, so that one look may lead nowhere.
        let mut looks = (0..3).filter_map(|_| self.ancestry(u32::try_from(stat(tgid)?.parent).ok()?));
        let ancestry = if first { Vec::new() } else { looks.next()? };
        self.learn_namespace(ids);
        let exe = exe(tgid);
        let argv = argv.unwrap_or_else(|| self.argv(tgid));
        Some(Process {
            pid: ids.groups.get(self.level).copied().unwrap_or(0),
            parent: ancestry.first().map_or(0, |(id, _)| *id),
            program: program(exe.as_deref(), &own.comm),
            origin: exe.as_deref().map_or(Origin::Unknown, |exe| self.origin(exe)),
            exe: RawPath(exe.unwrap_or_default()),
            argv,
            ancestry,
        })
    }

    /// The programs from this process up to the jail's init; `None` where it does not lead there.
    fn ancestry(&self, mut pid: u32) -> Option<Vec<(u32, RawPath)>> {
        let mut out = Vec::new();
        for depth in 0..DEPTH {
            let (stat, ids) = (stat(pid)?, status(pid)?);
            let first = pid == self.jail.init_pid;
            if depth < ANCESTRY_CAP || first {
                out.push((*ids.groups.get(self.level)?, program(exe(pid).as_deref(), &stat.comm)));
            }
            if first {
                return Some(out);
            }
            pid = u32::try_from(stat.parent).ok()?;
        }
        None
    }

    /// Keeps the pid namespace of a process that lives in the jail's own and in no further one.
    fn learn_namespace(&self, ids: &Ids) {
        if self.namespace.get().is_some() || ids.groups.len() != self.level + 1 {
            return;
        }
        let path = format!("/proc/{}/ns/pid", ids.tgid);
        if let Ok(space) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            // The number may have become another's in between.
            && status(ids.tgid).as_ref() == Some(ids)
        {
            // Another thread may have been faster.
            drop(self.namespace.set(space));
        }
    }

    /// `cmdline` lies in the process's own memory, which it can make as slow as it likes: read with a deadline.
    fn argv(&self, tgid: u32) -> Vec<RawPath> {
        let read = with_deadline(&self.stuck, move || {
            let mut text = Vec::new();
            let file = std::fs::File::open(format!("/proc/{tgid}/cmdline")).ok()?;
            file.take(ARGV_BYTES as u64).read_to_end(&mut text).ok()?;
            Some(text)
        });
        let text = read.flatten().unwrap_or_default();
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        if text.is_empty() {
            return Vec::new();
        }
        cap_argv(text.split(|b| *b == 0))
    }

    /// Looks through the jail's processes and threads for one with this id inside, within a bounded time.
    fn search(&self, wanted: u32, limit: Duration) -> Option<u32> {
        let until = Instant::now() + limit;
        let mut todo = vec![self.jail.init_pid];
        while let Some(pid) = todo.pop() {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for tid in tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()) {
                if Instant::now() > until {
                    return None;
                }
                if let Some(ids) = status(tid) {
                    self.remember(tid, &ids);
                    if ids.threads.get(self.level) == Some(&wanted) {
                        return Some(tid);
                    }
                }
                let children = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
                todo.extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
            }
        }
        None
    }
}

/// Runs `read` on a thread of its own; `None` where it takes too long or too many hang already.
pub(crate) fn with_deadline<T: Send + 'static>(stuck: &Arc<AtomicUsize>, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if stuck.fetch_add(1, Ordering::AcqRel) >= STUCK_CAP {
        stuck.fetch_sub(1, Ordering::AcqRel);
        return None;
    }
    let (begin, begun) = mpsc::sync_channel(1);
    let (tell, told) = mpsc::sync_channel(1);
    let mine = stuck.clone();
    let started = std::thread::Builder::new().name("memory".into()).spawn(move || {
        // Whoever waits may have gone.
        let _ = begin.send(());
        let value = read();
        mine.fetch_sub(1, Ordering::AcqRel);
        // Whoever waited may have gone.
        drop(tell.send(value));
    });
    if started.is_err() {
        stuck.fetch_sub(1, Ordering::AcqRel);
        return None;
    }
    // A busy machine may be slow to start the thread; that is not the read's fault.
    begun.recv_timeout(DEADLINE * 5).ok()?;
    told.recv_timeout(DEADLINE).ok()
}

/// Keeps at most [`ARGV_CAP`] arguments of at most [`TEXT_CAP`] bytes.
pub(crate) fn cap_argv<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<RawPath> {
    parts.take(ARGV_CAP).map(|part| RawPath::from(&part[..part.len().min(TEXT_CAP)])).collect()
}

#[cfg(test)]
mod tests;
