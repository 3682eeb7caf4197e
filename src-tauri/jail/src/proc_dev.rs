//! `/proc`, `/dev` and the terminals: kernel interfaces, of which only the harmless part is shown.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::mounts::{attach, clone_mount, file_system, tmpfs, unreadable_directory};
use crate::place::Place;
use jail_plan::{Raw, Stage};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use sys::mount::{Attributes, Reach};

/// Settings of the machine: readable, never writable.
const READ_ONLY: [&str; 7] = ["bus", "fs", "irq", "pressure", "sys", "sysrq-trigger", "mtrr"];
/// Memory, symbols, keys, log and devices of the machine: not even readable.
const CLOSED: [&str; 12] = [
    "acpi",
    "asound",
    "kallsyms",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "driver",
];
/// Device nodes that hold no state of the machine's.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A new `/proc` that shows this pid namespace alone.
pub(crate) fn proc(place: &Place, target: &Raw) -> Step<()> {
    let hint = "the kernel allows a new /proc only where the caller's own is in full sight: inside a container Airlock \
         needs one that leaves /proc unmasked";
    let closed = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = file_system("proc", &[], closed).or_refuse(Stage::Proc, hint, || "making a new /proc".into())?;
    attach(&proc, &place.directory(target)?, target)?;
    let read_only = Attributes { read_only: true, no_devices: true, no_exec: true, ids: None };
    for name in READ_ONLY {
        let path = Raw::from(format!("{target}/{name}"));
        if let Some(entry) = entry(&proc, name, &path)? {
            let mount = clone_mount(&entry, read_only).or_refuse(Stage::Mounts, UNEXPECTED, || format!("closing `{path}`"))?;
            attach(&mount, &entry, &path)?;
        }
    }
    let null = node("null")?;
    for name in CLOSED {
        let path = Raw::from(format!("{target}/{name}"));
        if let Some(entry) = entry(&proc, name, &path)? {
            let over = match crate::place::kind(&entry)? {
                FileType::Directory => unreadable_directory()?,
                _ => clone_mount(&null, Attributes { read_only: true, ..Attributes::default() }).or_refuse(
                    Stage::Mounts,
                    UNEXPECTED,
                    || format!("closing `{path}`"),
                )?,
            };
            attach(&over, &entry, &path)?;
        }
    }
    Ok(())
}

/// A directory with device nodes of the host's and a private `shm`, otherwise unchangeable.
pub(crate) fn dev(place: &Place, target: &Raw, more: &[Raw]) -> Step<()> {
    let dev = tmpfs(0o755, 64 << 10)?;
    attach(&dev, &place.directory(target)?, target)?;
    for name in NODES {
        let path = Raw::from(format!("{target}/{name}"));
        let mount = clone_mount(&node(name)?, Attributes::default())
            .or_refuse(Stage::Mounts, UNEXPECTED, || format!("showing `{path}`"))?;
        attach(&mount, &place.file(&path)?, &path)?;
    }
    for wanted in more {
        for (path, node) in devices(wanted)? {
            let mount =
                clone_mount(&node, Attributes::default()).or_refuse(Stage::Mounts, UNEXPECTED, || format!("showing `{path}`"))?;
            let at = Raw::from([target.as_bytes(), &path.as_bytes()[DEV.len()..]].concat());
            attach(&mount, &place.file(&at)?, &at)?;
        }
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, points_to) in links {
        rustix::fs::symlinkat(points_to, &dev, name)
            .or_refuse(Stage::Mounts, UNEXPECTED, || format!("making `{target}/{name}`"))?;
    }
    let shm = Raw::from(format!("{target}/shm"));
    attach(&tmpfs(0o1777, 1 << 30)?, &place.directory(&shm)?, &shm)?;
    place.directory(&Raw::from(format!("{target}/pts")))?;
    sys::mount::set_attributes(dev.as_fd(), Reach::Mount, Attributes { read_only: true, ..Attributes::default() }).or_refuse(
        Stage::Mounts,
        UNEXPECTED,
        || format!("closing `{target}`"),
    )
}

/// Terminals that no other mount of devpts knows.
pub(crate) fn devpts(place: &Place, target: &Raw) -> Step<()> {
    // All terminals of the machine count against one number (kernel.pty.max, 4096 where nobody changed it).
    let options = [("ptmxmode", "0666".to_owned()), ("mode", "620".to_owned()), ("max", "256".to_owned())];
    let mount =
        file_system("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOEXEC)
            .or_refuse(Stage::Mounts, UNEXPECTED, || "making terminals of its own".into())?;
    attach(&mount, &place.directory(target)?, target)
}

const DEV: &str = "/dev";

/// The character devices that a path of the host's `/dev` names: itself, or those directly in it.
fn devices(wanted: &Raw) -> Step<Vec<(Raw, OwnedFd)>> {
    let what = || format!("handing in `{wanted}`");
    let hint =
        "look at `files.devices` of the policy: it names character devices below /dev that are there, never through a symlink";
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let root = rustix::fs::openat(CWD, DEV, flags, Mode::empty()).or_refuse(Stage::Mounts, UNEXPECTED, what)?;
    let name = std::ffi::OsStr::from_bytes(wanted.as_bytes().get(DEV.len() + 1..).unwrap_or_default());
    let found = rustix::fs::openat2(&root, name, flags, Mode::empty(), resolve).or_refuse(Stage::Mounts, hint, what)?;
    let mut all = Vec::new();
    match crate::place::kind(&found)? {
        FileType::CharacterDevice => all.push((wanted.clone(), found)),
        FileType::Directory => {
            let listed = rustix::fs::openat(&found, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .and_then(rustix::fs::Dir::new)
                .or_refuse(Stage::Mounts, hint, what)?;
            for entry in listed {
                let entry = entry.or_refuse(Stage::Mounts, UNEXPECTED, what)?;
                let name = entry.file_name();
                if entry.file_type() == FileType::CharacterDevice {
                    let node = rustix::fs::openat2(&found, name, flags, Mode::empty(), resolve);
                    let node = node.or_refuse(Stage::Mounts, hint, what)?;
                    if crate::place::kind(&node)? == FileType::CharacterDevice {
                        all.push((Raw::from([wanted.as_bytes(), b"/", name.to_bytes()].concat()), node));
                    }
                }
            }
        }
        _ => {}
    }
    let some = if all.is_empty() { Err("there is no character device") } else { Ok(all) };
    some.or_refuse(Stage::Mounts, hint, what)
}

/// A device node of the host's, which must be one.
fn node(name: &str) -> Step<OwnedFd> {
    let what = || format!("opening /dev/{name}");
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, format!("/dev/{name}"), flags, Mode::empty()).or_refuse(Stage::Mounts, UNEXPECTED, what)?;
    let is_device = if crate::place::kind(&fd)? == FileType::CharacterDevice { Ok(()) } else { Err("it is no device") };
    is_device.or_refuse(Stage::Mounts, UNEXPECTED, what)?;
    Ok(fd)
}

/// An entry of `/proc`, where this kernel has it.
fn entry(proc: &OwnedFd, name: &str, path: &Raw) -> Step<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(proc, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e).or_refuse(Stage::Mounts, UNEXPECTED, || format!("opening `{path}`")),
    }
}
