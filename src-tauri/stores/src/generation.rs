//! Generations: copies of a cache that never change once they have their name, so that an overlay may stand on them.

use crate::secret::holds_secret;
use crate::table::{Cache, cache, is_credential};
use crate::tree::{self, Counts, Limits, Rules, Stop, Wish, open_dir};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A generation in the making.
const MAKING: &str = ".making";
/// A generation on its way out.
const GOING: &str = ".going-";
/// What the live cache looked like when it was copied last.
const SEEN: &str = "seen";
/// The cheap look goes so deep, and past so many entries no further.
const LOOK: (usize, usize) = (3, 20_000);

/// What was seen of a live cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    /// Of the cheap look.
    look: u64,
    /// When it was copied, in Unix seconds.
    at: u64,
    /// Since which start of the machine: a copy is not waited for until the disk has it, so one from before is looked at anew.
    boot: String,
}

/// After so many seconds a cache is copied again although the cheap look sees no change: it does not look at every directory.
const STALE: u64 = 3600;

/// A generation that somebody uses, and that is not removed meanwhile.
#[derive(Debug)]
pub struct Held {
    /// Where its files are.
    pub path: PathBuf,
    _lock: OwnedFd,
}

/// A new generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// What is in it.
    pub counts: Counts,
}

/// Why there is no new generation.
#[derive(Debug, thiserror::Error)]
pub enum NotMade {
    /// Another process makes one.
    #[error("it is being copied already")]
    Busy,
    /// Too much, too slow, no room.
    #[error(transparent)]
    Stop(#[from] Stop),
    /// A file of Airlock's own failed.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no cache of that name.
    #[error("there is no cache called `{0}`")]
    Unknown(String),
}

/// Whether a live cache changed since its newest generation, by a look at its upper directories; `now` in Unix seconds.
pub fn changed(root: &Path, name: &str, source: &Path, now: u64) -> bool {
    let dir = root.join(name);
    let seen = std::fs::read(dir.join(SEEN)).ok().and_then(|text| serde_json::from_slice::<Seen>(&text).ok());
    let fresh =
        |seen: &Seen| seen.look == look(source) && now.saturating_sub(seen.at) < STALE && seen.at <= now && seen.boot == boot();
    newest(&dir).is_none() || !seen.as_ref().is_some_and(fresh)
}

/// Takes the newest generation of a cache, so that it stays for as long as the answer lives.
pub fn hold(root: &Path, name: &str) -> Option<Held> {
    let dir = root.join(name);
    // One that is just being removed gives way to a newer one.
    for _ in 0..8 {
        let path = dir.join(newest(&dir)?.to_string());
        let Ok(lock) = open_dir(&path) else { continue };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() && is_still(&path, &lock) {
            return Some(Held { path, _lock: lock });
        }
    }
    None
}

/// Copies a live cache into a new generation and drops old ones. `watch` is told how far it is and says whether to go on.
pub fn refresh(
    root: &Path,
    name: &str,
    source: &Path,
    limits: &Limits,
    now: u64,
    watch: &dyn Fn(&Counts) -> bool,
) -> Result<Made, NotMade> {
    let cache = cache(name).ok_or_else(|| NotMade::Unknown(name.to_owned()))?;
    let dir = root.join(name);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| NotMade::Io { path, source }
    };
    make_dir(&dir).map_err(io(&dir))?;
    let maker = open_dir(&dir).map_err(io(&dir))?;
    if rustix::fs::flock(&maker, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(NotMade::Busy);
    }
    let making = dir.join(MAKING);
    remove(&making).map_err(io(&making))?;
    make_dir(&making).map_err(io(&making))?;
    // Looked at first: what changes during the copy counts as a change after it.
    let seen = Seen { look: look(source), at: now, boot: boot() };
    let old = newest(&dir);
    let made = (|| {
        let from = open_dir(source).map_err(io(source))?;
        let to = open_dir(&making).map_err(io(&making))?;
        let before = old.and_then(|n| open_dir(&dir.join(n.to_string())).ok());
        let mut counts = Counts::default();
        let rules = Content { cache, watch };
        tree::copy(from.as_fd(), to.as_fd(), before.as_ref().map(|b| b.as_fd()), b"", &rules, limits, &mut counts)?;
        Ok::<_, NotMade>(counts)
    })();
    let counts = match made {
        Ok(counts) => counts,
        Err(e) => {
            drop(remove(&making));
            return Err(e);
        }
    };
    let new = dir.join((old.unwrap_or(0) + 1).to_string());
    std::fs::rename(&making, &new).map_err(io(&new))?;
    let text = serde_json::to_vec(&seen).map_err(|e| io(&dir)(e.into()))?;
    let temporary = dir.join(".seen");
    std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, dir.join(SEEN))).map_err(io(&dir))?;
    drop_old(&dir);
    Ok(Made { counts })
}

