//! Limits of a whole jail that neither its processes nor the kernel keep by themselves: looked at while it runs.
//!
//! While every process of a jail sleeps nothing here wakes, but for one look a minute: what ends the sleep is the kernel's word that one of them used
//! processor time, or a call of theirs that is told of. While they run there is a look a second, and ten where space on
//! disk falls fast.

mod disk;
mod sleep;
mod tree;

use crate::cgroup::Scope;
use crate::who::Who;
use disk::{Disk, Finding};
use jail_plan::{Guarantee, Report, Status};
use model::event::Process;
use sleep::Sleeper;
pub use sleep::Stir;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tree::Tree;

/// Between two looks while processes run.
const USUAL: Duration = Duration::from_secs(1);
/// Between two looks while space falls fast.
const FAST: Duration = Duration::from_millis(100);
/// A limit at which a run stays is told this often.
const TOLD: Duration = Duration::from_secs(60);
/// Largest processes ended at one look.
const ENDED: usize = 64;

/// The row that says how far a limit is kept.
pub fn guarantee(limit: policy::Limit) -> Guarantee {
    use policy::Limit;
    match limit {
        Limit::Memory => Guarantee::Memory,
        Limit::Cpus => Guarantee::Cpu,
        Limit::Processes => Guarantee::Processes,
        Limit::Disk => Guarantee::Disk,
        Limit::Wall => Guarantee::Wall,
        Limit::BytesOut | Limit::BytesIn => Guarantee::Bytes,
        Limit::OpenFiles => Guarantee::OpenFiles,
        Limit::Output => Guarantee::Output,
    }
}

/// Sets the rows of what a run's warden keeps on every machine: the clock, the bytes of the way out, the kept output, the
/// growth on disk, which the file system itself keeps where it is no larger (`held`).
pub fn kept_by_warden(report: &mut Report, held: Option<u64>) {
    for (guarantee, how) in [
        (Guarantee::Wall, "the warden's clock"),
        (Guarantee::Bytes, "counted before they are carried"),
        (Guarantee::Output, "files of the warden's, of which the older half goes"),
    ] {
        report.keep(guarantee, how, Status::Full);
    }
    let seen = "it is looked at, at most ten times a second, and the run paused: what is written until then is there, and where other \
         programs write to the same file system, which of it is the run's is counted only now and then";
    match held {
        Some(bytes) => {
            report.keep(Guarantee::Disk, format!("the file system of {} that it writes to", size(bytes)), Status::Full)
        }
        None => report.keep(Guarantee::Disk, "RLIMIT_FSIZE and a look at the free space", Status::partial(seen)),
    }
    if let Some(Status::Absent { reason }) = report.status(Guarantee::Memory) {
        let seen = format!(
            "{reason}; it is looked at once a second, and the largest process is ended: what grows in between is there, and memory of files \
             that no process maps (memfd, /tmp) is not seen"
        );
        report.keep(Guarantee::Memory, "a look at what processes hold", Status::partial(seen));
    }
}

/// Bytes of the one file system that holds all places, where it is no larger than `most`: a tmpfs or another mount of a size.
pub fn held_by_file_system(places: &[PathBuf], most: u64) -> Option<u64> {
    let mut found: Option<(u64, u64)> = None;
    for place in places {
        use std::os::unix::fs::MetadataExt as _;
        let device = match place.symlink_metadata() {
            Ok(m) => m.dev(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        let fs = rustix::fs::statvfs(place).ok()?;
        let bytes = fs.f_blocks.checked_mul(fs.f_frsize)?;
        if bytes > most || found.is_some_and(|(other, _)| other != device) {
            return None;
        }
        found = Some((device, bytes));
    }
    found.map(|(_, bytes)| bytes)
}

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes of memory of all processes together.
    pub memory: u64,
    /// Processes and threads, init not counted.
    pub processes: u64,
    /// Open files of a process.
    pub open_files: u64,
    /// Bytes that the places may grow by.
    pub disk: u64,
    /// Directories of one file system that the jail writes to.
    pub places: Vec<PathBuf>,
    /// Whether that file system is no larger than `disk`, so that nothing has to be looked at.
    pub held: bool,
}

/// A limit was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Its key.
    pub limit: &'static str,
    /// In words, with the figure and what raises it.
    pub detail: String,
    /// The process, where it is known.
    pub process: Option<Process>,
    /// Whether the run must be paused for it.
    pub pause: bool,
    /// The figure with as much again, where it can be raised while the run goes on.
    pub next: Option<u64>,
}

