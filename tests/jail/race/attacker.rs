//! Changes places of a tree as fast as it can, each by one rename.

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What stands at a place for a while.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    File(String),
    Link(PathBuf),
    /// With files of the names that also lie behind the links.
    Dir,
    /// A directory in which `er` is a link to this.
    DirWithLink(PathBuf),
    /// Nobody writes into it; whoever waits in it is let go after a while.
    Fifo,
    Socket,
    /// Larger than what is read, without a block. (A race for one of a terabyte ends with the keeper's time, which nobody waits for here.)
    Sparse,
    /// One file under many names. (To one outside no jail can make any: what it sees is on other mounts.)
    HardLink,
    /// A git repository whose configuration names a program.
    Repository,
    Gone,
}

/// Attacks until dropped.
pub(crate) struct Attacker {
    stop: Arc<AtomicBool>,
    changes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Attacker {
    /// The places lie directly in the tree: their own paths must lead nowhere.
    pub(crate) fn start(stage: &Path, places: Vec<(PathBuf, Vec<Shape>)>) -> Self {
        let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count, stage) = (stop.clone(), changes.clone(), tempfile::tempdir_in(stage).expect("a directory"));
        // One FIFO and one file under many names: whoever waits in any FIFO is let go through this one.
        let (fifo, twin) = (stage.path().join("fifo"), stage.path().join("twin"));
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        std::fs::write(&twin, "twin\n").expect("a file");
        let mut places: Vec<Place> = places
            .into_iter()
            .enumerate()
            .map(|(n, (at, shapes))| {
                remove(&at);
                let slots = shapes.iter().enumerate().map(|(k, shape)| {
                    let slot = stage.path().join(format!("{n}-{k}"));
                    make(&slot, shape, &fifo, &twin).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
                    (!matches!(shape, Shape::Gone)).then_some(slot)
                });
                let slots = slots.collect();
                Place { at, slots, shapes, stands: None }
            })
            .collect();
        let thread = std::thread::spawn(move || {
            let let_go = || drop(rustix::fs::open(&fifo, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()));
            // Goes last.
            let _stage = stage;
            let mut turn = 0;
            while !ends.load(Ordering::Relaxed) {
                for (n, place) in places.iter_mut().enumerate() {
                    // They get out of step, so that every combination comes.
                    if place.change(turn / (n + 1)).is_err() {
                        // Somebody else put something there.
                        place.anew(&fifo, &twin);
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let_go();
                turn += 1;
            }
            for place in &places {
                remove(&place.at);
            }
            let_go();
        });
        Self { stop, changes, thread: Some(thread) }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the attack went on to the end");
    }
}

/// A place, where each shape waits for its turn, and which one stands now.
struct Place {
    at: PathBuf,
    slots: Vec<Option<PathBuf>>,
    shapes: Vec<Shape>,
    stands: Option<PathBuf>,
}

impl Place {
    /// One rename puts the next shape in the place of the last.
    fn change(&mut self, turn: usize) -> rustix::io::Result<()> {
        let next = self.slots[turn % self.slots.len()].clone();
        if next == self.stands {
            return Ok(());
        }
        let step = |from: &Path, to: &Path, flags| rustix::fs::renameat_with(CWD, from, CWD, to, flags);
        match (&self.stands, &next) {
            (None, Some(slot)) => step(slot, &self.at, RenameFlags::NOREPLACE)?,
            (Some(stands), None) => step(&self.at, stands, RenameFlags::NOREPLACE)?,
            (Some(stands), Some(slot)) => {
                step(slot, &self.at, RenameFlags::EXCHANGE)?;
                step(slot, stands, RenameFlags::NOREPLACE)?;
            }
            (None, None) => {}
        }
        self.stands = next;
        Ok(())
    }

    fn anew(&mut self, fifo: &Path, twin: &Path) {
        remove(&self.at);
        self.stands = None;
        for (slot, shape) in self.slots.iter().zip(&self.shapes) {
            if let Some(slot) = slot {
                remove(slot);
                make(slot, shape, fifo, twin).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
            }
        }
    }
}

fn make(at: &Path, shape: &Shape, fifo: &Path, twin: &Path) -> std::io::Result<()> {
    match shape {
        Shape::File(text) => std::fs::write(at, text),
        Shape::Link(to) => symlink(to, at),
        Shape::Dir => {
            std::fs::create_dir_all(at.join("er"))?;
            ["lib.rs", "key", "file", "er/file"].iter().try_for_each(|f| std::fs::write(at.join(f), "inside\n"))
        }
        Shape::DirWithLink(to) => std::fs::create_dir(at).and_then(|()| symlink(to, at.join("er"))),
        Shape::Fifo => std::fs::hard_link(fifo, at),
        Shape::Socket => rustix::fs::mknodat(CWD, at, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).map_err(Into::into),
        Shape::Sparse => std::fs::File::create(at).and_then(|f| f.set_len(300 << 20)),
        Shape::HardLink => std::fs::hard_link(twin, at),
        Shape::Repository => {
            for dir in [".git/objects", ".git/refs"] {
                std::fs::create_dir_all(at.join(dir))?;
            }
            std::fs::write(at.join(".git/HEAD"), "ref: refs/heads/main\n")?;
            std::fs::write(at.join(".git/config"), "[core]\n\tfsmonitor = touch /tmp/ran\n")
        }
        Shape::Gone => Ok(()),
    }
}

/// Whatever stands there.
pub(crate) fn remove(place: &Path) {
    match place.symlink_metadata() {
        Ok(about) if about.is_dir() => drop(std::fs::remove_dir_all(place)),
        Ok(_) => drop(std::fs::remove_file(place)),
        Err(_) => {}
    }
}
