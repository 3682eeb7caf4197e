//! The demo: a built-in little repository and a built-in scripted agent, so that a newcomer sees a whole task in a minute.

use crate::create::{NewTask, Progress};
use crate::error::Error;
use crate::{Engine, host};
use model::id::TaskId;
use model::task::Repo;

const FILES: [(&str, &[u8]); 4] = [
    ("README.md", include_bytes!("demo/README.md")),
    ("greet.sh", include_bytes!("demo/greet.sh")),
    ("check.sh", include_bytes!("demo/check.sh")),
    ("names.txt", include_bytes!("demo/names.txt")),
];

/// What the scripted agent runs.
const AGENT: &str = include_str!("demo/agent.sh");

impl Engine {
    /// The demo's repository, made where it is not there yet.
    pub fn demo_repo(&self) -> Result<Repo, Error> {
        let dir = self.host.cache.join("demo").join("greeter");
        if !dir.join(".git").exists() {
            if let Some(parent) = dir.parent() {
                host::private_directory(parent)?;
            }
            worktree::seed(&dir, &FILES)?;
        }
        self.repo_add(&dir)
    }

    /// Makes the demo's task. Launch it like any other.
    pub fn demo(&self, progress: &dyn Fn(Progress)) -> Result<TaskId, Error> {
        let repo = self.demo_repo()?;
        let new = NewTask {
            prompt: "Greet every name politely, and check that it works".into(),
            argv: vec!["/bin/sh".into(), "-c".into(), AGENT.into()],
            ..NewTask::default()
        };
        Ok(self.create(&repo.id, &new, progress)?.id)
    }
}