/// Removes what killed copies have left, and old generations that nobody uses.
pub fn clean_up(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let dir = entry.path();
        let Ok(maker) = open_dir(&dir) else { continue };
        if rustix::fs::flock(&maker, FlockOperation::NonBlockingLockExclusive).is_ok() {
            if let Err(error) = remove(&dir.join(MAKING)) {
                tracing::warn!(%error, dir = %dir.display(), "half a generation is left");
            }
            drop_old(&dir);
        }
    }
}

/// Removes all generations but the newest, as far as nobody holds them. The caller is the only one who makes or removes some.
fn drop_old(dir: &Path) {
    let keep = newest(dir);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = dir.join(name);
        let old = name.parse::<u64>().is_ok_and(|n| Some(n) != keep);
        let going = match old.then(|| open_dir(&path)) {
            Some(Ok(lock)) if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                let going = dir.join(format!("{GOING}{name}"));
                // Whoever took its path before this finds it gone when looking again under its own lock.
                if std::fs::rename(&path, &going).is_err() {
                    continue;
                }
                going
            }
            Some(_) => continue,
            None if name.starts_with(GOING) => path,
            None => continue,
        };
        if let Err(error) = remove(&going) {
            tracing::warn!(%error, dir = %going.display(), "an old generation is left");
        }
    }
}

/// What a cache's table line says, as rules of a copy.
struct Content<'a> {
    cache: &'a Cache,
    watch: &'a dyn Fn(&Counts) -> bool,
}

impl Rules for Content<'_> {
    fn wish(&self, path: &[u8]) -> Wish {
        let Ok(path) = std::str::from_utf8(path) else { return Wish::Skip("its name is not UTF-8") };
        let parts: Vec<&str> = path.split('/').collect();
        if !self.cache.unpacked && parts.last().is_some_and(|name| is_credential(name)) {
            return Wish::Skip("it may hold a secret");
        }
        (self.cache.wish)(&parts)
    }

    fn link(&self, path: &[u8]) -> Wish {
        self.wish(path)
    }

    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn contents(&self, _path: &[u8], bytes: Vec<u8>) -> Option<Vec<u8>> {
        (!holds_secret(&bytes)).then_some(bytes)
    }

    fn goes_on(&self, so_far: &Counts) -> bool {
        (self.watch)(so_far)
    }
}

/// The number of the newest generation.
fn newest(dir: &Path) -> Option<u64> {
    let names = std::fs::read_dir(dir).ok()?.flatten();
    names.filter_map(|e| e.file_name().to_str()?.parse().ok()).max()
}

fn is_still(path: &Path, opened: &OwnedFd) -> bool {
    let Ok(now) = std::fs::symlink_metadata(path) else { return false };
    rustix::fs::fstat(opened).is_ok_and(|was| (was.st_dev, was.st_ino) == (now.dev(), now.ino()))
}

/// Names and times of the upper directories, as one number.
fn look(source: &Path) -> u64 {
    let mut hash = DefaultHasher::new();
    let mut todo = vec![(source.to_owned(), 0)];
    let mut seen = 0;
    while let Some((dir, depth)) = todo.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&dir) else { continue };
        (dir.as_os_str().as_bytes(), meta.mtime(), meta.mtime_nsec(), meta.ino()).hash(&mut hash);
        seen += 1;
        if depth >= LOOK.0 || seen > LOOK.1 {
            continue;
        }
        let mut below: Vec<PathBuf> = std::fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .map(|e| e.path())
            .collect();
        below.sort();
        todo.extend(below.into_iter().map(|path| (path, depth + 1)));
    }
    hash.finish()
}

/// Which start of the machine this is.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory of Airlock's own. Only names go: its files may be the person's too, by a hard link.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes the layer of a task that takes what is written over a cache; what is there is looked at, not trusted.
pub fn layer(private: &Path) -> io::Result<()> {
    make_dir(private)?;
    let dir = open_dir(private)?;
    for name in ["upper", "work"] {
        match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&dir, name, flags, Mode::empty())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
