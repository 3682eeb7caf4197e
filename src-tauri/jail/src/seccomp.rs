//! The system call filters. Their tables are data: `policies/seccomp`, turned into code by `build.rs`.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Guarantee, Report, Stage, Status};
use std::os::fd::OwnedFd;
use sys::bpf::{Action, Program, Table};

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64 {
    include!(concat!(env!("OUT_DIR"), "/aarch64.rs"));
}
#[cfg(any(target_arch = "x86_64", test))]
mod x86_64 {
    include!(concat!(env!("OUT_DIR"), "/x86_64.rs"));
}
#[cfg(target_arch = "aarch64")]
use aarch64 as table;
#[cfg(target_arch = "x86_64")]
use x86_64 as table;

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
mod tests;
