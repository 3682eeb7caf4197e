//! A warden that is hard pressed, or does not answer, is not a run that is not there.

use crate::steps::{events, text};
use model::protocol::{Request, VERSION, kind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use testkit::{Sandbox, eventually};

/// Starts `sleep` with a number that names it, detached; the task.
fn sleeping(person: &Sandbox, repo: &Path, mark: &str) -> String {
    let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
    c.arg(repo).args(["--", "sleep", mark]);
    text(&person.finish(c, b"").ok().json(), "task")
}

fn sleeps(mark: &str) -> bool {
    let procs = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    procs.into_iter().any(|p| {
        let line = std::fs::read(p.path().join("cmdline")).unwrap_or_default();
        line == format!("sleep\0{mark}\0").as_bytes()
    })
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = sleeping(&person, &repo.path, "7654321");
    let socket = person.runtime().join("airlock").join(format!("{task}.sock"));
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect(&socket).expect("the warden listens")).collect();
    let look = person.airlock(["diff", &task, "--json"]).ok().json();
    assert_eq!(look["still"], true, "{look}");
    let steps: Vec<_> = events(&person, &task).iter().filter(|e| e["kind"] == "lifecycle").map(|e| text(e, "phase")).collect();
    assert!(
        steps.contains(&"frozen".to_owned()),
        "`still` means that the run was stopped for it, not that nobody was found: {steps:?}"
    );
    let stopped = person.airlock(["task", "stop", &task, "--json"]).ok().json();
    assert_eq!(stopped["stopped"], true, "{stopped}");
    assert!(!sleeps("7654321"), "every process of the run has ended");
    drop(silent);
}

#[test]
fn p11_a_client_that_is_killed_while_it_stops_a_run_leaves_nothing_stopped() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--detach", "--json", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "while :; do echo beat >> beats; sleep 0.01; done"]);
    let task = text(&person.finish(c, b"").ok().json(), "task");
    let beats = person.task_dir(&task).join("tree/beats");
    let size = || beats.metadata().map_or(0, |m| m.len());
    let socket = person.runtime().join("airlock").join(format!("{task}.sock"));
    let stopped = || events(&person, &task).iter().filter(|e| e["phase"] == "frozen").count();
    for round in 1..=3 {
        let begun = size();
        eventually("the run goes on", Duration::from_secs(20), || (size() > begun).then_some(()));
        let mut client = UnixStream::connect(&socket).expect("the warden listens");
        for request in [Request::Hello { version: VERSION }, Request::Freeze] {
            let words = serde_json::to_vec(&request).expect("a request can be written");
            client.write_all(&model::frame::encode(kind::JSON, &words)).expect("the warden reads");
        }
        drop(client);
        eventually("the run was stopped", Duration::from_secs(20), || (stopped() >= round).then_some(()));
    }
    let begun = size();
    eventually("the run goes on", Duration::from_secs(20), || (size() > begun).then_some(()));
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn a_warden_that_hangs_makes_no_candidate_and_is_ended_by_a_stop() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = sleeping(&person, &repo.path, "7654322");
    let wardens = person.wardens();
    assert_eq!(wardens.len(), 1, "{wardens:?}");
    kill(Pid::from_raw(wardens[0]), Signal::SIGSTOP).expect("the warden is ours");
    person.airlock(["diff", &task, "--json"]).exits(7);
    assert!(sleeps("7654322"), "the run goes on: nothing said that it may not");
    let stopped = person.airlock(["task", "stop", &task, "--json"]).ok().json();
    assert_eq!(stopped["stopped"], true, "{stopped}");
    eventually("every process of the run has ended", Duration::from_secs(20), || (!sleeps("7654322")).then_some(()));
    person.airlock(["task", "discard", &task]).ok();
}

#[test]
fn output_that_went_by_the_limit_is_told() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let policy =
        person.file("small.toml", "version = 1\nname = \"small\"\n[network]\ndefault = \"deny\"\n[limits]\noutput = \"1MiB\"\n");
    let script = r#""$0" run --repo "$1" --policy "$2" -- seq 1 1000000 | (sleep 3; tail -n 1)"#;
    let mut c = person.command("sh");
    c.args(["-c", script]).arg(testkit::program("airlock")).arg(&repo.path).arg(&policy);
    let ended = person.finish(c, b"").ok();
    assert_eq!(ended.out().trim(), "1000000", "the newest is kept\n{}", ended.said());
    // Beside a run that is still there it is told in bytes, after its end in words.
    assert!(ended.err().contains("of the output") || ended.err().contains("bytes of output"), "{}", ended.said());
}

#[test]
fn input_that_nobody_reads_waits_outside() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.command("sh");
    c.args(["-c", r#"exec "$0" run --rm --repo "$1" -- sleep 4 < /dev/zero"#]).arg(testkit::program("airlock")).arg(&repo.path);
    let live = testkit::Live::start(c);
    let warden = eventually("the warden is there", Duration::from_secs(20), || person.wardens().first().copied());
    let mut most = 0;
    eventually("the run ends", Duration::from_secs(60), || {
        let status = std::fs::read_to_string(format!("/proc/{warden}/status")).unwrap_or_default();
        let resident =
            status.lines().find_map(|l| l.strip_prefix("VmHWM:")).and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        most = resident.map_or(most, |n| most.max(n));
        person.wardens().is_empty().then_some(())
    });
    live.end(Duration::from_secs(20)).ok();
    assert!(most > 0 && most < 200_000, "the warden took {most} KiB");
}
