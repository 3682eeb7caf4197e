//! A person's machine in miniature, and a jail on it as the warden would start it.

use jail_plan::{Guarantee, Plan};
use model::id::{RunId, TaskId};
use model::layout::{Layout, TaskDir};
use model::run::{PolicyText, RunSpec, Stdio};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use supervise::compose::{self, Grants};
use supervise::decoy::{Doorkeeper, Doors, Telling};
use supervise::fact::Fact;
use supervise::notify::Notify;
use supervise::who::{JailRef, Who};
use supervise::{Ended, Jail, SpawnError};
use testkit::program;

/// Directories of one person: a home with secrets, a repository in it, Airlock's data, and one task.
pub(crate) struct Room {
    _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) task: TaskDir,
    pub(crate) layout: Layout,
    pub(crate) grants: Grants,
    pub(crate) tools: Vec<PathBuf>,
    pub(crate) history: Vec<PathBuf>,
    pub(crate) stdio: Stdio,
    pub(crate) host_env: Vec<(String, String)>,
    pub(crate) tool_env: Vec<(String, String)>,
    /// Hidden places that are asked about, and who answers.
    pub(crate) asked: Option<(Vec<PathBuf>, Arc<dyn Doorkeeper>)>,
}

/// How a command in a jail went.
#[derive(Debug)]
pub(crate) struct Went {
    pub(crate) ended: Ended,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A running jail with everything that serves it.
pub(crate) struct Running {
    pub(crate) jail: Jail,
    pub(crate) out: Option<std::io::PipeReader>,
    pub(crate) err: Option<std::io::PipeReader>,
    _notify: Option<Notify>,
    pub(crate) decoys: Option<Telling>,
}

pub(crate) const SECRET: &str = "SECRET-OF-THE-PERSON";

impl Room {
    pub(crate) fn new() -> Self {
        Self::at(OsStr::new("home/person/src/repo"))
    }

    /// With the workspace at a path below the room (or an absolute one).
    pub(crate) fn at(workspace: &OsStr) -> Self {
        let dir = tempfile::Builder::new().prefix("airlock-jail-").tempdir().expect("a temporary directory can be made");
        let root = dir.path().to_owned();
        let home = root.join("home/person");
        let data = root.join("data/airlock");
        let layout = Layout { data: data.clone(), config: root.join("config/airlock"), runtime: root.join("run/airlock") };
        let task = layout.task(&TaskId::from_random([1; 8]));
        let workspace = root.join(Path::new(workspace));
        for d in [
            &home.join(".ssh"),
            &home.join(".config/gh"),
            &layout.config,
            &layout.runtime,
            &task.tree(),
            &task.git(),
            &task.home(),
            &task.objects(),
            &task.keeper(),
            &data.join("tasks/other/tree"),
            &home.join("src/other"),
        ] {
            fs::create_dir_all(d).unwrap_or_else(|e| panic!("{}: {e}", d.display()));
        }
        for f in [".ssh/id_ed25519", ".config/gh/hosts.yml", "src/other/file", "diary"] {
            fs::write(home.join(f), SECRET).expect("a secret can be written");
        }
        for f in ["airlock.db", "tasks/other/tree/file"] {
            fs::write(data.join(f), SECRET).expect("Airlock's data can be written");
        }
        fs::write(task.tree().join(".git"), "gitdir: /nowhere\n").expect("the worktree's .git can be written");
        fs::write(task.tree().join("file"), "of the task\n").expect("the tree can be written");
        let grants = Grants { hide: vec![home.join(".ssh")], processes: 256, tools: true, ..Grants::default() };
        Self {
            _dir: dir,
            root,
            home,
            workspace,
            task,
            layout,
            grants,
            tools: vec![],
            history: vec![],
            stdio: Stdio::Pipes,
            host_env: vec![],
            tool_env: vec![],
            asked: None,
        }
    }

    pub(crate) fn spec(&self, argv: &[&str]) -> RunSpec {
        RunSpec {
            version: model::protocol::VERSION,
            task: TaskId::from_random([1; 8]),
            run: RunId::from_random([2; 8]),
            layout: self.layout.clone(),
            dir: self.task.clone(),
            workspace: self.workspace.clone(),
            home: self.home.clone(),
            history: self.history.clone(),
            policy: PolicyText { name: "test".into(), text: String::new(), repository: None },
            argv: argv.iter().map(|a| (*a).to_owned()).collect(),
            env: vec![],
            host_env: self.host_env.clone(),
            tool_env: self.tool_env.clone(),
            tools: self.tools.clone(),
            caches: Vec::new(),
            stdio: self.stdio,
            hostname: "airlock-test-host".into(),
            jail_program: program("airlock-jail"),
            git_program: "/usr/bin/git".into(),
        }
    }

