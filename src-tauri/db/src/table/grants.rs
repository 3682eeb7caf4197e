//! What the person permitted beyond the policy.

use crate::{Database, DbError, column};
use model::ask::Grant;
use model::id::{AskId, GrantId, RepoId, TaskId};
use rusqlite::{OptionalExtension, Row, Transaction};

fn row(r: &Row<'_>) -> rusqlite::Result<Grant> {
    let text = |i| r.get::<_, String>(i);
    let maybe = |i: usize| -> rusqlite::Result<Option<String>> { r.get(i) };
    Ok(Grant {
        id: column(0, GrantId::parse(&text(0)?))?,
        task: maybe(1)?.map(|t| column(1, TaskId::parse(&t))).transpose()?,
        repo: column(2, RepoId::parse(&text(2)?))?,
        what: column(3, serde_json::from_str(&text(3)?))?,
        ask: maybe(4)?.map(|t| column(4, AskId::parse(&t))).transpose()?,
        made: r.get(5)?,
        until: maybe(6)?.map(|t| column(6, serde_json::from_str(&t))).transpose()?,
        left: r.get(7)?,
        used: r.get(8)?,
        revoked: r.get(9)?,
    })
}

const COLUMNS: &str = "id, task, repo, what, ask, made, until, left_over, used, revoked";

pub(crate) fn insert(tx: &Transaction<'_>, grant: &Grant) -> rusqlite::Result<()> {
    tx.execute(
        &format!("INSERT INTO permit ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)"),
        rusqlite::params![
            grant.id.as_str(),
            grant.task.as_ref().map(TaskId::as_str),
            grant.repo.as_str(),
            column(3, serde_json::to_string(&grant.what))?,
            grant.ask.as_ref().map(AskId::as_str),
            grant.made,
            grant.until.as_ref().map(|u| column(6, serde_json::to_string(u))).transpose()?,
            grant.left,
            grant.used,
            grant.revoked,
        ],
    )?;
    Ok(())
}

impl Database {
    /// Grants, newest first: those that count for one task of a repository, or all.
    pub fn grants(&self, of: Option<(&RepoId, &TaskId)>) -> Result<Vec<Grant>, DbError> {
        self.read(|c| {
            c.prepare(&format!(
                "SELECT {COLUMNS} FROM permit WHERE ?1 IS NULL OR (repo = ?1 AND (task IS NULL OR task = ?2)) ORDER BY made DESC, rowid DESC"
            ))?
            .query_map((of.map(|(r, _)| r.as_str()), of.map(|(_, t)| t.as_str())), row)?
            .collect()
        })
    }

    /// One.
    pub fn grant(&self, id: &GrantId) -> Result<Option<Grant>, DbError> {
        self.read(|c| c.query_row(&format!("SELECT {COLUMNS} FROM permit WHERE id = ?1"), [id.as_str()], row).optional())
    }

    /// Adds one that the person made by hand.
    pub fn add_grant(&self, now: u64, grant: &Grant) -> Result<(), DbError> {
        self.write(now, "grant.made", &serde_json::json!({"grant": grant}), |tx| insert(tx, grant))
    }

    /// Takes one back; false where it was taken back before.
    pub fn revoke_grant(&self, now: u64, id: &GrantId) -> Result<bool, DbError> {
        self.write(now, "grant.revoked", &serde_json::json!({"grant": id}), |tx| {
            Ok(tx.execute("UPDATE permit SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL", (id.as_str(), now))? > 0)
        })
    }

    /// Takes one use of a grant that may be used so often and no more; false where there is none left.
    pub fn use_up(&self, now: u64, id: &GrantId) -> Result<bool, DbError> {
        self.write(now, "grant.used", &serde_json::json!({"grant": id}), |tx| {
            let one = "UPDATE permit SET used = used + 1, left_over = left_over - 1 WHERE id = ?1 AND revoked IS NULL AND left_over > 0";
            Ok(tx.execute(one, [id.as_str()])? > 0)
        })
    }

    /// Counts uses of a grant without such a bound.
    pub fn count_uses(&self, now: u64, id: &GrantId, uses: u64) -> Result<(), DbError> {
        self.write(now, "grant.used", &serde_json::json!({"grant": id, "uses": uses}), |tx| {
            tx.execute("UPDATE permit SET used = used + ?2 WHERE id = ?1", (id.as_str(), uses))?;
            Ok(())
        })
    }
}
