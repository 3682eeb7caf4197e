//! The terminal is a real one, what it prints stays text, and the run does not end with the window.

use crate::screen::{
    NewTask, add_repository, at, new_task, selected_task, terminal, type_in_terminal, until_state, until_terminal,
    until_terminal_text,
};
use testkit::window::{Display, LIMIT, Window};
use testkit::{Sandbox, eventually};

/// Says its pid, then answers each line with it.
const ECHO: &str = "echo \"pid $$.\"; while read -r line; do echo \"got $line from $$.\"; done";

#[test]
fn a_run_survives_the_window_and_answers_in_a_new_one() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    new_task(&window, &NewTask { title: "Survivor", command: ECHO, ..NewTask::default() });
    let pid = until_terminal(&window, "the command's pid", |t| {
        let (_, rest) = t.split_once("pid ")?;
        rest.split_once('.').map(|(pid, _)| pid.to_owned())
    });
    type_in_terminal(&window, "first\u{E007}");
    until_terminal_text(&window, &format!("got first from {pid}."));
    let task = selected_task(&window);
    let wardens = person.wardens();
    assert_eq!(wardens.len(), 1);
    window.kill();

    assert_eq!(person.wardens(), wardens, "the warden is no part of the window");
    let window = Window::open(&person, &display);
    window.click(&format!("{}[data-task='{task}']", at("task")));
    until_state(&window, "running");
    until_terminal_text(&window, &format!("got first from {pid}."));
    type_in_terminal(&window, "second\u{E007}");
    until_terminal_text(&window, &format!("got second from {pid}."));
    window.shot("second-window");
    window.click(&at("stop"));
    until_state(&window, "ended");
    eventually("no warden is left", LIMIT, || person.wardens().is_empty().then_some(()));
}

#[test]
fn a_full_screen_program_works() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let lines: String = (1..=300).map(|i| format!("line number {i}\n")).collect();
    repo.write("long.txt", lines);
    repo.commit("a long file");
    let window = Window::open(&person, &display);
    window.click(&at("theme-light"));
    add_repository(&window, &repo.path);
    let command = "printf '\\033[38;5;18mpalette\\033[0m \\033[38;2;18;52;86mtrue\\033[0m\\n'; \
                   read x; stty size; read x; less long.txt; echo after; read x";
    new_task(&window, &NewTask { title: "Screen", command, ..NewTask::default() });
    until_terminal_text(&window, "palette true");
    let size = window.text(&at("terminal-size"));
    let (cols, rows) = size.split_once(" × ").unwrap();
    type_in_terminal(&window, "\u{E007}");
    // The command's terminal has the size that is drawn.
    until_terminal_text(&window, &format!("\n{rows} {cols}"));
    let colour = |word: &str| {
        window.script(
            "const s = [...document.querySelectorAll('.xterm-rows span')].find(s => s.textContent.includes(arguments[0])); return s && getComputedStyle(s).color",
            vec![word.into()],
        )
    };
    // Dark colours on a light ground: on others the terminal raises the contrast.
    assert_eq!(colour("palette"), "rgb(0, 0, 135)", "the 256 colours are drawn");
    assert_eq!(colour("true"), "rgb(18, 52, 86)", "true colours are drawn");
    type_in_terminal(&window, "\u{E007}");
    until_terminal_text(&window, "line number 1");
    assert!(!terminal(&window).contains("palette"), "the other screen is shown");
    type_in_terminal(&window, "G");
    until_terminal_text(&window, "line number 300");
    window.shot("full-screen");
    type_in_terminal(&window, "q");
    until_terminal_text(&window, "after");
    assert!(terminal(&window).contains("palette"), "the first screen is back");
    type_in_terminal(&window, "\u{E007}");
    until_state(&window, "ended");
}

#[test]
fn hostile_output_acts_on_nothing() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    // Title, clipboard, a link, a device question whose answer would be typed, and markup.
    let command = "printf '\\033]0;HACKED\\007\\033]2;HACKED\\007\\033]52;c;SEFDS0VE\\007\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007<b id=hacked>x</b>\\n\\033[21t'; \
                   touch '<img src=x onerror=document.title=1>'; read -t 2 answer; echo \"answer [$answer]\"; read x";
    new_task(&window, &NewTask { title: "<b id=hacked>title</b>", command, ..NewTask::default() });
    until_terminal_text(&window, "answer []");
    until_terminal_text(&window, "<b id=hacked>x</b>");
    window.click(&at("tab-activity"));
    window.fill(&at("events-filter"), "img src");
    window.find(&at("event"));
    window.shot("hostile-activity");
    assert_eq!(window.script("return document.title", vec![]), "Airlock", "the title is the window's own");
    assert!(!window.has("#hacked") && !window.has("main img"), "markup is text");
    window.click(&at("stop"));
    until_state(&window, "ended");
}