    pub(crate) fn plan(&self, argv: &[&str]) -> Plan {
        compose::agent(&self.spec(argv), &self.grants).unwrap_or_else(|e| panic!("no plan: {e}"))
    }

    /// Starts a command and serves its jail, as the warden does.
    pub(crate) fn start(
        &self,
        argv: &[&str],
        sink: impl Fn(Fact) + Send + Sync + Clone + 'static,
    ) -> Result<Running, SpawnError> {
        self.start_plan(&self.plan(argv), sink)
    }

    pub(crate) fn start_plan(
        &self,
        plan: &Plan,
        sink: impl Fn(Fact) + Send + Sync + Clone + 'static,
    ) -> Result<Running, SpawnError> {
        let (streams, out, err) = match self.stdio {
            Stdio::Pipes => {
                let stdin = File::open("/dev/null").expect("/dev/null can be opened");
                let (out, inner_out) = std::io::pipe().expect("a pipe can be made");
                let (err, inner_err) = std::io::pipe().expect("a pipe can be made");
                let streams: [OwnedFd; 3] = [stdin.into(), inner_out.into(), inner_err.into()];
                (Some(streams), Some(out), Some(err))
            }
            Stdio::Terminal { .. } => (None, None, None),
        };
        let mut jail = supervise::spawn(plan, &program("airlock-jail"), streams)?;
        let init_pid = u32::try_from(jail.pid).expect("a pid is positive");
        let who = Who::new(JailRef { init_pid, ..JailRef::default() }).expect("the jail's init can be looked at");
        let notify =
            jail.notify.take().map(|fd| Notify::serve(fd, Arc::clone(&who), sink.clone()).expect("notifications are served"));
        let closed = [&self.layout.data, &self.layout.config, &self.layout.runtime].map(PathBuf::clone);
        let doors =
            self.asked.as_ref().map(|(places, keeper)| Doors::open(places, &self.grants.write, &closed, Arc::clone(keeper)));
        let decoys = jail.decoys.take().map(|decoys| decoys.tell(who, doors, sink).expect("touches are told"));
        jail.go().expect("the jail hears");
        Ok(Running { jail, out, err, _notify: notify, decoys })
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, argv: &[&str]) -> Went {
        self.start(argv, |_| ()).unwrap_or_else(|e| panic!("{argv:?} did not start: {e}")).finish()
    }

    /// Runs a shell script to its end.
    pub(crate) fn sh(&self, script: &str) -> Went {
        self.run(&["/bin/sh", "-c", script])
    }

    /// Runs a probe inside, from the workspace.
    pub(crate) fn probe(&self, words: &[&str]) -> String {
        self.bring_probe();
        let argv: Vec<&str> = ["./probe"].into_iter().chain(words.iter().copied()).collect();
        let went = self.run(&argv);
        assert!(went.ended.exit == Some(0), "the probe {words:?} itself failed: {went:?}");
        went.out.trim().to_owned()
    }

    pub(crate) fn bring_probe(&self) {
        let there = self.task.tree().join("probe");
        if !there.exists() {
            fs::copy(program("probe"), there).expect("the probe can be copied");
        }
    }

    /// Why a start is refused.
    pub(crate) fn refusal(&self) -> jail_plan::Refusal {
        match self.start(&["/bin/true"], |_| ()) {
            Err(SpawnError::Refused(refusal)) => refusal,
            Err(other) => panic!("the start failed in another way: {other}"),
            Ok(_) => panic!("the jail started, which it must not"),
        }
    }
}

impl Running {
    pub(crate) fn of(
        jail: Jail,
        out: Option<std::io::PipeReader>,
        err: Option<std::io::PipeReader>,
        notify: Option<Notify>,
    ) -> Self {
        Self { jail, out, err, _notify: notify, decoys: None }
    }

    pub(crate) fn finish(mut self) -> Went {
        let reader = |pipe: Option<std::io::PipeReader>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                if let Some(mut pipe) = pipe {
                    pipe.read_to_end(&mut text).expect("the jail's output can be read");
                }
                String::from_utf8_lossy(&text).into_owned()
            })
        };
        let (out, err) = (reader(self.out.take()), reader(self.err.take()));
        let ended = self.jail.wait().expect("the jail ends");
        Went { ended, out: out.join().expect("read"), err: err.join().expect("read") }
    }
}

/// That a command ended well, with what it said otherwise.
pub(crate) fn good(went: &Went) -> &str {
    assert!(went.ended.exit == Some(0), "the command failed: {went:?}");
    &went.out
}

/// Every guarantee that no policy may lose silently.
pub(crate) const PROMISED: [Guarantee; 6] =
    [Guarantee::Writes, Guarantee::Reads, Guarantee::Control, Guarantee::Network, Guarantee::Syscalls, Guarantee::Processes];
