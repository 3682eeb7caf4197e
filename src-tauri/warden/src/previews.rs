//! The way in: ports of the jail that the person looks at.

use crate::record::Recorder;
use egress::{Inward, Preview};
use model::id::TaskId;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Ports that are open at a time.
const PORTS: usize = 8;

/// Those of one run; they end with it.
pub(crate) struct Previews {
    inward: Arc<Inward>,
    task: TaskId,
    recorder: Recorder,
    open: Mutex<HashMap<u16, Preview>>,
}

impl Previews {
    /// `sockets` are the jail's, none where it has no network of its own.
    pub(crate) fn new(sockets: Vec<OwnedFd>, task: TaskId, recorder: Recorder) -> Self {
        Self { inward: Arc::new(Inward::new(sockets)), task, recorder, open: Mutex::default() }
    }

    /// A link to a port; why not, in words. The port is served from now on.
    pub(crate) fn link(&self, port: u16) -> Result<String, String> {
        if !self.inward.leads_in() {
            return Err("nothing in this run can be looked at: its jail has no network of its own, or its warden too few descriptors (`ulimit -n`)".into());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(preview) = open.get(&port) {
            return Ok(preview.link());
        }
        if open.len() >= PORTS {
            return Err(format!("{PORTS} ports of this run are open already"));
        }
        let opened = Preview::open(Arc::clone(&self.inward), port, self.task.as_str(), secret);
        let preview = opened.map_err(|e| format!("no port of this machine could be opened: {e}"))?;
        self.recorder.lifecycle("preview", format!("port {port} of the sandbox is open to your browser until the run ends"));
        let link = preview.link();
        open.insert(port, preview);
        Ok(link)
    }

    /// Closes a port with its connections; whether it was open.
    pub(crate) fn close(&self, port: u16) -> bool {
        let was = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&port).is_some();
        if was {
            self.recorder.lifecycle("preview", format!("port {port} of the sandbox is closed to your browser"));
        }
        was
    }
}

/// 128 bits.
fn secret() -> String {
    let words = [sys::random::bytes(), sys::random::bytes()];
    words.concat().iter().map(|b| format!("{b:02x}")).collect()
}
