//! An apply does exactly what was approved, or nothing.

use crate::steps::{apply, approve, candidate, look, review, text, untouched};
use testkit::{Live, Repo, Sandbox};

/// A task that ended with `script`, reviewed with these files accepted: its id and the approved tree.
fn approved(person: &Sandbox, repo: &Repo<'_>, script: &str, accept: &[&str]) -> (String, String) {
    let ran = person.run_script(&repo.path, &[], script).ok().json();
    let task = text(&ran, "task");
    let result = text(&approve(person, &task, &text(&ran, "tree"), accept, &[]), "result");
    (task, result)
}

#[test]
fn what_changed_after_the_review_is_not_applied() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let mut c = person.airlock_command(["run", "--title", "late", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "echo one > a.txt; echo ready; read go; echo two > a.txt; echo changed; read go"]);
    let mut agent = Live::start(c);
    agent.until_out("ready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let seen = candidate(&person, &task);
    let result = text(&approve(&person, &task, &seen, &["a.txt"], &[]), "result");
    agent.write(b"go\n");
    agent.until_out("changed");
    apply(&person, &task, &result, &[]).exits(3);
    review(&person, &task, &seen, &["a.txt"], &[], true).exits(3);
    untouched(&before, &repo.path, "after an apply of something that changed");

    let now = candidate(&person, &task);
    assert_ne!(now, seen);
    let again = review(&person, &task, &now, &[], &[], false).ok().json();
    assert_eq!(again["files"][0]["decision"], "open", "a file that changed needs a new look: {again}");
    let result = text(&approve(&person, &task, &now, &["a.txt"], &[]), "result");
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.read("a.txt"), "two\n", "an apply is possible beside a running agent");
    agent.write(b"go\n");
    agent.end(testkit::airlock::LIMIT).ok();
}

#[test]
fn what_is_shown_of_a_running_agent_is_of_one_moment() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--repo"]);
    // Between the two are many others, so that a reader beside a writer meets them at different moments.
    let script =
        "mkdir m; i=0; while [ $i -lt 200 ]; do echo $i > m/$i; i=$((i+1)); done; echo $i > a.txt; echo $i > z.txt; echo ready
        while :; do i=$((i+1)); echo $i >> a.txt; echo $i >> z.txt; done";
    c.arg(&repo.path).args(["--", "sh", "-c", script]);
    let mut agent = Live::start(c);
    agent.until_out("ready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    for _ in 0..5 {
        let diff = person.airlock(["diff", &task]).ok().out();
        let last = |file: &str| -> Option<u64> {
            let (_, rest) = diff.split_once(&format!("+++ b/{file}\n"))?;
            rest.split("diff --git").next()?.lines().last()?.strip_prefix('+')?.parse().ok()
        };
        let (first, second) = (last("a.txt").unwrap(), last("z.txt").unwrap());
        assert!(first == second || first == second + 1, "`z.txt` follows `a.txt` at once: {first} and {second}");
    }
    person.airlock(["task", "stop", &task]).ok();
    agent.end(testkit::airlock::LIMIT);
}

#[test]
fn a_tree_that_nobody_reviewed_is_refused() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let ran = person.run_script(&repo.path, &[], "echo x > x.txt").ok().json();
    let task = text(&ran, "task");
    let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    for tree in [text(&ran, "tree").as_str(), empty, &repo.git(["rev-parse", "main^{tree}"])] {
        apply(&person, &task, tree, &[]).exits(3);
    }
    review(&person, &task, empty, &["x.txt"], &[], true).exits(3);
    apply(&person, &task, "no-tree", &[]).exits(2);
    let unknown = review(&person, &task, &text(&ran, "tree"), &["no-such-file"], &[], true);
    assert_ne!(unknown.code(), 0, "a path that did not change can't be accepted\n{}", unknown.said());
    untouched(&before, &repo.path, "after refused applies");
}

