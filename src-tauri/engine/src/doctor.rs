//! Doctor: what this machine can keep, by running the whole set-up once.

mod advice;
mod facts;

pub use advice::Advice;

use crate::error::{Code, Error};
use crate::{Engine, policy_file};
use facts::Facts;
use jail_plan::{Guarantee, Kept, Refusal, Report};
use model::id::{RunId, TaskId};
use model::keeper::KeeperError;
use model::layout::TaskDir;
use model::protocol::VERSION;
use model::run::{PolicyText, RunSpec, Stdio};
use serde::Serialize;
use std::path::{Path, PathBuf};
use supervise::compose::Grants;
use supervise::{SpawnError, Together};

/// One line of the doctor's.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found, and what to do where it is not well.
    pub detail: String,
}

/// What this machine can keep.
#[derive(Debug, Clone, Serialize)]
pub struct Doctor {
    /// Programs and directories.
    pub checks: Vec<Check>,
    /// Every promise as a real start of `true` kept it; empty where that was refused at a step.
    pub promises: Vec<Kept>,
    /// The jail's own report of it.
    pub report: Option<Report>,
    /// What refuses a start under `standard`, each with its cure.
    pub blockers: Vec<Advice>,
    /// What starts all the same and is weaker than it could be, each with its cure.
    pub weaker: Vec<Advice>,
    /// Whether a task would start under `standard`.
    pub starts: bool,
}

impl Engine {
    /// Looks at everything that a run needs and starts a real jail that runs `true`.
    pub fn doctor(&self) -> Result<Doctor, Error> {
        let mut checks = self.programs();
        let git = self.host.which("git");
        checks.push(Check {
            name: "git".into(),
            ok: git.is_some(),
            detail: git.map_or_else(|| "not on your PATH: install it".into(), |p| p.display().to_string()),
        });
        let standard = policy_file::in_force(&self.policy_text("standard")?)?;
        let policy = standard.policy();
        let facts = self.facts();
        let mut blockers = Vec::new();
        let report = match self.probe(policy) {
            Ok(mut report) => {
                report.accepted.extend(&policy.accept);
                let refused = report.missing_all(&report.accepted);
                blockers.extend(refused.iter().map(|r| advice::refusal(r, &facts)));
                blockers.extend(policy.limits.require.iter().filter_map(|l| advice::required(*l, &report, &facts)));
                Some(report)
            }
            Err(SpawnError::Refused(refusal)) => {
                blockers.push(advice::refusal(&refusal, &facts));
                None
            }
            Err(e) => {
                let (at, what) = ("start".to_owned(), e.to_string());
                blockers.push(Advice {
                    at,
                    what,
                    why: "the jail program did not get that far".into(),
                    command: None,
                    accept: None,
                });
                None
            }
        };
        let rows = report.iter().flat_map(|r| &r.rows).filter(|r| !Guarantee::REQUIRED.contains(&r.guarantee));
        let weaker = rows.filter_map(|r| advice::weaker(r, &facts)).collect();
        let starts = blockers.is_empty() && checks.iter().all(|c| c.ok);
        let promises = report.as_ref().map(jail_plan::promises).unwrap_or_default();
        Ok(Doctor { checks, promises, report, blockers, weaker, starts })
    }

    /// Why a jail did not start: what the machine is to blame for, with what it says about itself.
    pub(crate) fn refused(&self, code: Code, message: String, refusal: Option<&Refusal>) -> Error {
        let explained = refusal.filter(|_| code == Code::Promise).map(|r| advice::refusal(r, &self.facts()).to_string());
        Error::new(code, explained.unwrap_or(message))
    }

    /// Why a keeper failed: where its jail refused, with the code and the words that a run gets.
    pub(crate) fn keeper_failed(&self, error: &KeeperError) -> Error {
        if let KeeperError::Refused { refusal, .. } = error
            && let Ok(refusal) = serde_json::from_value::<Refusal>(refusal.clone())
        {
            return self.refused(Code::from_exit(refusal.kind.exit()), error.to_string(), Some(&refusal));
        }
        Error::new(Code::Machine, error.to_string())
    }

