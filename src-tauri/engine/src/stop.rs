//! Stop: every process of a task's run ends.

use crate::{Engine, Error};
use model::id::TaskId;
use model::protocol::{Reply, Request};
use model::run::Outcome;
use std::time::Duration;

/// How long a warden may take to end its run.
const LIMIT: Duration = Duration::from_secs(20);

impl Engine {
    /// Ends the task's run and waits for it. `None` where nothing ran.
    pub fn stop(&self, task: &TaskId) -> Result<Option<Outcome>, Error> {
        self.need_task(task)?;
        if let Some(held) = self.lock_task(task)? {
            drop(held);
            self.recover()?;
            return Ok(None);
        }
        let asked = self.attach(task).and_then(|mut warden| {
            warden.send(&Request::Stop)?;
            warden.wait_for(LIMIT, |reply| match reply {
                Reply::Ended { outcome } => Some(outcome.clone()),
                _ => None,
            })
        });
        let outcome = match asked {
            Ok(outcome) => outcome,
            Err(e) => match self.lock_task(task)? {
                // It ended by itself meanwhile.
                Some(held) => {
                    drop(held);
                    self.recover()?;
                    return Ok(self.db.runs(task)?.pop().and_then(|r| r.outcome));
                }
                None => self.end_warden(task, &e)?,
            },
        };
        Ok(Some(outcome))
    }

    /// Ends a warden that does not answer: the kernel ends its jail with it. Its process is the one that its lock names, looked at
    /// through a descriptor of the process itself, so that a number that was given out anew hits nobody else.
    fn end_warden(&self, task: &TaskId, why: &Error) -> Result<Outcome, Error> {
        let path = self.host.layout.task(task).lock();
        let named = std::fs::read_to_string(&path)
            .ok()
            .and_then(|t| t.trim().parse::<i32>().ok())
            .and_then(rustix::process::Pid::from_raw);
        let pid = named.ok_or_else(|| why.clone())?;
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map_err(|_| why.clone())?;
        let program = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok();
        if program.as_deref() != Some(self.host.programs.warden.as_path()) || self.lock_task(task)?.is_some() {
            return Err(why.clone());
        }
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).map_err(|_| why.clone())?;
        let start = std::time::Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(held) = self.lock_task(task)? {
                drop(held);
                self.recover()?;
                return Ok(Outcome { exit: None, signal: Some(9), limit: None, refused: None });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(why.clone())
    }
}
