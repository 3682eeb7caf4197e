//! Schemas, forward only. A step is never edited once it has shipped; a later one is added.

use crate::DbError;
use rusqlite::Connection;
use std::path::Path;

/// `airlock.db`, one string a step.
pub(crate) const MAIN: &[&str] = &[
    concat!(
        include_str!("table/repos.sql"),
        include_str!("table/tasks.sql"),
        include_str!("table/runs.sql"),
        include_str!("table/reviews.sql"),
        include_str!("table/exits.sql"),
        include_str!("audit.sql"),
    ),
    "ALTER TABLE task ADD COLUMN paused TEXT;",
    concat!(include_str!("table/asks.sql"), include_str!("table/grants.sql")),
];

/// `events.db`.
pub(crate) const EVENTS: &[&str] = &[include_str!("event_log.sql")];

pub(crate) fn forward(path: &Path, connection: &mut Connection, steps: &[&str]) -> Result<(), DbError> {
    let sqlite = |source| DbError::Sqlite { path: path.to_owned(), source };
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let found: i64 = connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(sqlite)?;
    if found > known {
        return Err(DbError::Newer { path: path.to_owned(), found, known });
    }
    if found == known {
        return Ok(());
    }
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(sqlite)?;
    // Another process may have come first: read again under the lock.
    let found: i64 = tx.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(sqlite)?;
    for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
        tx.execute_batch(step).map_err(sqlite)?;
    }
    tx.pragma_update(None, "user_version", known).map_err(sqlite)?;
    tx.commit().map_err(sqlite)
}
