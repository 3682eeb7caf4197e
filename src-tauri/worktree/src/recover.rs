//! Finishes or takes back an exit that was killed half-way.

use crate::apply::{bring_files, finish_index, leave, lock, sweep, take_back};
use crate::git::Git;
use crate::journal::{Journal, Step};
use crate::plan::{ApplyError, Plan, exit_dir};
use crate::working_copy::{self, Shadow};
use model::id::CommitId;
use model::layout::Layout;

/// How a killed exit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Finished,
    /// Nothing of it is left.
    Undone,
}

/// Ends an exit of which `steps` were recorded, oldest first, and records how. Where it had ended, only says how.
pub fn recover(layout: &Layout, steps: &[Step], journal: &dyn Journal) -> Result<Outcome, ApplyError> {
    let plan = steps.iter().find_map(|s| if let Step::Intent(plan) = s { Some(plan.as_ref()) } else { None });
    let Some(plan) = plan else { return Ok(Outcome::Undone) };
    let place = exit_dir(layout, &plan.exit);
    for step in steps {
        let outcome = match step {
            Step::Done => Outcome::Finished,
            Step::Undone(_) => Outcome::Undone,
            _ => continue,
        };
        leave(&place);
        return Ok(outcome);
    }
    let lock = lock(&place)?;
    // The branch alone decides: it is moved in one step.
    if has_moved(plan)? {
        // Without the lock the files were done with, or somebody took it away and works there again: they stay as they are.
        if working_copy::holds_lock(plan) {
            let finished = bring_files(plan, &place, journal)
                .and_then(|_| sweep(plan))
                .and_then(|()| finish_index(plan, &Shadow::of(&place, plan), journal));
            finished.map_err(|cause| ApplyError::Unfinished { cause: Box::new(cause) })?;
        }
        journal.record(&Step::Done)?;
        leave(&place);
        return Ok(Outcome::Finished);
    }
    take_back(plan, &place, &lock, false).map_err(|cause| ApplyError::Unfinished { cause: Box::new(cause) })?;
    journal.record(&Step::Undone("it was interrupted before the branch moved".to_owned()))?;
    leave(&place);
    Ok(Outcome::Undone)
}

/// Whether the branch was moved, even if it went on from there.
fn has_moved(plan: &Plan) -> Result<bool, ApplyError> {
    let now = plan.standing()?;
    if now == plan.new {
        return Ok(true);
    }
    if now == plan.old {
        return Ok(false);
    }
    let (Some(new), Some(now)) = (&plan.new, &now) else { return Ok(false) };
    let holds = |commit: &CommitId, in_: &CommitId| -> Result<bool, ApplyError> {
        let args = ["merge-base", "--is-ancestor", commit.as_str(), in_.as_str()];
        Ok(Git::new("compare commits").at(plan.common_dir()).args(args).run()?.code == 0)
    };
    // An undo goes to a commit that its old place holds already, so holding it says nothing.
    let says_nothing = plan.old.as_ref().map_or(Ok(false), |old| holds(new, old))?;
    Ok(!says_nothing && holds(new, now)?)
}
