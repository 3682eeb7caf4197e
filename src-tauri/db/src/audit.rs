//! The audit chain: each line's hash covers the line before, so that order and content up to the last line are fixed.

use rusqlite::{Connection, OptionalExtension, Transaction};
use sha2::{Digest, Sha256};

/// A line of the chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditRow {
    /// Position, from 1.
    pub seq: i64,
    /// Unix milliseconds.
    pub time: u64,
    /// Verb.
    pub what: String,
    /// JSON.
    pub detail: String,
}

/// The chain does not hold.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// SQLite said no.
    #[error("the audit chain can't be read: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A line was changed, removed or put in.
    #[error("the audit chain breaks at line {0}: it or a line before it was changed")]
    Broken(i64),
}

fn link(previous: &[u8], seq: i64, time: u64, what: &str, detail: &str) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(seq.to_be_bytes());
    hash.update(time.to_be_bytes());
    for text in [what, detail] {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().to_vec()
}

pub(crate) fn append(tx: &Transaction<'_>, time: u64, what: &str, detail: &serde_json::Value) -> rusqlite::Result<()> {
    let last: Option<(i64, Vec<u8>)> =
        tx.query_row("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1", [], |r| Ok((r.get(0)?, r.get(1)?))).optional()?;
    let (seq, previous) = last.map_or((1, Vec::new()), |(s, h)| (s + 1, h));
    let detail = detail.to_string();
    let hash = link(&previous, seq, time, what, &detail);
    tx.execute("INSERT INTO audit (seq, time, what, detail, hash) VALUES (?1, ?2, ?3, ?4, ?5)", (seq, time, what, detail, hash))?;
    Ok(())
}

pub(crate) fn verify(c: &Connection) -> Result<Vec<AuditRow>, AuditError> {
    let mut statement = c.prepare("SELECT seq, time, what, detail, hash FROM audit ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut previous = Vec::new();
    let mut out: Vec<AuditRow> = Vec::new();
    while let Some(r) = rows.next()? {
        let row = AuditRow { seq: r.get(0)?, time: r.get(1)?, what: r.get(2)?, detail: r.get(3)? };
        let hash: Vec<u8> = r.get(4)?;
        let expected = i64::try_from(out.len()).unwrap_or(i64::MAX).saturating_add(1);
        if row.seq != expected || link(&previous, row.seq, row.time, &row.what, &row.detail) != hash {
            return Err(AuditError::Broken(row.seq));
        }
        previous = hash;
        out.push(row);
    }
    Ok(out)
}
