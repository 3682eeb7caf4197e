//! Bad input: a clear error, nothing left behind, nothing lost. Where a kind of repository can be worked on, it is.

use crate::steps::{apply, approve, candidate, look, review, run_of, show, text, untouched};
use model::path::RawPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::airlock::LIMIT;
use testkit::{Ended, Live, Repo, Sandbox, eventually};

/// What a refusal must be: the exit code, words that help, no panic, and no trace.
#[track_caller]
fn refused(person: &Sandbox, what: &str, ended: Ended, codes: &[i32], words: &[&str]) {
    let said = ended.err();
    assert!(codes.contains(&ended.code()), "{what}: the exit code is one of {codes:?}\n{}", ended.said());
    for word in words {
        assert!(said.to_lowercase().contains(&word.to_lowercase()), "{what}: the message says {word:?}\n{}", ended.said());
    }
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{what}: an error is no crash\n{}", ended.said());
    assert!(said.trim().lines().count() <= 12, "{what}: the message is short\n{}", ended.said());
    nothing_left(person, what);
}

/// No task's directory, no warden.
#[track_caller]
fn nothing_left(person: &Sandbox, what: &str) {
    let tasks = person.data().join("airlock/tasks");
    let left: Vec<PathBuf> = std::fs::read_dir(&tasks).into_iter().flatten().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "{what}: nothing is left behind, but {left:?}");
    assert!(person.wardens().is_empty(), "{what}: no warden is left");
}

/// `airlock run --repo REPO OPTIONS --json -- sh -c 'echo x > x.txt'`.
fn run(person: &Sandbox, repo: &Path) -> Ended {
    person.run_script(repo, &[], "echo x > x.txt")
}

/// The whole way on a repository that can be worked on; `onto` as given.
#[track_caller]
fn works(person: &Sandbox, what: &str, repo: &Repo<'_>, onto: &[&str]) {
    let before = look(&repo.path);
    let ended = run(person, &repo.path);
    assert_eq!(ended.code(), 0, "{what}: a run works\n{}", ended.said());
    untouched(&before, &repo.path, &format!("{what}: after a run"));
    let ran = ended.json();
    let task = text(&ran, "task");
    let reviewed = approve(person, &task, &text(&ran, "tree"), &["x.txt"], &[]);
    assert_eq!(reviewed["files"].as_array().map(Vec::len), Some(1), "{what}: only what it made has changed: {reviewed}");
    apply(person, &task, &text(&reviewed, "result"), onto).ok();
    assert_eq!(
        repo.show(onto.last().unwrap_or(&"HEAD"), "x.txt").as_deref(),
        Some(&b"x\n"[..]),
        "{what}: the file is on the branch"
    );
    person.airlock(["task", "discard", &task]).ok();
}

#[test]
fn what_is_no_repository_is_refused() {
    let person = Sandbox::new();
    let plain = person.projects().join("plain");
    std::fs::create_dir(&plain).unwrap();
    refused(&person, "not a repository", run(&person, &plain), &[2, 5], &["repository"]);
    refused(&person, "no directory", run(&person, &plain.join("nowhere")), &[2, 5], &["nowhere"]);
    let file = person.file("home/projects/file", "x");
    refused(&person, "a file", run(&person, &file), &[2, 5], &["file"]);
}

#[test]
fn a_repository_without_a_working_tree_or_a_commit_is_refused() {
    let person = Sandbox::new();
    let bare = person.empty_repo_at(person.projects().join("bare.git"), &["--bare"]);
    refused(&person, "bare", run(&person, &bare.path), &[2, 6], &["bare"]);
    let empty = person.empty_repo_at(person.projects().join("empty"), &[]);
    refused(&person, "no commit yet", run(&person, &empty.path), &[2, 6], &["commit"]);
    let inside = person.small_repo().path.join(".git");
    refused(&person, "inside .git", run(&person, &inside), &[2, 5, 6], &["git"]);
}

#[test]
fn places_that_hold_airlocks_own_data_are_no_repository() {
    let person = Sandbox::new();
    person.small_repo_at(person.home());
    refused(&person, "the home", run(&person, &person.home()), &[2, 3, 6], &["home"]);
    person.small_repo_at(person.root());
    refused(&person, "above Airlock's data", run(&person, person.root()), &[2, 3, 6], &[]);
    refused(&person, "the root", run(&person, Path::new("/")), &[2, 3, 5, 6], &[]);
    let below = person.small_repo_at(person.data().join("airlock/mine"));
    refused(&person, "below Airlock's data", run(&person, &below.path), &[2, 3, 6], &["airlock"]);
    let config = person.small_repo_at(person.config().join("airlock"));
    refused(&person, "Airlock's configuration", run(&person, &config.path), &[2, 3, 6], &["airlock"]);
}

