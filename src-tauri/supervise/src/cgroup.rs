//! A jail's own cgroup, where the machine has cgroup v2: made before the jail program goes on, so that all of it is inside.
//!
//! An ordinary user's is a scope of the user's service manager; root's one of the system's, or, where no manager runs, a
//! directory of its own. What a limit's file says is read back: only what stands there is kept. The warden stays outside.

mod directory;
mod manager;

use jail_plan::{Guarantee, Report, Status};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A freeze takes milliseconds; what shows nothing for this long waits for something that does not come.
const FREEZE: Duration = Duration::from_secs(2);

/// Limits that the processes of a jail keep together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Together {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors' worth of time.
    pub cpus: u64,
    /// Processes and threads, init not counted.
    pub processes: u64,
}

impl Together {
    /// Those of a policy.
    pub fn of(policy: &policy::Policy) -> Self {
        let l = &policy.limits;
        Self { memory: l.memory, cpus: l.cpus, processes: l.processes }
    }

    /// With init.
    fn tasks(&self) -> u64 {
        self.processes.saturating_add(1)
    }
}

/// One jail's cgroup.
#[derive(Debug)]
pub struct Scope {
    directory: OwnedFd,
    /// Where it is, if it must be removed by hand.
    own: Option<PathBuf>,
    /// What it keeps; why not, where not.
    memory: Result<(), String>,
    swap: bool,
    cpus: Result<(), String>,
    processes: Result<(), String>,
    /// Counters of the kernel's as they were told last.
    told: Mutex<HashMap<&'static str, u64>>,
}

impl Scope {
    /// Puts a process into a cgroup of its own that has these limits, as far as there are controllers for them.
    pub(crate) fn around(pid: u32, limits: &Together) -> Result<Self, String> {
        let mount = mount().ok_or("this machine has no cgroup v2")?;
        let (path, own) = if rustix::process::geteuid().is_root() {
            if Path::new("/run/systemd/system").exists() {
                (manager::scope(manager::Whose::System, pid, limits)?, None)
            } else {
                directory::make(&mount, pid, limits).map(|p| (p.clone(), Some(p)))?
            }
        } else {
            match manager::scope(manager::Whose::User, pid, limits) {
                Ok(path) => (path, None),
                Err(why) => directory::make(&mount, pid, limits).map(|p| (p.clone(), Some(p))).map_err(|_| why)?,
            }
        };
        // The manager names it from the root of the hierarchy.
        let path = if own.is_some() { path } else { mount.join(path.strip_prefix("/").unwrap_or(&path)) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|e| format!("the cgroup {} can't be opened: {e}", path.display()))?;
        let mut scope =
            Self { directory, own, memory: Ok(()), swap: true, cpus: Ok(()), processes: Ok(()), told: Mutex::default() };
        if !scope.processes().is_ok_and(|all| all.iter().any(|p| u32::try_from(*p) == Ok(pid))) {
            return Err("the jail is not in the cgroup that was made for it".into());
        }
        scope.look_back(limits);
        Ok(scope)
    }

    /// What the limits' files say now is what is kept.
    fn look_back(&mut self, limits: &Together) {
        let is = |file: &str, wanted: u64| match self.read(file) {
            Ok(text) if text.trim().parse() == Ok(wanted) => Ok(()),
            Ok(text) => Err(format!("{file} says {}", text.trim())),
            Err(e) => Err(format!("there is no {file} ({e})")),
        };
        // The kernel counts in pages.
        let memory = is("memory.max", limits.memory & !0xfff);
        let swap = is("memory.swap.max", 0).is_ok() || !has_swap();
        let processes = is("pids.max", limits.tasks());
        let cpus = match self.read("cpu.max") {
            Ok(text) => {
                let mut words = text.split_ascii_whitespace().map(|w| w.parse::<u64>().ok());
                match (words.next().flatten(), words.next().flatten()) {
                    (Some(quota), Some(period)) if quota == limits.cpus * period => Ok(()),
                    _ => Err(format!("cpu.max says {}", text.trim())),
                }
            }
            Err(e) => Err(format!("there is no cpu.max ({e})")),
        };
        (self.memory, self.swap, self.processes, self.cpus) = (memory, swap, processes, cpus);
    }

