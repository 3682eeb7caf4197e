//! What a candidate does not hold, with the reason.

use model::path::RawPath;
use std::collections::BTreeMap;

/// So many paths are named; more are counted.
const NAMED: usize = 5_000;
/// So many bytes of paths are named: a keeper's first line has a limit, and each byte may be written as five.
const BYTES: usize = 2 << 20;

/// Paths left out, each once.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    paths: BTreeMap<Vec<u8>, String>,
    bytes: usize,
    more: usize,
}

impl LeftOut {
    /// Adds one. The first reason for a path stays.
    pub(crate) fn add(&mut self, path: &[u8], why: &str) {
        if self.paths.contains_key(path) {
            return;
        }
        if self.paths.len() >= NAMED || self.bytes + path.len() > BYTES {
            self.more += 1;
            return;
        }
        self.bytes += path.len();
        self.paths.insert(path.to_vec(), why.to_owned());
    }

    /// All of them by path, the uncounted last.
    pub(crate) fn into_list(self) -> Vec<(RawPath, String)> {
        let more = (self.more > 0).then(|| (RawPath::from("…"), format!("{} more paths", self.more)));
        self.paths.into_iter().map(|(p, why)| (RawPath(p), why)).chain(more).collect()
    }
}
