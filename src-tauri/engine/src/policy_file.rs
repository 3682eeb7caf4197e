//! Policies by name: presets, the person's own files, and what is in force for a task.

use crate::Engine;
use crate::error::{Code, Error, io};
use crate::kits::Kit;
use crate::policy_paths;
use model::ask::Asked;
use model::id::TaskId;
use model::run::PolicyText;
use policy::Problem;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Largest policy file, in bytes.
const LARGEST: u64 = 256 << 10;

/// A policy as a person reads it.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyView {
    /// Name or file.
    pub name: String,
    /// Plain language, a line each.
    pub words: Vec<String>,
    /// What is written but has no effect yet: key, line, what happens instead.
    pub not_in_force: Vec<(String, u32, String)>,
    /// The text.
    pub text: String,
}

/// What a launch needs of a policy.
pub(crate) struct InForce {
    pub(crate) text: PolicyText,
    policy: policy::Policy,
}

impl InForce {
    /// Whether tools of the home are shown, and with them their configuration.
    pub(crate) fn shows_tools(&self) -> bool {
        self.policy.files.tools == policy::Tools::Auto
    }

    /// Whether a variable of the host's environment is passed in.
    pub(crate) fn passes(&self, name: &str) -> bool {
        self.policy.env.passes(name)
    }

    /// Patterns of what comes along from the working copy.
    pub(crate) fn carry(&self) -> &[String] {
        &self.policy.files.carry
    }

    /// Patterns of what comes along with placeholders.
    pub(crate) fn mask(&self) -> &[String] {
        &self.policy.files.mask
    }

    /// Whether caches of tools are shown.
    pub(crate) fn shows_caches(&self) -> bool {
        self.policy.files.caches == policy::Tools::Auto
    }

    /// All of it.
    pub(crate) fn policy(&self) -> &policy::Policy {
        &self.policy
    }
}

fn told(name: &str, problems: &[Problem]) -> Error {
    let mut text = format!("the policy {name} is refused, nothing starts:");
    for p in problems {
        text.push_str(&format!("\n  {name}:{}:{}: {}", p.line, p.column, p.message));
        if !p.hint.is_empty() {
            text.push_str(&format!(" ({})", p.hint));
        }
    }
    Error::new(Code::Usage, text)
}

/// Checks a policy.
pub(crate) fn in_force(text: &PolicyText) -> Result<InForce, Error> {
    let policy = policy::load(text).map_err(|(name, problems)| told(&name, &problems))?;
    Ok(InForce { text: text.clone(), policy })
}

