//! `airlock-jail`: confines itself as a plan says, one step after the other, then becomes the command.
//!
//! It finds a packet socket at descriptor 0 and the plan at descriptor 1, and says how it went. A step that can't be done
//! as planned ends the start: there is no second way here. A weaker jail is another plan, which its starter chose and shows
//! (`fallback.rs`). Single-threaded.

mod decoys;
mod error;
mod exec;
mod fallback;
mod fresh;
mod idmap;
mod init;
mod installed;
mod limits;
mod link;
mod mounts;
mod namespaces;
mod net;
mod netlink;
mod overlay;
mod place;
mod privileges;
mod proc_dev;
mod quotas;
mod seccomp;
mod second_lock;
mod shed;
mod terminal;

use crate::error::Step;
use crate::link::Link;
use jail_plan::{Handed, Plan, Report};
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// Exit code of a start that was refused; the reason went over the link.
const REFUSED: u8 = 125;

/// What every stage carries on.
struct Context {
    plan: Plan,
    report: Report,
    /// Descriptors to hand out with the report.
    handed: Vec<(Handed, OwnedFd)>,
    /// The command's standard streams, once there are any.
    streams: Option<[OwnedFd; 3]>,
}

fn main() -> ExitCode {
    let link = match shed::shed().and_then(|()| Link::inherited()) {
        Ok(link) => link,
        Err(refusal) => {
            #[expect(clippy::print_stderr, reason = "there is nobody else to tell")]
            {
                eprintln!("airlock-jail: {refusal}");
            }
            return ExitCode::from(REFUSED);
        }
    };
    match stand_up(&link) {
        Err(refusal) => link.refuse(refusal),
    }
    ExitCode::from(REFUSED)
}

/// The whole way. Each stage takes the one before, so that no step can come too early: in the host's namespaces, in its
/// own, with its own root, without rights. The process forks twice (into the namespaces, and into init and command);
/// what returns here is the process that goes on.
fn stand_up(link: &Link) -> Result<Infallible, jail_plan::Refusal> {
    let fresh = fresh::read(link)?;
    if fresh.context.plan.fallback.is_some() {
        return fresh.enter_fence(link)?.run_command(link);
    }
    let namespaced = fresh.enter_namespaces(link)?;
    let connected = namespaced.make_network()?;
    let mounted = connected.make_root(link)?;
    let confined = mounted.confine(link)?;
    confined.run_command(link)
}

impl namespaces::Namespaced {
    /// Sockets are made before the new root, as nothing of the host is needed for them, and while capabilities last.
    fn make_network(mut self) -> Step<Self> {
        net::make(&mut self.context)?;
        Ok(self)
    }
}
