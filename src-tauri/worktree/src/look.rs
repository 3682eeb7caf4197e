//! Looks at a hostile tree without opening what could block or lead out.

use crate::files::{SEALED, names};
use crate::inside::HUGE;
use crate::left_out::LeftOut;
use crate::screen::Weight;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Directories deeper than this are left out.
const DEEPEST: usize = 200;
/// Paths of more bytes are left out: the kernel takes up to 4,096, of which some are the tree's own.
pub(crate) const LONGEST: usize = 4_000;
pub(crate) const TOO_LONG: &str = "too deep: a path of more than 4,000 bytes";

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file that can be read, or a symbolic link.
    Readable(Weight),
    /// Nothing, a directory, or something beyond a symbolic link.
    Gone,
    /// Neither file, link nor directory; what it is.
    Special(&'static str),
    /// A file above the size limit.
    Huge,
    /// A file that can't be opened.
    Unreadable(Errno),
}

/// A file or link that was walked past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// When it last changed, in seconds.
    pub(crate) ctime: i64,
    /// How large it is.
    pub(crate) weight: Weight,
}

/// What a walk came past.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Files and links.
    pub(crate) found: BTreeMap<Vec<u8>, Seen>,
    /// A FIFO of the name of a file that git opens by itself.
    pub(crate) waits: Option<Vec<u8>>,
}

/// An opened tree.
pub(crate) struct Look(OwnedFd);

impl Look {
    pub(crate) fn open(tree: &Path) -> io::Result<Self> {
        crate::files::open_dir(tree).map(Self)
    }

    /// What is at a path, by a look that never waits.
    pub(crate) fn at(&self, path: &[u8]) -> Kind {
        let slash = path.iter().rposition(|b| *b == b'/');
        let (dir, name) = slash.map_or((&b"."[..], path), |i| (&path[..i], &path[i + 1..]));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::openat2(&self.0, dir, flags, Mode::empty(), SEALED) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Kind::Gone,
            Err(e) => return Kind::Unreadable(e),
        };
        let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Kind::Gone,
            Err(e) => return Kind::Unreadable(e),
        };
        match file_type(&stat) {
            FileType::Symlink => Kind::Readable(whole(&stat)),
            FileType::Directory => Kind::Gone,
            FileType::RegularFile if size(&stat) > HUGE => Kind::Huge,
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                match rustix::fs::openat2(&dir, name, flags, Mode::empty(), SEALED) {
                    Ok(file) => Kind::Readable(Weight { stored: stored(&file, &stat), size: size(&stat) }),
                    Err(e) => Kind::Unreadable(e),
                }
            }
            other => Kind::Special(special(other)),
        }
    }

    /// Walks the tree but for `.git` and the directories in `skip`. Special files,
    /// unreadable directories, git directories, paths that are too long and content of submodules (`links`) are told.
    pub(crate) fn walk(&self, skip: &BTreeSet<&[u8]>, links: &BTreeSet<&[u8]>, left: &mut LeftOut) -> io::Result<Walked> {
        let mut walk = Walk { skip, links, left, walked: Walked::default() };
        walk.dir(self.0.as_fd(), &[], 0)?;
        Ok(walk.walked)
    }
}

struct Walk<'a> {
    skip: &'a BTreeSet<&'a [u8]>,
    links: &'a BTreeSet<&'a [u8]>,
    left: &'a mut LeftOut,
    walked: Walked,
}

impl Walk<'_> {
    fn dir(&mut self, dir: BorrowedFd<'_>, at: &[u8], depth: usize) -> io::Result<()> {
        for name in names(dir)? {
            if name.as_bytes() == b".git" && at.is_empty() {
                continue;
            }
            let mut path = at.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.as_bytes());
            if self.skip.contains(path.as_slice()) {
                continue;
            }
            if name.as_bytes() == b".git" {
                self.left.add(&path, "git stores nothing of this name");
                continue;
            }
            if path.len() > LONGEST {
                self.left.add(&path, TOO_LONG);
                continue;
            }
            let stat = match rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                Err(e) => {
                    self.left.add(&path, &format!("not readable ({e}): its version before is kept"));
                    continue;
                }
                Ok(stat) => stat,
            };
            match file_type(&stat) {
                FileType::RegularFile | FileType::Symlink => {
                    if size(&stat) > HUGE {
                        self.left.add(&path, "larger than 1 GiB: its version before is kept");
                    }
                    self.walked.found.insert(path, Seen { ctime: stat.st_ctime, weight: whole(&stat) });
                }
                FileType::Directory if depth >= DEEPEST => self.left.add(&path, "too many directories deep"),
                FileType::Directory => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    match rustix::fs::openat2(dir, &name, flags, Mode::empty(), SEALED) {
                        Ok(child) if self.links.contains(path.as_slice()) => {
                            if names(child.as_fd()).is_ok_and(|n| !n.is_empty()) {
                                self.left.add(&path, "files inside a submodule are not carried");
                            }
                        }
                        Ok(child) => self.dir(child.as_fd(), &path, depth + 1)?,
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        Err(e) => self
                            .left
                            .add(&path, &format!("a directory that is not readable ({e}): what was in it before is kept")),
                    }
                }
                FileType::Fifo if name.as_bytes() == b".gitattributes" => self.walked.waits = Some(path),
                other => self.left.add(&path, special(other)),
            }
        }
        Ok(())
    }
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn whole(stat: &Stat) -> Weight {
    Weight { size: size(stat), stored: size(stat) }
}

/// How much of a file is no hole. Few blocks alone say nothing: a file system may compress, or not have written yet.
fn stored(file: &OwnedFd, stat: &Stat) -> u64 {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)) {
        Ok(hole) if hole < size(stat) => blocks,
        _ => size(stat),
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn special(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a FIFO, which git does not store",
        FileType::Socket => "a socket, which git does not store",
        FileType::CharacterDevice | FileType::BlockDevice => "a device, which git does not store",
        _ => "no kind of file that git stores",
    }
}
