//! The control plane: Airlock's own sockets, programs, files and settings, and what the person's desktop and tools obey.

use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use testkit::treehash::treehash;
use testkit::{Ended, Repo, Sandbox, eventually, not_tested_here};

const WARDEN: &str = include_str!("programs/warden.py");
const PLANT: &str = include_str!("programs/plant.sh");

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("`{field}` in {value}")).to_owned()
}

fn said(controls: usize, held: usize) {
    println!(
        "attacks: {controls} controls succeeded, {held} held inside ({}; 0 without a control here)",
        testkit::wait::column()
    );
}

/// A run that goes on.
fn long_run(person: &Sandbox, repo: &Repo<'_>) -> String {
    text(
        &person.airlock(["run", "--detach", "--json", "--repo", repo.path.to_str().unwrap(), "--", "sleep", "1000"]).ok().json(),
        "task",
    )
}

fn state(person: &Sandbox, task: &str) -> String {
    text(&person.airlock(["task", "show", task, "--json"]).ok().json(), "state")
}

#[test]
fn p6_no_warden_is_spoken_to() {
    if !Path::new("/usr/bin/python3").exists() {
        return not_tested_here("python3");
    }
    let person = Sandbox::new();
    let repo = person.small_repo();
    let victim = long_run(&person, &repo);
    let socket = person.runtime().join("airlock").join(format!("{victim}.sock"));
    assert!(socket.exists(), "the warden's socket is where a program of the person finds it");
    // By its path, by whatever stands in the runtime directory, and by every socket file that can be found.
    let script = format!(
        "cat > speak.py <<'END'\n{WARDEN}\nEND\n\
         for s in '{0}' /proc/self/root'{0}' \"$XDG_RUNTIME_DIR\"/airlock/*.sock $(find / -name '*.sock' -not -path '/proc/*' 2>/dev/null); do \
         /usr/bin/python3 speak.py \"$s\"; done; true",
        socket.display()
    );
    let own = person.run_script(&repo.path, &[], &script).ok().json();
    assert_eq!(state(&person, &victim), "running", "nothing inside ended the other run");
    assert_eq!(own["exit"], 0, "nor its own: {own}");
    let mut outside = person.command("/usr/bin/python3");
    outside.arg("-c").arg(WARDEN).arg(&socket);
    person.finish(outside, b"").ok();
    eventually("the control ends the run", Duration::from_secs(30), || (state(&person, &victim) != "running").then_some(()));
    said(1, 1);
}

#[test]
fn p6_airlocks_own_programs_reach_nothing_from_inside() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let victim = text(&person.run_script(&repo.path, &[], "echo new > new").ok().json(), "task");
    let tree = text(&person.airlock(["diff", &victim, "--json"]).ok().json(), "tree");
    // As where Airlock is installed among the system's programs, which every jail shows.
    let shown = tempfile::Builder::new().prefix("airlock-test-").tempdir_in("/var/tmp").unwrap();
    let bin = shown.path();
    for name in ["airlock", "airlock-warden", "airlock-jail"] {
        fs::copy(testkit::program(name), bin.join(name)).unwrap();
    }
    let policy = person.file(
        "shown.toml",
        &format!("version = 1\nname = \"shown\"\n[files]\nread = [\"{}\"]\n[network]\ndefault = \"deny\"\n", bin.display()),
    );
    let before = treehash(&repo.path).unwrap();
    let words = format!(
        "export XDG_DATA_HOME='{data}' XDG_CONFIG_HOME='{config}'; B='{bin}'; test -x \"$B/airlock\" || exit 9; \
         for d in '{data}' \"$HOME/.local/share\"; do export XDG_DATA_HOME=\"$d\"; \
         \"$B/airlock\" task list; \"$B/airlock\" ask allow 1; \"$B/airlock\" ask list; \"$B/airlock\" task stop {victim}; \
         \"$B/airlock\" review {victim} --tree {tree} --accept . --approve; \"$B/airlock\" apply {victim} --tree {tree}; \
         \"$B/airlock\" task discard {victim}; \"$B/airlock\" repo forget '{repo}'; \
         \"$B/airlock\" run --repo . -- touch '{root}/from-inside'; done; \
         \"$B/airlock-warden\" run </dev/null; \"$B/airlock-warden\" keeper candidate; \"$B/airlock-jail\" </dev/null; true",
        data = person.data().display(),
        config = person.config().display(),
        bin = bin.display(),
        repo = repo.path.display(),
        root = person.root().display(),
    );
    person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], &words).ok();
    let tasks = |person: &Sandbox| person.airlock(["task", "list", "--json"]).ok().json_lines();
    assert_eq!(tasks(&person).len(), 2, "no task of another was made or lost: {:?}", tasks(&person));
    assert!(person.task_dir(&victim).join("tree/new").exists(), "the other task is there with its files");
    assert_eq!(person.airlock(["repo", "list", "--json"]).ok().json_lines().len(), 1);
    assert!(before.difference(&treehash(&repo.path).unwrap()).is_empty(), "nothing was applied");
    assert!(!person.root().join("from-inside").exists());
    // The same words outside do all of it.
    let mut outside = person.command("/bin/sh");
    outside.arg("-c").arg(&words).current_dir(&repo.path);
    person.finish(outside, b"").ok();
    let gone = !person.task_dir(&victim).join("tree/new").exists();
    let applied = !before.difference(&treehash(&repo.path).unwrap()).is_empty();
    assert!(gone && applied, "outside it is applied ({applied}) and discarded ({gone})");
    said(1, 1);
}

