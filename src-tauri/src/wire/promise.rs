//! Promises and what mends them, as the window shows them.

use serde::Serialize;
use ts_rs::TS;

/// How far something is in force.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Full,
    Partial,
    Absent,
}

/// One of the twelve and how it is kept here.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Kept {
    pub(crate) number: u8,
    pub(crate) title: String,
    /// By what, in words.
    pub(crate) how: String,
    pub(crate) level: Level,
    /// Why not in full; empty where it is.
    pub(crate) reason: String,
    /// Lost by a name that the person's policy accepts.
    pub(crate) accepted: bool,
    /// What it rests on, and what helps it.
    pub(crate) rows: Vec<PromiseRow>,
}

/// One guarantee below a promise.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct PromiseRow {
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) level: Level,
    pub(crate) reason: String,
}

/// A cache of one of the person's tools, for one run.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Cache {
    pub(crate) name: String,
    pub(crate) shown: bool,
    /// Why not, or what of it is missing; empty where all is there.
    pub(crate) reason: String,
}

/// What blocks or weakens a start, and the one command that mends it.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Cure {
    pub(crate) at: String,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) command: Option<String>,
    /// Name by which the person's own policy can accept the loss.
    pub(crate) accept: Option<String>,
}

/// What this machine can keep.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Machine {
    pub(crate) promises: Vec<Kept>,
    /// Why nothing would start here, in words.
    pub(crate) refuses: Option<String>,
    /// What refuses a start, then what weakens one.
    pub(crate) cures: Vec<Cure>,
}

fn level(status: &engine::Status) -> (Level, String) {
    let level = match status {
        engine::Status::Full => Level::Full,
        engine::Status::Partial { .. } => Level::Partial,
        engine::Status::Absent { .. } => Level::Absent,
    };
    (level, status.reason().unwrap_or_default().to_owned())
}

impl From<engine::Kept> for Kept {
    fn from(k: engine::Kept) -> Self {
        let (level, reason) = level(&k.status);
        let rows = k.rows.into_iter().map(Into::into).collect();
        Self { number: k.promise, title: k.title, how: k.how, level, reason, accepted: k.accepted, rows }
    }
}

impl From<engine::Row> for PromiseRow {
    fn from(r: engine::Row) -> Self {
        let (level, reason) = level(&r.status);
        Self { name: r.guarantee.to_string(), how: r.how, level, reason }
    }
}

impl From<engine::CacheRow> for Cache {
    fn from(c: engine::CacheRow) -> Self {
        Self { name: c.name, shown: c.shown, reason: c.reason.unwrap_or_default() }
    }
}

impl From<engine::Advice> for Cure {
    fn from(a: engine::Advice) -> Self {
        Self { at: a.at, what: a.what, why: a.why, command: a.command, accept: a.accept }
    }
}

impl From<engine::Doctor> for Machine {
    fn from(d: engine::Doctor) -> Self {
        let failed = d.checks.iter().find(|c| !c.ok).map(|c| format!("{}: {}", c.name, c.detail));
        let blocked = d.blockers.first().map(|b| format!("{}: {}", b.at, b.what));
        let why = blocked.or(failed).unwrap_or_else(|| "`airlock doctor` says why".into());
        Self {
            promises: d.promises.into_iter().map(Into::into).collect(),
            refuses: (!d.starts).then_some(why),
            cures: d.blockers.into_iter().chain(d.weaker).map(Into::into).collect(),
        }
    }
}
