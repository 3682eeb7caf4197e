//! Launch: one run of a command in a jail on the task's workspace, owned by a warden of its own.

use crate::error::{Code, Error, io};
use crate::{Engine, host, policy_file};
use model::id::{RunId, TaskId};
use model::protocol::{Start, VERSION};
use model::run::{Outcome, Run, RunSpec, Stdio};
use model::task::{Step, TaskState};
use std::path::Path;

impl Engine {
    /// Starts the task's command, or `argv` where given. Returns when the jail stands and the command is about to run.
    pub fn launch(&self, id: &TaskId, argv: Option<Vec<String>>, stdio: Stdio, env: Vec<(String, String)>) -> Result<Run, Error> {
        let task = self.need_files(id)?;
        if task.state == TaskState::Running {
            return Err(Error::new(Code::Conflict, format!("task {id} is running: stop it first (`airlock task stop {id}`)")));
        }
        let (policy, history) =
            self.db.task_inputs(id)?.ok_or_else(|| Error::new(Code::NotFound, format!("task {id} has no inputs")))?;
        let repo = self
            .db
            .repo(&task.repo)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("the repository of task {id} was forgotten")))?;
        let kit = task.agent.as_deref().map(|name| self.kit(name)).transpose()?;
        let own_command = argv.is_none();
        let argv = argv.unwrap_or_else(|| task.argv.clone());
        let (argv, tools) = match &kit {
            Some(kit) if own_command => kit.command(&self.host, &task.prompt, stdio)?,
            _ => (argv, Vec::new()),
        };
        if argv.is_empty() {
            return Err(Error::new(Code::Usage, "there is no command to run: name an agent with --agent or a command after --"));
        }
        let dir = self.host.layout.task(id);
        let run = RunId::from_random(sys::random::bytes());
        let logs = dir.log(&run);
        if let Some(parent) = logs.parent() {
            host::private_directory(parent)?;
        }
        let hostname = format!("airlock-{}", RunId::from_random(sys::random::bytes()));
        let in_force = policy_file::in_force(&policy)?;
        self.need_places(&in_force)?;
        let secrets = self.secrets(&in_force, &env);
        let mut all_env: Vec<(String, String)> = kit.as_ref().map(|k| k.env_set()).unwrap_or_default();
        all_env.extend(env);
        let git = worktree::TaskGit {
            layout: self.host.layout.clone(),
            repo: task.repo.clone(),
            task: id.clone(),
            base: task.base.clone(),
        };
        let caches = self.caches(&git, &in_force);
        let spec = RunSpec {
            version: VERSION,
            task: id.clone(),
            run: run.clone(),
            layout: self.host.layout.clone(),
            dir: dir.clone(),
            workspace: repo.path.clone(),
            home: self.host.home.clone(),
            history,
            tool_env: self.tool_env(),
            host_env: self.passed(&in_force, kit.as_ref()),
            policy: in_force.text,
            argv: argv.clone(),
            env: all_env,
            tools,
            caches,
            stdio,
            hostname: hostname.clone(),
            jail_program: self.host.programs.jail.clone(),
            git_program: self.host.which("git").unwrap_or_else(|| Path::new("/usr/bin/git").to_owned()),
        };
        let now = sys::clock::unix_millis();
        let record = Run {
            id: run.clone(),
            task: id.clone(),
            hostname,
            argv,
            started: now,
            ended: None,
            outcome: None,
            report: None,
            log: logs.clone(),
        };
        self.db.add_run(now, &record)?;
        let notes = logs.with_extension("warden");
        let start = supervise::warden::start(&self.host.programs.warden, &spec, &secrets, &notes).map_err(|e| {
            Error::new(
                Code::Machine,
                format!("starting {} failed: {e}: build or install it beside this program", self.host.programs.warden.display()),
            )
        });
        let refused = match start {
            Ok(Start::Started { .. }) => {
                return self
                    .db
                    .runs(id)?
                    .into_iter()
                    .find(|r| r.id == run)
                    .ok_or_else(|| Error::new(Code::Machine, "the run that was just written is not in the database"));
            }
            Ok(Start::Refused { code, message, refusal }) => {
                let refusal = refusal.and_then(|r| serde_json::from_value(r).ok());
                self.refused(Code::from_exit(code), message, refusal.as_ref())
            }
            Err(e) => e,
        };
        let outcome = Outcome { exit: None, signal: None, limit: None, refused: Some(refused.message.clone()) };
        self.db.end_run(sys::clock::unix_millis(), &run, &outcome)?;
        // The warden may have written the step itself, or another run may have come first: both are fine.
        if let Err(step) = self.db.step(sys::clock::unix_millis(), id, Step::Refused, Some(&refused.message), Some(&run))? {
            tracing::debug!(%step, "refusal not recorded as a step");
        }
        Err(refused)
    }

    /// Where the person's tools are, by their environment.
    fn tool_env(&self) -> Vec<(String, String)> {
        supervise::tool_variables().filter_map(|k| Some((k.to_owned(), self.host.var(k)?.to_owned()))).collect()
    }

    fn passed(&self, in_force: &policy_file::InForce, kit: Option<&crate::kits::Kit>) -> Vec<(String, String)> {
        let text = |(k, v): &(std::ffi::OsString, std::ffi::OsString)| Some((k.to_str()?.to_owned(), v.to_str()?.to_owned()));
        self.host
            .env
            .iter()
            .filter_map(text)
            .filter(|(k, _)| in_force.passes(k) || kit.is_some_and(|kit| kit.0.env.passes(k)))
            .collect()
    }

    /// The end of a run's output, at most `limit` bytes: `(stdout or terminal, stderr)`.
    pub fn output(&self, run: &Run, limit: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let tail = |path: &Path| -> Result<Vec<u8>, Error> {
            use std::io::{Read, Seek, SeekFrom};
            let mut out = Vec::new();
            let mut older = path.as_os_str().to_owned();
            older.push(".old");
            for path in [Path::new(&older), path] {
                let mut file = match std::fs::File::open(path) {
                    Ok(f) => f,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(io("reading", path)(e)),
                };
                let length = file.metadata().map_err(io("reading", path))?.len();
                file.seek(SeekFrom::Start(length.saturating_sub(limit))).map_err(io("reading", path))?;
                file.take(limit).read_to_end(&mut out).map_err(io("reading", path))?;
            }
            let beyond = out.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(out.split_off(beyond))
        };
        Ok((tail(&run.log)?, tail(&run.log.with_extension("err"))?))
    }
}
