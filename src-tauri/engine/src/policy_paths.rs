//! Whether the places that a policy shows are there, and lie where it says.

use policy::HostPath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// What is wrong with the places of `files.read` and `files.write`. Not empty: nothing may start.
pub(crate) fn faults(policy: &policy::Policy, home: &Path) -> Vec<String> {
    let read = policy.files.read.iter().map(|place| ("read", place));
    let write = policy.files.write.iter().map(|place| ("write", place));
    read.chain(write).filter_map(|(key, place)| Some(format!("files.{key}: {place} {}", fault(place, home)?))).collect()
}

fn fault(place: &HostPath, home: &Path) -> Option<String> {
    let written = place.under(home);
    // Where the home itself lies is not the policy's word.
    let expected = match (written.strip_prefix(home), real(home)) {
        (Ok(below), Ok(home)) => home.join(below).components().collect(),
        _ => written.clone(),
    };
    Some(match real(&written) {
        Ok(real) if real == expected => return None,
        // What a policy may show is judged by the path that it names.
        Ok(real) => format!("leads through a symlink to {}; name that place instead", real.display()),
        Err(Errno::NOENT) => "is not there; make it, or take it out of the policy".into(),
        Err(Errno::NOTDIR) => "goes through a file where a directory is meant; name what is there".into(),
        Err(Errno::LOOP) => "is a loop of symlinks; name a place that is there".into(),
        Err(e) => format!("can't be looked at ({e}); name a place that you can read"),
    })
}

/// Where a path leads.
fn real(path: &Path) -> Result<PathBuf, Errno> {
    let there = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()));
    link.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}
