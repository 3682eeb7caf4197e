//! Repositories: add, list, forget, look at.

use crate::Engine;
use crate::error::{Code, Error};
use model::id::RepoId;
use model::task::Repo;
use serde::Serialize;
use std::path::Path;
use worktree::RepoFacts;

/// A repository as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct RepoView {
    /// The record.
    #[serde(flatten)]
    pub repo: Repo,
    /// Branch checked out; none when HEAD is detached.
    pub head_branch: Option<String>,
    /// Local branches.
    pub branches: Vec<String>,
    /// The branch that work usually starts from.
    pub default_branch: Option<String>,
    /// Commit checked out.
    pub head: String,
    /// Whether the working copy has changes (they stay where they are).
    pub dirty: bool,
    /// Whether there are submodules (their contents do not come along yet).
    pub submodules: bool,
}

impl Engine {
    pub(crate) fn inspect(&self, dir: &Path) -> Result<RepoFacts, Error> {
        Ok(worktree::inspect(dir, &self.host.layout, &self.host.home)?)
    }

    /// Adds the repository that `dir` is in; adding it again gives the same record.
    pub fn repo_add(&self, dir: &Path) -> Result<Repo, Error> {
        let facts = self.inspect(dir)?;
        if let Some(known) = self.db.repo_at(&facts.top)? {
            return Ok(known);
        }
        let name = facts
            .top
            .file_name()
            .map_or_else(|| "/".into(), |n| model::path::RawPath::from(std::os::unix::ffi::OsStrExt::as_bytes(n)).to_string());
        let now = sys::clock::unix_millis();
        let repo = Repo { id: RepoId::from_random(sys::random::bytes()), path: facts.top, name, added: now };
        match self.db.add_repo(now, &repo) {
            Ok(()) => Ok(repo),
            // Somebody else added it in between.
            Err(e) => self.db.repo_at(&repo.path)?.ok_or_else(|| e.into()),
        }
    }

    /// All repositories.
    pub fn repos(&self) -> Result<Vec<Repo>, Error> {
        Ok(self.db.repos()?)
    }

    /// One by id.
    pub fn repo(&self, id: &RepoId) -> Result<Repo, Error> {
        self.db
            .repo(id)?
            .ok_or_else(|| Error::new(Code::NotFound, format!("there is no repository {id}: `airlock repo list` shows them")))
    }

    /// A repository as it is now. An error says why it can't be worked on (moved, deleted, no commit, …).
    pub fn repo_view(&self, id: &RepoId) -> Result<RepoView, Error> {
        let repo = self.repo(id)?;
        let facts = self.inspect(&repo.path)?;
        Ok(RepoView {
            repo,
            head_branch: facts.head_branch,
            branches: facts.branches.into_iter().map(|b| b.name).collect(),
            default_branch: facts.default_branch,
            head: facts.head.to_string(),
            dirty: facts.dirty,
            submodules: facts.submodules,
        })
    }

    /// Finds a repository by id or by a directory in it.
    pub fn find_repo(&self, text: &Path) -> Result<Repo, Error> {
        if let Some(id) = text.to_str().and_then(|t| RepoId::parse(t).ok())
            && let Some(repo) = self.db.repo(&id)?
        {
            return Ok(repo);
        }
        if let Some(repo) = self.db.repo_at(text)? {
            return Ok(repo);
        }
        let facts = self.inspect(text)?;
        self.db.repo_at(&facts.top)?.ok_or_else(|| {
            Error::new(Code::NotFound, format!("{} was not added: `airlock repo add` adds it", facts.top.display()))
        })
    }

    /// Forgets a repository. Its tasks must be discarded first. Nothing of the person's is touched.
    pub fn repo_forget(&self, id: &RepoId) -> Result<(), Error> {
        let repo = self.repo(id)?;
        let live = self.db.tasks(false)?.into_iter().filter(|t| t.repo == *id).count();
        if live > 0 {
            return Err(Error::new(
                Code::Conflict,
                format!("{} still has {live} tasks: discard them first (`airlock task discard ID`)", repo.path.display()),
            ));
        }
        worktree::remove_repo(&self.host.layout, id)?;
        Ok(self.db.forget_repo(sys::clock::unix_millis(), id)?)
    }
}
