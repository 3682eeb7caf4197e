//! What a notified system call asks for.

use super::memory::{self, Address, Memory};
use crate::who::{JailRef, pidfd};
use model::event::{FileOp, Verdict};
use model::path::RawPath;
use nix::libc;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::net::SocketType;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use sys::seccomp_notify::Notification;

/// A path argument: the directory's descriptor (`AT_FDCWD` for none) and the text, `None` where it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) dir: i32,
    pub(crate) path: Option<Vec<u8>>,
}

/// A call that is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Exec { at: At, argv: Option<Vec<RawPath>> },
    Connect { socket: i32, address: Option<Address> },
    Bind { address: Option<Address> },
    File { op: FileOp, at: At, to: Option<At> },
}

/// Where a call has its arguments, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Exec { dir: Option<usize>, path: usize, argv: usize },
    Connect,
    Bind,
    Open { dir: Option<usize>, path: usize, flags: usize },
    One { op: FileOp, dir: Option<usize>, path: usize },
    Two { op: FileOp, from: (Option<usize>, usize), to: (Option<usize>, usize) },
}

fn shape(nr: i64) -> Option<Shape> {
    use FileOp::{Create, Delete, Rename, Write};
    #[cfg(target_arch = "x86_64")]
    match nr {
        libc::SYS_open => return Some(Shape::Open { dir: None, path: 0, flags: 1 }),
        libc::SYS_creat => return Some(Shape::One { op: Write, dir: None, path: 0 }),
        libc::SYS_unlink | libc::SYS_rmdir => return Some(Shape::One { op: Delete, dir: None, path: 0 }),
        libc::SYS_mkdir | libc::SYS_mknod => return Some(Shape::One { op: Create, dir: None, path: 0 }),
        libc::SYS_link | libc::SYS_symlink => return Some(Shape::One { op: Create, dir: None, path: 1 }),
        libc::SYS_rename => return Some(Shape::Two { op: Rename, from: (None, 0), to: (None, 1) }),
        _ => {}
    }
    Some(match nr {
        libc::SYS_execve => Shape::Exec { dir: None, path: 0, argv: 1 },
        libc::SYS_execveat => Shape::Exec { dir: Some(0), path: 1, argv: 2 },
        libc::SYS_connect => Shape::Connect,
        libc::SYS_bind => Shape::Bind,
        libc::SYS_openat => Shape::Open { dir: Some(0), path: 1, flags: 2 },
        libc::SYS_truncate => Shape::One { op: Write, dir: None, path: 0 },
        libc::SYS_unlinkat => Shape::One { op: Delete, dir: Some(0), path: 1 },
        libc::SYS_mkdirat | libc::SYS_mknodat => Shape::One { op: Create, dir: Some(0), path: 1 },
        libc::SYS_linkat => Shape::One { op: Create, dir: Some(2), path: 3 },
        libc::SYS_symlinkat => Shape::One { op: Create, dir: Some(1), path: 2 },
        libc::SYS_renameat | libc::SYS_renameat2 => Shape::Two { op: Rename, from: (Some(0), 1), to: (Some(2), 3) },
        _ => return None,
    })
}

/// Reads a call's arguments; with no memory to read from, what the registers say. `None` for a call that nothing is told of.
pub(crate) fn read(n: &Notification, memory: Option<&dyn Memory>) -> Option<Call> {
    let arg = |i: usize| n.args.get(i).copied().unwrap_or(0);
    let text = |i: usize| memory.and_then(|memory| memory::text(memory, n.tid, arg(i)));
    let dir = |i: Option<usize>| i.map_or(libc::AT_FDCWD, |i| int(arg(i)));
    let address = || memory.and_then(|memory| memory::socket_address(memory, n.tid, arg(1), arg(2)));
    Some(match shape(n.nr)? {
        Shape::Exec { dir: d, path, argv } => Call::Exec {
            at: At { dir: dir(d), path: text(path) },
            argv: memory.and_then(|memory| memory::argv(memory, n.tid, arg(argv))),
        },
        Shape::Connect => Call::Connect { socket: int(arg(0)), address: address() },
        Shape::Bind => Call::Bind { address: address() },
        Shape::Open { dir: d, path, flags } => {
            Call::File { op: open_op(arg(flags))?, at: At { dir: dir(d), path: text(path) }, to: None }
        }
        Shape::One { op, dir: d, path } => Call::File { op, at: At { dir: dir(d), path: text(path) }, to: None },
        Shape::Two { op, from, to } => {
            Call::File { op, at: At { dir: dir(from.0), path: text(from.1) }, to: Some(At { dir: dir(to.0), path: text(to.1) }) }
        }
    })
}

