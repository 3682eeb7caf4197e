//! Ask → decision → grant: an action that waits, a person's answer, and what the answer permits.

use crate::event::Process;
use crate::id::{AskId, GrantId, RepoId, RunId, TaskId};
use crate::path::RawPath;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// What is asked for. It never changes: more of the same is counted, anything else is another ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "lowercase")]
pub enum Asked {
    /// TCP connections to one port of one host.
    Connect {
        /// Name asked for, or an address (IPv6 in brackets).
        host: String,
        /// Port.
        port: u16,
    },
    /// Requests of HTTP of one kind.
    Request {
        /// Name asked for.
        host: String,
        /// Port.
        port: u16,
        /// Method.
        method: String,
        /// Path, in plain form.
        path: String,
    },
    /// To look into a hidden place, or at what lies directly in one with all below it.
    Read {
        /// As the person knows it.
        path: RawPath,
    },
    /// More than a limit allows.
    Raise {
        /// Its key, e.g. `limits.memory`.
        limit: String,
        /// What it would be, in words, e.g. `4 GiB`.
        to: String,
    },
}

impl Asked {
    /// What an answer would let a run do with it.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect to",
            Self::Request { .. } => "send",
            Self::Read { .. } => "read",
            Self::Raise { .. } => "raise",
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { host, port } => write!(f, "{host}:{port}"),
            Self::Request { host, port: 443, method, path } => write!(f, "{method} https://{host}{path}"),
            Self::Request { host, port, method, path } => write!(f, "{method} {host}:{port}{path}"),
            Self::Read { path } => write!(f, "{path}"),
            Self::Raise { limit, to } => write!(f, "{limit} to {to}"),
        }
    }
}

/// An action that waits for the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its id.
    pub id: AskId,
    /// Whose.
    pub task: TaskId,
    /// In which run it came up.
    pub run: RunId,
    /// What.
    #[serde(flatten)]
    pub what: Asked,
    /// Who came first, by the kernel's word.
    pub process: Option<Process>,
    /// Rule that asks, e.g. `network.default`.
    pub rule: String,
    /// File and line of the rule.
    pub source: String,
    /// The rule's own reason.
    pub reason: String,
    /// Unix milliseconds.
    pub opened: u64,
    /// Where it stands.
    pub state: AskState,
    /// How many tries it stands for so far (≥ 1).
    pub tries: u64,
    /// Unix milliseconds of the answer or the end.
    pub closed: Option<u64>,
    /// What the answer permits.
    pub grant: Option<GrantId>,
}

/// Where an ask stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskState {
    /// Nobody answered yet.
    Open,
    /// Answered: a grant was made.
    Allowed,
    /// Answered: refused for the rest of the run.
    Denied,
    /// Its run ended before an answer.
    Ended,
}

impl Ask {
    /// SHA-256 over all that an answer is about, as hexadecimal digits: two asks that show anything else have other digests.
    pub fn digest(&self) -> String {
        let what = match &self.what {
            Asked::Connect { host, port } => vec!["connect".to_owned(), host.clone(), port.to_string()],
            Asked::Request { host, port, method, path } => {
                vec!["request".to_owned(), host.clone(), port.to_string(), method.clone(), path.clone()]
            }
            Asked::Read { path } => vec!["read".to_owned(), path.to_string()],
            Asked::Raise { limit, to } => vec!["raise".to_owned(), limit.clone(), to.clone()],
        };
        let ids = [self.id.as_str(), self.task.as_str(), self.run.as_str()];
        let mut hash = Sha256::new();
        for f in ids.into_iter().chain(what.iter().map(String::as_str)) {
            hash.update((f.len() as u64).to_be_bytes());
            hash.update(f.as_bytes());
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// How far a grant reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// What waits now; where nothing does any more, the next try.
    Once,
    /// The task, with its later runs.
    Task,
    /// Every task of the repository.
    Repo,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// Goes on.
    Allow {
        /// How far.
        scope: Scope,
        /// For how many milliseconds; for good where absent.
        #[serde(default)]
        lasts: Option<u64>,
    },
    /// Is refused, for the rest of the run.
    Deny,
}

/// What an answer permits, or what the person gave by hand. It turns an ask into an allow, never a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// The one task that it is for; every task of the repository where absent.
    pub task: Option<TaskId>,
    /// The repository.
    pub repo: RepoId,
    /// What.
    #[serde(flatten)]
    pub what: Asked,
    /// The ask that it answers.
    pub ask: Option<AskId>,
    /// Unix milliseconds.
    pub made: u64,
    /// When it ends; the earlier of both clocks counts.
    pub until: Option<Until>,
    /// How often it may still be used; without end where absent.
    pub left: Option<u64>,
    /// How often it was used.
    pub used: u64,
    /// Unix milliseconds, where the person took it back.
    pub revoked: Option<u64>,
}

/// An end by two clocks, so that setting one of them back lengthens nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Until {
    /// Unix milliseconds.
    pub wall: u64,
    /// Milliseconds since the machine's start, sleep included.
    pub boot: u64,
    /// Which start of the machine that is; after another one only the wall clock counts.
    pub boot_id: String,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Unix milliseconds.
    pub wall: u64,
    /// Milliseconds since the machine's start, sleep included.
    pub boot: u64,
    /// Which start of the machine that is.
    pub boot_id: String,
}

