//! How work leaves: an exit, its digest, and the approval that must match it.

use crate::id::{CommitId, TreeId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Everything that an approval covers. Two exits that differ anywhere have different digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Task.
    pub task: crate::id::TaskId,
    /// Candidate that was shown.
    pub candidate: TreeId,
    /// Tree that leaves.
    pub result: TreeId,
    /// Commit that the task started from.
    pub base: CommitId,
}

impl Exit {
    /// SHA-256 over the exit's JSON form, as hexadecimal digits.
    pub fn digest(&self) -> String {
        let fields = [self.task.as_str(), self.candidate.as_str(), self.result.as_str(), self.base.as_str()];
        let mut hash = Sha256::new();
        for f in fields {
            hash.update((f.len() as u64).to_be_bytes());
            hash.update(f.as_bytes());
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Proof that the person approved exactly this exit. Made only by [`Approved::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved<T>(T);

impl Approved<Exit> {
    /// Turns an exit into an approved one where the stored approval's digest is the exit's own.
    pub fn check(exit: Exit, stored_digest: &str) -> Option<Self> {
        (exit.digest() == stored_digest).then_some(Self(exit))
    }
}

impl<T> Approved<T> {
    /// What was approved.
    pub fn get(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    fn exit() -> Exit {
        let hex = |c: char| c.to_string().repeat(40);
        Exit {
            task: TaskId::from_random([1; 8]),
            candidate: TreeId::parse(&hex('a')).unwrap_or_else(|e| unreachable!("{e}")),
            result: TreeId::parse(&hex('b')).unwrap_or_else(|e| unreachable!("{e}")),
            base: CommitId::parse(&hex('c')).unwrap_or_else(|e| unreachable!("{e}")),
        }
    }

    #[test]
    fn an_approval_covers_exactly_what_was_shown() {
        let shown = exit();
        let digest = shown.digest();
        assert!(Approved::check(shown.clone(), &digest).is_some(), "the same exit is approved");
        let other = Exit { result: shown.candidate.clone(), ..shown };
        assert!(Approved::check(other, &digest).is_none(), "another result tree needs a new approval");
    }
}
