//! Modes and times of files: Landlock judges neither, so they are changed here, beneath what the jail may write.

use super::places::{End, HERE, by_number, cwd, own_descriptor};
use super::{Desk, errno};
use crate::notify::int;
use nix::errno::Errno;
use nix::libc;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use sys::seccomp_notify::Notification;

/// Set-uid and set-gid: they lend the person's id to others.
const LENDS: u32 = 0o6000;

/// Where a call has its arguments, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Mode {
        at: Option<usize>,
        path: Option<usize>,
        mode: usize,
        flags: Option<usize>,
    },
    /// `utimensat`.
    Times,
}

impl Desk {
    pub(super) fn change(&self, n: &Notification, change: Change) -> Result<i64, Errno> {
        let register = |i: usize| n.args.get(i).copied().unwrap_or(0);
        match change {
            Change::Mode { at, path, mode, flags } => {
                let mode = int(register(mode)).cast_unsigned() & 0o7777;
                if mode & LENDS != 0 {
                    return Err(Errno::EPERM);
                }
                let flags = flags.map_or(0, |i| int(register(i)));
                let file = self.file(n, at.map(register), path.map(register), flags)?;
                rustix::fs::chmod(by_number(&file), Mode::from_raw_mode(mode)).map_err(errno)?;
            }
            Change::Times => {
                let path = Some(register(1)).filter(|path| *path != 0);
                let times = self.times(n, register(2))?;
                let file = self.file(n, Some(register(0)), path, int(register(3)))?;
                rustix::fs::utimensat(CWD, by_number(&file), &times, AtFlags::empty()).map_err(errno)?;
            }
        }
        Ok(0)
    }

    fn times(&self, n: &Notification, address: u64) -> Result<Timestamps, Errno> {
        if address == 0 {
            let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
            return Ok(Timestamps { last_access: now, last_modification: now });
        }
        let bytes = self.bytes(n, address, 32)?;
        let word = |i: usize| bytes[i * 8..].first_chunk().map(|b| i64::from_ne_bytes(*b)).ok_or(Errno::EFAULT);
        let time = |i: usize| Ok::<_, Errno>(Timespec { tv_sec: word(i)?, tv_nsec: word(i + 1)? });
        Ok(Timestamps { last_access: time(0)?, last_modification: time(2)? })
    }

    /// The file that is meant, held, if it is one that the jail may change.
    fn file(&self, n: &Notification, at: Option<u64>, path: Option<u64>, flags: i32) -> Result<OwnedFd, Errno> {
        if flags & !(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let text = path.map(|path| self.text(n, path)).transpose()?;
        let end = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { End::Itself } else { End::Followed };
        match text.as_deref() {
            None => self.own(n, at.ok_or(Errno::EFAULT)?),
            Some(b"") if flags & libc::AT_EMPTY_PATH != 0 => match at {
                Some(at) if int(at) != HERE => self.own(n, at),
                Some(_) | None => self.places.find(&cwd(n.tid)?, End::Followed),
            },
            Some(b"") => Err(Errno::ENOENT),
            Some(text) => match own_descriptor(text).filter(|_| end == End::Followed) {
                Some(fd) => self.own(n, fd),
                None => self.places.find(&self.whole(n, at, text)?, end),
            },
        }
    }

    /// A path as the caller means it, from the root on.
    pub(super) fn whole(&self, n: &Notification, at: Option<u64>, text: &[u8]) -> Result<std::path::PathBuf, Errno> {
        let path = Path::new(OsStr::from_bytes(text));
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let directory = match at.filter(|at| int(*at) != HERE) {
            Some(at) => std::fs::read_link(by_number(&self.descriptor(n, at)?)).map_err(|_| Errno::EACCES)?,
            None => cwd(n.tid)?,
        };
        self.still(n)?;
        Ok(directory.join(path))
    }

    /// The file behind a descriptor: one that is open for writing was opened by the jail's own rights.
    fn own(&self, n: &Notification, register: u64) -> Result<OwnedFd, Errno> {
        let fd = self.descriptor(n, register)?;
        let stat = rustix::fs::fstat(&fd).map_err(errno)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(errno)?;
        let writes = matches!(flags & OFlags::RWMODE, OFlags::WRONLY | OFlags::RDWR) && !flags.contains(OFlags::PATH);
        if regular && writes { Ok(fd) } else { self.places.same(&fd) }
    }
}
