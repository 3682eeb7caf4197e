//! Doctor: what this machine can keep, by running the whole set-up once.

use crate::Engine;
use crate::error::{Code, Error, io};
use jail_plan::Report;
use model::id::{RunId, TaskId};
use model::layout::TaskDir;
use model::protocol::VERSION;
use model::run::{PolicyText, RunSpec, Stdio};
use serde::Serialize;
use std::path::Path;

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
    /// The jail's own report of a real start of `true`; none where it refused.
    pub report: Option<Report>,
    /// Why the start was refused.
    pub refused: Option<String>,
    /// Whether a task would start under `standard`.
    pub starts: bool,
}

impl Engine {
    /// Looks at everything that a run needs and starts a real jail that runs `true`.
    pub fn doctor(&self) -> Result<Doctor, Error> {
        let mut checks = Vec::new();
        let programs = &self.host.programs;
        for (name, path, needed) in [
            ("airlock-jail", &programs.jail, true),
            ("airlock-warden", &programs.warden, true),
            ("airlock-window", &programs.window, false),
        ] {
            let there = path.is_file();
            let detail = match (there, needed) {
                (true, _) => path.display().to_string(),
                (false, true) => format!("missing: {} must lie beside airlock", path.display()),
                (false, false) => format!("not built: {} (only the window needs it)", path.display()),
            };
            checks.push(Check { name: name.into(), ok: there || !needed, detail });
        }
        let git = self.host.which("git");
        checks.push(Check {
            name: "git".into(),
            ok: git.is_some(),
            detail: git.map_or_else(|| "not on your PATH: install it".into(), |p| p.display().to_string()),
        });
        let (report, refused) = match self.probe() {
            Ok(report) => (Some(report), None),
            Err(e) => (None, Some(e.message)),
        };
        let starts = refused.is_none() && checks.iter().all(|c| c.ok);
        Ok(Doctor { checks, report, refused, starts })
    }

    fn probe(&self) -> Result<Report, Error> {
        let dir = self.host.layout.data.join("doctor").join(RunId::from_random(sys::random::bytes()).to_string());
        let task = TaskDir(dir.clone());
        let made = || -> Result<Report, Error> {
            for sub in [task.tree(), task.git(), task.home()] {
                std::fs::create_dir_all(&sub).map_err(io("making", &sub))?;
            }
            let marker = task.tree().join(".git");
            std::fs::write(&marker, "gitdir: /nonexistent\n").map_err(io("writing", &marker))?;
            let spec = RunSpec {
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
            };
            let grants = supervise::compose::Grants { processes: 64, network: true, ..Default::default() };
            let plan = supervise::compose::agent(&spec, &grants).map_err(|e| Error::new(Code::Promise, e.to_string()))?;
            let jail =
                supervise::spawn(&plan, &self.host.programs.jail, None).map_err(|e| Error::new(Code::Promise, e.to_string()))?;
            let mut report = jail.report.clone();
            jail.kill();
            supervise::limits::kept_by_warden(&mut report);
            Ok(report)
        };
        let out = made();
        if let Err(e) = std::fs::remove_dir_all(&dir) {
            tracing::warn!(dir = %dir.display(), error = %e, "the doctor's directory is left");
        }
        out
    }
}