#[test]
fn unusual_repositories_can_be_worked_on() {
    let person = Sandbox::new();
    let (_main, side) = person.linked_worktree();
    works(&person, "a linked worktree", &side, &[]);
    works(&person, "with a submodule", &person.repo_with_submodule(), &[]);
    works(&person, "`.git` is a symlink", &person.symlinked_git(), &[]);
    let named = person.small_repo_at(person.projects().join("named"));
    named.git(["branch", "-m", "airlock"]);
    works(&person, "a branch named airlock", &named, &[]);
    let below = person.small_repo_at(person.projects().join("below"));
    let subdirectory = run(&person, &below.path.join("src")).ok().json();
    assert_eq!(subdirectory["exit"], 0, "a directory inside a repository stands for it");
}

#[test]
fn a_detached_head_needs_a_branch_to_apply_onto() {
    let person = Sandbox::new();
    let repo = person.detached_repo();
    let ran = run(&person, &repo.path).ok().json();
    let task = text(&ran, "task");
    let result = text(&approve(&person, &task, &text(&ran, "tree"), &["x.txt"], &[]), "result");
    let before = look(&repo.path);
    let ended = apply(&person, &task, &result, &[]).exits(2);
    assert!(ended.err().contains("--onto"), "says what to do\n{}", ended.said());
    untouched(&before, &repo.path, "after an apply that had no branch");
    apply(&person, &task, &result, &["--onto", "main"]).ok();
    assert_eq!(repo.show("main", "x.txt").as_deref(), Some(&b"x\n"[..]));
}

#[test]
fn formats_that_libraries_refuse_work_or_are_refused_clearly() {
    let person = Sandbox::new();
    let formats: [(&str, &[&str]); 2] = [("SHA-256", &["--object-format=sha256"]), ("reftable", &["--ref-format=reftable"])];
    for (what, options) in formats {
        let path = person.projects().join(what);
        let mut init = person.command("git");
        init.args(["init", "-q"]).args(options).arg(&path);
        if !init.output().unwrap().status.success() {
            testkit::not_tested_here(&format!("git that makes {what} repositories"));
            continue;
        }
        let repo = person.small_repo_at(path);
        let before = look(&repo.path);
        let ended = run(&person, &repo.path);
        if ended.code() == 0 {
            person.airlock(["task", "discard", &text(&ended.json(), "task")]).ok();
            works(&person, what, &repo, &[]);
        } else {
            refused(&person, what, ended, &[2, 6, 7], &[]);
            untouched(&before, &repo.path, &format!("{what}: after a refusal"));
        }
    }
    let full = person.small_repo();
    full.git(["config", "uploadpack.allowFilter", "true"]);
    let partial = Repo::at(&person, person.projects().join("partial"));
    let from = format!("file://{}", full.path.display());
    let clone = [OsStr::new("clone"), "-q".as_ref(), "--filter=blob:none".as_ref(), from.as_ref(), partial.path.as_ref()];
    full.git(clone);
    works(&person, "a partial clone", &partial, &[]);
    let shallow = Repo::at(&person, person.projects().join("shallow"));
    full.commit("second");
    full.git([OsStr::new("clone"), "-q".as_ref(), "--depth=1".as_ref(), from.as_ref(), shallow.path.as_ref()]);
    works(&person, "a shallow clone", &shallow, &[]);
}

#[test]
fn odd_repository_paths_work_or_are_refused_clearly() {
    let person = Sandbox::new();
    let mut worked = 0;
    let mut paths: Vec<(String, PathBuf)> = Sandbox::odd_names()
        .into_iter()
        .map(|(what, name)| (what.to_owned(), person.projects().join("odd").join(name)))
        .collect();
    paths.push(("4,000 bytes".into(), person.long_dir(4000)));
    for (what, path) in paths {
        let repo = person.small_repo_at(&path);
        let before = look(&repo.path);
        let ended = run(&person, &repo.path);
        if ended.code() == 0 {
            worked += 1;
            untouched(&before, &repo.path, &what);
            let ran = ended.json();
            let task = text(&ran, "task");
            let result = text(&approve(&person, &task, &text(&ran, "tree"), &["x.txt"], &[]), "result");
            apply(&person, &task, &result, &[]).ok();
            assert_eq!(repo.read("x.txt"), "x\n", "{what}");
            person.airlock(["task", "discard", &task]).ok();
        } else {
            refused(&person, &what, ended, &[2, 7], &["path"]);
            untouched(&before, &repo.path, &what);
        }
    }
    assert!(worked >= 4, "spaces, quotes, commas and an option as a name are paths like any other: {worked} worked");
}

