//! One case a blocker, the machines that can't be had here among them (Ubuntu's own setting, Windows' Linux, SELinux).
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn refused(step: Stage, errno: i32) -> Refusal {
    Refusal { errno: Some(errno), ..Refusal::new(step, Kind::Machine, "making the namespaces: no", "the hint") }
}

/// A stock desktop on which nothing is wrong.
fn desktop() -> Facts {
    Facts {
        release: "6.8.0-45-generic".into(),
        max_user_namespaces: Some(62_000),
        fuse: Fuse::There,
        lsm: Some("lockdown,capability,landlock,yama,apparmor".into()),
        cgroup2: true,
        systemd: true,
        session: true,
        ..Facts::default()
    }
}

#[track_caller]
fn cured(advice: &Advice, why: &str, command: &str) {
    assert!(advice.why.contains(why), "the reason names {why:?}: {advice:?}");
    assert_eq!(advice.command.as_deref(), Some(command), "{advice:?}");
    assert!(!command.contains('\n'), "it is one command");
}

#[track_caller]
fn told(advice: &Advice, why: &str) {
    assert!(advice.why.contains(why), "the reason names {why:?}: {advice:?}");
    assert_eq!(advice.command, None, "there is no command for it: {advice:?}");
}

#[test]
fn p10_debians_and_ubuntus_own_switch() {
    let facts = Facts { userns_clone: Some(0), ..desktop() };
    let advice = refusal(&refused(Stage::Namespaces, EPERM), &facts);
    cured(&advice, "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1");
    assert_eq!(advice.at, "namespaces", "the step is named");
}

#[test]
fn p10_no_user_namespaces_at_all() {
    let facts = Facts { max_user_namespaces: Some(0), ..desktop() };
    for (step, root) in [(Stage::Namespaces, false), (Stage::Idmap, true)] {
        let advice = refusal(&refused(step, ENOSPC), &Facts { root, ..facts.clone() });
        cured(&advice, "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=28633");
    }
    told(&refusal(&refused(Stage::Namespaces, ENOSPC), &desktop()), "limit of namespaces is reached");
    told(&refusal(&refused(Stage::Namespaces, EUSERS), &desktop()), "nested too deep");
}

#[test]
fn p10_ubuntu_takes_the_rights_of_user_namespaces() {
    let ubuntu = Facts { apparmor_userns: Some(1), ..desktop() };
    // The namespaces come to be there; what fails is the first use of their rights.
    for (step, errno) in [(Stage::Namespaces, EACCES), (Stage::Identity, EPERM), (Stage::Mounts, EACCES)] {
        let off = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
        cured(&refusal(&refused(step, errno), &ubuntu), "kernel.apparmor_restrict_unprivileged_userns is 1", off);
        let packaged = Facts { apparmor_profile: Some("/etc/apparmor.d/airlock-jail"), ..ubuntu.clone() };
        cured(&refusal(&refused(step, errno), &packaged), "this is another copy", off);
        let installed = Facts { installed: true, ..packaged };
        let load = "sudo apparmor_parser -r /etc/apparmor.d/airlock-jail";
        cured(&refusal(&refused(step, errno), &installed), "not loaded", load);
        told(&refusal(&refused(step, errno), &Facts { no_new_privs: true, ..installed }), "no_new_privs");
    }
    told(&refusal(&refused(Stage::Mounts, 28), &ubuntu), "limit of namespaces");
}

#[test]
fn p10_containers_by_their_own_words() {
    let over_proc = vec!["/proc/acpi".to_owned()];
    let inside = |name: &str| Facts { container: Some(name.into()), filtered: true, over_proc: over_proc.clone(), ..desktop() };
    let docker = "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined …";
    let podman = "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …";
    for errno in [ENOSYS, EPERM] {
        cured(&refusal(&refused(Stage::Namespaces, errno), &inside("docker")), "filter of the container (docker)", docker);
        cured(&refusal(&refused(Stage::Namespaces, errno), &inside("podman")), "filter of the container (podman)", podman);
        told(&refusal(&refused(Stage::Namespaces, errno), &inside("lxc")), "let clone3");
        told(&refusal(&refused(Stage::Namespaces, errno), &Facts { container: None, ..inside("") }), "outside of the sandbox");
    }
    told(&refusal(&refused(Stage::Namespaces, EPERM), &Facts { filtered: false, container: None, ..inside("") }), "the hint");
    told(&refusal(&refused(Stage::Namespaces, ENOSYS), &desktop()), "Linux 5.12");
    told(&refusal(&refused(Stage::Namespaces, EINVAL), &desktop()), "CONFIG_USER_NS");
}

#[test]
fn p10_a_profile_around_is_named_and_not_the_filter_beside_it() {
    let profile = "containers-default-0.50.1";
    let around = Facts { apparmor_around: Some(profile.into()), filtered: true, ..desktop() };
    let podman = Facts { container: Some("podman".into()), over_proc: vec!["/proc/acpi".into()], ..around.clone() };
    let all = "podman run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt unmask=ALL …";
    for step in [Stage::Quotas, Stage::Mounts] {
        cured(&refusal(&refused(step, EACCES), &podman), &format!("AppArmor profile {profile}"), all);
        told(&refusal(&refused(step, EACCES), &around), "outside of what that profile is for");
    }
    // Whatever is in the way is taken away at once, but only that.
    cured(&refusal(&refused(Stage::Namespaces, EPERM), &podman), "filter of the container", all);
    let left = Facts { filtered: false, over_proc: Vec::new(), container: Some("docker".into()), ..podman };
    for errno in [EPERM, EACCES] {
        let advice = refusal(&refused(Stage::Mounts, errno), &left);
        cured(&advice, profile, "docker run --security-opt apparmor=unconfined …");
    }
}

