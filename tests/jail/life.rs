//! How a jail lives and ends.

use crate::files::listing;
use crate::room::{Room, good};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{eventually, program};

/// Grows while somebody writes to it.
fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

fn still(path: &Path) -> bool {
    let before = size(path);
    std::thread::sleep(Duration::from_millis(300));
    size(path) == before
}

const DAEMON: &str =
    "(setsid sh -c 'trap \"\" HUP INT TERM; (while :; do echo beat >> beats; done) &' &) ; while :; do sleep 1; done";

#[test]
fn a_kill_ends_daemons_too() {
    let room = Room::new();
    let running = room.start(&["/bin/sh", "-c", DAEMON], |_| ()).unwrap();
    let beats = room.task.tree().join("beats");
    eventually("the daemon writes", Duration::from_secs(10), || (size(&beats) > 0).then_some(()));
    let processes = running.jail.processes();
    assert!(processes.len() >= 3, "init, the shell, the daemon: {processes:?}");
    running.jail.kill();
    let ended = running.jail.wait().unwrap();
    assert_eq!((ended.exit, ended.signal), (None, Some(9)));
    assert!(still(&beats), "nothing writes any more");
    for pid in processes {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} must be gone when wait returns");
    }
}

#[test]
fn the_end_of_the_command_ends_its_daemons() {
    let room = Room::new();
    good(&room.sh("(setsid sh -c 'while :; do echo beat >> beats; done' >/dev/null 2>&1 &); sleep 0.2"));
    assert!(still(&room.task.tree().join("beats")), "what the command left behind ended with it");
}

/// Numbers that have no name end an orphan, then the command itself.
pub(crate) const BY_NUMBER: &str =
    "(sh -c 'kill -34 $$' &); (setsid sh -c 'sleep 0.1; kill -64 $$' &); sleep 0.5; echo on; kill -40 $$";

#[test]
fn a_real_time_signal_ends_whom_it_hits_and_is_told() {
    let room = Room::new();
    let went = room.sh(BY_NUMBER);
    assert_eq!(went.out, "on\n", "the end of an orphan is no end of the jail: {went:?}");
    assert_eq!((went.ended.exit, went.ended.signal), (None, Some(40)), "{went:?}");
}

