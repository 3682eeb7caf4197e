//! What a jail can do to the machine outside: nothing.

use crate::room::{Room, good};
use jail_plan::{Guarantee, HOST_ID, Status};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use testkit::not_tested_here;

#[test]
fn it_has_no_capabilities_and_can_gain_none() {
    let room = Room::new();
    let went = room.sh("cat /proc/self/status; id -u");
    let status = good(&went);
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "`{line}` must hold: {status}");
    }
    assert_ne!(status.lines().last(), Some("0"), "it is not root inside either");
}

#[test]
fn it_is_never_root_on_the_host() {
    let room = Room::new();
    let running = room.start(&["/bin/sleep", "100"], |_| ()).unwrap();
    let mine = nix::unistd::geteuid().as_raw();
    let want = if mine == 0 { HOST_ID } else { mine };
    for pid in running.jail.processes() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(
            status.contains(&format!("Uid:\t{want}\t{want}\t{want}\t{want}\n")),
            "process {pid} must run as {want}: {status}"
        );
        assert!(status.contains("CapEff:\t0000000000000000"), "process {pid}, init too, has no capability: {status}");
        if mine == 0 {
            assert!(status.contains("Groups:\t \n"), "root's groups must be gone: {status}");
        }
    }
}

#[test]
fn it_sees_and_reaches_no_process_but_its_own() {
    let room = Room::new();
    let mut outside = Command::new("/bin/sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
    let went = room.sh("ls /proc | grep -c '^[0-9]*$'; tr '\\0' ' ' < /proc/1/cmdline; cat /proc/1/comm; \
         for f in environ mem maps fd root cwd exe; do (ls /proc/1/$f/ || cat /proc/1/$f) >/dev/null 2>&1 && echo \"opened $f\"; done; kill -9 1; echo alive");
    let lines: Vec<&str> = good(&went).lines().collect();
    assert!(lines[0].parse::<u32>().unwrap() <= 5, "only init, the shell and its helpers are in sight: {lines:?}");
    assert_eq!(lines[1..], ["init init", "alive"], "PID 1 says nothing, shows nothing and can't be killed: {went:?}");
    let killed = room.probe(&["kill", &outside.id().to_string()]);
    assert!(killed.starts_with("refused ESRCH"), "no process outside has a number inside: {killed}");
    assert!(outside.try_wait().unwrap().is_none(), "the process outside lives on");
    outside.kill().unwrap();
    outside.wait().unwrap();
}

#[test]
fn every_namespace_is_its_own() {
    let room = Room::new();
    let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let went = room.sh(&format!("for n in {}; do readlink /proc/self/ns/$n; done; hostname", kinds.join(" ")));
    let inside: Vec<&str> = good(&went).lines().collect();
    for (kind, link) in kinds.iter().zip(&inside) {
        let outside = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(outside.to_str(), Some(*link), "the {kind} namespace must not be the host's");
    }
    assert_eq!(inside.last(), Some(&"airlock-test-host"));
}

#[test]
fn no_socket_of_the_person_is_in_reach() {
    let room = Room::new();
    let by_path = room.layout.runtime.join("bus");
    let _by_path = UnixListener::bind(&by_path).unwrap();
    let name = format!("airlock-canary-{}", std::process::id());
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    by_name.set_nonblocking(true).unwrap();
    assert!(room.probe(&["unix", by_path.to_str().unwrap()]).starts_with("refused"), "a socket file outside is not there");
    assert!(room.probe(&["abstract", &name]).starts_with("refused"), "an abstract name outside is another one inside");
    assert!(by_name.accept().is_err(), "nobody came");
    let went = room.sh("find /tmp /run /var /home \"$HOME\" -type s 2>/dev/null; env | grep -i -e DBUS -e DISPLAY -e WAYLAND -e SSH_ -e XAUTH; true");
    assert_eq!(good(&went), "", "no socket file and no hint to one");
}

#[test]
fn the_machines_settings_are_closed() {
    let room = Room::new();
    let went = room.sh(
        "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces \
           /proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/self/uid_map; do (echo 1 > $f) 2>/dev/null && echo wrote $f; done; \
         cat /proc/sys/user/max_user_namespaces /proc/sys/user/max_mnt_namespaces /proc/sys/user/max_inotify_instances; \
         awk '$5 == \"/proc/sys\" { print substr($6, 1, 2) }' /proc/self/mountinfo; head -qc1 /proc/kmsg /proc/kcore /proc/kallsyms /proc/keys 2>/dev/null; (mount -t tmpfs x /tmp || unshare -U true || unshare -r true || chroot / true || hostname x) 2>/dev/null && echo broke out; true",
    );
    assert_eq!(good(&went), "0\n0\n32\nro\n");
}

#[test]
fn the_command_starts_with_three_streams_and_the_environment_that_was_composed() {
    let mut room = Room::new();
    room.grants.env = vec![("LANG".into(), "de_DE.UTF-8".into()), ("HOME".into(), "/elsewhere".into())];
    let went = room.sh("ls /proc/$$/fd | tr '\\n' ' '; echo; ulimit -n; awk '/core file/ {print $5}' /proc/self/limits; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; echo $LANG $HOME");
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!(
        lines[..3],
        ["0 1 2 ", "700", "1"],
        "no other descriptor, and no core dump, by a handler neither (1 is the mark for that)"
    );
    assert_eq!(
        lines[3], "CHROME_CONFIG_HOME HOME LANG LOGNAME PATH PWD SHELL TMPDIR USER XDG_RUNTIME_DIR ",
        "the host's environment stays outside"
    );
    assert_eq!(
        lines[4],
        format!("de_DE.UTF-8 {}", room.home.display()),
        "what says where things are inside is not for a policy to change"
    );
}

#[test]
fn shared_quotas_of_the_person_are_kept() {
    let mut room = Room::new();
    room.grants.processes = 20;
    let many = room.probe(&["processes", "100"]);
    let count: u32 = many.strip_prefix("refused ").and_then(|r| r.split(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(999);
    assert!((10..20).contains(&count), "of 100 processes fewer than 20 may start: {many}");
    let inotify = room.probe(&["inotify"]);
    assert!(inotify.starts_with("refused 32 "), "32 inotify instances and no more: {inotify}");
}

#[test]
fn it_takes_no_more_terminals_than_its_own() {
    let room = Room::new();
    let taken = room.probe(&["terminals"]);
    assert!(taken.starts_with("refused 256 "), "256 terminals and no more: {taken}");
}

#[test]
fn it_watches_no_pressure_and_asks_to_go_first() {
    let room = Room::new();
    let went = room.sh(
        "cat /proc/self/oom_score_adj; for f in /proc/pressure/*; do [ -e $f ] && (echo some 150000 2000000 > $f) 2>/dev/null && echo wrote $f; done; \
         (echo 499 > /proc/self/oom_score_adj) 2>/dev/null; cat /proc/self/oom_score_adj",
    );
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!((lines[0], lines.len()), ("500", 2), "pressure is only read: {went:?}");
    if nix::unistd::geteuid().is_root() {
        assert_eq!(lines[1], "500", "what root raised can't be lowered inside");
    }
}

#[test]
fn the_old_root_is_gone() {
    let room = Room::new();
    let went = room.sh("awk '$5 == \"/\" { print $5, $6; n++ } END { print n }' /proc/self/mountinfo; grep -c ' - tmpfs' /proc/self/mountinfo >/dev/null && echo own");
    let lines: Vec<&str> = good(&went).lines().collect();
    assert!(lines[0].starts_with("/ ro,nosuid,nodev"), "the root can't be written: {went:?}");
    assert_eq!(lines[1..], ["1", "own"], "one root, and nothing below it: {went:?}");
}

#[test]
fn landlock_holds_alone() {
    let room = Room::new();
    let mut plan = room.plan(&[
        "/bin/sh",
        "-c",
        "(echo x > in-workspace) && echo workspace; (echo x > /var/tmp/x) 2>/dev/null && echo scratch; cat /etc/hostname",
    ]);
    plan.landlock.writable.retain(|p| p.as_bytes() != b"/var/tmp");
    let running = room.start_plan(&plan, |_| ()).unwrap();
    match running.jail.report.status(Guarantee::Landlock) {
        Some(Status::Absent { .. }) => return not_tested_here("Landlock"),
        status => assert!(status.is_some(), "the row is there"),
    }
    // The mount there is writable; only the second lock is not open.
    assert_eq!(good(&running.finish()), "workspace\nairlock-test-host\n");
}

#[test]
fn the_mounts_hold_alone() {
    let mut room = Room::new();
    let shown = room.root.join("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("file"), "as it was").unwrap();
    room.grants.read = vec![shown.clone()];
    room.history = vec![shown.clone()];
    let script = format!(
        "for f in '{shown}/file' '{shown}/new' /run/airlock/history/0/file /new /etc/new /usr/new /dev/new /proc/sys/kernel/hostname; do (echo x > \"$f\") 2>/dev/null && echo \"wrote $f\"; done; \
         echo x > in-workspace && echo workspace",
        shown = shown.display()
    );
    let mut plan = room.plan(&["/bin/sh", "-c", &script]);
    plan.landlock.writable = vec!["/".into()];
    // Landlock lets everything be written; only the mounts are not open.
    assert_eq!(good(&room.start_plan(&plan, |_| ()).unwrap().finish()), "workspace\n");
    assert_eq!(std::fs::read_to_string(shown.join("file")).unwrap(), "as it was");
}
