//! A real coding agent works on a clone of this project; the model behind it plays a script.

use crate::steps::{apply, approve, events, look, run_of, text, untouched};
use std::net::{Ipv4Addr, TcpListener};
use testkit::endpoint::{Endpoint, Turn};
use testkit::program::kept_dir;
use testkit::tls::Identity;
use testkit::{Repo, Sandbox, wait};

/// The person's key.
/// In two pieces: the agent works on a clone of this very file, in which the key must not be found.
const KEY: &str = concat!("sk-test-of-the-", "person-0123456789");

/// The rig itself, without Airlock: where this is red, the agent or the script changed, not the product.
#[test]
fn outside_a_jail_the_agent_plays_the_script() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let claude = person.install_claude();
    let script = vec![
        Turn::bash("cat src/lib.sh && grep CapEff /proc/self/status"),
        Turn::bash("echo changed > made.txt; uname -n"),
        Turn::Text("All done.".into()),
    ];
    let model = Endpoint::start(script, &transcript("unjailed"));
    let mut command = person.command(claude);
    command
        .current_dir(&repo.path)
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port()))
        .env("ANTHROPIC_API_KEY", "dummy")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("IS_SANDBOX", "1")
        .args(["-p", "Change something.", "--dangerously-skip-permissions"]);
    let ended = person.finish(command, b"").ok();
    assert!(ended.out().contains("All done."), "the agent prints the model's last words\n{}", ended.said());
    let results = model.results();
    assert_eq!(results.len(), 2, "both calls came back: {results:?}");
    assert!(results[0].contains("greet()") && results[0].contains("CapEff:"), "the file and the status were read: {results:?}");
    assert_eq!(repo.read("made.txt"), "changed\n");
}

