//! What a jail says about itself: one row a guarantee, or why there is no jail.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a person relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// It writes only where the plan lets it.
    Writes,
    /// It reads nothing of the person's beyond the plan.
    Reads,
    /// It reaches no process, socket, display or kernel table outside.
    Control,
    /// It reaches no network but through the starter.
    Network,
    /// It makes no system call that the filter refuses.
    Syscalls,
    /// It gets no variable, descriptor, terminal or session of the person's.
    Inherited,
    /// It ends whole: no process of it is left.
    Ends,
    /// The second lock on files, should the first have a hole.
    Landlock,
    /// It has no more processes than the plan says.
    Processes,
    /// None of its processes has more open files than the plan says.
    #[serde(rename = "open_files")]
    OpenFiles,
    /// It ends when its time is over.
    Wall,
    /// It uses no more memory than the plan says.
    Memory,
    /// It uses no more CPU than the plan says.
    Cpu,
    /// It fills no more disk than the plan says.
    Disk,
    /// It sends and receives no more bytes than its starter was told.
    Bytes,
    /// What it prints fills no disk.
    Output,
    /// It uses up no table of the kernel that it shares with the person.
    Quotas,
    /// A touch of a hidden place is told.
    Decoys,
    /// Execs, connections and writes are told.
    Events,
}

impl Guarantee {
    /// Every one, in the order of a report.
    pub const ALL: [Self; 19] = [
        Self::Writes,
        Self::Reads,
        Self::Control,
        Self::Network,
        Self::Syscalls,
        Self::Inherited,
        Self::Ends,
        Self::Landlock,
        Self::Processes,
        Self::OpenFiles,
        Self::Wall,
        Self::Memory,
        Self::Cpu,
        Self::Disk,
        Self::Bytes,
        Self::Output,
        Self::Quotas,
        Self::Decoys,
        Self::Events,
    ];

    /// Those without which no run starts, unless the person's own policy accepts the loss by its name. Landlock is a second
    /// lock on what the mounts keep already; limits, decoys and events are told where they are not in full, and start.
    pub const REQUIRED: [Self; 7] =
        [Self::Writes, Self::Reads, Self::Control, Self::Network, Self::Syscalls, Self::Inherited, Self::Ends];

    /// The guarantee of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.to_string() == name)
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writes => "writes",
            Self::Reads => "reads",
            Self::Control => "control",
            Self::Network => "network",
            Self::Syscalls => "syscalls",
            Self::Inherited => "inherited",
            Self::Ends => "ends",
            Self::Landlock => "landlock",
            Self::Processes => "processes",
            Self::OpenFiles => "open_files",
            Self::Wall => "wall",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Bytes => "bytes",
            Self::Output => "output",
            Self::Quotas => "quotas",
            Self::Decoys => "decoys",
            Self::Events => "events",
        })
    }
}

/// How far a guarantee holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// In full.
    Full,
    /// With a hole that the reason names.
    Partial {
        /// In words.
        reason: String,
    },
    /// Not at all.
    Absent {
        /// In words.
        reason: String,
    },
}

impl Status {
    /// A [`Status::Partial`].
    pub fn partial(reason: impl Into<String>) -> Self {
        Self::Partial { reason: reason.into() }
    }

    /// A [`Status::Absent`].
    pub fn absent(reason: impl Into<String>) -> Self {
        Self::Absent { reason: reason.into() }
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Full => None,
            Self::Partial { reason } | Self::Absent { reason } => Some(reason),
        }
    }
}

/// One guarantee and how far it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub guarantee: Guarantee,
    /// By what, in words; empty where by nothing.
    #[serde(default)]
    pub how: String,
    /// How far.
    #[serde(flatten)]
    pub status: Status,
}

/// One row for each of [`Guarantee::ALL`], and what became of the caches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The rows.
    pub rows: Vec<Row>,
    /// Losses that the person's policy accepts by name; the starter's word, not the jail's.
    #[serde(default)]
    pub accepted: Vec<Guarantee>,
    /// The caches that were to be shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
}

/// A cache of the person's that was to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub shown: bool,
    /// Why not, or what of it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Default for Report {
    fn default() -> Self {
        let row = |guarantee| Row { guarantee, how: String::new(), status: Status::absent("not set up") };
        Self { rows: Guarantee::ALL.into_iter().map(row).collect(), accepted: Vec::new(), caches: Vec::new() }
    }
}

impl Report {
    /// Sets how far a guarantee holds; by what stays as it was said.
    pub fn set(&mut self, guarantee: Guarantee, status: Status) {
        let how = self.row(guarantee).map(|r| r.how.clone()).unwrap_or_default();
        self.keep(guarantee, how, status);
    }

    /// Sets a row: by what a guarantee holds, and how far.
    pub fn keep(&mut self, guarantee: Guarantee, how: impl Into<String>, status: Status) {
        self.rows.retain(|r| r.guarantee != guarantee);
        self.rows.push(Row { guarantee, how: how.into(), status });
        self.rows.sort_by_key(|r| r.guarantee);
    }

    /// The row of a guarantee.
    pub fn row(&self, guarantee: Guarantee) -> Option<&Row> {
        self.rows.iter().find(|r| r.guarantee == guarantee)
    }

