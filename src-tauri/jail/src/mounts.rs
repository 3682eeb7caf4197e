//! The third stage: a new root on a fresh file system in memory, built step by step, and the old one gone.

use crate::Context;
use crate::decoys::Decoys;
use crate::error::{NAMESPACES, OrRefuse as _, Step, UNEXPECTED};
use crate::idmap::Bound;
use crate::link::Link;
use crate::namespaces::Namespaced;
use crate::overlay::{self, Layers};
use crate::place::{Place, kind};
use crate::proc_dev;
use crate::quotas::{self, Quotas};
use jail_plan::{Access, Cache, Guarantee, Kind, Raw, Refusal, Stage, Status, Step as PlanStep};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use std::os::fd::{AsFd as _, OwnedFd};
use sys::mount::{Attributes, Reach};

/// In its own root; nothing of the host is in sight but what the plan shows.
pub(crate) struct Mounted {
    pub(crate) context: Context,
}

/// What is laid over others' files stands here, on the skeleton.
const COVERS: &str = "/run/airlock/cover";

impl Namespaced {
    /// Builds the root and moves in.
    pub(crate) fn make_root(self, link: &Link) -> Step<Mounted> {
        let Self { mut context, mut prepared } = self;
        let quotas = Quotas::open()?;
        // What the host mounts from now on must not show up here, nor anything of ours there.
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).or_refuse(
            Stage::Mounts,
            NAMESPACES,
            || "cutting the mounts off from the host's".into(),
        )?;
        let skeleton = tmpfs(0o755, 16 << 20)?;
        // Stacked on "/" it hides nothing: paths from the old root still start below it, so every source stays in reach.
        rustix::mount::move_mount(&skeleton, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).or_refuse(
            Stage::Mounts,
            NAMESPACES,
            || "putting up the new root".into(),
        )?;
        let place = Place(skeleton);
        let mut decoys = Decoys::open(&context.plan, link);
        let steps = std::mem::take(&mut context.plan.root);
        let mut covers = 0;
        for (index, step) in steps.iter().enumerate() {
            match step {
                PlanStep::Dir { target, mode } => directory(&place, target, *mode)?,
                PlanStep::File { target, contents, mode } => file(&place, target, contents, *mode)?,
                PlanStep::Symlink { target, points_to } => {
                    let (parent, name) = place.parent(target)?;
                    rustix::fs::symlinkat(points_to.as_path(), parent, name)
                        .or_refuse(Stage::Mounts, UNEXPECTED, || format!("making the symlink `{target}`"))?;
                }
                PlanStep::Cover { target, contents } => {
                    let over = place.existing_file(target)?;
                    attach(&cover(&place, &mut covers, contents, 0o444)?, &over, target)?;
                }
                PlanStep::Mask { target, must_exist } => mask(&place, &mut covers, target, *must_exist)?,
                PlanStep::Overlay { name, lower, private, target } => {
                    let layers = match prepared.take(index) {
                        Some(Bound::Layers(layers)) => layers,
                        Some(Bound::Missing | Bound::Mount(_)) | None => Layers::take(lower, private, None),
                    };
                    let reason = overlay::show(&place, layers, target)?.err();
                    context.report.caches.push(Cache { name: name.clone(), shown: reason.is_none(), reason });
                }
                PlanStep::Bind { source, target, access, recursive, optional, .. } => {
                    let mount = match prepared.take(index) {
                        Some(Bound::Missing) => continue,
                        Some(Bound::Mount(mount)) => mount,
                        Some(Bound::Layers(_)) | None => match host(source, *access, *recursive)? {
                            None if *optional => continue,
                            None => return Err(missing(source)),
                            Some(mount) => mount,
                        },
                    };
                    bind(&place, &mount, source, target)?;
                }
                PlanStep::Tmpfs { target, mode, size } => {
                    attach(&tmpfs(*mode, *size)?, &place.directory(target)?, target)?;
                }
                PlanStep::Proc { target } => proc_dev::proc(&place, target)?,
                PlanStep::Dev { target, more } => proc_dev::dev(&place, target, more)?,
                PlanStep::Devpts { target } => proc_dev::devpts(&place, target)?,
                PlanStep::Decoy { target, on } => decoys.place(&place, &mut covers, target, *on)?,
            }
        }
        context.plan.root = steps;
        decoys.report(&mut context.report);
        move_in(&place)?;
        quotas.close(&context.plan.limits, context.plan.nested)?;
        let bounded = "quotas of the user namespace, resource limits, and calls that the filter refuses";
        context.report.keep(Guarantee::Quotas, bounded, quotas::status(context.plan.identity.mapped.is_some()));
        for (guarantee, how) in [
            (Guarantee::Writes, "own mount namespace, read-only but for what the plan names"),
            (Guarantee::Reads, "own root, in which only what the plan names is mounted"),
            (Guarantee::Control, "own user, pid, ipc, uts and cgroup namespaces"),
        ] {
            context.report.keep(guarantee, how, Status::Full);
        }
        Ok(Mounted { context })
    }
}

