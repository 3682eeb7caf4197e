//! What worktree asks of a keeper: a program run in a jail that sees one tree and Airlock's own git directory.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where the keeper's jail shows things.
pub mod inside {
    /// The tree that is read (or written, for a restore).
    pub const TREE: &str = "/tree";
    /// The person's working copy, read-only and without its `.git`, where a job has to do with it.
    pub const SOURCE: &str = "/source";
    /// The keeper's own git directory, writable.
    pub const GIT: &str = "/keeper";
    /// The task's objects, read-only.
    pub const OBJECTS: &str = "/objects";
    /// History directory number N is `/history/N`, read-only; each is a git objects directory.
    pub const HISTORY: &str = "/history";
    /// The program that is run: `airlock-warden keeper …`, and git from the system directories.
    pub const PROGRAM: &str = "/run/airlock/warden";
}

/// One job for a keeper. Its stdout is handed back; its stderr is for people.
#[derive(Debug, Clone)]
pub struct Job {
    /// Host path of the tree.
    pub tree: PathBuf,
    /// Whether the keeper may write the tree.
    pub write_tree: bool,
    /// Host path of the person's working copy, for a job that brings something along from it.
    pub source: Option<PathBuf>,
    /// Host path of the keeper's git directory.
    pub git: PathBuf,
    /// Host path of the task's objects.
    pub objects: PathBuf,
    /// Host paths of the history's objects directories.
    pub history: Vec<PathBuf>,
    /// Arguments after `airlock-warden keeper`.
    pub args: Vec<OsString>,
    /// Killed after this.
    pub time_limit: Duration,
}

/// A keeper that runs. Dropping it kills it.
pub trait Running: Send {
    /// Its stdout; taken once.
    fn stdout(&mut self) -> Option<Box<dyn std::io::Read + Send>>;
    /// Waits for the end. `Ok(code)` is the exit code (128 + signal for a kill), with the end of stderr.
    fn wait(&mut self) -> Result<(i32, String), KeeperError>;
}

/// Starts keepers. Filled by whoever may start jails.
pub trait Keeper: Send + Sync {
    /// Starts one.
    fn start(&self, job: Job) -> Result<Box<dyn Running>, KeeperError>;
}

/// A keeper that could not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The jail refused.
    #[error("the keeper's jail did not start: {message}")]
    Refused {
        /// What happened, why, what to do.
        message: String,
        /// The jail's own refusal as JSON (see the crate `jail-plan`).
        refusal: serde_json::Value,
    },
    /// It took too long.
    #[error(
        "the keeper did not finish within {0:?} and was ended: a file in the workspace may block readers (a FIFO or a device)"
    )]
    Timeout(Duration),
    /// Anything else.
    #[error("the keeper failed: {0}")]
    Failed(String),
}
