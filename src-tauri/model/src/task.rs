//! A task and its states: every step in one match.

use crate::id::{CommitId, RepoId, RunId, TaskId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Its files are there; nothing ran yet.
    Ready,
    /// A warden owns a run.
    Running,
    /// The last run ended; its changes wait for review.
    Ended,
    /// An exit happened.
    Applied,
    /// A run was refused.
    Failed,
    /// Files are gone; the record stays.
    Discarded,
}

/// What moves a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A run was refused before its command started.
    Refused,
    /// A run started.
    Started,
    /// A run ended, however.
    RunEnded,
    /// An apply was done.
    Applied,
    /// An apply was undone.
    Undone,
    /// The person discards it.
    Discarded,
}

/// A step that this state does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from:?} can't take the step {step:?}")]
pub struct IllegalStep {
    /// State before.
    pub from: TaskState,
    /// The refused step.
    pub step: Step,
}

impl TaskState {
    /// The state after a step.
    pub fn after(self, step: Step) -> Result<TaskState, IllegalStep> {
        use TaskState as S;
        Ok(match (self, step) {
            (S::Ready | S::Ended | S::Applied | S::Failed | S::Running, Step::Refused) => S::Failed,
            (S::Ready | S::Ended | S::Applied | S::Failed, Step::Started) => S::Running,
            (S::Running, Step::RunEnded) => S::Ended,
            // An apply is possible beside a running agent: the candidate was frozen for it.
            (S::Ready | S::Ended | S::Applied | S::Failed, Step::Applied) => S::Applied,
            (S::Running, Step::Applied | Step::Undone) => S::Running,
            (S::Applied | S::Ended, Step::Undone) => S::Ended,
            (S::Ready | S::Ended | S::Applied | S::Failed, Step::Discarded) => S::Discarded,
            (from, step) => return Err(IllegalStep { from, step }),
        })
    }
}

/// A repository of the person's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repo {
    /// Its id here.
    pub id: RepoId,
    /// Top of its working tree, as the person named it, absolute.
    #[serde(with = "crate::path::text")]
    pub path: PathBuf,
    /// Shown name: the last component.
    pub name: String,
    /// Unix milliseconds.
    pub added: u64,
}

/// One delegation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The repository it works on.
    pub repo: RepoId,
    /// Shown name.
    pub title: String,
    /// What the agent is asked, may be empty.
    pub prompt: String,
    /// Its own branch: a name in its private git directory only.
    pub branch: String,
    /// The commit that it starts from.
    pub base: CommitId,
    /// The branch of the person's that the base was taken from, where there was one.
    pub base_branch: Option<String>,
    /// Kit, or none for a bare command.
    pub agent: Option<String>,
    /// Argv of the command, as given or from the kit.
    pub argv: Vec<String>,
    /// Name of the policy preset or path of its file.
    pub policy: String,
    /// Where it stands.
    pub state: TaskState,
    /// Why it failed, in words.
    pub problem: Option<String>,
    /// Whether its run is paused, and by whom: `person` or `limit`.
    pub paused: Option<String>,
    /// Unix milliseconds.
    pub created: u64,
    /// The newest run.
    pub last_run: Option<RunId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_task_takes_no_step() {
        for step in [Step::Refused, Step::Started, Step::RunEnded, Step::Applied, Step::Undone, Step::Discarded] {
            assert!(TaskState::Discarded.after(step).is_err(), "{step:?} must not revive a discarded task");
        }
    }

    #[test]
    fn a_running_task_can_not_be_discarded_or_started_twice() {
        assert!(TaskState::Running.after(Step::Discarded).is_err(), "stop it first");
        assert!(TaskState::Running.after(Step::Started).is_err(), "one run at a time");
    }
}
