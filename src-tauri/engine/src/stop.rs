//! Stop: every process of a task's run ends.

use crate::{Engine, Error};
use model::id::TaskId;
use model::protocol::{Reply, Request};
use model::run::Outcome;
use std::time::Duration;

impl Engine {
    /// Ends the task's run and waits for it. `None` where nothing ran.
    pub fn stop(&self, task: &TaskId) -> Result<Option<Outcome>, Error> {
        self.need_task(task)?;
        let mut warden = match self.attach(task) {
            Ok(w) => w,
            Err(e) if e.code == crate::Code::NotFound => {
                self.recover()?;
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        warden.send(&Request::Stop)?;
        let outcome = warden.wait_for(Duration::from_secs(30), |reply| match reply {
            Reply::Ended { outcome } => Some(outcome.clone()),
            Reply::Welcome { .. }
            | Reply::Status { .. }
            | Reply::Event { .. }
            | Reply::Frozen { .. }
            | Reply::Thawed
            | Reply::Error { .. } => None,
        })?;
        Ok(Some(outcome))
    }
}
