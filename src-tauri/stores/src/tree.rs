//! Copies a tree by descriptor: shared blocks where the file system can, else hard links where that is safe, else bytes.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timestamps};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Nothing is resolved out of a directory, through a link or into another mount.
const SEALED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// Directories deeper than this are passed over: each level costs descriptors.
const DEEPEST: usize = 128;
/// A file whose content is looked at has at most so many bytes.
const READABLE: u64 = 64 << 20;
/// Clock, disk and whoever watches are asked every so many entries.
const OFTEN: u64 = 256;

/// What is to become of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It is passed over, counted by the reason.
    Skip(&'static str),
    /// Its content never changes under this name: a hard link will do.
    Share,
    /// It becomes a file of its own.
    Own,
    /// It is read whole, and [`Rules::contents`] says what is written.
    Read,
}

/// What a caller wants of a tree. Paths are relative to its top, without a slash at either end.
pub trait Rules {
    /// What is to become of a regular file.
    fn wish(&self, path: &[u8]) -> Wish;
    /// What is to become of a symbolic link: it is passed over, or copied as the link that it is.
    fn link(&self, path: &[u8]) -> Wish;
    /// Whether a directory is gone into.
    fn enters(&self, path: &[u8]) -> bool;
    /// What is written instead of what was read ([`Wish::Read`]); `None` passes over the file.
    fn contents(&self, path: &[u8], bytes: Vec<u8>) -> Option<Vec<u8>>;
    /// Called now and then; false ends the copy.
    fn goes_on(&self, so_far: &Counts) -> bool;
}

/// Bounds of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Files, links and directories.
    pub files: u64,
    /// Bytes that are really copied: shared blocks, links and holes cost none.
    pub bytes: u64,
    /// Bytes that stay free on the disk.
    pub reserve: u64,
    /// When it must be done.
    pub until: Option<Instant>,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Their bytes, holes included.
    pub bytes: u64,
    /// Directories and symbolic links.
    pub others: u64,
    /// Bytes that were really copied.
    pub copied: u64,
    /// What was passed over, by reason.
    pub skipped: BTreeMap<String, u64>,
}

/// Why a copy was given up. What it made so far is the caller's to remove.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Too many entries.
    #[error("it has more than {0} files and directories")]
    Files(u64),
    /// Too many bytes.
    #[error("more than {} MiB of it would have to be copied", .0 >> 20)]
    Bytes(u64),
    /// The disk is nearly full.
    #[error("the disk has less than {} MiB left", .0 >> 20)]
    Disk(u64),
    /// Too slow.
    #[error("it took too long")]
    Late,
    /// Whoever watches said so.
    #[error("it was stopped")]
    Stopped,
    /// The copy could not be written.
    #[error("`{}` could not be written: {source}", path.display())]
    Io {
        /// What, below the top.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Opens a directory; its last component may be no link.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Copies what is in `from` into the directory `to`, below `at` (a path, empty at the top) for the rules. Files that `before`
/// holds with the same size and time are linked from there: it is an earlier copy that nobody changes. Nothing that is there
/// already is replaced.
pub fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    before: Option<BorrowedFd<'_>>,
    at: &[u8],
    rules: &dyn Rules,
    limits: &Limits,
    counts: &mut Counts,
) -> Result<(), Stop> {
    let mut copier = Copier { rules, limits, counts, clones: true, seen: 0 };
    copier.directory(from, to, before, at, 0)
}

/// Copies what has that name in one directory into another, with all below it, as [`copy`] does.
pub fn copy_entry(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
    path: &[u8],
    rules: &dyn Rules,
    limits: &Limits,
    counts: &mut Counts,
) -> Result<(), Stop> {
    let mut copier = Copier { rules, limits, counts, clones: true, seen: 0 };
    match rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => copier.entry(from, to, None, name, path, &stat, 0),
        Err(_) => copier.skip("it is gone"),
    }
}

struct Copier<'a> {
    rules: &'a dyn Rules,
    limits: &'a Limits,
    counts: &'a mut Counts,
    /// Whether the file system is still believed to share blocks.
    clones: bool,
    seen: u64,
}

