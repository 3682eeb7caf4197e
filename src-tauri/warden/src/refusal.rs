//! Why a run does not start, with the exit code that the command line gives it.

use model::protocol::Start;
use std::fmt::Display;
use supervise::SpawnError;

/// Nothing runs.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: i32,
    message: String,
    /// The jail's own words, where it was the jail that refused.
    jail: Option<jail_plan::Refusal>,
}

impl Refusal {
    /// The policy says no, or is no policy.
    pub(crate) fn policy(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into(), jail: None }
    }

    /// A limit that must be kept in full is not.
    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into(), jail: None }
    }

    /// Something else has the task.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self { code: 6, message: message.into(), jail: None }
    }

    /// The machine failed.
    pub(crate) fn machine(what: &str, error: impl Display) -> Self {
        Self { code: 7, message: format!("{what} failed: {error}"), jail: None }
    }

    /// The line that the starter reads.
    pub(crate) fn start(self) -> Start {
        let refusal = self.jail.and_then(|r| serde_json::to_value(r).ok());
        Start::Refused { code: self.code, message: self.message, refusal }
    }
}

impl From<SpawnError> for Refusal {
    fn from(e: SpawnError) -> Self {
        let code = match &e {
            SpawnError::Refused(r) => r.kind.exit(),
            SpawnError::Program { .. } | SpawnError::Broken(_) | SpawnError::Io(_) => 7,
        };
        let message = e.to_string();
        let jail = if let SpawnError::Refused(refusal) = e { Some(refusal) } else { None };
        Self { code, message, jail }
    }
}
