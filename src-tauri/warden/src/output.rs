//! What the command prints: kept in files, read by any number of clients at their own pace.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
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
    file: File,
    /// Position in the whole stream of the file's first byte.
    base: u64,
    /// Bytes in the file.
    length: u64,
}

/// Both streams of one run.
pub(crate) struct Output {
    out: Mutex<Kept>,
    err: Mutex<Kept>,
    limit: u64,
    grown: watch::Sender<u64>,
}

fn kept(path: &Path) -> std::io::Result<Mutex<Kept>> {
    let file = std::fs::OpenOptions::new().create_new(true).read(true).append(true).mode(0o600).open(path)?;
    Ok(Mutex::new(Kept { file, base: 0, length: 0 }))
}

impl Output {
    /// Makes the files. `limit` is how many bytes a file keeps; past it the oldest go.
    pub(crate) fn create(log: &Path, limit: u64) -> std::io::Result<Self> {
        Ok(Self {
            out: kept(log)?,
            err: kept(&log.with_extension("err"))?,
            limit: limit.max(1 << 16),
            grown: watch::Sender::new(0),
        })
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
        if k.length + bytes.len() as u64 > self.limit {
            k.file.set_len(0)?;
            k.base += k.length;
            k.length = 0;
            cut = true;
        }
        k.file.write_all(bytes)?;
        k.length += bytes.len() as u64;
        drop(k);
        self.grown.send_modify(|n| *n += 1);
        Ok(cut)
    }

    /// Where a client that wants the last `replay` bytes begins.
    pub(crate) fn cursor(&self, which: Which, replay: u64) -> u64 {
        let k = self.stream(which);
        k.base + k.length.saturating_sub(replay)
    }

    /// Reads on from a cursor, at most 64 KiB; empty at the end.
    pub(crate) fn read(&self, which: Which, cursor: &mut u64) -> std::io::Result<Vec<u8>> {
        let k = self.stream(which);
        // What went by the limit can't be shown any more.
        *cursor = (*cursor).max(k.base);
        let left = (k.base + k.length).saturating_sub(*cursor).min(64 << 10);
        let mut buffer = vec![0; usize::try_from(left).unwrap_or(0)];
        k.file.read_exact_at(&mut buffer, *cursor - k.base)?;
        *cursor += buffer.len() as u64;
        Ok(buffer)
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
            if part.is_empty() {
                break;
            }
            got.extend(part);
        }
        assert!(got == data, "nothing may be lost or doubled");
    }

    #[test]
    fn past_the_limit_the_oldest_go_and_a_reader_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::create(&dir.path().join("a.log"), 1 << 16).unwrap();
        let mut cursor = 0;
        output.append(Which::Out, &[1; 60_000]).unwrap();
        assert!(output.append(Which::Out, &[2; 60_000]).unwrap(), "the limit is told");
        assert_eq!(output.read(Which::Out, &mut cursor).unwrap(), vec![2; 60_000]);
    }
}
