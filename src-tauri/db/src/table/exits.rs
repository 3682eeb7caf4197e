//! The journal of exits: intent before the act, result after it.

use crate::{Database, DbError, column};
use model::id::{ExitId, TaskId};
use rusqlite::{OptionalExtension, Row};
use serde::{Deserialize, Serialize};

/// Where an exit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitState {
    /// Written down, maybe begun: a start finds it here after a crash.
    Intent,
    /// Done.
    Done,
    /// Did not happen; nothing of it is left.
    Failed,
    /// Was done and taken back.
    Undone,
}

/// One exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitRow {
    /// Id.
    pub id: ExitId,
    /// Task.
    pub task: TaskId,
    /// `apply` or `undo`.
    pub kind: String,
    /// State.
    pub state: ExitState,
    /// The plan as the crate `worktree` wrote it (JSON).
    pub body: serde_json::Value,
    /// Unix milliseconds.
    pub time: u64,
}

fn word(state: ExitState) -> &'static str {
    match state {
        ExitState::Intent => "intent",
        ExitState::Done => "done",
        ExitState::Failed => "failed",
        ExitState::Undone => "undone",
    }
}

fn row(r: &Row<'_>) -> rusqlite::Result<ExitRow> {
    let text = |i| r.get::<_, String>(i);
    Ok(ExitRow {
        id: column(0, ExitId::parse(&text(0)?))?,
        task: column(1, TaskId::parse(&text(1)?))?,
        kind: text(2)?,
        state: column(3, serde_json::from_value(serde_json::Value::String(text(3)?)))?,
        body: column(4, serde_json::from_str(&text(4)?))?,
        time: r.get(5)?,
    })
}

const COLUMNS: &str = "id, task, kind, state, body, time";

impl Database {
    /// Exits that a crash left between intent and result.
    pub fn open_exits(&self) -> Result<Vec<ExitRow>, DbError> {
        self.read(|c| {
            c.prepare(&format!("SELECT {COLUMNS} FROM exit WHERE state = 'intent' ORDER BY time, id"))?
                .query_map([], row)?
                .collect()
        })
    }

    /// The newest apply of a task that stands (done, not undone).
    pub fn standing_apply(&self, task: &TaskId) -> Result<Option<ExitRow>, DbError> {
        self.read(|c| {
            c.query_row(
                &format!(
                    "SELECT {COLUMNS} FROM exit WHERE task = ?1 AND kind = 'apply' AND state = 'done' ORDER BY time DESC, rowid DESC LIMIT 1"
                ),
                [task.as_str()],
                row,
            )
            .optional()
        })
    }

    /// Writes an exit down, or its changed plan.
    pub fn put_exit(&self, exit: &ExitRow) -> Result<(), DbError> {
        let detail =
            serde_json::json!({"exit": exit.id, "task": exit.task, "kind": exit.kind, "state": exit.state, "body": exit.body});
        self.write(exit.time, "exit", &detail, |tx| {
            tx.execute(
                "INSERT INTO exit (id, task, kind, state, body, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (id) DO UPDATE SET state = ?4, body = ?5",
                (exit.id.as_str(), exit.task.as_str(), &exit.kind, word(exit.state), exit.body.to_string(), exit.time),
            )?;
            Ok(())
        })
    }
}
