//! Files by descriptor: made, locked, and removed without following what somebody planted.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Nothing is resolved out of the start directory, through a link or into another mount.
pub(crate) const SEALED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// How deep a removal goes before it lifts what lies deeper, so that descriptors don't run out.
const DEPTH: usize = 100;

/// A directory that is being written to is tried so often, and so long apart.
const WAITS: u32 = 100;
const WAIT: std::time::Duration = std::time::Duration::from_millis(50);

/// Makes a directory with its parents, each for the person alone.
pub(crate) fn make_dirs(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that must not exist yet.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Puts a file in place of another at once.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// Locks a file of Airlock's own, waiting for whoever holds it. The lock goes with the returned file.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = lock_file(path, Missing::Make)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Like [`lock`], but `None` where somebody holds it.
pub(crate) fn try_lock(path: &Path, missing: Missing) -> io::Result<Option<File>> {
    let file = match lock_file(path, missing) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What to do about a lock file that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make it.
    Make,
    /// Then nobody can hold it: leave it so.
    Leave,
}

fn lock_file(path: &Path, missing: Missing) -> io::Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(missing == Missing::Make)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Opens a directory of Airlock's own.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Removes a file or a whole directory named in `parent`. Missing is fine. Whatever lies in it: links are removed, not
/// followed; directories without permissions are opened up first; depth costs no descriptors; other mounts are left alone.
pub(crate) fn remove_all(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let mut lifted = 0;
    // A git that outlives its killed parent for a moment may still write there.
    for _ in 0..WAITS {
        empty(parent, name, &mut lifted)?;
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => std::thread::sleep(WAIT),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Empties a directory; what lies too deep is moved up into it and emptied from there.
fn empty(parent: BorrowedFd<'_>, name: &CStr, lifted: &mut u64) -> io::Result<()> {
    let top = match opened(parent, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    loop {
        let before = *lifted;
        empty_below(top.as_fd(), top.as_fd(), 0, lifted)?;
        if *lifted == before {
            return Ok(());
        }
    }
}

fn empty_below(top: BorrowedFd<'_>, dir: BorrowedFd<'_>, depth: usize, lifted: &mut u64) -> io::Result<()> {
    for name in names(dir)? {
        match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        let child = match opened(dir, &name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if depth >= DEPTH {
            drop(child);
            *lifted += 1;
            let to = CString::new(format!(".airlock-lifted-{lifted}")).unwrap_or_default();
            match rustix::fs::renameat(dir, &name, top, &to) {
                Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => continue,
                Err(e) => return Err(e.into()),
            }
        }
        empty_below(top, child.as_fd(), depth + 1, lifted)?;
        match rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Opens a directory for removal, giving its owner all permissions where they lack.
fn opened(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || rustix::fs::openat2(parent, name, flags, Mode::empty(), SEALED);
    let fd = match open() {
        Err(Errno::ACCESS) => {
            // The directory was just seen to be one; a link in its place is not followed by fchmodat2's flag or fails above.
            let path =
                rustix::fs::openat2(parent, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), SEALED)?;
            let magic = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
            rustix::fs::chmod(magic, Mode::RWXU)?;
            open()?
        }
        other => other?,
    };
    let mode = rustix::fs::fstat(&fd)?.st_mode;
    if mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
    }
    Ok(fd)
}

/// The names in a directory, without `.` and `..`.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}
