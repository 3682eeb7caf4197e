//! Landlock as the only lock: what is not named can't be opened, and nothing inside signals or looks at what is outside.

use crate::error::{OrRefuse as _, Step};
use crate::second_lock::{WANTED, allow};
use jail_plan::{Guarantee, Landlock, Raw, Report, Stage, Status};
use landlock::{
    Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetStatus, Scope,
};

const HINT: &str = "without namespaces Landlock is all that stands: the kernel needs it (Linux 5.13, and `landlock` in lsm=)";

/// Confines this process and all that come from it.
pub(super) fn close(rules: &Landlock, terminal: Option<Raw>, report: &mut Report) -> Step<()> {
    let what = || "setting up Landlock".to_owned();
    let all = AccessFs::from_all(WANTED);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        // No rule follows: a connection is the warden's to make, and no port is anybody's to take.
        .and_then(|r| r.handle_access(AccessNet::from_all(WANTED)))
        .and_then(|r| r.scope(Scope::from_all(WANTED)))
        .and_then(|r| r.create())
        .or_refuse(Stage::Landlock, HINT, what)?;
    let own: Vec<Raw> = terminal.into_iter().collect();
    let lists: [(&[Raw], BitFlags<AccessFs>); 4] = [
        (&rules.writable, all),
        (&own, all),
        (&rules.readable, AccessFs::from_read(WANTED)),
        (&rules.listed, AccessFs::ReadDir.into()),
    ];
    let status = allow(ruleset, &lists)?.restrict_self().or_refuse(Stage::Landlock, HINT, what)?;
    let how = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("Landlock ABI {}, which stands alone", effective_abi as i32),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => String::new(),
    };
    let row = match status.ruleset {
        RulesetStatus::FullyEnforced => Status::Full,
        RulesetStatus::PartiallyEnforced => Status::partial(
            "this kernel's Landlock is older than Linux 6.12's and knows fewer rights; the filter refuses what it lacks of files",
        ),
        RulesetStatus::NotEnforced => return Err("the kernel keeps none of it").or_refuse(Stage::Landlock, HINT, what),
    };
    report.keep(Guarantee::Landlock, how, row);
    Ok(())
}
