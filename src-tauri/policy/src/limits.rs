//! Bounds of a run: the section `[limits]`.

use crate::problem::quote;
use crate::read::{At, Notes, Table};
use crate::source::Whose;
use crate::unit;
use std::time::Duration;

/// Bounds of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of memory, of all processes together.
    pub memory: u64,
    /// Most processors' worth of time.
    pub cpus: u64,
    /// Most processes and threads at once.
    pub processes: u64,
    /// Most bytes that workspace and private home may grow by.
    pub disk: u64,
    /// Longest time from start to end.
    pub wall: Duration,
    /// Most bytes sent to other machines.
    pub bytes_out: u64,
    /// Most bytes received from other machines.
    pub bytes_in: u64,
    /// Most open files a process.
    pub open_files: u64,
    /// Most bytes kept of terminal or pipes.
    pub output: u64,
    /// What must be kept in full, in the order of [`Limit::ALL`]; else nothing starts.
    pub require: Vec<Limit>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 8 << 30,
            cpus: 4,
            processes: 1024,
            disk: 20 << 30,
            wall: Duration::from_secs(4 * 3600),
            bytes_out: 2 << 30,
            bytes_in: 20 << 30,
            open_files: 700,
            output: 1 << 30,
            require: Vec::new(),
        }
    }
}

impl Limits {
    /// Of both the smaller figures, and what either requires.
    pub(crate) fn narrowed(&self, other: &Self) -> Self {
        let required = |l: &Limit| self.require.contains(l) || other.require.contains(l);
        Self {
            memory: self.memory.min(other.memory),
            cpus: self.cpus.min(other.cpus),
            processes: self.processes.min(other.processes),
            disk: self.disk.min(other.disk),
            wall: self.wall.min(other.wall),
            bytes_out: self.bytes_out.min(other.bytes_out),
            bytes_in: self.bytes_in.min(other.bytes_in),
            open_files: self.open_files.min(other.open_files),
            output: self.output.min(other.output),
            require: Limit::ALL.into_iter().filter(required).collect(),
        }
    }
}

/// One bound by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `memory`
    Memory,
    /// `cpus`
    Cpus,
    /// `processes`
    Processes,
    /// `disk`
    Disk,
    /// `wall`
    Wall,
    /// `bytes_out`
    BytesOut,
    /// `bytes_in`
    BytesIn,
    /// `open_files`
    OpenFiles,
    /// `output`
    Output,
}

impl Limit {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Memory,
        Self::Cpus,
        Self::Processes,
        Self::Disk,
        Self::Wall,
        Self::BytesOut,
        Self::BytesIn,
        Self::OpenFiles,
        Self::Output,
    ];

    /// Its key in `[limits]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Wall => "wall",
            Self::BytesOut => "bytes_out",
            Self::BytesIn => "bytes_in",
            Self::OpenFiles => "open_files",
            Self::Output => "output",
        }
    }
}

/// Reads `[limits]`. What a repository's file leaves out is unbounded there, so that the person's own figure counts.
pub(crate) fn limits(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> Limits {
    let mut out = match whose {
        Whose::Person => Limits::default(),
        Whose::Repository => Limits {
            memory: u64::MAX,
            cpus: u64::MAX,
            processes: u64::MAX,
            disk: u64::MAX,
            wall: Duration::MAX,
            bytes_out: u64::MAX,
            bytes_in: u64::MAX,
            open_files: u64::MAX,
            output: u64::MAX,
            require: Vec::new(),
        },
    };
    let Some(mut t) = root.table(notes, "limits") else { return out };
    for (key, range, figure) in [
        ("cpus", 1..4097, &mut out.cpus),
        ("processes", 8..4_194_305, &mut out.processes),
        ("open_files", 64..1_048_577, &mut out.open_files),
    ] {
        if let Some(n) = t.number(notes, key, range) {
            *figure = n.value;
        }
    }
    if let Some(At { value, span }) = t.text(notes, "wall") {
        match unit::duration(&value).filter(|d| (1..=30 * 86_400).contains(&d.as_secs())) {
            Some(d) => out.wall = d,
            None => notes.problem(
                &span,
                format!("`limits.wall` can't be {}", quote(&value)),
                "from \"1s\" to \"30d\", as in \"4h\" or \"1h30m\"",
            ),
        }
    }
    // Less memory than this and no shell starts; less disk and no file can be edited.
    for (key, least, figure) in [
        ("memory", 16 << 20, &mut out.memory),
        ("disk", 1 << 20, &mut out.disk),
        ("bytes_out", 1, &mut out.bytes_out),
        ("bytes_in", 1, &mut out.bytes_in),
        ("output", 1, &mut out.output),
    ] {
        if let Some(n) = size(&mut t, notes, key, least) {
            *figure = n;
        }
    }
    let strict = t.flag(notes, "strict_disk").is_some_and(|f| f.value);
    let mut required: Vec<Limit> = strict.then_some(Limit::Disk).into_iter().collect();
    for r in t.texts(notes, "require").map(|l| l.value).unwrap_or_default() {
        match Limit::ALL.into_iter().find(|l| l.key() == r.value) {
            Some(limit) => required.push(limit),
            None => notes.problem(
                &r.span,
                format!("unknown limit {}", quote(&r.value)),
                format!("one of {}", Limit::ALL.map(Limit::key).join(", ")),
            ),
        }
    }
    out.require = Limit::ALL.into_iter().filter(|l| required.contains(l)).collect();
    t.end(notes);
    out
}

fn size(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str, least: u64) -> Option<u64> {
    let At { value, span } = t.text(notes, key)?;
    let read = unit::size(&value).filter(|n| *n > 0);
    if read.is_some_and(|n| n >= least) {
        return read;
    }
    let hint = match read {
        Some(_) => format!("at least {}", unit::show_size(least)),
        None => "as in \"512MiB\" or \"8GiB\"".into(),
    };
    notes.problem(&span, format!("`{}` can't be {}", t.name(key), quote(&value)), hint);
    None
}
