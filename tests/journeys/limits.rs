//! What a run may take of the machine, and what happens when it takes more; pause, continue and stop.

use crate::steps::{events, run_of, show, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Sandbox, eventually};

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A policy without network and with these limits.
fn policy(person: &Sandbox, limits: &str) -> PathBuf {
    person.file("limits.toml", &format!("version = 1\nname = \"limits\"\n[network]\ndefault = \"deny\"\n[limits]\n{limits}\n"))
}

/// Starts a script under such a policy, detached; the task.
pub(crate) fn start(person: &Sandbox, repo: &Path, limits: &str, script: &str) -> String {
    let policy = policy(person, limits);
    let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
    c.arg(repo).arg("--policy").arg(policy).args(["--", "bash", "-c", script]);
    text(&person.finish(c, b"").ok().json(), "task")
}

/// The first event that tells of this limit.
pub(crate) fn told(person: &Sandbox, task: &str, limit: &str) -> Value {
    eventually(&format!("the limit {limit} is told"), SOON, || {
        events(person, task).into_iter().find(|e| e["kind"] == "limit" && e["limit"] == limit)
    })
}

/// What a script wrote into its workspace.
pub(crate) fn written(person: &Sandbox, task: &str, file: &str) -> Option<String> {
    std::fs::read_to_string(person.task_dir(task).join("tree").join(file)).ok().filter(|t| t.ends_with('\n'))
}

pub(crate) fn row(person: &Sandbox, task: &str, guarantee: &str) -> Value {
    let report = run_of(person, task)["report"].clone();
    let rows = report["rows"].as_array().unwrap_or_else(|| panic!("a run has a report: {report}"));
    rows.iter().find(|r| r["guarantee"] == guarantee).unwrap_or_else(|| panic!("no row {guarantee}: {report}")).clone()
}

/// Holds so many bytes in one process named `tail`, and says when that has ended.
pub(crate) fn holding(bytes: u64) -> String {
    format!(
        "mkfifo /tmp/f; (head -c {bytes} /dev/zero; sleep 600) > /tmp/f & echo here > here; tail -c 1000000000 < /tmp/f > /dev/null; \
         echo \"ended $?\" > ended; sleep 600"
    )
}

#[test]
fn p8_a_process_that_takes_too_much_memory_is_ended_and_the_run_beside_it_is_not_touched() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let modest = start(&person, &repo.path, "memory = \"256MiB\"", &holding(50_000_000));
    let greedy = start(&person, &repo.path, "memory = \"256MiB\"", &holding(600_000_000));
    let event = told(&person, &greedy, "memory");
    let detail = text(&event, "detail");
    assert!(detail.contains("256 MiB") && detail.contains("limits.memory"), "with the figure and what raises it: {detail}");
    if row(&person, &greedy, "memory")["status"] == "partial" {
        assert_eq!(event["process"]["program"], "tail", "with the process: {event}");
    }
    let ended = eventually("the large process has ended", SOON, || written(&person, &greedy, "ended"));
    assert_eq!(ended, "ended 137\n", "by a kill");
    assert_eq!(show(&person, &greedy)["state"], "running", "the rest of the run goes on");
    assert_eq!(show(&person, &modest)["state"], "running");
    assert!(
        written(&person, &modest, "here").is_some() && written(&person, &modest, "ended").is_none(),
        "the other run has all its processes"
    );
    assert!(events(&person, &modest).iter().all(|e| e["kind"] != "limit"), "and heard of no limit");
    for task in [greedy, modest] {
        person.airlock(["task", "stop", &task]).ok();
    }
}