    /// How far a guarantee holds.
    pub fn status(&self, guarantee: Guarantee) -> Option<&Status> {
        self.row(guarantee).map(|r| &r.status)
    }

    /// Whatever of [`Guarantee::REQUIRED`] is lost and not among `accepted`.
    pub fn missing_all(&self, accepted: &[Guarantee]) -> Vec<Refusal> {
        let required = Guarantee::REQUIRED.into_iter().filter(|g| !accepted.contains(g));
        required.filter_map(|g| self.missing(&[g])).collect()
    }

    /// The first of `required` that does not hold in full, as the refusal that it is.
    pub fn missing(&self, required: &[Guarantee]) -> Option<Refusal> {
        self.first_lost(required, |status| status == Some(&Status::Full))
    }

    /// The first that does not hold even in part.
    pub fn absent(&self, partly: &[Guarantee]) -> Option<Refusal> {
        self.first_lost(partly, |status| matches!(status, Some(Status::Full | Status::Partial { .. })))
    }

    fn first_lost(&self, of: &[Guarantee], holds: impl Fn(Option<&Status>) -> bool) -> Option<Refusal> {
        of.iter().find(|g| !holds(self.status(**g))).map(|g| {
            let reason = format!(
                "{}: `{g}` can't be kept in full: {}",
                crate::promise::resting_on(*g),
                self.status(*g).and_then(Status::reason).unwrap_or("it was not set up")
            );
            let hint =
                format!("`airlock doctor` says what this machine lacks; your own policy can accept the loss: accept = [\"{g}\"]");
            Refusal { lost: Some(*g), ..Refusal::new(Step::Report, Kind::Promise, reason, hint) }
        })
    }
}

/// Where a start stopped: the jail's own steps, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Starting the jail program and talking to it.
    Start,
    /// Reading the plan.
    Plan,
    /// Id-mapped mounts, made by root.
    Idmap,
    /// The namespaces.
    Namespaces,
    /// Uid and gid.
    Identity,
    /// Quotas of the user namespace.
    Quotas,
    /// Loopback, routes, packet rules, sockets.
    Network,
    /// The new root.
    Mounts,
    /// The jail's own `/proc`.
    Proc,
    /// The decoy.
    Decoys,
    /// `pivot_root`.
    Pivot,
    /// Resource limits.
    Limits,
    /// The terminal.
    Terminal,
    /// Capabilities and `no_new_privs`.
    Privileges,
    /// Landlock.
    Landlock,
    /// The system call filter.
    Seccomp,
    /// The listener for events.
    Notify,
    /// Looking at the rows that must be full.
    Report,
    /// The command itself.
    Exec,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Plan => "plan",
            Self::Idmap => "id-mapped mounts",
            Self::Namespaces => "namespaces",
            Self::Identity => "identity",
            Self::Quotas => "quotas",
            Self::Network => "network",
            Self::Mounts => "mounts",
            Self::Proc => "new /proc",
            Self::Decoys => "decoys",
            Self::Pivot => "new root",
            Self::Limits => "limits",
            Self::Terminal => "terminal",
            Self::Privileges => "privileges",
            Self::Landlock => "landlock",
            Self::Seccomp => "system call filter",
            Self::Notify => "events",
            Self::Report => "report",
            Self::Exec => "command",
        })
    }
}

/// Whose fault a refusal is, which is what an exit code is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The plan itself.
    Plan,
    /// The machine lacks something or forbids it.
    Machine,
    /// A promise can't be kept (a required row that is not full).
    Promise,
    /// Something odd waits where a mount goes.
    Workspace,
    /// The command is not there or can't be run.
    NotFound,
}

impl Kind {
    /// The command line's exit code for it.
    pub fn exit(self) -> i32 {
        match self {
            Self::Plan => 7,
            Self::Machine | Self::Promise => 4,
            Self::Workspace => 6,
            Self::NotFound => 5,
        }
    }
}

/// Why there is no jail. Nothing of the command ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {reason} ({hint})")]
pub struct Refusal {
    /// The step that could not be done.
    pub step: Step,
    /// Whose fault.
    pub kind: Kind,
    /// What happened, with the path.
    pub reason: String,
    /// What to do about it.
    pub hint: String,
    /// The error number that the kernel gave, where it was the kernel.
    #[serde(default)]
    pub errno: Option<i32>,
    /// The guarantee that is lost, for [`Kind::Promise`].
    #[serde(default)]
    pub lost: Option<Guarantee>,
}

impl Refusal {
    /// One without an error number.
    pub fn new(step: Step, kind: Kind, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { step, kind, reason: reason.into(), hint: hint.into(), errno: None, lost: None }
    }

    /// Whether the machine gives no user namespaces with rights, which another kind of jail does without.
    pub fn lacks_namespaces(&self) -> bool {
        // EPERM, EACCES, EINVAL, ENOSPC, ENOSYS, EUSERS.
        let refused = self.errno.is_some_and(|e| [1, 13, 22, 28, 38, 87].contains(&e));
        self.kind == Kind::Machine && refused && matches!(self.step, Step::Namespaces | Step::Identity | Step::Quotas)
    }
}
