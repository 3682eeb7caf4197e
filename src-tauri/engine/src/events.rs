//! What happened in a task.

use crate::{Engine, Error};
use db::EventLog;
use model::event::Event;
use model::id::TaskId;

impl Engine {
    /// Events from number `from` on, at most `limit`, of the named kinds (all where empty).
    pub fn events(&self, task: &TaskId, from: u64, limit: usize, kinds: &[String]) -> Result<Vec<Event>, Error> {
        self.need_task(task)?;
        match EventLog::read_only(&self.host.layout.task(task).events())? {
            Some(log) => Ok(log.list(from, limit, kinds)?),
            None => Ok(Vec::new()),
        }
    }
}
