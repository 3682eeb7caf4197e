//! The second stage: in namespaces of its own, as the identity of the plan.

use crate::error::{NAMESPACES, OrRefuse as _, Step, UNEXPECTED};
use crate::fresh::Fresh;
use crate::idmap::Prepared;
use crate::link::Link;
use crate::{Context, REFUSED};
use jail_plan::{Identity, Say, Stage};
use nix::unistd::{Gid, Uid};
use rustix::process::DumpableBehavior;
use std::os::fd::{AsFd as _, OwnedFd};
use sys::clone::{ALL_NAMESPACES, SIBLING, Side};

/// PID 1 of its own world, with every capability over it and none beyond. The host's files are still in sight.
pub(crate) struct Namespaced {
    pub(crate) context: Context,
    pub(crate) prepared: Prepared,
}

impl Fresh {
    /// Forks into the namespaces. Only the process inside returns; the one outside writes the id maps, names the child
    /// to the starter, and ends.
    ///
    /// All namespaces come to be in one call, so that each of them belongs to the new user namespace. The child is the
    /// starter's, not ours: its end, and the starter's, then concern those two alone.
    pub(crate) fn enter_namespaces(self, link: &Link) -> Step<Namespaced> {
        let what = || "making the namespaces".to_owned();
        let (wait, go) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_refuse(Stage::Namespaces, UNEXPECTED, what)?;
        let identity = self.context.plan.identity;
        match sys::clone::fork(ALL_NAMESPACES | SIBLING).or_refuse(Stage::Namespaces, NAMESPACES, what)? {
            Side::Parent { pid, pidfd } => {
                drop(wait);
                let code = match name_child(link, pid, &pidfd, identity) {
                    Ok(()) => {
                        _ = rustix::io::write(&go, b".");
                        0
                    }
                    Err(refusal) => {
                        link.refuse(refusal);
                        _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
                        REFUSED
                    }
                };
                std::process::exit(i32::from(code))
            }
            Side::Child => {
                drop(go);
                if rustix::io::read(&wait, &mut [0; 1]) != Ok(1) {
                    // The process outside has said why.
                    std::process::exit(i32::from(REFUSED));
                }
                become_identity(identity)?;
                // A change of ids clears the wish for a signal, so it comes after it.
                link.die_with_starter()?;
                // What a process list inside shows of PID 1 says nothing.
                rustix::thread::set_name(c"init").or_refuse(Stage::Namespaces, UNEXPECTED, || "naming this process".into())?;
                // Nothing in the jail may look into this process or trace it.
                rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).or_refuse(
                    Stage::Identity,
                    UNEXPECTED,
                    || "closing this process to tracers".into(),
                )?;
                rustix::system::sethostname(self.context.plan.hostname.as_bytes()).or_refuse(
                    Stage::Namespaces,
                    UNEXPECTED,
                    || format!("naming the host `{}`", self.context.plan.hostname),
                )?;
                rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
                Ok(Namespaced { context: self.context, prepared: self.prepared })
            }
        }
    }
}

/// Writes the child's id maps and tells the starter of it.
fn name_child(link: &Link, pid: i32, pidfd: &OwnedFd, identity: Identity) -> Step<()> {
    let (uid, gid) = match identity.mapped {
        Some(mapped) => (mapped.host_uid, mapped.host_gid),
        None => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/{pid}/{file}"), text).or_refuse(Stage::Identity, NAMESPACES, || format!("writing {file}"))
    };
    if identity.mapped.is_none() {
        // The kernel lets an ordinary user map its group only when groups can't be dropped any more: a group can also
        // take rights away.
        write("setgroups", "deny".into())?;
    }
    write("uid_map", format!("{} {uid} 1", identity.uid))?;
    write("gid_map", format!("{} {gid} 1", identity.gid))?;
    link.say(&Say::Born { pid }, &[pidfd.as_fd()]).or_refuse(Stage::Start, UNEXPECTED, || "naming the jail's init".into())
}

/// Takes the ids inside. For an ordinary user they are there with the map; root leaves uid 0 and its groups here.
fn become_identity(identity: Identity) -> Step<()> {
    let what = || "leaving uid 0".to_owned();
    if identity.mapped.is_some() {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        nix::unistd::setgroups(&[]).or_refuse(Stage::Identity, UNEXPECTED, what)?;
        nix::unistd::setresgid(gid, gid, gid).or_refuse(Stage::Identity, UNEXPECTED, what)?;
        nix::unistd::setresuid(uid, uid, uid).or_refuse(Stage::Identity, UNEXPECTED, what)?;
    }
    let is = rustix::process::geteuid().as_raw();
    let taken = if is == identity.uid { Ok(()) } else { Err(format!("the kernel says {is}")) };
    taken.or_refuse(Stage::Identity, UNEXPECTED, || format!("becoming uid {}", identity.uid))
}
