//! Fifty jails at once, each with its warden: memory of a warden, and how often it wakes while its jail sleeps.

use crate::side::{Table, load};
use serde_json::json;
use std::time::Duration;
use testkit::{Sandbox, eventually};

const JAILS: usize = 50;
/// How long they are left alone, in seconds.
const WATCHED: u64 = 20;

fn number(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_else(|| panic!("no {key}"));
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Times that any thread of a process went to sleep by itself, which is how often one woke.
fn slept(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap_or_else(|e| panic!("{pid}: {e}"));
    let texts = threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("status")).ok());
    texts.map(|t| number(&t, "voluntary_ctxt_switches")).sum()
}

/// What a process holds by itself, in KiB.
pub(crate) fn pss(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_else(|e| panic!("{pid}: {e}"));
    number(&text, "Pss:")
}

pub(crate) fn mib(kib: u64) -> String {
    format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024)
}

pub(crate) fn table(person: &Sandbox) -> Table {
    let repo = person.small_repo_at(person.projects().join("fleet"));
    for n in 0..JAILS {
        let title = format!("jail {n}");
        let mut command = person.airlock_command(["run", "--detach", "--title", &title, "--repo"]);
        command.arg(&repo.path).args(["--", "sleep", "1000"]);
        person.finish(command, b"").ok();
    }
    let wardens = eventually("every warden lives", Duration::from_secs(30), || {
        let found = person.wardens();
        (found.len() == JAILS).then_some(found)
    });
    std::thread::sleep(Duration::from_secs(3));
    let before: Vec<u64> = wardens.iter().map(|p| slept(*p)).collect();
    std::thread::sleep(Duration::from_secs(WATCHED));
    let after: Vec<u64> = wardens.iter().map(|p| slept(*p)).collect();
    let mut wakes: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
    let mut pss: Vec<u64> = wardens.iter().map(|p| pss(*p)).collect();
    pss.sort_unstable();
    wakes.sort_unstable();
    let load = load();
    println!("\n{JAILS} jails at once, each asleep, load {load}");
    println!(
        "  all started; a warden holds {} (median), {} at most (PSS)   at most 12 MiB",
        mib(pss[JAILS / 2]),
        mib(pss[JAILS - 1])
    );
    println!("  a warden woke {} times (median), {} at most, in {WATCHED} s", wakes[JAILS / 2], wakes[JAILS - 1]);
    let tasks = person.airlock(["task", "list", "--json"]).ok().json_lines();
    for task in &tasks {
        person.airlock(["task", "stop", task["id"].as_str().expect("an id")]);
    }
    let raw = json!({ "title": "fifty jails", "load": load, "pss_kib": pss, "wakes": wakes, "seconds": WATCHED });
    Table { raw, whole: true }
}