/// Makes the new root read-only and the old one unreachable.
fn move_in(place: &Place) -> Step<()> {
    let what = || "changing to the new root".to_owned();
    let read_only = Attributes { read_only: true, no_devices: true, ..Attributes::default() };
    sys::mount::set_attributes(place.0.as_fd(), Reach::Mount, read_only).or_refuse(Stage::Pivot, UNEXPECTED, what)?;
    rustix::process::fchdir(&place.0).or_refuse(Stage::Pivot, UNEXPECTED, what)?;
    // With the same directory twice, the old root is stacked on the new one: there is no place for it to be made.
    rustix::process::pivot_root(".", ".").or_refuse(Stage::Pivot, NAMESPACES, what)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).or_refuse(Stage::Pivot, UNEXPECTED, || "letting the old root go".into())?;
    rustix::process::chdir("/").or_refuse(Stage::Pivot, UNEXPECTED, what)
}

/// A new file system in memory, not yet anywhere.
pub(crate) fn tmpfs(mode: u32, size: u64) -> Step<OwnedFd> {
    let options = [("mode", format!("{mode:o}")), ("size", size.to_string())];
    file_system("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NODEV)
        .or_refuse(Stage::Mounts, NAMESPACES, || "making a file system in memory".into())
}

/// A new file system of a type, not yet anywhere; never with set-uid programs.
pub(crate) fn file_system(name: &str, options: &[(&str, String)], more: MountAttrFlags) -> Result<OwnedFd, Errno> {
    file_system_with(name, options, &[], more)
}

/// The same, with options that have no value.
pub(crate) fn file_system_with(
    name: &str,
    options: &[(&str, String)],
    flags: &[&str],
    more: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
    }
    for flag in flags {
        rustix::mount::fsconfig_set_flag(context.as_fd(), *flag)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID | more)
}

/// Puts a mount onto an open target.
pub(crate) fn attach(mount: &OwnedFd, target: &OwnedFd, name: &Raw) -> Step<()> {
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", target, "", by_descriptor)
        .or_refuse(Stage::Mounts, UNEXPECTED, || format!("mounting at `{name}`"))
}

/// A mount of what an open file names, not yet anywhere.
pub(crate) fn clone_mount(of: &OwnedFd, attributes: Attributes<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = rustix::mount::open_tree(of, "", flags)?;
    sys::mount::set_attributes(mount.as_fd(), Reach::Mount, attributes).map_err(|e| Errno::from_raw_os_error(e as i32))?;
    Ok(mount)
}

