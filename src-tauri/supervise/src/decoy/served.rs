//! Hidden places that the person may open: their own files, read-only, below a directory that was opened before the run.
//!
//! Invariant: nothing is opened but beneath that directory, through no link, onto no other mount, and with a pass in hand
//! that is looked at again for every byte.

use super::wire::{Answer, Attributes, BELOW, Node, Part, listing};
use crate::real::real;
use model::event::Process;
use model::path::RawPath;
use nix::libc;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Things that the kernel knows of at a time, and that are open; beyond it a jail gets an error.
const NODES: usize = 16_384;
const OPEN: usize = 64;
/// Names of all directories that are open.
const NAMES: usize = 50_000;
/// Passes that are held for what was found and not opened yet.
const PASSES: usize = 4_096;
/// Bytes of a path below a place.
const PATH: usize = 4_096;

/// Who says whether a hidden place may be looked into after all.
pub trait Doorkeeper: Send + Sync {
    /// A pass for one opening of `path`, which is `place` itself or lies directly in it; none where nobody allowed it, who
    /// is then asked. Takes some milliseconds at most.
    fn pass(&self, path: &RawPath, place: &RawPath, who: Option<&Process>) -> Option<Pass>;
}

/// Permission for one opening: it turns false when it is taken back.
pub type Pass = Box<dyn Fn() -> bool + Send>;

/// The places that may be asked for.
pub struct Doors {
    keeper: Arc<dyn Doorkeeper>,
    roots: HashMap<PathBuf, Root>,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doors").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// Where a place really lies: a directory, and the name of a file in it.
#[derive(Debug)]
struct Root {
    directory: OwnedFd,
    file: Option<Vec<u8>>,
}

impl Doors {
    /// Opens `places`, as they are outside now; what is not there, holds Airlock's own state (`closed`), or is a link that a
    /// jail may have made (in one of `written`) stays shut.
    pub fn open(places: &[PathBuf], written: &[PathBuf], closed: &[PathBuf], keeper: Arc<dyn Doorkeeper>) -> Self {
        let own: Vec<PathBuf> = closed.iter().filter_map(|c| real(c)).collect();
        let open = |place: &PathBuf| {
            let real = real(place)?;
            let planted = written.iter().any(|w| place.starts_with(w)) && place.symlink_metadata().ok()?.is_symlink();
            if planted || own.iter().any(|o| o.starts_with(&real) || real.starts_with(o)) {
                return None;
            }
            Some((place.clone(), Root::open(&real)?))
        };
        let roots = places.iter().filter_map(open).collect();
        Self { keeper, roots }
    }

    /// The places that can be served.
    pub fn places(&self) -> Vec<&Path> {
        self.roots.keys().map(PathBuf::as_path).collect()
    }

    /// Whether a place can be served at all, bound as a directory or as a file.
    pub(super) fn has(&self, place: &Path, directory: bool) -> bool {
        self.roots.get(place).is_some_and(|root| root.file.is_none() == directory)
    }
}

impl Root {
    fn open(real: &Path) -> Option<Self> {
        let kind = real.metadata().ok()?.file_type();
        let (directory, file) = match kind {
            k if k.is_dir() => (real, None),
            k if k.is_file() => (real.parent()?, Some(real.file_name()?.as_bytes().to_vec())),
            _ => return None,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = rustix::fs::openat2(rustix::fs::CWD, directory, flags, Mode::empty(), resolve).ok()?;
        Some(Self { directory, file })
    }

    /// Opens what lies at `below`, a path without `.` and `..`; the place itself where it is empty.
    fn at(&self, below: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = match (&self.file, below) {
            (Some(name), b"") => name.as_slice(),
            (Some(_), _) => return Err(Errno::NOTDIR),
            (None, b"") => b".",
            (None, below) => below,
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.directory, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
    }
}

/// What an ask is about: a place by its number, or a name directly in it.
type Key = (usize, Vec<u8>);

/// Something below a place that the kernel knows.
#[derive(Debug)]
struct Thing {
    place: usize,
    below: Vec<u8>,
    /// Finds that the kernel has not given back.
    found: u64,
}

/// Something open.
struct Open {
    key: Key,
    pass: Pass,
    what: Opened,
}

enum Opened {
    File(OwnedFd),
    /// Inode, kind as `DT_*`, name.
    Directory(Vec<(u64, u32, Vec<u8>)>),
}

/// Where a request leads: a place and a path below it.
pub(super) struct Spot<'a> {
    /// Number of the place.
    pub(super) number: usize,
    /// As the person knows it.
    pub(super) shown: &'a RawPath,
    /// Where it lies outside.
    pub(super) real: &'a Path,
    /// What is meant, from the place on; empty for the place itself.
    pub(super) below: Vec<u8>,
}

impl Spot<'_> {
    fn key(&self) -> Key {
        (self.number, self.below.split(|b| *b == b'/').next().unwrap_or_default().to_vec())
    }

