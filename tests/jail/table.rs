//! The table of promises, as `airlock doctor` tells it: on this machine, and with one thing hidden from it at a time, which
//! changes exactly the rows that it should.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use testkit::{Ended, Sandbox, not_tested_here, program};

/// Rows that are a machine's own: whether it gives a run a cgroup, and what for.
const BY_MACHINE: [&str; 4] = ["processes", "memory", "cpu", "disk"];

/// `airlock doctor --json` where these things are hidden.
fn doctor_without(features: &[&str]) -> Ended {
    let person = Sandbox::new();
    // Outermost what needs rights: a filter forbids gaining any.
    let mut words: Vec<&OsStr> = Vec::new();
    let without = program("without");
    for feature in features {
        words.extend([without.as_os_str(), OsStr::new(feature)]);
    }
    let airlock = program("airlock");
    words.extend([airlock.as_os_str(), OsStr::new("doctor"), OsStr::new("--json")]);
    let mut command = person.command(words[0]);
    command.args(&words[1..]);
    person.finish(command, b"")
}

/// The same words without the address of a bus, which lies in directories of this test's own.
fn steady(doctor: &Value) -> Value {
    let text = doctor.to_string();
    let mut parts = text.split("unix:path=");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('`').map_or(part, |(_, rest)| rest));
    }
    serde_json::from_str(&out).expect("JSON stays JSON")
}

/// Each row by its name: those of promises and those of guarantees, in full.
fn rows(doctor: &Value) -> BTreeMap<String, Value> {
    let doctor = &steady(doctor);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let promises = list(&doctor["promises"]).into_iter().map(|p| {
        let own: Value = ["title", "how", "status", "reason", "accepted"].map(|k| p[k].clone()).into();
        (format!("promise {}", p["promise"]), own)
    });
    let guarantees = list(&doctor["report"]["rows"]).into_iter();
    let name = |r: &Value| r["guarantee"].as_str().expect("a row has a name").to_owned();
    promises.chain(guarantees.map(|r| (name(&r), r))).collect()
}

fn changed(full: &Value, less: &Value) -> BTreeSet<String> {
    let (full, less) = (rows(full), rows(less));
    assert!(full.len() > 25 && full.keys().eq(less.keys()), "every row is there: {full:?} {less:?}");
    full.into_iter().filter(|(name, row)| less[name] != *row).map(|(name, _)| name).collect()
}

fn full() -> Value {
    doctor_without(&[]).ok().json()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

pub(crate) fn status<'v>(doctor: &'v Value, name: &str) -> (&'v str, &'v str) {
    let row = match name.strip_prefix("promise ") {
        Some(n) => doctor["promises"].as_array().into_iter().flatten().find(|p| p["promise"].as_u64() == n.parse().ok()),
        None => doctor["report"]["rows"].as_array().into_iter().flatten().find(|r| r["guarantee"] == name),
    };
    let row = row.unwrap_or_else(|| panic!("{name} has a row"));
    (row["status"].as_str().unwrap_or_default(), row["reason"].as_str().unwrap_or_default())
}

/// The first of what refuses a start.
#[track_caller]
fn blocker(ended: &Ended) -> (String, String, String) {
    let doctor = ended.clone().exits(4).json();
    assert_eq!(doctor["starts"], false);
    let first = &doctor["blockers"][0];
    let text = |k: &str| first[k].as_str().unwrap_or_default().to_owned();
    (text("at"), text("why"), text("command"))
}

#[test]
fn p10_without_packet_rules_the_network_is_lost_and_nothing_else() {
    let full = full();
    let ended = doctor_without(&["nftables"]);
    let (at, why, command) = blocker(&ended);
    assert_eq!((at.as_str(), command.as_str()), ("report", "sudo modprobe nft_tproxy"), "{why}");
    let less = ended.json();
    assert_eq!(changed(&full, &less), set(&["network", "promise 4"]));
    assert_eq!((status(&less, "network").0, status(&less, "promise 4").0), ("absent", "absent"));
    assert_eq!(less["blockers"][0]["accept"], "network");
    assert_eq!(less["blockers"].as_array().map(Vec::len), Some(1), "{less}");
}