impl Engine {
    /// Names of policies: presets, and the person's own files.
    pub fn policies(&self) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = policy::presets().map(str::to_owned).collect();
        if let Ok(dir) = std::fs::read_dir(self.host.layout.config.join("policies")) {
            let mut own: Vec<String> = dir
                .flatten()
                .filter_map(|e| e.file_name().to_str().and_then(|n| n.strip_suffix(".toml")).map(str::to_owned))
                .filter(|n| !names.contains(n))
                .collect();
            own.sort();
            names.extend(own);
        }
        Ok(names)
    }

    /// Finds a policy: a file where the name has a slash or ends in `.toml`, else the person's own of that name, else the preset.
    pub(crate) fn policy_text(&self, name: &str) -> Result<PolicyText, Error> {
        let text = |path: &Path| -> Result<PolicyText, Error> {
            let size = std::fs::metadata(path).map_err(|e| {
                let code = if e.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::Machine };
                Error::new(code, format!("the policy file {} can't be read: {e}", path.display()))
            })?;
            if !size.is_file() || size.len() > LARGEST {
                return Err(Error::new(Code::Usage, format!("{} is not a file of at most {LARGEST} bytes", path.display())));
            }
            let bytes = std::fs::read(path).map_err(io("reading", path))?;
            let text =
                String::from_utf8(bytes).map_err(|_| Error::new(Code::Usage, format!("{} is not UTF-8", path.display())))?;
            Ok(PolicyText { name: path.display().to_string(), text, repository: None })
        };
        if name.contains('/') || name.ends_with(".toml") {
            return text(Path::new(name));
        }
        let own = self.host.layout.config.join("policies").join(format!("{name}.toml"));
        if own.is_file() {
            return text(&own);
        }
        match policy::preset(name) {
            Some(preset) => Ok(PolicyText { name: name.to_owned(), text: preset.to_owned(), repository: None }),
            None => Err(Error::new(
                Code::NotFound,
                format!("there is no policy `{name}`: there are {}; a file is named by its path", self.policies()?.join(", ")),
            )),
        }
    }

    /// A policy with a kit's hosts added.
    pub(crate) fn policy_for(&self, name: &str, kit: Option<&Kit>) -> Result<PolicyText, Error> {
        let mut text = self.policy_text(name)?;
        if let Some(kit) = kit {
            text.text =
                kit.0.add_to(&text.name, &text.text, &|name| self.has_variable(name)).map_err(|p| told(&text.name, &p))?;
        }
        self.need_places(&in_force(&text)?)?;
        Ok(text)
    }

    /// That the places which a policy shows are there, and are none that no policy may show.
    pub(crate) fn need_places(&self, in_force: &InForce) -> Result<(), Error> {
        let InForce { policy, text } = in_force;
        let mut faults = policy.conflicts(&self.host.layout, &self.host.home);
        if faults.is_empty() {
            faults = policy_paths::faults(policy, &self.host.home);
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(Code::Usage, format!("the policy {} is refused, nothing starts: {}", text.name, faults.join("; "))))
    }

    /// Checks a file; the error lists every problem.
    pub fn policy_check(&self, file: &Path) -> Result<PolicyView, Error> {
        let mut path = PathBuf::from(file);
        let preset = path.to_str().is_some_and(|name| policy::preset(name).is_some());
        if (!preset || path.exists()) && !path.to_string_lossy().contains('/') {
            path = Path::new(".").join(path);
        }
        let name = path.to_str().ok_or_else(|| Error::new(Code::Usage, "the file's name is not UTF-8"))?;
        self.policy_view(self.policy_for(name, None)?)
    }

    /// A policy by name, as a new task with this kit would have it.
    pub fn policy_named(&self, name: &str, agent: Option<&str>) -> Result<PolicyView, Error> {
        let kit = agent.map(|a| self.kit(a)).transpose()?;
        self.policy_view(self.policy_for(name, kit.as_ref())?)
    }

    /// The policy that a task was made with.
    pub fn policy_show(&self, id: &TaskId) -> Result<PolicyView, Error> {
        self.need_task(id)?;
        self.policy_view(self.task_policy_text(id)?)
    }

    /// Why a task's policy answers a request as it does, a line each: the answer, then every rule that matches with its file and
    /// line. A request is `example.org`, `example.org:443` or `GET https://example.org/path`.
    pub fn policy_explain(&self, id: &TaskId, request: &str) -> Result<Vec<String>, Error> {
        self.need_task(id)?;
        let request = policy::Request::parse(request).map_err(|e| Error::new(Code::Usage, format!("`{request}`: {e}")))?;
        let mut lines = policy::explain(self.task_policy(id)?.policy(), &request);
        let wanted = asked(&request);
        for view in self.grants(Some(id))?.into_iter().filter(|g| g.lives && wanted.contains(&g.grant.what)) {
            let whose = if view.grant.task.is_some() { "this task" } else { "its repository" };
            lines.push(format!(
                "what the policy asks about here is let through by the grant {} for {whose}: {}",
                view.grant.id, view.grant.what
            ));
        }
        Ok(lines)
    }

    fn task_policy_text(&self, id: &TaskId) -> Result<PolicyText, Error> {
        let inputs = self.db.task_inputs(id)?;
        inputs.map(|(text, _)| text).ok_or_else(|| Error::new(Code::NotFound, format!("task {id} has no policy")))
    }

    pub(crate) fn task_policy(&self, id: &TaskId) -> Result<InForce, Error> {
        in_force(&self.task_policy_text(id)?)
    }

    fn policy_view(&self, text: PolicyText) -> Result<PolicyView, Error> {
        let InForce { text, policy } = in_force(&text)?;
        Ok(PolicyView {
            words: policy::show(&policy),
            not_in_force: policy.not_in_force().iter().map(|n| (n.key.clone(), n.line, n.note.clone())).collect(),
            name: text.name,
            text: text.text,
        })
    }
}

/// What a person could have answered that a request lives by: itself, or connections to its host.
fn asked(request: &policy::Request) -> Vec<Asked> {
    let connect = |t: &policy::Target| Asked::Connect { host: t.to.to_string(), port: t.port };
    match request {
        policy::Request::Lookup(_) => Vec::new(),
        policy::Request::Connect(target) => vec![connect(target)],
        policy::Request::Http(target, r) => {
            let (method, path) = (r.method().to_owned(), r.path().to_owned());
            vec![connect(target), Asked::Request { host: target.to.to_string(), port: target.port, method, path }]
        }
    }
}
