//! Signal dispositions.

use nix::errno::Errno;
use nix::libc;

/// Gives every signal its default meaning and unblocks all: a program's own runtime may have ignored some, which an
/// exec would hand on.
pub fn reset_all() -> Result<(), Errno> {
    // The kernel's `struct sigaction` with no handler, flag, restorer or mask, on every architecture.
    let default = [0u64; 4];
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler, and the buffer is as long as the struct. By its own call, since libc keeps two
        // signals to itself, which a starter may have ignored all the same. KILL and STOP answer EINVAL, which is fine.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8_usize) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask()
}
