//! The few files that explain why a start was refused or is weaker: read after the fact, never decided by.

use std::fs::read_to_string;
use std::path::Path;

/// What this machine says about itself. All of it may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Started as root.
    pub(crate) root: bool,
    /// `uname -r`.
    pub(crate) release: String,
    /// The container around Airlock, by its maker's name where it is known.
    pub(crate) container: Option<String>,
    /// `kernel.unprivileged_userns_clone` (Debian, Ubuntu).
    pub(crate) userns_clone: Option<u64>,
    /// `user.max_user_namespaces`.
    pub(crate) max_user_namespaces: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu).
    pub(crate) apparmor_userns: Option<u64>,
    /// Where Airlock's profile lies, if it lies there.
    pub(crate) apparmor_profile: Option<&'static str>,
    /// Whether the profile names the jail program that would be started.
    pub(crate) installed: bool,
    /// The AppArmor profile that this process is under, by its name.
    pub(crate) apparmor_around: Option<String>,
    /// SELinux enforces.
    pub(crate) selinux: bool,
    /// `no_new_privs` of this process.
    pub(crate) no_new_privs: bool,
    /// A system call filter lies on this process.
    pub(crate) filtered: bool,
    /// What is mounted over places below `/proc`.
    pub(crate) over_proc: Vec<String>,
    /// `/dev/fuse`.
    pub(crate) fuse: Fuse,
    /// Active security modules, where the kernel lists them.
    pub(crate) lsm: Option<String>,
    /// Whether the cgroups are of version 2 alone.
    pub(crate) cgroup2: bool,
    /// Whether systemd runs the machine, and this user's session.
    pub(crate) systemd: bool,
    pub(crate) session: bool,
}

/// The device for decoys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fuse {
    /// It can be opened.
    There,
    /// It is not there.
    #[default]
    Missing,
    /// It is there and may not be opened.
    Closed,
}

/// Where a package puts the profile.
const PROFILE: &str = "/etc/apparmor.d/airlock-jail";

impl Facts {
    /// Whether this is Windows' Linux.
    pub(crate) fn wsl(&self) -> bool {
        self.release.to_ascii_lowercase().contains("microsoft")
    }

    /// Reads them.
    pub(crate) fn read(jail: &Path, runtime: Option<&str>) -> Self {
        let number = |path: &str| read_to_string(path).ok()?.trim().parse().ok();
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned());
        Self {
            root: rustix::process::geteuid().is_root(),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            container: container(),
            userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            apparmor_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            apparmor_profile: Some(PROFILE).filter(|p| Path::new(p).is_file()),
            installed: jail == Path::new(jail_plan::INSTALLED),
            apparmor_around: apparmor_around(),
            selinux: number("/sys/fs/selinux/enforce") == Some(1),
            no_new_privs: field("NoNewPrivs:").as_deref() == Some("1"),
            filtered: field("Seccomp:").as_deref() == Some("2"),
            over_proc: over_proc(&read_to_string("/proc/self/mountinfo").unwrap_or_default()),
            fuse: fuse(),
            lsm: read_to_string("/sys/kernel/security/lsm").ok().map(|l| l.trim().to_owned()),
            cgroup2: Path::new("/sys/fs/cgroup/cgroup.controllers").is_file(),
            systemd: Path::new("/run/systemd/system").is_dir(),
            session: runtime.is_some_and(|r| Path::new(r).join("systemd/private").exists()),
        }
    }
}

fn container() -> Option<String> {
    if Path::new("/.dockerenv").exists() {
        return Some("docker".into());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".into());
    }
    // Written by systemd for whatever it starts in a container; WSL writes its own name there.
    let named = read_to_string("/run/systemd/container").ok()?;
    Some(named.trim().to_owned()).filter(|n| !n.is_empty() && n != "wsl")
}

/// `NAME (MODE)`, where a profile is on this process and enforced; a kernel without AppArmor may say another module's word.
fn apparmor_around() -> Option<String> {
    let label = read_to_string("/proc/self/attr/apparmor/current").ok()?;
    label.trim_matches(['\n', '\0']).strip_suffix(" (enforce)").map(str::to_owned)
}

/// Mount points below `/proc`: the fifth field of a line, with octal escapes.
fn over_proc(mounts: &str) -> Vec<String> {
    let points = mounts.lines().filter_map(|l| l.split(' ').nth(4));
    let mut over: Vec<String> = points.filter(|p| p.starts_with("/proc/")).map(str::to_owned).collect();
    over.dedup();
    // Registered on demand by systemd everywhere; a mount on an empty directory hides nothing.
    over.retain(|p| p != "/proc/sys/fs/binfmt_misc");
    over
}

fn fuse() -> Fuse {
    match std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Fuse::There,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Fuse::Missing,
        Err(_) => Fuse::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_a_part_of_proc_is_found() {
        let mounts = "22 1 0:21 / /proc rw - proc proc rw\n23 22 0:5 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n\
                      24 22 0:30 / /proc/acpi ro - tmpfs tmpfs ro\n25 1 0:31 / /process rw - tmpfs tmpfs rw\n";
        assert_eq!(over_proc(mounts), ["/proc/acpi"]);
    }

    #[test]
    fn windows_names_itself_in_the_release() {
        let of = |release: &str| Facts { release: release.into(), ..Facts::default() }.wsl();
        assert!(of("5.15.167.4-microsoft-standard-WSL2") && of("4.4.0-19041-Microsoft"));
        assert!(!of("6.8.0-45-generic"));
    }
}
