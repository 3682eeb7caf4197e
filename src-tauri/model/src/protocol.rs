//! Words between a warden and whoever watches it (window, command line), over a Unix socket.
//!
//! A frame is `length: u32 big-endian` (of what follows), `kind: u8`, `payload`. A connection starts with the client's
//! [`Request::Hello`]; a version that differs is answered with [`Reply::Error`] and closed.

use crate::ask::Answer;
use crate::event::Event;
use crate::id::{AskId, GrantId, RunId, TaskId};
use crate::run::{Cache, Outcome};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of frames and of [`crate::run::RunSpec`].
pub const VERSION: u32 = 1;

/// Largest frame that either side accepts, in bytes.
pub const MAX_FRAME: u32 = 1 << 20;

/// Frame kinds.
pub mod kind {
    /// A [`super::Request`] or a [`super::Reply`] as JSON.
    pub const JSON: u8 = 0;
    /// Terminal or stdout bytes from the command; stdin bytes to it.
    pub const OUT: u8 = 1;
    /// Stderr bytes from the command (pipes only).
    pub const ERR: u8 = 2;
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum Request {
    /// First frame.
    Hello {
        /// Must equal [`VERSION`].
        version: u32,
    },
    /// Send output from now on, after at most `replay` bytes of what was printed before.
    Output {
        /// Bytes of scrollback.
        replay: u64,
    },
    /// Send events from this sequence number on.
    Events {
        /// First wanted.
        from: u64,
        /// Kinds that are wanted; all where empty.
        #[serde(default)]
        kinds: Vec<String>,
    },
    /// The terminal has a new size.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// No more stdin.
    Eof,
    /// Send a signal to the command's process group.
    Signal {
        /// Number.
        signal: i32,
    },
    /// End the run: every process.
    Stop,
    /// Stop every process until `Thaw` or until this connection closes.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Stop every process until `Continue`, whoever is connected.
    Pause,
    /// End the pause.
    Continue,
    /// Answer an ask of this run.
    Answer {
        /// Which.
        ask: AskId,
        /// [`crate::ask::Ask::digest`] of what was shown.
        digest: String,
        /// What the person says.
        #[serde(flatten)]
        answer: Answer,
    },
    /// Grants were made or taken back: read them anew.
    Grants,
    /// Let the person's browser look at a port of the jail.
    Preview {
        /// Which.
        port: u16,
    },
    /// End that.
    Unpreview {
        /// Which.
        port: u16,
    },
    /// Ask for [`Reply::Status`].
    Status,
}

/// Who paused a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PausedBy {
    /// The person.
    Person,
    /// A limit that was reached.
    Limit,
}

/// What a warden says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum Reply {
    /// Answer to hello.
    Welcome {
        /// Task.
        task: TaskId,
        /// Run.
        run: RunId,
        /// The warden's own process id.
        pid: u32,
    },
    /// Answer to status.
    Status {
        /// Process id of the command inside the jail's own numbering (2 as a rule).
        command: u32,
        /// Live processes in the jail.
        processes: u32,
        /// Whether frozen.
        frozen: bool,
        /// Whether paused, and by whom.
        #[serde(default)]
        paused: Option<PausedBy>,
    },
    /// An event.
    Event {
        /// It.
        event: Box<Event>,
    },
    /// Output came faster than this client read, and its older part went by the limit.
    Missed {
        /// Bytes that are not sent.
        bytes: u64,
    },
    /// Everything is stopped; the workspace does not change until the thaw.
    Frozen {
        /// False when it could not be confirmed twice.
        complete: bool,
    },
    /// They go on.
    Thawed,
    /// Answer to pause.
    Paused {
        /// False where not every process could be stopped: they go on then.
        complete: bool,
    },
    /// Answer to continue.
    Continued {
        /// False where the run was not paused.
        was: bool,
    },
    /// Answer to an answer.
    Answered {
        /// What it permits; none for a denial.
        grant: Option<GrantId>,
    },
    /// The ask is not the one that was shown, or is not open.
    NotAsked {
        /// In words.
        message: String,
    },
    /// Answer to grants.
    GrantsRead {
        /// Connections that were closed, as nothing permits them any more.
        closed: u64,
    },
    /// Answer to preview.
    Previewed {
        /// A link for one use.
        link: String,
    },
    /// It was ended.
    Unpreviewed {
        /// Whether there was one.
        was: bool,
    },
    /// There is no preview; why.
    NotPreviewed {
        /// In words.
        message: String,
    },
    /// The run ended; output and events are complete.
    Ended {
        /// How.
        outcome: Outcome,
    },
    /// A request could not be done.
    Error {
        /// In words.
        message: String,
    },
}

/// What `airlock-warden caches` reads from stdin: caches to be copied, in the background of whatever else is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCaches {
    /// Where copies are kept.
    #[serde(with = "crate::path::text")]
    pub root: PathBuf,
    /// Which.
    pub caches: Vec<Cache>,
}

/// A line that it prints on stdout: how far one of them is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCopy {
    /// Which.
    pub name: String,
    /// Files so far.
    pub files: u64,
    /// Whether this is the last word on it.
    pub ended: bool,
    /// Why there is no new copy, at the end.
    pub problem: Option<String>,
}

/// First line that a warden prints on stdout, as JSON, for its starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "start", rename_all = "lowercase")]
pub enum Start {
    /// The jail stands and the command is about to run.
    Started {
        /// The jail's report as JSON.
        report: serde_json::Value,
    },
    /// Nothing runs.
    Refused {
        /// Exit code for the command line (§11: 2 policy, 4 promise, 5 not found, 7 machine).
        code: i32,
        /// What happened, why, what to do.
        message: String,
        /// The jail's own refusal as JSON, where it was the jail (see the crate `jail-plan`).
        #[serde(default)]
        refusal: Option<serde_json::Value>,
    },
}
