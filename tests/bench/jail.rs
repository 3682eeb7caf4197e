//! A task that was made by the command line, and jails on it as its warden makes them, run by this program: so that their
//! CPU time is this program's children's.

use crate::side::Measured;
use model::id::{RunId, TaskId};
use model::layout::{Layout, TaskDir};
use model::run::{PolicyText, RunSpec};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use supervise::compose::Grants;
use supervise::decoy::Telling;
use supervise::notify::Notify;
use supervise::who::{JailRef, Who};
use supervise::{Ended, Jail};
use testkit::Sandbox;

/// A task's jail, to be run again and again.
pub(crate) struct Task {
    spec: RunSpec,
    pub(crate) grants: Grants,
}

/// A jail that runs, with all that answers it.
pub(crate) struct Running {
    pub(crate) jail: Jail,
    /// What it says on stderr.
    said: File,
    told: Arc<AtomicUsize>,
    _sensors: (Option<Notify>, Option<Telling>),
}

impl Task {
    /// Makes a task on a repository.
    pub(crate) fn new(person: &Sandbox, repo: &Path) -> Self {
        let made = person.run_script(repo, &[], "true").ok().json();
        let id = |field: &str| made[field].as_str().expect("an id").to_owned();
        let layout = Layout {
            data: person.data().join("airlock"),
            config: person.config().join("airlock"),
            runtime: person.runtime().join("airlock"),
        };
        let task = TaskId::parse(&id("task")).expect("an id");
        let database = db::Database::open(&layout.database()).expect("the database opens");
        let (_, history) = database.task_inputs(&task).expect("the database answers").expect("the task was made");
        let spec = RunSpec {
            version: model::protocol::VERSION,
            run: RunId::parse(&id("run")).expect("an id"),
            dir: TaskDir(person.task_dir(&id("task"))),
            task,
            layout,
            workspace: repo.to_owned(),
            home: person.home(),
            history,
            policy: PolicyText { name: "standard".into(), text: String::new(), repository: None },
            argv: vec!["/bin/true".into()],
            env: Vec::new(),
            host_env: Vec::new(),
            tool_env: Vec::new(),
            tools: Vec::new(),
            caches: Vec::new(),
            stdio: model::run::Stdio::Pipes,
            hostname: "bench".into(),
            jail_program: testkit::program("airlock-jail"),
            git_program: PathBuf::from("/usr/bin/git"),
        };
        Self { spec, grants: Grants { network: true, tools: true, ..Grants::default() } }
    }

    /// The task's tree on the host.
    pub(crate) fn tree(&self) -> PathBuf {
        self.spec.dir.tree()
    }

    /// Starts a command with everything on: way out, notifications, decoys.
    pub(crate) fn start(&self, argv: &[&str], env: &[(String, String)]) -> Measured<Running> {
        let spec = RunSpec { argv: argv.iter().map(|a| (*a).to_owned()).collect(), env: env.to_vec(), ..self.spec.clone() };
        let plan = supervise::compose::agent(&spec, &self.grants).expect("nothing is granted twice");
        let said = tempfile::tempfile().map_err(|e| e.to_string())?;
        let [stdin, stdout, _] = nothing();
        let streams = [stdin, stdout, said.try_clone().map_err(|e| e.to_string())?.into()];
        let mut jail = supervise::spawn(&plan, &spec.jail_program, Some(streams)).map_err(|e| e.to_string())?;
        let init_pid = u32::try_from(jail.pid).expect("a process id");
        let writable = vec![spec.workspace.clone(), spec.home.clone(), "/tmp".into()];
        let who = Who::new(JailRef { init_pid, writable, ..JailRef::default() }).expect("the jail can be looked at");
        let told = Arc::new(AtomicUsize::new(0));
        let sink = {
            let told = Arc::clone(&told);
            move |_| {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        let notify = jail.notify.take().map(|fd| Notify::serve(fd, Arc::clone(&who), sink).expect("calls are observed"));
        let decoys = jail.decoys.take().map(|decoys| decoys.tell(who, None, |_| {}).expect("touches are told"));
        jail.go().map_err(|e| e.to_string())?;
        Ok(Running { jail, said, told, _sensors: (notify, decoys) })
    }
}

impl Running {
    /// Waits for a command that must end well; answers with how many facts were told.
    pub(crate) fn finish(self) -> Measured<usize> {
        let Ended { exit, signal } = self.jail.wait().map_err(|e| e.to_string())?;
        if (exit, signal) != (Some(0), None) {
            let mut text = String::new();
            let mut said = &self.said;
            drop(said.rewind().and_then(|()| said.take(4096).read_to_string(&mut text)));
            return Err(format!("inside it ended with exit code {exit:?}, signal {signal:?}; it said: {}", text.trim()));
        }
        let told = Arc::clone(&self.told);
        drop(self);
        Ok(told.load(Ordering::Relaxed))
    }
}

/// Three streams that lead nowhere.
pub(crate) fn nothing() -> [OwnedFd; 3] {
    let null = || File::options().read(true).write(true).open("/dev/null").expect("/dev/null opens").into();
    [null(), null(), null()]
}

/// CPU time so far of every child that was waited for, and of this program, which does a warden's work.
pub(crate) fn cpu() -> Duration {
    let of = |who| {
        let usage = getrusage(who).expect("the kernel counts");
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
    };
    let micros = of(UsageWho::RUSAGE_CHILDREN) + of(UsageWho::RUSAGE_SELF);
    Duration::from_micros(u64::try_from(micros).expect("time goes on"))
}