impl Copier<'_> {
    /// Counts what is passed over; that is never a reason to stop.
    fn skip(&mut self, why: &str) -> Result<(), Stop> {
        *self.counts.skipped.entry(why.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Counts an entry; every now and then looks at clock, disk and watcher.
    fn tick(&mut self, to: BorrowedFd<'_>) -> Result<(), Stop> {
        self.seen += 1;
        if self.counts.files + self.counts.others >= self.limits.files {
            return Err(Stop::Files(self.limits.files));
        }
        if self.seen % OFTEN == 1 {
            self.look(to)?;
        }
        Ok(())
    }

    fn look(&self, to: BorrowedFd<'_>) -> Result<(), Stop> {
        if self.limits.until.is_some_and(|until| Instant::now() >= until) {
            return Err(Stop::Late);
        }
        let free = rustix::fs::fstatvfs(to).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
        if free < self.limits.reserve {
            return Err(Stop::Disk(self.limits.reserve));
        }
        if self.rules.goes_on(self.counts) { Ok(()) } else { Err(Stop::Stopped) }
    }

    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        before: Option<BorrowedFd<'_>>,
        at: &[u8],
        depth: usize,
    ) -> Result<(), Stop> {
        let Ok(names) = names(from) else {
            return self.skip("it can't be read");
        };
        for name in names {
            let path = if at.is_empty() { name.as_bytes().to_vec() } else { [at, b"/", name.as_bytes()].concat() };
            match rustix::fs::statat(from, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => self.entry(from, to, before, &name, &path, &stat, depth)?,
                Err(_) => self.skip("it is gone")?,
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "three directories, and the entry in them")]
    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        before: Option<BorrowedFd<'_>>,
        name: &CStr,
        path: &[u8],
        stat: &Stat,
        depth: usize,
    ) -> Result<(), Stop> {
        self.tick(to)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if !self.rules.enters(path) => Ok(()),
            FileType::Directory if depth >= DEEPEST => self.skip("too many directories deep"),
            FileType::Directory => self.below(from, to, before, name, path, depth),
            FileType::RegularFile => self.file(from, to, before, name, path, stat),
            FileType::Symlink => self.link(from, to, name, path),
            FileType::Fifo => self.skip("a FIFO"),
            FileType::Socket => self.skip("a socket"),
            _ => self.skip("a device"),
        }
    }

    fn below(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        before: Option<BorrowedFd<'_>>,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Stop> {
        let Ok(inner) = opened(from, name, OFlags::RDONLY | OFlags::DIRECTORY) else {
            return self.skip("it can't be read");
        };
        let new = match rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(failed(path, e)),
        };
        let made = match opened(to, name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(made) => made,
            // A file or a link of the target's own.
            Err(Errno::LOOP | Errno::NOTDIR) if !new => {
                return self.skip("something else is in its place");
            }
            Err(e) => return Err(failed(path, e)),
        };
        self.counts.others += 1;
        let before = before.and_then(|b| opened(b, name, OFlags::RDONLY | OFlags::DIRECTORY).ok());
        self.directory(inner.as_fd(), made.as_fd(), before.as_ref().map(AsFd::as_fd), path, depth + 1)?;
        if new && let Ok(stat) = rustix::fs::fstat(&inner) {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o755 | 0o700);
            rustix::fs::fchmod(&made, mode)
                .and_then(|()| rustix::fs::futimens(&made, &times(&stat)))
                .map_err(|e| failed(path, e))?;
        }
        Ok(())
    }

    fn link(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> Result<(), Stop> {
        if let Wish::Skip(why) = self.rules.link(path) {
            return self.skip(why);
        }
        let Ok(target) = rustix::fs::readlinkat(from, name, Vec::new()) else {
            return self.skip("it is gone");
        };
        match rustix::fs::symlinkat(&target, to, name) {
            Ok(()) => self.counts.others += 1,
            Err(Errno::EXIST) => self.skip("something is in its place already")?,
            Err(e) => return Err(failed(path, e)),
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        before: Option<BorrowedFd<'_>>,
        name: &CStr,
        path: &[u8],
        stat: &Stat,
    ) -> Result<(), Stop> {
        let wish = self.rules.wish(path);
        if let Wish::Skip(why) = wish {
            return self.skip(why);
        }
        if stat.st_mode & 0o6000 != 0 {
            return self.skip("a set-uid program");
        }
        if let Some(before) = before
            && rustix::fs::statat(before, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|old| same(&old, stat))
            && rustix::fs::linkat(before, name, to, name, AtFlags::empty()).is_ok()
        {
            return self.took(stat);
        }
        let Ok(source) = opened(from, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).map(File::from) else {
            return self.skip("it can't be read");
        };
        // What was opened counts; the name may have become something else.
        let is = rustix::fs::fstat(&source).map_err(|e| failed(path, e))?;
        if FileType::from_raw_mode(is.st_mode) != FileType::RegularFile || is.st_mode & 0o6000 != 0 {
            return self.skip("it changed while it was copied");
        }
        if wish == Wish::Read {
            return self.read(source, to, name, path, &is);
        }
        let target = match created(to, name) {
            Ok(file) => file,
            Err(Errno::EXIST) => {
                return self.skip("something is in its place already");
            }
            Err(e) => return Err(failed(path, e)),
        };
        if self.clones {
            match rustix::fs::ioctl_ficlone(&target, &source) {
                Ok(()) => {
                    self.finish(&target, path, &is)?;
                    return self.unless_changed(&source, to, name, &is);
                }
                Err(_) => self.clones = false,
            }
        }
        if wish == Wish::Share {
            rustix::fs::unlinkat(to, name, AtFlags::empty()).map_err(|e| failed(path, e))?;
            // A link to a file that another user owns is refused by most kernels; bytes do then.
            if rustix::fs::linkat(from, name, to, name, AtFlags::empty()).is_ok() {
                let linked = rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW);
                if linked.is_ok_and(|l| (l.st_dev, l.st_ino) == (is.st_dev, is.st_ino)) {
                    return self.took(&is);
                }
                rustix::fs::unlinkat(to, name, AtFlags::empty()).map_err(|e| failed(path, e))?;
                return self.skip("it changed while it was copied");
            }
            let target = created(to, name).map_err(|e| failed(path, e))?;
            self.bytes(&source, &target, to, path, &is)?;
            return self.unless_changed(&source, to, name, &is);
        }
        self.bytes(&source, &target, to, path, &is)?;
        self.unless_changed(&source, to, name, &is)
    }

    /// The file's bytes, its holes left out.
    fn bytes(&mut self, source: &File, target: &File, to: BorrowedFd<'_>, path: &[u8], stat: &Stat) -> Result<(), Stop> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let end = rustix::fs::seek(source, SeekFrom::Hole(start)).unwrap_or(size).min(size);
            if end <= start {
                break;
            }
            at = start;
            while at < end {
                let piece = (end - at).min(16 << 20);
                if self.counts.copied + piece > self.limits.bytes {
                    return Err(Stop::Bytes(self.limits.bytes));
                }
                let got = moved(source, target, at, piece).map_err(|e| failed(path, e))?;
                if got == 0 {
                    break;
                }
                at += got;
                self.counts.copied += got;
                if piece == 16 << 20 {
                    self.look(to)?;
                }
            }
            if at < end {
                // It became shorter.
                break;
            }
        }
        rustix::fs::ftruncate(target, size).map_err(|e| failed(path, e))?;
        self.finish(target, path, stat)
    }

    fn read(&mut self, source: File, to: BorrowedFd<'_>, name: &CStr, path: &[u8], stat: &Stat) -> Result<(), Stop> {
        let mut bytes = Vec::new();
        let got = source.take(READABLE + 1).read_to_end(&mut bytes);
        if got.is_err() || u64::try_from(bytes.len()).is_ok_and(|n| n > READABLE) {
            return self.skip("too large to be looked through");
        }
        let Some(bytes) = self.rules.contents(path, bytes) else {
            return self.skip("it may hold a secret");
        };
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.counts.copied + length > self.limits.bytes {
            return Err(Stop::Bytes(self.limits.bytes));
        }
        let mut target = match created(to, name) {
            Ok(file) => file,
            Err(Errno::EXIST) => {
                return self.skip("something is in its place already");
            }
            Err(e) => return Err(failed(path, e)),
        };
        target.write_all(&bytes).map_err(|source| Stop::Io { path: shown(path), source })?;
        self.counts.copied += length;
        self.finish(&target, path, stat)?;
        self.counts.files += 1;
        self.counts.bytes += length;
        Ok(())
    }

    fn finish(&self, target: &File, path: &[u8], stat: &Stat) -> Result<(), Stop> {
        rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o777))
            .and_then(|()| rustix::fs::futimens(target, &times(stat)))
            .map_err(|e| failed(path, e))
    }

    /// A file that somebody wrote to meanwhile is not kept: half of it may be old.
    fn unless_changed(&mut self, source: &File, to: BorrowedFd<'_>, name: &CStr, was: &Stat) -> Result<(), Stop> {
        if rustix::fs::fstat(source).is_ok_and(|is| same(&is, was)) {
            return self.took(was);
        }
        rustix::fs::unlinkat(to, name, AtFlags::empty()).map_err(|e| failed(name.to_bytes(), e))?;
        self.skip("it changed while it was copied")
    }

    fn took(&mut self, stat: &Stat) -> Result<(), Stop> {
        self.counts.files += 1;
        self.counts.bytes += u64::try_from(stat.st_size).unwrap_or(0);
        Ok(())
    }
}

