//! Tasks: list, show, find.

use crate::Engine;
use crate::error::{Code, Error};
use crate::promises::RunView;
use model::id::TaskId;
use model::task::{Repo, Task, TaskState};
use serde::Serialize;

/// A task with what belongs to it.
#[derive(Debug, Clone, Serialize)]
pub struct TaskView {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// Its repository.
    pub repository: Repo,
    /// Its runs, oldest first, each with its promises.
    pub runs: Vec<RunView>,
    /// Branch that an apply stands on, if one does.
    pub applied_onto: Option<String>,
}

impl Engine {
    /// All tasks that are not discarded, newest first.
    pub fn tasks(&self) -> Result<Vec<Task>, Error> {
        Ok(self.db.tasks(false)?)
    }

    /// One task in full.
    pub fn task(&self, id: &TaskId) -> Result<TaskView, Error> {
        let task = self.need_task(id)?;
        let repository = self
            .db
            .repo(&task.repo)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("the repository of task {id} is gone from the database")))?;
        let applied_onto = self.applied_onto(id)?;
        let runs = self.db.runs(id)?.into_iter().map(RunView::from).collect();
        Ok(TaskView { runs, repository, applied_onto, task })
    }

    /// Finds a task by id, by its own branch, or by its title, where only one fits.
    pub fn find_task(&self, text: &str) -> Result<TaskId, Error> {
        if let Ok(id) = TaskId::parse(text)
            && self.db.task(&id)?.is_some()
        {
            return Ok(id);
        }
        let mut fits = self.db.tasks(false)?.into_iter().filter(|t| t.branch == text || t.title == text);
        match (fits.next(), fits.next()) {
            (Some(one), None) => Ok(one.id),
            (Some(_), Some(_)) => {
                Err(Error::new(Code::Usage, format!("more than one task is called `{text}`: use its id (`airlock task list`)")))
            }
            (None, _) => Err(Error::new(Code::NotFound, format!("there is no task `{text}`: `airlock task list` shows them"))),
        }
    }

    pub(crate) fn need_task(&self, id: &TaskId) -> Result<Task, Error> {
        self.db
            .task(id)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("there is no task {id}: `airlock task list` shows them")))
    }

    /// A task whose files are there.
    pub(crate) fn need_files(&self, id: &TaskId) -> Result<Task, Error> {
        let task = self.need_task(id)?;
        match task.state {
            TaskState::Discarded => Err(Error::new(Code::NotFound, format!("task {id} was discarded: its files are gone"))),
            TaskState::Ready | TaskState::Running | TaskState::Ended | TaskState::Applied | TaskState::Failed => Ok(task),
        }
    }

    /// Works on a task's files. A failure after the task was discarded meanwhile says that, whatever was missed first.
    pub(crate) fn with_files<T>(&self, id: &TaskId, work: impl FnOnce(&Task) -> Result<T, Error>) -> Result<T, Error> {
        work(&self.need_files(id)?).map_err(|e| self.need_files(id).err().unwrap_or(e))
    }
}
