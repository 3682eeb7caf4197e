//! What strangers send, read by what reads it: each target takes any bytes, and panics only where a promise breaks.
#![allow(clippy::expect_used, reason = "tests")]

mod names;
mod review;
#[path = "../../src-tauri/cli/src/text.rs"]
#[allow(dead_code, reason = "it belongs to a program, of which this is the one file that reads bytes")]
mod text;
mod tools;

use model::path::RawPath;
use std::fmt::Debug;

/// Reads any bytes.
pub type Target = fn(&[u8]);

/// All of them by name; `corpus/NAME` has what they start from.
pub const TARGETS: &[(&str, Target)] = &[
    ("plan", plan),
    ("link", link),
    ("notify", notify),
    ("fuse", fuse),
    ("frames", frames),
    ("policy", policy),
    ("hosts", hosts),
    ("paths", paths),
    ("terminal", terminal),
    ("dns", names::dns),
    ("requests", names::requests),
    ("hello", names::hello),
    ("heads", names::heads),
    ("graphql", names::graphql),
    ("stat", names::stat),
    ("patterns", names::patterns),
    ("changes", review::changes),
    ("rows", review::rows),
    ("colours", review::colours),
    ("mask", tools::mask),
    ("secrets", tools::secrets),
    ("toolconf", tools::toolconf),
];

/// The plan, as the jail reads it.
fn plan(bytes: &[u8]) {
    if let Ok(plan) = jail_plan::Plan::from_json(bytes) {
        let again = serde_json::to_vec(&plan).expect("a plan can be written");
        let again = jail_plan::Plan::from_json(&again).expect("what is written is read again");
        assert_eq!(plan, again, "and is the same");
    }
}

/// What a jail says to who started it, and the other way round.
fn link(bytes: &[u8]) {
    same_again::<jail_plan::Say>(bytes);
    same_again::<jail_plan::Answer>(bytes);
}

fn same_again<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(said) = serde_json::from_slice::<T>(bytes) {
        let text = serde_json::to_vec(&said).expect("it can be written");
        assert_eq!(said, serde_json::from_slice(&text).expect("what is written is read again"));
    }
}

/// A call with its registers, in a process whose whole memory is the rest.
fn notify(bytes: &[u8]) {
    let Some((head, memory)) = bytes.split_at_checked(50) else { return };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let nr = i64::from(u16::from_le_bytes([head[0], head[1]]));
    // Pointers mostly lead into the memory: its base is in the middle of what a register holds.
    let base = 0x7fff_0000_0000;
    let args = std::array::from_fn(|n| {
        let arg = number(2 + 8 * n);
        if arg >> 56 == 0 { base + (arg & 0xffff) } else { arg }
    });
    let call = sys::seccomp_notify::Notification { id: 1, tid: 1, nr, arch: sys::seccomp_notify::NATIVE_ARCH, args };
    if let Some(said) = supervise::notify::spelled(&call, base, memory.to_vec()) {
        assert!(said.len() < 1 << 20, "what is told of one call is bounded: {}", said.len());
    }
}

/// A request of the kernel's to the file system of hidden places, and our answers.
fn fuse(bytes: &[u8]) {
    use supervise::decoy::wire;
    if let Some(request) = wire::decode(bytes) {
        if let wire::Ask::Lookup(name) = request.ask {
            assert!(!name.contains(&0), "a name ends before its NUL");
            if let Some(wire::Node::Place { number, .. }) = wire::named(name, 7) {
                assert!(number < 7, "there are so many places");
            }
        }
        if let wire::Ask::ForgetAll(body) = request.ask {
            assert!(wire::forgotten(body).count() <= body.len() / 16, "no more nodes than there is room for");
        }
        let answer = wire::encode(request.unique, &wire::Answer::Error(13), (1000, 1000));
        let told = u32::from_ne_bytes(answer[..4].try_into().expect("a length"));
        assert_eq!(usize::try_from(told).ok(), Some(answer.len()), "an answer says how long it is");
    }
}

/// What a window and a warden say to each other, in whatever pieces it comes.
fn frames(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let mut decoder = model::frame::Decoder::default();
    let mut whole = vec![];
    'all: for part in bytes.chunks(usize::from(*step) + 1) {
        decoder.push(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => whole.push(frame),
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
    }
    let again: Vec<u8> = whole.iter().flat_map(|f| model::frame::encode(f.kind, &f.payload)).collect();
    assert!(bytes.starts_with(&again), "frames are what was sent");
    for frame in whole {
        drop(serde_json::from_slice::<model::protocol::Request>(&frame.payload));
        drop(serde_json::from_slice::<model::protocol::Reply>(&frame.payload));
    }
}

/// A policy file, of the person's or of a repository's.
fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let problems = |of: &[policy::Problem]| {
        assert!(!of.is_empty(), "a refusal says why");
        let lines = u32::try_from(text.split('\n').count()).unwrap_or(u32::MAX);
        assert!(of.iter().all(|p| (1..=lines + 1).contains(&p.line) && p.column >= 1), "a problem is in the text: {of:?}");
    };
    let own = policy::parse("fuzz", text).inspect_err(|p| problems(p));
    let theirs = policy::parse_repository("fuzz", text).inspect_err(|p| problems(p));
    if let (Ok(own), Ok(theirs)) = (own, theirs) {
        drop(policy::layer(&own, &theirs));
    }
}

/// Names and addresses that a jail asks for.
fn hosts(bytes: &[u8]) {
    if let Ok(host) = policy::Host::from_labels(bytes.split(|b| *b == b'.')) {
        assert_eq!(policy::Host::parse(host.as_str()).as_ref(), Ok(&host), "a name is read as it is shown");
        assert!(host.as_str().bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()), "{host:?}");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(policy::HostPattern::parse(text));
    drop(policy::Target::parse(text));
    drop(policy::Host::parse(text));
}

/// Names of files, as they are shown.
fn paths(bytes: &[u8]) {
    let shown = RawPath(bytes.to_vec()).to_string();
    assert!(shown.chars().all(|c| !c.is_control() || bytes.is_empty()), "no name acts on a terminal: {shown:?}");
    let json = serde_json::to_vec(&RawPath(bytes.to_vec())).expect("a name can be written");
    assert_eq!(serde_json::from_slice::<RawPath>(&json).expect("and read").0, bytes, "and is the same");
}

/// What a candidate holds, as the command line prints it.
fn terminal(bytes: &[u8]) {
    let lines = text::safe_lines(bytes);
    assert!(lines.chars().all(|c| matches!(c, '\n' | '\t') || !model::path::hides(c)), "nothing acts on a terminal: {lines:?}");
    let count = |of: &[u8]| of.iter().filter(|b| **b == b'\n').count();
    assert_eq!(count(lines.as_bytes()), count(bytes), "a line stays a line");
    let word = text::safe(&String::from_utf8_lossy(bytes));
    assert!(!word.chars().any(model::path::hides), "nothing acts on a terminal: {word:?}");
}
