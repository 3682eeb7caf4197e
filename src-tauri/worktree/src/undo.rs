//! An exit backwards.

use crate::config;
use crate::plan::{ApplyError, FileMove, Plan, exit_dir, prepare, yours};
use crate::working_copy::{self, Shadow};
use model::id::ExitId;
use model::layout::Layout;
use std::path::Path;

/// The plan that brings the branch back to where it was before `applied`, possible only while it still stands where `applied`
/// put it. Done by [`crate::act`].
pub fn plan_undo(layout: &Layout, home: &Path, exit: &ExitId, applied: &Plan) -> Result<Plan, ApplyError> {
    let place = exit_dir(layout, exit);
    let plan = prepare(&place).and_then(|()| planned(home, exit, applied, &place));
    if plan.is_err() {
        drop(std::fs::remove_dir_all(&place));
    }
    plan
}

fn planned(home: &Path, exit: &ExitId, applied: &Plan, place: &Path) -> Result<Plan, ApplyError> {
    yours(applied.named.top(), applied.common_dir())?;
    let found = applied.standing()?;
    if found != applied.new {
        return Err(ApplyError::BranchMoved { branch: applied.branch.clone(), expected: applied.new.clone(), found });
    }
    let back = |f: &FileMove| FileMove {
        path: f.path.clone(),
        old_mode: f.new_mode,
        old_id: f.new_id.clone(),
        new_mode: f.old_mode,
        new_id: f.old_id.clone(),
    };
    let mut plan = Plan {
        exit: exit.clone(),
        old: applied.new.clone(),
        new: applied.old.clone(),
        files: applied.files.iter().map(back).collect(),
        checkout: None,
        reflog: format!("airlock undo of {}", applied.exit),
        ..applied.clone()
    };
    plan.checkout = working_copy::checkout(&plan)?;
    if let (Some(copy), None) = (&plan.checkout, &plan.new) {
        let top = copy.top().to_owned();
        return Err(ApplyError::Busy { top, what: format!("`{}` is checked out and can't be removed", plan.branch) });
    }
    let persons = config::persons(applied.named.top(), applied.named.git_dir(), applied.common_dir(), home)?;
    let shadow = Shadow::make(place, &plan, &persons)?;
    if plan.checkout.is_some() {
        shadow.copy_index()?;
        shadow.unfiltered(&persons.filters)?;
        shadow.clean()?;
    }
    Ok(plan)
}
