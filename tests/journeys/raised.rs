//! Limits that were reached: the person is asked for as much again, and the run gets it while it goes on.

use crate::limits::{SOON, holding, row, start, told, written};
use crate::steps::{events, run_of, show, text};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use testkit::airlock::LIMIT;
use testkit::{Live, Sandbox, eventually};

/// The open ask about a limit.
fn asked(person: &Sandbox, limit: &str) -> Value {
    let limit = format!("limits.{limit}");
    eventually(&format!("an ask about {limit}"), SOON, || {
        person.airlock(["ask", "list", "--json"]).ok().json_lines().into_iter().find(|a| a["limit"] == limit)
    })
}

fn allow(person: &Sandbox, ask: &Value) {
    person.airlock(["ask", "allow", &format!("{}@{}", text(ask, "id"), text(ask, "digest"))]).ok();
}

#[test]
fn p8_time_memory_and_disk_are_raised_while_the_run_goes_on() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let wall = start(&person, &repo.path, "wall = \"20s\"", "sleep 23; echo late > late");
    let disk = start(
        &person,
        &repo.path,
        "disk = \"48MiB\"",
        "for i in $(seq 16); do head -c 5000000 /dev/zero > f$i; sleep 0.5; done; echo all > all; sleep 600",
    );
    let memory = start(
        &person,
        &repo.path,
        "memory = \"256MiB\"",
        &format!(
            "({}) & until [ -e again ]; do sleep 0.1; done; rm -f here ended /tmp/f; {}",
            holding(400_000_000),
            holding(400_000_000)
        ),
    );

    let ask = asked(&person, "wall");
    assert_eq!((&ask["about"], &ask["to"], &ask["task"]), (&"raise".into(), &"40s".into(), &Value::from(wall.clone())), "{ask}");
    let shown = person.airlock(["ask", "show", &text(&ask, "id")]).ok().out();
    assert!(shown.contains("raise limits.wall to 40s") && shown.contains("limits.toml"), "{shown}");
    allow(&person, &ask);

    told(&person, &memory, "memory");
    let ask = asked(&person, "memory");
    assert_eq!(ask["to"], "512 MiB", "{ask}");
    eventually("the large process has ended", SOON, || written(&person, &memory, "ended"));
    allow(&person, &ask);
    // The next look takes it up.
    std::thread::sleep(std::time::Duration::from_secs(3));
    std::fs::write(person.task_dir(&memory).join("tree/again"), "").unwrap();
    eventually("it holds as much again", SOON, || written(&person, &memory, "here"));

    let ask = asked(&person, "disk");
    assert!(ask["process"]["program"].is_string(), "with the process: {ask}");
    eventually("it is shown as paused", SOON, || (show(&person, &disk)["paused"] == "limit").then_some(()));
    allow(&person, &ask);
    eventually("it went on to its end", SOON, || written(&person, &disk, "all"));
    assert_eq!(show(&person, &disk)["paused"], Value::Null);

    eventually("it outlived its first time", SOON, || written(&person, &wall, "late"));
    eventually("and ended by itself", SOON, || (show(&person, &wall)["state"] == "ended").then_some(()));
    assert_eq!(run_of(&person, &wall)["outcome"]["limit"], Value::Null);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(written(&person, &memory, "ended").is_none(), "what is within the raised limit is not ended");
    for task in [disk, memory] {
        person.airlock(["task", "stop", &task]).ok();
    }
}

#[test]
fn p8_a_run_that_nobody_answers_for_ends_in_its_time() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = start(&person, &repo.path, "wall = \"4s\"", "sleep 600");
    let ask = asked(&person, "wall");
    eventually("its time is over", SOON, || (show(&person, &task)["state"] == "ended").then_some(()));
    let detail = text(&told(&person, &task, "wall"), "detail");
    assert!(detail.contains("reached its 4 seconds"), "as it was: {detail}");
    let state = &person.airlock(["ask", "show", &text(&ask, "id"), "--json"]).ok().json()["state"];
    assert_eq!(state, "ended");
}

