//! Decoys: nodes of one FUSE file system, which the starter serves, over every hidden place.
//!
//! Nothing here decides about a promise: a place that gets no decoy is closed, or holds nothing of the person's.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::link::Link;
use crate::mounts::{attach, cover, file_system, mask, unreadable_directory};
use crate::place::{Place, kind};
use jail_plan::{Ground, Guarantee, Identity, Looks, Plan, Raw, Report, Say, Stage, Status, Step as PlanStep};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// A directory that nobody inside can enter; below it stands the root of the file system.
const KEPT: &str = "/run/airlock/decoys";

/// Paths named in the report before the rest is only counted.
const NAMED: usize = 4;

/// The decoys of a root under construction.
pub(crate) struct Decoys {
    /// The root of the file system, or why there is none.
    nodes: Result<OwnedFd, String>,
    /// Whether the root stands somewhere already: nodes of a mount that does not can't be cloned before Linux 6.15.
    attached: bool,
    number: u32,
    left_out: Vec<String>,
}

impl Decoys {
    /// Mounts the file system and hands it to the starter, where the plan has a decoy. Early, so that it is served while
    /// the rest of the root is built.
    pub(crate) fn open(plan: &Plan, link: &Link) -> Self {
        let wanted = plan.root.iter().any(|s| matches!(s, PlanStep::Decoy { .. }));
        let nodes = if wanted { mounted(plan.identity, link) } else { Err("none was asked for".into()) };
        Self { nodes, attached: false, number: 0, left_out: Vec::new() }
    }

    /// Puts the next decoy up.
    pub(crate) fn place(&mut self, place: &Place, covers: &mut u32, target: &Raw, on: Ground) -> Step<()> {
        let number = self.number;
        self.number += 1;
        match on {
            Ground::Shown { must_exist } => {
                let Some(hidden) = place.look(target)? else { return mask(place, covers, target, must_exist) };
                let directory = kind(&hidden)? == FileType::Directory;
                match self.node(place, number, directory) {
                    Some(node) => attach(&node, &hidden, target),
                    None => mask(place, covers, target, must_exist),
                }
            }
            Ground::Own { looks } => {
                let directory = looks == Looks::Directory;
                // Whatever goes wrong here, nothing of the person's is there: the task must not be lost over it.
                let made = if directory { place.directory(target) } else { place.file(target) };
                let over = match made {
                    Ok(over) => over,
                    Err(refusal) => {
                        self.left_out.push(refusal.reason);
                        return Ok(());
                    }
                };
                let node = match self.node(place, number, directory) {
                    Some(node) => node,
                    None if directory => unreadable_directory()?,
                    None => cover(place, covers, &Raw::default(), 0)?,
                };
                attach(&node, &over, target)
            }
        }
    }

    /// A mount of a node; `None` where there is no file system or nobody serves it.
    fn node(&mut self, place: &Place, number: u32, directory: bool) -> Option<OwnedFd> {
        let nodes = self.nodes.as_ref().ok()?;
        let taken = (|| {
            if !self.attached {
                keep(place, nodes)?;
                self.attached = true;
            }
            let name = format!("{number}{}", if directory { 'd' } else { 'f' });
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let node = rustix::fs::openat2(nodes, &name, flags, Mode::empty(), resolve)
                .map_err(|e| format!("nobody answers for hidden places ({e})"))?;
            // It has the attributes of the mount that it is cloned from.
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
            rustix::mount::open_tree(&node, "", flags).map_err(|e| format!("a decoy can't be mounted ({e})"))
        })();
        match taken {
            Ok(node) => Some(node),
            Err(why) => {
                self.nodes = Err(why);
                None
            }
        }
    }

    /// Says how far a touch is told.
    pub(crate) fn report(self, report: &mut Report) {
        let odd = self.left_out.len();
        let first = self.left_out[..odd.min(NAMED)].join("; ");
        let more = if odd > NAMED { format!("; and {} more", odd - NAMED) } else { String::new() };
        let left_out = format!("no decoy, and nothing of yours, at {odd} of {} hidden places: {first}{more}", self.number);
        let status = match self.nodes {
            _ if self.number == 0 => return,
            Err(why) => {
                let why = format!("{why}: hidden places are closed, but a touch is not told");
                Status::absent(if odd == 0 { why } else { format!("{why}; {left_out}") })
            }
            Ok(_) if odd == 0 => Status::Full,
            Ok(_) => Status::partial(left_out),
        };
        report.keep(Guarantee::Decoys, "a FUSE file system over hidden places that refuses and tells", status);
    }
}

/// A FUSE file system, not yet anywhere, that the starter was asked to serve. The starter alone holds its other end, so
/// that nobody waits for a starter that is gone.
fn mounted(identity: Identity, link: &Link) -> Result<OwnedFd, String> {
    let unusable = |e: Errno| format!("/dev/fuse can't be used ({e})");
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fuse = rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty()).map_err(unusable)?;
    let options = [
        ("source", "airlock".to_owned()),
        ("fd", fuse.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", identity.uid.to_string()),
        ("group_id", identity.gid.to_string()),
    ];
    let closed = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = file_system("fuse", &options, closed).map_err(unusable)?;
    link.say(&Say::Fuse, &[fuse.as_fd()]).map_err(|e| format!("nobody takes the hidden places ({e})"))?;
    Ok(mount)
}

/// Attaches the root of the file system where nobody inside can go.
fn keep(place: &Place, nodes: &OwnedFd) -> Result<(), String> {
    let made = (|| {
        let kept = Raw::from(KEPT);
        let (parent, name) = place.parent(&kept)?;
        rustix::fs::mkdirat(&parent, name, Mode::empty()).or_refuse(Stage::Decoys, UNEXPECTED, || format!("making `{KEPT}`"))?;
        let all = Raw::from(format!("{KEPT}/all"));
        attach(nodes, &place.directory(&all)?, &all)
    })();
    made.map_err(|refusal| refusal.reason)
}