/// Copies up to `length` bytes at `at`; how many.
fn moved(source: &File, target: &File, at: u64, length: u64) -> Result<u64, Errno> {
    let (mut from, mut to) = (at, at);
    let piece = usize::try_from(length).unwrap_or(usize::MAX);
    match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), piece) {
        Ok(n) if n > 0 => return Ok(u64::try_from(n).unwrap_or(0)),
        // Between two kinds of file system the kernel may not do it.
        Ok(_) | Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {}
        Err(e) => return Err(e),
    }
    let mut buffer = vec![0; piece.min(1 << 20)];
    let n = rustix::io::pread(source, &mut buffer, at)?;
    let mut done = 0;
    while done < n {
        let offset = at + u64::try_from(done).unwrap_or(0);
        done += rustix::io::pwrite(target, &buffer[done..n], offset)?;
    }
    Ok(u64::try_from(n).unwrap_or(0))
}

/// Whether two looks at a file, or at a file and its copy, say that it did not change.
fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_size, a.st_mtime, a.st_mtime_nsec, a.st_mode & 0o777) == (b.st_size, b.st_mtime, b.st_mtime_nsec, b.st_mode & 0o777)
}

fn times(stat: &Stat) -> Timestamps {
    let time = rustix::fs::Timespec { tv_sec: stat.st_mtime, tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0) };
    Timestamps { last_access: time, last_modification: time }
}

fn opened(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), SEALED)
}

fn created(dir: BorrowedFd<'_>, name: &CStr) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn failed(path: &[u8], error: Errno) -> Stop {
    Stop::Io { path: shown(path), source: error.into() }
}

fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}
