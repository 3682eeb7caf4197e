//! Apply and undo: an approved result becomes one commit on a local branch, and can be taken back.

use crate::Engine;
use crate::error::{Code, Error};
use crate::review::exit_of;
use db::{ExitRow, ExitState};
use model::exit::Approved;
use model::id::{ExitId, TaskId, TreeId};
use model::task::{Step as TaskStep, Task};
use serde::Serialize;
use std::cell::RefCell;
use worktree::{Journal, JournalError, Onto, Plan, Step};

/// What to apply and where.
#[derive(Debug, Clone)]
pub struct ApplyRequest {
    /// The approved result tree.
    pub tree: TreeId,
    /// Branch; the task's base branch where left out. One that does not exist is made.
    pub onto: Option<String>,
    /// Commit message; the task's title where left out.
    pub message: Option<String>,
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub struct Applied {
    /// Branch.
    pub branch: String,
    /// Where it stood; none when it was made (or, after an undo, removed).
    pub old: Option<String>,
    /// Where it stands.
    pub new: Option<String>,
    /// How many files changed between the two.
    pub files: usize,
    /// Whether a working copy moved along.
    pub working_copy: bool,
}

impl From<&Plan> for Applied {
    fn from(plan: &Plan) -> Self {
        Self {
            branch: plan.branch.clone(),
            old: plan.old.as_ref().map(ToString::to_string),
            new: plan.new.as_ref().map(ToString::to_string),
            files: plan.files.len(),
            working_copy: plan.checkout.is_some(),
        }
    }
}

/// The journal of one exit, in the database. Its steps are the row's body.
struct Row<'a> {
    engine: &'a Engine,
    row: RefCell<(ExitRow, Vec<Step>)>,
}

impl<'a> Row<'a> {
    fn new(engine: &'a Engine, id: ExitId, task: &TaskId, kind: &str) -> Self {
        let row = ExitRow {
            id,
            task: task.clone(),
            kind: kind.into(),
            state: ExitState::Intent,
            body: serde_json::Value::Null,
            time: sys::clock::unix_millis(),
        };
        Self { engine, row: RefCell::new((row, Vec::new())) }
    }

    /// Whether nothing of it is left, or nothing was begun.
    fn undone(&self) -> bool {
        matches!(self.row.borrow().1.last(), None | Some(Step::Undone(_)))
    }
}

impl Journal for Row<'_> {
    fn record(&self, step: &Step) -> Result<(), JournalError> {
        let mut row = self.row.borrow_mut();
        let (row, steps) = &mut *row;
        steps.push(step.clone());
        row.body = serde_json::to_value(&*steps).map_err(|e| JournalError(e.to_string()))?;
        let state = match step {
            Step::Intent(_) | Step::Objects | Step::Staged | Step::Moved => ExitState::Intent,
            Step::Done => ExitState::Done,
            Step::Undone(_) => ExitState::Failed,
        };
        self.engine.put_exit(row, state).map_err(|e| JournalError(e.to_string()))
    }
}

fn plan_of(row: &ExitRow) -> Result<(Plan, Vec<Step>), Error> {
    let steps: Vec<Step> = serde_json::from_value(row.body.clone())
        .map_err(|e| Error::new(Code::Machine, format!("the journal of exit {} can't be read: {e}", row.id)))?;
    match steps.first() {
        Some(Step::Intent(plan)) => Ok(((**plan).clone(), steps)),
        Some(Step::Objects | Step::Staged | Step::Moved | Step::Done | Step::Undone(_)) | None => {
            Err(Error::new(Code::Machine, format!("the journal of exit {} does not begin with an intent", row.id)))
        }
    }
}

