//! Create: a task with its sealed workspace. Nothing of it is in the person's repository.

use crate::error::{Code, Error};
use crate::{Engine, policy_file};
use model::id::{RepoId, TaskId};
use model::task::{Task, TaskState};

pub use worktree::Progress;

/// What a person delegates.
#[derive(Debug, Clone, Default)]
pub struct NewTask {
    /// Shown name; made from prompt or command where left out.
    pub title: Option<String>,
    /// What the agent is asked.
    pub prompt: String,
    /// Where to start; the branch checked out where left out.
    pub base: Option<String>,
    /// Kit.
    pub agent: Option<String>,
    /// Command, where no kit is named.
    pub argv: Vec<String>,
    /// Preset's name or a file; `standard` where left out.
    pub policy: Option<String>,
}

/// Longest title in characters.
const TITLE: usize = 120;

fn slug(title: &str) -> String {
    let mut out = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
        if out.len() >= 40 {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "task".into() } else { out.into() }
}

impl Engine {
    /// Makes a task. On an error nothing is left.
    pub fn create(&self, repo: &RepoId, new: &NewTask, progress: &dyn Fn(Progress)) -> Result<Task, Error> {
        let repo = self.repo(repo)?;
        let facts = self.inspect(&repo.path)?;
        let kit = new.agent.as_deref().map(|name| self.kit(name)).transpose()?;
        if kit.is_none() && new.argv.is_empty() {
            return Err(Error::new(Code::Usage, "there is no command to run: name an agent with --agent or a command after --"));
        }
        if let Some(kit) = &kit {
            kit.find(&self.host)?;
        }
        // A mistake in the person's own file is told before any work is done.
        let mut policy = self.policy_for(new.policy.as_deref().unwrap_or("standard"), kit.as_ref())?;
        let (title, branch) = self.names(&repo.id, new)?;
        let id = TaskId::from_random(sys::random::bytes());
        let spec = worktree::CreateSpec {
            layout: &self.host.layout,
            home: &self.host.home,
            repo: &facts,
            repo_id: &repo.id,
            task_id: &id,
            base: new.base.as_deref(),
            branch: &branch,
        };
        let _creating = self.lock_creating()?;
        let created = worktree::create(&spec, progress)?;
        let finish = || -> Result<Task, Error> {
            let git = worktree::TaskGit {
                layout: self.host.layout.clone(),
                repo: repo.id.clone(),
                task: id.clone(),
                base: created.base.clone(),
            };
            policy.repository = match worktree::base_file(&git, ".airlock.toml")? {
                None => None,
                Some(bytes) => Some(
                    String::from_utf8(bytes)
                        .map_err(|_| Error::new(Code::Usage, "the repository's .airlock.toml is not UTF-8"))?,
                ),
            };
            self.add_registries(&mut policy, &git, progress)?;
            let in_force = policy_file::in_force(&policy)?;
            self.bring(&git, &facts, &in_force, progress)?;
            self.make_home(&self.host.layout.task(&id).home(), in_force.shows_tools())?;
            let task = Task {
                id: id.clone(),
                repo: repo.id.clone(),
                title,
                prompt: new.prompt.clone(),
                branch,
                base: created.base.clone(),
                base_branch: created.base_branch.clone(),
                agent: new.agent.clone(),
                argv: new.argv.clone(),
                policy: policy.name.clone(),
                state: TaskState::Ready,
                problem: None,
                created: sys::clock::unix_millis(),
                paused: None,
                last_run: None,
            };
            self.db.add_task(task.created, &task, &policy, &created.history)?;
            Ok(task)
        };
        finish().inspect_err(|_| {
            if let Err(e) = worktree::remove_task(&self.host.layout, &repo.id, &id) {
                tracing::warn!(error = %e, "files of a task that was not made are left");
            }
        })
    }

    /// Brings along what the policy names of the working copy, and says what it was.
    fn bring(
        &self,
        git: &worktree::TaskGit,
        facts: &worktree::RepoFacts,
        in_force: &policy_file::InForce,
        progress: &dyn Fn(Progress),
    ) -> Result<(), Error> {
        let started = std::time::Instant::now();
        let wanted = worktree::Wanted { carry: in_force.carry(), mask: in_force.mask() };
        let keeper = self.keeper(in_force.policy());
        let brought = worktree::bring(git, facts, &keeper, wanted, progress).map_err(|e| match e {
            worktree::BringError::Keeper(e) => self.keeper_failed(&e),
            e => e.into(),
        })?;
        for note in notes(&brought, !wanted.carry.is_empty(), started.elapsed()) {
            progress(Progress::Note(note));
        }
        Ok(())
    }

