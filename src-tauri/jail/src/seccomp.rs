//! The system call filters. Their tables are data: `policies/seccomp`, turned into code by `build.rs`.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Guarantee, Plan, Report, Stage, Status};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use sys::bpf::{Action, Entry, Program, Table};

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
const LISTENER: &str = "the kernel needs Linux 5.19, and there can be no other listener around Airlock";
const ENOSYS: u16 = 38;
/// On every architecture.
const OPENAT2: u32 = 437;
const NESTED: &str = "`jail.nested` lets programs make user, pid and network namespaces of their own, in which they have \
     capabilities over kernel code that is otherwise closed; mounts, files and the way out stay as they are";

/// Which of the lists a jail has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// In namespaces of its own.
    Own,
    /// The same, and it may make more.
    Nested,
    /// In none.
    Fallback,
}

impl Tier {
    pub(crate) fn of(plan: &Plan) -> Self {
        match plan {
            Plan { fallback: Some(_), .. } => Self::Fallback,
            Plan { nested: true, .. } => Self::Nested,
            Plan { .. } => Self::Own,
        }
    }
}

/// The filter in words.
static HOW: LazyLock<String> = LazyLock::new(|| format!("seccomp: {} calls listed, others are unknown", table::CONFINE.len()));

/// What may be called at all.
pub(crate) fn confine(plan: &Plan, report: &mut Report) -> Step<()> {
    let tier = Tier::of(plan);
    let entries = match tier {
        Tier::Own => table::CONFINE,
        Tier::Nested => table::CONFINE_NESTED,
        Tier::Fallback => table::CONFINE_FALLBACK,
    };
    let openat2 = |e: &Entry| match e.number {
        OPENAT2 if plan.looks_beneath => Entry { clauses: &[], otherwise: Action::Allow, ..*e },
        _ => *e,
    };
    let entries = &entries.iter().map(openat2).collect::<Vec<_>>();
    let program = Program::assemble(&Table { arch: table::ARCH, entries, unlisted: Action::Errno(ENOSYS) }).or_refuse(
        Stage::Seccomp,
        UNEXPECTED,
        || "assembling the filter".into(),
    )?;
    sys::seccomp::install(&program).or_refuse(Stage::Seccomp, HINT, || "installing the filter".into())?;
    report.keep(Guarantee::Syscalls, HOW.as_str(), if tier == Tier::Nested { Status::partial(NESTED) } else { Status::Full });
    Ok(())
}

/// What is told: from here on such calls wait for the listener's owner, so this comes last. Where the machine gives no
/// listener nothing is told, and the way out, which serves what was announced, stays closed.
/// A jail without namespaces can't do without: what is made outside would go on.
pub(crate) fn observe(tier: Tier, report: &mut Report) -> Step<Option<OwnedFd>> {
    let entries = match tier {
        Tier::Own | Tier::Nested => table::NOTIFY,
        Tier::Fallback => table::NOTIFY_FALLBACK,
    };
    let program = Program::assemble(&Table { arch: table::ARCH, entries, unlisted: Action::Allow }).or_refuse(
        Stage::Notify,
        UNEXPECTED,
        || "assembling the observer".into(),
    )?;
    let (listener, status) = match sys::seccomp::install_with_listener(&program) {
        Ok(listener) => (Some(listener), Status::Full),
        Err(e) if matches!(tier, Tier::Fallback) => {
            return Err(e).or_refuse(Stage::Notify, LISTENER, || "installing the listener, which makes connections".into());
        }
        Err(e) => (
            None,
            Status::absent(format!(
                "no listener for system calls ({e}; the kernel needs Linux 5.19, and no other listener around Airlock): \
                 programs, connections and writes are not told, and no connection is let out, since none is announced"
            )),
        ),
    };
    report.keep(Guarantee::Events, "seccomp listener, served by the warden", status);
    Ok(listener)
}

#[cfg(test)]
mod tests;
