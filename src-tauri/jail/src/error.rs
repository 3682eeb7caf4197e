//! From a failed call to a refusal that names the step, the thing and the cure.

use jail_plan::{Kind, Refusal, Stage};
use std::fmt::Display;

/// What every step returns.
pub(crate) type Step<T> = Result<T, Refusal>;

/// Turns any error into a refusal. There is no other way on: a step that can't be done ends the start.
pub(crate) trait OrRefuse<T> {
    /// `what` says what was tried, with the path; `hint` what a person can do.
    fn or_refuse(self, step: Stage, hint: &str, what: impl FnOnce() -> String) -> Step<T>;
}

impl<T, E: Display> OrRefuse<T> for Result<T, E> {
    fn or_refuse(self, step: Stage, hint: &str, what: impl FnOnce() -> String) -> Step<T> {
        self.map_err(|e| Refusal { step, kind: Kind::Machine, reason: format!("{}: {e}", what()), hint: hint.to_owned() })
    }
}

/// For what works on every supported kernel.
pub(crate) const UNEXPECTED: &str = "`airlock doctor` runs the same start and says what this machine lacks";

/// For namespaces and what is done with the rights that they give.
pub(crate) const NAMESPACES: &str = "unprivileged user namespaces are needed: `airlock doctor` names what blocks them \
     (AppArmor's kernel.apparmor_restrict_unprivileged_userns, kernel.unprivileged_userns_clone, user.max_user_namespaces, \
     or a container around Airlock)";

/// For odd things in directories that an agent has written.
pub(crate) const PLANTED: &str = "an earlier run left it there; look at it and remove it, or discard the task";