#[test]
fn the_death_of_the_starter_ends_everything() {
    let room = Room::new();
    let mut plan = room.plan(&["/bin/sh", "-c", DAEMON]);
    plan.notify = false;
    let file = room.root.join("plan.json");
    fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    let mut starter = Command::new(program("probe"))
        .arg("hold")
        .arg(&file)
        .arg(program("airlock-jail"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let init: i32 = line.trim().parse().unwrap();
    let beats = room.task.tree().join("beats");
    eventually("the daemon writes", Duration::from_secs(10), || (size(&beats) > 0).then_some(()));
    starter.kill().unwrap();
    starter.wait().unwrap();
    // Its new parent reaps it, whoever that is: a zombie has no files open either.
    eventually("the jail's end", Duration::from_secs(10), || {
        let status = fs::read_to_string(format!("/proc/{init}/status")).unwrap_or_default();
        (status.is_empty() || status.contains("State:\tZ")).then_some(())
    });
    assert!(still(&beats), "nothing writes any more");
}

#[test]
fn a_freeze_stops_every_writer_and_a_thaw_lets_it_go_on() {
    let room = Room::new();
    let script = "for i in 1 2 3; do (while :; do echo beat >> beats; /bin/true; done) & done; wait";
    let running = room.start(&["/bin/sh", "-c", script], |_| ()).unwrap();
    let beats = room.task.tree().join("beats");
    for _ in 0..3 {
        let begun = size(&beats);
        eventually("the writers write", Duration::from_secs(10), || (size(&beats) > begun).then_some(()));
        assert!(running.jail.freeze(), "everything is seen stopped");
        assert!(still(&beats), "nobody writes while frozen");
        running.jail.thaw();
    }
    let begun = size(&beats);
    eventually("the writers go on", Duration::from_secs(10), || (size(&beats) > begun).then_some(()));
    assert!(running.jail.freeze());
    running.jail.kill();
    assert_eq!(running.jail.wait().unwrap().signal, Some(9), "a frozen jail can be killed");
}

#[test]
fn p8_a_child_that_never_becomes_a_program_holds_up_no_freeze() {
    let room = Room::new();
    // Its child opens a pipe that nobody writes to before it becomes a program, and the parent can't be stopped until then.
    let script = "import os; os.mkfifo('pipe'); open('beats', 'w').close()
if os.fork() == 0:
    while True: open('beats', 'a').write('beat')
os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, 'pipe', os.O_RDONLY, 0)])
open('went-on', 'w').close()
while True: open('beats', 'a').write('beat')";
    let running = room.start(&["/usr/bin/python3", "-c", script], |_| ()).unwrap();
    let beats = room.task.tree().join("beats");
    let in_vfork = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") D "));
    let waits = || running.jail.processes().iter().any(in_vfork).then_some(());
    eventually("the parent waits for its child", Duration::from_secs(20), waits);
    for _ in 0..2 {
        let begun = size(&beats);
        eventually("the writer writes", Duration::from_secs(10), || (size(&beats) > begun).then_some(()));
        assert!(running.jail.freeze(), "everything is seen stopped");
        assert!(still(&beats), "nobody writes while frozen");
        running.jail.thaw();
    }
    assert!(!room.task.tree().join("went-on").exists(), "it waits still");
    assert!(running.jail.freeze());
    fs::File::options().read(true).write(true).open(room.task.tree().join("pipe")).unwrap();
    assert!(still(&beats) && !room.task.tree().join("went-on").exists(), "who is frozen in there goes nowhere");
    running.jail.thaw();
    let opened = fs::File::options().read(true).write(true).open(room.task.tree().join("pipe")).unwrap();
    eventually("it goes on", Duration::from_secs(10), || room.task.tree().join("went-on").exists().then_some(()));
    drop(opened);
    running.jail.kill();
    assert_eq!(running.jail.wait().unwrap().signal, Some(9));
}

#[test]
fn a_freeze_lets_no_call_fail() {
    let room = Room::new();
    // All of these wait for the warden, and Python tries none of them again by itself.
    let script = "import os
open('beats', 'w').close()
while not os.path.exists('end'):
    os.mkdir('d'); os.rename('d', 'e'); os.rmdir('e'); os.symlink('x', 'l'); os.unlink('l'); os.truncate('beats', os.stat('beats').st_size + 1)
    if os.fork() == 0:
        try: os.execv('/bin/true', ['true'])
        except OSError: os._exit(99)
    if os.wait()[1]: raise OSError('exec')";
    let running = room.start(&["/usr/bin/python3", "-c", script], |_| ()).unwrap();
    let beats = room.task.tree().join("beats");
    for _ in 0..30 {
        let begun = size(&beats);
        eventually("it goes on", Duration::from_secs(20), || (size(&beats) > begun + 3).then_some(()));
        assert!(running.jail.freeze(), "everything is seen stopped");
        running.jail.thaw();
    }
    fs::write(room.task.tree().join("end"), "").unwrap();
    good(&running.finish());
}