impl Moment {
    /// So many milliseconds later.
    pub fn after(&self, millis: u64) -> Until {
        Until { wall: self.wall.saturating_add(millis), boot: self.boot.saturating_add(millis), boot_id: self.boot_id.clone() }
    }
}

impl Until {
    /// Milliseconds that are left, none where it is over.
    pub fn left(&self, now: &Moment) -> u64 {
        let wall = self.wall.saturating_sub(now.wall);
        if self.boot_id == now.boot_id { wall.min(self.boot.saturating_sub(now.boot)) } else { wall }
    }
}

impl Grant {
    /// Whether it was taken back or its time is over: what lives by it ends too.
    pub fn over(&self, now: &Moment) -> bool {
        self.revoked.is_some() || self.until.as_ref().is_some_and(|until| until.left(now) == 0)
    }

    /// Whether it permits something more.
    pub fn lives(&self, now: &Moment) -> bool {
        !self.over(now) && self.left != Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wall: u64, boot: u64, boot_id: &str) -> Moment {
        Moment { wall, boot, boot_id: boot_id.into() }
    }

    fn grant(until: Option<Until>, left: Option<u64>) -> Grant {
        Grant {
            id: GrantId::from_random([1; 8]),
            task: None,
            repo: RepoId::from_random([2; 8]),
            what: Asked::Connect { host: "a.test".into(), port: 443 },
            ask: None,
            made: 0,
            until,
            left,
            used: 0,
            revoked: None,
        }
    }

    #[test]
    fn the_earlier_clock_ends_a_grant() {
        let it = grant(Some(moment(1_000_000, 5_000, "x").after(60_000)), None);
        assert!(it.lives(&moment(1_059_999, 64_999, "x")));
        assert!(!it.lives(&moment(900_000, 65_000, "x")), "a wall clock that was set back lengthens nothing");
        assert!(!it.lives(&moment(1_060_000, 5_001, "x")), "nor does a machine whose other clock stood still");
        assert!(it.lives(&moment(1_059_999, 10, "y")), "after another start of the machine its boot clock says nothing");
        assert!(!it.lives(&moment(1_060_000, 10, "y")));
    }

    #[test]
    fn a_used_up_or_revoked_grant_permits_nothing() {
        let now = moment(1, 1, "x");
        assert!(grant(None, None).lives(&now) && grant(None, Some(1)).lives(&now));
        assert!(!grant(None, Some(0)).lives(&now));
        assert!(!Grant { revoked: Some(1), ..grant(None, None) }.lives(&now));
    }

    #[test]
    fn an_answer_is_about_one_ask_alone() {
        let ask = |id: u8, host: &str, port| Ask {
            id: AskId::from_random([id; 8]),
            task: TaskId::from_random([1; 8]),
            run: RunId::from_random([1; 8]),
            what: Asked::Connect { host: host.into(), port },
            process: None,
            rule: String::new(),
            source: String::new(),
            reason: String::new(),
            opened: 0,
            state: AskState::Open,
            tries: 1,
            closed: None,
            grant: None,
        };
        let all = [ask(1, "a.test", 443), ask(1, "a.test", 44), ask(1, "b.test", 443), ask(2, "a.test", 443)].map(|a| a.digest());
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        assert_eq!(Ask { tries: 9, ..ask(1, "a.test", 443) }.digest(), all[0], "what is counted is no content");
    }
}
