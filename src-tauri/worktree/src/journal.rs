//! What an exit writes down before it acts.
use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// One entry of an exit's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// What will be done. Always first.
    Intent(Box<Plan>),
    /// The objects are in the person's repository.
    Objects,
    /// The working copy's index is locked, and what will be written there is staged.
    Staged,
    /// The branch was moved: from here on the exit is finished, not undone.
    Moved,
    /// Done.
    Done,
    /// Nothing of it is left; the reason in words.
    Undone(String),
}

/// A journal that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the journal could not be written: {0}")]
pub struct JournalError(pub String);

/// Where an exit writes what it does. An entry must be on disk when `record` returns.
pub trait Journal {
    /// Writes one entry down.
    fn record(&self, step: &Step) -> Result<(), JournalError>;
    /// Called between any two effects on the person's repository; does nothing unless a test wants to stop there.
    fn passed(&self, _point: &str) {}
}
