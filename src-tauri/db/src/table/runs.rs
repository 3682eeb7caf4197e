//! Runs.

use crate::{Database, DbError, column};
use model::id::{RunId, TaskId};
use model::run::{Outcome, Run};
use rusqlite::Row;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

fn row(r: &Row<'_>) -> rusqlite::Result<Run> {
    let text = |i| r.get::<_, String>(i);
    let json = |i: usize| -> rusqlite::Result<Option<String>> { r.get(i) };
    Ok(Run {
        id: column(0, RunId::parse(&text(0)?))?,
        task: column(1, TaskId::parse(&text(1)?))?,
        hostname: text(2)?,
        argv: column(3, serde_json::from_str(&text(3)?))?,
        started: r.get(4)?,
        ended: r.get(5)?,
        outcome: json(6)?.map(|t| column(6, serde_json::from_str(&t))).transpose()?,
        report: json(7)?.map(|t| column(7, serde_json::from_str(&t))).transpose()?,
        log: std::ffi::OsString::from_vec(r.get(8)?).into(),
    })
}

impl Database {
    /// A task's runs, oldest first.
    pub fn runs(&self, task: &TaskId) -> Result<Vec<Run>, DbError> {
        self.read(|c| {
            c.prepare("SELECT id, task, hostname, argv, started, ended, outcome, report, log FROM run WHERE task = ?1 ORDER BY started, id")?
                .query_map([task.as_str()], row)?
                .collect()
        })
    }

    /// Adds one.
    pub fn add_run(&self, now: u64, run: &Run) -> Result<(), DbError> {
        let detail = serde_json::json!({"run": run.id, "task": run.task, "argv": run.argv});
        self.write(now, "run.added", &detail, |tx| {
            tx.execute(
                "INSERT INTO run (id, task, hostname, argv, started, log) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                (
                    run.id.as_str(),
                    run.task.as_str(),
                    &run.hostname,
                    serde_json::Value::from(run.argv.clone()).to_string(),
                    run.started,
                    run.log.as_os_str().as_bytes(),
                ),
            )?;
            Ok(())
        })
    }

    /// Records the jail's own report.
    pub fn set_report(&self, now: u64, run: &RunId, report: &serde_json::Value) -> Result<(), DbError> {
        self.write(now, "run.report", &serde_json::json!({"run": run, "report": report}), |tx| {
            tx.execute("UPDATE run SET report = ?2 WHERE id = ?1", (run.as_str(), report.to_string()))?;
            Ok(())
        })
    }

    /// Records how it ended; the first word stays.
    pub fn end_run(&self, now: u64, run: &RunId, outcome: &Outcome) -> Result<(), DbError> {
        let text = serde_json::to_string(outcome).unwrap_or_default();
        self.write(now, "run.ended", &serde_json::json!({"run": run, "outcome": outcome}), |tx| {
            tx.execute("UPDATE run SET ended = ?2, outcome = ?3 WHERE id = ?1 AND outcome IS NULL", (run.as_str(), now, text))?;
            Ok(())
        })
    }
}
