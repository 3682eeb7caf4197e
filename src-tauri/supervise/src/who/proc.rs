//! What `/proc` says of a process or thread.

use super::TEXT_CAP;
use model::path::RawPath;
use std::os::unix::ffi::OsStrExt;

/// What `/proc/ID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) comm: Vec<u8>,
    pub(crate) ppid: u32,
    pub(crate) start: u64,
    pub(crate) start_stack: u64,
    pub(crate) exit_code: i32,
}

impl Stat {
    /// Reads one; `None` where the process is gone.
    pub(crate) fn of(id: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read(format!("/proc/{id}/stat")).ok()?)
    }

    pub(super) fn parse(text: &[u8]) -> Option<Stat> {
        // The name may hold spaces and brackets: it ends at the last one.
        let open = text.iter().position(|b| *b == b'(')?;
        let close = text.iter().rposition(|b| *b == b')')?;
        let comm = text.get(open + 1..close)?.to_vec();
        let rest: Vec<&str> = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
        // Numbers of proc(5), whose third field is the first after the name.
        let field = |n: usize| rest.get(n - 3).copied();
        Some(Stat {
            comm,
            ppid: field(4)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
            start_stack: field(28)?.parse().unwrap_or(0),
            exit_code: field(52).and_then(|v| v.parse().ok()).unwrap_or(0),
        })
    }
}

/// The ids of a thread; lists go from the outermost namespace that is visible here to the innermost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) tgid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) threads: Vec<u32>,
}

/// Reads them from `/proc/ID/status`; `None` where the thread is gone.
pub(crate) fn status(id: u32) -> Option<Ids> {
    let text = std::fs::read(format!("/proc/{id}/status")).ok()?;
    let mut ids = Ids::default();
    let list = |v: &str| v.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    // The first line holds the name, in which the kernel escapes line breaks.
    for line in text.split(|b| *b == b'\n') {
        let value = |head: &[u8]| line.strip_prefix(head).and_then(|v| std::str::from_utf8(v).ok());
        if let Some(v) = value(b"Tgid:") {
            ids.tgid = v.trim().parse().ok()?;
        } else if let Some(v) = value(b"NStgid:") {
            ids.groups = list(v);
        } else if let Some(v) = value(b"NSpid:") {
            ids.threads = list(v);
        }
    }
    (ids.tgid > 0).then_some(ids)
}

/// Where the kernel says that the executable lies; `None` for one that ended.
pub(crate) fn exe(pid: u32) -> Option<Vec<u8>> {
    let link = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let bytes = link.as_os_str().as_bytes();
    Some(bytes[..bytes.len().min(TEXT_CAP)].to_vec())
}

/// A program's name: the last part of its path, else the kernel's short name.
pub(crate) fn program(exe: Option<&[u8]>, comm: &[u8]) -> RawPath {
    let exe = exe.map(|exe| exe.strip_suffix(b" (deleted)").unwrap_or(exe));
    RawPath::from(exe.and_then(|exe| exe.rsplit(|b| *b == b'/').next()).unwrap_or(comm))
}
