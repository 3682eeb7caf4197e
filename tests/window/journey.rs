//! The main job through the window: a real coding agent, watched, reviewed, applied.

use crate::screen::{NewTask, add_repository, at, new_task, pick, selected_task, terminal, type_in_terminal, until_state};
use std::time::{Duration, Instant};
use testkit::endpoint::{Endpoint, Turn};
use testkit::program::kept_dir;
use testkit::treehash::treehash;
use testkit::window::{Display, Window};
use testkit::{Sandbox, wait};

const DOWN: &str = "\u{E015}";
const ENTER: &str = "\u{E007}";

#[test]
fn a_real_agent_is_started_watched_reviewed_and_applied() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.project_clone();
    person.install_claude();
    let transcript = kept_dir("transcripts").join(format!("window-{}.jsonl", wait::column()));
    let script = vec![
        Turn::bash("head -n 4 Cargo.toml; grep CapEff /proc/self/status; uname -n"),
        Turn::bash(
            "sed -i '1s/^/# Looked at by an agent.\\n/' Cargo.toml; echo 'By the agent.' > by-the-agent.txt; echo no > unwanted.txt",
        ),
        Turn::bash("cat ~/.ssh/id_ed25519; curl -sS -m 10 http://not-allowed.example.org/; true"),
        Turn::Text("That was all.".into()),
    ];
    let calls = script.len() - 1;
    let model = Endpoint::start(script, &transcript);
    let port = model.port();
    // A policy of the person's own; the key of the scripted model is no secret.
    person.file(
        "config/airlock/policies/journey.toml",
        &format!(
            r#"version = 1
name = "journey"
[env]
pass = ["LANG", "TERM"]
set = {{ ANTHROPIC_BASE_URL = "http://model.test:{port}", ANTHROPIC_AUTH_TOKEN = "dummy" }}
[files]
tools = "auto"
hide = [{{ path = "~/.ssh", on_touch = "deny" }}]
[network]
default = "deny"
[[network.rule]]
host = "model.test"
ports = [{port}]
address = "127.0.0.1:{port}"
decision = "allow"
reason = "the scripted model"
"#
        ),
    );
    let before = treehash(&repo.path).unwrap();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    let task =
        NewTask { title: "Look around", prompt: "Look around.", kit: Some("claude-code"), policy: Some("journey"), command: "" };
    new_task(&window, &task);
    until_state(&window, "running");
    first_questions(&window, &model, calls);
    window.shot("agent-terminal");
    let id = selected_task(&window);
    let results = model.results();
    assert!(results[0].contains("[workspace]") && results[0].contains("CapEff:\t0000000000000000"), "{results:#?}");
    let shown = person.airlock(["task", "show", &id, "--json"]).ok().json();
    let hostname = shown["runs"][0]["hostname"].as_str().unwrap().to_owned();
    assert!(results[0].lines().any(|l| l == hostname), "its own child ran on {hostname}: {}", results[0]);
    assert_eq!(treehash(&repo.path).unwrap(), before, "nothing is in the repository while it runs");

    window.click(&at("tab-activity"));
    window.fill(&at("events-filter"), "not-allowed.example.org");
    window.find(&format!("{}.denied", at("event")));
    window.shot("agent-activity");
    window.fill(&at("events-filter"), ".ssh");
    window.find(&format!("{}.denied", at("event")));

    window.click(&at("stop"));
    until_state(&window, "ended");
    window.click(&at("tab-changes"));
    window.find(&at("file"));
    pick(&window, &format!("{}[data-path='Cargo.toml']", at("file")));
    window.until_text(&at("diff"), "Looked at by an agent.");
    window.shot("agent-changes");
    decide(&window, "unwanted.txt", "reject", "rejected");
    window.click(&at("accept-open"));
    window.until_text(&at("progress"), "3 of 3");
    window.shot("agent-decided");
    window.click(&at("apply"));
    window.fill(&at("apply-message"), "What was good");
    window.shot("agent-apply");
    window.click(&at("apply-yes"));
    window.until_text(&at("applied"), "Applied");
    window.shot("agent-applied");

    let changed = repo.git(["diff-tree", "-r", "--name-status", "main^", "main"]);
    assert_eq!(changed, "M\tCargo.toml\nA\tby-the-agent.txt", "exactly what was accepted");
    assert_eq!(repo.show("main", "by-the-agent.txt").as_deref(), Some(&b"By the agent.\n"[..]));
    let base = repo.show("main^", "Cargo.toml").unwrap();
    assert_eq!(repo.show("main", "Cargo.toml"), Some([b"# Looked at by an agent.\n", &base[..]].concat()), "byte by byte");
    assert_eq!(repo.git(["log", "-1", "--format=%B"]).trim(), "What was good");
    assert_eq!(repo.git(["status", "--porcelain"]), "", "the working copy moved along");

    window.click(&at("undo"));
    window.find(&at("apply"));
    assert_eq!(repo.git(["log", "-1", "--format=%s"]), repo.git(["log", "-1", "--format=%s", "HEAD@{2}"]), "undo brings it back");
    assert_eq!(repo.git(["status", "--porcelain"]), "");
}

/// Answers what the agent asks at its first start in a new home, until it has done all that the script says.
fn first_questions(window: &Window, model: &Endpoint, calls: usize) {
    // The last word is where its mark must be before the answer is given: a key that comes before it listens is lost.
    let questions = [
        ("Choose the text style", ""),
        ("to continue", ""),
        ("Yes, I trust this folder", "❯ Yes, I trust this folder"),
        ("Yes, I accept", "❯ Yes, I accept"),
    ];
    let mut moved = Instant::now();
    let (start, limit) = (Instant::now(), Duration::from_secs(180));
    let mut answered = String::new();
    while model.results().len() < calls || model.results().iter().any(String::is_empty) {
        let shown = terminal(window);
        if let Some((question, marked)) = questions.iter().find(|(q, _)| shown.contains(q) && answered != *q) {
            let plain = shown.replace('\u{a0}', " ");
            let marks = plain.lines().any(|l| l.contains("❯") && l.contains(marked.trim_start_matches("❯ ")));
            if marked.is_empty() || marks {
                type_in_terminal(window, ENTER);
                answered = (*question).to_owned();
            } else if moved.elapsed() > Duration::from_secs(2) {
                type_in_terminal(window, DOWN);
                moved = Instant::now();
            }
        }
        assert!(
            start.elapsed() < limit,
            "the agent must do the script's {calls} calls, it did {}; its terminal shows\n{shown}\npicture: {}",
            model.results().len(),
            window.shot("failed-agent").display()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Opens a file in the review and presses a button for it.
fn decide(window: &Window, path: &str, button: &str, decision: &str) {
    pick(window, &format!("{}[data-path='{path}']", at("file")));
    window.until_text(&at("open-path"), path);
    window.click(&at(button));
    window.find(&format!("{}[data-path='{path}'][data-decision='{decision}']", at("file")));
}
