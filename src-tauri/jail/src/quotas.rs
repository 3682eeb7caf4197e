//! Quotas of the user namespace: kernel tables that a jail would else share with the person, who would run out of them.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Limits, Stage, Status};
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::OwnedFd;

/// No namespace can be made inside: each one hands out capabilities over kernel code that is otherwise closed. Beside each
/// kind, how many there may be where the plan lets programs build sandboxes of their own: a browser makes one user and one
/// network namespace, and a pid namespace for each of its processes.
const NAMESPACES: [(&str, u32); 8] =
    [("user", 32), ("mnt", 0), ("pid", 256), ("net", 32), ("ipc", 0), ("uts", 0), ("cgroup", 0), ("time", 0)];

/// The quotas of the caller's own user namespace, held from before the new root: there they are read-only.
pub(crate) struct Quotas(OwnedFd);

impl Quotas {
    /// Opens them. `/proc/sys/user` always speaks of the user namespace of whoever opens a file in it.
    pub(crate) fn open() -> Step<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, "/proc/sys/user", flags, Mode::empty());
        directory.map(Self).or_refuse(Stage::Quotas, UNEXPECTED, || "opening /proc/sys/user".into())
    }

    /// Closes them, for good. Not before the new root stands: each mount in the making counts as a mount namespace.
    pub(crate) fn close(self, limits: &Limits, nested: bool) -> Step<()> {
        for (kind, most) in NAMESPACES {
            self.set(&format!("max_{kind}_namespaces"), if nested { most } else { 0 })?;
        }
        self.set("max_inotify_instances", limits.inotify_instances)?;
        self.set("max_inotify_watches", limits.inotify_watches)
    }

    fn set(&self, name: &str, value: u32) -> Step<()> {
        let what = || format!("writing {value} to /proc/sys/user/{name}");
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty()).or_refuse(Stage::Quotas, UNEXPECTED, what)?;
        rustix::io::write(&file, value.to_string().as_bytes()).or_refuse(Stage::Quotas, UNEXPECTED, what).map(drop)
    }
}

/// What is shared with the person and closed or bounded, and what is not.
pub(crate) fn status(own_account: bool) -> Status {
    let whose = if own_account { "which only other jails share" } else { "which your own programs share" };
    Status::partial(format!(
        "all are closed or bounded but the account's epoll watches and pipe pages, {whose}, the machine's memory for TCP, and locks \
         on files that it can read"
    ))
}
