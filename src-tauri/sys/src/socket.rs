//! Socket options that no library names.

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Lets an IPv6 socket accept connections to addresses that are not its own (`IPV6_TRANSPARENT`).
pub fn set_ipv6_transparent(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let len = libc::socklen_t::try_from(size_of_val(&on)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the option takes an int; `on` is one, outlives the call and is only read.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, (&raw const on).cast(), len) };
    Errno::result(rc).map(drop)
}