/// A mount of a host path, not yet anywhere; `None` where nothing is.
fn host(source: &Raw, access: Access, recursive: bool) -> Step<Option<OwnedFd>> {
    let reach = if recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW | reach;
    let mount = match rustix::mount::open_tree(CWD, source.as_path(), flags) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR) => return Err(missing(source)),
        other => other.or_refuse(Stage::Mounts, UNEXPECTED, || format!("taking a mount of `{source}`"))?,
    };
    let attributes = Attributes { read_only: access == Access::Read, no_devices: true, ..Attributes::default() };
    let reach = if recursive { Reach::Tree } else { Reach::Mount };
    sys::mount::set_attributes(mount.as_fd(), reach, attributes)
        .or_refuse(Stage::Mounts, UNEXPECTED, || format!("narrowing the mount of `{source}`"))?;
    Ok(Some(mount))
}

fn bind(place: &Place, mount: &OwnedFd, source: &Raw, target: &Raw) -> Step<()> {
    let target_fd = match kind(mount)? {
        FileType::Directory => place.directory(target)?,
        FileType::Symlink => {
            return Err("it is a symlink")
                .or_refuse(Stage::Mounts, "name the place that it points to", || format!("showing `{source}`"));
        }
        _ => place.file(target)?,
    };
    attach(mount, &target_fd, target)
}

pub(crate) fn missing(source: &Raw) -> Refusal {
    let reason = format!("`{source}` does not exist, but the jail is to show it");
    Refusal::new(Stage::Mounts, Kind::NotFound, reason, "was it moved or removed while the task existed?")
}

fn directory(place: &Place, target: &Raw, mode: u32) -> Step<()> {
    let (parent, name) = place.parent(target)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        // An existing one is looked at, so that a symlink in its place refuses the start here and not later.
        Err(Errno::EXIST) => place.directory(target).map(drop),
        other => other.or_refuse(Stage::Mounts, UNEXPECTED, || format!("making `{target}`")),
    }
}

fn file(place: &Place, target: &Raw, contents: &Raw, mode: u32) -> Step<()> {
    let what = || format!("writing `{target}`");
    let (parent, name) = place.parent(target)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600)).or_refuse(Stage::Mounts, UNEXPECTED, what)?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).or_refuse(Stage::Mounts, UNEXPECTED, what)?;
    std::io::Write::write_all(&mut std::fs::File::from(fd), contents.as_bytes()).or_refuse(Stage::Mounts, UNEXPECTED, what)
}

/// A read-only mount of a new file on the skeleton.
pub(crate) fn cover(place: &Place, count: &mut u32, contents: &Raw, mode: u32) -> Step<OwnedFd> {
    let path = Raw::from(format!("{COVERS}/{count}"));
    *count += 1;
    file(place, &path, contents, mode)?;
    let read_only = Attributes { read_only: true, no_devices: true, ..Attributes::default() };
    clone_mount(&place.existing_file(&path)?, read_only)
        .or_refuse(Stage::Mounts, UNEXPECTED, || format!("taking a mount of `{path}`"))
}

pub(crate) fn mask(place: &Place, covers: &mut u32, target: &Raw, must_exist: bool) -> Step<()> {
    let Some(hidden) = place.look(target)? else {
        return if must_exist { Err(moved(target)) } else { Ok(()) };
    };
    let over =
        if kind(&hidden)? == FileType::Directory { unreadable_directory()? } else { cover(place, covers, &Raw::default(), 0)? };
    attach(&over, &hidden, target)
}

fn moved(target: &Raw) -> Refusal {
    let reason = format!(
        "`{target}` is to be hidden and lies in a place that a jail may write, but is not there: what was there may now be in \
         sight under another name"
    );
    let hint = "look for it; put it back, or make an empty file or directory of that name, or take it out of `files.hide`";
    Refusal::new(Stage::Mounts, Kind::Workspace, reason, hint)
}

pub(crate) fn unreadable_directory() -> Step<OwnedFd> {
    let mount = tmpfs(0, 4096)?;
    let read_only = Attributes { read_only: true, no_devices: true, ..Attributes::default() };
    sys::mount::set_attributes(mount.as_fd(), Reach::Mount, read_only)
        .or_refuse(Stage::Mounts, UNEXPECTED, || "closing an empty directory".into())?;
    Ok(mount)
}
