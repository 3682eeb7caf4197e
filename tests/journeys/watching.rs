//! Events: what happened, with the kernel's word on who, while it happens and afterwards.

use crate::steps::{events, text};
use testkit::airlock::LIMIT;
use testkit::{Live, Sandbox};

#[test]
fn a_refused_read_and_a_refused_host_are_told_with_the_process() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = "cat ~/.ssh/id_ed25519; curl -sS -m 5 http://blocked.example.org/; echo x > made.txt; true";
    let ran = person.run_script(&repo.path, &[], script).ok().json();
    let task = text(&ran, "task");
    let events = events(&person, &task);
    let all = || events.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");

    let read = events.iter().find(|e| e["kind"] == "file" && e["op"] == "read" && e["verdict"] == "denied");
    let read = read.unwrap_or_else(|| panic!("the denied read is told:\n{}", all()));
    assert_eq!(text(read, "path"), "~/.ssh/id_ed25519", "as the person writes it: {read}");
    assert_eq!(read["process"]["program"], "cat", "with the kernel's word on who: {read}");

    let told = |verdict: &str| {
        events.iter().any(|e| e["kind"] == "network" && e["host"] == "blocked.example.org" && e["verdict"] == verdict)
    };
    assert!(told("held") && told("denied"), "the host that nobody allowed is held, and refused where nobody answers:\n{}", all());

    assert!(events.iter().any(|e| e["kind"] == "file" && e["path"] == "made.txt"), "a made file is told:\n{}", all());
    let curl = |e: &&serde_json::Value| e["kind"] == "process" && e["op"] == "exec" && e["process"]["program"] == "curl";
    assert!(events.iter().any(|e| curl(&e)), "a started program is told:\n{}", all());
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], i + 1, "events are numbered without gaps");
    }
    let said = person.airlock(["events", &task, "--kind", "file"]).ok().out();
    assert!(said.lines().any(|l| l.contains("read ~/.ssh/id_ed25519  DENIED  files.hide")), "{said}");
    let only = person.airlock(["events", &task, "--kind", "network", "--json"]).ok().json_lines();
    assert!(!only.is_empty() && only.iter().all(|e| e["kind"] == "network"), "{only:?}");
}

#[test]
fn events_are_followed_while_they_happen() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "echo ready; read go; echo x > late.txt; read go"]);
    let mut agent = Live::start(c);
    agent.until_out("ready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let mut follow = Live::start(person.airlock_command(["events", &task, "--follow", "--json"]));
    follow.until_out("\"phase\":\"started\"");
    // The script's own text is in the event of its start: what counts is the file's.
    let made = "\"path\":\"late.txt\"";
    assert!(!follow.out().contains(made), "{}", follow.out());
    agent.write(b"go\n");
    follow.until_out(made);
    agent.write(b"go\n");
    agent.end(LIMIT).ok();
    follow.until_out("\"phase\":\"ended\"");
}

#[test]
fn a_hostile_name_is_told_as_text() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let script = r#"printf 'x\033]0;t\007\n' > "$(printf 'a\033[2J\nb\342\200\256c\377')""#;
    let ran = person.run_script(&repo.path, &[], script).ok().json();
    let task = text(&ran, "task");
    let hides = |b: &[u8]| b.contains(&0x1b) || b.windows(3).any(|w| w == [0xe2, 0x80, 0xae]) || std::str::from_utf8(b).is_err();
    let words = [["events", &task, ""], ["events", &task, "--json"], ["diff", &task, "--stat"], ["diff", &task, "--json"]];
    let acts = |w: &&[&str; 3]| hides(&person.airlock(w.iter().filter(|w| !w.is_empty())).ok().stdout);
    let acting: Vec<_> = words.iter().filter(acts).collect();
    assert!(acting.is_empty(), "these print control or direction characters, or bytes that are no text: {acting:?}");
    // A pipe gets the patch as it is, for `git apply`; a terminal gets text.
    let mut on_terminal = person.command("script");
    on_terminal.args(["-qec", &format!("'{}' diff {task}", testkit::program("airlock").display()), "/dev/null"]);
    let shown = person.finish(on_terminal, b"").ok();
    assert!(shown.out().contains("diff --git") && !hides(&shown.stdout), "a diff on a terminal is text\n{}", shown.said());
}
