//! A run: what the engine hands to a warden, and how it ends.

use crate::id::{RunId, TaskId};
use crate::layout::{Layout, TaskDir};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything that a warden needs to own one run; read from its stdin as one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Must equal [`crate::protocol::VERSION`].
    pub version: u32,
    /// Task.
    pub task: TaskId,
    /// Run.
    pub run: RunId,
    /// Airlock's directories.
    pub layout: Layout,
    /// The task's directory.
    pub dir: TaskDir,
    /// Path of the repository, where the worktree is shown inside the jail.
    #[serde(with = "crate::path::text")]
    pub workspace: PathBuf,
    /// The person's home, where the private home is shown inside the jail.
    #[serde(with = "crate::path::text")]
    pub home: PathBuf,
    /// Objects directories that the jail's git may read, in order.
    #[serde(with = "crate::path::texts")]
    pub history: Vec<PathBuf>,
    /// The policy in force, as text, with the name it goes by.
    pub policy: PolicyText,
    /// The command.
    pub argv: Vec<String>,
    /// More environment, on top of what the policy passes (values are the person's own words).
    pub env: Vec<(String, String)>,
    /// Host environment that `env.pass` picks from.
    pub host_env: Vec<(String, String)>,
    /// The person's `PATH` and the variables that say where tools are (see `supervise::tool_variables`); none of them is passed in as it is.
    pub tool_env: Vec<(String, String)>,
    /// More host paths shown read-only at the same place, for the agent's own install (subpaths of the home).
    #[serde(with = "crate::path::texts")]
    pub tools: Vec<PathBuf>,
    /// Caches of tools that are to be shown, as far as there is a copy of them.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// Terminal or pipes.
    pub stdio: Stdio,
    /// Host name inside, random per run.
    pub hostname: String,
    /// The jail program.
    #[serde(with = "crate::path::text")]
    pub jail_program: PathBuf,
    /// The git program that is shown inside and used by keepers.
    #[serde(with = "crate::path::text")]
    pub git_program: PathBuf,
}

/// A credential's secret on its way from the starter to the warden, over a pipe and never in a file. It does not show itself.
#[derive(Serialize, Deserialize)]
pub struct SecretWord {
    /// Which credential of the policy.
    pub credential: usize,
    text: Option<String>,
    /// Why it was not to be had, in words without it.
    #[serde(default)]
    why: Option<String>,
}

impl SecretWord {
    /// One, or why it was not to be had.
    pub fn new(credential: usize, found: Result<String, Option<String>>) -> Self {
        match found {
            Ok(text) => Self { credential, text: Some(text), why: None },
            Err(why) => Self { credential, text: None, why },
        }
    }

    /// Why it was not to be had, where that is known.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Whether it was not to be had.
    pub fn is_empty(&self) -> bool {
        self.text.is_none()
    }

    /// Takes its text out.
    pub fn take(mut self) -> Option<String> {
        self.text.take()
    }
}

/// A cache of the person's tools that a run is to find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Its name, which is also that of its directory of copies.
    pub name: String,
    /// Where the person's tools keep it.
    #[serde(with = "crate::path::text")]
    pub source: PathBuf,
    /// Where tools inside look for it.
    #[serde(with = "crate::path::text")]
    pub target: PathBuf,
    /// What is missing of it, or why there is none, as far as it is known before the start.
    #[serde(default)]
    pub note: Option<String>,
}

/// A policy's text and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyText {
    /// Preset's name or file's path.
    pub name: String,
    /// TOML.
    pub text: String,
    /// The repository's own file from the base commit, which can only narrow.
    pub repository: Option<String>,
}

/// How the command's standard streams are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stdio {
    /// A terminal of this size, made inside the jail.
    Terminal {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// Three pipes.
    Pipes,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Exit code of the command.
    pub exit: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Limit that ended it, e.g. `wall`.
    pub limit: Option<String>,
    /// Why the run was refused before its command started.
    pub refused: Option<String>,
}

/// One run as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its task.
    pub task: TaskId,
    /// Host name inside.
    pub hostname: String,
    /// Argv.
    pub argv: Vec<String>,
    /// Unix milliseconds.
    pub started: u64,
    /// Unix milliseconds.
    pub ended: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The jail's own report, as JSON (see the crate `jail-plan`).
    pub report: Option<serde_json::Value>,
    /// File that holds its output.
    #[serde(with = "crate::path::text")]
    pub log: PathBuf,
}
