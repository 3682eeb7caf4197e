//! Tasks.

use crate::{Database, DbError, column};
use model::id::{CommitId, RepoId, RunId, TaskId};
use model::path::RawPath;
use model::run::PolicyText;
use model::task::{IllegalStep, Step, Task, TaskState};
use rusqlite::{OptionalExtension, Row};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Ready => "ready",
        TaskState::Running => "running",
        TaskState::Ended => "ended",
        TaskState::Applied => "applied",
        TaskState::Failed => "failed",
        TaskState::Discarded => "discarded",
    }
}

fn state_of(word: &str) -> Result<TaskState, String> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).map_err(|e| e.to_string())
}

const COLUMNS: &str =
    "id, repo, title, prompt, branch, base, base_branch, agent, argv, policy, state, problem, created, last_run, paused";

fn row(r: &Row<'_>) -> rusqlite::Result<Task> {
    let text = |i| r.get::<_, String>(i);
    Ok(Task {
        id: column(0, TaskId::parse(&text(0)?))?,
        repo: column(1, RepoId::parse(&text(1)?))?,
        title: text(2)?,
        prompt: text(3)?,
        branch: text(4)?,
        base: column(5, CommitId::parse(&text(5)?))?,
        base_branch: r.get(6)?,
        agent: r.get(7)?,
        argv: column(8, serde_json::from_str(&text(8)?))?,
        policy: text(9)?,
        state: column(10, state_of(&text(10)?))?,
        problem: r.get(11)?,
        created: r.get(12)?,
        last_run: r.get::<_, Option<String>>(13)?.map(|t| column(13, RunId::parse(&t))).transpose()?,
        paused: r.get(14)?,
    })
}

impl Database {
    /// All tasks, newest first; discarded ones only when asked for.
    pub fn tasks(&self, discarded: bool) -> Result<Vec<Task>, DbError> {
        self.read(|c| {
            c.prepare(&format!("SELECT {COLUMNS} FROM task WHERE ?1 OR state <> 'discarded' ORDER BY created DESC, id"))?
                .query_map([discarded], row)?
                .collect()
        })
    }

    /// One.
    pub fn task(&self, id: &TaskId) -> Result<Option<Task>, DbError> {
        self.read(|c| c.query_row(&format!("SELECT {COLUMNS} FROM task WHERE id = ?1"), [id.as_str()], row).optional())
    }

    /// Adds one whose files are there.
    pub fn add_task(&self, now: u64, task: &Task, policy: &PolicyText, history: &[PathBuf]) -> Result<(), DbError> {
        let detail = serde_json::json!({"task": task.id, "repo": task.repo, "base": task.base, "policy": task.policy});
        self.write(now, "task.created", &detail, |tx| {
            tx.execute(
                &format!("INSERT INTO task ({COLUMNS}, policy_text, history) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)"),
                rusqlite::params![
                    task.id.as_str(),
                    task.repo.as_str(),
                    task.title,
                    task.prompt,
                    task.branch,
                    task.base.as_str(),
                    task.base_branch,
                    task.agent,
                    serde_json::Value::from(task.argv.clone()).to_string(),
                    task.policy,
                    state_word(task.state),
                    task.problem,
                    task.created,
                    task.last_run.as_ref().map(RunId::as_str),
                    task.paused,
                    column(0, serde_json::to_string(policy))?,
                    column(0, serde_json::to_string(&history.iter().map(|p| RawPath::from(p.as_os_str().as_bytes())).collect::<Vec<_>>()))?,
                ],
            )?;
            Ok(())
        })
    }

    /// The policy that the task was made with, and its history directories.
    pub fn task_inputs(&self, id: &TaskId) -> Result<Option<(PolicyText, Vec<PathBuf>)>, DbError> {
        self.read(|c| {
            c.query_row("SELECT policy_text, history FROM task WHERE id = ?1", [id.as_str()], |r| {
                let policy: String = r.get(0)?;
                let history: String = r.get(1)?;
                let history: Vec<RawPath> = column(1, serde_json::from_str(&history))?;
                let history = history.into_iter().map(|p| PathBuf::from(OsString::from_vec(p.0))).collect();
                Ok((column(0, serde_json::from_str(&policy))?, history))
            })
            .optional()
        })
    }

    /// Records whether its run is paused, and by whom. Nothing is written where it does not run.
    pub fn set_paused(&self, now: u64, id: &TaskId, by: Option<&str>) -> Result<(), DbError> {
        self.write(now, "task.paused", &serde_json::json!({"task": id, "by": by}), |tx| {
            tx.execute("UPDATE task SET paused = ?2 WHERE id = ?1 AND state = 'running'", (id.as_str(), by))?;
            Ok(())
        })
    }

    /// Moves a task by one step. `Ok(Err(_))`: the step is illegal from its state and nothing was written.
    pub fn step(
        &self,
        now: u64,
        id: &TaskId,
        step: Step,
        problem: Option<&str>,
        run: Option<&RunId>,
    ) -> Result<Result<TaskState, IllegalStep>, DbError> {
        let detail = serde_json::json!({"task": id, "step": format!("{step:?}"), "problem": problem, "run": run});
        let mut illegal = None;
        let out = self.write(now, "task.step", &detail, |tx| {
            let word: String = tx.query_row("SELECT state FROM task WHERE id = ?1", [id.as_str()], |r| r.get(0))?;
            match column(0, state_of(&word))?.after(step) {
                Ok(state) => {
                    tx.execute(
                        "UPDATE task SET state = ?2, problem = ?3, last_run = coalesce(?4, last_run),
                         paused = CASE WHEN ?2 = 'running' THEN paused END WHERE id = ?1",
                        (id.as_str(), state_word(state), problem, run.map(RunId::as_str)),
                    )?;
                    Ok(state)
                }
                Err(e) => {
                    illegal = Some(e);
                    // Rolls back, audit line included.
                    Err(rusqlite::Error::QueryReturnedNoRows)
                }
            }
        });
        match (illegal, out) {
            (Some(e), _) => Ok(Err(e)),
            (None, out) => out.map(Ok),
        }
    }
}
