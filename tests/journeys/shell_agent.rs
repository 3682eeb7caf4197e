//! A shell script as the agent: the whole way, from a task to an applied branch and back.

use crate::steps::{apply, approve, candidate, look, review, text, untouched};
use testkit::{Live, Sandbox};

#[test]
fn a_task_runs_is_reviewed_applied_and_undone() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let first = repo.git(["rev-parse", "main"]);

    let script = "sed -i 's/hello/good day/' src/lib.sh && echo new > docs.txt && rm README.md && sh src/main.sh";
    let ran = person.run_script(&repo.path, &["--title", "Be polite"], script).ok().json();
    assert_eq!(ran["exit"], 0, "{ran}");
    let (task, tree) = (text(&ran, "task"), text(&ran, "tree"));
    untouched(&before, &repo.path, "after a run");

    assert_eq!(candidate(&person, &task), tree, "`run` names the candidate that `diff` shows");
    let diff = person.airlock(["diff", &task]).ok().out();
    for line in ["-    echo \"hello $1\"", "+    echo \"good day $1\"", "+new", "-# small"] {
        assert!(diff.lines().any(|l| l == line), "the diff holds {line:?}:\n{diff}");
    }
    let stat = person.airlock(["diff", &task, "--stat"]).ok().out();
    for file in ["src/lib.sh", "docs.txt", "README.md"] {
        assert!(stat.contains(file), "--stat names {file}:\n{stat}");
    }
    untouched(&before, &repo.path, "after a diff");

    let reviewed = review(&person, &task, &tree, &["src/lib.sh", "docs.txt"], &["README.md"], false).ok().json();
    let result = text(&reviewed, "result");
    assert_ne!(result, tree, "a partial accept makes another tree");
    assert_eq!(reviewed["approved"], false, "{reviewed}");
    apply(&person, &task, &result, &[]).exits(3);
    untouched(&before, &repo.path, "after an apply that nobody approved");

    let approved = approve(&person, &task, &tree, &["src/lib.sh", "docs.txt"], &["README.md"]);
    assert_eq!((approved["approved"].clone(), text(&approved, "result")), (true.into(), result.clone()), "{approved}");
    untouched(&before, &repo.path, "after a review");

    apply(&person, &task, &result, &["--message", "Be polite\n\nIn the greeting."]).ok();
    assert_eq!(repo.git(["rev-parse", "main^{tree}"]), result, "the branch's tree is the one that was approved");
    assert_eq!(repo.git(["rev-parse", "main^"]), first, "one commit on top of the base");
    assert_eq!(repo.git(["log", "-1", "--format=%B", "main"]).trim(), "Be polite\n\nIn the greeting.");
    assert_eq!(repo.git(["log", "-1", "--format=%an <%ae>", "main"]), "Test Person <person@example.org>");
    assert_eq!(repo.read("docs.txt"), "new\n", "the checked-out branch moves with its working copy");
    assert_eq!(repo.read("src/lib.sh"), "greet() {\n    echo \"good day $1\"\n}\n");
    assert!(repo.path.join("README.md").exists(), "what was rejected stays");
    assert_eq!(repo.git(["status", "--porcelain"]), "", "the index moved along");
    let (refs, reflog) = (repo.git(["for-each-ref"]), repo.git(["reflog", "main"]));
    assert_eq!(refs.lines().count(), 1, "an apply adds no other ref:\n{refs}");
    assert_eq!(reflog.lines().count(), 2, "an apply is one entry of the reflog:\n{reflog}");

    person.airlock(["undo", &task]).ok();
    assert_eq!(repo.git(["rev-parse", "main"]), first, "undo brings the branch back");
    assert_eq!(repo.git(["status", "--porcelain"]), "", "and the working copy");
    assert!(!repo.path.join("docs.txt").exists());
    person.airlock(["undo", &task]).exits(5);
}

