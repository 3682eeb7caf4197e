//! A jail written down: versioned plain data from whoever starts a jail to the jail program, and what comes back.
//!
//! Invariant: nothing here touches the system; a plan holds no policy, only steps that a policy was turned into.

mod promise;
mod raw;
mod report;
mod wire;

pub use promise::{Kept, PROMISES, Promise, promises, resting_on};
pub use raw::Raw;
pub use report::{Cache, Guarantee, Kind, Refusal, Report, Row, Status, Step as Stage};
pub use wire::{Answer, DESCRIPTORS, Handed, Say};

use serde::{Deserialize, Serialize};

/// Version of [`Plan`] and of [`Say`]; a jail program refuses any other.
pub const VERSION: u32 = 1;

/// Where a package puts the jail program: the one path that the AppArmor profile names.
pub const INSTALLED: &str = "/usr/lib/airlock/airlock-jail";

/// The name by which a policy accepts the jail without namespaces.
pub const NO_NAMESPACES: &str = "user-namespaces";

const SAME_INSTALLATION: &str = "airlock-jail and airlock-warden must come from the same installation";

/// The unprivileged host uid and gid of jails that root starts. No account has it: it lies above every range that
/// `useradd`, `systemd` or container tools give out, and below 2^31.
pub const HOST_ID: u32 = 2_147_400_000;

/// Everything that a jail is, in the order in which it comes to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Must equal [`VERSION`].
    pub version: u32,
    /// Host name inside.
    pub hostname: String,
    /// Who the jail's processes are.
    pub identity: Identity,
    /// How the new root is built, in this order. Targets are absolute paths inside the jail.
    pub root: Vec<Step>,
    /// What network there is.
    pub net: Net,
    /// Where the command's standard streams come from.
    pub stdio: Stdio,
    /// Limits that the kernel keeps.
    pub limits: Limits,
    /// The second lock: what Landlock lets the jail write and read.
    pub landlock: Landlock,
    /// Whether programs inside may make user, pid and network namespaces of their own, as browsers do for their sandbox. The
    /// report then says that system calls are kept in part only.
    pub nested: bool,
    /// Whether the command's execs, connections and writes are told through a seccomp listener.
    pub notify: bool,
    /// Whether `openat2` may be called, whose flags and mode no filter sees: for Airlock's own program, which looks beneath trees
    /// by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_beneath: bool,
    /// Guarantees that must be [`Status::Full`], else the start is refused.
    pub require: Vec<Guarantee>,
    /// Set for the weaker jail that has no namespaces: Landlock, filter and a listener alone, all in the host's own root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// The command. `argv[0]` without a slash is looked up in the `PATH` of `env`, inside the jail.
    pub argv: Vec<Raw>,
    /// The command's whole environment.
    pub env: Vec<(Raw, Raw)>,
    /// The command's working directory inside the jail.
    pub cwd: Raw,
}

/// What a jail without namespaces has beside Landlock's rules, which are all that it sees and writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// Files that it writes itself before the command runs, where it may write: path and contents.
    pub files: Vec<(Raw, Raw)>,
    /// Guarantees that may be [`Status::Partial`], and refuse the start where they are absent.
    pub partly: Vec<Guarantee>,
}

/// Ids inside the jail and on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Uid inside; never 0.
    pub uid: u32,
    /// Gid inside; never 0.
    pub gid: u32,
    /// Set when root starts the jail; without it the ids inside and outside are the same.
    pub mapped: Option<Mapped>,
}

/// How a jail that root starts is kept away from uid 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapped {
    /// Host uid that the jail's processes have.
    pub host_uid: u32,
    /// Host gid that the jail's processes have.
    pub host_gid: u32,
    /// Owner on disk of what the jail makes through an id-mapped bind.
    pub disk_uid: u32,
    /// Group on disk of what the jail makes through an id-mapped bind.
    pub disk_gid: u32,
}

