//! Hands every reader of what strangers send the inputs of its corpus, and a few hundred like each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use targets::TARGETS;

/// A small generator that gives the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'[', b'\\', b'\n', b'/', b'.'];
        match self.below(2) {
            0 => TELLING[self.below(TELLING.len())],
            _ => u8::try_from(self.below(256)).unwrap(),
        }
    }

    /// The same with some bytes changed, taken out, put in or doubled.
    fn changed(&mut self, from: &[u8]) -> Vec<u8> {
        let mut out = from.to_vec();
        for _ in 0..=self.below(6) {
            let at = self.below(out.len() + 1);
            let end = (at + self.below(16)).min(out.len());
            match self.below(4) {
                0 if at < out.len() => out[at] = self.byte(),
                1 => drop(out.drain(at..end)),
                2 => out.insert(at, self.byte()),
                _ => {
                    let part = out[at..end].to_vec();
                    out.splice(at..at, part);
                }
            }
        }
        out
    }
}

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

// The long tier gives its time to the directories, one after the other.
#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut dirs: Vec<_> = std::fs::read_dir(corpus()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
    dirs.sort();
    names.sort();
    assert_eq!(dirs, names);
}

#[test]
fn what_strangers_send_is_read_or_refused() {
    for (name, target) in TARGETS {
        let dir = corpus().join(name);
        let mut seeds: Vec<_> = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).collect();
        seeds.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
        assert!(!seeds.is_empty(), "{name} starts from something");
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut count = 0;
        for seed in seeds {
            let path = seed.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let changed: Vec<_> = (0..300).map(|_| numbers.changed(&bytes)).collect();
            for input in std::iter::once(bytes).chain(changed) {
                count += 1;
                let went = catch_unwind(AssertUnwindSafe(|| target(&input)));
                assert!(went.is_ok(), "{name}, from {}: {:?}", path.display(), String::from_utf8_lossy(&input));
            }
        }
        println!("{name}: {count} inputs");
    }
}
