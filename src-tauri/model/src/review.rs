//! What a person decided about a candidate, file by file.

use crate::id::TreeId;
use crate::path::RawPath;
use serde::{Deserialize, Serialize};

/// A decision about one changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileDecision {
    /// Not decided yet.
    Open,
    /// Goes out.
    Accepted,
    /// Stays behind: the base's version is used.
    Rejected,
}

/// One changed file with its decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReview {
    /// Path in the tree (the new one for a rename).
    pub path: RawPath,
    /// The decision in force.
    pub decision: FileDecision,
    /// Whether the file changed since it was decided, which sets it back to open.
    pub changed_since: bool,
}

/// A review of one candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// The candidate's tree.
    pub tree: TreeId,
    /// Each changed file.
    pub files: Vec<FileReview>,
    /// The tree that results from the decisions (open counts as rejected); equals the base's tree when nothing is accepted.
    pub result: TreeId,
    /// Whether the result is approved for exit.
    pub approved: bool,
}