#[test]
fn p2_a_policy_that_the_agent_wrote_widens_nothing() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let shows = |task: &str| person.airlock(["policy", "show", task]).ok().out();
    let script = "printf 'version = 1\\n[network]\\ndefault = \"deny\"\\n' > .airlock.toml; git add -A; git commit -qm narrower; \
                  mkdir -p ~/.config/airlock/policies ~/.config/airlock/kits; printf 'version = 1\\nname = \"standard\"\\n' > ~/.config/airlock/policies/standard.toml; \
                  cp ~/.config/airlock/policies/standard.toml ~/.config/airlock/kits/shell.toml";
    let first = text(&person.run_script(&repo.path, &[], "true").ok().json(), "task");
    let usual = shows(&first);
    let task = text(&person.run_script(&repo.path, &[], script).ok().json(), "task");
    assert_eq!(shows(&task), usual, "the file of the base commit counts, and the person's own policies");
    let next = text(&person.run_script(&repo.path, &[], "true").ok().json(), "task");
    assert_eq!(shows(&next), usual, "and for the next task too");
    // What the person commits, and what they write, does count.
    repo.write(".airlock.toml", "version = 1\n[network]\ndefault = \"deny\"\n");
    repo.commit("narrower");
    let narrower = text(&person.run_script(&repo.path, &[], "true").ok().json(), "task");
    assert_ne!(shows(&narrower), usual, "the control: a file that the person committed changes what is in force");
    said(1, 1);
}

/// `plant.sh` against a home and a repository.
fn planted(person: &Sandbox, home: &Path, repo: &Path, canary: &Path) -> Ended {
    let mut c = person.command("/bin/sh");
    c.arg("-c").arg(PLANT).arg("plant.sh").args([home, repo, canary]);
    person.finish(c, b"").ok()
}

#[test]
fn p9_what_is_left_for_the_persons_tools_is_obeyed_by_none() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let canary = person.root().join("canary");
    let homes = |person: &Sandbox| treehash(&person.home()).unwrap();
    let config = treehash(&person.config()).unwrap();
    let before = homes(&person);
    let plant = format!(
        "cat > /tmp/plant.sh <<'END'\n{PLANT}\nEND\nsh /tmp/plant.sh \"$HOME\" \"$PWD\" '{0}'; sh /tmp/plant.sh '{1}' '{2}' '{0}'; true",
        canary.display(),
        person.home().display(),
        repo.path.display(),
    );
    let task = text(&person.run_script(&repo.path, &[], &plant).ok().json(), "task");
    let tree = text(&person.airlock(["diff", &task, "--json"]).ok().json(), "tree");
    person.airlock(["diff", &task, "--stat"]).ok();
    person.airlock(["review", &task, "--tree", &tree, "--accept", ".", "--approve", "--json"]).ok();
    person.airlock(["apply", &task, "--tree", &tree, "--onto", "agents-work", "--json"]).ok();
    person.airlock(["undo", &task, "--json"]).ok();
    person.run_script(&repo.path, &[], "true").ok();
    assert!(!canary.exists(), "none of Airlock's own steps ran what the agent left");
    let differs = before.difference(&homes(&person));
    assert!(
        differs.iter().all(|l| l.contains("/small/.git/objects/")),
        "the home is as it was, but for the objects that were applied: {differs:#?}"
    );
    assert!(config.difference(&treehash(&person.config()).unwrap()).is_empty(), "and so are their settings");

    // The same, left where a person's own git and shell work.
    let mine = person.small_repo_at(person.root().join("mine"));
    planted(&person, &person.root().join("home-of-control"), &mine.path, &canary);
    let mut status = person.command("/usr/bin/git");
    status.arg("-C").arg(&mine.path).arg("status");
    person.finish(status, b"");
    assert!(canary.exists(), "the control: a person's own git runs what was left");
    said(1, 1);
}

