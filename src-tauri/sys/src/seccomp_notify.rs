//! Seccomp user notification: the ioctls on a listener, and those that tell who a caller was and how it ended.

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// One system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// What to answer to; not reused while the call waits.
    pub id: u64,
    /// Thread that called, as a *thread* id in the receiver's own pid namespace (0 where it is not visible there).
    pub tid: u32,
    /// System call number.
    pub nr: i64,
    /// `AUDIT_ARCH_*` of the call.
    pub arch: u32,
    /// The six registers.
    pub args: [u64; 6],
}

/// `AUDIT_ARCH_*` of this build; calls of any other one have other numbers.
#[cfg(target_arch = "x86_64")]
pub const NATIVE_ARCH: u32 = crate::bpf::X86_64;
/// `AUDIT_ARCH_*` of this build; calls of any other one have other numbers.
#[cfg(target_arch = "aarch64")]
pub const NATIVE_ARCH: u32 = crate::bpf::AARCH64;

const FLAG_SYNC_WAKE_UP: u64 = 1;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, which libc has in another width.
const FLAG_CONTINUE: u32 = 1;

/// Takes the next notification. Blocks where none waits; `ENOENT` and `EINTR` mean "ask again".
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    let mut raw = libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] },
    };
    // SAFETY: the listener is an open descriptor and `raw` a zeroed, writable `seccomp_notif` that outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut raw) };
    Errno::result(rc)?;
    Ok(Notification { id: raw.id, tid: raw.pid, nr: i64::from(raw.data.nr), arch: raw.data.arch, args: raw.data.args })
}

/// Lets the call go ahead as if nobody had looked. `ENOENT` means that the caller is gone or was answered before.
pub fn answer_continue(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    let mut raw = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: FLAG_CONTINUE };
    // SAFETY: the listener is an open descriptor and `raw` a `seccomp_notif_resp` that outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut raw) };
    Errno::result(rc).map(drop)
}

/// Ends the call with a result: `Ok` is what it returns, `Err` its error. It is never run.
pub fn answer_result(listener: BorrowedFd<'_>, id: u64, result: Result<i64, Errno>) -> Result<(), Errno> {
    let (val, error) = match result {
        Ok(val) => (val, 0),
        Err(errno) => (0, -(errno as i32)),
    };
    let mut raw = libc::seccomp_notif_resp { id, val, error, flags: 0 };
    // SAFETY: the listener is an open descriptor and `raw` a `seccomp_notif_resp` that outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut raw) };
    Errno::result(rc).map(drop)
}

/// Whether the call still waits, so that what was read under its thread id belonged to it.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    let mut id = id;
    // SAFETY: the listener is an open descriptor and `id` a `u64` that outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw mut id) };
    rc == 0
}

/// Asks the kernel to hand the processor over at each notification (Linux ≥ 6.6), which removes a slow tail.
pub fn set_sync_wake_up(listener: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the listener is an open descriptor; this ioctl takes its flags by value.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, FLAG_SYNC_WAKE_UP) };
    Errno::result(rc).map(drop)
}

/// Which thread of the caller's own pid namespace is thread `tid` of the pid namespace behind `namespace`
/// (`/proc/PID/ns/pid`). `ENOTTY` where the kernel is older than 6.11, `ESRCH` where there is none.
pub fn thread_from_namespace(namespace: BorrowedFd<'_>, tid: u32) -> Result<u32, Errno> {
    // `_IOR(0xb7, 0x6, int)`: NS_GET_PID_FROM_PIDNS.
    const NS_GET_PID_FROM_PIDNS: u64 = 0x8004_b706;
    // SAFETY: the namespace is an open descriptor; this ioctl takes the id by value.
    let rc = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PID_FROM_PIDNS as _, libc::c_ulong::from(tid)) };
    u32::try_from(Errno::result(rc)?).map_err(|_| Errno::ESRCH)
}

/// How a process ended, as a raw wait status, from its pidfd after somebody reaped it (Linux ≥ 6.15; `None` before or while it lives).
pub fn exit_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    // `struct pidfd_info` in its first published size, and PIDFD_INFO_EXIT.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit: i32,
    }
    const _: () = assert!(size_of::<Info>() == 64);
    const INFO_EXIT: u64 = 1 << 3;
    // `_IOWR(0xff, 11, struct pidfd_info)`.
    const GET_INFO: u64 = 0xc000_0000 | (64 << 16) | (0xff << 8) | 11;
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // SAFETY: the pidfd is open and `info` is writable for the 64 bytes that the request's number names.
    let rc = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (rc == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit)
}