impl Engine {
    /// Applies an approved result. The workspace is looked at once more: what changed since the review needs a new look.
    pub fn apply(&self, id: &TaskId, request: &ApplyRequest) -> Result<Applied, Error> {
        let task = self.need_files(id)?;
        let approval = self.db.approval(id)?;
        if let (Some(a), Some(branch)) = (&approval, self.applied_onto(id)?)
            && a.used
        {
            return Err(Error::new(
                Code::Refused,
                format!(
                    "this was applied onto {branch} already: `airlock undo {id}` takes it back, then it can be applied elsewhere"
                ),
            ));
        }
        let approval = approval.filter(|a| !a.used).ok_or_else(|| {
            Error::new(
                Code::Refused,
                format!("nothing of task {id} is approved: `airlock review {id} --tree TREE … --approve` does it"),
            )
        })?;
        if request.tree == approval.candidate && approval.candidate != approval.result {
            return Err(Error::new(
                Code::Stale,
                format!(
                    "{} is the candidate that was looked at; what was approved is the result of the review, without what was rejected: --tree {}",
                    request.tree, approval.result
                ),
            ));
        }
        let approved =
            Approved::check(exit_of(&task, &approval.candidate, &request.tree), &approval.digest).ok_or_else(|| {
                Error::new(
                    Code::Stale,
                    format!("the approval is for tree {}, not {}: review again", approval.result, request.tree),
                )
            })?;
        let now = self.candidate(id)?;
        if now.tree != approval.candidate || !now.still {
            return Err(Error::new(
                Code::Stale,
                format!(
                    "files changed since the review (candidate {} then, {} now): take a new look (`airlock diff {id}`)",
                    approval.candidate, now.tree
                ),
            ));
        }
        let repo = self.repo(&task.repo)?;
        let facts = self.inspect(&repo.path)?;
        let branch = request.onto.clone().or_else(|| task.base_branch.clone()).ok_or_else(|| {
            Error::new(Code::Usage, "the task did not start from a branch: say where to apply with --onto BRANCH")
        })?;
        let onto = if facts.branches.iter().any(|b| b.name == branch) { Onto::Branch(branch) } else { Onto::NewBranch(branch) };
        let message = request.message.clone().filter(|m| !m.trim().is_empty()).unwrap_or_else(|| task.title.clone());
        let _one = self.lock_exits()?;
        let exit = ExitId::from_random(sys::random::bytes());
        let plan = self.with_files(id, |task| {
            Ok(worktree::plan_apply(&worktree::ApplySpec {
                task: &self.git(task),
                exit: &exit,
                approved: &approved,
                repo: &facts,
                home: &self.host.home,
                onto: &onto,
                message: &message,
            })?)
        })?;
        let digest = approved.get().digest();
        if !self.db.use_approval(sys::clock::unix_millis(), id, &digest)? {
            return Err(Error::new(Code::Stale, "the approval was used or withdrawn just now: review again"));
        }
        let journal = Row::new(self, exit, id, "apply");
        if let Err(e) = worktree::act(&self.host.layout, &plan, &journal) {
            // Only what is known not to have happened gives its approval back; the rest is settled at the next start.
            if journal.undone() {
                self.db.release_approval(sys::clock::unix_millis(), id, &digest)?;
            }
            return Err(e.into());
        }
        self.db.step(sys::clock::unix_millis(), id, TaskStep::Applied, None, None)??;
        Ok(Applied::from(&plan))
    }

    /// Takes the newest apply of a task back, while its branch still stands where the apply put it.
    pub fn undo(&self, id: &TaskId) -> Result<Applied, Error> {
        let task = self.need_task(id)?;
        let _one = self.lock_exits()?;
        let mut row = self
            .db
            .standing_apply(id)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("no apply of task {id} stands: there is nothing to undo")))?;
        let (applied, _) = plan_of(&row)?;
        let exit = ExitId::from_random(sys::random::bytes());
        let plan = worktree::plan_undo(&self.host.layout, &self.host.home, &exit, &applied).map_err(|e| match (e, &applied.new) {
            (worktree::ApplyError::BranchMoved { branch, .. }, Some(commit)) => Error::new(
                Code::Conflict,
                format!("`{branch}` has moved on since the apply, so it can't just be set back; nothing was done. `git revert {commit}` takes the apply back on top"),
            ),
            (e, _) => e.into(),
        })?;
        let journal = Row::new(self, exit, id, "undo");
        worktree::act(&self.host.layout, &plan, &journal)?;
        self.put_exit(&mut row, ExitState::Undone)?;
        self.after_undo(&task)?;
        Ok(Applied::from(&plan))
    }

    fn after_undo(&self, task: &Task) -> Result<(), Error> {
        if let Err(step) = self.db.step(sys::clock::unix_millis(), &task.id, TaskStep::Undone, None, None)? {
            tracing::debug!(%step, "the undo does not move the task");
        }
        // The same result may be applied again, elsewhere.
        if let Some(a) = self.db.approval(&task.id)? {
            self.db.release_approval(sys::clock::unix_millis(), &task.id, &a.digest)?;
        }
        Ok(())
    }

    /// The branch that the newest apply stands on.
    pub(crate) fn applied_onto(&self, id: &TaskId) -> Result<Option<String>, Error> {
        Ok(self.db.standing_apply(id)?.map(|row| plan_of(&row)).transpose()?.map(|(plan, _)| plan.branch))
    }

    /// Ends an exit that a crash left half-way. One that can't be ended stays open and is tried again at the next start.
    pub(crate) fn finish_or_undo(&self, row: ExitRow) -> Result<(), Error> {
        let (plan, steps) = plan_of(&row)?;
        let kind = row.kind.clone();
        let task = row.task.clone();
        let journal = Row { engine: self, row: RefCell::new((row, steps.clone())) };
        let outcome = worktree::recover(&self.host.layout, &steps, &journal)?;
        tracing::info!(exit = %plan.exit, ?outcome, "an exit that was cut off is ended");
        let Some(task) = self.db.task(&task)? else { return Ok(()) };
        match (kind.as_str(), outcome) {
            ("apply", worktree::Outcome::Finished) => {
                if let Err(step) = self.db.step(sys::clock::unix_millis(), &task.id, TaskStep::Applied, None, None)? {
                    tracing::debug!(%step, "the finished apply does not move the task");
                }
            }
            ("apply", worktree::Outcome::Undone) => {
                if let Some(a) = self.db.approval(&task.id)? {
                    self.db.release_approval(sys::clock::unix_millis(), &task.id, &a.digest)?;
                }
            }
            (_, worktree::Outcome::Finished) => {
                if let Some(mut applied) = self.db.standing_apply(&task.id)? {
                    self.put_exit(&mut applied, ExitState::Undone)?;
                }
                self.after_undo(&task)?;
            }
            (_, worktree::Outcome::Undone) => {}
        }
        Ok(())
    }
}
