//! Landlock: the same rules as the mounts once more, kept by other kernel code, should those have a hole.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Guarantee, Landlock, Raw, Report, Stage, Status};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// All file rights, and scopes for signals and abstract sockets: Linux 6.12.
pub(crate) const WANTED: ABI = ABI::V6;

/// Confines this process and all that come from it.
pub(crate) fn close(rules: &Landlock, report: &mut Report) -> Step<()> {
    let what = || "setting up Landlock".to_owned();
    let all = AccessFs::from_all(WANTED);
    let read = AccessFs::from_read(WANTED);
    // What this kernel lacks is left out, and told below.
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|r| r.scope(Scope::from_all(WANTED)))
        .and_then(|r| r.create())
        .or_refuse(Stage::Landlock, UNEXPECTED, what)?;
    let ruleset = allow(ruleset, &[(&rules.writable, all), (&rules.readable, read)])?;
    let status = ruleset.restrict_self().or_refuse(Stage::Landlock, UNEXPECTED, what)?;
    report.keep(
        Guarantee::Landlock,
        how(&status.landlock),
        match status.ruleset {
            RulesetStatus::FullyEnforced => Status::Full,
            RulesetStatus::PartiallyEnforced => {
                Status::partial("this kernel's Landlock is older than Linux 6.12's and knows fewer rights")
            }
            RulesetStatus::NotEnforced => Status::absent(match status.landlock {
                LandlockStatus::NotEnabled => "Landlock is turned off in this kernel; the mounts stand alone",
                _ => "this kernel has no Landlock; the mounts stand alone",
            }),
        },
    );
    Ok(())
}

/// Adds what each list lets be done with its places.
pub(crate) fn allow(mut ruleset: RulesetCreated, lists: &[(&[Raw], BitFlags<AccessFs>)]) -> Step<RulesetCreated> {
    for (paths, access) in lists {
        for path in *paths {
            // A place that is not there (an optional bind) needs no rule.
            let Some((fd, kind)) = open(path)? else { continue };
            let access = if kind == FileType::Directory { *access } else { *access & AccessFs::from_file(WANTED) };
            ruleset = ruleset
                .add_rule(PathBeneath::new(fd, access))
                .or_refuse(Stage::Landlock, UNEXPECTED, || format!("allowing `{path}`"))?;
        }
    }
    Ok(ruleset)
}

/// The version in words.
fn how(landlock: &LandlockStatus) -> String {
    match landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("Landlock ABI {}", *effective_abi as i32),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => String::new(),
    }
}

/// A place inside, never through a symlink: one in the agent's home could widen the rule to anything.
fn open(path: &Raw) -> Step<Option<(OwnedFd, FileType)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.or_refuse(Stage::Landlock, UNEXPECTED, || format!("opening `{path}`"))?,
    };
    let stat = rustix::fs::fstat(&fd).or_refuse(Stage::Landlock, UNEXPECTED, || format!("looking at `{path}`"))?;
    Ok(Some((fd, FileType::from_raw_mode(stat.st_mode))))
}
