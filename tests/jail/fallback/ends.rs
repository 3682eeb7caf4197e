//! It ends whole, whoever is killed.

use super::{Bare, here, signals_stay_in};
use crate::room::Room;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::time::Duration;
use testkit::eventually;

/// Daemons that left their session and their parents, a fork bomb's worth of them, and one that was stopped.
const DAEMONS: &str = "for n in 1 2 3 4 5 6 7 8; do setsid sh -c '(trap \"\" TERM HUP INT; echo $$ >> pids; exec sleep 1000) & exit' & done; \
     setsid sh -c 'kill -STOP $$' & (while :; do sh -c 'sh -c : &' ; done) >/dev/null 2>&1 & wait %1; sleep 0.5; echo ready > ready; ";

/// Whatever has this room in its environment or working directory.
fn left(room: &Room) -> Vec<i32> {
    let root = room.root.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let env = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if env.windows(root.len()).any(|w| w == root) || cwd.starts_with(&room.root) {
            found.push(pid);
        }
    }
    found
}

fn daemons(room: &Room) -> Bare {
    let script = format!("{DAEMONS} sleep 1000");
    let bare = room.start_bare(&room.bare_plan(&["/bin/sh", "-c", &script])).unwrap();
    eventually("daemons", Duration::from_secs(30), || room.task.tree().join("ready").exists().then_some(()));
    assert!(left(room).len() >= 8, "daemons run: {:?}", left(room));
    bare
}

fn none_left(room: &Room, when: &str) {
    let mut last = Vec::new();
    for _ in 0..400 {
        last = left(room);
        if last.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{when}: {last:?} are left");
}

#[test]
fn p11_daemons_end_with_the_command_and_with_a_kill() {
    if !here() {
        return;
    }
    let room = Room::new();
    let went = room.bare_sh(&format!("{DAEMONS} exit 7"));
    assert_eq!(went.ended.exit, Some(7), "{went:?}");
    assert_eq!(left(&room), [] as [i32; 0], "all of it is gone when the end is told");
    let room = Room::new();
    let bare = daemons(&room);
    bare.running.jail.kill();
    bare.running.jail.wait().unwrap();
    assert_eq!(left(&room), [] as [i32; 0], "after a kill");
}

#[test]
fn a_real_time_signal_ends_whom_it_hits_and_is_told() {
    if !here() {
        return;
    }
    let room = Room::new();
    let went = room.bare_sh(crate::life::BY_NUMBER);
    assert_eq!((went.out.as_str(), went.ended.exit, went.ended.signal), ("on\n", None, Some(40)), "{went:?}");
}

#[test]
fn p11_a_frozen_jail_ends_as_well() {
    if !here() {
        return;
    }
    let room = Room::new();
    let script = "for n in 1 2 3; do setsid sleep 1000 & done; echo ready > ready; sleep 1000";
    let bare = room.start_bare(&room.bare_plan(&["/bin/sh", "-c", script])).unwrap();
    eventually("daemons", Duration::from_secs(30), || room.task.tree().join("ready").exists().then_some(()));
    assert!(bare.running.jail.freeze(), "all of it can be stopped");
    bare.running.jail.thaw();
    assert!(bare.running.jail.freeze(), "and again");
    bare.running.jail.kill();
    bare.running.jail.wait().unwrap();
    assert_eq!(left(&room), [] as [i32; 0]);
}

#[test]
fn p11_a_killed_guard_leaves_nothing_running() {
    if !here() || !signals_stay_in() {
        return;
    }
    let room = Room::new();
    let bare = daemons(&room);
    kill(Pid::from_raw(bare.running.jail.pid), Signal::SIGKILL).unwrap();
    bare.running.jail.wait().unwrap();
    none_left(&room, "after a kill of the guard");
    // The second guard: whoever sees it die ends all.
    let room = Room::new();
    let bare = daemons(&room);
    let children = format!("/proc/{0}/task/{0}/children", bare.running.jail.pid);
    let second =
        std::fs::read_to_string(children).unwrap().split_whitespace().filter_map(|p| p.parse().ok()).find(|pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "airlock-guard2")
        });
    kill(Pid::from_raw(second.expect("there is a second guard")), Signal::SIGKILL).unwrap();
    bare.running.jail.wait().unwrap();
    none_left(&room, "after a kill of the second guard");
}

#[test]
fn p6_its_guards_can_be_neither_signalled_nor_looked_into() {
    if !here() || !signals_stay_in() {
        return;
    }
    let room = Room::new();
    let went = room.bare_sh(
        "guard=$PPID; me=$$; others=$(cat /proc/$guard/task/$guard/children); \
         for pid in $guard $others; do test $pid = $me && continue; \
         for s in 0 9 15 19; do kill -$s $pid 2>/dev/null && echo \"signalled $pid with $s\"; done; \
         for f in environ mem maps fd root/etc/hostname; do cat /proc/$pid/$f 2>/dev/null && echo \"looked into $pid $f\"; done; done; \
         kill -9 -1 2>/dev/null; echo alive",
    );
    assert_eq!((went.out.as_str(), went.ended.exit), ("alive\n", Some(0)), "{went:#?}");
    assert!(Path::new(&room.root).exists());
}

#[test]
fn p11_a_killed_starter_leaves_nothing_running() {
    if !here() {
        return;
    }
    let room = Room::new();
    let plan = room.bare_plan(&["/bin/sh", "-c", &format!("{DAEMONS} sleep 1000")]);
    let file = room.root.join("plan.json");
    std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    for stopped in [false, true] {
        std::fs::remove_file(room.task.tree().join("ready")).ok();
        let mut starter = std::process::Command::new(testkit::program("probe"));
        let jail = testkit::program("airlock-jail");
        let mut starter = starter.arg("hold-bare").arg(&file).arg(jail).env_clear().spawn().unwrap();
        eventually("daemons", Duration::from_secs(30), || room.task.tree().join("ready").exists().then_some(()));
        if stopped {
            for pid in left(&room) {
                _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            }
        }
        starter.kill().unwrap();
        starter.wait().unwrap();
        none_left(&room, "after a kill of the starter");
    }
}
