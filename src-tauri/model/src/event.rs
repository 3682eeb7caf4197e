//! What happened in a run, as a closed list.

use crate::id::{AskId, GrantId, RunId};
use crate::path::RawPath;
use serde::{Deserialize, Serialize};

/// One thing that happened. In JSON: `{"seq":…,"time":…,"run":…,"count":1,"process":{…},"kind":"file",…}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the task's log, from 1, without gaps.
    pub seq: u64,
    /// Unix milliseconds.
    pub time: u64,
    /// Which run.
    pub run: RunId,
    /// How many like it this row stands for (≥ 1).
    pub count: u64,
    /// Who, where the kernel said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<Process>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// A process as the kernel knows it; `argv` is the program's own word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id inside the jail (0 where unknown).
    pub pid: u32,
    /// Parent inside the jail (0 where unknown).
    pub parent: u32,
    /// Name of the executable by the kernel (last component of `/proc/PID/exe`).
    pub program: RawPath,
    /// Where the executable is, inside the jail.
    pub exe: RawPath,
    /// Where the executable comes from.
    pub origin: Origin,
    /// What the program calls itself; capped.
    pub argv: Vec<RawPath>,
    /// Ancestors' program names, nearest first, up to the jail's init; capped.
    pub ancestry: Vec<(u32, RawPath)>,
}

/// Where an executable comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A system directory.
    System,
    /// A tool of the person's home that the policy brought in.
    Tool,
    /// Something that the task itself wrote.
    Task,
    /// Could not be told.
    Unknown,
}

/// What the platform did about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It went ahead.
    Allowed,
    /// It was refused.
    Denied,
    /// It waits for the person.
    Held,
    /// Seen; nobody had to decide.
    Noted,
}

/// The closed list of things that happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum What {
    /// A file.
    File {
        /// What was done or tried.
        op: FileOp,
        /// The path as the program wrote it or as the watch saw it (relative to the workspace then).
        path: RawPath,
        /// New name of a rename.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        to: Option<RawPath>,
        /// What came of it.
        verdict: Verdict,
        /// Rule, e.g. `files.hide`.
        rule: String,
    },
    /// A process.
    Process {
        /// What it did.
        op: ProcessOp,
        /// Exit code or signal for an exit.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        status: Option<i32>,
    },
    /// A name asked for or a connection.
    Network {
        /// What was tried.
        op: NetOp,
        /// Name asked for; empty where a bare address was dialled.
        host: String,
        /// Address as seen inside, or the one connected to outside.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        address: Option<String>,
        /// Port; 0 for names.
        port: u16,
        /// What came of it.
        verdict: Verdict,
        /// Rule, e.g. `network.rule[0]`, `network.default`, `address check`.
        rule: String,
        /// In words.
        reason: String,
        /// Bytes from the jail, at the end of a connection.
        sent: u64,
        /// Bytes to the jail, at the end of a connection.
        received: u64,
        /// The request, where requests are read.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        http: Option<Box<Http>>,
        /// How a connection that was let in is carried.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        carried: Option<Carried>,
    },
    /// Something waits for the person.
    Ask {
        /// Which ask.
        ask: AskId,
        /// What it is about, e.g. `example.org:443`.
        about: String,
        /// Rule that asks.
        rule: String,
    },
    /// The person decided, or what they permitted came to its end.
    Decision {
        /// The ask that was answered.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        ask: Option<AskId>,
        /// The grant that was made, or ended.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        grant: Option<GrantId>,
        /// What it is about.
        about: String,
        /// What was decided.
        verdict: Verdict,
        /// In words: how far it reaches and until when, or why it ended.
        detail: String,
    },
    /// A limit was reached.
    Limit {
        /// Which, e.g. `processes`, `wall`, `output`, `events`.
        limit: String,
        /// In words, with the figure.
        detail: String,
    },
    /// A run or its task moved on.
    Lifecycle {
        /// What, e.g. `started`, `ended`, `stopped`, `frozen`, `thawed`, `paused`, `continued`, `candidate`, `reviewed`, `applied`, `undone`, `promise`.
        phase: String,
        /// In words.
        detail: String,
    },
}

/// How a connection is carried, and for how long it was at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Which way.
    pub mode: Mode,
    /// Milliseconds; 0 at its beginning.
    pub millis: u64,
}

/// What is looked at of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Its name and address, and the name that TLS asks for.
    Tunnel,
    /// Each of its requests.
    Inspect,
    /// Its name and address.
    Unread,
}

/// A request of HTTP: never its query, headers or body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// Whether it came over TLS.
    #[serde(default = "yes")]
    pub tls: bool,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Status of the answer; none while it is held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// Until the head of the answer.
    pub millis: u64,
}

/// What was done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileOp {
    /// Read or listed (told only for hidden places).
    Read,
    /// Opened with the intent to write.
    Write,
    /// Made.
    Create,
    /// Changed.
    Change,
    /// Renamed.
    Rename,
    /// Removed.
    Delete,
}

/// What a process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessOp {
    /// Became another program.
    Exec,
    /// Ended.
    Exit,
}

/// What was tried on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetOp {
    /// A name was asked for.
    Lookup,
    /// A connection was opened.
    Connect,
    /// A connection ended.
    Close,
    /// A request of HTTP on a connection whose requests are read.
    Request,
    /// A port was bound inside.
    Bind,
}

/// The filter words of `airlock events --kind`.
pub const KINDS: [&str; 7] = ["file", "process", "network", "ask", "decision", "limit", "lifecycle"];

impl What {
    /// The `kind` word.
    pub fn kind(&self) -> &'static str {
        match self {
            What::File { .. } => "file",
            What::Process { .. } => "process",
            What::Network { .. } => "network",
            What::Ask { .. } => "ask",
            What::Decision { .. } => "decision",
            What::Limit { .. } => "limit",
            What::Lifecycle { .. } => "lifecycle",
        }
    }
}

/// What was kept before it was told.
fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_json_object() {
        let e = Event {
            seq: 1,
            time: 2,
            run: RunId::from_random([0; 8]),
            count: 1,
            process: None,
            what: What::File {
                op: FileOp::Read,
                path: RawPath::from("a\n"),
                to: None,
                verdict: Verdict::Denied,
                rule: "files.hide".into(),
            },
        };
        let json = serde_json::to_string(&e).unwrap_or_default();
        assert_eq!(
            json,
            r#"{"seq":1,"time":2,"run":"aaaaaaaa","count":1,"kind":"file","op":"read","path":"a\\x0a","verdict":"denied","rule":"files.hide"}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).ok(), Some(e), "what is written must be readable");
    }
}
