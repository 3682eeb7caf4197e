//! What a process has from whoever started it, and gives up.

use nix::errno::Errno;
use nix::libc;
use std::ffi::{c_int, c_uint};

/// Policies under which a process comes before every ordinary one: FIFO, RR, DEADLINE.
const REAL_TIME: [c_int; 3] = [1, 2, 6];
const IOPRIO_WHO_PROCESS: c_int = 1;

/// Closes every descriptor from `first` on. For the very beginning of a program, before anything of its own is open.
pub fn close_from(first: c_uint) -> Result<(), Errno> {
    // SAFETY: three integers; the caller has opened nothing yet, so no owned descriptor goes stale.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, 0) };
    Errno::result(rc).map(drop)
}

/// Ended children wait to be asked for again: where a starter ignores SIGCHLD, the kernel reaps them and nobody hears how
/// they ended.
pub fn keep_ended_children() -> Result<(), Errno> {
    // SAFETY: SIG_DFL installs no handler.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(Errno::last()) } else { Ok(()) }
}

/// The kernel's usual personality: addresses at random, data not executable.
pub fn usual_personality() -> Result<(), Errno> {
    // SAFETY: one integer.
    Errno::result(unsafe { libc::personality(0) }).map(drop)
}

/// Which scheduler this process has.
pub fn is_real_time() -> Result<bool, Errno> {
    // SAFETY: one integer; 0 is the caller.
    let policy = Errno::result(unsafe { libc::sched_getscheduler(0) })?;
    Ok(REAL_TIME.contains(&(policy & 0xff)))
}

/// The scheduler of ordinary processes.
pub fn usual_scheduler() -> Result<(), Errno> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct outlives the call; 0 is the caller.
    Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) }).map(drop)
}

/// Whether this process comes before every ordinary one at the disk.
pub fn is_first_at_disk() -> Result<bool, Errno> {
    // SAFETY: two integers; 0 is the caller.
    let turn = Errno::result(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) })?;
    Ok(turn >> 13 == 1)
}

/// The turn at the disk that the niceness gives.
pub fn usual_disk_turn() -> Result<(), Errno> {
    // SAFETY: three integers; 0 is the caller, and class 0 is "none set".
    Errno::result(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0) }).map(drop)
}
