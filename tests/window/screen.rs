//! Steps on the screen that many tests share. Elements are found by their `data-test`, as `ui/README.md` lists them.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use testkit::window::{LIMIT, Window};

/// CSS of an element by its `data-test`.
pub(crate) fn at(name: &str) -> String {
    format!("[data-test='{name}']")
}

/// What the New task dialog is filled with.
#[derive(Default)]
pub(crate) struct NewTask<'a> {
    pub(crate) title: &'a str,
    pub(crate) prompt: &'a str,
    /// A kit, else the command.
    pub(crate) kit: Option<&'a str>,
    pub(crate) command: &'a str,
    pub(crate) policy: Option<&'a str>,
}

/// Adds a repository from the empty window or from the rail.
#[track_caller]
pub(crate) fn add_repository(window: &Window, path: &Path) {
    window.click(&at("add-repo"));
    window.fill(&at("repo-path"), path.to_str().unwrap());
    window.click(&at("repo-add"));
    let name = path.file_name().unwrap().to_str().unwrap();
    window.find(&format!("{}[data-repo='{name}']", at("sandbox")));
}

/// Fills the New task dialog and starts.
#[track_caller]
pub(crate) fn new_task(window: &Window, task: &NewTask<'_>) {
    window.click(&at("new-task"));
    window.fill(&at("nt-title"), task.title);
    window.fill(&at("nt-prompt"), task.prompt);
    window.click(&at(&format!("nt-kit-{}", task.kit.unwrap_or("command"))));
    if task.kit.is_none() {
        window.fill(&at("nt-command"), task.command);
    }
    if let Some(policy) = task.policy {
        window.click(&at(&format!("nt-policy-{policy}")));
    }
    window.click(&at("nt-start"));
    window.until_text(&at("title"), task.title);
}

/// Waits until the task that is shown is in a state.
#[track_caller]
pub(crate) fn until_state(window: &Window, state: &str) {
    window.find(&format!("{}[data-state='{state}']", at("state")));
}

/// The terminal's lines as they are drawn.
pub(crate) fn terminal(window: &Window) -> String {
    let rows = "return Array.from(document.querySelectorAll('.xterm-rows > div'), r => r.textContent.replace(/\\u00a0/g, ' ').trimEnd()).join('\\n')";
    window.script(rows, vec![]).as_str().unwrap_or_default().trim_end().to_owned()
}

/// Waits until the terminal shows something, asked of its text.
#[track_caller]
pub(crate) fn until_terminal<T>(window: &Window, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let shown = terminal(window);
        if let Some(found) = wanted(&shown) {
            return found;
        }
        assert!(
            start.elapsed() < LIMIT,
            "the terminal must show {what}, it shows\n{shown}\npicture: {}",
            window.shot(&format!("failed-terminal-{}", std::process::id())).display()
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Waits until the terminal shows a text.
#[track_caller]
pub(crate) fn until_terminal_text(window: &Window, text: &str) {
    until_terminal(window, text, |shown| shown.contains(text).then_some(()));
}

/// Types into the terminal.
#[track_caller]
pub(crate) fn type_in_terminal(window: &Window, keys: &str) {
    window.type_into(&at("terminal-input"), keys);
}

/// The task that is selected in the rail.
#[track_caller]
pub(crate) fn selected_task(window: &Window) -> String {
    let script = "return document.querySelector(\"[data-test='task'][aria-current='page']\")?.dataset.task ?? null";
    let id = window.script(script, vec![]);
    id.as_str().unwrap_or_else(|| panic!("a task is selected")).to_owned()
}

/// Scrolls an element into view and presses it through the page, for rows of a long list.
#[track_caller]
pub(crate) fn pick(window: &Window, css: &str) {
    window.find(css);
    let done = window.script(
        "const e = document.querySelector(arguments[0]); e?.scrollIntoView({block: 'center'}); e?.click(); return e !== null",
        vec![json!(css)],
    );
    assert_eq!(done, Value::Bool(true), "{css} is there");
}
