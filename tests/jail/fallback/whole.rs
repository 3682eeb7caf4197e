//! The whole way on a machine whose user namespaces are blocked: refused with words, or, where the person's policy accepts it,
//! run, reviewed, applied.

use super::here;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use testkit::treehash::treehash;
use testkit::{Ended, Live, Sandbox, program};

/// A policy that accepts the jail without namespaces, and what else it says.
pub(super) fn accepting(person: &Sandbox, more: &str) {
    // A kernel before 6.12 loses more, by names of their own.
    let beyond = if crate::fallback::scoped() { "" } else { ", \"control\", \"ends\"" };
    let text = format!("version = 1\naccept = [\"user-namespaces\"{beyond}]\n{more}");
    let dir = person.config().join("airlock/policies");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("weaker.toml"), text).unwrap();
}

/// `airlock ARGS` where nobody gets a user namespace.
fn blocked<S: AsRef<OsStr>>(person: &Sandbox, args: impl IntoIterator<Item = S>) -> Ended {
    person.finish(blocked_command(person, args), b"")
}

fn blocked_command<S: AsRef<OsStr>>(person: &Sandbox, args: impl IntoIterator<Item = S>) -> Command {
    without(person, &["user-namespaces"], args)
}

fn without<S: AsRef<OsStr>>(person: &Sandbox, features: &[&str], args: impl IntoIterator<Item = S>) -> Command {
    let mut command = person.command(program("without"));
    command.arg(features[0]);
    for feature in &features[1..] {
        command.arg(program("without")).arg(feature);
    }
    command.arg(program("airlock")).args(args);
    command
}

pub(super) fn run(person: &Sandbox, repo: &Path, script: &str) -> Ended {
    let repo = repo.to_str().unwrap();
    blocked(person, ["run", "--policy", "weaker", "--repo", repo, "--json", "--", "sh", "-c", script])
}

#[test]
fn p10_without_the_persons_word_nothing_starts_and_the_word_is_named() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    let repo = person.small_repo();
    let refused = blocked(&person, ["run", "--repo", repo.path.to_str().unwrap(), "--", "true"]).exits(4);
    assert!(refused.err().contains("accept = [\"user-namespaces\"]"), "{}", refused.err());
    assert!(refused.err().contains("To mend it: sudo sysctl -w "), "and the cure is: {}", refused.err());
    let doctor = blocked(&person, ["doctor", "--json"]).exits(4).json();
    assert_eq!(doctor["blockers"][0]["accept"], "user-namespaces", "{doctor}");
    assert!(doctor["blockers"][0]["command"].to_string().contains("sudo sysctl -w "), "{doctor}");
    // A repository's own file can't say it.
    std::fs::write(repo.path.join(".airlock.toml"), "version = 1\naccept = [\"user-namespaces\"]\n").unwrap();
    repo.git(["add", ".airlock.toml"]);
    repo.git(["commit", "-q", "-m", "policy"]);
    let refused = blocked(&person, ["run", "--repo", repo.path.to_str().unwrap(), "--", "true"]).exits(2);
    assert!(refused.err().contains("a repository's file can't say `accept`"), "{}", refused.err());
}

#[test]
fn p3_a_task_runs_is_reviewed_and_applied_without_namespaces() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    accepting(&person, "[network]\ndefault = \"deny\"\n");
    let repo = person.small_repo();
    let before = treehash(&repo.path).unwrap().total;
    let script = "set -e
        git rev-parse --show-toplevel > where; test \"$(cat where)\" = \"$PWD\"; rm where
        test -z \"$(git status --porcelain)\"
        git log --oneline | wc -l
        echo new > docs.txt; git add docs.txt; git commit -qm docs; git switch -qc side; git stash list
        sed -i 's/hello/good day/' src/lib.sh; chmod +x src/main.sh; rm README.md; git gc -q; git fsck 2>&1 | grep -c error || true";
    let ran = run(&person, &repo.path, script).ok();
    assert!(ran.err().contains("ACCEPTED LOSS: promise 2") && ran.err().contains("ACCEPTED LOSS: promise 6"), "{}", ran.err());
    let ran = ran.json();
    assert_eq!(ran["exit"], 0, "{ran}");
    let task = ran["task"].as_str().unwrap();
    assert_eq!(treehash(&repo.path).unwrap().total, before, "nothing of it is in the repository");
    let shown = blocked(&person, ["task", "show", task, "--json"]).ok().json();
    let promises = &shown["runs"][0]["promises"];
    assert_eq!((&promises[1]["status"], &promises[1]["accepted"]), (&"partial".into(), &true.into()), "{promises}");
    let diff = blocked(&person, ["diff", task]).ok().out();
    for line in ["+    echo \"good day $1\"", "+new", "-# small", "new mode 100755"] {
        assert!(diff.lines().any(|l| l == line), "the diff holds {line:?}:\n{diff}");
    }
    let tree = ran["tree"].as_str().unwrap();
    let review = ["review", task, "--tree", tree, "--accept", "docs.txt", "src/lib.sh", "--reject", "README.md", "src/main.sh"];
    let review = blocked(&person, review.iter().chain(&["--approve", "--json"])).ok().json();
    blocked(&person, ["apply", task, "--tree", review["result"].as_str().unwrap(), "--message", "done"]).ok();
    assert_eq!(repo.read("docs.txt"), "new\n");
    assert!(repo.path.join("README.md").exists());
}