/// One step of the new root. Missing parents of a target are made as directories, one component at a time and by file
/// descriptor; a symlink or a file in the way refuses the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// A directory.
    Dir {
        /// Where.
        target: Raw,
        /// Permission bits, in effect only when the directory is made.
        mode: u32,
    },
    /// A new file on the skeleton.
    File {
        /// Where; must not exist.
        target: Raw,
        /// What is in it.
        contents: Raw,
        /// Permission bits.
        mode: u32,
    },
    /// A read-only file mounted over a regular file that is there already (in a tree that the jail may write).
    Cover {
        /// The file that is covered; missing or odd refuses the start.
        target: Raw,
        /// What is seen instead.
        contents: Raw,
    },
    /// An empty, unreadable directory or file over what is there already.
    Mask {
        /// What is hidden.
        target: Raw,
        /// Whether a missing target refuses the start, since the jail may have moved what was there; else nothing is done.
        must_exist: bool,
    },
    /// A symlink on the skeleton.
    Symlink {
        /// Where; must not exist.
        target: Raw,
        /// What it says.
        points_to: Raw,
    },
    /// A host directory or file.
    Bind {
        /// Host path; symlinks on the way are followed, the last component must not be one.
        source: Raw,
        /// Where.
        target: Raw,
        /// Whether writing is allowed.
        access: Access,
        /// Whether mounts below the source come along.
        recursive: bool,
        /// Whether ids are mapped to `Mapped::disk_*`; counts only when `Identity::mapped` is set.
        idmapped: bool,
        /// A missing source is passed over.
        optional: bool,
    },
    /// A host directory as it is now, under a layer that takes whatever is written. It is a comfort (a cache): one that can't
    /// be made is left out whole, and told in [`Report::caches`].
    Overlay {
        /// Its name in the report.
        name: String,
        /// The host directory that is seen and never written; nothing may change in it while the jail lives.
        lower: Raw,
        /// A host directory with the directories `upper` and `work`, which take what is written.
        private: Raw,
        /// Where.
        target: Raw,
    },
    /// A file system in memory.
    Tmpfs {
        /// Where.
        target: Raw,
        /// Permission bits of its root.
        mode: u32,
        /// Bytes.
        size: u64,
    },
    /// The jail's own `/proc`, with what reaches the whole machine closed.
    Proc {
        /// Where.
        target: Raw,
    },
    /// A directory with the harmless device nodes and `shm`.
    Dev {
        /// Where.
        target: Raw,
        /// More of the host's, writable under the same name: paths below `/dev` of character devices, or of directories of
        /// which each character device directly in it is meant. One that is not there refuses the start.
        more: Vec<Raw>,
    },
    /// The jail's own pseudo-terminals.
    Devpts {
        /// Where.
        target: Raw,
    },
    /// A place of which every touch is refused and told; where the machine has no FUSE it is closed all the same.
    Decoy {
        /// The hidden place.
        target: Raw,
        /// What is there without it.
        on: Ground,
    },
}

/// What a decoy goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ground", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ground {
    /// A place of the jail's own with nothing of the person's in it: made where it is missing, left out where something
    /// odd is in the way.
    Own {
        /// What the decoy seems to be.
        looks: Looks,
    },
    /// Something of the person's that a bind shows: closed whatever it is.
    Shown {
        /// As in [`Step::Mask`].
        must_exist: bool,
    },
}

/// What a decoy seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Looks {
    /// A directory that can't be listed.
    Directory,
    /// A file that can't be opened.
    File,
    /// A file that is gone when it is opened: for what tools look for by themselves and only then do without.
    Gone,
}

/// Whether a bind may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Never.
    Read,
    /// By the jail's own rights.
    Write,
}

/// The jail's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// Its own loopback and nothing else.
    None,
    /// Its own loopback; every TCP connection to another address arrives at a listener that is handed out, and so do
    /// datagrams to port 53.
    WayOut,
}

/// The command's standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Stdio {
    /// A terminal made inside, whose master is handed out.
    Terminal {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// Three descriptors of the starter.
    Inherit,
}

/// Limits that the kernel keeps for each process or for the jail's user namespace. Those of the whole tree are a cgroup's or the starter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processes and threads of the jail, its init not counted.
    pub processes: u64,
    /// Processors that the jail runs on, where their number limits it.
    pub cpus: Option<u32>,
    /// Descriptors of one process.
    pub open_files: u64,
    /// Bytes of one file, where limited.
    pub file_size: Option<u64>,
    /// inotify instances of the jail.
    pub inotify_instances: u32,
    /// inotify watches of the jail.
    pub inotify_watches: u32,
}

/// Landlock's rules: absolute paths inside the jail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Landlock {
    /// Readable, executable, writable.
    pub writable: Vec<Raw>,
    /// Readable and executable.
    pub readable: Vec<Raw>,
    /// Directories of which names can be listed, at any depth, and nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed: Vec<Raw>,
}

