//! Installs seccomp filters on the calling thread.

use crate::bpf::Program;
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Adds a filter, for this thread and all that come from it, for good. `no_new_privs` must be set.
pub fn install(program: &Program) -> Result<(), Errno> {
    seccomp(program, 0).map(drop)
}

/// Adds a filter whose [`crate::bpf::Action::Notify`] calls are told to the returned listener. A call that was received
/// waits as if uninterruptible (but for a kill), so that no program sees an `EINTR` it never saw before.
pub fn install_with_listener(program: &Program) -> Result<OwnedFd, Errno> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = i32::try_from(seccomp(program, flags)?).map_err(|_| Errno::ERANGE)?;
    // SAFETY: SECCOMP_FILTER_FLAG_NEW_LISTENER returns a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn seccomp(program: &Program, flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let filters: Vec<libc::sock_filter> = program
        .instructions()
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.value })
        .collect();
    let len = u16::try_from(filters.len()).map_err(|_| Errno::E2BIG)?;
    let prog = libc::sock_fprog { len, filter: filters.as_ptr().cast_mut() };
    // SAFETY: `prog` names `len` instructions of `filters`; both outlive the call, and the kernel copies and only reads.
    let rc = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const prog) };
    Errno::result(rc)
}
