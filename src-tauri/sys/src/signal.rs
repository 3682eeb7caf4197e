//! Signal dispositions.

use nix::errno::Errno;
use nix::libc;

/// Gives every signal its default meaning and unblocks all: a program's own runtime may have ignored some, which an
/// exec would hand on.
pub fn reset_all() -> Result<(), Errno> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler. KILL, STOP and libc's two own signals answer EINVAL, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask()
}
