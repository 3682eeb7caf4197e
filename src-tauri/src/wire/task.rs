//! Repositories, tasks, runs and what a new task needs, as the window shows them.

use super::promise::{Cache, Kept};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// A repository of the person's.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Repo {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) name: String,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskState {
    Ready,
    Running,
    Ended,
    Applied,
    Failed,
    Discarded,
}

/// Who paused a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PausedBy {
    Person,
    Limit,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Outcome {
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) limit: Option<String>,
    pub(crate) refused: Option<String>,
}

/// One delegation.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) repo: String,
    pub(crate) title: String,
    pub(crate) prompt: String,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) base_branch: Option<String>,
    /// Kit, or none for a bare command.
    pub(crate) agent: Option<String>,
    pub(crate) argv: Vec<String>,
    pub(crate) policy: String,
    pub(crate) state: TaskState,
    pub(crate) problem: Option<String>,
    pub(crate) created: u64,
    pub(crate) run: Option<String>,
    /// Whether its run is paused, and by whom.
    pub(crate) paused: Option<PausedBy>,
}

/// What the rail shows.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Overview {
    pub(crate) repos: Vec<Repo>,
    pub(crate) tasks: Vec<Task>,
}

/// One run as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) hostname: String,
    pub(crate) argv: Vec<String>,
    pub(crate) started: u64,
    pub(crate) ended: Option<u64>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) promises: Vec<Kept>,
    /// Caches of tools that the run was to see.
    pub(crate) caches: Vec<Cache>,
}

/// One task with its runs, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskDetail {
    pub(crate) task: Task,
    pub(crate) runs: Vec<Run>,
    /// Branch that an apply stands on, if one does.
    pub(crate) applied_onto: Option<String>,
}

/// A branch that a task can start from or be applied onto.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Branch {
    pub(crate) name: String,
    pub(crate) checked_out: bool,
}

/// What Airlock knows about one agent.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct Kit {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) found: bool,
    /// Where it is, or how to install it.
    pub(crate) detail: String,
}

/// A policy in plain words, as a new task with a certain kit would have it.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub(crate) struct PolicyWords {
    pub(crate) name: String,
    /// A line each; what belongs to the line before begins with spaces.
    pub(crate) words: Vec<String>,
}

/// What a new task needs.
#[derive(Debug, Clone, PartialEq, Deserialize, TS)]
pub(crate) struct NewTask {
    pub(crate) repo: String,
    /// Branch or commit; the repository's current branch where none is given.
    pub(crate) base: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) prompt: String,
    /// A kit, or none where `command` is given.
    pub(crate) agent: Option<String>,
    /// A line for `sh -c`.
    pub(crate) command: Option<String>,
    pub(crate) policy: String,
}

/// What a launch starts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Start {
    /// The task's own agent or command.
    Agent,
    /// The person's shell, in the same jail.
    Shell,
}

impl From<model::task::Repo> for Repo {
    fn from(r: model::task::Repo) -> Self {
        Self { id: r.id.to_string(), path: r.path.display().to_string(), name: r.name }
    }
}

impl From<model::task::TaskState> for TaskState {
    fn from(s: model::task::TaskState) -> Self {
        use model::task::TaskState as S;
        match s {
            S::Ready => Self::Ready,
            S::Running => Self::Running,
            S::Ended => Self::Ended,
            S::Applied => Self::Applied,
            S::Failed => Self::Failed,
            S::Discarded => Self::Discarded,
        }
    }
}

impl From<model::task::Task> for Task {
    fn from(t: model::task::Task) -> Self {
        Self {
            id: t.id.to_string(),
            repo: t.repo.to_string(),
            title: t.title,
            prompt: t.prompt,
            branch: t.branch,
            base: t.base.to_string(),
            base_branch: t.base_branch,
            agent: t.agent,
            argv: t.argv,
            policy: t.policy,
            state: t.state.into(),
            problem: t.problem,
            created: t.created,
            run: t.last_run.map(Into::into),
            paused: t.paused.map(|by| if by == "limit" { PausedBy::Limit } else { PausedBy::Person }),
        }
    }
}

impl From<model::run::Outcome> for Outcome {
    fn from(o: model::run::Outcome) -> Self {
        Self { exit: o.exit, signal: o.signal, limit: o.limit, refused: o.refused }
    }
}

impl From<engine::RunView> for Run {
    fn from(view: engine::RunView) -> Self {
        let r = view.run;
        Self {
            id: r.id.to_string(),
            hostname: r.hostname,
            argv: r.argv,
            started: r.started,
            ended: r.ended,
            outcome: r.outcome.map(Into::into),
            promises: view.promises.into_iter().map(Into::into).collect(),
            caches: view.caches.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<engine::TaskView> for TaskDetail {
    fn from(t: engine::TaskView) -> Self {
        Self { task: t.task.into(), runs: t.runs.into_iter().map(Into::into).collect(), applied_onto: t.applied_onto }
    }
}

impl From<engine::KitView> for Kit {
    fn from(k: engine::KitView) -> Self {
        let place = k.program.as_ref().map_or_else(|| "not installed".to_owned(), |p| p.display().to_string());
        let detail = if k.note.is_empty() { place } else { format!("{place}. {}", k.note) };
        Self { found: k.program.is_some(), id: k.name, name: k.title, detail }
    }
}

impl From<engine::PolicyView> for PolicyWords {
    fn from(p: engine::PolicyView) -> Self {
        Self { name: p.name, words: p.words }
    }
}
