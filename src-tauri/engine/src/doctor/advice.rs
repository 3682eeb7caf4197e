//! From what went wrong and what the machine says about itself to a sentence and one command: pure.

use super::facts::{Facts, Fuse};
use jail_plan::{Guarantee, Kind, Refusal, Report, Row, Stage, Status};
use serde::Serialize;

/// What blocks or weakens a start, and how it is cured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The step of the start, or the guarantee.
    pub at: String,
    /// What happened there.
    pub what: String,
    /// Why, as far as the machine says.
    pub why: String,
    /// The one command that cures it, where there is one.
    pub command: Option<String>,
    /// The name by which the person's own policy can accept the loss, where it can.
    pub accept: Option<String>,
}

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.what, self.why)?;
        if let Some(command) = &self.command {
            write!(f, ". To mend it: {command}")?;
        }
        match &self.accept {
            Some(name) => write!(f, ". Or accept the loss in your own policy: accept = [\"{name}\"]"),
            None => Ok(()),
        }
    }
}

/// A reason and a command.
struct Cause(String, Option<String>);

fn cause(why: impl Into<String>, command: impl Into<String>) -> Cause {
    Cause(why.into(), Some(command.into()))
}

fn only(why: impl Into<String>) -> Cause {
    Cause(why.into(), None)
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const EUSERS: i32 = 87;

/// Why a start was refused.
pub(crate) fn refusal(refusal: &Refusal, facts: &Facts) -> Advice {
    let accept = refusal.lost.filter(|g| Guarantee::REQUIRED.contains(g)).map(|g| g.to_string());
    let stands_in = refusal.lacks_namespaces() && !facts.root;
    let accept = accept.or_else(|| stands_in.then(|| jail_plan::NO_NAMESPACES.to_owned()));
    let hint = || Cause(refusal.hint.clone(), None);
    let Cause(why, command) = match (refusal.kind, refusal.step) {
        (Kind::Promise, _) => refusal.lost.and_then(|g| lost(g, &refusal.reason, facts)).unwrap_or_else(hint),
        (Kind::Machine, Stage::Namespaces | Stage::Identity | Stage::Quotas | Stage::Mounts | Stage::Pivot) => {
            namespaces(refusal.errno, facts).unwrap_or_else(hint)
        }
        (Kind::Machine, Stage::Idmap) => idmap(refusal.errno, facts).unwrap_or_else(hint),
        (Kind::Machine, Stage::Proc) => proc(facts).or_else(|| namespaces(refusal.errno, facts)).unwrap_or_else(hint),
        (Kind::Machine, Stage::Seccomp) => seccomp(facts),
        (Kind::Machine, Stage::Network) => namespaces(refusal.errno, facts).unwrap_or_else(hint),
        _ => hint(),
    };
    let why = if facts.root && (refusal.lacks_namespaces() || refusal.step == Stage::Idmap) {
        format!(
            "{why} (an ordinary user's policy can accept a weaker jail without namespaces; root has none, as uid 0 owns what it would be kept from)"
        )
    } else {
        why
    };
    Advice { at: refusal.step.to_string(), what: refusal.reason.clone(), why, command, accept }
}

/// A limit that a policy requires and this machine does not keep.
pub(crate) fn required(limit: policy::Limit, report: &Report, facts: &Facts) -> Option<Advice> {
    let guarantee = supervise::limits::guarantee(limit);
    let row = report.row(guarantee).filter(|r| r.status != Status::Full)?;
    let mut advice = weaker(row, facts).unwrap_or_else(|| Advice {
        at: guarantee.to_string(),
        what: row.status.reason().unwrap_or_default().to_owned(),
        why: "nothing on this machine keeps it".into(),
        command: None,
        accept: None,
    });
    advice.why = format!("{}; the policy names it in `limits.require`", advice.why);
    Some(advice)
}

/// Why a row is not full, where a cure is known.
pub(crate) fn weaker(row: &Row, facts: &Facts) -> Option<Advice> {
    let what = row.status.reason()?;
    let Cause(why, command) = lost(row.guarantee, what, facts)?;
    Some(Advice { at: row.guarantee.to_string(), what: what.to_owned(), why, command, accept: None })
}

/// What stands against making namespaces and using the rights that they give.
fn namespaces(errno: Option<i32>, facts: &Facts) -> Option<Cause> {
    let denied = matches!(errno, Some(EPERM | EACCES));
    if denied && facts.apparmor_userns == Some(1) && !facts.root {
        return Some(apparmor(facts));
    }
    if facts.userns_clone == Some(0) && denied && !facts.root {
        return Some(cause(
            "kernel.unprivileged_userns_clone is 0: ordinary users may make no user namespace",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ));
    }
    match errno? {
        ENOSPC if facts.max_user_namespaces == Some(0) => Some(cause(
            "user.max_user_namespaces is 0: no user namespace can be made",
            "sudo sysctl -w user.max_user_namespaces=28633",
        )),
        ENOSPC => Some(only(
            "the limit of namespaces is reached, here or in a namespace around this one: user.max_*_namespaces there is too low",
        )),
        EUSERS => Some(only("user namespaces are nested too deep: start Airlock outside of the containers around it")),
        ENOSYS => Some(container(facts).unwrap_or_else(|| {
            only(if facts.filtered {
                "a system call filter around this process knows no clone3: start Airlock outside of the sandbox that it is in"
            } else {
                "this kernel has no clone3 or no mount API: Airlock needs Linux 5.12"
            })
        })),
        EINVAL => Some(only("this kernel was built without one of the namespaces (CONFIG_USER_NS and its like)")),
        EPERM | EACCES if facts.selinux && facts.container.is_none() => Some(cause(
            "SELinux enforces, and may refuse user namespaces to this program",
            "sudo ausearch -m avc -c airlock-jail | audit2allow -M airlock && sudo semodule -i airlock.pp",
        )),
        // A profile answers what it refuses with EACCES, and a right that it takes with EPERM, as a filter does.
        EACCES if facts.apparmor_around.is_some() => profile_around(facts),
        EPERM | EACCES if facts.filtered => Some(container(facts).unwrap_or_else(|| {
            only("a system call filter around this process refuses it: start Airlock outside of the sandbox that it is in")
        })),
        EPERM | EACCES => profile_around(facts),
        _ => None,
    }
}

fn apparmor(facts: &Facts) -> Cause {
    let off = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
    let why = "AppArmor takes the rights of a user namespace from programs that it has no profile for \
               (kernel.apparmor_restrict_unprivileged_userns is 1)";
    match facts.apparmor_profile {
        _ if facts.no_new_privs => only(format!(
            "{why}, and does not switch to Airlock's profile in a shell that may gain no rights (no_new_privs): start Airlock from \
             a plain terminal"
        )),
        Some(profile) if facts.installed => {
            cause(format!("{why}; Airlock's profile is there but not loaded"), format!("sudo apparmor_parser -r {profile}"))
        }
        Some(_) => cause(format!("{why}; Airlock's profile names {}, and this is another copy", jail_plan::INSTALLED), off),
        None => cause(format!("{why}; the package brings one"), off),
    }
}

/// The filter of a container's maker.
fn container(facts: &Facts) -> Option<Cause> {
    let name = facts.container.as_deref()?;
    let why = format!("the system call filter of the container ({name}) refuses namespaces");
    Some(match open_container(facts) {
        Some(command) => cause(why, command),
        None => only(format!("{why}: it has to let clone3, mount and their like through")),
    })
}

/// The AppArmor profile around this process: a container's maker's, or that of a sandbox.
fn profile_around(facts: &Facts) -> Option<Cause> {
    let profile = facts.apparmor_around.as_deref()?;
    let why = format!("the AppArmor profile {profile} around this process refuses mounts or settings of a namespace of its own");
    Some(match open_container(facts) {
        Some(command) => cause(why, command),
        None => only(format!("{why}: start Airlock outside of what that profile is for")),
    })
}

/// A start of the container that leaves a jail what it needs: all that is in the way now, in one command.
fn open_container(facts: &Facts) -> Option<String> {
    let name = facts.container.as_deref()?;
    let all_of_proc = match name {
        "docker" => "systempaths=unconfined",
        "podman" => "unmask=ALL",
        _ => return None,
    };
    let in_the_way = [
        (facts.filtered, "seccomp=unconfined"),
        (facts.apparmor_around.is_some(), "apparmor=unconfined"),
        (!facts.over_proc.is_empty(), all_of_proc),
    ];
    let options = in_the_way.into_iter().filter(|(is, _)| *is).map(|(_, option)| format!("--security-opt {option} "));
    Some(format!("{name} run {}…", options.collect::<String>()))
}

fn idmap(errno: Option<i32>, facts: &Facts) -> Option<Cause> {
    if facts.max_user_namespaces == Some(0) || matches!(errno, Some(ENOSPC | EUSERS | ENOSYS)) {
        return namespaces(errno, facts);
    }
    Some(cause(
        "started as root, a jail runs as an account that owns nothing, for which the file system must know id-mapped mounts; an \
         ordinary user needs none",
        "runuser -u NAME -- airlock …",
    ))
}

/// What lies over `/proc`.
fn proc(facts: &Facts) -> Option<Cause> {
    let over = facts.over_proc.first()?;
    let why = format!(
        "the kernel gives a new /proc only where all of the old one is in sight, and {over}{} is covered",
        if facts.over_proc.len() > 1 { format!(" (of {} places)", facts.over_proc.len()) } else { String::new() }
    );
    Some(match (open_container(facts), &facts.container) {
        (Some(command), _) => cause(why, command),
        (None, Some(_)) => only(format!("{why}: the container has to leave /proc as it is")),
        (None, None) => cause(why, format!("sudo umount {over}")),
    })
}

fn seccomp(facts: &Facts) -> Cause {
    if facts.filtered {
        only("a system call filter around this process forbids further ones: start Airlock outside of the sandbox that it is in")
    } else {
        only("this kernel was built without CONFIG_SECCOMP_FILTER, and nothing replaces it")
    }
}

/// Causes of a row that is not full.
fn lost(guarantee: Guarantee, reason: &str, facts: &Facts) -> Option<Cause> {
    match guarantee {
        Guarantee::Network if reason.contains("nf_tables") => Some(match &facts.container {
            Some(name) => cause(
                format!("the kernel has no nf_tables loaded, and a container ({name}) can load nothing: on the host"),
                "sudo modprobe nft_tproxy",
            ),
            None => cause("nf_tables or its tproxy module is not loaded", "sudo modprobe nft_tproxy"),
        }),
        Guarantee::Network if reason.contains("IPv6") => Some(cause(
            "IPv6 is off in the kernel, and the way out serves both",
            "sudo sed -i 's/ipv6.disable=1//' /etc/default/grub && sudo update-grub && sudo reboot",
        )),
        Guarantee::Decoys => Some(match (facts.fuse, facts.container.as_deref()) {
            (Fuse::Missing, Some(name @ ("docker" | "podman"))) => {
                cause("the container has no /dev/fuse", format!("{name} run --device /dev/fuse …"))
            }
            (Fuse::Missing, _) => cause("/dev/fuse is missing: the module is not loaded", "sudo modprobe fuse"),
            (Fuse::Closed, _) => cause("/dev/fuse is closed to ordinary users", "sudo chmod 0666 /dev/fuse"),
            (Fuse::There, _) => only("/dev/fuse can be opened here but not in the jail's user namespace (a security module?)"),
        }),
        Guarantee::Landlock => landlock(facts),
        Guarantee::Events if facts.filtered => {
            Some(only("another system call filter around Airlock has the listener: start it outside of that sandbox"))
        }
        // A cgroup counts no disk.
        Guarantee::Memory | Guarantee::Processes | Guarantee::Cpu => cgroup(facts),
        _ => None,
    }
}

fn landlock(facts: &Facts) -> Option<Cause> {
    let lsm = facts.lsm.as_deref()?;
    if lsm.split(',').any(|m| m == "landlock") {
        return Some(only(format!("Linux {} has an older Landlock; a newer kernel has more of it", facts.release)));
    }
    Some(cause(
        format!("Landlock is not among the active security modules ({lsm})"),
        format!(
            "echo 'GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT lsm=landlock,{lsm}\"' | sudo tee -a /etc/default/grub && \
             sudo update-grub && sudo reboot"
        ),
    ))
}

/// Why limits of the whole jail have no cgroup.
fn cgroup(facts: &Facts) -> Option<Cause> {
    if facts.wsl() && !facts.systemd {
        return Some(cause(
            "Windows' Linux runs without systemd, which would give a run its cgroup (then, in Windows: wsl --shutdown)",
            r"printf '[boot]\nsystemd=true\n' | sudo tee -a /etc/wsl.conf",
        ));
    }
    if !facts.systemd {
        return Some(only("systemd does not run this machine, so nobody gives a run a cgroup of its own"));
    }
    if !facts.cgroup2 {
        return Some(cause(
            "the cgroups are of version 1",
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo update-grub && sudo reboot",
        ));
    }
    if !facts.session && !facts.root {
        return Some(cause("there is no systemd session of this user (sudo and su make none)", "sudo machinectl shell $USER@"));
    }
    (!facts.root).then(|| {
        cause(
            "the user's session has not all controllers",
            r"sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload",
        )
    })
}

#[cfg(test)]
mod tests;
