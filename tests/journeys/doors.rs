//! Hidden places that the policy asks about: refused, asked, allowed, served at the next try, taken back.

use crate::steps::{events, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::airlock::LIMIT;
use testkit::{Live, Repo, Sandbox, eventually};

fn policy(person: &Sandbox) -> PathBuf {
    for (name, content) in [(".tool/config", "colour = blue\n"), (".tool/key", "of the tool\n")] {
        let path = person.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    person.file(
        "policy.toml",
        "version = 1\nname = \"doors\"\n[files]\nhide = [{ path = \"~/.tool\", on_touch = \"ask\" }]\n[network]\ndefault = \"deny\"\n",
    )
}

fn start(person: &Sandbox, repo: &Repo<'_>, policy: &Path, script: &str) -> Live {
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(policy).args(["--", "bash", "-c", script]);
    Live::start(c)
}

fn the_open_ask(person: &Sandbox) -> Value {
    eventually("an open ask", LIMIT, || person.airlock(["ask", "list", "--json"]).ok().json_lines().into_iter().next())
}

fn named(ask: &Value) -> String {
    format!("{}@{}", text(ask, "id"), text(ask, "digest"))
}

#[test]
fn p2_a_hidden_place_is_asked_about_served_at_the_next_try_and_shut_again() {
    let person = Sandbox::new();
    let (repo, policy) = (person.small_repo(), policy(&person));
    let script = "cat ~/.tool/config || echo refused; read go; cat ~/.tool/config; cat ~/.tool/config; cat ~/.tool/key || echo other; \
                  read go; cat ~/.tool/config || echo shut; read go; cat ~/.tool/config || echo denied";
    let mut run = start(&person, &repo, &policy, script);
    run.until_err("it waits for you: read ~/.tool/config?");
    run.until_out("refused\n");
    let ask = the_open_ask(&person);
    assert_eq!((&ask["about"], &ask["path"]), (&"read".into(), &"~/.tool/config".into()), "{ask}");
    assert_eq!((&ask["process"]["program"], &ask["rule"]), (&"cat".into(), &"files.hide[0]".into()), "{ask}");
    assert!(text(&ask, "source").ends_with("policy.toml:4"), "{ask}");
    assert_eq!(ask["hold"], Value::Null, "nothing waits for the answer: {ask}");
    let shown = person.airlock(["ask", "show", &text(&ask, "id")]).ok().out();
    assert!(shown.contains("read ~/.tool/config") && shown.contains("files.hide[0]"), "{shown}");
    person.airlock(["ask", "allow", &named(&ask), "--scope", "task"]).ok();
    run.write(b"go\n");
    run.until_out("colour = blue\ncolour = blue\nother\n");
    let key = the_open_ask(&person);
    assert_eq!(key["path"], "~/.tool/key", "what lies beside it is asked about apart: {key}");

    let task = text(&ask, "task");
    let grant = &person.airlock(["grant", "list", "--json"]).ok().json_lines()[0];
    assert_eq!((&grant["lives"], &grant["path"]), (&true.into(), &"~/.tool/config".into()), "{grant}");
    person.airlock(["grant", "revoke", &text(grant, "id")]).ok();
    run.write(b"go\n");
    run.until_out("shut\n");
    let again = the_open_ask(&person);
    let again = if again["path"] == "~/.tool/key" {
        person.airlock(["ask", "deny", &named(&again)]).ok();
        the_open_ask(&person)
    } else {
        again
    };
    assert_eq!(again["path"], "~/.tool/config");
    person.airlock(["ask", "deny", &named(&again)]).ok();
    run.write(b"go\n");
    run.until_out("denied\n");
    run.end(LIMIT).exits(0);
    let open = person.airlock(["ask", "list", "--json"]).ok().json_lines();
    assert!(open.iter().all(|a| a["path"] != "~/.tool/config"), "what was denied is not asked about again: {open:?}");

    let told: Vec<(String, String)> = events(&person, &task)
        .iter()
        .filter(|e| e["kind"] == "file" && e["path"] == "~/.tool/config")
        .map(|e| (text(e, "op"), text(e, "verdict")))
        .collect();
    for verdict in ["denied", "allowed"] {
        assert!(told.contains(&("read".into(), verdict.into())), "{verdict}: {told:?}");
    }
}

#[test]
fn p2_a_grant_for_the_repository_opens_the_place_in_its_next_task_and_nowhere_else() {
    let person = Sandbox::new();
    let (repo, policy) = (person.small_repo(), policy(&person));
    let add = |place: &str| {
        let mut c = person.airlock_command(["grant", "add", place, "--json", "--repo"]);
        c.arg(&repo.path);
        person.finish(c, b"")
    };
    let mut first = start(&person, &repo, &policy, "cat ~/.tool/config || echo refused");
    first.until_out("refused\n");
    first.end(LIMIT).ok();
    let made = add("~/.tool").ok().json();
    let tries = "for i in 1 2 3 4 5; do cat ~/.tool/config && break; sleep 0.2; done; cat ~/.tool/key";
    let second = start(&person, &repo, &policy, tries).end(LIMIT).ok();
    assert_eq!(second.out(), "colour = blue\nof the tool\n", "a grant for a place is for all in it");
    let grants = person.airlock(["grant", "list", "--json"]).ok().json_lines();
    assert_eq!((&grants[0]["id"], &grants[0]["used"]), (&made["grant"], &2.into()), "each opening is counted: {grants:?}");
    let elsewhere = person.small_repo_at(person.root().join("elsewhere"));
    let mut other = start(&person, &elsewhere, &policy, "cat ~/.tool/config || echo refused");
    other.until_out("refused\n");
    other.end(LIMIT).ok();
    for bad in ["~/../x", "~bob", "~/.to*l", ""] {
        add(bad).exits(2);
    }
}

#[test]
fn p2_what_only_a_person_may_open_is_opened_by_no_other_file() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // A repository can hide, and not ask.
    fs::write(repo.path.join(".airlock.toml"), "version = 1\n[files]\nhide = [{ path = \"~/.tool\", on_touch = \"ask\" }]\n")
        .unwrap();
    repo.git(["add", ".airlock.toml"]);
    repo.git(["commit", "-qm", "asks"]);
    let refused = person.run_script(&repo.path, &[], "true").exits(2).err();
    assert!(refused.contains("can't ask for a hidden place"), "{refused}");
    // Airlock's own state is asked about by nobody.
    let elsewhere = person.small_repo_at(person.root().join("elsewhere"));
    for place in [person.data(), person.config(), person.data().join("airlock/tasks"), person.root().to_owned()] {
        let text =
            format!("version = 1\nname = \"own\"\n[files]\nhide = [{{ path = \"{}\", on_touch = \"ask\" }}]\n", place.display());
        let own = person.file("own.toml", &text);
        let said = person.run_script(&elsewhere.path, &["--policy", own.to_str().unwrap()], "true").exits(2).err();
        assert!(said.contains("Airlock's own state"), "{}: {said}", place.display());
    }
}

#[test]
fn p6_nobody_is_asked_about_what_is_not_there_or_lies_in_what_they_denied_and_not_about_much_at_once() {
    let person = Sandbox::new();
    let (repo, policy) = (person.small_repo(), policy(&person));
    for n in 0..40 {
        fs::write(person.home().join(format!(".tool/real{n}")), "x").unwrap();
    }
    let script = "for i in $(seq 40); do stat ~/.tool/made-up-$i; done 2>/dev/null; for i in $(seq 0 39); do cat ~/.tool/real$i; done 2>/dev/null; \
                  echo flooded; read go; ls ~/.tool; read go; cat ~/.tool/key || echo denied; echo end; read go";
    let mut run = start(&person, &repo, &policy, script);
    run.until_out("flooded");
    let open = || person.airlock(["ask", "list", "--json"]).ok().json_lines();
    let asked = open();
    assert!(asked.len() == 8 && asked.iter().all(|a| text(a, "path").contains("real")), "{asked:?}");
    for ask in &asked {
        person.airlock(["ask", "deny", &named(ask)]).ok();
    }
    run.write(b"go\n");
    person.airlock(["ask", "deny", &named(&the_open_ask(&person))]).ok();
    run.write(b"go\n");
    run.until_out("end");
    // While it runs: an ask ends with its run.
    assert_eq!(open(), [] as [Value; 0], "what lies in a place that was denied is denied with it");
    run.write(b"go\n");
    run.end(LIMIT).ok();
}

#[test]
fn p2_a_grant_for_the_place_serves_what_was_asked_about_before_wherever_the_home_is_written() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    drop(policy(&person));
    let whole = person.home().join(".tool");
    let absolute = person.file(
        "absolute.toml",
        &format!(
            "version = 1\nname = \"absolute\"\n[files]\nhide = [{{ path = \"{}\", on_touch = \"ask\" }}]\n[network]\ndefault = \"deny\"\n",
            whole.display()
        ),
    );
    let script =
        "cat ~/.tool/config || echo refused; read go; for i in 1 2 3 4 5; do cat ~/.tool/config && break; sleep 0.2; done";
    let mut run = start(&person, &repo, &absolute, script);
    run.until_out("refused");
    assert_eq!(the_open_ask(&person)["path"], "~/.tool/config");
    let mut c = person.airlock_command(["grant", "add", "~/.tool", "--repo"]);
    c.arg(&repo.path);
    person.finish(c, b"").ok();
    run.write(b"go\n");
    run.until_out("colour = blue");
    run.end(LIMIT).ok();
}

