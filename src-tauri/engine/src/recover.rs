//! Recover: what a crash left half-way is finished or undone.

use crate::error::{Code, Error, io};
use crate::{Engine, host};
use db::ExitState;
use model::id::TaskId;
use model::run::Outcome;
use model::task::{Step, TaskState};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

fn open_lock(path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))
        .map_err(|e| io("opening the lock", path)(e.into()))
}

/// Takes a lock file. `None` where somebody holds it.
pub(crate) fn lock(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let fd =
        rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))
            .map_err(|e| io("opening the lock", path)(e.into()))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(io("locking", path)(e.into())),
    }
}

impl Engine {
    /// Takes the task's lock, which its warden or its maker holds.
    pub(crate) fn lock_task(&self, id: &TaskId) -> Result<Option<OwnedFd>, Error> {
        let dir = self.host.layout.task(id);
        host::private_directory(dir.path())?;
        lock(&dir.lock())
    }

    /// Brings every task and exit into a state that somebody stands for.
    pub(crate) fn recover(&self) -> Result<(), Error> {
        for task in self.db.tasks(false)? {
            if task.state != TaskState::Running {
                continue;
            }
            let Some(held) = self.lock_task(&task.id)? else { continue };
            // Under the lock the state may be newer than the list.
            let Some(task) = self.db.task(&task.id)?.filter(|t| t.state == TaskState::Running) else { continue };
            let outcome = Outcome {
                exit: None,
                signal: None,
                limit: None,
                refused: Some("its warden ended without a word (killed, or the machine went down)".into()),
            };
            let now = sys::clock::unix_millis();
            if let Some(run) = &task.last_run {
                self.db.end_run(now, run, &outcome)?;
                self.db.end_asks(now, run)?;
            }
            self.db.step(now, &task.id, Step::RunEnded, outcome.refused.as_deref(), None)??;
            drop(held);
        }
        stores::clean_up(&self.host.layout.caches());
        // What can't be mended now (a repository that moved, a directory that is busy) must not keep everything else shut:
        // it stays written down and is tried again at the next start.
        for mended in [self.recover_files(), self.recover_exits()] {
            if let Err(e) = mended {
                tracing::warn!(error = %e, "something that was cut off could not be mended");
            }
        }
        Ok(())
    }

    /// Held (shared) from the first file of a task to its record, so that a start beside it does not take it for a leftover.
    pub(crate) fn lock_creating(&self) -> Result<OwnedFd, Error> {
        let path = self.host.layout.data.join("creating.lock");
        let fd = open_lock(&path)?;
        rustix::fs::flock(&fd, FlockOperation::LockShared).map_err(|e| io("locking", &path)(e.into()))?;
        Ok(fd)
    }

    /// Removes the files of tasks that have no record, or whose record says that they are gone.
    fn recover_files(&self) -> Result<(), Error> {
        let Some(_alone) = lock(&self.host.layout.data.join("creating.lock"))? else { return Ok(()) };
        worktree::clean_up(&self.host.layout)?;
        let Ok(dirs) = std::fs::read_dir(self.host.layout.data.join("tasks")) else { return Ok(()) };
        for id in dirs.flatten().filter_map(|d| TaskId::parse(d.file_name().to_str()?).ok()) {
            let repos: Vec<model::id::RepoId> = match self.db.task(&id)? {
                Some(task) if task.state == TaskState::Discarded => vec![task.repo],
                Some(_) => continue,
                None => self.db.repos()?.into_iter().map(|r| r.id).collect(),
            };
            // Its lock says whether somebody is just removing it.
            let Some(_held) = self.lock_task(&id)? else { continue };
            for repo in repos {
                worktree::remove_task(&self.host.layout, &repo, &id)?;
            }
        }
        Ok(())
    }

    fn recover_exits(&self) -> Result<(), Error> {
        let open = self.db.open_exits()?;
        if open.is_empty() {
            return Ok(());
        }
        // Somebody alive may be in the middle of one.
        let Some(_held) = lock(&self.host.layout.data.join("exit.lock"))? else { return Ok(()) };
        let mut first = Ok(());
        for exit in self.db.open_exits()? {
            let ended = self.finish_or_undo(exit);
            if first.is_ok() {
                first = ended;
            }
        }
        first
    }

    /// The lock under which exits happen, one at a time.
    pub(crate) fn lock_exits(&self) -> Result<OwnedFd, Error> {
        lock(&self.host.layout.data.join("exit.lock"))?
            .ok_or_else(|| Error::new(Code::Conflict, "another apply or undo is under way: try again when it is done"))
    }

    pub(crate) fn put_exit(&self, row: &mut db::ExitRow, state: ExitState) -> Result<(), Error> {
        row.state = state;
        Ok(self.db.put_exit(row)?)
    }
}