#[test]
fn p10_a_proc_that_is_covered_is_named() {
    let facts = Facts { over_proc: vec!["/proc/irq".into(), "/proc/acpi".into()], ..desktop() };
    let at = |facts: &Facts| refusal(&refused(Stage::Proc, EPERM), facts);
    cured(&at(&facts), "/proc/irq (of 2 places)", "sudo umount /proc/irq");
    let podman = Facts { container: Some("podman".into()), ..facts };
    cured(&at(&podman), "/proc/irq", "podman run --security-opt unmask=ALL …");
}

#[test]
fn p10_selinux_is_named_only_where_it_enforces() {
    let facts = Facts { selinux: true, ..desktop() };
    let command = "sudo ausearch -m avc -c airlock-jail | audit2allow -M airlock && sudo semodule -i airlock.pp";
    cured(&refusal(&refused(Stage::Namespaces, EACCES), &facts), "SELinux", command);
    told(&refusal(&refused(Stage::Namespaces, EACCES), &desktop()), "the hint");
}

#[test]
fn p10_root_is_told_to_be_somebody_else_where_ids_can_t_be_mapped() {
    let facts = Facts { root: true, ..desktop() };
    cured(&refusal(&refused(Stage::Idmap, EINVAL), &facts), "id-mapped mounts", "runuser -u NAME -- airlock …");
}

#[test]
fn p10_a_missing_filter_and_a_filter_around() {
    told(&refusal(&refused(Stage::Seccomp, EINVAL), &desktop()), "CONFIG_SECCOMP_FILTER");
    told(&refusal(&refused(Stage::Seccomp, EPERM), &Facts { filtered: true, ..desktop() }), "outside of the sandbox");
}

#[test]
fn p10_a_lost_promise_names_its_cure_first_and_then_how_to_accept_it() {
    let mut report = jail_plan::Report::default();
    report.set(Guarantee::Network, jail_plan::Status::absent("no way out: the kernel has no nf_tables: no (os error 93)"));
    let lost = report.missing(&[Guarantee::Network]).unwrap();
    let advice = refusal(&lost, &desktop());
    cured(&advice, "not loaded", "sudo modprobe nft_tproxy");
    assert_eq!(advice.accept.as_deref(), Some("network"));
    let text = advice.to_string();
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word:?} is in {text}"));
    assert!(at("promise 4") < at("modprobe") && at("modprobe") < at("accept = [\"network\"]"), "{text}");
    let container = Facts { container: Some("podman".into()), ..desktop() };
    cured(&refusal(&lost, &container), "on the host", "sudo modprobe nft_tproxy");
}

#[track_caller]
fn row(guarantee: Guarantee) -> Row {
    Row { guarantee, how: String::new(), status: jail_plan::Status::absent("not here") }
}

#[test]
fn decoys_by_what_is_with_their_device() {
    let of = |facts: &Facts| weaker(&row(Guarantee::Decoys), facts).unwrap();
    let missing = Facts { fuse: Fuse::Missing, ..desktop() };
    cured(&of(&missing), "missing", "sudo modprobe fuse");
    let podman = Facts { container: Some("podman".into()), ..missing };
    cured(&of(&podman), "no /dev/fuse", "podman run --device /dev/fuse …");
    cured(&of(&Facts { fuse: Fuse::Closed, ..desktop() }), "closed", "sudo chmod 0666 /dev/fuse");
    told(&of(&desktop()), "security module");
}

#[test]
fn landlock_that_is_off_and_that_is_old() {
    let off = Facts { lsm: Some("capability,yama".into()), ..desktop() };
    let advice = weaker(&row(Guarantee::Landlock), &off).unwrap();
    assert!(advice.command.as_deref().unwrap().contains("lsm=landlock,capability,yama"), "{advice:?}");
    told(&weaker(&row(Guarantee::Landlock), &desktop()).unwrap(), "6.8.0-45-generic");
    assert_eq!(weaker(&row(Guarantee::Landlock), &Facts { lsm: None, ..desktop() }), None, "nothing is guessed");
}

#[test]
fn p8_why_a_run_has_no_cgroup() {
    let of = |facts: &Facts| weaker(&row(Guarantee::Memory), facts).unwrap();
    let wsl = Facts { release: "5.15.167.4-microsoft-standard-WSL2".into(), systemd: false, session: false, ..desktop() };
    cured(&of(&wsl), "without systemd", r"printf '[boot]\nsystemd=true\n' | sudo tee -a /etc/wsl.conf");
    told(&of(&Facts { systemd: false, ..desktop() }), "systemd does not run this machine");
    assert!(of(&Facts { cgroup2: false, ..desktop() }).why.contains("version 1"));
    cured(&of(&Facts { session: false, ..desktop() }), "no systemd session", "sudo machinectl shell $USER@");
    assert!(of(&desktop()).command.unwrap().contains("Delegate=cpu cpuset io memory pids"));
}

#[test]
fn a_row_that_nothing_cures_has_no_advice() {
    assert_eq!(weaker(&row(Guarantee::Wall), &desktop()), None);
    assert_eq!(weaker(&row(Guarantee::Disk), &desktop()), None, "no cgroup counts what is on disk");
    let full = Row { status: jail_plan::Status::Full, ..row(Guarantee::Decoys) };
    assert_eq!(weaker(&full, &desktop()), None, "what is full needs none");
}
