//! Descriptors by number.

use nix::errno::Errno;
use nix::libc;
use std::ffi::c_uint;

/// Marks every descriptor from `first` on close-on-exec, so that an exec leaves those below it alone.
pub fn close_on_exec_from(first: c_uint) -> Result<(), Errno> {
    // SAFETY: three integers; CLOSE_RANGE_CLOEXEC closes nothing now, so no owned descriptor goes stale.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(rc).map(drop)
}
