//! Growth on disk: free space, watched; what of it is the run's own, counted when it may matter.

use super::size;
use super::tree::{Tree, threads};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::DirEntry;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::proc::is_gone;

/// Longest count of what lies in the places.
const COUNT: Duration = Duration::from_secs(2);
/// Deepest directory that is counted.
const DEPTH: usize = 200;
/// Space that falls by so much between two looks falls fast.
const FAST: u64 = 32 << 20;
/// While it runs a run is counted at least this often, and so that counting takes a hundredth of the time: whoever else frees
/// space meanwhile hides that it falls.
const AGAIN: Duration = Duration::from_secs(1);
const SHARE: u32 = 100;
/// Space that always stays free, if there is as much at the start.
const RESERVE: u64 = 5 << 30;

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing much.
    Slow,
    /// Space falls fast: the next look should come soon.
    Fast,
    /// A limit is reached; in words.
    Reached(String),
}

pub(super) struct Disk {
    places: Vec<PathBuf>,
    /// One directory on the file system, to ask for its free space.
    at: OwnedFd,
    device: u64,
    limit: u64,
    /// Growth at which the run is paused next.
    allowed: u64,
    /// Free space at which it is.
    reserve: u64,
    free: u64,
    /// By how much free space fell since the last count, rises left out: no less than the run can have written.
    fallen: u64,
    /// What lay in the places when the run began.
    base: Option<u64>,
    /// What the last count found.
    found: u64,
    /// By how much space fell beside what counts found, since the last one that was whole.
    unseen: u64,
    grown: u64,
    /// When it was counted last, and how long that took.
    counted: Instant,
    took: Duration,
    /// Whether anything ran since.
    stale: bool,
}

impl Disk {
    pub(super) fn new(places: &[PathBuf], limit: u64) -> io::Result<Self> {
        let first = places.first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no place is named"))?;
        let at = open(first)?;
        let device = rustix::fs::fstat(&at)?.st_dev;
        let fs = rustix::fs::fstatvfs(&at)?;
        let free = fs.f_bavail * fs.f_frsize;
        let reserve = reserve(free, fs.f_blocks * fs.f_frsize);
        Ok(Self {
            places: places.to_vec(),
            at,
            device,
            limit,
            allowed: limit,
            reserve,
            free,
            fallen: 0,
            base: None,
            found: 0,
            unseen: 0,
            grown: 0,
            counted: Instant::now(),
            took: Duration::ZERO,
            stale: false,
        })
    }

    /// The run goes on after it was paused: as much again, or half of what is left.
    pub(super) fn raise(&mut self) {
        self.allowed = self.next();
        self.reserve = self.reserve.min(self.free / 2);
    }

    /// The limit with as much again.
    pub(super) fn next(&self) -> u64 {
        self.grown.max(self.allowed).saturating_add(self.limit)
    }

    /// Whether something ran that was not counted yet.
    pub(super) fn stale(&self) -> bool {
        self.stale
    }

    pub(super) fn look(&mut self, tree: &Tree, busy: bool) -> Finding {
        self.stale |= busy;
        let Ok(fs) = rustix::fs::fstatvfs(&self.at) else { return Finding::Slow };
        let free = fs.f_bavail * fs.f_frsize;
        let fell = self.free.saturating_sub(free);
        self.free = free;
        self.fallen += fell;
        let left = self.allowed.saturating_sub(self.grown);
        let low = free < self.reserve;
        let due = self.stale && self.counted.elapsed() >= AGAIN.max(self.took * SHARE);
        if low || due || self.fallen >= (left / 2).max(self.limit / 16) {
            let begun = Instant::now();
            let (found, whole) = count(&self.places, self.device, tree);
            (self.counted, self.took, self.stale) = (Instant::now(), begun.elapsed(), false);
            if let Some(detail) = self.judge(found, whole, low) {
                return Finding::Reached(detail);
            }
        }
        let soon = fell.saturating_mul(3) >= free.saturating_sub(self.reserve).min(left);
        if fell >= FAST || (fell > 0 && soon) { Finding::Fast } else { Finding::Slow }
    }

    /// Takes a count in; why the run must stop, where it must.
    fn judge(&mut self, found: u64, whole: bool, low: bool) -> Option<String> {
        // At the first count nobody knows what lay there before; all that space fell by may be the run's.
        let first = found.saturating_sub(self.fallen);
        let before = if self.base.is_some() { self.found } else { first };
        let base = *self.base.get_or_insert(first);
        // It adds up from look to look: else what is written in small pieces would never be much.
        let more = self.fallen.saturating_sub(found.saturating_sub(before));
        self.unseen = if whole { 0 } else { self.unseen + more };
        (self.found, self.fallen) = (found, 0);
        self.grown = found.saturating_sub(base) + self.unseen;
        let how = if whole { "" } else { " (part of it could not be counted, and space on the disk fell by as much)" };
        let grown = format!("its workspace and home grew by {}{how}", size(self.grown));
        let then = "it is paused: `airlock task continue` lets it go on, `airlock task stop` ends it";
        if self.grown >= self.allowed {
            return Some(format!("{grown}, {} are allowed; {then}; `limits.disk` raises it", size(self.allowed)));
        }
        low.then(|| {
            format!(
                "the disk has {} left, less than the {} that stay free, whoever took it; since the run began {grown}; {then}",
                size(self.free),
                size(self.reserve)
            )
        })
    }
}

