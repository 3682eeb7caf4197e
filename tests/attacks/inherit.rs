//! What a starter hands on, from the jail alone and from the command line: nothing of it is inside, nor in what lives as long.

use crate::room::Room;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{Sandbox, eventually};

type Found = BTreeMap<String, String>;

/// What a program wrote down of what it has.
fn found(report: &Path) -> Found {
    let text = eventually("the report", Duration::from_secs(60), || {
        fs::read_to_string(report).ok().filter(|t| t.contains("spared by memory"))
    });
    let pair = |line: &str| {
        let (name, value) = line.split_once([':', '\t']).or_else(|| line.rsplit_once(' ')).unwrap();
        // Limits are lines of columns.
        let name = if line.starts_with("Max ") { &line[..22] } else { name };
        (name.trim().to_owned(), value.trim().to_owned())
    };
    text.lines()
        .map(|l| {
            if l.starts_with("Max ") {
                (l[..22].trim().to_owned(), l[22..].split_whitespace().collect::<Vec<_>>().join(" "))
            } else {
                pair(l)
            }
        })
        .collect()
}

fn handing_on(dir: &Path) -> (PathBuf, Command) {
    let program = dir.join("inherit");
    fs::copy(crate::compile::program("inherit"), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("hand-on");
    (program, command)
}

/// That the starter does hand on what a jail is then shown not to have.
fn control(dir: &Path) {
    let (program, mut command) = handing_on(dir);
    let report = dir.join("control");
    let status = command.arg(&program).arg("report").arg(&report).stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    let had = found(&report);
    assert!(had["descriptors"].parse::<u32>().unwrap() > 200, "{had:?}");
    assert!(had["SigIgn"] != CLEAR && had["SigBlk"] != CLEAR, "{had:?}");
    for (name, value) in [("Umask", "0000"), ("timers", "1"), ("session keys", "1")] {
        assert_eq!(had[name], value, "{had:?}");
    }
    assert_ne!(had["personality"], "0", "{had:?}");
    if nix::unistd::geteuid().is_root() {
        assert_eq!((had["scheduler"].as_str(), had["disk"].as_str(), had["Groups"].as_str()), ("2", "1", "4242 4243"), "{had:?}");
    }
    println!("inheritance: 1 control succeeded ({})", testkit::wait::column());
}

const CLEAR: &str = "0000000000000000";

/// That nothing of it is there.
#[track_caller]
fn nothing(has: &Found) {
    // Who runs the tests with less than the usual priority gives jails no more.
    let own = rustix::process::getpriority_process(None).unwrap().max(0).to_string();
    let want = [
        ("descriptors", "0"),
        ("SigIgn", CLEAR),
        ("SigBlk", CLEAR),
        ("SigPnd", CLEAR),
        ("ShdPnd", CLEAR),
        ("CapEff", CLEAR),
        ("CapBnd", CLEAR),
        ("CapAmb", CLEAR),
        ("Umask", "0022"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("scheduler", "0"),
        ("disk", "0"),
        ("priority", own.as_str()),
        ("personality", "0"),
        ("secure bits", "0"),
        ("keep capabilities", "0"),
        ("timers", "0"),
        ("terminal", "0"),
        ("session keys", "0"),
        ("spared by memory", "0"),
        ("Max core file size", "1 1 bytes"),
        ("Max nice priority", "0 0"),
        ("Max realtime priority", "0 0"),
    ];
    for (name, value) in want {
        assert_eq!(has.get(name).map(String::as_str), Some(value), "`{name}` of a program in a jail: {has:#?}");
    }
    assert!(!has["Groups"].contains("4242"), "{has:?}");
}

/// Links of a process's descriptors.
fn held(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries.filter_map(|e| fs::read_link(e.path()).ok()).map(|l| l.to_string_lossy().into_owned()).collect()
}

/// Whether a process holds nothing of what the starter left open.
fn holds_nothing(pid: i32) -> bool {
    let held = held(pid);
    let left = |l: &String| ["/", "/memfd:left (deleted)"].contains(&l.as_str()) || l.starts_with("mnt:");
    !held.iter().any(left) && held.len() < 100
}

#[test]
fn p6_a_jail_has_nothing_of_whoever_started_it() {
    let room = Room::new();
    control(&room.root);
    fs::copy(crate::compile::program("inherit"), room.task.tree().join("hostile")).unwrap();
    let mut plan = room.plan(&["/bin/sh", "-c", "./hostile report report; sleep 100"]);
    plan.notify = false;
    let file = room.root.join("plan.json");
    fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    let (_, mut starter) = handing_on(&room.root);
    starter.arg(testkit::program("probe")).arg("hold").arg(&file).arg(testkit::program("airlock-jail"));
    // The probe waits for what it starts, as every starter of jails does.
    starter.env("CHILDREN_ARE_KEPT", "1");
    let mut starter = starter.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let init: i32 = line.trim().parse().unwrap_or_else(|_| panic!("no jail: {line}"));
    nothing(&found(&room.task.tree().join("report")));
    // Nobody but root can look into init: it is closed to tracers of the same user too.
    if nix::unistd::geteuid().is_root() {
        // Init and the command go on side by side, so it may be later.
        eventually("init holds nothing that its starter left open", Duration::from_secs(10), || {
            holds_nothing(init).then_some(())
        });
    }
    starter.kill().unwrap();
    starter.wait().unwrap();
}

#[test]
fn p6_a_run_has_nothing_of_whoever_started_it() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    control(person.root());
    let program = fs::read(crate::compile::program("inherit")).unwrap();
    repo.write("hostile", program);
    fs::set_permissions(repo.path.join("hostile"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    repo.commit("a program that writes down what it has");

    // From a directory that is gone, with everything handed on, and told apart from it by nothing but its arguments.
    let gone = person.root().join("gone");
    fs::create_dir(&gone).unwrap();
    let inherit = handing_on(person.root()).0;
    let mut c = person.command("/bin/sh");
    c.arg("-c").arg("cd \"$0\" && rmdir \"$0\" && exec \"$@\"").arg(&gone).arg(&inherit).arg("hand-on");
    c.arg(testkit::program("airlock")).args(["run", "--repo"]).arg(&repo.path);
    c.args(["--json", "--", "./hostile", "report", "report"]);
    let ran = person.finish(c, b"").ok().json();
    let task = ran["task"].as_str().unwrap();
    nothing(&found(&person.task_dir(task).join("tree/report")));
}

#[test]
fn p11_a_warden_holds_nothing_open_that_somebody_waits_for() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let inherit = handing_on(person.root()).0;
    let mut c = person.command(&inherit);
    c.arg("hand-on").arg(testkit::program("airlock")).args(["run", "--detach", "--json", "--repo"]).arg(&repo.path);
    c.args(["--", "sleep", "100"]);
    // `finish` waits for the end of both streams, and the run goes on.
    let ran = person.finish(c, b"").ok().json();
    let wardens = eventually("the warden", Duration::from_secs(20), || Some(person.wardens()).filter(|w| !w.is_empty()));
    for warden in wardens {
        assert!(holds_nothing(warden), "the warden holds what its starter left open: {:?}", held(warden));
        for child in crate::run::tree(warden).into_iter().skip(1) {
            let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
            assert!(!status.contains("SigIgn:\tfffffff"), "process {child} ignores what the starter ignored");
        }
    }
    person.airlock(["task", "stop", ran["task"].as_str().unwrap()]).ok();
}

#[test]
fn p11_a_mask_that_closes_everything_closes_nothing_to_the_person() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.command("/bin/sh");
    c.arg("-c").arg("umask 0777; exec \"$@\"").arg("sh").arg(testkit::program("airlock"));
    c.args(["run", "--json", "--repo"]).arg(&repo.path).args(["--", "sh", "-c", "echo x > new; umask"]);
    let ran = person.finish(c, b"").ok().json();
    let diff = person.airlock(["diff", ran["task"].as_str().unwrap()]).ok();
    assert!(diff.out().contains("+x"), "{}", diff.said());
}