#[test]
fn p8_bytes_are_carried_again_once_the_person_says_so_and_not_before() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 700];
                if stream.read_exact(&mut bytes).is_ok() {
                    stream.write_all(b"taken\n").ok();
                }
            });
        }
    });
    let policy = person.file(
        "bytes.toml",
        &format!(
            "version = 1\nname = \"bytes\"\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"sink.test\"\nports = [80]\n\
             address = \"{at}\"\nprotocol = \"tcp\"\ndecision = \"allow\"\n[limits]\nbytes_out = \"1000B\"\n"
        ),
    );
    let send = "(exec 3<>/dev/tcp/sink.test/80; head -c 700 /dev/zero >&3; read -t 20 word <&3 && echo $word || echo lost) 2>/dev/null || echo refused";
    let script = format!("{send}; {send}; {send}; read go; {send}");
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(policy).args(["--", "bash", "-c", &script]);
    let mut run = Live::start(c);
    let ask = asked(&person, "bytes_out");
    assert_eq!((&ask["to"], &ask["tries"]), (&"1.9 KiB".into(), &1.into()), "{ask}");
    run.until_err("it waits for you: raise limits.bytes_out to 1.9 KiB?");
    run.until_out("taken\n");
    eventually("two tries in vain", LIMIT, || (run.out().lines().filter(|l| *l != "taken").count() >= 2).then_some(()));
    allow(&person, &ask);
    eventually("it is allowed", LIMIT, || {
        events(&person, &text(&ask, "task")).iter().any(|e| e["kind"] == "decision" && e["verdict"] == "allowed").then_some(())
    });
    run.write(b"go\n");
    let ended = run.end(LIMIT).ok();
    assert_eq!(ended.out().lines().filter(|l| *l == "taken").count(), 2, "{}", ended.said());
}

#[test]
fn p8_a_run_that_was_let_on_by_hand_asks_no_more() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = "for i in $(seq 16); do head -c 5000000 /dev/zero > f$i; sleep 0.5; done; echo all > all; sleep 600";
    let task = start(&person, &repo.path, "disk = \"48MiB\"", script);
    let ask = asked(&person, "disk");
    eventually("it is paused", SOON, || (show(&person, &task)["paused"] == "limit").then_some(()));
    person.airlock(["task", "continue", &task]).ok();
    eventually("it went on to its end", SOON, || written(&person, &task, "all"));
    let state = || person.airlock(["ask", "show", &text(&ask, "id"), "--json"]).ok().json()["state"].clone();
    eventually("the ask has ended", LIMIT, || (state() == "ended").then_some(()));
    person.airlock(["ask", "allow", &text(&ask, "id")]).exits(3);
    person.airlock(["task", "stop", &task]).ok();
}

#[test]
fn p8_a_disk_that_can_not_grow_beyond_the_limit_keeps_it_in_full() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // No file system of this machine is larger: it keeps the limit itself. A smaller figure it does not.
    let held = start(&person, &repo.path, "disk = \"1000000GiB\"\nstrict_disk = true", "sleep 600");
    assert_eq!(row(&person, &held, "disk")["status"], "full");
    person.airlock(["task", "stop", &held]).ok();
    let policy = person.file("strict.toml", "version = 1\nname = \"strict\"\n[limits]\ndisk = \"64MiB\"\nstrict_disk = true\n");
    let said = person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "echo ran > ran").exits(4).err();
    assert!(said.contains("disk") && said.contains("only in part"), "{said}");
}

#[test]
fn p8_what_the_person_paused_goes_on_by_their_word_alone_and_no_pause_of_theirs_raises_a_limit() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = "while :; do echo beat >> beats; sleep 0.05; done & until [ -e go ]; do sleep 0.1; done; \
                  for i in $(seq 40); do head -c 5000000 /dev/zero > f$i; sleep 0.3; done; echo all > all; sleep 600";
    let task = start(&person, &repo.path, "disk = \"48MiB\"", script);
    eventually("it runs", SOON, || beats(&person, &task).filter(|n| *n > 0));
    for _ in 0..3 {
        person.airlock(["task", "pause", &task]).ok();
        assert_eq!(person.airlock(["task", "continue", &task, "--json"]).ok().json()["was"], true);
    }
    std::fs::write(person.task_dir(&task).join("tree/go"), "").unwrap();
    let ask = asked(&person, "disk");
    assert_eq!(
        ask["to"].as_str().map(|to| to.starts_with("9") || to.starts_with("10") || to.starts_with("11")),
        Some(true),
        "{ask}"
    );
    eventually("it is shown as paused", SOON, || (show(&person, &task)["paused"] == "limit").then_some(()));
    person.airlock(["task", "pause", &task]).ok();
    eventually("now by the person", SOON, || (show(&person, &task)["paused"] == "person").then_some(()));
    allow(&person, &ask);
    let before = beats(&person, &task);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((beats(&person, &task), &show(&person, &task)["paused"]), (before, &"person".into()), "it stays as they left it");
    person.airlock(["task", "continue", &task]).ok();
    eventually("it goes on", SOON, || (beats(&person, &task) > before).then_some(()));
    person.airlock(["task", "stop", &task]).ok();
}

fn beats(person: &Sandbox, task: &str) -> Option<u64> {
    Some(std::fs::metadata(person.task_dir(task).join("tree/beats")).map_or(0, |m| m.len()))
}
