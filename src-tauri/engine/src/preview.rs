//! Preview: a page that a program of a run serves, in the person's own browser.

use crate::Engine;
use crate::error::{Code, Error};
use model::event::{NetOp, What};
use model::id::TaskId;
use model::protocol::{Reply, Request};
use std::time::Duration;

/// How long a warden may take to open a port.
const LIMIT: Duration = Duration::from_secs(15);

impl Engine {
    /// A link of one use to a port of the task's run, which is served until that ends.
    pub fn preview(&self, task: &TaskId, port: u16) -> Result<String, Error> {
        self.need_task(task)?;
        if port == 0 {
            return Err(Error::new(Code::Usage, "port 0 is nobody's: name the one that the server listens on"));
        }
        self.attach(task)?.ask(LIMIT, &Request::Preview { port }, |reply| match reply {
            Reply::Previewed { link } => Some(Ok(link.clone())),
            Reply::NotPreviewed { message } => Some(Err(Error::new(Code::Promise, message.clone()))),
            _ => None,
        })?
    }

    /// Closes a port with its connections; false where it was not open.
    pub fn close_preview(&self, task: &TaskId, port: u16) -> Result<bool, Error> {
        self.need_task(task)?;
        self.attach(task)?.ask(LIMIT, &Request::Unpreview { port }, |reply| match reply {
            Reply::Unpreviewed { was } => Some(*was),
            _ => None,
        })
    }

    /// Ports that programs of the task's last run took, in the order in which they did; the last is the likeliest.
    pub fn ports(&self, task: &TaskId) -> Result<Vec<u16>, Error> {
        let run = self.task(task)?.runs.pop().map(|r| r.run.id);
        let mut ports: Vec<u16> = Vec::new();
        self.network(task, &mut |event| {
            if let What::Network { op: NetOp::Bind, port, .. } = event.what
                && Some(&event.run) == run.as_ref()
                && port != 0
            {
                ports.retain(|p| *p != port);
                ports.push(port);
            }
            Ok(())
        })?;
        Ok(ports)
    }
}
