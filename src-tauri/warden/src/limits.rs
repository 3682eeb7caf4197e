//! Limits of a run: which must be kept in full, and what happens at those that are looked at.

use crate::hold::Hold;
use crate::raise::Raises;
use crate::record::Recorder;
use crate::refusal::Refusal;
use jail_plan::{Report, Status};
use model::event::{Process, What};
use model::protocol::PausedBy;
use model::run::RunSpec;
use policy::Policy;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use supervise::Jail;
use supervise::limits::{Allowance, Bounds, Stir, Watch};
use supervise::stands::Stands;
use supervise::who::Who;

/// Refuses where a limit that must be kept in full is not. Nothing of the command has run yet.
pub(crate) fn required(policy: &Policy, report: &Report) -> Result<(), Refusal> {
    for limit in &policy.limits.require {
        let guarantee = supervise::limits::guarantee(*limit);
        let (level, reason) = match report.status(guarantee) {
            Some(Status::Full) => continue,
            Some(Status::Partial { reason }) => ("only in part", reason.as_str()),
            Some(Status::Absent { reason }) => ("not", reason.as_str()),
            None => ("not", "nobody said how far"),
        };
        return Err(Refusal::limit(format!(
            "`limits.require` names {0}, which this machine keeps {level}: {reason}. Take {0} out of `limits.require` in the policy to \
             start all the same; `airlock doctor` shows every row",
            limit.key()
        )));
    }
    Ok(())
}

/// A limit that was reached, as it is told.
pub(crate) fn tell(recorder: &Recorder, limit: &str, detail: String, process: Option<Process>) {
    recorder.fact(process, What::Limit { limit: limit.into(), detail }, 1);
}

/// Starts looking. What can't be looked at is told: the run goes on, as its report said nothing else was sure.
pub(crate) fn watch(
    spec: &RunSpec,
    policy: &Policy,
    jail: &Arc<Jail>,
    who: &Arc<Who>,
    stir: Option<Arc<Stir>>,
    hold: &Arc<Hold>,
    (raises, recorder): (&Raises, &Recorder),
) -> Option<Watch> {
    let l = &policy.limits;
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let bounds = Bounds {
        memory: l.memory,
        processes: l.processes,
        open_files: l.open_files.min(own),
        disk: l.disk,
        places: places(spec),
        held: supervise::limits::held_by_file_system(&places(spec), l.disk).is_some(),
    };
    let (held, told, raises) = (Arc::clone(hold), recorder.clone(), raises.clone());
    // Filled as soon as the watch stands; what is reached before can't be raised, and is reached again.
    let allowance: Arc<OnceLock<Allowance>> = Arc::default();
    let allows = Arc::clone(&allowance);
    let started = Watch::start(jail.pid, jail.scope(), bounds, Arc::clone(who), stir, move |reached| {
        let mut detail = reached.detail;
        let paused = reached.pause && held.pause(PausedBy::Limit);
        if reached.pause && !paused {
            detail.push_str("; not every process could be stopped, so it goes on until the next look");
        }
        tell(&told, reached.limit, detail, reached.process.clone());
        if let (Some(next), Some(allowance)) = (reached.next, allows.get().cloned()) {
            let (hold, disk) = (Arc::clone(&held), reached.limit == "disk");
            let raise = move || {
                if disk {
                    allowance.disk();
                    hold.raised();
                } else {
                    allowance.memory();
                }
            };
            raises.then(&format!("limits.{}", reached.limit), supervise::limits::size(next), reached.process, raise);
        }
        paused
    });
    let watch = started
        .inspect_err(|e| tell(recorder, "memory", format!("memory, processes and disk can't be looked at: {e}"), None))
        .ok()?;
    // Only here.
    drop(allowance.set(watch.allowance()));
    Some(watch)
}

/// Where a run writes: what it grows by is its disk.
pub(crate) fn places(spec: &RunSpec) -> Vec<PathBuf> {
    vec![spec.dir.tree(), spec.dir.home(), spec.dir.git(), spec.dir.path().join("caches"), spec.dir.tmp()]
}

/// Pauses the run when a mount of its jail is gone: what was hidden there would be seen. Nothing can put it back.
pub(crate) fn mounts(jail: &Arc<Jail>, hold: &Arc<Hold>, recorder: &Recorder) -> Option<Stands> {
    let (hold, told, ended) = (Arc::clone(hold), recorder.clone(), Arc::clone(jail));
    let lost = move |places: Vec<String>| {
        let paused = hold.expose();
        let detail = format!(
            "{} was renamed, replaced or deleted outside, and what this run's jail had put over it is gone with it: {}",
            places.join(", "),
            if paused {
                "it is paused: `airlock task stop` ends it, `airlock task continue` lets it go on and see what is there"
            } else {
                "not every process could be stopped, so it was ended"
            }
        );
        tell(&told, "hide", detail, None);
        if !paused {
            ended.kill();
        }
    };
    Stands::watch(jail.pid, lost).inspect_err(|e| tell(recorder, "hide", format!("mounts can't be looked at: {e}"), None)).ok()
}
