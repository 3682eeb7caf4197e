//! From a failed call to a refusal that names the step, the thing and the cure.

use jail_plan::{Kind, Refusal, Stage};
use std::fmt::Display;
use std::io;

/// What every step returns.
pub(crate) type Step<T> = Result<T, Refusal>;

/// Turns any error into a refusal. There is no other way on: a step that can't be done ends the start.
pub(crate) trait OrRefuse<T> {
    /// `what` says what was tried, with the path; `hint` what a person can do.
    fn or_refuse(self, step: Stage, hint: &str, what: impl FnOnce() -> String) -> Step<T>;
}

/// What went wrong, with the kernel's number where the kernel said so.
pub(crate) trait Why: Display {
    /// The number.
    fn errno(&self) -> Option<i32> {
        None
    }
}

impl Why for &str {}
impl Why for String {}
impl Why for serde_json::Error {}
impl Why for std::ffi::NulError {}
impl Why for landlock::RulesetError {}
impl Why for sys::bpf::BadTable {}

impl Why for io::Error {
    fn errno(&self) -> Option<i32> {
        self.raw_os_error()
    }
}

impl Why for rustix::io::Errno {
    fn errno(&self) -> Option<i32> {
        Some(self.raw_os_error())
    }
}

impl Why for nix::errno::Errno {
    fn errno(&self) -> Option<i32> {
        Some(*self as i32)
    }
}

impl<T, E: Why> OrRefuse<T> for Result<T, E> {
    fn or_refuse(self, step: Stage, hint: &str, what: impl FnOnce() -> String) -> Step<T> {
        self.map_err(|e| Refusal { errno: e.errno(), ..Refusal::new(step, Kind::Machine, format!("{}: {e}", what()), hint) })
    }
}

/// For what works on every supported kernel.
pub(crate) const UNEXPECTED: &str = "`airlock doctor` runs the same start and says what this machine lacks";

/// For namespaces and what is done with the rights that they give.
pub(crate) const NAMESPACES: &str = "unprivileged user namespaces are needed: `airlock doctor` names what blocks them \
     (AppArmor's kernel.apparmor_restrict_unprivileged_userns, kernel.unprivileged_userns_clone, user.max_user_namespaces, \
     or a container around Airlock); or let a policy of your own accept the weaker jail that does without, as an ordinary user: \
     accept = [\"user-namespaces\"]";

/// For odd things in directories that an agent has written.
pub(crate) const PLANTED: &str = "an earlier run left it there; look at it and remove it, or discard the task";