    /// As the person knows it.
    pub(super) fn path(&self) -> RawPath {
        joined(self.shown, &self.below)
    }
}

fn joined(path: &RawPath, below: &[u8]) -> RawPath {
    if below.is_empty() { path.clone() } else { RawPath([path.as_bytes(), b"/", below].concat()) }
}

/// What the kernel was told of the places.
#[derive(Default)]
pub(super) struct Serving {
    things: HashMap<u64, Thing>,
    ids: HashMap<(usize, Vec<u8>), u64>,
    next: u64,
    open: HashMap<u64, Open>,
    opened: u64,
    passes: HashMap<Key, Pass>,
}

impl Serving {
    /// Place and path of a node below a place.
    pub(super) fn known(&self, id: u64) -> Option<(usize, Vec<u8>)> {
        self.things.get(&id).map(|thing| (thing.place, thing.below.clone()))
    }

    /// The kernel gives finds of a node back.
    pub(super) fn forget(&mut self, node: Node, finds: u64) {
        let Node::Below(id) = node else { return };
        let Some(thing) = self.things.get_mut(&id) else { return };
        thing.found = thing.found.saturating_sub(finds);
        if thing.found == 0
            && let Some(thing) = self.things.remove(&id)
        {
            self.ids.remove(&(thing.place, thing.below));
        }
    }

    /// Whether somebody holds a pass for what lies there, without asking.
    fn seen(&self, key: &Key) -> bool {
        self.passes.get(key).is_some_and(|pass| pass()) || self.open.values().any(|open| open.key == *key && (open.pass)())
    }

    /// Whether it may be looked at. Asks where nobody said so yet.
    fn may(&mut self, doors: &Doors, spot: &Spot<'_>, who: Option<&Process>) -> bool {
        let key = spot.key();
        if self.seen(&key) {
            return true;
        }
        self.passes.remove(&key);
        let Some(pass) = doors.keeper.pass(&joined(spot.shown, &key.1), spot.shown, who) else { return false };
        if self.passes.len() >= PASSES {
            self.passes.clear();
        }
        self.passes.insert(key, pass);
        true
    }

    /// Finds a name; `None` where it may not be looked at.
    pub(super) fn find(&mut self, doors: &Doors, spot: &Spot<'_>, who: Option<&Process>) -> Option<Answer> {
        // Nobody is asked about what is not there, and who may not look does not hear of it.
        let looked = self.look(doors, spot);
        if !(looked.is_ok() || self.seen(&spot.key())) || !self.may(doors, spot, who) {
            return None;
        }
        let found = looked.and_then(|attributes| Ok(Answer::Found(self.number(spot)?, attributes)));
        Some(found.unwrap_or_else(refused))
    }

    fn number(&mut self, spot: &Spot<'_>) -> Result<u64, Errno> {
        let at = (spot.number, spot.below.clone());
        if let Some(id) = self.ids.get(&at)
            && let Some(thing) = self.things.get_mut(id)
        {
            thing.found += 1;
            return Ok(*id);
        }
        if self.things.len() >= NODES {
            return Err(Errno::NOMEM);
        }
        let id = BELOW + self.next;
        self.next += 1;
        self.things.insert(id, Thing { place: spot.number, below: spot.below.clone(), found: 1 });
        self.ids.insert(at, id);
        Ok(id)
    }

    /// What it is; links as such, and nothing but files, directories and links.
    fn look(&self, doors: &Doors, spot: &Spot<'_>) -> Result<Attributes, Errno> {
        let root = doors.roots.get(spot.real).ok_or(Errno::ACCESS)?;
        let fd = root.at(&spot.below, OFlags::PATH)?;
        attributes(&fd)
    }

    /// Attributes of what may be looked at; `None` where it may not. Nobody is asked.
    pub(super) fn attributes(&self, doors: &Doors, spot: &Spot<'_>, node: Node) -> Option<Answer> {
        if !self.seen(&spot.key()) {
            return None;
        }
        Some(self.look(doors, spot).map_or_else(refused, |attributes| Answer::Served(node, attributes)))
    }