    /// Whether the kernel keeps the whole jail's memory.
    pub(crate) fn keeps_memory(&self) -> bool {
        self.memory.is_ok()
    }

    /// Lets the jail hold so much.
    pub(crate) fn allow_memory(&self, bytes: u64) -> io::Result<()> {
        self.write("memory.max", &bytes.to_string())
    }

    /// Whether it keeps its processor time.
    pub(crate) fn keeps_cpus(&self) -> bool {
        self.cpus.is_ok()
    }

    /// Whether it counts its processes.
    pub(crate) fn keeps_processes(&self) -> bool {
        self.processes.is_ok()
    }

    /// Sets the rows of what is kept, and why the memory is not where it is not.
    pub(crate) fn tell(&self, report: &mut Report) {
        match (&self.memory, self.swap) {
            (Ok(()), true) => report.keep(Guarantee::Memory, "cgroup memory.max, no swap", Status::Full),
            (Ok(()), false) => {
                let seen = "this kernel does not count swap, so what is swapped out comes on top";
                report.keep(Guarantee::Memory, "cgroup memory.max", Status::partial(seen));
            }
            (Err(why), _) => report.set(Guarantee::Memory, Status::absent(format!("the jail's cgroup does not keep it: {why}"))),
        }
        if self.cpus.is_ok() {
            report.keep(Guarantee::Cpu, "cgroup cpu.max", Status::Full);
        }
        if self.processes.is_ok() {
            report.keep(Guarantee::Processes, "cgroup pids.max and RLIMIT_NPROC", Status::Full);
        }
    }

    /// Pids of all processes in it.
    pub(crate) fn processes(&self) -> io::Result<Vec<i32>> {
        Ok(self.read("cgroup.procs")?.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect())
    }

    /// How many processes the kernel ended for memory since this was asked last; `None` for none.
    pub(crate) fn ended_for_memory(&self) -> Option<u64> {
        self.more("memory.events", "oom_kill")
    }

    /// How many forks the kernel refused since this was asked last; `None` for none.
    pub(crate) fn refused_processes(&self) -> Option<u64> {
        self.more("pids.events", "max").filter(|_| self.processes.is_ok())
    }

    fn more(&self, file: &'static str, counter: &str) -> Option<u64> {
        let now = self.read(file).ok().and_then(|t| field(&t, counter))?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.insert(file, now).unwrap_or(0);
        (now > before).then(|| now - before)
    }

    /// Whether this kernel's cgroups can be frozen.
    pub(crate) fn can_freeze(&self) -> bool {
        self.read("cgroup.freeze").is_ok()
    }

    /// Stops everything; false where it was not seen stopped twice, and goes on then.
    pub(crate) fn freeze(&self) -> bool {
        for _ in 0..2 {
            if self.write("cgroup.freeze", "1").is_ok() {
                let until = Instant::now() + FREEZE;
                while Instant::now() < until {
                    if self.read("cgroup.events").ok().and_then(|t| field(&t, "frozen")) == Some(1) {
                        return true;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            self.thaw();
        }
        false
    }

    /// Lets everything go on.
    pub(crate) fn thaw(&self) {
        // One that is gone has nothing stopped.
        if let Err(e) = self.write("cgroup.freeze", "0") {
            tracing::debug!(error = %e, "a cgroup could not be thawed");
        }
    }

    /// Ends everything in it, where the kernel can do that in one step.
    pub(crate) fn kill(&self) {
        if let Err(e) = self.write("cgroup.kill", "1") {
            tracing::debug!(error = %e, "this kernel ends no cgroup; the jail ends with its init");
        }
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let fd = rustix::fs::openat(&self.directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        io::read_to_string(std::fs::File::from(fd))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let fd = rustix::fs::openat(&self.directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, text.as_bytes())?;
        Ok(())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(path) = &self.own {
            directory::remove(path);
        }
    }
}

/// Where cgroup v2 is mounted.
fn mount() -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| place.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The cgroup of a process, from the root of the hierarchy.
fn of_process(pid: &str) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("0::")).map(PathBuf::from)
}

fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|t| t.lines().count() > 1)
}

/// A number of a file of lines `name number`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "low 0\noom 7\noom_kill 3\noom_group_kill 1\n";
        assert_eq!((field(text, "oom_kill"), field(text, "oom"), field(text, "oom_k")), (Some(3), Some(7), None));
    }
}