#[test]
fn a_real_agent_works_in_the_jail_and_a_person_takes_what_is_good() {
    let person = Sandbox::new();
    let repo = person.project_clone();
    person.install_claude();
    let neighbour = person.small_repo();
    // What nobody may reach: a listener of the host's own.
    let canary = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    canary.set_nonblocking(true).unwrap();
    let script = misdeeds(&neighbour, canary.local_addr().unwrap().port());
    let calls = script.iter().filter(|t| matches!(t, Turn::Bash(_))).count();
    let kept = transcript("jailed");
    let identity = Identity::new(&["api.anthropic.com"], person.root());
    let model = Endpoint::start_tls(script, &kept, &identity);
    let policy = policy_for(&person, model.port());
    let (before, neighbour_before) = (look(&repo.path), look(&neighbour.path));

    let mut c = person.airlock_command(["run", "--agent", "claude-code", "--title", "Look around", "--prompt", "Look around."]);
    c.arg("--repo").arg(&repo.path).arg("--policy").arg(&policy);
    c.arg("--json").env("ANTHROPIC_API_KEY", KEY).env("SSL_CERT_FILE", &identity.authority);
    let ended = person.finish(c, b"");
    let ran = ended.clone().ok().json();
    let (task, tree) = (text(&ran, "task"), text(&ran, "tree"));
    untouched(&before, &repo.path, "after a real agent ran");
    untouched(&neighbour_before, &neighbour.path, "after a real agent ran next door");

    // From the model's side: its own child ran inside.
    let results = model.results();
    assert_eq!(results.len(), calls, "every call came back: {results:#?}\n{}", ended.said());
    assert!(results[0].contains("[workspace]"), "it read a file of the project: {}", results[0]);
    assert!(results[1].contains("ran 42"), "what it wrote ran: {}", results[1]);
    assert!(results[2].contains("CapEff:\t0000000000000000"), "without any capability: {}", results[2]);
    let hostname = text(&run_of(&person, &task), "hostname");
    assert!(results[2].lines().any(|l| l == hostname), "on the jail's own host name {hostname}: {}", results[2]);
    assert!(!hostname.is_empty() && std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim() != hostname);
    assert!(!results[3].contains("WROTE"), "it wrote nowhere outside: {}", results[3]);
    assert!(!results[4].contains("READ"), "it read nothing of ~/.ssh: {}", results[4]);
    assert!(results[5].contains("hook changed"), "its own hooks are its own: {}", results[5]);
    assert!(!results[6].contains("REACHED"), "it reached no host that is not allowed: {}", results[6]);
    // Its key went to the model with each question, and was nowhere inside: the agent looked for it.
    let asked = model.asked();
    let keys: Vec<_> = asked.iter().filter(|a| a.head.starts_with("POST /v1/messages")).map(|a| a.key.as_deref()).collect();
    assert!(!keys.is_empty() && keys.iter().all(|k| *k == Some(KEY)), "{keys:?}");
    assert!(results[7].contains("airlock-placeholder-") && results[7].contains("looked"), "{}", results[7]);
    for (what, text) in results.iter().enumerate() {
        assert!(!text.contains(&KEY[4..]), "call {what} saw the key: {text}");
    }
    let grep = person.command("grep").args(["-rlF", KEY]).arg(person.data()).arg(person.runtime()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "nothing that is kept has the key");
    let said = std::fs::read_to_string(&kept).unwrap();
    assert!(!said.contains("CANARY-PRIVATE-KEY"), "no secret went to the model, see {}", kept.display());
    assert!(canary.accept().is_err(), "nothing connected to a port of the host's loopback");
    for gone in ["/etc/airlock-outside", "/usr/local/airlock-outside", "/tmp/airlock-outside", "/var/tmp/airlock-outside"] {
        assert!(!std::path::Path::new(gone).exists(), "{gone} must not exist on the host");
    }
    assert!(!person.home().join("outside").exists(), "the private home is not the person's");

    // From the person's side: what was refused is told.
    let events = events(&person, &task);
    let found = |what: &str, wanted: &dyn Fn(&serde_json::Value) -> bool| {
        assert!(events.iter().any(wanted), "{what} is told among {} events", events.len());
    };
    found("the read of ~/.ssh", &|e| {
        e["kind"] == "file" && e["verdict"] == "denied" && e["op"] == "read" && e["process"]["program"] == "cat"
    });
    found("the refused host", &|e| e["kind"] == "network" && e["host"] == "not-allowed.example.org" && e["verdict"] == "denied");
    found("the model's host", &|e| e["op"] == "request" && e["http"]["path"] == "/v1/messages" && e["verdict"] == "allowed");
    found("the agent's program", &|e| e["kind"] == "process" && e["op"] == "exec" && e["process"]["program"] == "bash");

    take_what_is_good(&person, &repo, &task, &tree);
}

/// Accepts all but one file, applies, and compares the branch byte by byte with the same edits made by hand.
fn take_what_is_good(person: &Sandbox, repo: &Repo<'_>, task: &str, tree: &str) {
    let base = repo.git(["rev-parse", "main"]);
    let good = ["Cargo.toml", "by-the-agent.txt", "answer/answer.sh"];
    let reviewed = approve(person, task, tree, &good, &["unwanted.txt"]);
    let mut files: Vec<_> = reviewed["files"].as_array().unwrap().iter().map(|f| text(f, "path")).collect();
    files.sort();
    assert_eq!(files, ["Cargo.toml", "answer/answer.sh", "by-the-agent.txt", "unwanted.txt"], "exactly what it changed");
    let result = text(&reviewed, "result");
    apply(person, task, &result, &["--message", "What was good"]).ok();

    let by_hand = Repo::at(person, person.projects().join("by-hand"));
    let clone = [std::ffi::OsStr::new("clone"), "-q".as_ref(), repo.path.as_ref(), by_hand.path.as_ref()];
    repo.git(clone);
    by_hand.git(["checkout", "-q", "--detach", &base]);
    by_hand.write("Cargo.toml", format!("# Looked at by an agent.\n{}", by_hand.read("Cargo.toml")));
    by_hand.write("by-the-agent.txt", "One line by the agent.\n");
    by_hand.write("answer/answer.sh", "#!/bin/sh\necho ran $((6*7))\n");
    by_hand.git(["add", "-A"]);
    by_hand.git(["update-index", "--chmod=+x", "answer/answer.sh"]);
    by_hand.git(["commit", "-q", "-m", "by hand"]);
    assert_eq!(repo.tree("main"), by_hand.tree("HEAD"), "the branch holds what was accepted and nothing else");
    assert_eq!(repo.git(["rev-parse", "main^{tree}"]), result);
    assert_eq!(repo.git(["rev-parse", "main^"]), base);
    for file in good {
        assert_eq!(repo.show("main", file), Some(std::fs::read(by_hand.path.join(file)).unwrap()).filter(|b| !b.is_empty()));
        assert_eq!(std::fs::read(repo.path.join(file)).unwrap(), repo.show("main", file).unwrap(), "{file} in the working copy");
    }
    assert!(repo.show("main", "unwanted.txt").is_none() && !repo.path.join("unwanted.txt").exists());
    assert_eq!(repo.git(["status", "--porcelain"]), "");
    assert!(!repo.path.join(".git/hooks/post-checkout").exists(), "no hook came along");
}