#[test]
fn without_fuse_no_touch_is_told_and_every_promise_holds() {
    let full = full();
    let less = doctor_without(&["fuse"]).ok().json();
    // The second promise names what helps it.
    assert_eq!(changed(&full, &less), set(&["decoys", "promise 2"]));
    assert_eq!((status(&less, "decoys").0, status(&less, "promise 2").0), ("absent", "full"));
    assert!(less["weaker"].to_string().contains("fuse"), "the cure is named: {}", less["weaker"]);
}

#[test]
fn without_landlock_the_second_lock_is_lost_and_every_promise_holds() {
    let full = full();
    let none = doctor_without(&["landlock"]).ok().json();
    let theirs = set(&["landlock", "promise 1", "promise 2", "promise 6"]);
    assert_eq!(changed(&full, &none), theirs);
    assert_eq!(status(&none, "landlock").0, "absent");
    let older = doctor_without(&["landlock-after-1"]).ok().json();
    assert_eq!(changed(&full, &older), theirs);
    assert_eq!(status(&older, "landlock").0, "partial");
    assert!(rows(&older)["promise 1"].to_string().contains("Landlock ABI 1"), "{older}");
    for doctor in [&none, &older] {
        let held = ["promise 1", "promise 2", "promise 6"].map(|p| status(doctor, p).0);
        assert_eq!(held, ["full"; 3], "the mounts and namespaces stand alone");
    }
}

#[test]
fn without_a_listener_nothing_is_told_and_every_promise_holds() {
    let full = full();
    let less = doctor_without(&["listener"]).ok().json();
    assert_eq!(changed(&full, &less), set(&["events", "promise 4"]));
    assert_eq!((status(&less, "events").0, status(&less, "promise 4").0), ("absent", "full"));
    assert!(status(&less, "events").1.contains("no connection is let out"), "{less}");
}

#[test]
fn p8_without_cgroups_limits_are_weaker_and_nothing_else() {
    let full = full();
    let less = doctor_without(&["cgroup"]).ok().json();
    let mut may: Vec<&str> = BY_MACHINE.to_vec();
    may.push("promise 8");
    let changed = changed(&full, &less);
    assert!(changed.is_subset(&set(&may)), "{changed:?}");
    for name in ["memory", "promise 8"] {
        assert_ne!(status(&less, name).0, "full", "{name} needs a cgroup");
    }
    if !rows(&full)["memory"]["how"].to_string().contains("cgroup") {
        return not_tested_here("a cgroup for a run");
    }
    assert!(changed.contains("memory"), "{changed:?}");
}

#[test]
fn p10_without_user_namespaces_nothing_starts_and_the_setting_is_named() {
    let (at, why, command) = blocker(&doctor_without(&["user-namespaces"]));
    assert!(["namespaces", "id-mapped mounts"].contains(&at.as_str()), "{at}");
    assert!(why.contains("user.max_user_namespaces is 0"), "{why}");
    assert_eq!(command, "sudo sysctl -w user.max_user_namespaces=28633");
}

#[test]
fn p10_a_run_whose_keeper_can_t_start_is_refused_in_the_same_words() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // The first jail of a task is the keeper's that masks its files.
    std::fs::write(repo.path.join(".gitignore"), ".env\n").unwrap();
    std::fs::write(repo.path.join(".env"), "TOKEN=abc\n").unwrap();
    let mut command = person.command(program("without"));
    command.arg("user-namespaces").arg(program("airlock")).arg("run").arg("--repo").arg(&repo.path).args(["--", "true"]);
    let said = person.finish(command, b"").exits(4).err();
    for word in ["user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=28633"] {
        assert!(said.contains(word), "it says {word:?}: {said}");
    }
    assert_eq!(person.airlock(["task", "list", "--json"]).ok().out(), "", "and leaves no task");
}