/// Looks at one jail until dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<sleep::Bell>,
    raised: Arc<Raised>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts looking. `told` is called on the watch's own thread, may take its time to pause the run, and says whether it did.
    pub fn start(
        init: i32,
        scope: Option<Arc<Scope>>,
        bounds: Bounds,
        who: Arc<Who>,
        stir: Option<Arc<Stir>>,
        told: impl FnMut(Reached) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let tree = Tree::of(init, scope.clone())?;
        let disk = Disk::new(&bounds.places, bounds.disk)?;
        let stop = Arc::new(sleep::Bell::new()?);
        let raised = Arc::new(Raised::default());
        let (stopped, again) = (Arc::clone(&stop), Arc::clone(&raised));
        let thread = std::thread::Builder::new().name("limits".into()).spawn(move || {
            let sleeper = match Sleeper::new(stopped, stir) {
                Ok(sleeper) => sleeper,
                Err(e) => return tracing::error!(error = %e, "limits can't be looked at"),
            };
            let step = bounds.memory;
            Look { tree, scope, disk, bounds, step, who, last: HashMap::new(), told, raised: again, paused: None }.run(&sleeper);
        })?;
        Ok(Self { stop, raised, thread: Some(thread) })
    }

    /// What the person's word that a run goes on is given to.
    pub fn allowance(&self) -> Allowance {
        Allowance(Arc::clone(&self.raised))
    }
}

#[derive(Debug, Default)]
struct Raised {
    disk: AtomicBool,
    memory: AtomicBool,
}

/// What a run may take beyond its limits, by the person's word.
#[derive(Debug, Clone)]
pub struct Allowance(Arc<Raised>);

impl Allowance {
    /// It may grow on disk by as much again.
    pub fn disk(&self) {
        self.0.disk.store(true, Ordering::Release);
    }

    /// It may hold as much memory again.
    pub fn memory(&self) {
        self.0.memory.store(true, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed already.
            drop(thread.join());
        }
    }
}

struct Look<F> {
    tree: Tree,
    scope: Option<Arc<Scope>>,
    disk: Disk,
    bounds: Bounds,
    /// Memory that a raise adds.
    step: u64,
    who: Arc<Who>,
    /// When each limit was told last.
    last: HashMap<&'static str, Instant>,
    told: F,
    raised: Arc<Raised>,
    /// Looks since the run was paused for its disk.
    paused: Option<u32>,
}

impl<F: FnMut(Reached) -> bool> Look<F> {
    fn run(&mut self, sleeper: &Sleeper) {
        let mut pause = USUAL;
        // Nothing is worth a look in the first moment, and short runs have no other.
        while sleeper.rest(pause) {
            let Some(busy) = self.tree.look() else { return };
            self.memory();
            self.processes();
            self.open_files();
            pause = if self.disk(busy) { FAST } else { USUAL };
            if !busy && pause == USUAL && !self.disk.stale() && !sleeper.until_any_runs(&mut self.tree) {
                return;
            }
        }
    }

    fn named(&self, pid: i32) -> Option<Process> {
        u32::try_from(pid).ok().and_then(|pid| self.who.by_host_id(pid))
    }

    /// Tells a limit at which a run may stay, once a minute.
    fn tell_now_and_then(&mut self, limit: &'static str, detail: String, process: Option<Process>) {
        if self.last.get(limit).is_none_or(|at| at.elapsed() >= TOLD) {
            self.last.insert(limit, Instant::now());
            (self.told)(Reached { limit, detail, process, pause: false, next: None });
        }
    }

