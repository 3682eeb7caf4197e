//! Puts files into a working copy, each at once, never through a link, and only where the old content still is.

use crate::files::SEALED;
use crate::plan::path;
use model::path::RawPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

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

/// Keeps a copy of a working copy's file or link under `stage`, with mode and modification time.
pub(crate) fn keep(root: &OwnedFd, file: &RawPath, stage: &Path) -> io::Result<()> {
    let to = stage.join(path(file));
    if let Some(dir) = to.parent() {
        crate::files::make_dirs(dir)?;
    }
    let Some((dir, name)) = open_parent(root, file.as_bytes())? else { return Err(Errno::NOENT.into()) };
    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&dir, name, Vec::new())?;
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target.as_bytes()), &to)
        }
        FileType::RegularFile => {
            let mut from = open_file(&dir, name)?;
            let mut copy = File::create_new(&to)?;
            io::copy(&mut from, &mut copy)?;
            let meta = from.metadata()?;
            copy.set_permissions(meta.permissions())?;
            copy.set_times(std::fs::FileTimes::new().set_modified(meta.modified()?))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

/// Brings one file from what is under `from` to what is under `to` (nothing there: no file).
pub(crate) fn bring(root: &OwnedFd, file: &RawPath, from: &Path, to: &Path, exit: &str) -> io::Result<Was> {
    let (from, to) = (from.join(path(file)), to.join(path(file)));
    let now = content_at(root, file.as_bytes())?;
    if now == staged(&to)? {
        return Ok(Was::New);
    }
    if now != staged(&from)? {
        return Ok(Was::Other);
    }
    match staged(&to)? {
        None => take_away(root, file.as_bytes())?,
        Some(new) => write(root, file.as_bytes(), &new, &to, exit)?,
    }
    Ok(Was::Old)
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

/// A file's or link's content, and whether it can be executed.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>, bool),
    Link(Vec<u8>),
    /// Neither; never equal to what is staged.
    Odd,
}

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
            Some(Content::File(bytes, file.metadata()?.mode() & 0o100 != 0))
        }
        // A directory in a file's place is as good as no file: removing the directory's own files has emptied and removed it.
        FileType::Directory => None,
        _ => Some(Content::Odd),
    })
}

fn staged(at: &Path) -> io::Result<Option<Content>> {
    let meta = match std::fs::symlink_metadata(at) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        other => other?,
    };
    Ok(if meta.is_symlink() {
        Some(Content::Link(std::fs::read_link(at)?.as_os_str().as_bytes().to_vec()))
    } else if meta.is_file() {
        Some(Content::File(std::fs::read(at)?, meta.mode() & 0o100 != 0))
    } else {
        None
    })
}

fn write(root: &OwnedFd, file: &[u8], new: &Content, from: &Path, exit: &str) -> io::Result<()> {
    let (dir, name) = make_parent(root, file)?;
    let temporary = temporary(exit);
    match rustix::fs::unlinkat(&dir, &*temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let made = match new {
        Content::Link(target) => rustix::fs::symlinkat(target.as_slice(), &dir, &*temporary).map_err(io::Error::from),
        Content::File(bytes, _) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat2(&dir, &*temporary, flags, Mode::RUSR | Mode::WUSR, SEALED).map(File::from);
            fd.map_err(io::Error::from).and_then(|mut to| {
                io::Write::write_all(&mut to, bytes)?;
                let meta = std::fs::symlink_metadata(from)?;
                to.set_permissions(std::fs::Permissions::from_mode(meta.mode() & 0o777))?;
                to.set_times(std::fs::FileTimes::new().set_modified(meta.modified()?))?;
                to.sync_all()
            })
        }
        Content::Odd => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    };
    let placed = made.and_then(|()| rustix::fs::renameat(&dir, &*temporary, &dir, name).map_err(io::Error::from));
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(&dir, &*temporary, AtFlags::empty());
    }
    placed
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

/// The directory of a path, opened, and the name in it; nothing where the directory does not exist.
fn open_parent<'a>(root: &OwnedFd, file: &'a [u8]) -> io::Result<Option<(OwnedFd, &'a [u8])>> {
    let (dir, name) = halves(file);
    match rustix::fs::openat2(root, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), SEALED) {
        Ok(dir) => Ok(Some((dir, name))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Like [`open_parent`], with missing directories made.
fn make_parent<'a>(root: &OwnedFd, file: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
    let (dir, name) = halves(file);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat2(root, ".", flags, Mode::empty(), SEALED)?;
    for part in dir.split(|b| *b == b'/').filter(|p| *p != b".") {
        match rustix::fs::mkdirat(&at, part, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        at = rustix::fs::openat2(&at, part, flags, Mode::empty(), SEALED)?;
    }
    Ok((at, name))
}

fn halves(file: &[u8]) -> (&[u8], &[u8]) {
    file.iter().rposition(|b| *b == b'/').map_or((b".", file), |i| (&file[..i], &file[i + 1..]))
}

fn open_file(dir: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat2(dir, name, flags, Mode::empty(), SEALED)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    Ok(file)
}
