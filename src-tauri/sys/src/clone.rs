//! `clone3` as a fork: new processes, in new namespaces or in the old ones.

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A new user, mount, pid, network, IPC, UTS and cgroup namespace.
pub const ALL_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// A new user namespace.
pub const USER_NAMESPACE: u64 = libc::CLONE_NEWUSER as u64;

/// Makes the child a child of the caller's parent, which is told of its end instead of the caller.
pub const SIBLING: u64 = libc::CLONE_PARENT as u64;

/// Which side of the fork this is.
#[derive(Debug)]
pub enum Side {
    /// The old process.
    Parent {
        /// Child's pid in the caller's namespace.
        pid: i32,
        /// Its pidfd, close-on-exec.
        pidfd: OwnedFd,
    },
    /// The new process.
    Child,
}

/// Forks with `flags` of clone3.
///
/// The caller must have a single thread: in a child of several, whatever lock another thread held stays locked. That
/// is looked at here, and `EBUSY` returned where it is not so, or the error of the look where `/proc` does not say.
pub fn fork(flags: u64) -> Result<Side, Errno> {
    single_threaded("/proc/self/task")?;
    let mut pidfd: RawFd = -1;
    let args = libc::clone_args {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        child_tid: 0,
        parent_tid: 0,
        // A sibling's parent hears what it hears of the caller; clone3 takes no other wish.
        exit_signal: if flags & SIBLING == 0 { libc::SIGCHLD as u64 } else { 0 },
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: `args` is a whole `clone_args` and `pidfd` a writable int, both outlive the call. Without CLONE_VM the
    // child runs on a copy of this address space and stack, as after fork; there is one thread, so no lock is held.
    let rc = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match i32::try_from(Errno::result(rc)?).map_err(|_| Errno::ERANGE)? {
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: CLONE_PIDFD stored a new descriptor there, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid, pidfd })
        }
    }
}

/// Forks without any namespace, by the older call, which filters around containers let through. [`SIBLING`] is the one flag
/// that counts. The same holds of the caller's threads as for [`fork`].
pub fn fork_plain(flags: u64) -> Result<Side, Errno> {
    single_threaded("/proc/self/task")?;
    let mut pidfd: RawFd = -1;
    let flags = (flags & SIBLING) | libc::CLONE_PIDFD as u64 | libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM the child runs on a copy of this address space and stack, as after fork (no stack is given), and
    // there is one thread, so no lock is held; `pidfd` is a writable int that outlives the call and is the third argument on
    // every architecture, the last two are unused without flags that ask for them.
    let rc = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize) };
    match i32::try_from(Errno::result(rc)?).map_err(|_| Errno::ERANGE)? {
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: CLONE_PIDFD stored a new descriptor there, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid, pidfd })
        }
    }
}

/// Whether this process, whose threads `/proc` lists there, has no second one.
fn single_threaded(threads: &str) -> Result<(), Errno> {
    let look = || -> std::io::Result<usize> { std::fs::read_dir(threads)?.try_fold(0, |n, thread| thread.map(|_| n + 1)) };
    match look() {
        Ok(1) => Ok(()),
        Ok(_) => Err(Errno::EBUSY),
        Err(e) => Err(e.raw_os_error().map_or(Errno::EIO, Errno::from_raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_forked_only_where_it_is_seen_to_have_one_thread() {
        assert_eq!(single_threaded("/proc/self/task"), Err(Errno::EBUSY), "a test has a thread of its own");
        assert_eq!(single_threaded("/proc/self/task/none"), Err(Errno::ENOENT), "what can't be looked at is no answer");
        assert_eq!(single_threaded("/proc/self/fdinfo/../status"), Err(Errno::ENOTDIR));
        assert!(matches!(fork(0), Err(Errno::EBUSY)) && matches!(fork_plain(0), Err(Errno::EBUSY)), "both look");
    }
}