impl Plan {
    /// Reads a plan; anything unknown in it is an error, since a step that is not understood may be a protection.
    pub fn from_json(json: &[u8]) -> Result<Self, Refusal> {
        let plan: Self = serde_json::from_slice(json)
            .map_err(|e| Refusal::new(Stage::Plan, Kind::Plan, format!("the plan can't be read: {e}"), SAME_INSTALLATION))?;
        plan.check()?;
        Ok(plan)
    }

    /// What must hold of every plan, whoever composed it.
    pub fn check(&self) -> Result<(), Refusal> {
        let bad = |reason: String| Refusal::new(Stage::Plan, Kind::Plan, reason, "this is a fault of Airlock's");
        if self.version != VERSION {
            return Err(Refusal {
                hint: SAME_INSTALLATION.into(),
                ..bad(format!("the plan has version {}, this jail program reads {VERSION}", self.version))
            });
        }
        if self.identity.uid == 0 || self.identity.gid == 0 {
            return Err(bad("the plan asks for uid or gid 0 inside".into()));
        }
        if self.identity.mapped.is_some_and(|m| m.host_uid == 0 || m.host_gid == 0) {
            return Err(bad("the plan asks for host uid or gid 0".into()));
        }
        if self.argv.is_empty() || self.argv[0].as_bytes().is_empty() {
            return Err(bad("the plan names no command".into()));
        }
        if let Some(path) = self.root.iter().flat_map(Step::devices).find(|p| !p.as_bytes().starts_with(b"/dev/")) {
            return Err(bad(format!("`{path}` is asked for as a device and does not lie in /dev")));
        }
        if let Some(fallback) = &self.fallback {
            let none = self.root.is_empty() && self.net == Net::None && self.identity.mapped.is_none() && !self.nested;
            if !none || !self.notify {
                return Err(bad("a jail without namespaces has no root, network or ids of its own, and a listener".into()));
            }
            if self.landlock.writable.iter().chain(&self.landlock.readable).any(|p| p.as_bytes() == b"/") {
                return Err(bad("a jail without namespaces may not see everything".into()));
            }
            let below = |path: &Raw| self.landlock.writable.iter().any(|w| path.as_path().starts_with(w.as_path()));
            if let Some((path, _)) = fallback.files.iter().find(|(path, _)| !below(path)) {
                return Err(bad(format!("`{path}` is to be written where nothing may be")));
            }
        }
        let targets = self.root.iter().flat_map(|s| s.devices().iter().chain([s.target()])).chain([&self.cwd]);
        let written = self.fallback.iter().flat_map(|f| &f.files).map(|(path, _)| path);
        let paths =
            targets.chain(&self.landlock.writable).chain(&self.landlock.readable).chain(&self.landlock.listed).chain(written);
        for path in paths {
            let b = path.as_bytes();
            let plain = b.split(|c| *c == b'/').skip(1).all(|c| c != b".." && c != b"." && !c.is_empty());
            if b != b"/" && (b.first() != Some(&b'/') || !plain || b.contains(&0)) {
                return Err(bad(format!("`{path}` is not a plain absolute path")));
            }
        }
        let words = self.argv.iter().chain(self.env.iter().flat_map(|(k, v)| [k, v]));
        if let Some(word) = words.into_iter().find(|w| w.as_bytes().contains(&0)) {
            return Err(bad(format!("`{word}` holds a NUL byte, which no argument or variable can")));
        }
        Ok(())
    }
}

impl Step {
    /// The devices that it asks for.
    fn devices(&self) -> &[Raw] {
        match self {
            Self::Dev { more, .. } => more,
            _ => &[],
        }
    }

    /// Where the step acts, inside the jail.
    pub fn target(&self) -> &Raw {
        match self {
            Self::Dir { target, .. }
            | Self::File { target, .. }
            | Self::Cover { target, .. }
            | Self::Mask { target, .. }
            | Self::Symlink { target, .. }
            | Self::Bind { target, .. }
            | Self::Overlay { target, .. }
            | Self::Tmpfs { target, .. }
            | Self::Proc { target }
            | Self::Dev { target, .. }
            | Self::Devpts { target }
            | Self::Decoy { target, .. } => target,
        }
    }
}
