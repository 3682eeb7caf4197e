//! The private home of a new task: empty, but for the configuration of tools, written anew without secrets.

use crate::error::{Error, io};
use crate::{Engine, host};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

impl Engine {
    /// Makes it. What is written is the agent's from then on, and is never written again: the next task gets it anew.
    pub(crate) fn make_home(&self, home: &Path, tools: bool) -> Result<(), Error> {
        host::private_directory(home)?;
        if !tools {
            return Ok(());
        }
        for (at, text) in supervise::toolconf::of_home(&self.host.home, &text_of) {
            let path = home.join(at);
            if let Some(parent) = path.parent() {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(parent)
                    .map_err(io("making the directory", parent))?;
            }
            let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut f| f.write_all(text.as_bytes())).map_err(io("writing", &path))?;
        }
        Ok(())
    }
}

/// A file of the person's, where it is one that a tool would read.
fn text_of(path: &Path) -> Option<String> {
    let meta = path.metadata().ok()?;
    (meta.is_file() && meta.len() <= supervise::toolconf::LARGEST).then(|| std::fs::read_to_string(path).ok()).flatten()
}