#[test]
fn odd_file_names_leave_unharmed() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let mut script = String::from("set -e\nmkdir odd\n");
    let names = Sandbox::odd_names();
    for (i, (_, name)) in names.iter().enumerate() {
        let octal: String = name.as_bytes().iter().map(|b| format!("\\{b:03o}")).collect();
        script.push_str(&format!("name=$(printf '{octal}.'); echo {i} > \"odd/$name\"\n"));
    }
    script.push_str(
        "p=odd/deep; i=0; while [ $i -lt 15 ]; do p=$p/$(printf %0200d $i); i=$((i+1)); done; mkdir -p $p; echo deep > $p/f\n",
    );
    let ran = person.run_script(&repo.path, &[], &script).ok().json();
    untouched(&before, &repo.path, "after odd names");
    let (task, tree) = (text(&ran, "task"), text(&ran, "tree"));
    let shown = review(&person, &task, &tree, &[], &[], false).ok().json();
    let paths: Vec<String> = shown["files"].as_array().unwrap().iter().map(|f| text(f, "path")).collect();
    assert_eq!(paths.len(), names.len() + 1, "{paths:#?}");
    // JSON shows bytes that are no text as escapes; the command line takes the bytes themselves.
    let mut accept = person.airlock_command(["review", &task, "--tree", &tree, "--approve", "--json", "--accept"]);
    accept.args(paths.iter().map(|p| OsStr::from_bytes(&RawPath::from_text(p).0).to_owned()));
    let result = text(&person.finish(accept, b"").ok().json(), "result");
    assert_eq!(result, tree, "everything accepted is the candidate");
    apply(&person, &task, &result, &[]).ok();
    for (i, (what, name)) in names.iter().enumerate() {
        let mut name = name.as_bytes().to_vec();
        name.push(b'.');
        let path = repo.path.join("odd").join(OsStr::from_bytes(&name));
        assert_eq!(std::fs::read(path).ok(), Some(format!("{i}\n").into_bytes()), "{what}: byte by byte");
    }
    assert_eq!(repo.git(["status", "--porcelain"]), "");
}

#[test]
fn a_taken_name_takes_nothing_away() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let first = text(&person.run_script(&repo.path, &["--title", "same"], "echo 1 > one.txt").ok().json(), "task");
    let second = person.run_script(&repo.path, &["--title", "same"], "echo 2 > two.txt");
    if second.code() == 0 {
        let second = text(&second.json(), "task");
        assert_ne!(show(&person, &first)["branch"], show(&person, &second)["branch"], "each task has its own branch");
        let ambiguous = person.airlock(["task", "show", "same"]).exits(2);
        assert!(ambiguous.err().contains("same"), "{}", ambiguous.said());
    } else {
        second.exits(6);
    }
    assert!(person.airlock(["diff", &first]).ok().out().contains("one.txt"));
}

#[test]
fn an_agent_that_can_not_start_is_told() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let start = |argv: &[&str]| {
        let mut c = person.airlock_command(["run", "--json", "--repo"]);
        c.arg(&repo.path).arg("--").args(argv);
        person.finish(c, b"")
    };
    let before = look(&repo.path);
    let told = |what: &str, ended: &Ended, word: &str| {
        assert!([1, 2, 5].contains(&ended.code()), "{what}: {}", ended.said());
        assert!(ended.err().contains(word), "{what}: the message names {word}\n{}", ended.said());
        assert!(!ended.err().contains("panicked"), "{what}: {}", ended.said());
    };
    told("missing", &start(&["no-such-agent"]), "no-such-agent");
    told("missing by path", &start(&["/opt/no/such/agent"]), "/opt/no/such/agent");
    told("not executable", &start(&["./README.md"]), "README.md");
    told("a directory", &start(&["./src"]), "src");
    let kit = person.airlock(["run", "--agent", "no-such-kit", "--repo", repo.path.to_str().unwrap()]);
    told("an unknown kit", &kit, "no-such-kit");
    let missing = person.airlock(["run", "--agent", "claude-code", "--prompt", "x", "--repo", repo.path.to_str().unwrap()]);
    told("a kit whose program is not installed", &missing, "claude");
    untouched(&before, &repo.path, "after agents that did not start");
    assert!(person.wardens().is_empty(), "no warden is left");
}