/// What the kernel reads of an int: descriptors, flags, modes.
#[allow(clippy::cast_possible_truncation, reason = "the kernel reads an int from the lower half of a register")]
pub(crate) fn int(register: u64) -> i32 {
    register as i32
}

fn open_op(flags: u64) -> Option<FileOp> {
    let has = |flag: i32| flags & flag as u64 == flag as u64;
    if has(libc::O_PATH) {
        return None;
    }
    let writes = flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64;
    if (has(libc::O_TMPFILE) && writes) || (has(libc::O_CREAT) && has(libc::O_EXCL)) {
        return Some(FileOp::Create);
    }
    (writes || has(libc::O_CREAT) || has(libc::O_TRUNC)).then_some(FileOp::Write)
}

/// The path to show, and the absolute one to judge by where it is known. Both are for people: nothing is opened by them.
pub(crate) fn place(tid: u32, at: &At) -> (RawPath, Option<PathBuf>) {
    let Some(text) = &at.path else { return (RawPath::default(), None) };
    let path = Path::new(OsStr::from_bytes(text));
    if path.is_absolute() {
        return (RawPath::from(text.as_slice()), Some(path.to_path_buf()));
    }
    let here = at.dir == libc::AT_FDCWD;
    let link = if here { format!("/proc/{tid}/cwd") } else { format!("/proc/{tid}/fd/{}", at.dir) };
    let whole = std::fs::read_link(link).ok().filter(|dir| dir.is_absolute());
    // Joining nothing would add a slash; going over the parts drops every `.`.
    let whole = whole.map(|dir| if text.is_empty() { dir } else { dir.join(path).components().collect() });
    let shown = match &whole {
        Some(whole) if !here => RawPath::from(whole.as_os_str().as_bytes()),
        _ => RawPath::from(text.as_slice()),
    };
    (shown, whole)
}

/// Where the executable file at a path of this thread really lies; looked up within its root, opened for nothing.
pub(crate) fn program_at(tid: u32, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{tid}/root"), flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let runs = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_mode & 0o111 != 0;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok().filter(|_| runs)
}

/// What kind of socket a descriptor of this thread is; `None` where it can't be looked at.
pub(crate) fn socket_type(tid: u32, socket: i32) -> Option<SocketType> {
    let socket = pidfd_getfd(pidfd(tid).ok()?, socket, PidfdGetfdFlags::empty()).ok()?;
    rustix::net::sockopt::socket_type(socket).ok()
}

/// Whether a write there only reaches a device that keeps nothing.
pub(crate) fn keeps_nothing(path: &Path) -> bool {
    const SINKS: [&str; 7] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/stdout", "/dev/stderr"];
    SINKS.iter().any(|sink| path == Path::new(sink)) || path.starts_with("/dev/pts")
}

/// The quiet place that a path, taken as written, lies in.
pub(crate) fn quiet<'a>(path: &Path, jail: &'a JailRef) -> Option<&'a Path> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    jail.quiet.iter().map(PathBuf::as_path).find(|place| !climbs && path.starts_with(place))
}

