//! `mount_setattr`: attributes of a mount that only a descriptor names.

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// What a mount is to become. Nothing is ever taken away from it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a> {
    /// No writing through it.
    pub read_only: bool,
    /// No device files.
    pub no_devices: bool,
    /// No programs run from it.
    pub no_exec: bool,
    /// Ids are shifted by the map of this user namespace.
    pub ids: Option<BorrowedFd<'a>>,
}

/// How far the attributes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The mount alone.
    Mount,
    /// It and every mount below it, at once or not at all.
    Tree,
}

/// Sets attributes of the mount that `mount` is the root of. Set-uid bits never count through it, and it neither
/// receives nor sends mount events.
pub fn set_attributes(mount: BorrowedFd<'_>, reach: Reach, attributes: Attributes<'_>) -> Result<(), Errno> {
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let ids = match attributes.ids {
        Some(fd) => u64::try_from(fd.as_raw_fd()).map_err(|_| Errno::EBADF)?,
        None => 0,
    };
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID
            | flag(attributes.read_only, libc::MOUNT_ATTR_RDONLY)
            | flag(attributes.no_devices, libc::MOUNT_ATTR_NODEV)
            | flag(attributes.no_exec, libc::MOUNT_ATTR_NOEXEC)
            | flag(attributes.ids.is_some(), libc::MOUNT_ATTR_IDMAP),
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: ids,
    };
    let flags = libc::AT_EMPTY_PATH | if reach == Reach::Tree { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the descriptors are open, the path is an empty NUL-terminated string and `attr` a whole `mount_attr`; all
    // outlive the call, which writes to none of them.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(rc).map(drop)
}
