//! Asks and grants: what waits for the person, their answers, and what these permit.

use crate::Engine;
use crate::error::{Code, Error};
use model::ask::{Answer, Ask, AskState, Asked, Grant, Moment, Scope};
use model::id::{AskId, GrantId, RepoId, TaskId};
use model::protocol::{Reply, Request};
use model::task::TaskState;
use serde::Serialize;
use std::time::Duration;

/// How long a warden may take to store an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// An ask with what a person needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskView {
    /// The ask.
    #[serde(flatten)]
    pub ask: Ask,
    /// What an answer must name.
    pub digest: String,
    /// Title of its task.
    pub title: String,
    /// Name of its repository.
    pub repository: String,
    /// For how many milliseconds each try is held, where it is open and its task's policy says so.
    pub hold: Option<u64>,
}

/// A grant with what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantView {
    /// The grant.
    #[serde(flatten)]
    pub grant: Grant,
    /// Whether it permits something more.
    pub lives: bool,
    /// Title of its task, where it is for one.
    pub title: Option<String>,
    /// Name of its repository.
    pub repository: String,
}

/// What a grant by hand is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum For {
    /// One task.
    Task(TaskId),
    /// Every task of a repository.
    Repo(RepoId),
}

/// What taking a grant back did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Revoked {
    /// Whether it was there to be taken back.
    pub was: bool,
    /// Connections that were closed.
    pub closed: u64,
}

/// What is granted by hand.
fn asked(text: &str) -> Result<Asked, Error> {
    let usage = |why: String| Error::new(Code::Usage, format!("`{text}` can't be granted: {why}"));
    if text.starts_with(['~', '/']) {
        let place = policy::HostPath::parse(text).map_err(|why| usage(why.into()))?;
        return Ok(Asked::Read { path: place.to_string().as_str().into() });
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "443"));
    let target = policy::Target::parse(&format!("{host}:{port}"));
    let target = target.map_err(|e| usage(format!("{e}; as in example.org:443, or ~/.config/tool for a hidden place")))?;
    Ok(Asked::Connect { host: target.to.to_string(), port: target.port })
}

fn moment() -> Moment {
    Moment { wall: sys::clock::unix_millis(), boot: sys::clock::boot_millis(), boot_id: sys::clock::boot_id() }
}

impl Engine {
    /// What waits for an answer, oldest first; with `all` also what does not any more.
    pub fn asks(&self, task: Option<&TaskId>, all: bool) -> Result<Vec<AskView>, Error> {
        self.db.asks(task, !all)?.into_iter().map(|ask| self.ask_view(ask)).collect()
    }

    /// What waits for an answer in any task, and what was closed at or after a moment (unix milliseconds); oldest first.
    pub fn inbox(&self, since: u64) -> Result<Vec<AskView>, Error> {
        self.db.asks_since(since)?.into_iter().map(|ask| self.ask_view(ask)).collect()
    }

