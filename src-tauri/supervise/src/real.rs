//! Where a path really leads.

use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Where a path leads, through symlinks, whatever is there; `None` where it leads to nothing.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_path_need_not_be_text_and_what_is_there_need_not_be_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = real(dir.path()).unwrap().join(OsStr::from_bytes(b"\xff\xfe"));
        std::fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, dir.path().join("link")).unwrap();
        assert_eq!(real(&dir.path().join("link")), Some(place.clone()));
        drop(std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap());
        assert_eq!(
            real(&dir.path().join("link/socket")),
            Some(place.join("socket")),
            "a socket that is hidden is hidden by its real name"
        );
        assert_eq!(real(&place.join("none")), None);
    }
}
