//! Start, exec and exit of `/bin/true` in a jail, against bubblewrap with the same mounts and against other sandboxes for agents.

use crate::jail::{Task, nothing};
use crate::side::{Measured, Side, Table, compare};
use jail_plan::{Access, Identity, Landlock, Limits, Net, Plan, Raw, Stdio as Streams, Step};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::Sandbox;

/// From spawn to wait; a command that does not end well was no sandbox that ran.
fn timed(mut command: Command) -> Measured {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let ended = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let took = start.elapsed();
    match ended.status.success() {
        true => Ok(took),
        false => Err(format!("{}; it said: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim())),
    }
}

/// What bubblewrap and the like jail show, read-only.
const SHOWN: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt"];

/// System directories read-only, own /proc, /dev, /tmp and home, the workspace writable, all namespaces.
pub(crate) fn bubblewrap(person: &Sandbox, workspace: &Path, argv: &[&str]) -> Command {
    let mut c = person.command("bwrap");
    c.args(["--unshare-all", "--die-with-parent", "--new-session", "--hostname", "jail"]);
    for dir in SHOWN {
        match std::fs::read_link(dir) {
            Ok(to) => c.arg("--symlink").arg(to).arg(dir),
            Err(_) => c.args(["--ro-bind-try", dir, dir]),
        };
    }
    c.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs"]).arg(person.home());
    c.arg("--bind").args([workspace, workspace]).arg("--chdir").arg(workspace).args(argv);
    c
}

/// The same jail of Airlock's: bubblewrap's mounts and namespaces, no way out and nothing watched; Landlock and the system
/// call filter are always on.
fn like_bubblewrap(person: &Sandbox, workspace: &Path) -> Plan {
    let bind = |source: &Path, access, optional| Step::Bind {
        source: Raw::from(source),
        target: Raw::from(source),
        access,
        recursive: true,
        idmapped: false,
        optional,
    };
    let at = Raw::from;
    let shown = |dir: &&'static str| match std::fs::read_link(dir) {
        Ok(to) => Step::Symlink { target: Raw::from(*dir), points_to: Raw::from(to) },
        Err(_) => bind(Path::new(dir), Access::Read, true),
    };
    let mut root: Vec<Step> = SHOWN.iter().map(shown).collect();
    root.extend([
        Step::Proc { target: at("/proc") },
        Step::Dev { target: at("/dev"), more: Vec::new() },
        Step::Devpts { target: at("/dev/pts") },
        Step::Tmpfs { target: at("/tmp"), mode: 0o1777, size: 1 << 30 },
        Step::Tmpfs { target: Raw::from(person.home()), mode: 0o700, size: 1 << 30 },
        bind(workspace, Access::Write, false),
    ]);
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    Plan {
        nested: false,
        version: jail_plan::VERSION,
        hostname: "jail".into(),
        identity: Identity { uid, gid, mapped: None },
        root,
        net: Net::None,
        stdio: Streams::Inherit,
        limits: Limits {
            processes: 1024,
            cpus: None,
            open_files: 700,
            file_size: None,
            inotify_instances: 32,
            inotify_watches: 65_536,
        },
        landlock: Landlock {
            writable: [at("/tmp"), at("/dev"), at("/proc"), Raw::from(person.home()), Raw::from(workspace)].to_vec(),
            readable: vec![at("/")],
            listed: vec![],
        },
        looks_beneath: false,
        fallback: None,
        notify: false,
        require: Vec::new(),
        argv: vec![at("/bin/true")],
        env: vec![(at("PATH"), at("/usr/bin:/bin"))],
        cwd: Raw::from(workspace),
    }
}

const BUBBLEWRAP: &str = "bubblewrap";
const CODEX: &str = "codex sandbox";
const SRT: &str = "@anthropic-ai/sandbox-runtime";

/// `script` says where the script of a peer for Node is.
pub(crate) fn table<'a>(person: &Sandbox, script: &dyn Fn(&str) -> Measured<&'a Path>, rounds: usize) -> Table {
    let repo = person.small_repo_at(person.projects().join("start"));
    let settings = person.file(
        "peer.json",
        r#"{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":["~/.ssh"],"allowWrite":["."],"denyWrite":[]}}"#,
    );
    let task = Task::new(person, &repo.path);
    let plan = like_bubblewrap(person, &repo.path);
    let ended = |start: Instant, jail: &supervise::Jail| -> Measured {
        let ended = jail.wait().map_err(|e| e.to_string())?;
        let took = start.elapsed();
        if ended.exit == Some(0) { Ok(took) } else { Err(format!("/bin/true ended with {ended:?}")) }
    };
    let bare = || -> Measured {
        let start = Instant::now();
        let jail = supervise::spawn(&plan, &testkit::program("airlock-jail"), Some(nothing())).map_err(|e| e.to_string())?;
        jail.go().map_err(|e| e.to_string())?;
        ended(start, &jail)
    };
    let everything = || -> Measured {
        let start = Instant::now();
        let running = task.start(&["/bin/true"], &[])?;
        ended(start, &running.jail)
    };
    let node = |name: &str, words: &[&OsStr]| -> Measured {
        let mut c = person.command("node");
        c.arg(script(name)?).args(words).current_dir(&repo.path);
        timed(c)
    };
    let mut sides = [
        Side::new(BUBBLEWRAP, || timed(bubblewrap(person, &repo.path, &["/bin/true"]))),
        Side::new("Airlock's jail, bubblewrap's mounts", bare).at_most(1.0, BUBBLEWRAP),
        Side::new("Airlock's jail, everything on", everything)
            .at_most(2.0, BUBBLEWRAP)
            .at_most(1.0 / 4.0, CODEX)
            .at_most(1.0 / 25.0, SRT),
        Side::new(CODEX, || node("codex", &["sandbox", "--", "/bin/true"].map(OsStr::new))),
        Side::new(SRT, || node("srt", &[OsStr::new("-s"), settings.as_os_str(), OsStr::new("/bin/true")])),
        Side::new("`airlock run --rm`: task, jail, candidate, discard", || {
            let mut c = person.airlock_command(["run", "--rm", "--repo"]);
            c.arg(&repo.path).args(["--", "/bin/true"]);
            timed(c)
        }),
    ];
    compare("start, exec and exit of /bin/true", rounds, &mut sides)
}
