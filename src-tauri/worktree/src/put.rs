//! Puts files into a working copy, each at once, never through a link, and only where the old content still is. Staging areas
//! are read in the same way, since the links in them are an agent's.

use crate::files::SEALED;
use model::path::RawPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// What a file was before it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    /// The old content; it is the new one now.
    Old,
    /// The new content already.
    New,
    /// Something else, which stays.
    Other,
}

/// Keeps a copy of a working copy's file or link in the staging area `stage`, with mode and modification time.
pub(crate) fn keep(root: &OwnedFd, file: &RawPath, stage: &OwnedFd) -> io::Result<()> {
    let Some((dir, name)) = open_parent(root, file.as_bytes())? else { return Err(Errno::NOENT.into()) };
    let Some((to, to_name)) = make_parent(stage, file.as_bytes())? else { return Err(Errno::EXIST.into()) };
    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&dir, name, Vec::new())?;
            Ok(rustix::fs::symlinkat(&target, &to, to_name)?)
        }
        FileType::RegularFile => {
            let mut from = open_file(&dir, name)?;
            let mut copy = create_file(&to, to_name)?;
            io::copy(&mut from, &mut copy)?;
            let meta = from.metadata()?;
            copy.set_permissions(meta.permissions())?;
            copy.set_times(std::fs::FileTimes::new().set_modified(meta.modified()?))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

/// Brings one file from what the staging area `from` has to what `to` has (nothing there: no file). What a staging area has
/// at a path is never beyond a link in it: an agent chose where links lead.
pub(crate) fn bring(root: &OwnedFd, file: &RawPath, from: &OwnedFd, to: &OwnedFd, exit: &str) -> io::Result<Was> {
    let file = file.as_bytes();
    let now = content_at(root, file)?;
    let new = content_at(to, file)?;
    if now == new {
        return Ok(Was::New);
    }
    if now != content_at(from, file)? {
        return Ok(Was::Other);
    }
    match new {
        None => take_away(root, file).map(|()| Was::Old),
        Some(new) => write(root, file, &new, exit),
    }
}

/// Removes a temporary file that a killed exit left beside `file`.
pub(crate) fn sweep(root: &OwnedFd, file: &RawPath, exit: &str) -> io::Result<()> {
    if let Some((dir, _)) = open_parent(root, file.as_bytes())? {
        match rustix::fs::unlinkat(&dir, temporary(exit), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// What is at a path.
#[derive(Debug)]
enum Content {
    /// A file's bytes, permissions and modification time.
    File(Vec<u8>, u32, std::time::SystemTime),
    /// A link's target.
    Link(Vec<u8>),
    /// Neither; never equal to what is staged.
    Odd,
}

impl PartialEq for Content {
    /// As git compares: bytes, and whether the file can be executed.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(a, mode, _), Self::File(b, other, _)) => a == b && mode & 0o100 == other & 0o100,
            (Self::Link(a), Self::Link(b)) => a == b,
            _ => false,
        }
    }
}

/// What is at a path below `root`; nothing where a parent is no directory. Links are not followed and nothing blocks.
fn content_at(root: &OwnedFd, file: &[u8]) -> io::Result<Option<Content>> {
    let Some((dir, name)) = open_parent(root, file)? else { return Ok(None) };
    let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Some(Content::Link(rustix::fs::readlinkat(&dir, name, Vec::new())?.into_bytes())),
        FileType::RegularFile => {
            let mut bytes = Vec::new();
            let mut file = open_file(&dir, name)?;
            file.read_to_end(&mut bytes)?;
            let meta = file.metadata()?;
            Some(Content::File(bytes, meta.mode() & 0o777, meta.modified()?))
        }
        // A directory in a file's place is as good as no file: removing the directory's own files has emptied and removed it.
        FileType::Directory => None,
        _ => Some(Content::Odd),
    })
}