    fn facts(&self) -> Facts {
        Facts::read(&self.host.programs.jail, self.host.var("XDG_RUNTIME_DIR"))
    }

    fn programs(&self) -> Vec<Check> {
        let programs = &self.host.programs;
        let list = [
            ("airlock-jail", &programs.jail, true),
            ("airlock-warden", &programs.warden, true),
            ("airlock-window", &programs.window, false),
        ];
        let look = |(name, path, needed): (&str, &PathBuf, bool)| {
            let there = path.is_file();
            let detail = match (there, needed) {
                (true, _) => path.display().to_string(),
                (false, true) => format!("missing: {} must lie beside airlock", path.display()),
                (false, false) => format!("not built: {} (only the window needs it)", path.display()),
            };
            Check { name: name.into(), ok: there || !needed, detail }
        };
        list.into_iter().map(look).collect()
    }

    /// Starts a real jail, with everything that a run has, and ends it before its command runs.
    fn probe(&self, policy: &policy::Policy) -> Result<Report, SpawnError> {
        let dir = self.host.layout.data.join("doctor").join(RunId::from_random(sys::random::bytes()).to_string());
        let task = TaskDir(dir.clone());
        let made = || -> Result<Report, SpawnError> {
            for sub in [task.tree(), task.git(), task.home()] {
                std::fs::create_dir_all(&sub)?;
            }
            std::fs::write(task.tree().join(".git"), "gitdir: /nonexistent\n")?;
            let spec = self.probe_spec(&task);
            let conflict = |e: supervise::compose::Conflict| SpawnError::Broken(e.to_string());
            let grants = Grants::of(&spec, policy);
            let mut plan = supervise::compose::agent(&spec, &grants).map_err(conflict)?;
            // A promise that can't be kept is to be seen in the table, beside those that can.
            plan.require.clear();
            let weaker = policy.fallback.then_some(|| {
                supervise::prepare(&spec).map_err(|e| e.to_string())?;
                let plan = supervise::compose::agent_without_namespaces(&spec, &grants);
                let mut plan = plan.map_err(|e| e.to_string())?;
                plan.require.clear();
                plan.fallback.iter_mut().for_each(|f| f.partly.clear());
                Ok(plan)
            });
            let together = Together::of(policy);
            let stood = supervise::stand(plan, weaker, &self.host.programs.jail, None, Some(&together))?;
            let mut report = stood.jail.report.clone();
            if stood.plan.fallback.is_some() {
                report.accepted.extend(supervise::compose::LOST_IN_PART);
            }
            drop(stood);
            supervise::limits::kept_by_warden(&mut report, None);
            Ok(report)
        };
        let out = made();
        if let Err(e) = std::fs::remove_dir_all(&dir) {
            tracing::warn!(dir = %dir.display(), error = %e, "the doctor's directory is left");
        }
        out
    }

    fn probe_spec(&self, task: &TaskDir) -> RunSpec {
        RunSpec {
            version: VERSION,
            task: TaskId::from_random(sys::random::bytes()),
            run: RunId::from_random(sys::random::bytes()),
            layout: self.host.layout.clone(),
            dir: task.clone(),
            workspace: Path::new("/workspace").to_owned(),
            home: self.host.home.clone(),
            history: Vec::new(),
            policy: PolicyText { name: "standard".into(), text: String::new(), repository: None },
            argv: vec!["/bin/true".into()],
            env: Vec::new(),
            host_env: Vec::new(),
            tool_env: Vec::new(),
            tools: Vec::new(),
            caches: Vec::new(),
            stdio: Stdio::Terminal { cols: 80, rows: 24 },
            hostname: "airlock-doctor".into(),
            jail_program: self.host.programs.jail.clone(),
            git_program: Path::new("/usr/bin/git").to_owned(),
        }
    }
}
