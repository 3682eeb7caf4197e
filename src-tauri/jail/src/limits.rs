//! Resource limits: each process's own, the processors, and the count of processes, which the kernel keeps per user namespace.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Guarantee, Limits, Report, Stage, Status};
use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;

/// Sets them and says which guarantees they give.
pub(crate) fn set(limits: &Limits, report: &mut Report) -> Step<()> {
    // Init counts too, and is no process of the command's.
    one(Resource::Nproc, limits.processes.saturating_add(1))?;
    others(limits, report)?;
    let how = "RLIMIT_NPROC, counted in the user namespace";
    report.keep(Guarantee::Processes, how, processes_status(&rustix::system::uname().release().to_string_lossy()));
    Ok(())
}

/// The same where the person's own processes count with the jail's.
pub(crate) fn set_beside_others(limits: &Limits, report: &mut Report) -> Step<()> {
    one(Resource::Nproc, limits.processes.saturating_add(threads_of(rustix::process::getuid().as_raw())))?;
    others(limits, report)?;
    let hole = "the kernel counts your own processes too: as many as you had at the start are let beside the limit";
    report.keep(Guarantee::Processes, "RLIMIT_NPROC", Status::partial(hole));
    Ok(())
}

/// Threads of a user now.
fn threads_of(uid: u32) -> u64 {
    let of_one = |status: String| {
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok());
        (field("Uid:") == Some(u64::from(uid))).then(|| field("Threads:"))?
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| of_one(std::fs::read_to_string(entry.path().join("status")).ok()?)).sum()
}

fn others(limits: &Limits, report: &mut Report) -> Step<()> {
    one(Resource::Nofile, limits.open_files)?;
    // A dump would be handed to the host's crash handler, which runs as root, outside, on what a jail wrote. Zero does not
    // stop that: limits don't count for handlers. One byte does: it is the kernel's own mark for "a handler that crashed".
    one(Resource::Core, 1)?;
    // Shared with the person, per user: small.
    one(Resource::Memlock, 64 << 10)?;
    one(Resource::Msgqueue, 163_840)?;
    one(Resource::Sigpending, 1024)?;
    one(Resource::Rtprio, 0)?;
    // Where a session lets programs raise their own priority, a jail's may not.
    one(Resource::Nice, 0)?;
    if let Some(bytes) = limits.file_size {
        one(Resource::Fsize, bytes)?;
    }
    report.keep(Guarantee::OpenFiles, "RLIMIT_NOFILE", Status::Full);
    report.keep(Guarantee::Cpu, "the choice of processors, which the filter keeps", processors(limits.cpus));
    // What follows is the starter's, who sets the rows of what it keeps.
    report.set(Guarantee::Memory, Status::absent("memory is not limited"));
    report.set(
        Guarantee::Disk,
        match limits.file_size {
            Some(bytes) => Status::partial(format!("a single file ends at {bytes} bytes; their sum is not limited")),
            None => Status::absent("disk use is not limited"),
        },
    );
    for guarantee in [Guarantee::Wall, Guarantee::Bytes, Guarantee::Output] {
        report.set(guarantee, Status::absent("nobody keeps it"));
    }
    Ok(())
}

/// Keeps the jail on that many of the processors that it may run on; the filter then refuses to change it. Which ones is
/// random, so that several jails don't all choose the same.
fn processors(most: Option<u32>) -> Status {
    let Some(most) = most.and_then(|n| usize::try_from(n).ok()) else { return Status::absent("processor time is not limited") };
    let pinned = || -> rustix::io::Result<bool> {
        let may = rustix::thread::sched_getaffinity(None)?;
        let mut all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| may.is_set(*n)).collect();
        if all.len() <= most {
            return Ok(true);
        }
        let [low, high, ..] = sys::random::bytes();
        let start = usize::from(u16::from_le_bytes([low, high])) % all.len();
        all.rotate_left(start);
        let mut chosen = CpuSet::new();
        all.iter().take(most).for_each(|n| chosen.set(*n));
        rustix::thread::sched_setaffinity(None, &chosen)?;
        Ok(rustix::thread::sched_getaffinity(None)? == chosen)
    };
    match pinned() {
        Ok(true) => Status::Full,
        Ok(false) => Status::absent("the kernel did not keep the choice of processors"),
        Err(e) => Status::absent(format!("the processors could not be chosen: {e}")),
    }
}

/// Before 5.14 the kernel counted all processes of the uid, the person's own among them.
fn processes_status(release: &str) -> Status {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (5, 14) => Status::Full,
        _ => Status::partial(format!("kernel {release} counts the person's own processes too")),
    }
}

fn one(resource: Resource, value: u64) -> Step<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    // An ordinary user's own hard limit may be lower; lower is fine.
    let value = hard.map_or(value, |hard| hard.min(value));
    rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) }).or_refuse(
        Stage::Limits,
        UNEXPECTED,
        || format!("limiting {resource:?} to {value}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_not_said_to_count_well() {
        for good in ["5.14.0", "6.18.44-generic", "10.0"] {
            assert_eq!(processes_status(good), Status::Full, "{good} counts per user namespace");
        }
        for bad in ["5.13.19", "5.4.0-1", "", "rolling"] {
            assert_ne!(processes_status(bad), Status::Full, "{bad} is not known to");
        }
    }
}
