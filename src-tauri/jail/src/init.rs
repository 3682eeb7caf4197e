//! PID 1: reaps, and ends with the command, which ends everything else.

use crate::REFUSED;
use crate::link::Link;
use jail_plan::Say;
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

/// Waits for `command` to end, says how, and exits. The kernel then kills whatever is left of the pid namespace.
///
/// It holds nothing but the link: no terminal that would keep it from hanging up, no stream of the starter's.
pub(crate) fn run(link: &Link, command: i32) -> ! {
    loop {
        let how = match wait(WaitOptions::empty()) {
            Ok(Some((pid, how))) if pid.as_raw_nonzero().get() == command => how,
            Ok(_) | Err(Errno::INTR) => continue,
            Err(_) => std::process::exit(i32::from(REFUSED)),
        };
        let (exit, signal) = (how.exit_status(), how.terminating_signal());
        drop(link.say(&Say::Ended { exit, signal }, &[]));
        std::process::exit(exit.unwrap_or(128 + signal.unwrap_or_default()))
    }
}
