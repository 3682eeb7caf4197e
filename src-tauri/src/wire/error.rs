//! A failure as the window gets it: a code to switch on and words for the person.

use serde::Serialize;
use ts_rs::TS;

/// What a command answers when it was not done.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct CommandError {
    /// One of the engine's codes, or `window` for a failure on the way to it.
    pub(crate) code: String,
    /// What happened, why, what to do.
    pub(crate) message: String,
}

impl CommandError {
    /// A failure of the window itself.
    pub(crate) fn window(message: impl std::fmt::Display) -> Self {
        Self { code: "window".into(), message: message.to_string() }
    }
}

impl From<engine::Error> for CommandError {
    fn from(e: engine::Error) -> Self {
        let code = match e.code {
            engine::Code::Usage => "usage",
            engine::Code::Refused => "refused",
            engine::Code::Stale => "stale",
            engine::Code::Promise => "promise",
            engine::Code::NotFound => "notfound",
            engine::Code::Conflict => "conflict",
            engine::Code::Machine => "machine",
        };
        Self { code: code.into(), message: e.message }
    }
}

impl From<model::id::BadId> for CommandError {
    fn from(e: model::id::BadId) -> Self {
        Self { code: "usage".into(), message: e.to_string() }
    }
}
