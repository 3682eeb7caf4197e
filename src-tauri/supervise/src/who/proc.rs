//! What `/proc` says of a process or thread.

use super::TEXT_CAP;
use model::path::RawPath;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use sys::proc::Stat;

/// What `/proc/ID/stat` says; `None` where the process is gone.
pub(crate) fn stat(id: u32) -> Option<Stat> {
    Stat::of(id).ok()
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

/// A descriptor of the process of a thread, to get what it has open by.
pub(crate) fn pidfd(tid: u32) -> Result<OwnedFd, Errno> {
    sys::proc::of_thread(tid, || status(tid).map(|ids| ids.tgid))
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
