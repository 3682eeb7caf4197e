//! Overlays: a directory of the host that is only read, under a layer that takes whatever a jail writes.
//!
//! An overlay is a comfort. Where one can't be made the start goes on without it and says why; what never happens is half of
//! one: the layers themselves are in no jail's sight.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::mounts::{attach, file_system_with};
use crate::place::{self, Place, kind};
use jail_plan::{Raw, Stage};
use rustix::fs::{CWD, FileType, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, UnmountFlags};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use sys::mount::{Attributes, Reach};

/// Where the layers stand on the skeleton while an overlay is made: it takes only mounts of its own namespace.
const LAYERS: [&str; 2] = ["/run/airlock/layers/lower", "/run/airlock/layers/private"];

/// Mounts of the two host directories, not yet anywhere.
pub(crate) struct Layers {
    lower: OwnedFd,
    private: OwnedFd,
}

impl Layers {
    /// Takes them, with ids mapped where root starts the jail; why not, else.
    pub(crate) fn take(lower: &Raw, private: &Raw, ids: Option<BorrowedFd<'_>>) -> Result<Self, String> {
        let mount = |of: &Raw, read_only| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let mount = rustix::mount::open_tree(CWD, of.as_path(), flags).map_err(|e| format!("`{of}` can't be taken: {e}"))?;
            let attributes = Attributes { read_only, no_devices: true, no_exec: false, ids };
            sys::mount::set_attributes(mount.as_fd(), Reach::Mount, attributes)
                .map_err(|e| format!("the mount of `{of}` can't be narrowed: {e}"))?;
            Ok::<_, String>(mount)
        };
        Ok(Self { lower: mount(lower, true)?, private: mount(private, false)? })
    }
}

/// Mounts the overlay at `target`. The outer error is for what must not stay as it is then, and refuses the start.
pub(crate) fn show(place: &Place, layers: Result<Layers, String>, target: &Raw) -> Step<Result<(), String>> {
    let Layers { lower, private } = match layers {
        Ok(layers) => layers,
        Err(why) => return Ok(Err(why)),
    };
    let mut standing = Vec::new();
    let made = (|| {
        for (mount, at) in [&lower, &private].into_iter().zip(LAYERS.map(Raw::from)) {
            attach(mount, &place.directory(&at)?, &at)?;
            standing.push(mount);
        }
        Ok::<_, jail_plan::Refusal>(overlay(&lower, &private))
    })();
    for mount in standing {
        // By descriptor, so that it is this mount and no other.
        rustix::mount::unmount(by_descriptor(mount), UnmountFlags::DETACH)
            .or_refuse(Stage::Mounts, UNEXPECTED, || "taking the layers of an overlay out of sight".into())?;
    }
    Ok(match made {
        Err(refusal) => Err(refusal.reason),
        Ok(Err(why)) => Err(why),
        // What waits in the agent's home where this goes costs it this cache and nothing else.
        Ok(Ok(mount)) => place.directory(target).and_then(|over| attach(&mount, &over, target)).map_err(|refusal| refusal.reason),
    })
}

fn overlay(lower: &OwnedFd, private: &OwnedFd) -> Result<OwnedFd, String> {
    let (upper, work) = (own_directory(private, "upper")?, own_directory(private, "work")?);
    if kind(lower).map_err(|r| r.reason)? != FileType::Directory {
        return Err("what is to be seen is no directory".into());
    }
    let options = [
        ("lowerdir", by_descriptor(lower)),
        ("upperdir", by_descriptor(&upper)),
        ("workdir", by_descriptor(&work)),
        // Both keep notes about the lower layer, which may be another one in the next run.
        ("index", "off".to_owned()),
        ("xino", "off".to_owned()),
    ];
    file_system_with("overlay", &options, &["userxattr"], MountAttrFlags::MOUNT_ATTR_NODEV).map_err(|e| {
        format!("this kernel makes no overlay here ({e}): Linux 5.11 does, as root 5.19, and not on every file system")
    })
}

/// A directory that the starter made. What an agent has written through an earlier overlay lies in it; the directory itself
/// is looked at as if it were the agent's too.
fn own_directory(private: &OwnedFd, name: &str) -> Result<OwnedFd, String> {
    let fd = place::open(private.as_fd(), OsStr::new(name), OFlags::DIRECTORY).map_err(|e| format!("`{name}` is odd: {e}"))?;
    let stat = rustix::fs::fstat(&fd).map_err(|e: Errno| format!("`{name}` can't be looked at: {e}"))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() { Ok(fd) } else { Err(format!("`{name}` belongs to somebody else")) }
}

/// The name of an open file in this process's own list: a mount option that no link on the way can turn elsewhere.
fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
