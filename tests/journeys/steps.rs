//! Steps that many journeys share.

use serde_json::Value;
use std::path::Path;
use testkit::treehash::{TreeHash, treehash};
use testkit::{Ended, Sandbox};

/// The whole repository as it is now.
#[track_caller]
pub(crate) fn look(repo: &Path) -> TreeHash {
    treehash(repo).unwrap_or_else(|e| panic!("{}: {e}", repo.display()))
}

/// Ends the test where the repository is not byte for byte as it was.
#[track_caller]
pub(crate) fn untouched(before: &TreeHash, repo: &Path, when: &str) {
    let after = look(repo);
    assert_eq!(before.total, after.total, "nothing of a task is in the repository {when}: {:#?}", before.difference(&after));
}

/// A text field of a JSON object.
#[track_caller]
pub(crate) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("`{field}` must be a text in {value}")).to_owned()
}

/// `airlock review ID --tree TREE --approve` with these paths accepted and rejected, as JSON.
#[track_caller]
pub(crate) fn approve(person: &Sandbox, task: &str, tree: &str, accept: &[&str], reject: &[&str]) -> Value {
    review(person, task, tree, accept, reject, true).ok().json()
}

/// `airlock review ID --tree TREE` with these paths accepted and rejected.
pub(crate) fn review(person: &Sandbox, task: &str, tree: &str, accept: &[&str], reject: &[&str], approve: bool) -> Ended {
    let mut args = vec!["review", task, "--tree", tree, "--json"];
    for (option, paths) in [("--accept", accept), ("--reject", reject)] {
        for path in paths {
            args.extend([option, path]);
        }
    }
    if approve {
        args.push("--approve");
    }
    person.airlock(args)
}

/// `airlock apply ID --tree TREE` and more.
pub(crate) fn apply(person: &Sandbox, task: &str, tree: &str, more: &[&str]) -> Ended {
    person.airlock(["apply", task, "--tree", tree, "--json"].iter().chain(more))
}

/// The current candidate's tree.
#[track_caller]
pub(crate) fn candidate(person: &Sandbox, task: &str) -> String {
    text(&person.airlock(["diff", task, "--json"]).ok().json(), "tree")
}

/// `airlock task show ID --json`.
#[track_caller]
pub(crate) fn show(person: &Sandbox, task: &str) -> Value {
    person.airlock(["task", "show", task, "--json"]).ok().json()
}

/// `airlock events ID --json`.
#[track_caller]
pub(crate) fn events(person: &Sandbox, task: &str) -> Vec<Value> {
    person.airlock(["events", task, "--json"]).ok().json_lines()
}

/// The newest run of a task, from `task show`.
#[track_caller]
pub(crate) fn run_of(person: &Sandbox, task: &str) -> Value {
    let shown = show(person, task);
    let runs = shown["runs"].as_array().unwrap_or_else(|| panic!("`task show` lists runs: {shown}"));
    runs.last().unwrap_or_else(|| panic!("the task has a run: {shown}")).clone()
}
