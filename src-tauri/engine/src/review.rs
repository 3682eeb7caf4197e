//! Review: decisions file by file, tied to exactly what was shown, and the approval of the result.

use crate::Engine;
use crate::error::{Code, Error};
use db::DecisionRow;
use model::diff::ChangedFile;
use model::exit::Exit;
use model::id::{TaskId, TreeId};
use model::path::RawPath;
use model::review::{FileDecision, FileReview, Review};
use model::task::Task;
use std::collections::{HashMap, HashSet};

fn side(mode: u32, id: Option<&model::id::BlobId>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| format!("{mode:o}:{id}"))
}

/// What a decision is tied to: both contents and modes, and the name before.
fn shown(file: &ChangedFile) -> (String, String) {
    let before = file.old_path.as_ref().map_or_else(String::new, |p| format!(" {p}"));
    (side(file.old_mode, file.old_id.as_ref()) + &before, side(file.new_mode, file.new_id.as_ref()))
}

impl Engine {
    /// The review of a candidate as it stands.
    pub fn review(&self, id: &TaskId, tree: &TreeId) -> Result<Review, Error> {
        let task = self.need_files(id)?;
        self.need_candidate(id, tree)?;
        let files = self.changes(id, tree)?;
        self.review_of(&task, tree, &files)
    }

    fn review_of(&self, task: &Task, tree: &TreeId, files: &[ChangedFile]) -> Result<Review, Error> {
        let rows = self.db.decisions(&task.id)?;
        let decided: HashMap<&[u8], &DecisionRow> = rows.iter().map(|d| (d.path.as_slice(), d)).collect();
        let mut reviews = Vec::with_capacity(files.len());
        for file in files {
            let (old, new) = shown(file);
            let row = decided.get(file.path.as_bytes());
            let same = row.filter(|d| d.old_id == old && d.new_id == new);
            reviews.push(FileReview {
                path: file.path.clone(),
                decision: same
                    .map_or(FileDecision::Open, |d| if d.accepted { FileDecision::Accepted } else { FileDecision::Rejected }),
                changed_since: row.is_some() && same.is_none(),
            });
        }
        let accepted: Vec<RawPath> =
            reviews.iter().filter(|r| r.decision == FileDecision::Accepted).map(|r| r.path.clone()).collect();
        let result = self.with_files(&task.id, |task| Ok(worktree::result_tree(&self.git(task), tree, &accepted)?))?;
        let exit = exit_of(task, tree, &result);
        let approved = self.db.approval(&task.id)?.is_some_and(|a| !a.used && a.digest == exit.digest());
        Ok(Review { tree: tree.clone(), files: reviews, result, approved })
    }

    /// Accepts and rejects files of a candidate. A path that is not among its changes is an error and nothing is decided;
    /// `.` means every file that is still open.
    pub fn decide(&self, id: &TaskId, tree: &TreeId, accept: &[RawPath], reject: &[RawPath]) -> Result<Review, Error> {
        let task = self.need_files(id)?;
        self.need_candidate(id, tree)?;
        let files = self.changes(id, tree)?;
        let before = self.review_of(&task, tree, &files)?;
        let mut rows: Vec<DecisionRow> = Vec::new();
        let named: HashSet<&RawPath> = accept.iter().chain(reject).collect();
        for (paths, accepted) in [(accept, true), (reject, false)] {
            for path in paths {
                if accepted && reject.contains(path) {
                    return Err(Error::new(Code::Usage, format!("`{path}` is both accepted and rejected")));
                }
                let mut hit = false;
                for (file, review) in files.iter().zip(&before.files) {
                    let rest = path.as_bytes() == b"." && review.decision == FileDecision::Open && !named.contains(&file.path);
                    if file.path == *path || rest {
                        let (old_id, new_id) = shown(file);
                        rows.push(DecisionRow { path: file.path.as_bytes().to_vec(), old_id, new_id, accepted });
                        hit = true;
                    }
                }
                if !hit && path.as_bytes() != b"." {
                    return Err(Error::new(
                        Code::NotFound,
                        format!("`{path}` is not among the changed files of candidate {tree}"),
                    ));
                }
            }
        }
        if !rows.is_empty() {
            self.db.decide(sys::clock::unix_millis(), id, &rows)?;
        }
        self.review_of(&task, tree, &files)
    }

    /// Approves the result of the decisions. Every file must be decided.
    pub fn approve(&self, id: &TaskId, tree: &TreeId) -> Result<Review, Error> {
        let task = self.need_files(id)?;
        let candidate = self.need_candidate(id, tree)?;
        if !candidate.still {
            return Err(Error::new(
                Code::Refused,
                "this candidate was taken while the agent could still write, so it can't be approved: stop the run or take a new look",
            ));
        }
        let files = self.changes(id, tree)?;
        let review = self.review_of(&task, tree, &files)?;
        if files.is_empty() {
            return Err(Error::new(Code::Refused, "nothing changed: there is nothing to approve"));
        }
        let open: Vec<String> =
            review.files.iter().filter(|f| f.decision == FileDecision::Open).map(|f| format!("`{}`", f.path)).collect();
        if !open.is_empty() {
            let more = if open.len() > 5 { format!(" and {} more", open.len() - 5) } else { String::new() };
            return Err(Error::new(
                Code::Refused,
                format!(
                    "{} of {} files are not decided (what you decided is kept): {}{more}",
                    open.len(),
                    files.len(),
                    open[..open.len().min(5)].join(", ")
                ),
            ));
        }
        if review.files.iter().all(|f| f.decision == FileDecision::Rejected) {
            return Err(Error::new(Code::Refused, "every file is rejected: there is nothing to apply; discard the task instead"));
        }
        let digest = exit_of(&task, tree, &review.result).digest();
        self.db.approve(sys::clock::unix_millis(), id, &digest, tree, &review.result)?;
        Ok(Review { approved: true, ..review })
    }
}

pub(crate) fn exit_of(task: &Task, candidate: &TreeId, result: &TreeId) -> Exit {
    Exit { task: task.id.clone(), candidate: candidate.clone(), result: result.clone(), base: task.base.clone() }
}