/// Puts a file in place at once; [`Was::Other`] where something that is not the exit's stands in the way.
fn write(root: &OwnedFd, file: &[u8], new: &Content, exit: &str) -> io::Result<Was> {
    let Some((dir, name)) = make_parent(root, file)? else { return Ok(Was::Other) };
    let temporary = temporary(exit);
    match rustix::fs::unlinkat(&dir, &*temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let made = match new {
        Content::Link(target) => rustix::fs::symlinkat(target.as_slice(), &dir, &*temporary).map_err(io::Error::from),
        Content::File(bytes, mode, modified) => create_file(&dir, temporary.as_bytes()).and_then(|mut to| {
            io::Write::write_all(&mut to, bytes)?;
            to.set_permissions(std::fs::Permissions::from_mode(*mode))?;
            to.set_times(std::fs::FileTimes::new().set_modified(*modified))?;
            to.sync_all()
        }),
        Content::Odd => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    };
    let place = || rustix::fs::renameat(&dir, &*temporary, &dir, name);
    let placed = made.and_then(|()| match place() {
        Err(Errno::ISDIR) => {
            // Git knows no empty directories, so none of them is anybody's.
            remove_empty(&dir, name, 0)?;
            match place() {
                Err(Errno::ISDIR) => Ok(Was::Other),
                placed => Ok(placed.map(|()| Was::Old)?),
            }
        }
        placed => Ok(placed.map(|()| Was::Old)?),
    });
    if !matches!(placed, Ok(Was::Old)) {
        let _ = rustix::fs::unlinkat(&dir, &*temporary, AtFlags::empty());
    }
    placed
}

/// Removes a directory that holds nothing but directories; anything else in it stays, and with it what leads there.
fn remove_empty(parent: &OwnedFd, name: &[u8], depth: usize) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), SEALED) {
        Ok(dir) if depth < 100 => {
            for inner in crate::files::names(dir.as_fd())? {
                remove_empty(&dir, inner.as_bytes(), depth + 1)?;
            }
        }
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Removes a file and the directories that it leaves empty.
fn take_away(root: &OwnedFd, file: &[u8]) -> io::Result<()> {
    let Some((dir, name)) = open_parent(root, file)? else { return Ok(()) };
    rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
    let mut rest = file;
    while let Some(slash) = rest.iter().rposition(|b| *b == b'/') {
        rest = &rest[..slash];
        let Some((dir, name)) = open_parent(root, rest)? else { break };
        if rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
    Ok(())
}

fn temporary(exit: &str) -> String {
    format!(".airlock-{exit}.tmp")
}

/// The directory of a path, opened, and the name in it; nothing where there is no such directory (a link is none).
fn open_parent<'a>(root: &OwnedFd, file: &'a [u8]) -> io::Result<Option<(OwnedFd, &'a [u8])>> {
    let (dir, name) = halves(file);
    match rustix::fs::openat2(root, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), SEALED) {
        Ok(dir) => Ok(Some((dir, name))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Like [`open_parent`], with missing directories made; nothing where something else has the name of one.
fn make_parent<'a>(root: &OwnedFd, file: &'a [u8]) -> io::Result<Option<(OwnedFd, &'a [u8])>> {
    let (dir, name) = halves(file);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat2(root, ".", flags, Mode::empty(), SEALED)?;
    for part in dir.split(|b| *b == b'/').filter(|p| *p != b".") {
        match rustix::fs::mkdirat(&at, part, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        at = match rustix::fs::openat2(&at, part, flags, Mode::empty(), SEALED) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            opened => opened?,
        };
    }
    Ok(Some((at, name)))
}

fn halves(file: &[u8]) -> (&[u8], &[u8]) {
    file.iter().rposition(|b| *b == b'/').map_or((b".", file), |i| (&file[..i], &file[i + 1..]))
}

/// Makes a file that only the person can read.
fn create_file(dir: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat2(dir, name, flags, Mode::RUSR | Mode::WUSR, SEALED)?))
}

fn open_file(dir: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat2(dir, name, flags, Mode::empty(), SEALED)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    Ok(file)
}
