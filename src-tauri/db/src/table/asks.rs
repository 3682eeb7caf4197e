//! What waits for the person, and what became of it.

use crate::table::grants;
use crate::{Database, DbError, column};
use model::ask::{Ask, AskState, Grant};
use model::id::{AskId, GrantId, RunId, TaskId};
use rusqlite::{OptionalExtension, Row};

fn word(state: AskState) -> &'static str {
    match state {
        AskState::Open => "open",
        AskState::Allowed => "allowed",
        AskState::Denied => "denied",
        AskState::Ended => "ended",
    }
}

fn row(r: &Row<'_>) -> rusqlite::Result<Ask> {
    let text = |i| r.get::<_, String>(i);
    let maybe = |i: usize| -> rusqlite::Result<Option<String>> { r.get(i) };
    Ok(Ask {
        id: column(0, AskId::parse(&text(0)?))?,
        task: column(1, TaskId::parse(&text(1)?))?,
        run: column(2, RunId::parse(&text(2)?))?,
        what: column(3, serde_json::from_str(&text(3)?))?,
        process: maybe(4)?.map(|t| column(4, serde_json::from_str(&t))).transpose()?,
        rule: text(5)?,
        source: text(6)?,
        reason: text(7)?,
        opened: r.get(8)?,
        state: column(9, serde_json::from_value(serde_json::Value::String(text(9)?)))?,
        tries: r.get(10)?,
        closed: r.get(11)?,
        grant: maybe(12)?.map(|t| column(12, GrantId::parse(&t))).transpose()?,
    })
}

const COLUMNS: &str = "id, task, run, what, process, rule, source, reason, opened, state, tries, closed, permit";

impl Database {
    /// Asks, oldest first: of one task or of all, open ones alone or also those that are over.
    pub fn asks(&self, task: Option<&TaskId>, open: bool) -> Result<Vec<Ask>, DbError> {
        self.read(|c| {
            c.prepare(&format!(
                "SELECT {COLUMNS} FROM ask WHERE (?1 IS NULL OR task = ?1) AND (NOT ?2 OR state = 'open') ORDER BY opened, rowid"
            ))?
            .query_map((task.map(TaskId::as_str), open), row)?
            .collect()
        })
    }

    /// Those of all tasks that are open or were closed at or after a moment (unix milliseconds), oldest first.
    pub fn asks_since(&self, closed: u64) -> Result<Vec<Ask>, DbError> {
        self.read(|c| {
            c.prepare(&format!("SELECT {COLUMNS} FROM ask WHERE state = 'open' OR closed >= ?1 ORDER BY opened, rowid"))?
                .query_map([closed], row)?
                .collect()
        })
    }

    /// One.
    pub fn ask(&self, id: &AskId) -> Result<Option<Ask>, DbError> {
        self.read(|c| c.query_row(&format!("SELECT {COLUMNS} FROM ask WHERE id = ?1"), [id.as_str()], row).optional())
    }

    /// Opens one.
    pub fn open_ask(&self, now: u64, ask: &Ask) -> Result<(), DbError> {
        let detail = serde_json::json!({"ask": ask.id, "task": ask.task, "what": ask.what, "digest": ask.digest()});
        self.write(now, "ask.opened", &detail, |tx| {
            tx.execute(
                &format!("INSERT INTO ask ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,'open',?10,NULL,NULL)"),
                rusqlite::params![
                    ask.id.as_str(),
                    ask.task.as_str(),
                    ask.run.as_str(),
                    column(3, serde_json::to_string(&ask.what))?,
                    ask.process.as_ref().map(|p| column(4, serde_json::to_string(p))).transpose()?,
                    ask.rule,
                    ask.source,
                    ask.reason,
                    ask.opened,
                    ask.tries,
                ],
            )?;
            Ok(())
        })
    }

    /// Counts tries that an open ask stands for.
    pub fn count_tries(&self, now: u64, ask: &AskId, tries: u64) -> Result<(), DbError> {
        self.write(now, "ask.tried", &serde_json::json!({"ask": ask, "tries": tries}), |tx| {
            tx.execute("UPDATE ask SET tries = ?2 WHERE id = ?1 AND state = 'open'", (ask.as_str(), tries))?;
            Ok(())
        })
    }

    /// Answers an open one: `permit` is the grant that allows it, `made` the same where this answer makes it. False where it was not
    /// open, and nothing was written.
    pub fn answer_ask(
        &self,
        now: u64,
        ask: &AskId,
        state: AskState,
        permit: Option<&GrantId>,
        made: Option<&Grant>,
    ) -> Result<bool, DbError> {
        let detail = serde_json::json!({"ask": ask, "state": state, "grant": permit, "made": made});
        let mut was_open = true;
        let done = self.write(now, "ask.answered", &detail, |tx| {
            let changed = tx.execute(
                "UPDATE ask SET state = ?2, closed = ?3, permit = ?4 WHERE id = ?1 AND state = 'open'",
                (ask.as_str(), word(state), now, permit.map(GrantId::as_str)),
            )?;
            if changed == 0 {
                was_open = false;
                // Rolls back, audit line included.
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
            made.map_or(Ok(()), |grant| grants::insert(tx, grant))
        });
        if was_open { done.map(|()| true) } else { Ok(false) }
    }

    /// Ends what a run leaves open.
    pub fn end_asks(&self, now: u64, run: &RunId) -> Result<(), DbError> {
        let open: bool = self.read(|c| {
            c.query_row("SELECT EXISTS (SELECT 1 FROM ask WHERE run = ?1 AND state = 'open')", [run.as_str()], |r| r.get(0))
        })?;
        if !open {
            return Ok(());
        }
        self.write(now, "ask.ended", &serde_json::json!({"run": run}), |tx| {
            tx.execute("UPDATE ask SET state = 'ended', closed = ?2 WHERE run = ?1 AND state = 'open'", (run.as_str(), now))?;
            Ok(())
        })
    }
}
