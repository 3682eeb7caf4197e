//! Candidate: the workspace frozen as a tree, and what changed in it.

use crate::error::{Code, Error, io};
use crate::{Attached, Engine};
use model::diff::{Candidate, ChangedFile, FileDiff};
use model::id::{TaskId, TreeId};
use model::path::RawPath;
use model::protocol::{Reply, Request};
use model::task::Task;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A candidate with its changes.
#[derive(Debug, Clone, Serialize)]
pub struct Look {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Changed files against the base, by path.
    pub files: Vec<ChangedFile>,
}

/// How long stopping every process may take.
const FREEZE: Duration = Duration::from_secs(30);

/// Between a run's lock and its socket, at its start and at its end.
const SETTLES: Duration = Duration::from_secs(15);

impl Engine {
    /// Who has the task's files: the run's lock where nothing runs, or a connection to the warden that holds it.
    fn owner(&self, id: &TaskId) -> Result<(Option<OwnedFd>, Option<Attached>), Error> {
        let start = std::time::Instant::now();
        loop {
            // A discard may have come before: its task has no directory any more, and needs none for a lock.
            self.need_files(id)?;
            if let Some(held) = self.lock_task(id)? {
                return Ok((Some(held), None));
            }
            match self.attach(id) {
                Ok(warden) => return Ok((None, Some(warden))),
                Err(e) if e.code == Code::NotFound && start.elapsed() < SETTLES => std::thread::sleep(Duration::from_millis(50)),
                Err(e) => return Err(e),
            }
        }
    }

    pub(crate) fn git(&self, task: &Task) -> worktree::TaskGit {
        worktree::TaskGit {
            layout: self.host.layout.clone(),
            repo: task.repo.clone(),
            task: task.id.clone(),
            base: task.base.clone(),
        }
    }

    /// Takes a candidate of the task as it is now. A live run is stopped for as long as it takes.
    pub fn candidate(&self, id: &TaskId) -> Result<Candidate, Error> {
        self.with_files(id, |task| self.take_candidate(task))
    }

    fn take_candidate(&self, task: &Task) -> Result<Candidate, Error> {
        let id = &task.id;
        let path = self.host.layout.task(id).path().join("candidate.lock");
        // One at a time: a keeper's index has one writer. Waits, since the other ends within its own limit.
        let lock = rustix::fs::open(
            &path,
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NOFOLLOW,
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .map_err(|e| io("opening the lock", &path)(e.into()))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|e| io("locking", &path)(e.into()))?;
        let (held, mut warden) = self.owner(id)?;
        let still = match &mut warden {
            // The run's lock is here: nothing runs, and nothing can start while it is held.
            None => held.is_some(),
            Some(warden) => {
                warden.send(&Request::Freeze)?;
                warden.wait_for(FREEZE, |reply| match reply {
                    Reply::Frozen { complete } => Some(*complete),
                    // The run ended meanwhile: its jail is gone, nothing writes any more.
                    Reply::Ended { .. } => Some(true),
                    _ => None,
                })?
            }
        };
        let keeper = self.keeper(self.task_policy(id)?.policy());
        let candidate = worktree::candidate(&self.git(task), &keeper, still).map_err(|e| match e {
            worktree::CandidateError::Keeper(e) => self.keeper_failed(&e),
            e => e.into(),
        })?;
        // Closing the connection thaws.
        drop(warden);
        drop(held);
        self.db.set_candidate(sys::clock::unix_millis(), id, &candidate)?;
        Ok(candidate)
    }

    /// Takes a candidate and lists its changes.
    pub fn look(&self, id: &TaskId) -> Result<Look, Error> {
        let candidate = self.candidate(id)?;
        let files = self.changes(id, &candidate.tree)?;
        Ok(Look { candidate, files })
    }

    /// Changed files of a tree of this task against its base.
    pub fn changes(&self, id: &TaskId, tree: &TreeId) -> Result<Vec<ChangedFile>, Error> {
        self.with_files(id, |task| Ok(worktree::changes(&self.git(task), None, tree)?))
    }

    /// The whole difference as git writes it: raw bytes, hostile to a terminal.
    pub fn unified(&self, id: &TaskId, tree: &TreeId) -> Result<Vec<u8>, Error> {
        self.with_files(id, |task| Ok(worktree::unified(&self.git(task), None, tree)?))
    }

    /// One file's difference as coloured rows.
    pub fn file_diff(&self, id: &TaskId, tree: &TreeId, path: &RawPath, context: u32) -> Result<FileDiff, Error> {
        self.with_files(id, |task| Ok(worktree::file_diff(&self.git(task), None, tree, path, context)?))
    }

    /// The candidate that was taken last.
    pub fn last_candidate(&self, id: &TaskId) -> Result<Option<Candidate>, Error> {
        Ok(self.db.candidate(id)?)
    }

    pub(crate) fn need_candidate(&self, id: &TaskId, tree: &TreeId) -> Result<Candidate, Error> {
        match self.db.candidate(id)? {
            Some(c) if c.tree == *tree => Ok(c),
            Some(c) => Err(Error::new(
                Code::Stale,
                format!("the task's candidate is {} now, not {tree}: take a new look (`airlock diff {id}`)", c.tree),
            )),
            None => Err(Error::new(Code::Stale, format!("no candidate of task {id} was looked at yet: `airlock diff {id}`"))),
        }
    }
}