    /// Starts keepers for a task of this policy.
    pub(crate) fn keeper(&self, policy: &policy::Policy) -> supervise::keeper::JailKeeper {
        supervise::keeper::JailKeeper {
            jail_program: self.host.programs.jail.clone(),
            warden_program: self.host.programs.warden.clone(),
            fallback: policy.fallback,
        }
    }

    /// Title and own branch. A title that the person gave must be free among the repository's tasks; one that was made
    /// gets a number.
    fn names(&self, repo: &RepoId, new: &NewTask) -> Result<(String, String), Error> {
        let others: Vec<Task> = self.db.tasks(false)?.into_iter().filter(|t| t.repo == *repo).collect();
        let given = new.title.as_deref().map(str::trim).filter(|t| !t.is_empty());
        let title = match given {
            Some(title) => {
                if title.chars().count() > TITLE || title.chars().any(model::path::hides) {
                    return Err(Error::new(
                        Code::Usage,
                        format!("a title has at most {TITLE} characters, and none that hides or moves text"),
                    ));
                }
                if let Some(other) = others.iter().find(|t| t.title == title) {
                    return Err(Error::new(
                        Code::Conflict,
                        format!(
                            "task {} of this repository is called `{title}` already: choose another title, or discard it",
                            other.id
                        ),
                    ));
                }
                title.to_owned()
            }
            None => {
                let words = new.prompt.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
                let text = words.or_else(|| (!new.argv.is_empty()).then(|| new.argv.join(" "))).or_else(|| new.agent.clone());
                let text: String = text
                    .unwrap_or_default()
                    .chars()
                    .filter(|c| !model::path::hides(*c))
                    .take(60)
                    .collect::<String>()
                    .trim()
                    .to_owned();
                let text = if text.is_empty() { "Task".to_owned() } else { text };
                free(&text, " ", |t| others.iter().all(|o| o.title != t))
            }
        };
        let branch = free(&slug(&title), "-", |b| others.iter().all(|o| o.branch != b));
        Ok((title, branch))
    }
}

/// What came along, in words.
fn notes(brought: &worktree::Brought, carries: bool, took: std::time::Duration) -> Vec<String> {
    let mut notes = Vec::new();
    if carries {
        let (files, size) = (thousands(brought.files), brought.bytes >> 20);
        let mut note = format!("carried {files} files, {size} MiB in {:.1} s", took.as_secs_f64());
        let skipped: Vec<String> = brought.skipped.iter().map(|(why, n)| format!("{} ({why})", thousands(*n))).collect();
        if !skipped.is_empty() {
            note.push_str(&format!("; passed over: {}", skipped.join(", ")));
        }
        notes.push(note);
    }
    let list = |paths: &[model::path::RawPath], more: u64| {
        let mut names: Vec<String> = paths.iter().take(5).map(ToString::to_string).collect();
        let more = more + (paths.len() - names.len()) as u64;
        if more > 0 {
            names.push(format!("{} more", thousands(more)));
        }
        names.join(", ")
    };
    if !brought.masked.is_empty() {
        notes.push(format!(
            "masked: {}: their keys are there, their values are placeholders",
            list(&brought.masked, brought.masked_more)
        ));
    }
    if !brought.tracked.is_empty() {
        let files = list(&brought.tracked, 0);
        notes.push(format!("not masked, since in the repository's history and without anything like a secret: {files}"));
    }
    notes
}

/// 12345 as 12,345.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn free(text: &str, glue: &str, is_free: impl Fn(&str) -> bool) -> String {
    if is_free(text) {
        return text.to_owned();
    }
    (2u32..).map(|n| format!("{text}{glue}{n}")).find(|t| is_free(t)).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_name_is_plain_whatever_the_title_is() {
        assert_eq!(slug("Fix: the *WAL* tail!"), "fix-the-wal-tail");
        assert_eq!(slug("../../etc"), "etc");
        assert_eq!(slug("…"), "task");
        assert_eq!(slug("--help"), "help");
        assert!(slug(&"a b".repeat(100)).len() <= 41);
    }

    #[test]
    fn a_taken_name_gets_the_next_number() {
        assert_eq!(free("a", "-", |t| t != "a" && t != "a-2"), "a-3");
    }

    #[test]
    fn figures_can_be_read() {
        assert_eq!(
            (thousands(0), thousands(999), thousands(12_345), thousands(1_000_000)),
            ("0".into(), "999".into(), "12,345".into(), "1,000,000".into())
        );
    }
}
