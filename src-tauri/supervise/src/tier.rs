//! Which jail a machine gives: the one with namespaces; where it gives none, and only where the person's policy accepts that,
//! the weaker one without.

use crate::cgroup::Together;
use crate::spawn::{Jail, SpawnError, spawn, spawn_limited};
use jail_plan::{Kind, Plan, Refusal, Stage};
use model::run::RunSpec;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// A jail and the plan that it stands on.
#[derive(Debug)]
pub struct Stood {
    /// The jail.
    pub jail: Jail,
    /// Its plan.
    pub plan: Plan,
}

/// Starts the jail of a plan; where the machine has no namespaces for it, that of the other plan, which is asked for only
/// where its loss is accepted.
pub fn stand(
    plan: Plan,
    other: Option<impl FnOnce() -> Result<Plan, String>>,
    program: &Path,
    stdio: Option<[OwnedFd; 3]>,
    together: Option<&Together>,
) -> Result<Stood, SpawnError> {
    let start = |plan: &Plan, stdio| match together {
        Some(together) => spawn_limited(plan, program, stdio, together),
        None => spawn(plan, program, stdio),
    };
    let Some(other) = other else { return start(&plan, stdio).map(|jail| Stood { jail, plan }) };
    let copies = stdio.as_ref().map(|streams| -> io::Result<[OwnedFd; 3]> {
        let [stdin, stdout, stderr] = streams;
        Ok([stdin.try_clone()?, stdout.try_clone()?, stderr.try_clone()?])
    });
    let copies = copies.transpose()?;
    match start(&plan, stdio) {
        Ok(jail) => Ok(Stood { jail, plan }),
        // Root has none: uid 0 owns what it would be kept from.
        Err(SpawnError::Refused(why)) if why.lacks_namespaces() && !rustix::process::geteuid().is_root() => {
            let weaker = other().map_err(|why_not| {
                let hint = format!("or let the machine give namespaces: {}", why.hint);
                Refusal::new(Stage::Plan, Kind::Machine, format!("without namespaces: {why_not}"), hint)
            })?;
            tracing::warn!(%why, "no namespaces: the weaker jail that the policy accepts stands in");
            start(&weaker, copies).map(|jail| Stood { jail, plan: weaker })
        }
        Err(e) => Err(e),
    }
}

/// Makes what a run without namespaces needs in its task's directory: a private place for what is else `/tmp`, and the history
/// where its git looks for it.
pub fn prepare(spec: &RunSpec) -> io::Result<()> {
    let (tmp, history) = (spec.dir.tmp(), spec.dir.shown_history());
    // What an earlier run left there is nobody's; what can't be removed stays, as it is the agent's own.
    drop(std::fs::remove_dir_all(&tmp));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(tmp.join("run"))?;
    match std::fs::remove_dir_all(&history) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => std::fs::create_dir(&history)?,
    }
    for (n, objects) in spec.history.iter().enumerate() {
        std::os::unix::fs::symlink(objects, history.join(n.to_string()))?;
    }
    Ok(())
}
