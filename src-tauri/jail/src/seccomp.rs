//! The system call filters. Their tables are data: `policies/seccomp`, turned into code by `build.rs`.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Guarantee, Report, Stage, Status};
use std::os::fd::OwnedFd;
use sys::bpf::{Action, Program, Table};

mod table {
    include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));
}

const HINT: &str = "the kernel needs CONFIG_SECCOMP_FILTER (and Linux 5.19 for events)";
const ENOSYS: u16 = 38;

/// What may be called at all.
pub(crate) fn confine() -> Step<()> {
    let program = Program::assemble(&Table { arch: table::ARCH, entries: table::CONFINE, unlisted: Action::Errno(ENOSYS) })
        .or_refuse(Stage::Seccomp, UNEXPECTED, || "assembling the filter".into())?;
    sys::seccomp::install(&program).or_refuse(Stage::Seccomp, HINT, || "installing the filter".into())
}

/// What is told: from here on such calls wait for the listener's owner, so this comes last.
pub(crate) fn observe(report: &mut Report) -> Step<OwnedFd> {
    let program = Program::assemble(&Table { arch: table::ARCH, entries: table::NOTIFY, unlisted: Action::Allow }).or_refuse(
        Stage::Notify,
        UNEXPECTED,
        || "assembling the observer".into(),
    )?;
    let listener =
        sys::seccomp::install_with_listener(&program).or_refuse(Stage::Notify, HINT, || "installing the observer".into())?;
    report.set(Guarantee::Events, Status::Full);
    Ok(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_filters_assemble_and_fit_the_kernel() {
        for (entries, unlisted) in [(table::CONFINE, Action::Errno(ENOSYS)), (table::NOTIFY, Action::Allow)] {
            let program = Program::assemble(&Table { arch: table::ARCH, entries, unlisted }).unwrap();
            assert!(!program.instructions().is_empty());
        }
        assert!(table::CONFINE.len() > 300, "every call of the kernel is listed, not only those that matter today");
        assert!(table::NOTIFY.len() > 10);
    }
}