#[test]
fn git_works_inside_and_reaches_nothing_of_the_persons() {
    let person = Sandbox::new();
    let repo = person.dirty_repo();
    let before = look(&repo.path);
    let script = "set -e
        test -z \"$(git status --porcelain)\"
        echo one > one.txt && git add one.txt && git commit -q -m one
        git switch -q -c side && echo two >> one.txt && git commit -q -am two && git log --oneline | wc -l
        echo three > one.txt && git stash -q && test \"$(tail -n1 one.txt)\" = two && git stash pop -q
        git diff --stat && git branch -a && git push . side:refs/heads/main --force
        git rev-parse --show-toplevel";
    let ended = person.run_script(&repo.path, &[], script).ok().json();
    assert_eq!(ended["exit"], 0, "status, add, commit, log, diff, stash and branch work: {ended}");
    untouched(&before, &repo.path, "after an agent used git on a dirty repository");
    let log = std::fs::read_to_string(text(&crate::steps::run_of(&person, &text(&ended, "task")), "log")).unwrap();
    assert!(log.contains(repo.path.to_str().unwrap()), "the workspace is at the repository's own path:\n{log}");
    let diff = person.airlock(["diff", &text(&ended, "task")]).ok().out();
    assert!(diff.contains("+three"), "what the agent committed or not is in the candidate alike:\n{diff}");
}

#[test]
fn two_tasks_work_on_one_repository_at_once() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let script = |name: &str| format!("echo ready; read go; echo {name} > {name}.txt; ls *.txt");
    let start = |name: &str| {
        let mut c = person.airlock_command(["run", "--title", name, "--repo"]);
        c.arg(&repo.path).args(["--", "sh", "-c", &script(name)]);
        Live::start(c)
    };
    let (mut one, mut two) = (start("one"), start("two"));
    one.until_out("ready");
    two.until_out("ready");
    let running = person.airlock(["task", "list", "--json"]).ok().json_lines();
    assert_eq!(running.iter().filter(|t| t["state"] == "running").count(), 2, "{running:?}");
    one.write(b"go\n");
    two.write(b"go\n");
    let limit = testkit::airlock::LIMIT;
    assert_eq!(one.end(limit).ok().out(), "ready\none.txt\n", "neither sees the other's files");
    assert_eq!(two.end(limit).ok().out(), "ready\ntwo.txt\n");
    untouched(&before, &repo.path, "after two tasks at once");

    for task in person.airlock(["task", "list", "--json"]).ok().json_lines() {
        let (id, file) = (text(&task, "id"), format!("{}.txt", text(&task, "title")));
        let tree = candidate(&person, &id);
        let result = text(&approve(&person, &id, &tree, &[&file], &[]), "result");
        apply(&person, &id, &result, &[]).ok();
    }
    assert_eq!(repo.git(["log", "--format=%s", "main"]).lines().count(), 3, "both are on the branch");
    assert_eq!((repo.read("one.txt"), repo.read("two.txt")), ("one\n".into(), "two\n".into()));
}

#[test]
fn a_discarded_task_leaves_no_file() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let ran = person.run_script(&repo.path, &[], "mkdir -p a/b && chmod 0 a/b && echo x > x").ok().json();
    let task = text(&ran, "task");
    assert!(person.task_dir(&task).exists(), "a task has its directory");
    person.airlock(["task", "discard", &task]).ok();
    assert!(!person.task_dir(&task).exists(), "a discarded task has none, also where a directory was closed");
    assert_eq!(crate::steps::show(&person, &task)["state"], "discarded", "the record stays");
    person.airlock(["diff", &task]).exits(5);
    let ran = person.run_script(&repo.path, &["--rm"], "true").ok().json();
    assert!(!person.task_dir(&text(&ran, "task")).exists(), "--rm discards at the end");
    untouched(&before, &repo.path, "after a discard");
}

#[test]
fn a_diff_that_waits_while_its_task_is_discarded_says_so() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let task = text(&person.run_script(&repo.path, &[], "echo x > x").ok().json(), "task");
    person.airlock(["diff", &task]).ok();
    // Where a second look waits for the first one, which is this test here.
    let lock = std::fs::File::open(person.task_dir(&task).join("candidate.lock")).unwrap();
    lock.lock().unwrap();
    let waiting = testkit::Live::start(person.airlock_command(["diff", &task]));
    testkit::eventually("the diff waits for the lock", std::time::Duration::from_secs(20), || {
        let id = std::os::unix::fs::MetadataExt::ino(&lock.metadata().unwrap());
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|l| l.contains("->") && l.contains(&format!(":{id} "))).then_some(())
    });
    person.airlock(["task", "discard", &task]).ok();
    lock.unlock().unwrap();
    let ended = waiting.end(testkit::airlock::LIMIT).exits(5);
    assert!(ended.said().contains("was discarded"), "{}", ended.said());
    assert!(!person.task_dir(&task).exists(), "and it leaves nothing behind");
}