    /// Where a link leads, as it is written; whoever follows it does so inside.
    pub(super) fn link(&self, doors: &Doors, spot: &Spot<'_>) -> Option<Answer> {
        if !self.seen(&spot.key()) {
            return None;
        }
        let read = || {
            let root = doors.roots.get(spot.real).ok_or(Errno::ACCESS)?;
            let fd = root.at(&spot.below, OFlags::PATH)?;
            rustix::fs::readlinkat(&fd, "", Vec::new()).map(|to| Answer::Bytes(to.into_bytes()))
        };
        Some(read().unwrap_or_else(refused))
    }

    /// Opens a file or a directory with the pass for it, which is used up by that.
    pub(super) fn open(&mut self, doors: &Doors, spot: &Spot<'_>, who: Option<&Process>, directory: bool) -> Option<Answer> {
        let key = spot.key();
        let held = self.passes.remove(&key).filter(|pass| pass());
        let pass = match held {
            Some(pass) => pass,
            None => doors.keeper.pass(&joined(spot.shown, &key.1), spot.shown, who)?,
        };
        if self.open.len() >= OPEN {
            self.passes.insert(key, pass);
            return Some(refused(Errno::NFILE));
        }
        let names = |open: &Open| if let Opened::Directory(names) = &open.what { names.len() } else { 0 };
        let room = NAMES.saturating_sub(self.open.values().map(names).sum());
        let opened = doors.roots.get(spot.real).ok_or(Errno::ACCESS).and_then(|root| match directory {
            true => list(root, &spot.below, room),
            false => file(root, &spot.below),
        });
        Some(match opened {
            Ok(what) => {
                self.opened += 1;
                self.open.insert(self.opened, Open { key, pass, what });
                Answer::Opened(self.opened)
            }
            Err(e) => refused(e),
        })
    }

    /// Bytes or names of what is open.
    pub(super) fn read(&self, part: Part) -> Answer {
        let Some(open) = self.open.get(&part.open) else { return refused(Errno::BADF) };
        if !(open.pass)() {
            return refused(Errno::ACCESS);
        }
        match &open.what {
            Opened::Directory(names) => Answer::Bytes(listing(
                names.iter().map(|(inode, kind, name)| (*inode, *kind, name.as_slice())),
                part.offset,
                part.size,
            )),
            Opened::File(file) => {
                let size = usize::try_from(part.size).unwrap_or(0).min(1 << 20);
                let mut bytes = vec![0; size];
                match rustix::io::pread(file, &mut bytes, part.offset) {
                    Ok(read) => {
                        bytes.truncate(read);
                        Answer::Bytes(bytes)
                    }
                    Err(e) => refused(e),
                }
            }
        }
    }

    pub(super) fn close(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

fn refused(e: Errno) -> Answer {
    // Where a path led through a link or onto another mount, and what an error outside is, is nobody's business inside.
    Answer::Error(match e {
        Errno::NOENT | Errno::NOTDIR | Errno::NOMEM | Errno::NFILE | Errno::BADF | Errno::OVERFLOW | Errno::ISDIR => {
            e.raw_os_error()
        }
        _ => libc::EACCES,
    })
}

/// What a descriptor is.
fn attributes(fd: &OwnedFd) -> Result<Attributes, Errno> {
    let found = rustix::fs::fstat(fd)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
        return Err(Errno::ACCESS);
    }
    // No set-id bit, and nothing to write.
    let mode = kind.as_raw_mode() | (found.st_mode & 0o755);
    let nanoseconds = u32::try_from(found.st_mtime_nsec).unwrap_or(0);
    Ok(Attributes { size: u64::try_from(found.st_size).unwrap_or(0), changed: (found.st_mtime, nanoseconds), mode })
}

fn file(root: &Root, below: &[u8]) -> Result<Opened, Errno> {
    let fd = root.at(below, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if FileType::from_raw_mode(attributes(&fd)?.mode) != FileType::RegularFile {
        return Err(Errno::ISDIR);
    }
    Ok(Opened::File(fd))
}

fn list(root: &Root, below: &[u8], room: usize) -> Result<Opened, Errno> {
    let fd = root.at(below, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?;
        if names.len() >= room {
            return Err(Errno::OVERFLOW);
        }
        // `DT_*` are the bits of a mode, shifted.
        let kind = entry.file_type().as_raw_mode() >> 12;
        names.push((entry.ino().max(1), kind, entry.file_name().to_bytes().to_vec()));
    }
    Ok(Opened::Directory(names))
}

/// The path of `name` below `below`; `None` for what is no name or too long.
pub(super) fn below(below: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return None;
    }
    let path = if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() };
    (path.len() < PATH).then_some(path)
}
