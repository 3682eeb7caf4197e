//! Where Airlock keeps things (XDG). Composed here, read and made elsewhere.

use crate::id::{RepoId, RunId, TaskId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Airlock's three directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// `$XDG_DATA_HOME/airlock`
    #[serde(with = "crate::path::text")]
    pub data: PathBuf,
    /// `$XDG_CONFIG_HOME/airlock`
    #[serde(with = "crate::path::text")]
    pub config: PathBuf,
    /// `$XDG_RUNTIME_DIR/airlock`, mode 0700
    #[serde(with = "crate::path::text")]
    pub runtime: PathBuf,
}

impl Layout {
    /// The database of tasks, reviews and exits.
    pub fn database(&self) -> PathBuf {
        self.data.join("airlock.db")
    }
    /// Everything of one repository.
    pub fn repo(&self, repo: &RepoId) -> PathBuf {
        self.data.join("repos").join(repo.as_str())
    }
    /// Copies of the caches of the person's tools.
    pub fn caches(&self) -> PathBuf {
        self.data.join("caches")
    }
    /// Everything of one task.
    pub fn task(&self, task: &TaskId) -> TaskDir {
        TaskDir(self.data.join("tasks").join(task.as_str()))
    }
    /// The socket of a task's live warden.
    pub fn socket(&self, task: &TaskId) -> PathBuf {
        self.runtime.join(format!("{task}.sock"))
    }
}

/// One task's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDir(#[serde(with = "crate::path::text")] pub PathBuf);

impl TaskDir {
    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// The worktree. Written by the agent: never opened by path outside the keeper.
    pub fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }
    /// The private git directory. Written by the agent.
    pub fn git(&self) -> PathBuf {
        self.0.join("git")
    }
    /// The private home. Written by the agent.
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }
    /// What is else `/tmp`, of a run without namespaces. Written by the agent.
    pub fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }
    /// Links to the history, where the private git directory looks for it in a run without namespaces.
    pub fn shown_history(&self) -> PathBuf {
        self.0.join("history")
    }
    /// What the task adds to a cache. Written by the agent, through an overlay alone.
    pub fn cache(&self, name: &str) -> PathBuf {
        self.0.join("caches").join(name)
    }
    /// Candidates and snapshots as git objects; written by Airlock only.
    pub fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }
    /// The keeper's own git directory (index, new objects); written by keepers only.
    pub fn keeper(&self) -> PathBuf {
        self.0.join("keeper")
    }
    /// Small files that Airlock generates for the jail: `dotgit`, `passwd`, `group`, `hosts`, …
    pub fn jail(&self) -> PathBuf {
        self.0.join("jail")
    }
    /// The event log.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.db")
    }
    /// The lock whose holder is the task's warden.
    pub fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }
    /// Output of one run, as the terminal or the pipes gave it.
    pub fn log(&self, run: &RunId) -> PathBuf {
        self.0.join("logs").join(format!("{run}.log"))
    }
}