#[test]
fn a_gigabyte_of_output_fills_no_disk() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let policy =
        person.file("quiet.toml", "version = 1\nname = \"quiet\"\n[network]\ndefault = \"deny\"\n[limits]\noutput = \"1MiB\"\n");
    let ended =
        person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "head -c 1073741824 /dev/zero; echo x > x.txt");
    let ran = ended.ok().json();
    assert_eq!(ran["exit"], 0, "the agent is not ended for it: {ran}");
    let task = text(&ran, "task");
    // The log and its older half, which lies beside it.
    let log = text(&run_of(&person, &task), "log");
    let kept: u64 = [log.clone(), format!("{log}.old")].iter().map(|f| std::fs::metadata(f).unwrap().len()).sum();
    assert!(kept <= 1 << 20, "what is kept stays below the limit: {kept} bytes");
    assert!(kept >= 1 << 18, "something is kept: {kept} bytes");
    assert!(
        crate::steps::events(&person, &task).iter().any(|e| e["kind"] == "limit" && e["limit"] == "output"),
        "and it is told"
    );
}

#[test]
fn traps_in_the_workspace_neither_block_nor_leak() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let before = look(&repo.path);
    let key = person.home().join(".ssh/id_ed25519");
    let script = format!(
        "mkfifo pipe; mknod null c 1 3 2>/dev/null; touch NUL con.txt
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'
        ln -s {key} key-link; ln -s {home} home-link; ln -s /proc/self/root/etc/shadow shadow-link; ln -s loop loop
        mkdir real; echo harmless > real/id_ed25519; echo harmless > plain
        mkdir -p sub/.git && echo 'ref: refs/heads/x' > sub/.git/HEAD
        printf '[core]\\n\\tfsmonitor = touch hooked\\n' >> .git/config
        printf '[submodule \"../x\"]\\n\\tpath = x\\n\\turl = https://example.org/x\\n' > .gitmodules
        echo ready
        while :; do
            rm -rf race; ln -s {ssh} race; rm -f race; cp -r real race
            rm -f plain; ln -s {key} plain; rm -f plain; echo harmless > plain
        done",
        key = key.display(),
        home = person.home().display(),
        ssh = person.home().join(".ssh").display(),
    );
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", &script]);
    let mut agent = Live::start(c);
    agent.until_out("ready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    for _ in 0..8 {
        let diff = person.airlock(["diff", &task]).ok();
        assert!(!diff.out().contains("CANARY"), "no file of the person's is in a candidate\n{}", diff.said());
        assert!(diff.out().contains("key-link"), "a symlink is in it as a symlink\n{}", diff.said());
    }
    person.airlock(["task", "stop", &task]).ok();
    agent.end(LIMIT);
    let diff = person.airlock(["diff", &task, "--json"]).ok();
    let diff_text = diff.out();
    for left_out in ["pipe", "sock"] {
        assert!(diff_text.contains(left_out), "what can't be taken is named: {left_out}\n{}", diff.said());
    }
    assert!(diff_text.contains("disallowed submodule name: ../x"), "and why, in git's words\n{}", diff.said());
    assert!(!person.task_dir(&task).join("tree/hooked").exists(), "the agent's git configuration runs nothing");
    untouched(&before, &repo.path, "after traps");
    let plain = |text: &str| {
        let out = std::process::Command::new("grep").args(["-rl", text]).arg(person.data()).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    // What git keeps is compressed. Each search finds what is there.
    let (harmless, none) = (testkit::objects_that_hold(&person.data(), b"harmless"), Vec::<PathBuf>::new());
    assert!(harmless != none && plain("harmless").contains("real/id_ed25519"), "{harmless:?}");
    assert_eq!(testkit::objects_that_hold(&person.data(), b"CANARY-PRIVATE-KEY"), none, "no object holds the key");
    assert_eq!(plain("CANARY-PRIVATE-KEY"), "", "no copy of the key is in Airlock's data");
}

