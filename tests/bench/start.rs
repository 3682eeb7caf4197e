//! Start, exec and exit of `/bin/true` in a jail, against bubblewrap with like mounts and against another sandbox for agents.

use crate::{Side, compare};
use model::id::{RunId, TaskId};
use model::layout::{Layout, TaskDir};
use model::run::{PolicyText, RunSpec};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use supervise::compose::Grants;
use supervise::decoy::{Decoys, Places};
use supervise::notify::Notify;
use supervise::who::{JailRef, Who};
use testkit::Sandbox;

fn timed(mut command: Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let ended = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let took = start.elapsed();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    took
}

/// Like mounts: system directories read-only, own /proc, /dev, /tmp and home, the workspace writable, all namespaces.
fn bubblewrap(person: &Sandbox, workspace: &Path) -> Command {
    let mut c = person.command("bwrap");
    c.args(["--unshare-all", "--die-with-parent", "--new-session", "--hostname", "jail", "--ro-bind", "/usr", "/usr"]);
    for dir in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt"] {
        c.args(["--ro-bind-try", dir, dir]);
    }
    c.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs"]).arg(person.home());
    c.arg("--bind").args([workspace, workspace]).arg("--chdir").arg(workspace).arg("/bin/true");
    c
}

/// An agent's jail as a warden makes it: way out, notifications and decoy served, on a task that was made before.
fn jail(person: &Sandbox, repo: &Path) -> impl FnMut() -> Duration + use<> {
    let made = person.run_script(repo, &[], "true").ok().json();
    let id = |field: &str| made[field].as_str().expect("an id").to_owned();
    let layout = Layout {
        data: person.data().join("airlock"),
        config: person.config().join("airlock"),
        runtime: person.runtime().join("airlock"),
    };
    let spec = RunSpec {
        version: model::protocol::VERSION,
        task: TaskId::parse(&id("task")).expect("an id"),
        run: RunId::parse(&id("run")).expect("an id"),
        dir: TaskDir(person.task_dir(&id("task"))),
        layout,
        workspace: repo.to_owned(),
        home: person.home(),
        history: Vec::new(),
        policy: PolicyText { name: "standard".into(), text: String::new(), repository: None },
        argv: vec!["/bin/true".into()],
        env: Vec::new(),
        host_env: Vec::new(),
        tools: Vec::new(),
        stdio: model::run::Stdio::Pipes,
        hostname: "bench".into(),
        jail_program: testkit::program("airlock-jail"),
        git_program: PathBuf::from("/usr/bin/git"),
    };
    let grants = Grants {
        read: Vec::new(),
        write: Vec::new(),
        hide: Vec::new(),
        env: Vec::new(),
        processes: 1024,
        open_files: 700,
        network: true,
        tools: true,
        accept: Vec::new(),
    };
    move || {
        let start = Instant::now();
        let plan = supervise::compose::agent(&spec, &grants).expect("nothing is granted twice");
        let null = || std::fs::File::options().read(true).write(true).open("/dev/null").expect("/dev/null opens").into();
        let mut jail = supervise::spawn(&plan, &spec.jail_program, Some([null(), null(), null()])).expect("the jail stands");
        let init_pid = u32::try_from(jail.pid).expect("a process id");
        let writable = vec![spec.workspace.clone(), spec.home.clone(), "/tmp".into()];
        let who = Who::new(JailRef { init_pid, writable, ..JailRef::default() }).expect("the jail can be looked at");
        let notify = jail.notify.take().map(|fd| Notify::serve(fd, Arc::clone(&who), |_| {}).expect("calls are observed"));
        let place = Places::Root(person_place(&spec));
        let owner = (plan.identity.uid, plan.identity.gid);
        let decoys = jail.fuse.take().map(|fd| Decoys::serve(fd, place, owner, Arc::clone(&who), |_| {}).expect("a decoy"));
        jail.go().expect("the command runs");
        let ended = jail.wait().expect("the jail ends");
        let took = start.elapsed();
        assert_eq!(ended.exit, Some(0), "/bin/true in the jail");
        drop((decoys, notify));
        took
    }
}

fn person_place(spec: &RunSpec) -> model::path::RawPath {
    model::path::RawPath::from(spec.home.join(".ssh").as_os_str().as_encoded_bytes())
}

pub(crate) fn table(person: &Sandbox, peer: Option<&Path>, rounds: usize) -> Value {
    let repo = person.small_repo_at(person.projects().join("start"));
    let settings = person.file(
        "peer.json",
        r#"{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":["~/.ssh"],"allowWrite":["."],"denyWrite":[]}}"#,
    );
    let mut sides = vec![
        Side::new("Airlock's jail, with way out and sensors", jail(person, &repo.path)),
        Side::new("bubblewrap, like mounts", || timed(bubblewrap(person, &repo.path))),
    ];
    if let Some(peer) = peer {
        let (repo, settings) = (repo.path.clone(), settings.clone());
        sides.push(Side::new("@anthropic-ai/sandbox-runtime", move || {
            let mut c = person.command("node");
            c.arg(peer).arg("-s").arg(&settings).arg("/bin/true").current_dir(&repo);
            timed(c)
        }));
    }
    sides.push(Side::new("`airlock run --rm`: task, jail, candidate, discard", || {
        let mut c = person.airlock_command(["run", "--rm", "--repo"]);
        c.arg(&repo.path).args(["--", "/bin/true"]);
        timed(c)
    }));
    compare("start, exec and exit of /bin/true", rounds, &mut sides)
}
