//! Does what a plan says, in an order in which every step can be finished or taken back.
//!
//! Until the branch has moved nothing of the person's has changed but for objects that nothing names; from then on the files
//! can be brought forward or back one by one, whatever was done of them.

use crate::files;
use crate::journal::{Journal, Step};
use crate::plan::{ApplyError, BEGUN, Plan, WorkingCopy, exit_dir, failed, path, yours};
use crate::put::{self, Was};
use crate::working_copy::{self, Shadow, move_branch};
use model::layout::Layout;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Does a plan: intent into the journal, index lock, staging, objects, branch by compare-and-swap, files, index, done. On an
/// error everything is as before and the journal says so, but for [`ApplyError::HalfWay`], which [`crate::recover`] ends.
/// Blocking.
pub fn act(layout: &Layout, plan: &Plan, journal: &dyn Journal) -> Result<(), ApplyError> {
    let place = exit_dir(layout, &plan.exit);
    let lock = lock(&place)?;
    journal.record(&Step::Intent(Box::new(plan.clone())))?;
    // From here on the journal names this directory, and only who reads the journal may remove it.
    let begun = place.join(BEGUN);
    let mut moved = false;
    let done = files::replace(&begun, b"").map_err(failed(&begun)).and_then(|()| go(plan, &place, &lock, journal, &mut moved));
    match done {
        Ok(()) => {
            journal.record(&Step::Done)?;
            leave(&place);
            Ok(())
        }
        Err(cause) => {
            if let Err(then) = take_back(plan, &place, &lock, moved) {
                return Err(ApplyError::HalfWay { cause: Box::new(cause), then: Box::new(then) });
            }
            journal.record(&Step::Undone(cause.to_string()))?;
            leave(&place);
            Err(cause)
        }
    }
}

/// Removes what a plan that will not be done has prepared.
pub fn discard_plan(layout: &Layout, plan: &Plan) -> Result<(), ApplyError> {
    discard(&exit_dir(layout, &plan.exit))
}

/// The exit's lock: held by whoever acts on it and by the git that moves the branch.
pub(crate) fn lock(place: &Path) -> Result<File, ApplyError> {
    let path = place.join("lock");
    files::make_dirs(place).and_then(|()| files::lock(&path)).map_err(failed(&path))
}

fn go(plan: &Plan, place: &Path, lock: &File, journal: &dyn Journal, moved: &mut bool) -> Result<(), ApplyError> {
    yours(plan.named.top(), plan.common_dir())?;
    let found = plan.standing()?;
    if found != plan.old {
        return Err(ApplyError::BranchMoved { branch: plan.branch.clone(), expected: plan.old.clone(), found });
    }
    if working_copy::checkout(plan)? != plan.checkout {
        let top = plan.named.top().to_owned();
        return Err(ApplyError::Busy {
            top,
            what: "the branch was checked out, or another one was, while this was planned".to_owned(),
        });
    }
    let shadow = Shadow::of(place, plan);
    working_copy::lock_index(plan)?;
    journal.passed("lock");
    if plan.checkout.is_some() {
        shadow.copy_index()?;
        shadow.clean()?;
        shadow.stage()?;
    }
    journal.record(&Step::Staged)?;
    shadow.send_objects()?;
    journal.record(&Step::Objects)?;
    move_branch(plan, lock, plan.old.as_ref(), plan.new.as_ref())?;
    *moved = true;
    journal.passed("branch");
    journal.record(&Step::Moved)?;
    if bring_files(plan, place, journal)? {
        let top = plan.named.top().to_owned();
        return Err(ApplyError::Busy { top, what: "a file was edited while it was being replaced".to_owned() });
    }
    finish_index(plan, &shadow, journal)
}

/// Brings the files forward, removals first; whether one had other content, which stays.
pub(crate) fn bring_files(plan: &Plan, place: &Path, journal: &dyn Journal) -> Result<bool, ApplyError> {
    let Some(copy) = &plan.checkout else { return Ok(false) };
    let (root, old, new) = opened(copy, place)?;
    let mut other = false;
    for gone in [true, false] {
        for file in plan.files.iter().filter(|f| (f.new_mode == 0) == gone) {
            let at = copy.top().join(path(&file.path));
            let was = put::bring(&root, &file.path, &old, &new, plan.exit.as_str()).map_err(failed(&at))?;
            other |= was == Was::Other;
            journal.passed("file");
        }
    }
    Ok(other)
}

/// Puts the index in place and gives its lock back. Without the lock that was done before.
pub(crate) fn finish_index(plan: &Plan, shadow: &Shadow<'_>, journal: &dyn Journal) -> Result<(), ApplyError> {
    if working_copy::holds_lock(plan) {
        shadow.place_index()?;
        journal.passed("index");
    }
    working_copy::unlock_index(plan)?;
    journal.passed("unlock");
    Ok(())
}

/// Brings everything back to where it was: files, then the branch (where it was moved), then the lock.
pub(crate) fn take_back(plan: &Plan, place: &Path, lock: &File, moved: bool) -> Result<(), ApplyError> {
    // Until the branch has moved no file was touched.
    if let Some(copy) = plan.checkout.as_ref().filter(|_| moved && working_copy::holds_lock(plan)) {
        let (root, old, new) = opened(copy, place)?;
        for coming_back in [false, true] {
            for file in plan.files.iter().filter(|f| (f.old_mode != 0) == coming_back) {
                let at = copy.top().join(path(&file.path));
                put::bring(&root, &file.path, &new, &old, plan.exit.as_str()).map_err(failed(&at))?;
            }
        }
        sweep(plan)?;
    }
    if moved {
        move_branch(plan, lock, plan.new.as_ref(), plan.old.as_ref())?;
    }
    working_copy::unlock_index(plan)
}

/// A working copy, and the staging areas of what was and what will be.
fn opened(copy: &WorkingCopy, place: &Path) -> Result<(OwnedFd, OwnedFd, OwnedFd), ApplyError> {
    let open = |path: &Path| files::open_dir(path).map_err(failed(path));
    Ok((open(copy.top())?, open(&place.join("old"))?, open(&place.join("new"))?))
}

/// Removes temporary files of a killed exit.
pub(crate) fn sweep(plan: &Plan) -> Result<(), ApplyError> {
    let Some(copy) = &plan.checkout else { return Ok(()) };
    let root = files::open_dir(copy.top()).map_err(failed(copy.top()))?;
    for file in &plan.files {
        put::sweep(&root, &file.path, plan.exit.as_str()).map_err(failed(&copy.top().join(path(&file.path))))?;
    }
    Ok(())
}

/// Removes the directory of an exit that has ended; what stays of it changes nothing about how it ended.
pub(crate) fn leave(place: &Path) {
    if let Err(e) = discard(place) {
        tracing::warn!("`{}` could not be removed: {}", place.display(), e.bare());
    }
}

/// Removes the exit's own directory.
pub(crate) fn discard(place: &Path) -> Result<(), ApplyError> {
    match std::fs::remove_dir_all(place) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(place)(e)),
        _ => Ok(()),
    }
}