    /// One ask.
    pub fn ask(&self, id: &AskId) -> Result<AskView, Error> {
        let ask = self
            .db
            .ask(id)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("there is no ask {id}: `airlock ask list --all` shows them")))?;
        self.ask_view(ask)
    }

    fn ask_view(&self, ask: Ask) -> Result<AskView, Error> {
        let task = self.need_task(&ask.task)?;
        // Only connections are held.
        let held = ask.state == AskState::Open && matches!(ask.what, Asked::Connect { .. } | Asked::Request { .. });
        let policy = held.then(|| self.task_policy(&ask.task).ok()).flatten();
        let hold = policy.and_then(|p| u64::try_from(p.policy().hold().as_millis()).ok());
        Ok(AskView { digest: ask.digest(), title: task.title, repository: self.repo_name(&task.repo)?, hold, ask })
    }

    fn repo_name(&self, id: &RepoId) -> Result<String, Error> {
        Ok(self.db.repo(id)?.map_or_else(|| id.to_string(), |r| r.name))
    }

    /// Answers an ask whose digest is that of what was shown. Gives the grant that the answer made, none for a denial.
    pub fn answer(&self, id: &AskId, digest: &str, answer: &Answer) -> Result<Option<GrantId>, Error> {
        let AskView { ask, digest: own, .. } = self.ask(id)?;
        if own != digest {
            return Err(Error::new(Code::Stale, format!("ask {id} is about something else than what was shown: look again")));
        }
        match ask.state {
            AskState::Open => {}
            AskState::Allowed | AskState::Denied => {
                return Err(Error::new(Code::Stale, format!("ask {id} was answered already: `airlock ask show {id}` says how")));
            }
            AskState::Ended => {
                let message = format!(
                    "the run of ask {id} has ended: `airlock grant add {} --task {}` lets the next run of its task, `--repo DIR` those of every task",
                    ask.what, ask.task
                );
                return Err(Error::new(Code::Stale, message));
            }
        }
        let request = Request::Answer { ask: id.clone(), digest: digest.to_owned(), answer: answer.clone() };
        let grant = self.attach(&ask.task)?.ask(LIMIT, &request, |reply| match reply {
            Reply::Answered { grant } => Some(Ok(grant.clone())),
            Reply::NotAsked { message } => Some(Err(Error::new(Code::Stale, message.clone()))),
            _ => None,
        })??;
        if matches!(answer, Answer::Allow { scope: Scope::Repo, .. }) {
            let repo = self.need_task(&ask.task)?.repo;
            self.reread(&repo, Some(&ask.task))?;
        }
        Ok(grant)
    }

    /// Grants, newest first: those that count for one task, or all.
    pub fn grants(&self, task: Option<&TaskId>) -> Result<Vec<GrantView>, Error> {
        let of = task.map(|id| self.need_task(id)).transpose()?;
        let now = moment();
        let view = |grant: Grant| {
            let title = grant.task.as_ref().map(|id| self.need_task(id).map(|t| t.title)).transpose()?;
            Ok(GrantView { lives: grant.lives(&now), title, repository: self.repo_name(&grant.repo)?, grant })
        };
        self.db.grants(of.as_ref().map(|t| (&t.repo, &t.id)))?.into_iter().map(view).collect()
    }

    /// Permits by hand, for `lasts` or for good, connections to `HOST[:PORT]` or a look into a hidden place (`~/…` or `/…`).
    /// What waits for it in a run goes on.
    pub fn add_grant(&self, whom: &For, what: &str, lasts: Option<Duration>) -> Result<Grant, Error> {
        let what = asked(what)?;
        let (task, repo) = match whom {
            For::Task(id) => (Some(id.clone()), self.need_files(id)?.repo),
            For::Repo(id) => (None, id.clone()),
        };
        let now = moment();
        let millis = lasts.map(|l| u64::try_from(l.as_millis()).unwrap_or(u64::MAX));
        let grant = Grant {
            id: GrantId::from_random(sys::random::bytes()),
            task,
            repo: repo.clone(),
            what,
            ask: None,
            made: now.wall,
            until: millis.map(|m| now.after(m)),
            left: None,
            used: 0,
            revoked: None,
        };
        self.db.add_grant(now.wall, &grant)?;
        self.reread(&repo, None)?;
        Ok(grant)
    }

    /// Takes a grant back; connections that live by it are closed.
    pub fn revoke_grant(&self, id: &GrantId) -> Result<Revoked, Error> {
        let grant = self
            .db
            .grant(id)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("there is no grant {id}: `airlock grant list` shows them")))?;
        let was = self.db.revoke_grant(sys::clock::unix_millis(), id)?;
        let closed = self.reread(&grant.repo, None).map_err(|e| {
            let message = format!("grant {id} permits nothing new, but what lives by it may go on: {}", e.message);
            Error::new(e.code, message)
        })?;
        Ok(Revoked { was, closed })
    }

    /// Lets every running task of a repository read its grants anew; how many connections that closed.
    fn reread(&self, repo: &RepoId, but: Option<&TaskId>) -> Result<u64, Error> {
        let mut closed = 0;
        for task in self.db.tasks(false)? {
            if task.repo != *repo || task.state != TaskState::Running || Some(&task.id) == but {
                continue;
            }
            let told = self.attach(&task.id).and_then(|mut warden| {
                warden.ask(LIMIT, &Request::Grants, |reply| match reply {
                    Reply::GrantsRead { closed } => Some(*closed),
                    _ => None,
                })
            });
            match told {
                Ok(more) => closed += more,
                Err(e) if e.code == Code::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(closed)
    }
}
