//! The first stage: nothing is confined yet; the plan is read.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::idmap::{self, Prepared};
use crate::link::Link;
use crate::{Context, installed};
use jail_plan::{Answer, Plan, Report, Stage, Stdio};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

/// A plan of more than this is none.
const PLAN_LIMIT: u64 = 16 << 20;

/// In the host's namespaces, with the starter's rights.
pub(crate) struct Fresh {
    pub(crate) context: Context,
    /// Mounts that only root can make.
    pub(crate) prepared: Prepared,
}

/// Reads the plan and takes what comes with it.
pub(crate) fn read(link: &Link) -> Step<Fresh> {
    link.die_with_starter()?;
    let begin = match link.hear() {
        Ok((Answer::Begin, _)) => Ok(()),
        Ok((other, _)) => Err(format!("the starter said {other:?} instead")),
        Err(e) => Err(e.to_string()),
    };
    begin.or_refuse(Stage::Start, UNEXPECTED, || "waiting for the word to begin".into())?;
    installed::check(link)?;
    let what = || "reading the plan from descriptor 1".to_owned();
    let plan = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).or_refuse(Stage::Plan, UNEXPECTED, what)?;
    let mut json = Vec::new();
    File::from(plan).take(PLAN_LIMIT).read_to_end(&mut json).or_refuse(Stage::Plan, UNEXPECTED, what)?;
    let plan = Plan::from_json(&json)?;
    let streams = match plan.stdio {
        Stdio::Terminal { .. } => None,
        Stdio::Inherit => {
            Some(streams(link).or_refuse(Stage::Start, UNEXPECTED, || "taking the command's standard streams".into())?)
        }
    };
    // Memory is not limited yet: should the machine run out of it, the jail asks to go first. Raising it asks for no right.
    // What root raises can't be lowered inside; what an ordinary user raises can.
    drop(std::fs::write("/proc/self/oom_score_adj", "500"));
    let prepared = idmap::prepare(&plan)?;
    Ok(Fresh { context: Context { plan, report: Report::default(), handed: Vec::new(), streams }, prepared })
}

fn streams(link: &Link) -> std::io::Result<[OwnedFd; 3]> {
    match link.hear()? {
        (Answer::Stdio, fds) => fds.try_into().map_err(|_| std::io::Error::other("they are not three")),
        (other @ (Answer::Begin | Answer::Go), _) => Err(std::io::Error::other(format!("the starter said {other:?} instead"))),
    }
}
