//! The first minute: an empty window, the demo, one click.

use crate::screen::{NewTask, add_repository, at, new_task, pick, selected_task, until_state, until_terminal};
use testkit::Sandbox;
use testkit::treehash::treehash;
use testkit::window::{Display, Window};

#[test]
fn an_empty_window_opens_and_offers_the_demo() {
    let (person, display) = (Sandbox::new(), Display::start());
    let window = Window::open(&person, &display);
    window.until_text(&at("welcome"), "Try the demo");
    window.until_text(&at("machine"), "This machine:");
    window.shot("empty");
    assert_eq!(window.script("return document.title", vec![]), "Airlock");
    window.click(&at("keys"));
    window.shot("keys");
}

#[test]
fn the_demo_runs_to_its_review() {
    let (person, display) = (Sandbox::new(), Display::start());
    let before = treehash(&person.home().join(".ssh")).unwrap();
    let window = Window::open(&person, &display);
    window.click(&at("demo"));
    until_state(&window, "ended");
    window.shot("demo-terminal");

    window.click(&at("tab-activity"));
    window.find(&at("event"));
    window.shot("demo-activity");
    for (words, kind, what) in [(".ssh", "file", "the touch of ~/.ssh"), ("example", "network", "a host that is not allowed")] {
        window.fill(&at("events-filter"), words);
        let row = format!("{}[data-kind='{kind}'].denied", at("event"));
        window.find(&row);
        assert!(window.text(&row).contains("Denied"), "{what} is shown as denied");
    }

    // The way on is in words, wherever a person is when the run ends.
    window.click(&at("to-changes"));
    window.find(&at("file"));
    window.shot("demo-changes");
    window.click(&at("layout-split"));
    window.shot("demo-changes-split");
    pick(&window, &at("file"));
    window.find(&at("diff"));
    window.click(&at("accept-open"));
    window.until_text(&at("why"), "can leave");
    assert_eq!(treehash(&person.home().join(".ssh")).unwrap(), before, "the demo touches nothing of the person's own ~/.ssh");
}

#[test]
fn one_click_starts_a_sandbox() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let before = treehash(&repo.path).unwrap();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    window.click(&at("sandbox"));
    until_state(&window, "running");
    until_terminal(&window, "a prompt", |t| (!t.trim().is_empty()).then_some(()));
    crate::screen::type_in_terminal(&window, "cat src/lib.sh\u{E007}");
    crate::screen::until_terminal_text(&window, "greet()");
    window.shot("sandbox");
    window.click(&at("stop"));
    until_state(&window, "ended");
    window.click(&at("discard"));
    window.click(&at("discard-yes"));
    testkit::eventually("the task is gone from the rail", testkit::window::LIMIT, || (!window.has(&at("task"))).then_some(()));
    assert_eq!(treehash(&repo.path).unwrap(), before);
}

#[test]
fn p8_a_run_is_paused_and_goes_on_by_button() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    let beat = NewTask { title: "Beat", command: "while :; do echo beat >> beats; sleep 0.01; done", ..NewTask::default() };
    new_task(&window, &beat);
    until_state(&window, "running");
    let file = person.task_dir(&selected_task(&window)).join("tree/beats");
    let beats = || std::fs::metadata(&file).map_or(0, |m| m.len());
    let grows = |from: u64| testkit::eventually("the run writes", testkit::window::LIMIT, || (beats() > from).then_some(()));
    grows(0);
    window.click(&at("pause"));
    until_state(&window, "paused");
    let before = beats();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(beats(), before, "nothing of a paused run writes");
    window.shot("paused");
    window.click(&at("proceed"));
    until_state(&window, "running");
    grows(before);

    // Beside the run stands how each promise is kept; the badge and the page count alike.
    let badge = window.text(&at("promises"));
    window.click(&at("promises"));
    window.find(&at("promise"));
    let full = "return document.querySelectorAll(\"[data-test='promise'][data-level='full']\").length";
    let full = window.script(full, vec![]).as_u64().unwrap();
    assert!(full > 0 && badge.trim().starts_with(&format!("{full}/12")), "{full} in full, and the badge says {badge}");
    window.shot("promises");
    window.click(&at("stop"));
    until_state(&window, "ended");
}

#[test]
fn a_wrong_repository_is_told_where_it_was_typed() {
    let (person, display) = (Sandbox::new(), Display::start());
    let window = Window::open(&person, &display);
    let plain = person.projects().join("plain");
    std::fs::create_dir(&plain).unwrap();
    window.click(&at("add-repo"));
    for (path, word) in [(plain.to_str().unwrap(), "repository"), ("/nowhere/at/all", "nowhere"), ("relative", "whole path")] {
        window.fill(&at("repo-path"), path);
        window.click(&at("repo-add"));
        window.until_text(&at("repo-wrong"), word);
    }
    window.shot("repository-refused");
}
