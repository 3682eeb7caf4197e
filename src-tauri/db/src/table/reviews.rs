//! What the person decided, file by file, and the approval of the whole.

use crate::{Database, DbError, column};
use model::diff::Candidate;
use model::id::{TaskId, TreeId};
use rusqlite::OptionalExtension;

/// A decision about one file, tied to exactly the contents and modes that were shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRow {
    /// Path in the candidate.
    pub path: Vec<u8>,
    /// What the file was: `mode:blob`, or `-`; of a rename with its old path.
    pub old_id: String,
    /// What it became.
    pub new_id: String,
    /// Accepted or rejected.
    pub accepted: bool,
}

/// A live or used approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// [`model::exit::Exit::digest`].
    pub digest: String,
    /// Candidate shown.
    pub candidate: TreeId,
    /// Tree approved.
    pub result: TreeId,
    /// Whether an exit has used it.
    pub used: bool,
}

impl Database {
    /// Decisions of a task.
    pub fn decisions(&self, task: &TaskId) -> Result<Vec<DecisionRow>, DbError> {
        self.read(|c| {
            c.prepare("SELECT path, old_id, new_id, accepted FROM decision WHERE task = ?1 ORDER BY path")?
                .query_map([task.as_str()], |r| {
                    Ok(DecisionRow { path: r.get(0)?, old_id: r.get(1)?, new_id: r.get(2)?, accepted: r.get(3)? })
                })?
                .collect()
        })
    }

    /// Records decisions; the approval, if any, falls, since the result is another.
    pub fn decide(&self, now: u64, task: &TaskId, rows: &[DecisionRow]) -> Result<(), DbError> {
        let paths: Vec<_> = rows
            .iter()
            .map(|d| serde_json::json!({"path": model::path::RawPath(d.path.clone()), "accepted": d.accepted}))
            .collect();
        self.write(now, "review.decided", &serde_json::json!({"task": task, "files": paths}), |tx| {
            for d in rows {
                tx.execute(
                    "INSERT INTO decision (task, path, old_id, new_id, accepted, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT (task, path) DO UPDATE SET old_id = ?3, new_id = ?4, accepted = ?5, time = ?6",
                    (task.as_str(), &d.path, &d.old_id, &d.new_id, d.accepted, now),
                )?;
            }
            tx.execute("DELETE FROM approval WHERE task = ?1", [task.as_str()])?;
            Ok(())
        })
    }

    /// The approval of a task.
    pub fn approval(&self, task: &TaskId) -> Result<Option<Approval>, DbError> {
        self.read(|c| {
            c.query_row("SELECT digest, candidate, result, used FROM approval WHERE task = ?1", [task.as_str()], |r| {
                let candidate: String = r.get(1)?;
                let result: String = r.get(2)?;
                Ok(Approval {
                    digest: r.get(0)?,
                    candidate: column(1, TreeId::parse(&candidate))?,
                    result: column(2, TreeId::parse(&result))?,
                    used: r.get(3)?,
                })
            })
            .optional()
        })
    }

    /// Records an approval, unused.
    pub fn approve(&self, now: u64, task: &TaskId, digest: &str, candidate: &TreeId, result: &TreeId) -> Result<(), DbError> {
        let detail = serde_json::json!({"task": task, "digest": digest, "candidate": candidate, "result": result});
        self.write(now, "review.approved", &detail, |tx| {
            tx.execute(
                "INSERT OR REPLACE INTO approval (task, digest, candidate, result, time, used) VALUES (?1, ?2, ?3, ?4, ?5, 0)",
                (task.as_str(), digest, candidate.as_str(), result.as_str(), now),
            )?;
            Ok(())
        })
    }

    /// Uses an approval up. False where it is not there, another, or used already.
    pub fn use_approval(&self, now: u64, task: &TaskId, digest: &str) -> Result<bool, DbError> {
        self.write(now, "review.approval-used", &serde_json::json!({"task": task, "digest": digest}), |tx| {
            let n =
                tx.execute("UPDATE approval SET used = 1 WHERE task = ?1 AND digest = ?2 AND used = 0", (task.as_str(), digest))?;
            Ok(n == 1)
        })
    }

    /// Gives an approval back after an exit that did nothing or was undone.
    pub fn release_approval(&self, now: u64, task: &TaskId, digest: &str) -> Result<(), DbError> {
        self.write(now, "review.approval-released", &serde_json::json!({"task": task, "digest": digest}), |tx| {
            tx.execute("UPDATE approval SET used = 0 WHERE task = ?1 AND digest = ?2", (task.as_str(), digest))?;
            Ok(())
        })
    }

    /// The newest candidate of a task.
    pub fn candidate(&self, task: &TaskId) -> Result<Option<Candidate>, DbError> {
        self.read(|c| {
            c.query_row("SELECT body FROM candidate WHERE task = ?1", [task.as_str()], |r| {
                let body: String = r.get(0)?;
                column(0, serde_json::from_str(&body))
            })
            .optional()
        })
    }

    /// Records the newest candidate.
    pub fn set_candidate(&self, now: u64, task: &TaskId, candidate: &Candidate) -> Result<(), DbError> {
        let detail = serde_json::json!({"task": task, "tree": candidate.tree, "still": candidate.still});
        self.write(now, "candidate", &detail, |tx| {
            tx.execute(
                "INSERT OR REPLACE INTO candidate (task, tree, still, body, time) VALUES (?1, ?2, ?3, ?4, ?5)",
                (task.as_str(), candidate.tree.as_str(), candidate.still, column(0, serde_json::to_string(candidate))?, now),
            )?;
            Ok(())
        })
    }
}