    fn memory(&mut self) {
        if self.raised.memory.swap(false, Ordering::AcqRel) {
            let more = self.next_memory();
            match self.scope.as_ref().filter(|s| s.keeps_memory()).map(|s| s.allow_memory(more)) {
                Some(Err(e)) => tracing::error!(error = %e, "the limit of memory could not be raised"),
                Some(Ok(())) | None => self.bounds.memory = more,
            }
        }
        let next = Some(self.next_memory());
        if let Some(scope) = self.scope.as_ref().filter(|s| s.keeps_memory()) {
            if let Some(ended) = scope.ended_for_memory() {
                let detail = format!(
                    "the run's processes together reached {} of memory, and the kernel ended {}; `limits.memory` raises it",
                    size(self.bounds.memory),
                    if ended == 1 { "the largest".into() } else { format!("the {ended} largest") }
                );
                (self.told)(Reached { limit: "memory", detail, process: None, pause: false, next });
            }
            return;
        }
        for _ in 0..ENDED {
            if self.tree.memory() <= self.bounds.memory {
                return;
            }
            // Memory that processes share was counted for each of them: now exactly.
            let (all, largest) = self.tree.exact_memory();
            let Some((process, holds)) = largest.filter(|_| all > self.bounds.memory) else { return };
            let name = self.named(process.pid);
            if let Err(e) = crate::freeze::kill(process.pid, process.begun) {
                return tracing::warn!(error = %e, "a process that takes too much memory could not be ended");
            }
            let detail = format!(
                "the run's processes together hold {} of memory, more than {}: the largest, with {}, was ended; `limits.memory` raises it",
                size(all),
                size(self.bounds.memory),
                size(holds)
            );
            (self.told)(Reached { limit: "memory", detail, process: name, pause: false, next });
            self.tree.wait_for_end(process);
            if self.tree.look().is_none() {
                return;
            }
        }
    }

    fn next_memory(&self) -> u64 {
        self.bounds.memory.saturating_add(self.step)
    }

    fn processes(&mut self) {
        let refused = self.scope.as_ref().and_then(|s| s.refused_processes());
        let most = self.bounds.processes;
        let now = self.tree.threads();
        if refused.is_some() || now >= most {
            let largest = self.tree.with_most_threads().and_then(|pid| self.named(pid));
            // Those that the kernel refused may have come and gone between two looks.
            let refused = refused.map_or_else(String::new, |n| format!(", and {n} starts were refused"));
            let detail = format!(
                "the run has {now} processes and threads of {most}{refused}: no more can be started; `limits.processes` raises it"
            );
            self.tell_now_and_then("processes", detail, largest);
        }
    }

    fn open_files(&mut self) {
        // The last descriptor is seen only by whoever looks in that moment; all but a few is near enough to say so.
        let most = self.bounds.open_files;
        if let Some((pid, open)) = self.tree.with_open_files(most.saturating_sub(most / 64 + 1)) {
            let detail = format!(
                "a process has {open} open files of {most}: few or none more can be opened; `limits.open_files` raises it"
            );
            let process = self.named(pid);
            self.tell_now_and_then("open_files", detail, process);
        }
    }

    /// True where space falls fast.
    fn disk(&mut self, busy: bool) -> bool {
        if self.bounds.held {
            return false;
        }
        if self.raised.disk.swap(false, Ordering::AcqRel) {
            self.disk.raise();
            self.paused = None;
        }
        if let Some(looks) = &mut self.paused {
            *looks += 1;
            // What ran until it was stopped is seen at the first look; at later ones nothing of a paused run does.
            if *looks == 1 || !busy {
                return false;
            }
        }
        let reached = match self.disk.look(&self.tree, busy) {
            Finding::Slow => return false,
            Finding::Fast => return true,
            Finding::Reached(detail) => detail,
        };
        let writer = self.tree.with_most_written().and_then(|pid| self.named(pid));
        let next = Some(self.disk.next());
        self.paused = (self.told)(Reached { limit: "disk", detail: reached, process: writer, pause: true, next }).then_some(0);
        false
    }
}

/// In the largest unit that leaves at least one before the point.
pub fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) if bytes.trailing_zeros() >= shift => format!("{} {unit}", bytes >> shift),
        Some((unit, shift)) => format!("{}.{} {unit}", bytes >> shift, ((bytes >> (shift - 10)) & 1023) * 10 / 1024),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_never_too_large() {
        let shown = [0, 1023, 1 << 20, (3 << 30) / 2, (2 << 30) - 1].map(size);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 MiB", "1.5 GiB", "1.9 GiB"]);
    }
}
