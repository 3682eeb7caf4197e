//! The installed program may do what other programs may not: security modules let it, by its path, make user namespaces
//! with rights. So it works for the programs installed beside it.
//!
//! That keeps out accident and naive use, a program that starts it as it would any other. It is no wall: a process can make
//! the socket, start this program, leave another to speak at its end, and become an installed starter before it is looked at;
//! a starter that is linked dynamically loads anybody's library (`LD_PRELOAD`); and a debugger may hold this program from its
//! first instruction on. What is behind it needs none: by `airlock run` with `jail.nested` any program of the person's has
//! namespaces with rights over them, in a jail.

use crate::error::{OrRefuse as _, Step};
use crate::link::Link;
use jail_plan::{INSTALLED, Stage};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The programs that start jails.
const STARTERS: [&str; 3] = ["airlock", "airlock-warden", "airlock-window"];

/// Refuses whoever does not look like one of the installed starters, where this is the installed program.
pub(crate) fn check(link: &Link) -> Step<()> {
    let hint = "the installed airlock-jail is started by the programs installed beside it; another copy of it has no such right \
                and needs none of this";
    let own = std::fs::read_link("/proc/self/exe").or_refuse(Stage::Start, hint, || "looking at its own program".into())?;
    if own != Path::new(INSTALLED) {
        return Ok(());
    }
    let refused = |why: &'static str| Err::<(), _>(why).or_refuse(Stage::Start, hint, || format!("working as {INSTALLED}"));
    let starter = link.starter().or_refuse(Stage::Start, hint, || "asking who started it".into())?;
    if starter != rustix::process::getppid() {
        return refused("whoever made its socket is not its parent");
    }
    let program = starter.and_then(|pid| File::open(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok()?.metadata().ok());
    let beside = STARTERS.iter().filter_map(|name| Path::new(INSTALLED).with_file_name(name).metadata().ok());
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if !beside.into_iter().any(|b| program.as_ref().is_some_and(|p| same(p, &b) && roots(p))) {
        return refused("it was not started by a program that root installed beside it");
    }
    if field("TracerPid:") != Some("0".into()) {
        return refused("something debugs it");
    }
    if dynamic() != Some(false) {
        return refused("it is linked dynamically, so that a variable of its starter's could put other code into it");
    }
    Ok(())
}

/// Belongs to root, and nobody else may write it.
fn roots(file: &Metadata) -> bool {
    file.uid() == 0 && file.mode() & 0o022 == 0
}

fn field(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned())
}

/// Whether the kernel loaded an interpreter beside this program; `None` where it does not say.
fn dynamic() -> Option<bool> {
    const BASE: u64 = 7;
    let vector = std::fs::read("/proc/self/auxv").ok()?;
    let mut entries = vector.chunks_exact(16).filter_map(|e| Some((number(e.first_chunk()?), number(e.last_chunk()?))));
    Some(entries.find(|(key, _)| *key == BASE).is_some_and(|(_, value)| value != 0))
}

fn number(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}