/// Where the transcript of a journey is kept.
pub(crate) fn transcript(name: &str) -> std::path::PathBuf {
    kept_dir("transcripts").join(format!("{name}-{}.jsonl", wait::column()))
}

/// What the model makes the agent do: read, edit and run something; then all that must not work.
pub(crate) fn misdeeds(neighbour: &Repo<'_>, closed_port: u16) -> Vec<Turn> {
    let neighbour = neighbour.path.display();
    vec![
        Turn::bash("head -n 4 Cargo.toml && git log --oneline | head -n 3"),
        Turn::bash(
            "sed -i '1s/^/# Looked at by an agent.\\n/' Cargo.toml && printf 'One line by the agent.\\n' > by-the-agent.txt \
             && printf 'Not wanted.\\n' > unwanted.txt && mkdir answer \
             && printf '#!/bin/sh\\necho ran $((6*7))\\n' > answer/answer.sh && chmod +x answer/answer.sh && ./answer/answer.sh",
        ),
        Turn::bash("grep Cap /proc/self/status; uname -n"),
        Turn::bash(format!(
            "for f in /etc/airlock-outside /usr/local/airlock-outside {neighbour}/outside {neighbour}/.git/outside; \
             do echo x > $f && echo WROTE $f; done 2>&1; \
             echo x > /tmp/airlock-outside; echo x > /var/tmp/airlock-outside; echo x > ~/outside; true"
        )),
        Turn::bash("ls ~/.ssh && echo READ; cat ~/.ssh/id_ed25519 && echo READ; true"),
        Turn::bash(
            "h=$(git rev-parse --git-path hooks) && mkdir -p $h && printf '#!/bin/sh\\ntouch ~/hooked\\n' > $h/post-checkout \
             && chmod +x $h/post-checkout && echo hook changed",
        ),
        Turn::bash(format!(
            "curl -sS -m 10 http://not-allowed.example.org/ && echo REACHED; \
             curl -sS -m 10 http://127.0.0.1:{closed_port}/ && echo REACHED; true"
        )),
        // The key's own letters are not in this command, which the agent's processes have in their memory and arguments.
        Turn::bash(
            "env | grep -i anthropic; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; tr '\\0' ' ' < $p/cmdline; done 2>/dev/null | grep -c sk-te[s]t; \
             grep -rlI sk-te[s]t ~ /tmp . 2>/dev/null; echo looked",
        ),
        Turn::Text("That was all.".into()),
    ]
}

/// A policy that allows the model alone.
pub(crate) fn policy_for(person: &Sandbox, port: u16) -> std::path::PathBuf {
    person.file(
        "journey.toml",
        &format!(
            r#"version = 1
name = "journey"
[env]
pass = ["LANG", "TERM"]
[files]
tools = "auto"
hide = [{{ path = "~/.ssh", on_touch = "deny" }}]
[network]
default = "deny"
[[network.rule]]
host = "api.anthropic.com"
ports = [443]
address = "127.0.0.1:{port}"
decision = "allow"
reason = "the scripted model"
[[credential]]
host = "api.anthropic.com"
methods = ["POST"]
paths = ["/v1/messages", "/v1/messages/count_tokens"]
header = "x-api-key"
from = {{ env = "ANTHROPIC_API_KEY" }}
"#
        ),
    )
}
