//! Id-mapped mounts. Only root can make them, and only in its own namespaces: they are made before the jail's namespaces,
//! detached, and moved into place by the jail.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::mounts::missing;
use crate::overlay::Layers;
use jail_plan::{Access, Mapped, Plan, Stage, Step as PlanStep};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use rustix::process::{WaitId, WaitIdOptions};
use std::os::fd::{AsFd as _, OwnedFd};
use sys::clone::Side;
use sys::mount::{Attributes, Reach};

/// What root made for a bind.
pub(crate) enum Bound {
    /// A detached mount.
    Mount(OwnedFd),
    /// The source is missing and may be.
    Missing,
    /// The two mounts of an overlay, or why there are none.
    Layers(Result<Layers, String>),
}

/// By index of the plan's step; empty where root does not start the jail.
pub(crate) struct Prepared(Vec<(usize, Bound)>);

impl Prepared {
    /// Takes what was made for a step.
    pub(crate) fn take(&mut self, step: usize) -> Option<Bound> {
        self.0.iter().position(|(i, _)| *i == step).map(|at| self.0.swap_remove(at).1)
    }
}

/// Makes the mounts of all binds that are to be id-mapped, if root starts the jail.
pub(crate) fn prepare(plan: &Plan) -> Step<Prepared> {
    let mut prepared = Prepared(Vec::new());
    let Some(mapped) = plan.identity.mapped else { return Ok(prepared) };
    let ids = user_namespace(mapped)?;
    for (index, step) in plan.root.iter().enumerate() {
        if let PlanStep::Overlay { lower, private, .. } = step {
            prepared.0.push((index, Bound::Layers(Layers::take(lower, private, Some(ids.as_fd())))));
            continue;
        }
        let PlanStep::Bind { source, access, recursive, idmapped: true, optional, .. } = step else { continue };
        let reach = if *recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW | reach;
        let mount = match rustix::mount::open_tree(CWD, source.as_path(), flags) {
            Err(Errno::NOENT) if *optional => {
                prepared.0.push((index, Bound::Missing));
                continue;
            }
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(missing(source)),
            other => other.or_refuse(Stage::Idmap, UNEXPECTED, || format!("taking a mount of `{source}`"))?,
        };
        let attributes =
            Attributes { read_only: *access == Access::Read, no_devices: true, no_exec: false, ids: Some(ids.as_fd()) };
        let reach = if *recursive { Reach::Tree } else { Reach::Mount };
        let hint = "started as root, a jail runs as an unprivileged user, for which the file system must know id-mapped mounts \
             (ext4, xfs, btrfs, f2fs, tmpfs since 6.3 do); start Airlock as an ordinary user";
        sys::mount::set_attributes(mount.as_fd(), reach, attributes)
            .or_refuse(Stage::Idmap, hint, || format!("mapping the ids of `{source}`"))?;
        prepared.0.push((index, Bound::Mount(mount)));
    }
    Ok(prepared)
}

/// A user namespace whose only use is its map: what belongs to `disk_uid` on disk belongs to `host_uid` through the mount.
fn user_namespace(mapped: Mapped) -> Step<OwnedFd> {
    let what = || "making the user namespace that carries the id map".to_owned();
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_refuse(Stage::Idmap, UNEXPECTED, what)?;
    match sys::clone::fork(sys::clone::USER_NAMESPACE).or_refuse(Stage::Idmap, UNEXPECTED, what)? {
        Side::Child => {
            drop(go);
            // Holds the namespace until the parent has opened it, which closes the pipe.
            _ = rustix::io::read(&wait, &mut [0; 1]);
            std::process::exit(0)
        }
        Side::Parent { pid, pidfd } => {
            let made = (|| {
                std::fs::write(format!("/proc/{pid}/uid_map"), format!("{} {} 1", mapped.disk_uid, mapped.host_uid))?;
                std::fs::write(format!("/proc/{pid}/gid_map"), format!("{} {} 1", mapped.disk_gid, mapped.host_gid))?;
                std::fs::File::open(format!("/proc/{pid}/ns/user"))
            })();
            drop((wait, go));
            _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            made.map(OwnedFd::from).or_refuse(Stage::Idmap, UNEXPECTED, what)
        }
    }
}
