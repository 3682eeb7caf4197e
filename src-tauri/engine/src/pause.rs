//! Pause and continue: a run's processes stop where they are, and go on.

use crate::error::{Code, Error};
use crate::{Attached, Engine};
use model::id::TaskId;
use model::protocol::{Reply, Request};
use std::time::Duration;

/// How long stopping or continuing every process may take.
const LIMIT: Duration = Duration::from_secs(30);

impl Engine {
    /// Stops every process of the task's run until it is continued, also with the window closed. Its clock goes on. A run
    /// that is paused already stays so.
    pub fn pause(&self, task: &TaskId) -> Result<(), Error> {
        let complete = self.running(task)?.ask(LIMIT, &Request::Pause, |reply| match reply {
            Reply::Paused { complete } => Some(*complete),
            _ => None,
        })?;
        if complete {
            return Ok(());
        }
        Err(Error::new(Code::Machine, format!("not every process of task {task} could be stopped, so they go on: try again")))
    }

    /// Lets a paused run go on; false where it was not paused. A run that a limit paused may take as much again.
    pub fn proceed(&self, task: &TaskId) -> Result<bool, Error> {
        self.running(task)?.ask(LIMIT, &Request::Continue, |reply| match reply {
            Reply::Continued { was } => Some(*was),
            _ => None,
        })
    }

    fn running(&self, task: &TaskId) -> Result<Attached, Error> {
        self.need_task(task)?;
        self.attach(task)
    }
}
