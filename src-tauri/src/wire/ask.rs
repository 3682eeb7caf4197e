//! Asks, answers and grants as the window shows them.

use super::event::Process;
use model::ask as m;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// What is asked for.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(tag = "about", rename_all = "lowercase")]
pub(crate) enum Asked {
    Connect { host: String, port: u16 },
    Request { host: String, port: u16, method: String, path: String },
    Read { path: String },
    Raise { limit: String, to: String },
}

/// Where an ask stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AskState {
    Open,
    Allowed,
    Denied,
    Ended,
}

/// An action that waits for the person, or waited.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Ask {
    pub(crate) id: String,
    /// What an answer names: that of what is shown.
    pub(crate) digest: String,
    pub(crate) task: String,
    /// The task's.
    pub(crate) title: String,
    /// Name of the task's repository.
    pub(crate) repository: String,
    pub(crate) run: String,
    pub(crate) what: Asked,
    pub(crate) process: Option<Process>,
    pub(crate) rule: String,
    /// File and line of the rule.
    pub(crate) source: String,
    pub(crate) reason: String,
    pub(crate) opened: u64,
    pub(crate) state: AskState,
    pub(crate) tries: u64,
    pub(crate) closed: Option<u64>,
    /// For how many milliseconds each try is held, where that is known.
    pub(crate) hold: Option<u64>,
}

/// How far a grant reaches.
#[derive(Debug, Clone, Copy, Deserialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    Once,
    Task,
    Repo,
}

/// A person's answer.
#[derive(Debug, Clone, Copy, Deserialize, TS)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(crate) enum Answer {
    Allow {
        scope: Scope,
        /// For how many milliseconds; for good where absent.
        lasts: Option<u64>,
    },
    Deny,
}

/// What an answer permits, or what was given by hand.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Grant {
    pub(crate) id: String,
    /// Title of its task; every task of the repository where absent.
    pub(crate) title: Option<String>,
    pub(crate) repository: String,
    pub(crate) what: Asked,
    pub(crate) made: u64,
    pub(crate) until: Option<u64>,
    /// How often it may still be used; without end where absent.
    pub(crate) left: Option<u64>,
    pub(crate) used: u64,
    pub(crate) revoked: Option<u64>,
    /// Whether it permits something more.
    pub(crate) lives: bool,
}

/// What taking a grant back did.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Revoked {
    /// Whether it was there to be taken back.
    pub(crate) was: bool,
    /// Connections that were closed.
    pub(crate) closed: u64,
}

impl From<m::Asked> for Asked {
    fn from(a: m::Asked) -> Self {
        match a {
            m::Asked::Connect { host, port } => Self::Connect { host, port },
            m::Asked::Request { host, port, method, path } => Self::Request { host, port, method, path },
            m::Asked::Read { path } => Self::Read { path: path.to_string() },
            m::Asked::Raise { limit, to } => Self::Raise { limit, to },
        }
    }
}

impl From<engine::AskView> for Ask {
    fn from(view: engine::AskView) -> Self {
        let engine::AskView { ask: a, digest, title, repository, hold } = view;
        Self {
            id: a.id.to_string(),
            digest,
            task: a.task.to_string(),
            title,
            repository,
            run: a.run.to_string(),
            what: a.what.into(),
            process: a.process.map(Into::into),
            rule: a.rule,
            source: a.source,
            reason: a.reason,
            opened: a.opened,
            state: match a.state {
                m::AskState::Open => AskState::Open,
                m::AskState::Allowed => AskState::Allowed,
                m::AskState::Denied => AskState::Denied,
                m::AskState::Ended => AskState::Ended,
            },
            tries: a.tries,
            closed: a.closed,
            hold,
        }
    }
}

impl From<Answer> for m::Answer {
    fn from(a: Answer) -> Self {
        match a {
            Answer::Allow { scope, lasts } => Self::Allow {
                scope: match scope {
                    Scope::Once => m::Scope::Once,
                    Scope::Task => m::Scope::Task,
                    Scope::Repo => m::Scope::Repo,
                },
                lasts,
            },
            Answer::Deny => Self::Deny,
        }
    }
}

impl From<engine::GrantView> for Grant {
    fn from(view: engine::GrantView) -> Self {
        let engine::GrantView { grant: g, lives, title, repository } = view;
        Self {
            id: g.id.to_string(),
            title,
            repository,
            what: g.what.into(),
            made: g.made,
            until: g.until.map(|u| u.wall),
            left: g.left,
            used: g.used,
            revoked: g.revoked,
            lives,
        }
    }
}

impl From<engine::Revoked> for Revoked {
    fn from(r: engine::Revoked) -> Self {
        Self { was: r.was, closed: r.closed }
    }
}
