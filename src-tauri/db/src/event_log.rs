//! One task's happenings. Written by its warden alone (or under its lock file when none lives), read by anybody.

use crate::{DbError, migrate, open_connection};
use model::event::Event;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `events.db`.
pub struct EventLog {
    path: PathBuf,
    connection: Connection,
    next: u64,
}

impl EventLog {
    /// Opens or makes the log for writing.
    pub fn open(path: &Path) -> Result<Self, DbError> {
        let mut connection = open_connection(path)?;
        migrate::forward(path, &mut connection, migrate::EVENTS)?;
        let last: u64 = connection
            .query_row("SELECT coalesce(max(seq), 0) FROM event", [], |r| r.get(0))
            .map_err(|source| DbError::Sqlite { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), connection, next: last + 1 })
    }

    /// Opens the log for reading; `None` where there is none yet.
    pub fn read_only(path: &Path) -> Result<Option<Self>, DbError> {
        if !path.is_file() {
            return Ok(None);
        }
        let sqlite = |source| DbError::Sqlite { path: path.to_owned(), source };
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW)
            .map_err(sqlite)?;
        connection.busy_timeout(Duration::from_secs(10)).map_err(sqlite)?;
        connection.pragma_update(None, "query_only", "ON").map_err(sqlite)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(sqlite)?;
        if version == 0 {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), connection, next: 0 }))
    }

    /// The number that the next event gets.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends in one transaction; each event gets its number.
    pub fn append(&mut self, events: &mut [Event]) -> Result<(), DbError> {
        let sqlite = |source| DbError::Sqlite { path: self.path.clone(), source };
        let tx = self.connection.transaction().map_err(sqlite)?;
        let mut next = self.next;
        {
            let mut insert = tx.prepare_cached("INSERT INTO event (seq, kind, body) VALUES (?1, ?2, ?3)").map_err(sqlite)?;
            for e in events.iter_mut() {
                e.seq = next;
                next += 1;
                let body = serde_json::to_string(e).map_err(|err| DbError::Corrupt {
                    path: self.path.clone(),
                    table: "event",
                    reason: err.to_string(),
                })?;
                insert.execute((e.seq, e.what.kind(), body)).map_err(sqlite)?;
            }
        }
        tx.commit().map_err(sqlite)?;
        self.next = next;
        Ok(())
    }

    /// Events from `from` on, at most `limit`, of the named kinds (all where empty).
    pub fn list(&self, from: u64, limit: usize, kinds: &[String]) -> Result<Vec<Event>, DbError> {
        let sqlite = |source| DbError::Sqlite { path: self.path.clone(), source };
        let wanted = serde_json::json!(kinds).to_string();
        // In the order of numbers, so that a page ends where it is full: by kind, what follows would be sorted for each page.
        let text = "SELECT body FROM event WHERE seq >= ?1 AND (?2 = '[]' OR kind IN (SELECT value FROM json_each(?2))) \
                    ORDER BY seq LIMIT ?3";
        let mut statement = self.connection.prepare_cached(text).map_err(sqlite)?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query((from, wanted, most)).map_err(sqlite)?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(sqlite)? {
            let body: String = row.get(0).map_err(sqlite)?;
            out.push(serde_json::from_str(&body).map_err(|e| DbError::Corrupt {
                path: self.path.clone(),
                table: "event",
                reason: e.to_string(),
            })?);
        }
        Ok(out)
    }
}