/// The larger of 5 GiB and a twentieth; on a disk with less, half of what is free.
fn reserve(free: u64, whole: u64) -> u64 {
    let usual = RESERVE.max(whole / 20);
    if free > usual { usual } else { free / 2 }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Bytes that lie in the places, and in files that have no name any more but are open; false where not all could be seen.
fn count(places: &[PathBuf], device: u64, tree: &Tree) -> (u64, bool) {
    let mut count = Count { device, bytes: 0, linked: HashSet::new(), whole: true, until: Instant::now() + COUNT };
    for place in places {
        match open(place) {
            Ok(directory) => count.directory(directory, DEPTH),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(_) => count.whole = false,
        }
    }
    for pid in tree.pids() {
        count.nameless(pid, tree);
    }
    (count.bytes, count.whole)
}

struct Count {
    device: u64,
    bytes: u64,
    /// Files of several names that were counted.
    linked: HashSet<u64>,
    whole: bool,
    until: Instant,
}

impl Count {
    fn take(&mut self, stat: &Stat) {
        if stat.st_dev == self.device && (stat.st_nlink == 1 || self.linked.insert(stat.st_ino)) {
            self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
    }

    /// Everything below a directory: by descriptor, no link followed and no file opened, since whoever made them is hostile.
    fn directory(&mut self, directory: OwnedFd, depth: usize) {
        let entries = if depth > 0 { Dir::read_from(&directory).ok() } else { None };
        let Some(entries) = entries else {
            self.whole = false;
            return;
        };
        let mut below: Vec<CString> = Vec::new();
        for entry in entries {
            // At each entry: one directory may hold millions.
            let Some(entry) = entry.ok().filter(|_| Instant::now() < self.until) else {
                self.whole = false;
                return;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) => continue,
                Err(_) => {
                    self.whole = false;
                    continue;
                }
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                    below.push(name.to_owned());
                }
                _ => self.take(&stat),
            }
        }
        for name in below {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, &name, flags, Mode::empty()) {
                Ok(child) => self.directory(child, depth - 1),
                // Gone or another thing by now: a moving tree is counted again soon.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
                Err(_) => self.whole = false,
            }
        }
    }

    /// What a process has open: of each table of descriptors, as threads may have one of their own.
    fn nameless(&mut self, pid: i32, tree: &Tree) {
        let mut tables: Vec<i32> = Vec::new();
        for tid in threads(pid) {
            if tables.iter().any(|other| sys::fd::same_table(*other, tid) == Ok(true)) {
                continue;
            }
            match std::fs::read_dir(format!("/proc/{tid}/fd")) {
                Ok(table) => {
                    tables.push(tid);
                    table.for_each(|fd| self.opened(fd));
                }
                Err(e) if is_gone(&e) || tree.watches(pid) => {}
                Err(_) => self.whole = false,
            }
            if Instant::now() >= self.until {
                self.whole = false;
                return;
            }
        }
    }

    fn opened(&mut self, fd: io::Result<DirEntry>) {
        if Instant::now() >= self.until {
            self.whole = false;
            return;
        }
        let stat = match fd.and_then(|fd| Ok(rustix::fs::stat(fd.path())?)) {
            Ok(stat) => stat,
            Err(e) if is_gone(&e) => return,
            Err(_) => {
                self.whole = false;
                return;
            }
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_nlink == 0
            && stat.st_dev == self.device
            && self.linked.insert(stat.st_ino)
        {
            self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, one of which starts a program to look at")]
    use super::*;

    fn disk(dir: &Path, limit: u64) -> Disk {
        Disk::new(&[dir.to_owned()], limit).unwrap()
    }

    #[test]
    fn p8_own_growth_is_told_from_what_others_write() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = disk(dir.path(), 100 << 20);
        d.fallen = 60 << 20;
        assert_eq!(d.judge(70 << 20, true, false), None, "less than is allowed");
        assert_eq!(d.base, Some(10 << 20), "what lay there before is what space did not fall by");
        d.fallen = 500 << 20;
        assert_eq!(d.judge(80 << 20, true, false), None, "space that others took is not the run's");
        d.fallen = 40 << 20;
        let told = d.judge(120 << 20, true, false).unwrap();
        assert!(told.contains("110 MiB") && told.contains("100 MiB") && told.contains("limits.disk"), "{told}");
        d.raise();
        d.fallen = 10 << 20;
        assert_eq!(d.judge(130 << 20, true, false), None, "the person let it go on");
        d.fallen = 100 << 20;
        assert!(d.judge(230 << 20, true, false).is_some(), "for as much again");
    }

    #[test]
    fn p8_what_can_not_be_counted_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = disk(dir.path(), 100 << 20);
        d.base = Some(0);
        d.fallen = 120 << 20;
        let told = d.judge(1 << 20, false, false).unwrap();
        assert!(told.contains("could not be counted"), "{told}");

        let mut d = disk(dir.path(), 100 << 20);
        d.base = Some(0);
        let pieces = (1..=30_u64).find(|n| {
            d.fallen = 5 << 20;
            d.judge(n << 20, false, false).is_some()
        });
        assert_eq!(pieces, Some(20), "pieces of 5 MiB, of which a count sees 1, are 100 MiB after 20");
        assert_eq!(d.judge(20 << 20, true, false), None, "a count that is whole knows better");
    }

    #[test]
    fn p8_a_disk_that_runs_full_stops_a_run_whoever_filled_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = disk(dir.path(), 100 << 20);
        d.base = Some(0);
        let told = d.judge(1 << 20, true, true).unwrap();
        assert!(told.contains("whoever took it") && told.contains("1 MiB"), "{told}");
        d.free = 2 << 30;
        d.reserve = 5 << 30;
        d.raise();
        assert_eq!(d.reserve, 1 << 30, "the person let it go on: half of what is left");
        assert_eq!(reserve(100 << 30, 1 << 40), (1 << 40) / 20);
        assert_eq!(reserve(100 << 30, 20 << 30), 5 << 30);
        assert_eq!(reserve(1 << 30, 20 << 30), 512 << 20, "a disk that is nearly full at the start stops nothing yet");
    }

    #[test]
    fn p8_growth_is_seen_although_others_free_as_much() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = disk(dir.path(), 4 << 20);
        // A tree that has nothing open here.
        let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = Tree::of(i32::try_from(sleep.id()).unwrap(), None).unwrap();
        let a_while_ago = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        d.counted = a_while_ago;
        assert!(!matches!(d.look(&tree, true), Finding::Reached(_)), "nothing is there yet");
        std::fs::write(dir.path().join("file"), vec![1; 8 << 20]).unwrap();
        // What is free now is more than there was: it fell by nothing.
        d.free = 0;
        assert!(!matches!(d.look(&tree, true), Finding::Reached(_)), "a count has its time");
        d.counted = a_while_ago;
        d.took = Duration::from_millis(100);
        assert!(!matches!(d.look(&tree, true), Finding::Reached(_)), "and takes a small share of it");
        d.took = Duration::from_millis(1);
        let found = d.look(&tree, false);
        assert!(matches!(&found, Finding::Reached(detail) if detail.contains("8 MiB")), "{found:?}");
        assert!(!d.stale(), "nothing ran since");
        sleep.kill().and_then(|()| sleep.wait()).unwrap();
    }

    #[test]
    fn p8_a_directory_of_very_many_files_holds_up_no_look() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..20_000 {
            std::fs::File::create(dir.path().join(n.to_string())).unwrap();
        }
        let device = rustix::fs::stat(dir.path()).unwrap().st_dev;
        let until = Instant::now() + Duration::from_millis(1);
        let mut count = Count { device, bytes: 0, linked: HashSet::new(), whole: true, until };
        count.directory(open(dir.path()).unwrap(), DEPTH);
        assert!(!count.whole, "the count ends by the clock in the midst of a directory, and says so");
    }

    #[test]
    fn files_are_counted_once_and_links_not_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let big = vec![7; 3 << 20];
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/file"), &big).unwrap();
        std::fs::hard_link(dir.path().join("a/file"), dir.path().join("same")).unwrap();
        std::fs::write(outside.path().join("file"), &big).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        let mut open = std::fs::File::create_new(dir.path().join("gone")).unwrap();
        std::fs::remove_file(dir.path().join("gone")).unwrap();
        io::Write::write_all(&mut open, &big).unwrap();
        open.sync_all().unwrap();
        std::fs::File::open(dir.path().join("a/file")).unwrap().sync_all().unwrap();
        let mut tree = Tree::of(i32::try_from(std::process::id()).unwrap(), None).unwrap();
        tree.look();
        let device = rustix::fs::stat(dir.path()).unwrap().st_dev;
        let (bytes, whole) = count(&[dir.path().to_owned()], device, &tree);
        assert!(whole && (6 << 20..8 << 20).contains(&bytes), "two files, one of them without a name: {bytes}");
    }
}
