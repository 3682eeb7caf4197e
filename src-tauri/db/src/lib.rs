//! SQLite: tasks, runs, reviews, exits and the audit chain in `airlock.db`; one run's happenings in `events.db`.
//!
//! Invariant: nothing here decides anything; every write of `airlock.db` is one `BEGIN IMMEDIATE` transaction that also
//! extends the audit chain.

mod audit;
mod event_log;
mod migrate;
mod table;

pub use audit::{AuditError, AuditRow};
pub use event_log::EventLog;
pub use table::exits::{ExitRow, ExitState};
pub use table::reviews::{Approval, DecisionRow};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// What can go wrong with a database.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// SQLite said no.
    #[error("the database {path} failed: {source}")]
    Sqlite {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Written by a newer Airlock.
    #[error(
        "the database {path} has schema {found}, this Airlock knows up to {known}: start the newer Airlock; nothing was changed"
    )]
    Newer {
        /// File.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Newest known.
        known: i64,
    },
    /// A row does not read back.
    #[error("the database {path} holds an unreadable row in {table}: {reason}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// Table.
        table: &'static str,
        /// Why.
        reason: String,
    },
    /// The folder can't be made.
    #[error("the folder of the database {path} can't be used: {source}")]
    Folder {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

/// `airlock.db`, opened by any process of the person's.
pub struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
}

pub(crate) fn open_connection(path: &Path) -> Result<Connection, DbError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|source| DbError::Folder { path: path.to_owned(), source })?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", "ON")?;
        Ok(connection)
    };
    // Two that make the database at once meet in the switch to WAL, where SQLite does not wait by itself.
    for _ in 0..500 {
        match open() {
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                std::thread::sleep(Duration::from_millis(20))
            }
            other => return other.map_err(|source| DbError::Sqlite { path: path.to_owned(), source }),
        }
    }
    open().map_err(|source| DbError::Sqlite { path: path.to_owned(), source })
}

impl Database {
    /// Opens or makes the database and brings its schema forward.
    pub fn open(path: &Path) -> Result<Self, DbError> {
        let mut connection = open_connection(path)?;
        migrate::forward(path, &mut connection, migrate::MAIN)?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while the lock was held rolled its transaction back: the connection is still whole.
        self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sqlite(&self) -> impl Fn(rusqlite::Error) -> DbError + '_ {
        |source| DbError::Sqlite { path: self.path.clone(), source }
    }

    /// A number that changes with every commit by any process.
    pub fn version(&self) -> Result<i64, DbError> {
        let c = self.lock();
        // data_version tells of other connections, total_changes of this one.
        let other: i64 = c.query_row("PRAGMA data_version", [], |r| r.get(0)).map_err(self.sqlite())?;
        Ok(other.wrapping_mul(1 << 32).wrapping_add(i64::try_from(c.total_changes()).unwrap_or(i64::MAX)))
    }

    /// Reads.
    fn read<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, DbError> {
        f(&self.lock()).map_err(self.sqlite())
    }

    /// Writes in one transaction, with one line in the audit chain: `what` names the verb, `detail` is its JSON.
    fn write<T>(
        &self,
        now: u64,
        what: &str,
        detail: &serde_json::Value,
        f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, DbError> {
        let mut c = self.lock();
        let run = || -> rusqlite::Result<T> {
            let tx = Transaction::new(&mut c, TransactionBehavior::Immediate)?;
            let out = f(&tx)?;
            audit::append(&tx, now, what, detail)?;
            tx.commit()?;
            Ok(out)
        };
        run().map_err(self.sqlite())
    }

    /// Checks the audit chain from its first line; the error names the first line that does not fit.
    pub fn audit(&self) -> Result<Vec<AuditRow>, AuditError> {
        audit::verify(&self.lock())
    }
}

/// Turns a stored text into an id or value; a failure names the column.
pub(crate) fn column<T, E: std::fmt::Display>(index: usize, value: Result<T, E>) -> rusqlite::Result<T> {
    value.map_err(|e| rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, e.to_string().into()))
}
