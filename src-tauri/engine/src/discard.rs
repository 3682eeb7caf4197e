//! Discard: a task's files go, its record stays.

use crate::error::{Code, Error};
use crate::{Engine, ballast};
use model::id::TaskId;
use model::task::{Step, Task, TaskState};

impl Engine {
    /// Removes a task's files. A running one must be stopped first.
    pub fn discard(&self, id: &TaskId) -> Result<(), Error> {
        let task = self.need_task(id)?;
        if task.state == TaskState::Discarded {
            return Ok(());
        }
        let Some(held) = self.lock_task(id)? else {
            return Err(Error::new(Code::Conflict, format!("task {id} is running: stop it first (`airlock task stop {id}`)")));
        };
        // The step first: a crash in between leaves files that no task names, which the next start removes.
        let step = || self.db.step(sys::clock::unix_millis(), id, Step::Discarded, None, None);
        match step() {
            Ok(done) => {
                done?;
                self.remove_files(&task)?;
            }
            // A full disk takes no step: room first, then the step, which a crash in between leaves to the person.
            Err(_) => {
                ballast::drop_it(&self.host.layout);
                self.remove_files(&task)?;
                step()??;
            }
        }
        drop(held);
        Ok(())
    }

    pub(crate) fn remove_files(&self, task: &Task) -> Result<(), Error> {
        Ok(worktree::remove_task(&self.host.layout, &task.repo, &task.id)?)
    }
}