#[test]
fn p10_a_loss_beyond_its_table_has_to_be_accepted_by_its_own_name() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    let repo = person.small_repo();
    let run = |policy: &str, features: &[&str]| {
        let text = format!("version = 1\naccept = [{policy}]\n");
        let file = person.file("policy.toml", &text);
        let words = ["run", "--policy", file.to_str().unwrap(), "--repo", repo.path.to_str().unwrap(), "--json", "--"];
        let script = "setsid sleep 1000 & git status --short; echo done > done";
        person.finish(without(&person, features, words.iter().copied().chain(["sh", "-c", script])), b"")
    };
    // A Landlock that keeps no signals in, here or on the machine itself.
    let old = ["user-namespaces", "landlock-after-2"];
    let refused = run("\"user-namespaces\"", &old).exits(4);
    assert!(
        refused.err().contains("accept = [\"ends\"]") || refused.err().contains("accept = [\"control\"]"),
        "{}",
        refused.err()
    );
    run("\"user-namespaces\", \"ends\"", &old).exits(4);
    run("\"user-namespaces\", \"control\"", &old).exits(4);
    run("\"control\", \"ends\"", &old).exits(4);
    let ran = run("\"user-namespaces\", \"control\", \"ends\"", &old).ok();
    assert!(ran.err().contains("it can end your programs"), "and it is said: {}", ran.err());
    assert_eq!(person.processes("sleep"), [] as [i32; 0], "it ends all the same");
    // Without any Landlock nothing stands.
    let refused =
        run("\"user-namespaces\", \"control\", \"ends\", \"writes\", \"reads\"", &["user-namespaces", "landlock"]).exits(4);
    assert!(refused.err().contains("Landlock is all that stands"), "{}", refused.err());
}

#[test]
fn p10_a_container_s_filter_is_no_obstacle_to_the_weaker_jail() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    accepting(&person, "");
    let repo = person.small_repo();
    let words = ["run", "--policy", "weaker", "--repo", repo.path.to_str().unwrap(), "--json", "--", "git", "status"];
    let ran = person.finish(without(&person, &["clone3"], words), b"").ok();
    assert!(ran.err().contains("ACCEPTED LOSS"), "{}", ran.err());
}

#[test]
fn p4_names_and_connections_go_the_way_out() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    accepting(
        &person,
        &format!(
            "[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"db.test\"\naddress = \"127.0.0.1:{port}\"\nports = [80]\ndecision = \"allow\"\n"
        ),
    );
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(&said).unwrap();
    });
    let repo = person.small_repo();
    let script = format!(
        "python3 -c '
import socket
s = socket.create_connection((\"db.test\", 80), 20); s.send(b\"ping\"); print(s.recv(4).decode())
def closed(what, f):
    try: f(); print(what, \"is open\")
    except OSError as e: print(what, \"is closed\")
closed(\"another name\", lambda: socket.create_connection((\"other.test\", 80), 20))
def dial():
    s = socket.create_connection((\"127.0.0.1\", {port}), 20); s.send(b\"ping\"); s.recv(1) or exit()
closed(\"loopback\", dial)
' > said; cat said"
    );
    let ran = run(&person, &repo.path, &script).ok().json();
    let task = ran["task"].as_str().unwrap();
    let diff = blocked(&person, ["diff", task]).ok().out();
    for line in ["+ping", "+another name is closed", "+loopback is closed"] {
        assert!(diff.lines().any(|l| l == line), "{line}:\n{diff}");
    }
    answering.join().unwrap();
    let events = blocked(&person, ["events", task, "--json"]).ok().out();
    assert!(events.contains("db.test") && events.contains("\"allowed\""), "the connection is told:\n{events}");
    assert!(events.contains("other.test") && events.contains("\"denied\""), "and what was refused:\n{events}");
}

#[test]
fn p11_a_killed_warden_leaves_nothing_running_and_a_stop_ends_daemons() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    accepting(&person, "");
    let repo = person.small_repo();
    for by_stop in [false, true] {
        let script =
            "for n in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000' & done; echo ready; sleep 1000";
        let args = ["run", "--policy", "weaker", "--repo", repo.path.to_str().unwrap(), "--", "sh", "-c", script];
        let mut live = Live::start(blocked_command(&person, args));
        live.until_out("ready");
        let [warden] = person.wardens()[..] else { panic!("one warden: {:?}", person.wardens()) };
        let runs = || (person.processes("sleep").len() > 3).then_some(());
        testkit::eventually("daemons", std::time::Duration::from_secs(20), runs);
        if by_stop {
            let tasks = blocked(&person, ["task", "list", "--json"]).ok().json_lines();
            let running = tasks.iter().find(|t| t["state"] == "running").expect("one runs");
            blocked(&person, ["task", "stop", running["id"].as_str().unwrap()]).ok();
        } else {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(warden), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        testkit::eventually("their end", std::time::Duration::from_secs(20), || {
            let left = [person.processes("sleep"), person.processes("airlock-guard")].concat();
            left.is_empty().then_some(())
        });
        drop(live);
    }
}

#[test]
fn p10_the_table_of_the_tier_without_namespaces_is_the_one_that_was_agreed() {
    if !here() {
        return;
    }
    let person = Sandbox::new();
    accepting(&person, "");
    // The doctor asks what `standard` would do, and a person's own file stands in its place.
    let own = person.config().join("airlock/policies");
    std::fs::rename(own.join("weaker.toml"), own.join("standard.toml")).unwrap();
    let doctor = blocked(&person, ["doctor", "--json"]).ok().json();
    if crate::table::status(&doctor, "landlock").0 != "full" {
        // A kernel before 6.12 can't keep signals in, which has to be accepted by its own name.
        return assert_eq!(crate::table::status(&doctor, "control").0, "absent");
    }
    crate::table::golden("fallback.json", include_str!("../golden/fallback.json"), &doctor);
}