#[test]
fn a_conflict_with_the_branch_applies_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let (task, result) = approved(&person, &repo, "sed -i 's/hello/agent/' src/lib.sh; echo x > x.txt", &["src/lib.sh", "x.txt"]);
    repo.write("src/lib.sh", "greet() {\n    echo \"person $1\"\n}\n");
    repo.commit("meanwhile");
    let before = look(&repo.path);
    let ended = apply(&person, &task, &result, &[]).exits(6);
    assert!(ended.err().contains("src/lib.sh"), "the conflict names its file\n{}", ended.said());
    untouched(&before, &repo.path, "after a conflict");
}

#[test]
fn a_branch_that_moved_elsewhere_keeps_both_changes() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let (task, result) = approved(&person, &repo, "sed -i 's/hello/agent/' src/lib.sh", &["src/lib.sh"]);
    repo.write("README.md", "# moved on\n");
    repo.commit("meanwhile");
    let tip = repo.git(["rev-parse", "main"]);
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.git(["rev-parse", "main^"]), tip, "the commit sits on the branch as it is now");
    assert_eq!(repo.read("README.md"), "# moved on\n");
    assert!(repo.read("src/lib.sh").contains("agent"));
    assert_eq!(repo.git(["status", "--porcelain"]), "");
}

#[test]
fn a_working_copy_that_is_dirty_where_it_would_be_touched_stays_as_it_is() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let dirt: [(&str, &dyn Fn()); 4] = [
        ("changed", &|| repo.write("src/lib.sh", "mine\n")),
        ("staged", &|| {
            repo.write("src/lib.sh", "mine\n");
            repo.git(["add", "src/lib.sh"]);
        }),
        ("untracked in the way", &|| repo.write("x.txt", "mine\n")),
        ("a directory in the way", &|| repo.write("x.txt/mine", "mine\n")),
    ];
    for (kind, make) in dirt {
        let script = "sed -i 's/hello/agent/' src/lib.sh; echo x > x.txt";
        let (task, result) = approved(&person, &repo, script, &["src/lib.sh", "x.txt"]);
        make();
        let before = look(&repo.path);
        let ended = apply(&person, &task, &result, &[]).exits(6);
        assert!(ended.err().contains(".sh") || ended.err().contains("x.txt"), "{kind}: names the file\n{}", ended.said());
        untouched(&before, &repo.path, &format!("after an apply onto a working copy with a file {kind}"));
        repo.git(["reset", "-q", "--hard"]);
        repo.git(["clean", "-qfdx"]);
    }
}

#[test]
fn dirt_elsewhere_is_kept() {
    let person = Sandbox::new();
    let repo = person.dirty_repo();
    let (task, result) = approved(&person, &repo, "echo x > x.txt", &["x.txt"]);
    let status = repo.git(["status", "--porcelain"]);
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.read("x.txt"), "x\n");
    assert_eq!(repo.git(["status", "--porcelain"]), status, "what was changed, staged and untracked is so still");
    person.airlock(["undo", &task]).ok();
    assert_eq!(repo.git(["status", "--porcelain"]), status);
    assert!(!repo.path.join("x.txt").exists());
}

#[test]
fn another_branch_moves_without_the_working_copy() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    repo.git(["branch", "other"]);
    let (task, result) = approved(&person, &repo, "echo x > x.txt", &["x.txt"]);
    let main = repo.git(["rev-parse", "main"]);
    apply(&person, &task, &result, &["--onto", "other"]).ok();
    assert_eq!(repo.git(["rev-parse", "main"]), main);
    assert_eq!(repo.show("other", "x.txt").as_deref(), Some(&b"x\n"[..]));
    assert!(!repo.path.join("x.txt").exists(), "the branch is checked out nowhere");
    assert_eq!(repo.git(["status", "--porcelain"]), "");
    person.airlock(["undo", &task]).ok();
    assert_eq!(repo.git(["rev-parse", "other"]), main);
}

#[test]
fn an_undo_after_the_branch_moved_on_changes_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let (task, result) = approved(&person, &repo, "echo x > x.txt", &["x.txt"]);
    apply(&person, &task, &result, &[]).ok();
    repo.write("x.txt", "person\n");
    repo.commit("on top");
    let before = look(&repo.path);
    person.airlock(["undo", &task]).exits(6);
    untouched(&before, &repo.path, "after an undo that came too late");
}
