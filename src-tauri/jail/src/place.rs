//! Where mounts go: targets by descriptor, one component at a time, never through a symlink.
//!
//! Directories that an agent may write persist between runs, so symlinks wait in them. A path that is resolved once and
//! used again would lead the next start out of the new root.

use crate::error::{OrRefuse as _, PLANTED, Step, UNEXPECTED};
use jail_plan::{Kind, Raw, Refusal, Stage};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

/// The root under construction.
pub(crate) struct Place(pub(crate) OwnedFd);

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

impl Place {
    /// The directory that holds the target, made where it is missing, and the target's name in it.
    pub(crate) fn parent<'a>(&self, target: &'a Raw) -> Step<(OwnedFd, &'a OsStr)> {
        let mut parts = target.as_bytes().split(|b| *b == b'/').filter(|p| !p.is_empty()).map(OsStr::from_bytes);
        let last =
            parts.next_back().ok_or("it is the root itself").or_refuse(Stage::Mounts, UNEXPECTED, || format!("`{target}`"))?;
        let mut at = self.0.try_clone().or_refuse(Stage::Mounts, UNEXPECTED, || "keeping the new root open".into())?;
        for part in parts {
            at = enter(at.as_fd(), part, target)?;
        }
        Ok((at, last))
    }

    /// A directory, made where it is missing.
    pub(crate) fn directory(&self, target: &Raw) -> Step<OwnedFd> {
        let (parent, name) = self.parent(target)?;
        enter(parent.as_fd(), name, target)
    }

    /// A regular file, made empty where it is missing.
    pub(crate) fn file(&self, target: &Raw) -> Step<OwnedFd> {
        let (parent, name) = self.parent(target)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e).or_refuse(Stage::Mounts, PLANTED, || format!("making `{target}`")),
        }
        regular(open(parent.as_fd(), name, OFlags::empty()), target)
    }

    /// A regular file that is there.
    pub(crate) fn existing_file(&self, target: &Raw) -> Step<OwnedFd> {
        let (parent, name) = self.parent(target)?;
        regular(open(parent.as_fd(), name, OFlags::empty()), target)
    }

    /// Whatever is there, or nothing; a symlink on the way is refused, since what it hides would stay in sight.
    pub(crate) fn look(&self, target: &Raw) -> Step<Option<OwnedFd>> {
        let path = OsStr::from_bytes(target.as_bytes().strip_prefix(b"/").unwrap_or_default());
        match open(self.0.as_fd(), path, OFlags::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(odd(target, e)),
        }
    }
}

/// What a descriptor is.
pub(crate) fn kind(fd: &OwnedFd) -> Step<FileType> {
    let stat = rustix::fs::fstat(fd).or_refuse(Stage::Mounts, UNEXPECTED, || "looking at an open file".into())?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn enter(parent: BorrowedFd<'_>, name: &OsStr, target: &Raw) -> Step<OwnedFd> {
    match open(parent, name, OFlags::DIRECTORY) {
        Err(Errno::NOENT) => {
            let made = rustix::fs::mkdirat(parent, name, DIRECTORY);
            made.or_refuse(Stage::Mounts, PLANTED, || format!("making `{}` for `{target}`", Raw::from(name.as_bytes())))?;
            open(parent, name, OFlags::DIRECTORY).map_err(|e| odd(target, e))
        }
        other => other.map_err(|e| odd(target, e)),
    }
}

pub(crate) fn open(parent: BorrowedFd<'_>, path: &OsStr, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        // EAGAIN is a rename that raced; BENEATH then wants another try.
        match rustix::fs::openat2(parent, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

fn regular(opened: Result<OwnedFd, Errno>, target: &Raw) -> Step<OwnedFd> {
    let fd = opened.map_err(|e| odd(target, e))?;
    if kind(&fd)? == FileType::RegularFile { Ok(fd) } else { Err(odd(target, "it is not a regular file")) }
}

fn odd(target: &Raw, why: impl std::fmt::Display) -> Refusal {
    let reason = format!(
        "`{target}` can't be mounted on, since something odd is in its way (a symlink, or a file for a directory): {why}"
    );
    Refusal::new(Stage::Mounts, Kind::Workspace, reason, PLANTED)
}
