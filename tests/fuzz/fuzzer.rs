//! libFuzzer at one target: `AIRLOCK_FUZZ_TARGET=NAME fuzzer [OPTIONS] CORPUS…`, built and run by tests/run/fuzz.mjs.
#![no_main]
#![allow(clippy::panic, reason = "tests")]

use std::sync::OnceLock;
use targets::{TARGETS, Target};

/// Proves that this build is guided: luck alone finds neither the number nor the words after it.
fn planted(bytes: &[u8]) {
    let Some((number, rest)) = bytes.split_first_chunk() else { return };
    if u64::from_be_bytes(*number) == 0x4169_726c_6f63_6b21 && rest.starts_with(b"then a word") {
        panic!("the planted fault was found");
    }
}

fn chosen() -> Target {
    let name = std::env::var("AIRLOCK_FUZZ_TARGET").unwrap_or_default();
    let of = |name: &str| TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target);
    let target = if name == "planted" { Some(planted as Target) } else { of(&name) };
    target.unwrap_or_else(|| panic!("AIRLOCK_FUZZ_TARGET names no target: {name:?}"))
}

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(chosen)(bytes));
