//! Descriptors by number.

use nix::errno::Errno;
use nix::libc;
use std::ffi::c_uint;
use std::io;

/// Marks every descriptor from `first` on close-on-exec, so that an exec leaves those below it alone.
pub fn close_on_exec_from(first: c_uint) -> Result<(), Errno> {
    // SAFETY: three integers; CLOSE_RANGE_CLOEXEC closes nothing now, so no owned descriptor goes stale.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(rc).map(drop)
}

/// Whether two threads have one table of descriptors. An error where the kernel does not say, or not to this process.
pub fn same_table(a: libc::pid_t, b: libc::pid_t) -> Result<bool, Errno> {
    /// From `linux/kcmp.h`.
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: five integers; the call compares and changes nothing.
    let rc = unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_FILES, 0usize, 0usize) };
    Errno::result(rc).map(|order| order == 0)
}

/// Runs `job` on a thread of its own whose table of descriptors is new and holds the standard streams alone, so that it
/// can open files although the process has no descriptor left. What `job` uses of descriptors it must open itself: those
/// of the process are not there. An error means that there is no such thread or table; `job` did not run then.
pub fn with_own_table<T: Send>(job: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: three integers; CLOSE_RANGE_UNSHARE leaves the table of all other threads as it is, and this thread
            // ends with `job`, which was handed no descriptor.
            let rc = unsafe { libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
            Errno::result(rc).map(|_| job()).map_err(io::Error::from)
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}