#[test]
fn p10_a_filter_around_is_named_at_the_step_that_it_refuses() {
    let (at, why, _) = blocker(&doctor_without(&["clone3"]));
    assert!(["namespaces", "id-mapped mounts"].contains(&at.as_str()), "{at}");
    assert!(why.contains("filter"), "{why}");
    let (at, why, command) = blocker(&doctor_without(&["seccomp"]));
    assert_eq!((at.as_str(), command.as_str()), ("system call filter", ""), "{why}");
    assert!(why.contains("filter around this process"), "{why}");
}

#[test]
fn p10_a_covered_proc_is_named() {
    let (at, why, command) = blocker(&doctor_without(&["proc"]));
    assert_eq!(at, "new /proc", "{why}");
    assert!(why.contains("/proc/irq") && !command.is_empty(), "{why} {command}");
}

#[test]
fn the_doctor_leaves_nothing() {
    for features in [&[][..], &["proc"]] {
        let person = Sandbox::new();
        let without = program("without");
        let airlock = program("airlock");
        let mut words: Vec<&OsStr> = Vec::new();
        for feature in features {
            words.extend([without.as_os_str(), OsStr::new(feature)]);
        }
        words.extend([airlock.as_os_str(), OsStr::new("doctor")]);
        let mut command = person.command(words[0]);
        command.args(&words[1..]);
        person.finish(command, b"");
        let left: Vec<_> = std::fs::read_dir(person.data().join("airlock/doctor")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What no machine and no account changes: figures and what is a machine's own are taken out.
fn normal(doctor: &Value) -> Value {
    let machine = |k: &str| BY_MACHINE.contains(&k);
    let words = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let text = text.replace("which only other jails share", "WHOSE").replace("which your own programs share", "WHOSE");
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '0'..='9' if out.ends_with('N') => {}
                '0'..='9' => out.push('N'),
                c => out.push(c),
            }
        }
        out
    };
    let row = |r: &Value| {
        let name = r["guarantee"].as_str().unwrap_or_default();
        if machine(name) {
            return json!([name, "of this machine"]);
        }
        json!([name, r["status"], words(&r["how"]), words(&r["reason"])])
    };
    let promise = |p: &Value| {
        let rows: Vec<Value> = p["rows"].as_array().into_iter().flatten().map(row).collect();
        if p["promise"] == 8 {
            return json!({"promise": 8, "title": p["title"], "rows": rows});
        }
        json!({
            "promise": p["promise"], "title": p["title"], "status": p["status"], "how": words(&p["how"]),
            "reason": words(&p["reason"]), "accepted": p["accepted"], "rows": rows,
        })
    };
    let blockers: Vec<Value> = doctor["blockers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|b| json!([b["at"], words(&b["what"]), b["command"], b["accept"]]))
        .collect();
    json!({
        "promises": doctor["promises"].as_array().into_iter().flatten().map(promise).collect::<Vec<_>>(),
        "blockers": blockers,
        "starts": doctor["starts"],
    })
}

#[track_caller]
pub(crate) fn golden(name: &str, want: &str, doctor: &Value) {
    let mut have = serde_json::to_string_pretty(&normal(doctor)).expect("JSON can be written");
    have.push('\n');
    if std::env::var_os("AIRLOCK_WRITE_GOLDEN").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("jail/golden").join(name);
        std::fs::write(&path, &have).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    assert_eq!(have, want, "{name} is what doctor says; AIRLOCK_WRITE_GOLDEN=1 writes it anew");
}

#[test]
fn p10_the_table_of_each_tier_is_the_one_that_was_agreed() {
    let here = full();
    // A kernel before 6.12 is the second tier by itself.
    let (older, older_text) = ("older-landlock.json", include_str!("golden/older-landlock.json"));
    if status(&here, "landlock").0 == "full" {
        golden("full.json", include_str!("golden/full.json"), &here);
        golden(older, older_text, &doctor_without(&["landlock-after-1"]).ok().json());
    } else {
        golden(older, older_text, &here);
    }
    let none = doctor_without(&["landlock", "nftables"]).exits(4).json();
    golden("no-packet-rules.json", include_str!("golden/no-packet-rules.json"), &none);
}