#[test]
fn a_freeze_and_a_thaw_need_no_descriptor_of_the_starter() {
    let room = Room::new();
    let script = "for i in 1 2 3; do (while :; do echo beat >> beats; /bin/true; done) & done; wait";
    let mut plan = room.plan(&["/bin/sh", "-c", script]);
    plan.notify = false;
    let file = room.root.join("plan.json");
    fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    let mut starter = Command::new(program("probe"))
        .arg("starved")
        .args([&file, &program("airlock-jail")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut ask, mut told) = (starter.stdin.take().unwrap(), BufReader::new(starter.stdout.take().unwrap()).lines());
    let beats = room.task.tree().join("beats");
    for _ in 0..3 {
        let begun = size(&beats);
        eventually("the writers write", Duration::from_secs(10), || (size(&beats) > begun).then_some(()));
        ask.write_all(b"freeze\n").unwrap();
        let said = told.next().unwrap().unwrap();
        assert!(said.starts_with("frozen true Too many open files"), "all is seen stopped with no descriptor left: {said}");
        assert!(still(&beats), "nobody writes while frozen");
        ask.write_all(b"thaw\n").unwrap();
        let said = told.next().unwrap().unwrap();
        let seen: usize = said.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(seen >= 5, "its processes are seen, and the command is found: {said}");
    }
    let begun = size(&beats);
    eventually("the writers go on", Duration::from_secs(10), || (size(&beats) > begun).then_some(()));
    drop(ask);
    starter.kill().unwrap();
    starter.wait().unwrap();
}

#[test]
fn a_signal_reaches_the_command() {
    let room = Room::new();
    let running = room
        .start(&["/bin/sh", "-c", "trap 'echo caught; exit 5' INT; echo ready > ready; while :; do sleep 0.05; done"], |_| ())
        .unwrap();
    eventually("the command is ready", Duration::from_secs(10), || (size(&room.task.tree().join("ready")) > 0).then_some(()));
    running.jail.signal(2).unwrap();
    let went = running.finish();
    assert_eq!((went.out.as_str(), went.ended.exit), ("caught\n", Some(5)));
}

#[test]
fn a_run_leaves_nothing_on_the_host() {
    let room = Room::new();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = (mounts(), listing(&room.root, &[room.task.home(), room.task.tree()]));
    let running = room.start(&["/bin/sh", "-c", "echo x > /tmp/airlock-left; echo x > /dev/shm/airlock-left"], |_| ()).unwrap();
    let init = running.jail.pid;
    good(&running.finish());
    assert_eq!((mounts(), listing(&room.root, &[room.task.home(), room.task.tree()])), before);
    assert!(!Path::new(&format!("/proc/{init}")).exists());
    assert!(!Path::new("/tmp/airlock-left").exists() && !Path::new("/dev/shm/airlock-left").exists());
}

#[test]
fn a_required_guarantee_that_is_not_full_refuses_the_start() {
    let room = Room::new();
    let mut plan = room.plan(&["/bin/sh", "-c", "echo ran > ran"]);
    plan.require.push(jail_plan::Guarantee::Memory);
    match room.start_plan(&plan, |_| ()) {
        Err(supervise::SpawnError::Refused(refusal)) => {
            assert_eq!(refusal.kind, jail_plan::Kind::Promise, "{refusal}");
            assert!(refusal.reason.contains("memory"), "{refusal}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("memory can't be limited yet, so this must not start"),
    }
    assert!(!room.task.tree().join("ran").exists(), "nothing of the command ran");
}

#[test]
fn a_plan_that_asks_for_root_or_of_another_version_is_refused() {
    let room = Room::new();
    let plan = room.plan(&["/bin/true"]);
    let mut bad = vec![plan.clone(), plan.clone(), plan.clone(), plan.clone()];
    bad[0].identity.uid = 0;
    bad[1].version += 1;
    bad[2].cwd = "/a/../b".into();
    bad[3].argv.clear();
    for plan in bad {
        let json = serde_json::to_vec(&plan).unwrap();
        assert_eq!(jail_plan::Plan::from_json(&json).unwrap_err().kind, jail_plan::Kind::Plan);
    }
    let mut json = serde_json::to_value(&plan).unwrap();
    json["surprise"] = true.into();
    let refusal = jail_plan::Plan::from_json(&serde_json::to_vec(&json).unwrap()).unwrap_err();
    assert!(refusal.reason.contains("surprise"), "what is not understood may be a protection: {refusal}");
}

#[test]
fn a_child_that_ends_lets_no_fork_fail() {
    let room = Room::new();
    // A plain shell hears of ended children by a signal that restarts no call.
    let went = room.sh("i=0; while [ $i -lt 150 ]; do /bin/true & /bin/true; i=$((i+1)); done; wait; echo all");
    assert_eq!(good(&went), "all\n", "{went:?}");
}
