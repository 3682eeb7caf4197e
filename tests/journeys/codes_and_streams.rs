//! What scripts rely on: exit codes, streams kept apart, signals.

use crate::steps::{look, run_of, show, text, untouched};
use nix::sys::signal::Signal;
use std::time::Duration;
use testkit::airlock::LIMIT;
use testkit::{Live, Sandbox, eventually};

#[test]
fn pipes_pass_through_apart() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "cat; echo to-out; echo to-err >&2"]);
    let ended = person.finish(c, b"from stdin\xff\0\n").ok();
    assert_eq!(ended.stdout, b"from stdin\xff\0\nto-out\n", "stdout is the command's alone\n{}", ended.said());
    assert!(ended.err().contains("to-err") && !ended.out().contains("to-err"), "{}", ended.said());
}

#[test]
fn with_json_the_output_is_kept_with_the_run() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let ran = person.run_script(&repo.path, &[], "echo to-out; echo to-err >&2").ok().json();
    for field in ["task", "run", "exit", "signal", "limit", "tree"] {
        assert!(ran.get(field).is_some(), "`run --json` has `{field}`: {ran}");
    }
    let run = run_of(&person, &text(&ran, "task"));
    assert_eq!(text(&run, "id"), text(&ran, "run"));
    let log = std::path::PathBuf::from(text(&run, "log"));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "to-out\n", "`task show` names the file with the output");
    assert_eq!(std::fs::read_to_string(log.with_extension("err")).unwrap(), "to-err\n", "stderr is kept beside it");
}

#[test]
fn each_end_has_its_exit_code() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let failed = person.run_script(&repo.path, &[], "exit 7").exits(1).json();
    assert_eq!((&failed["exit"], &failed["signal"]), (&7.into(), &serde_json::Value::Null), "{failed}");
    let killed = person.run_script(&repo.path, &[], "kill -TERM $$").exits(1).json();
    assert_eq!((&killed["exit"], &killed["signal"]), (&serde_json::Value::Null, &15.into()), "{killed}");

    let policy =
        person.file("short.toml", "version = 1\nname = \"short\"\n[network]\ndefault = \"deny\"\n[limits]\nwall = \"2s\"\n");
    let late = person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "sleep 600").exits(1).json();
    assert_eq!(late["limit"], "wall", "a run that never ends is ended by its limit: {late}");

    person.airlock(["run", "--repo", repo.path.to_str().unwrap()]).exits(2);
    person.airlock(["run", "--no-such-option", "--", "true"]).exits(2);
    person.airlock(["no-such-verb"]).exits(2);
    person.airlock(["task", "show", "aaaaaaaa"]).exits(5);
    person.airlock(["task", "show", "../../etc"]).exits(5);
    person.airlock(["diff", "aaaaaaaa"]).exits(5);
    person.run_script(&repo.path, &["--policy", "no-such-policy"], "true").exits(5);
    person.airlock(["--help"]).ok();
}

#[test]
fn an_interrupt_goes_to_the_command() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "trap 'echo caught; exit 42' INT; echo ready; while :; do sleep 0.1; done"]);
    let mut live = Live::start(c);
    live.until_out("ready");
    live.signal(Signal::SIGINT);
    let ended = live.end(LIMIT).exits(1);
    assert!(ended.out().contains("caught"), "{}", ended.said());
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    assert_eq!(run_of(&person, &task)["outcome"]["exit"], 42);
}

#[test]
fn a_hang_up_leaves_the_run_going() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args([
        "--",
        "sh",
        "-c",
        "echo ready; i=0; while [ ! -e stop ] && [ $i -lt 40 ]; do sleep 0.1; i=$((i+1)); done; echo done > done.txt",
    ]);
    let mut live = Live::start(c);
    live.until_out("ready");
    live.signal(Signal::SIGHUP);
    live.end(LIMIT);
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    assert_eq!(show(&person, &task)["state"], "running", "the run goes on without whoever started it");
    eventually("the run ends by itself", Duration::from_secs(60), || (show(&person, &task)["state"] == "ended").then_some(()));
    assert!(person.airlock(["diff", &task]).ok().out().contains("+done"));
    untouched(&before, &repo.path, "after a hang-up");
}

#[test]
fn a_detached_run_answers_at_once_and_can_be_stopped() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "echo started > started.txt; sleep 600 & setsid sleep 600 & wait"]);
    let said = person.finish(c, b"").ok().json();
    let task = text(&said, "task");
    text(&said, "run");
    assert_eq!(show(&person, &task)["state"], "running");
    assert_eq!(person.wardens().len(), 1, "a run has one warden");
    eventually("the command got to work", Duration::from_secs(30), || {
        person.airlock(["diff", &task]).ok().out().contains("+started").then_some(())
    });
    person.airlock(["task", "stop", &task]).ok();
    eventually("the run ended", Duration::from_secs(30), || (show(&person, &task)["state"] == "ended").then_some(()));
    eventually("no warden is left", Duration::from_secs(30), || person.wardens().is_empty().then_some(()));
    person.airlock(["task", "discard", &task]).ok();
}

#[test]
fn a_running_task_is_not_discarded() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
    c.arg(&repo.path).args(["--", "sleep", "600"]);
    let task = text(&person.finish(c, b"").ok().json(), "task");
    person.airlock(["task", "discard", &task]).exits(6);
    assert!(person.task_dir(&task).exists());
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn the_command_line_links_no_webview() {
    let out = std::process::Command::new("ldd").arg(testkit::program("airlock")).output().unwrap();
    let libraries = String::from_utf8_lossy(&out.stdout);
    assert!(libraries.contains("libc"), "ldd answers: {libraries}");
    for no in ["webkit", "gtk", "javascriptcore"] {
        assert!(!libraries.contains(no), "`airlock` starts where there is no {no}:\n{libraries}");
    }
}

#[test]
fn a_run_that_ends_at_once_loses_no_output() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    for n in 0..16 {
        let mut c = person.airlock_command(["run", "--rm", "--repo"]);
        c.arg(&repo.path).args(["--", "echo", &n.to_string()]);
        let ended = person.finish(c, b"").ok();
        assert_eq!(ended.out(), format!("{n}\n"), "run {n}\n{}", ended.said());
    }
}
