//! What the command prints: kept in files, read by any number of clients at their own pace.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Terminal or stdout.
    Out,
    /// Stderr (pipes only).
    Err,
}

struct Kept {
    path: PathBuf,
    /// The half before, renamed to `….old`; reading goes on in it.
    older: Option<(File, u64)>,
    file: File,
    /// Position in the whole stream of the file's first byte.
    base: u64,
    /// Bytes in the file.
    length: u64,
}

impl Kept {
    /// Position of the first byte that is still there.
    fn first(&self) -> u64 {
        self.base - self.older.as_ref().map_or(0, |(_, length)| *length)
    }
}

/// A piece of a stream.
pub(crate) struct Piece {
    /// Bytes before it that the reader did not get, as the limit made them go.
    pub(crate) missed: u64,
    /// The bytes; empty at the end.
    pub(crate) bytes: Vec<u8>,
}

/// Both streams of one run.
pub(crate) struct Output {
    out: Mutex<Kept>,
    err: Mutex<Kept>,
    limit: AtomicU64,
    /// What a raise adds.
    step: u64,
    grown: watch::Sender<u64>,
}

/// Beside the file; the pair is what is kept.
fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

fn fresh(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

fn kept(path: PathBuf) -> std::io::Result<Mutex<Kept>> {
    Ok(Mutex::new(Kept { file: fresh(&path)?, path, older: None, base: 0, length: 0 }))
}

impl Output {
    /// Makes the files. `limit` is how many bytes a stream keeps; past it the older half goes.
    pub(crate) fn create(log: &Path, limit: u64) -> std::io::Result<Self> {
        Ok(Self {
            out: kept(log.to_owned())?,
            err: kept(log.with_extension("err"))?,
            limit: AtomicU64::new(limit.max(1 << 16)),
            step: limit.max(1 << 16),
            grown: watch::Sender::new(0),
        })
    }

    /// Bytes that a stream keeps.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The same with as much again.
    pub(crate) fn next(&self) -> u64 {
        self.limit().saturating_add(self.step)
    }

    /// A stream keeps as much again from now on.
    pub(crate) fn raise(&self) {
        self.limit.store(self.next(), Ordering::Relaxed);
    }

    fn stream(&self, which: Which) -> std::sync::MutexGuard<'_, Kept> {
        let m = match which {
            Which::Out => &self.out,
            Which::Err => &self.err,
        };
        m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Keeps bytes. True where the limit made older ones go.
    pub(crate) fn append(&self, which: Which, bytes: &[u8]) -> std::io::Result<bool> {
        let mut k = self.stream(which);
        let mut cut = false;
        if k.length + bytes.len() as u64 > self.limit() / 2 {
            cut = k.older.is_some();
            std::fs::rename(&k.path, old(&k.path))?;
            // Where there is no new file, the old one keeps its name, and the next bytes try again.
            let next = fresh(&k.path).inspect_err(|_| drop(std::fs::rename(old(&k.path), &k.path)))?;
            let full = std::mem::replace(&mut k.file, next);
            k.older = Some((full, k.length));
            k.base += k.length;
            k.length = 0;
        }
        // At its place: what a full disk took of an earlier write is written over.
        k.file.write_all_at(bytes, k.length)?;
        k.length += bytes.len() as u64;
        drop(k);
        self.grown.send_modify(|n| *n += 1);
        Ok(cut)
    }

    /// Where a client that wants the last `replay` bytes begins.
    pub(crate) fn cursor(&self, which: Which, replay: u64) -> u64 {
        let k = self.stream(which);
        (k.base + k.length).saturating_sub(replay).max(k.first())
    }

    /// Reads on from a cursor, at most 64 KiB.
    pub(crate) fn read(&self, which: Which, cursor: &mut u64) -> std::io::Result<Piece> {
        let k = self.stream(which);
        let missed = k.first().saturating_sub(*cursor);
        *cursor += missed;
        let (file, start, end) = match &k.older {
            Some((older, _)) if *cursor < k.base => (older, k.first(), k.base),
            _ => (&k.file, k.base, k.base + k.length),
        };
        let left = end.saturating_sub(*cursor).min(64 << 10);
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(0)];
        file.read_exact_at(&mut bytes, *cursor - start)?;
        *cursor += bytes.len() as u64;
        Ok(Piece { missed, bytes })
    }

    /// Changes with every append.
    pub(crate) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at once")]
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_slow_reader_gets_every_byte_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::create(&dir.path().join("a.log"), 1 << 20).unwrap();
        let data: Vec<u8> = (0..200_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for part in data.chunks(7000) {
            assert!(!output.append(Which::Out, part).unwrap());
        }
        let mut cursor = output.cursor(Which::Out, u64::MAX);
        let mut got = Vec::new();
        loop {
            let part = output.read(Which::Out, &mut cursor).unwrap();
            assert_eq!(part.missed, 0);
            if part.bytes.is_empty() {
                break;
            }
            got.extend(part.bytes);
        }
        assert!(got == data, "nothing may be lost or doubled");
    }

    #[test]
    fn a_write_that_failed_half_way_moves_nothing_that_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let output = Output::create(&log, 1 << 16).unwrap();
        output.append(Which::Out, b"before ").unwrap();
        // As a disk leaves it that took half of a write and refused the rest.
        std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(b"half").unwrap();
        output.append(Which::Out, b"after").unwrap();
        let mut cursor = 0;
        assert_eq!(output.read(Which::Out, &mut cursor).unwrap().bytes, b"before after");
    }

    #[test]
    fn output_is_kept_again_once_a_new_file_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let output = Output::create(&log, 1 << 16).unwrap();
        output.append(Which::Out, &[1; 30_000]).unwrap();
        // Nothing can take the name of a directory that holds something.
        std::fs::create_dir_all(old(&log).join("x")).unwrap();
        output.append(Which::Out, &[2; 30_000]).unwrap_err();
        std::fs::remove_dir_all(old(&log)).unwrap();
        output.append(Which::Out, &[3; 30_000]).unwrap();
        let mut cursor = 0;
        assert_eq!(output.read(Which::Out, &mut cursor).unwrap().bytes, [1; 30_000]);
        assert_eq!(output.read(Which::Out, &mut cursor).unwrap().bytes, [3; 30_000]);
    }

    #[test]
    fn past_the_limit_the_older_half_goes_and_a_reader_is_told_what_it_missed() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::create(&dir.path().join("a.log"), 1 << 16).unwrap();
        for (n, cut) in [(1, false), (2, false), (3, true)] {
            assert_eq!(output.append(Which::Out, &[n; 30_000]).unwrap(), cut, "part {n}");
        }
        let mut cursor = 0;
        let first = output.read(Which::Out, &mut cursor).unwrap();
        assert_eq!((first.missed, first.bytes), (30_000, vec![2; 30_000]));
        let second = output.read(Which::Out, &mut cursor).unwrap();
        assert_eq!((second.missed, second.bytes), (0, vec![3; 30_000]));
        assert_eq!(output.cursor(Which::Out, u64::MAX), 30_000, "a replay begins at what is still there");
    }
}
