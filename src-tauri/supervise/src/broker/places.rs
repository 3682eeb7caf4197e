//! Where things may be reached: beneath held directories, never past them.

use super::errno;
use nix::errno::Errno;
use nix::libc;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Held directories with their real paths.
pub(super) struct Places(Vec<(PathBuf, OwnedFd)>);

/// Whether a symlink at the very end is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Followed,
    Itself,
}

impl Places {
    pub(super) fn open(roots: &[PathBuf]) -> io::Result<Self> {
        let open = |root: &PathBuf| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat2(rustix::fs::CWD, root, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            Ok((root.clone(), fd))
        };
        roots.iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    /// What is at a path, as a descriptor that can only be named. Symlinks are followed as long as they stay beneath the same
    /// directory; anything else is refused by the kernel while it looks.
    pub(super) fn find(&self, path: &Path, end: End) -> Result<OwnedFd, Errno> {
        let (root, rest) = self.root_of(path)?;
        let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        let last = if end == End::Itself { OFlags::NOFOLLOW } else { OFlags::empty() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(root, rest, OFlags::PATH | OFlags::CLOEXEC | last, Mode::empty(), resolve);
        found.map_err(|e| if e == rustix::io::Errno::XDEV { Errno::EACCES } else { errno(e) })
    }

    /// The directory that is to hold a new name, and the name.
    pub(super) fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/")).ok_or(Errno::EINVAL)?;
        let directory = path.parent().ok_or(Errno::EACCES)?;
        Ok((self.find(directory, End::Followed)?, name))
    }

    fn root_of<'p>(&self, path: &'p Path) -> Result<(&OwnedFd, &'p Path), Errno> {
        let around = self.0.iter().filter_map(|(root, fd)| Some((root, fd, path.strip_prefix(root).ok()?)));
        let deepest = around.max_by_key(|(root, _, _)| root.components().count());
        deepest.map(|(_, fd, rest)| (fd, rest)).ok_or(Errno::EACCES)
    }

    /// The file behind a descriptor of the jail's, if it lies beneath: found again by its own path and compared.
    pub(super) fn same(&self, fd: &OwnedFd) -> Result<OwnedFd, Errno> {
        let path = std::fs::read_link(by_number(fd)).map_err(|_| Errno::EACCES)?;
        let found = self.find(&path, End::Itself)?;
        let id = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|s| (s.st_dev, s.st_ino)).map_err(errno);
        if id(fd)? == id(&found)? { Ok(found) } else { Err(Errno::EACCES) }
    }
}

/// A thread's working directory, by its path.
pub(super) fn cwd(tid: u32) -> Result<PathBuf, Errno> {
    std::fs::read_link(format!("/proc/{tid}/cwd")).map_err(|_| Errno::EACCES)
}

/// The path of a held descriptor in this process.
pub(super) fn by_number(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The descriptor that a path of the kind `/proc/self/fd/N` means to its caller.
pub(super) fn own_descriptor(path: &[u8]) -> Option<u64> {
    let number = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"].iter().find_map(|p| path.strip_prefix(p.as_bytes()))?;
    std::str::from_utf8(number).ok()?.parse::<u32>().ok().map(u64::from)
}

pub(super) const HERE: i32 = libc::AT_FDCWD;
