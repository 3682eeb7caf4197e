//! Repositories that the person added.

use crate::{Database, DbError, column};
use model::id::RepoId;
use model::task::Repo;
use rusqlite::{OptionalExtension, Row};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

fn row(r: &Row<'_>) -> rusqlite::Result<Repo> {
    let id: String = r.get(0)?;
    let path: Vec<u8> = r.get(1)?;
    Ok(Repo {
        id: column(0, RepoId::parse(&id))?,
        path: PathBuf::from(std::ffi::OsString::from_vec(path)),
        name: r.get(2)?,
        added: r.get(3)?,
    })
}

const COLUMNS: &str = "id, path, name, added";

impl Database {
    /// All repositories, oldest first.
    pub fn repos(&self) -> Result<Vec<Repo>, DbError> {
        self.read(|c| c.prepare(&format!("SELECT {COLUMNS} FROM repo ORDER BY added, id"))?.query_map([], row)?.collect())
    }

    /// One by id.
    pub fn repo(&self, id: &RepoId) -> Result<Option<Repo>, DbError> {
        self.read(|c| c.query_row(&format!("SELECT {COLUMNS} FROM repo WHERE id = ?1"), [id.as_str()], row).optional())
    }

    /// One by path.
    pub fn repo_at(&self, path: &Path) -> Result<Option<Repo>, DbError> {
        self.read(|c| {
            c.query_row(&format!("SELECT {COLUMNS} FROM repo WHERE path = ?1"), [path.as_os_str().as_bytes()], row).optional()
        })
    }

    /// Adds one.
    pub fn add_repo(&self, now: u64, repo: &Repo) -> Result<(), DbError> {
        let detail = serde_json::json!({"repo": repo.id, "path": repo.path.to_string_lossy()});
        self.write(now, "repo.added", &detail, |tx| {
            tx.execute(
                "INSERT INTO repo (id, path, name, added) VALUES (?1, ?2, ?3, ?4)",
                (repo.id.as_str(), repo.path.as_os_str().as_bytes(), &repo.name, repo.added),
            )?;
            Ok(())
        })
    }

    /// Forgets one. Its discarded tasks go with it; a task that is not discarded keeps it here (an error by foreign key).
    pub fn forget_repo(&self, now: u64, id: &RepoId) -> Result<(), DbError> {
        self.write(now, "repo.forgotten", &serde_json::json!({"repo": id}), |tx| {
            for table in ["run", "decision", "approval", "candidate", "exit", "ask", "permit"] {
                tx.execute(
                    &format!("DELETE FROM {table} WHERE task IN (SELECT id FROM task WHERE repo = ?1 AND state = 'discarded')"),
                    [id.as_str()],
                )?;
            }
            tx.execute("DELETE FROM task WHERE repo = ?1 AND state = 'discarded'", [id.as_str()])?;
            tx.execute("DELETE FROM permit WHERE repo = ?1 AND task IS NULL", [id.as_str()])?;
            tx.execute("DELETE FROM repo WHERE id = ?1", [id.as_str()])?;
            Ok(())
        })
    }
}