#[test]
fn p2_a_run_is_paused_when_a_hidden_place_is_replaced_outside() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let shared = shared(&person);
    let policy = hiding(&person, "");
    let script =
        format!("cat {0}/secret || cat {0}/open; echo ready; while :; do echo beat >> beats; sleep 0.05; done", shared.display());
    let mut run = start(&person, &repo, &policy, &script);
    run.until_out("openready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let paused = || person.airlock(["task", "show", &task, "--json"]).ok().json()["paused"].clone();
    // What is not hidden may come and go.
    fs::write(shared.join("new"), "new").unwrap();
    fs::rename(shared.join("new"), shared.join("open")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(paused(), Value::Null);
    // As an editor saves.
    fs::write(shared.join(".new"), "second").unwrap();
    fs::rename(shared.join(".new"), shared.join("secret")).unwrap();
    eventually("it is paused", LIMIT, || (paused() == "limit").then_some(()));
    let detail = eventually("it is told", LIMIT, || {
        events(&person, &task).iter().find(|e| e["kind"] == "limit" && e["limit"] == "hide").map(|e| text(e, "detail"))
    });
    assert!(detail.contains("shared/secret") && detail.contains("airlock task stop"), "{detail}");
    person.airlock(["task", "stop", &task]).ok();
    run.end(LIMIT);
}

#[test]
fn p2_a_limit_that_is_raised_lets_no_run_on_that_would_see_what_is_hidden() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let shared = shared(&person);
    let policy = hiding(&person, "[limits]\ndisk = \"48MiB\"\n");
    let script = "for i in $(seq 16); do head -c 5000000 /dev/zero > f$i; sleep 0.5; done; echo all; sleep 600";
    let mut run = start(&person, &repo, &policy, script);
    let ask = the_open_ask(&person);
    assert_eq!(ask["limit"], "limits.disk", "{ask}");
    let task = text(&ask, "task");
    let show = || person.airlock(["task", "show", &task, "--json"]).ok().json();
    eventually("it is paused", LIMIT, || (show()["paused"] == "limit").then_some(()));
    fs::write(shared.join(".new"), "second").unwrap();
    fs::rename(shared.join(".new"), shared.join("secret")).unwrap();
    eventually("it is told", LIMIT, || {
        events(&person, &task).iter().any(|e| e["kind"] == "limit" && e["limit"] == "hide").then_some(())
    });
    person.airlock(["ask", "allow", &named(&ask)]).ok();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((&show()["paused"], run.out()), (&"limit".into(), String::new()), "it stays");
    person.airlock(["task", "continue", &task]).ok();
    run.until_out("all");
    person.airlock(["task", "stop", &task]).ok();
    run.end(LIMIT);
}

/// A directory that a run is shown, with a file in it that is hidden.
fn shared(person: &Sandbox) -> PathBuf {
    let shared = person.home().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("secret"), "first").unwrap();
    fs::write(shared.join("open"), "open").unwrap();
    shared
}

fn hiding(person: &Sandbox, limits: &str) -> PathBuf {
    let text = format!(
        "version = 1\nname = \"shared\"\n[files]\nread = [\"~/shared\"]\nhide = [{{ path = \"~/shared/secret\" }}]\n\
         [network]\ndefault = \"deny\"\n{limits}"
    );
    person.file("shared.toml", &text)
}
