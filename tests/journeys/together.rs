//! What the kernel keeps for all processes of a run together, by a cgroup of the run's own.

use crate::limits::{SOON, holding, row, start, told, written};
use crate::steps::{events, show, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::{Sandbox, eventually, not_tested_here};

/// The cgroup of a run.
struct Group(PathBuf);

impl Group {
    /// That of the run in which the one program of this name runs; `None` where this machine gives a run none.
    fn around(person: &Sandbox, task: &str, program: &str) -> Option<Self> {
        if row(person, task, "memory")["status"] != "full" {
            not_tested_here("cgroup v2 memory controller");
            return None;
        }
        let pid = eventually("the command runs", SOON, || person.processes(program).first().copied());
        Some(Self::of(pid))
    }

    fn of(pid: i32) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process lives");
        let path = text.lines().find_map(|l| l.strip_prefix("0::/")).expect("it is in a cgroup of version 2");
        Self(PathBuf::from("/sys/fs/cgroup").join(path))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_else(|e| panic!("{}/{file}: {e}", self.0.display()))
    }

    fn count(&self, file: &str, name: &str) -> u64 {
        let text = self.read(file);
        let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{file} has a {name}: {text}"))
    }

    fn frozen(&self) -> bool {
        self.count("cgroup.events", "frozen") == 1
    }
}

#[test]
fn p8_the_kernel_keeps_memory_processes_and_processors_of_the_whole_run_where_it_has_the_controllers() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = start(&person, &repo.path, "memory = \"256MiB\"\ncpus = 1\nprocesses = 40", "sleep 600");
    let Some(group) = Group::around(&person, &task, "sleep") else { return };
    for guarantee in ["memory", "cpu", "processes"] {
        let row = row(&person, &task, guarantee);
        assert_eq!(row["status"], "full", "{row}");
        assert!(row["how"].as_str().is_some_and(|how| how.contains("cgroup")), "by the cgroup: {row}");
    }
    let says = ["memory.max", "memory.oom.group", "pids.max", "cpu.max"].map(|file| group.read(file).trim().to_owned());
    assert_eq!(says, ["268435456", "0", "41", "100000 100000"], "init counts as a process");
    let warden = Group::of(person.wardens()[0]);
    assert!(!warden.0.starts_with(&group.0), "the warden stays outside: {}", warden.0.display());
    person.airlock(["task", "stop", &task]).ok();
    eventually("nothing is left of the cgroup", SOON, || (!group.0.exists()).then_some(()));
}

#[test]
fn p8_memory_ends_one_process_of_the_run_that_takes_it_and_none_of_the_run_beside_it() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let modest = start(&person, &repo.path, "memory = \"256MiB\"", "mkfifo /tmp/f; cat <> /tmp/f");
    let Some(calm) = Group::around(&person, &modest, "cat") else { return };
    let greedy = start(&person, &repo.path, "memory = \"256MiB\"", &holding(600_000_000));
    let Some(full) = Group::around(&person, &greedy, "sleep") else { return };
    assert_ne!(calm.0, full.0, "each run has its own");
    let ended = eventually("the large process has ended", SOON, || written(&person, &greedy, "ended"));
    assert_eq!(ended, "ended 137\n", "by a kill");
    told(&person, &greedy, "memory");
    assert_eq!((full.count("memory.events", "oom_kill"), full.count("memory.events", "oom_group_kill")), (1, 0), "one process");
    let peak: u64 = full.read("memory.peak").trim().parse().unwrap();
    assert!(peak <= 256 << 20, "and it never had more: {peak}");
    assert_eq!(calm.count("memory.events", "oom_kill"), 0);
    assert_eq!([&greedy, &modest].map(|task| show(&person, task)["state"].clone()), ["running", "running"]);
    for task in [greedy, modest] {
        person.airlock(["task", "stop", &task]).ok();
    }
}

#[test]
fn p8_processors_are_shared_out_to_the_run_and_not_to_each_of_its_processes() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = "(while :; do :; done) & (while :; do :; done) & (while :; do :; done) & sleep 600";
    let task = start(&person, &repo.path, "cpus = 1", script);
    let Some(group) = Group::around(&person, &task, "sleep") else { return };
    eventually("the kernel holds them back", SOON, || (group.count("cpu.stat", "nr_throttled") > 5).then_some(()));
    let (begun, before) = (Instant::now(), group.count("cpu.stat", "usage_usec"));
    std::thread::sleep(Duration::from_secs(3));
    let used = Duration::from_micros(group.count("cpu.stat", "usage_usec") - before);
    // Each processor may have a slice of its own in hand.
    assert!(used <= begun.elapsed().mul_f64(1.2), "three loops together use {used:?} in {:?}", begun.elapsed());
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn p8_processes_are_counted_for_the_run_together_and_the_refused_one_is_told() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // Children of children, each of which makes as many as it can.
    let script = "for i in $(seq 30); do (for j in $(seq 30); do sleep 600 & done; wait) & done 2>/dev/null; sleep 600; :";
    let task = start(&person, &repo.path, "processes = 40", script);
    let Some(group) = Group::around(&person, &task, "sleep") else { return };
    eventually("the refusals are told", SOON, || {
        let told = events(&person, &task).into_iter().filter(|e| e["limit"] == "processes").map(|e| text(&e, "detail"));
        told.into_iter().find(|detail| detail.contains("starts were refused"))
    });
    assert!(group.count("pids.events", "max") > 0, "the kernel refused one");
    let now: u64 = group.read("pids.current").trim().parse().unwrap();
    assert!(now <= 41, "{now} processes");
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn p8_a_pause_freezes_the_cgroup_and_a_stop_leaves_nothing_of_it() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let daemons = "(setsid bash -c '(while :; do sleep 0.1; done) &' &); mkfifo /tmp/f; cat <> /tmp/f";
    let task = start(&person, &repo.path, "", daemons);
    let Some(group) = Group::around(&person, &task, "cat") else { return };
    person.airlock(["task", "pause", &task]).ok();
    assert!(group.frozen(), "all of it at once, without a signal");
    person.airlock(["task", "continue", &task]).ok();
    assert!(!group.frozen());
    person.airlock(["task", "pause", &task]).ok();
    person.airlock(["task", "stop", &task]).ok();
    eventually("a frozen cgroup ends too", SOON, || (!group.0.exists()).then_some(()));
}

#[test]
fn p11_the_death_of_a_warden_leaves_no_cgroup_even_of_a_paused_run() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = start(&person, &repo.path, "", "mkfifo /tmp/f; (setsid sleep 600 &); cat <> /tmp/f");
    let Some(group) = Group::around(&person, &task, "cat") else { return };
    person.airlock(["task", "pause", &task]).ok();
    assert!(group.frozen());
    for warden in person.wardens() {
        kill(Pid::from_raw(warden), Signal::SIGKILL).unwrap();
    }
    eventually("its processes and its cgroup are gone", SOON, || (!group.0.exists()).then_some(()));
}