#[test]
fn p10_a_limit_that_must_be_kept_in_full_and_is_not_refuses_the_start() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    for limit in ["memory", "disk"] {
        let policy = policy(&person, &format!("require = [\"wall\", \"{limit}\"]"));
        let ended = person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "echo ran > ran");
        if limit == "memory" && ended.status.code() == Some(0) {
            continue; // This machine keeps it in full.
        }
        let said = ended.exits(4).err();
        assert!(said.contains(&format!("`limits.require` names {limit}")), "it says which and why: {said}");
    }
    let policy =
        policy(&person, "require = [\"wall\", \"cpus\", \"processes\", \"open_files\", \"output\", \"bytes_out\", \"bytes_in\"]");
    person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "true").ok();
}

#[test]
fn p8_a_run_that_starts_all_the_processes_or_opens_all_the_files_it_may_is_told() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = "for i in $(seq 40); do sleep 600 & done 2>/dev/null; echo forked > forked; sleep 600; :";
    let task = start(&person, &repo.path, "processes = 24", script);
    let event = told(&person, &task, "processes");
    let detail = text(&event, "detail");
    assert!(detail.contains("of 24") && detail.contains("limits.processes"), "{detail}");
    assert_eq!(event["process"]["program"], "bash", "the one that made them: {event}");
    person.airlock(["task", "stop", &task]).ok();

    let script =
        "for i in $(seq 3 200); do eval \"exec $i</dev/null\" || break; done 2>/dev/null; echo opened > opened; sleep 600; :";
    let task = start(&person, &repo.path, "open_files = 100", script);
    let event = told(&person, &task, "open_files");
    let detail = text(&event, "detail");
    assert!(detail.contains("of 100") && detail.contains("limits.open_files"), "{detail}");
    assert_eq!(event["process"]["program"], "bash", "{event}");
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn p8_a_run_that_fills_the_disk_is_paused_until_the_person_says_so() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // Under names, and in files without one, which no look at the workspace finds.
    for (file, script) in [
        ("", "for i in $(seq 60); do head -c 5000000 /dev/zero > f$i; sleep 0.2; done; echo all > all; sleep 600"),
        (
            "open ",
            "for i in $(seq 60); do exec {fd}> f; rm f; head -c 5000000 /dev/zero >&$fd; sleep 0.2; done; echo all > all; sleep 600",
        ),
    ] {
        let task = start(&person, &repo.path, "disk = \"48MiB\"", script);
        let event = told(&person, &task, "disk");
        let detail = text(&event, "detail");
        for word in ["48 MiB", "limits.disk", "airlock task continue", "airlock task stop"] {
            assert!(detail.contains(word), "{file}`{word}`: {detail}");
        }
        eventually("it is shown as paused", SOON, || (show(&person, &task)["paused"] == "limit").then_some(()));
        assert!(written(&person, &task, "all").is_none(), "{file}it did not get to the end");
        let went_on = person.airlock(["task", "continue", &task, "--json"]).ok().json();
        assert_eq!(went_on["was"], true, "{went_on}");
        // As much again is allowed, which is still not all of it.
        eventually("it is paused again", SOON, || {
            let times = events(&person, &task).iter().filter(|e| e["phase"] == "paused").count();
            (times == 2).then_some(())
        });
        let told = events(&person, &task).iter().filter(|e| e["kind"] == "limit" && e["limit"] == "disk").count();
        assert!(told <= 2, "a paused run is told of once");
        person.airlock(["task", "stop", &task]).ok();
        person.airlock(["task", "discard", &task]).ok();
    }
}

/// Length of a file that grows for as long as somebody writes.
fn beats(person: &Sandbox, task: &str) -> u64 {
    std::fs::metadata(person.task_dir(task).join("tree/beats")).map_or(0, |m| m.len())
}

fn still(person: &Sandbox, task: &str) -> bool {
    let before = beats(person, task);
    std::thread::sleep(Duration::from_millis(400));
    beats(person, task) == before
}