/// A session bus with a service that it starts when it is asked for.
struct Bus {
    daemon: std::process::Child,
    address: String,
}

impl Bus {
    fn start(person: &Sandbox, canary: &Path) -> Option<Self> {
        let services = person.file(
            "services/org.example.Canary.service",
            &format!("[D-BUS Service]\nName=org.example.Canary\nExec=/usr/bin/touch {}\n", canary.display()),
        );
        let socket = person.runtime().join("bus");
        let config = person.file(
            "bus.conf",
            &format!(
                "<busconfig><type>session</type><listen>unix:path={}</listen><servicedir>{}</servicedir>\
                 <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
                socket.display(),
                services.parent().unwrap().display()
            ),
        );
        let mut daemon = person.command("dbus-daemon");
        daemon.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nosyslog"]);
        let daemon = daemon.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().ok()?;
        let bus = Self { daemon, address: format!("unix:path={}", socket.display()) };
        eventually("the bus", Duration::from_secs(20), || UnixStream::connect(&socket).ok());
        Some(bus)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

#[test]
fn p6_no_session_bus_starts_anything() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let canary = person.root().join("canary");
    let Some(bus) = Bus::start(&person, &canary) else { return not_tested_here("dbus-daemon") };
    let ask = "dbus-send --session --reply-timeout=3000 --print-reply --dest=org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus.StartServiceByName string:org.example.Canary uint32:0";
    let words = format!(
        "{ask}; DBUS_SESSION_BUS_ADDRESS='{0}' {ask}; DBUS_SESSION_BUS_ADDRESS=\"unix:path=$XDG_RUNTIME_DIR/bus\" {ask}; \
         DBUS_SESSION_BUS_ADDRESS=autolaunch: {ask}; systemd-run --user touch '{1}'; true",
        bus.address,
        canary.display()
    );
    // With the address in the starter's environment, as in a session.
    let mut c = person.airlock_command(["run", "--json", "--repo"]);
    c.arg(&repo.path).args(["--", "sh", "-c", &words]).env("DBUS_SESSION_BUS_ADDRESS", &bus.address);
    person.finish(c, b"").ok();
    assert!(!canary.exists(), "the bus started nothing for a program in a jail");
    let mut outside = person.command("/bin/sh");
    outside.arg("-c").arg(&words).env("DBUS_SESSION_BUS_ADDRESS", &bus.address);
    person.finish(outside, b"");
    eventually("the control: the bus starts the service", Duration::from_secs(30), || canary.exists().then_some(()));
    said(1, 1);
}

#[test]
fn p2_no_agent_of_keys_answers() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let socket = person.runtime().join("agent");
    let mut agent = person.command("ssh-agent");
    agent.args(["-D", "-a"]).arg(&socket).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let Ok(mut agent) = agent.spawn() else { return not_tested_here("ssh-agent") };
    eventually("the agent", Duration::from_secs(20), || UnixStream::connect(&socket).ok());
    let key = person.root().join("key");
    let mut make = person.command("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-C", "airlock-canary-key", "-f"]).arg(&key);
    person.finish(make, b"").ok();
    let mut add = person.command("ssh-add");
    add.arg(&key).env("SSH_AUTH_SOCK", &socket);
    person.finish(add, b"").ok();
    let words = format!(
        "ssh-add -L; SSH_AUTH_SOCK='{0}' ssh-add -L; SSH_AUTH_SOCK=/proc/self/root'{0}' ssh-add -L; true",
        socket.display()
    );
    let mut inside = person.airlock_command(["run", "--repo"]);
    inside.arg(&repo.path).args(["--", "sh", "-c", &words]).env("SSH_AUTH_SOCK", &socket);
    let inside = person.finish(inside, b"").ok();
    let mut outside = person.command("/bin/sh");
    outside.arg("-c").arg(&words).env("SSH_AUTH_SOCK", &socket);
    let outside = person.finish(outside, b"").ok();
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(outside.out().contains("airlock-canary-key"), "the control: outside the agent names its key: {}", outside.said());
    assert!(!inside.out().contains("airlock-canary-key"), "inside it does not: {}", inside.said());
    said(1, 1);
}
