//! The C programs: compiled once, into a directory beside the test's programs, each under a name that is its source's hash.

use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::process::Command;

const HEADER: &str = include_str!("programs/hostile.h");
const SOURCES: &[(&str, &str)] = &[
    ("victim", include_str!("programs/victim.c")),
    ("processes", include_str!("programs/processes.c")),
    ("files", include_str!("programs/files.c")),
    ("mounts", include_str!("programs/mounts.c")),
    ("kernel", include_str!("programs/kernel.c")),
    ("quotas", include_str!("programs/quotas.c")),
    ("calls", include_str!("programs/calls.c")),
    ("storm", include_str!("programs/storm.c")),
    ("inherit", include_str!("programs/inherit.c")),
    ("terminal", include_str!("programs/terminal.c")),
];

/// Path of a compiled program; static, so that it runs in any root.
pub(crate) fn program(name: &str) -> PathBuf {
    let source = SOURCES.iter().find(|(n, _)| *n == name).map(|(_, s)| *s).unwrap_or_else(|| panic!("there is no {name}.c"));
    let hash: String = Sha256::digest([HEADER, source].concat()).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let dir = cache();
    let made = dir.join(format!("{name}-{hash}"));
    if made.exists() {
        return made;
    }
    // Several tests may come here at once: each compiles aside, and the last rename of equal files counts.
    let aside = tempfile::tempdir_in(&dir).unwrap();
    std::fs::write(aside.path().join("hostile.h"), HEADER).unwrap();
    std::fs::write(aside.path().join("program.c"), source).unwrap();
    let out = Command::new("gcc")
        .args(["-O1", "-Wall", "-Werror", "-static", "-pthread", "-o", "program", "program.c"])
        .current_dir(aside.path())
        .output()
        .expect("gcc is needed for these tests: apt-get install gcc libc6-dev");
    assert!(out.status.success(), "{name}.c: {}", String::from_utf8_lossy(&out.stderr));
    std::fs::rename(aside.path().join("program"), &made).unwrap();
    made
}

/// Where they are kept: beside the test's programs, or where an ordinary user can't write there, in a directory of their own.
fn cache() -> PathBuf {
    let uid = nix::unistd::geteuid();
    let name = format!("airlock-attacks-{uid}");
    let beside = testkit::program::profile_dir().parent().unwrap().join(&name);
    let dir = if std::fs::create_dir_all(&beside).is_ok() { beside } else { std::env::temp_dir().join(&name) };
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::symlink_metadata(&dir).unwrap());
    assert_eq!(owner, uid.as_raw(), "{} is another user's", dir.display());
    dir
}