/// Writers that no signal from a terminal ends: in a session of their own, twice forked, ignoring what can be ignored, stopped.
const DAEMONS: &str = "(setsid bash -c 'trap \"\" HUP INT TERM TSTP; (while :; do echo beat >> beats; sleep 0.01; done) &' &); \
     (setsid bash -c 'kill -STOP $BASHPID' &); while :; do echo beat >> beats; sleep 0.01; done";

#[test]
fn p8_a_pause_stops_every_process_and_stays_whoever_looks_until_it_is_ended() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = start(&person, &repo.path, "", DAEMONS);
    let grows = |from: u64| eventually("the writers write", SOON, || (beats(&person, &task) > from).then_some(()));
    grows(0);
    person.airlock(["task", "pause", &task]).ok();
    assert!(still(&person, &task), "nobody writes while paused");
    assert_eq!(show(&person, &task)["paused"], "person");
    assert!(person.airlock(["task", "show", &task]).ok().out().contains("paused"), "and it is said");
    assert!(person.airlock(["task", "list"]).ok().out().contains("paused"));
    person.airlock(["task", "pause", &task]).ok();
    let look = person.airlock(["diff", &task, "--json"]).ok().json();
    assert_eq!(look["still"], true, "a candidate can be taken: {look}");
    assert!(still(&person, &task), "and leaves the run paused");

    let went_on = person.airlock(["task", "continue", &task, "--json"]).ok().json();
    assert_eq!(went_on["was"], true);
    grows(beats(&person, &task));
    assert_eq!(show(&person, &task)["paused"], Value::Null);
    assert_eq!(person.airlock(["task", "continue", &task, "--json"]).ok().json()["was"], false);

    person.airlock(["task", "pause", &task]).ok();
    let stopped = person.airlock(["task", "stop", &task, "--json"]).ok().json();
    assert_eq!(stopped["stopped"], true, "a paused run can be stopped: {stopped}");
    assert!(still(&person, &task), "every process has ended, daemons and stopped ones too");
    assert_eq!((&show(&person, &task)["state"], &show(&person, &task)["paused"]), (&"ended".into(), &Value::Null));
    person.airlock(["task", "pause", &task]).exits(5);
    let steps: Vec<String> =
        events(&person, &task).iter().filter(|e| e["kind"] == "lifecycle").map(|e| text(e, "phase")).collect();
    for phase in ["paused", "continued", "stopped", "ended"] {
        assert!(steps.iter().any(|s| s == phase), "{phase} is told: {steps:?}");
    }
}

#[test]
fn p8_the_clock_of_a_paused_run_goes_on() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = start(&person, &repo.path, "wall = \"4s\"", "while :; do sleep 0.1; done");
    person.airlock(["task", "pause", &task]).ok();
    eventually("its time is over", SOON, || (show(&person, &task)["state"] == "ended").then_some(()));
    assert_eq!(run_of(&person, &task)["outcome"]["limit"], "wall");
}

/// How often each thread of a process gave its processor up to wait for something.
fn waits(pid: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the warden lives").flatten();
    tasks
        .filter_map(|t| {
            let status = std::fs::read_to_string(t.path().join("status")).ok()?;
            status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
        })
        .sum()
}

#[test]
fn p8_a_warden_does_not_wake_while_every_process_of_its_jail_sleeps_and_looks_again_when_one_runs() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // A fork without an exec, by a process that has slept for long: nothing but the kernel says that it was made.
    let script = "mkfifo /tmp/f; read -t 25 <>/tmp/f; (printf -v big %0600000000d 0; read -t 600 <>/tmp/f); sleep 600";
    let task = start(&person, &repo.path, "memory = \"256MiB\"", script);
    let wardens = person.wardens();
    assert_eq!(wardens.len(), 1);
    eventually("the warden is at rest", Duration::from_secs(22), || {
        let before = waits(wardens[0]);
        std::thread::sleep(Duration::from_secs(3));
        (waits(wardens[0]) == before).then_some(())
    });
    told(&person, &task, "memory");
    person.airlock(["task", "stop", &task]).ok();
}
