//! Events as the window shows them.

use serde::Serialize;
use ts_rs::TS;

/// One thing that happened.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    seq: u64,
    time: u64,
    run: String,
    count: u64,
    process: Option<Process>,
    what: What,
}

/// A process as the kernel knows it; `argv` is the program's own word.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    pid: u32,
    parent: u32,
    program: String,
    exe: String,
    origin: Origin,
    argv: Vec<String>,
    ancestry: Vec<Ancestor>,
}

/// One ancestor of a process.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Ancestor {
    pid: u32,
    program: String,
}

/// Where an executable comes from.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    System,
    Tool,
    Task,
    Unknown,
}

/// What the platform did about it.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Allowed,
    Denied,
    Held,
    Noted,
}

/// What was done to a file.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileOp {
    Read,
    Write,
    Create,
    Change,
    Rename,
    Delete,
}

/// What a process did.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessOp {
    Exec,
    Exit,
}

/// What was tried on the network.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetOp {
    Lookup,
    Connect,
    Close,
    Request,
    Bind,
}

/// The closed list of things that happen.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum What {
    File {
        op: FileOp,
        path: String,
        to: Option<String>,
        verdict: Verdict,
        rule: String,
    },
    Process {
        op: ProcessOp,
        status: Option<i32>,
    },
    Network {
        op: NetOp,
        host: String,
        address: Option<String>,
        port: u16,
        verdict: Verdict,
        rule: String,
        reason: String,
        sent: u64,
        received: u64,
        http: Option<Http>,
        carried: Option<Carried>,
    },
    Ask {
        ask: String,
        about: String,
        rule: String,
    },
    Decision {
        ask: Option<String>,
        grant: Option<String>,
        about: String,
        verdict: Verdict,
        detail: String,
    },
    Limit {
        limit: String,
        detail: String,
    },
    Lifecycle {
        phase: String,
        detail: String,
    },
}

/// A request of HTTP on a connection whose requests are read.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Http {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Status of the answer; none while it is held.
    pub(crate) status: Option<u16>,
    /// Until the head of the answer.
    pub(crate) millis: u64,
}

/// How a connection is carried.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Carried {
    pub(crate) mode: Mode,
    /// How long it was, at its end.
    pub(crate) millis: u64,
}

/// What is looked at of a connection.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Tunnel,
    Inspect,
    Unread,
}

/// A part of a task's log, in order.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventBatch {
    /// The events.
    pub(crate) events: Vec<Event>,
    /// Whether the log holds no more than this for now.
    pub(crate) caught_up: bool,
}

impl From<model::event::Event> for Event {
    fn from(e: model::event::Event) -> Self {
        Self {
            seq: e.seq,
            time: e.time,
            run: e.run.to_string(),
            count: e.count,
            process: e.process.map(Into::into),
            what: e.what.into(),
        }
    }
}

impl From<model::event::Process> for Process {
    fn from(p: model::event::Process) -> Self {
        Self {
            pid: p.pid,
            parent: p.parent,
            program: p.program.to_string(),
            exe: p.exe.to_string(),
            origin: match p.origin {
                model::event::Origin::System => Origin::System,
                model::event::Origin::Tool => Origin::Tool,
                model::event::Origin::Task => Origin::Task,
                model::event::Origin::Unknown => Origin::Unknown,
            },
            argv: p.argv.iter().map(ToString::to_string).collect(),
            ancestry: p.ancestry.into_iter().map(|(pid, program)| Ancestor { pid, program: program.to_string() }).collect(),
        }
    }
}

impl From<model::event::Verdict> for Verdict {
    fn from(v: model::event::Verdict) -> Self {
        match v {
            model::event::Verdict::Allowed => Self::Allowed,
            model::event::Verdict::Denied => Self::Denied,
            model::event::Verdict::Held => Self::Held,
            model::event::Verdict::Noted => Self::Noted,
        }
    }
}

impl From<model::event::What> for What {
    fn from(w: model::event::What) -> Self {
        use model::event as m;
        match w {
            m::What::File { op, path, to, verdict, rule } => Self::File {
                op: match op {
                    m::FileOp::Read => FileOp::Read,
                    m::FileOp::Write => FileOp::Write,
                    m::FileOp::Create => FileOp::Create,
                    m::FileOp::Change => FileOp::Change,
                    m::FileOp::Rename => FileOp::Rename,
                    m::FileOp::Delete => FileOp::Delete,
                },
                path: path.to_string(),
                to: to.map(|p| p.to_string()),
                verdict: verdict.into(),
                rule,
            },
            m::What::Process { op, status } => Self::Process {
                op: match op {
                    m::ProcessOp::Exec => ProcessOp::Exec,
                    m::ProcessOp::Exit => ProcessOp::Exit,
                },
                status,
            },
            m::What::Network { op, host, address, port, verdict, rule, reason, sent, received, http, carried } => Self::Network {
                op: match op {
                    m::NetOp::Lookup => NetOp::Lookup,
                    m::NetOp::Connect => NetOp::Connect,
                    m::NetOp::Close => NetOp::Close,
                    m::NetOp::Request => NetOp::Request,
                    m::NetOp::Bind => NetOp::Bind,
                },
                host,
                address,
                port,
                verdict: verdict.into(),
                rule,
                reason,
                sent,
                received,
                http: http.map(|h| Http { method: h.method, path: h.path, status: h.status, millis: h.millis }),
                carried: carried.map(|c| Carried {
                    mode: match c.mode {
                        m::Mode::Tunnel => Mode::Tunnel,
                        m::Mode::Inspect => Mode::Inspect,
                        m::Mode::Unread => Mode::Unread,
                    },
                    millis: c.millis,
                }),
            },
            m::What::Ask { ask, about, rule } => Self::Ask { ask: ask.to_string(), about, rule },
            m::What::Decision { ask, grant, about, verdict, detail } => Self::Decision {
                ask: ask.map(|a| a.to_string()),
                grant: grant.map(|g| g.to_string()),
                about,
                verdict: verdict.into(),
                detail,
            },
            m::What::Limit { limit, detail } => Self::Limit { limit, detail },
            m::What::Lifecycle { phase, detail } => Self::Lifecycle { phase, detail },
        }
    }
}
