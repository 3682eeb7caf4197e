//! PID 1: reaps, and ends with the command, which ends everything else.

use crate::REFUSED;
use crate::link::Link;
use jail_plan::Say;
use nix::sys::wait::{WaitStatus, wait};

/// Waits for `command` to end, says how, and exits. The kernel then kills whatever is left of the pid namespace.
///
/// It holds nothing but the link: no terminal that would keep it from hanging up, no stream of the starter's.
pub(crate) fn run(link: &Link, command: i32) -> ! {
    loop {
        let (exit, signal, code) = match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == command => (Some(code), None, code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == command => {
                (None, Some(signal as i32), 128 + signal as i32)
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => std::process::exit(i32::from(REFUSED)),
        };
        drop(link.say(&Say::Ended { exit, signal }, &[]));
        std::process::exit(code)
    }
}