#[test]
fn a_faulty_policy_file_starts_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let cases = [
        ("an unknown key", "version = 1\nname = \"x\"\n[network]\ndefualt = \"deny\"\n", "defualt", 4),
        ("an unknown section", "version = 1\nname = \"x\"\n[netwrok]\n", "netwrok", 3),
        ("a decision that is none", "version = 1\nname = \"x\"\n[network]\ndefault = \"allow\"\n", "allow", 4),
        ("no TOML", "version = 1\nname = \n", "", 2),
        ("another version", "version = 99\n", "99", 1),
        (
            "an example that fails",
            "version = 1\nname = \"x\"\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"a.test\"\nports = [443]\ndecision = \"allow\"\nexamples = { allow = [\"b.test:443\"] }\n",
            "b.test",
            9,
        ),
        ("Airlock's own data", "version = 1\nname = \"x\"\n[files]\nwrite = [\"~/../data/airlock\"]\n", "", 4),
    ];
    for (what, policy, word, line) in cases {
        let path = person.file("faulty.toml", policy);
        let path = path.to_str().unwrap();
        refused(&person, what, person.run_script(&repo.path, &["--policy", path], "true"), &[2], &[word]);
        let checked = person.airlock(["policy", "check", path]).exits(2);
        let said = format!("{}{}", checked.out(), checked.err());
        assert!(said.contains(&format!("{line}")) && said.contains(word), "{what}: with its line {line}\n{}", checked.said());
    }
    let good = person.file("good.toml", "version = 1\nname = \"good\"\n[network]\ndefault = \"deny\"\n");
    person.airlock(["policy", "check", good.to_str().unwrap()]).ok();
}

#[test]
fn a_full_disk_while_creating_leaves_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // Noise that does not compress.
    let mut noise = vec![0u8; 24 << 20];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut noise).unwrap();
    repo.write("noise.bin", &noise);
    repo.commit("large");
    let before = look(&repo.path);
    let full = |size: &str, then: &str| {
        let airlock = testkit::program("airlock");
        let script = format!("mount -t tmpfs -o size={size} tmpfs \"$1\" && shift && \"$@\"; code=$?; {then}; exit $code");
        let mut c: Command = person.command("unshare");
        c.args(["--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-c", &script, "sh"]).arg(person.data());
        c.arg(airlock).args(["run", "--json", "--repo"]).arg(&repo.path).args(["--", "true"]);
        person.finish(c, b"")
    };
    let probe = person.command("unshare").args(["--user", "--map-current-user", "--keep-caps", "--mount", "true"]).status();
    if !probe.is_ok_and(|s| s.success()) {
        testkit::not_tested_here("user namespaces for an ordinary user");
        return;
    }
    for size in ["64k", "1m", "16m", "40m"] {
        let ended = full(size, "ls \"$XDG_DATA_HOME/airlock/tasks\" >&2");
        assert_eq!(ended.code(), 7, "{size}: the machine failed\n{}", ended.said());
        let said = ended.err().to_lowercase();
        assert!(said.contains("space") || said.contains("full"), "{size}: says that the disk is full\n{}", ended.said());
        assert!(!said.contains("panicked"), "{size}: {}", ended.said());
        let tasks = ended.err().lines().filter(|l| l.len() == 8 && l.bytes().all(|b| model::id::ALPHABET.contains(&b))).count();
        assert_eq!(tasks, 0, "{size}: no task's directory is left\n{}", ended.said());
        untouched(&before, &repo.path, "after a full disk");
    }
}

#[test]
fn a_repository_that_goes_away_while_a_task_runs_loses_no_work() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", "echo ready; read go; echo x > x.txt; git log --oneline; cat src/lib.sh"]);
    let mut agent = Live::start(c);
    agent.until_out("ready");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let away = person.projects().join("moved");
    std::fs::rename(&repo.path, &away).unwrap();
    agent.write(b"go\n");
    let ended = agent.end(LIMIT).ok();
    assert!(ended.out().contains("greet()"), "the agent goes on\n{}", ended.said());
    let tree = candidate(&person, &task);
    let result = text(&approve(&person, &task, &tree, &["x.txt"], &[]), "result");
    let ended = apply(&person, &task, &result, &[]);
    assert!([5, 6].contains(&ended.code()), "{}", ended.said());
    assert!(ended.err().contains("small"), "says which repository is gone\n{}", ended.said());
    std::fs::rename(&away, &repo.path).unwrap();
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.read("x.txt"), "x\n", "once it is back, the work can be applied");

    let ran = person.run_script(&repo.path, &[], "echo y > y.txt").ok().json();
    let task = text(&ran, "task");
    std::fs::remove_dir_all(&repo.path).unwrap();
    assert!(person.airlock(["diff", &task]).ok().out().contains("+y"), "what was made can be seen");
    person.airlock(["task", "list"]).ok();
    person.airlock(["task", "discard", &task]).ok();
    eventually("no warden is left", Duration::from_secs(20), || person.wardens().is_empty().then_some(()));
}