/// `Denied` only where the path, taken as written, can't lead to any place that the jail can write to.
pub(crate) fn verdict(path: Option<&Path>, jail: &JailRef) -> Verdict {
    // Links of these lead anywhere.
    const MAGIC: [&str; 5] = ["/proc", "/dev", "/run", "/var/run", "/var/lock"];
    let Some(path) = path else { return Verdict::Noted };
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let unclear = climbs || !path.is_absolute() || MAGIC.iter().any(|place| path.starts_with(place));
    if unclear || jail.writable.is_empty() || jail.writable.iter().any(|place| path.starts_with(place)) {
        Verdict::Noted
    } else {
        Verdict::Denied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notified(nr: i64, args: [u64; 6]) -> Notification {
        Notification { id: 1, tid: std::process::id(), nr, arch: sys::seccomp_notify::NATIVE_ARCH, args }
    }

    #[test]
    fn only_opens_for_writing_are_told() {
        let op = |flags: i32| {
            read(&notified(libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]), None).map(|call| match call {
                Call::File { op, .. } => op,
                other => panic_on(&other),
            })
        };
        assert_eq!(op(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY), None);
        assert_eq!(op(libc::O_PATH | libc::O_RDWR), None, "such a descriptor can't be written through");
        assert_eq!(op(libc::O_WRONLY), Some(FileOp::Write));
        assert_eq!(op(libc::O_RDONLY | libc::O_TRUNC), Some(FileOp::Write), "this empties the file");
        assert_eq!(op(libc::O_RDWR | libc::O_CREAT), Some(FileOp::Write));
        assert_eq!(op(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL), Some(FileOp::Create));
        assert_eq!(op(libc::O_RDWR | libc::O_TMPFILE), Some(FileOp::Create));
        assert_eq!(read(&notified(libc::SYS_getpid, [0; 6]), None), None, "other calls are let through untold");
    }

    fn panic_on(call: &Call) -> FileOp {
        unreachable!("{call:?}")
    }

    #[test]
    fn every_number_and_register_is_survived() {
        for nr in -5..600 {
            for fill in [0, 1, u64::MAX, 1 << 63, 0x7fff_ffff, 0xffff_ffff] {
                let call = read(&notified(nr, [fill; 6]), Some(&memory::Remote));
                assert!(call.is_none() || shape(nr).is_some(), "only known calls are told");
            }
        }
    }

    #[test]
    fn what_the_filter_tells_is_what_can_be_read() {
        use serde_json::Value;
        let list = if cfg!(target_arch = "aarch64") {
            include_str!("../../../../policies/seccomp/aarch64.json")
        } else {
            include_str!("../../../../policies/seccomp/x86_64.json")
        };
        let told = include_str!("../../../../policies/seccomp/notify.json");
        let [list, told] = [list, told].map(|text| serde_json::from_str::<Value>(text).unwrap()["syscalls"].clone());
        let told = |name: &Value| told.as_array().unwrap().iter().find(|line| line["name"] == *name).cloned();
        for line in list.as_array().unwrap() {
            let (name, nr) = (&line["name"], line["nr"].as_i64().unwrap());
            let shape = shape(nr);
            let told = told(name);
            assert_eq!(shape.is_some(), told.is_some(), "{name}: told and read, or neither");
            let Some(condition) = told.as_ref().and_then(|line| line.get("if")) else { continue };
            let Some(Shape::Open { flags, .. }) = shape else { unreachable!("{name}: only flags are asked about") };
            assert_eq!(condition["arg"].as_u64(), u64::try_from(flags).ok(), "{name}: both look at the same argument");
            let asked = condition["any_bit"].as_str().and_then(|bits| u64::from_str_radix(&bits[2..], 16).ok()).unwrap();
            // Every set of up to three flags: none is told for nothing, and none that writes goes untold.
            for (a, b, c) in (0..25).flat_map(|a| (a..25).flat_map(move |b| (b..25).map(move |c| (a, b, c)))) {
                let flags = 1u64 << a | 1 << b | 1 << c;
                let writes = open_op(flags).is_some();
                let path_only = flags & libc::O_PATH as u64 != 0;
                assert!(path_only || writes == (flags & asked != 0), "{name} with {flags:#o}: writes {writes}");
            }
        }
    }

    #[test]
    fn denied_is_said_only_where_it_is_clear() {
        let jail = JailRef { init_pid: 1, writable: vec!["/home/u/repo".into(), "/tmp".into()], ..JailRef::default() };
        let told = |path: &str| verdict(Some(Path::new(path)), &jail);
        for path in ["/usr/local/evil", "/home/u/repository", "/etc/passwd", "/home/u/.bashrc"] {
            assert_eq!(told(path), Verdict::Denied, "{path} is outside");
        }
        for path in ["/home/u/repo/a", "/tmp/x", "/usr/../tmp/x", "/proc/self/cwd/a", "/dev/fd/3", "relative"] {
            assert_eq!(told(path), Verdict::Noted, "{path} may lead inside");
        }
        assert_eq!(verdict(None, &jail), Verdict::Noted);
    }
}
