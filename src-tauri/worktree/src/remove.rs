//! Removes a task's files: renamed away at once, then emptied by descriptor, whatever an agent made of them.

use crate::create::{BEGINNING, MARKER};
use crate::files;
use crate::plan::{BEGUN, exits};
use crate::store::{Store, worktree_dir};
use model::id::{ExitId, RepoId, TaskId};
use model::layout::Layout;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directories on their way out are called so.
const GOING: &str = ".going-";

/// Nobody waits longer between planning an exit and doing it.
const PLANNED: Duration = Duration::from_secs(3600);

/// Files that could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("`{}` could not be removed: {source}. Look at its owner and permissions, then discard again", path.display())]
pub struct RemoveError {
    /// What.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Removes a task's files and its worktree's entry in the store. Removing what is gone is fine. Nothing may run in it.
pub fn remove_task(layout: &Layout, repo: &RepoId, task: &TaskId) -> Result<(), RemoveError> {
    let dir = layout.task(task);
    take_away(&worktree_dir(layout, repo, task))?;
    take_away(dir.path())?;
    if layout.data.join("tasks").is_dir() {
        Store::prune(layout, repo).map_err(|source| RemoveError { path: layout.repo(repo), source })?;
    }
    Ok(())
}

/// Removes a repository's store and history. Its tasks must be removed first.
pub fn remove_repo(layout: &Layout, repo: &RepoId) -> Result<(), RemoveError> {
    take_away(&layout.repo(repo))
}

/// Removes what creations, plans of exits and removals that were killed have left; the tasks whose half-made files went.
pub fn clean_up(layout: &Layout) -> Result<Vec<TaskId>, RemoveError> {
    abandoned_exits(layout)?;
    let mut gone = Vec::new();
    let tasks = layout.data.join("tasks");
    if !tasks.is_dir() {
        return Ok(gone);
    }
    let beginning = layout.data.join(BEGINNING);
    let _beginning = files::lock(&beginning).map_err(|source| RemoveError { path: beginning, source })?;
    for place in ["tasks", "repos"] {
        let root = layout.data.join(place);
        for entry in listed(&root)? {
            let path = root.join(&entry);
            if entry.starts_with(GOING) {
                remove(&root, &entry)?;
                continue;
            }
            let Ok(task) = TaskId::parse(&entry) else { continue };
            if place == "tasks" && is_half_made(&path).map_err(|source| RemoveError { path: path.clone(), source })? {
                for repo in listed(&layout.data.join("repos"))? {
                    if let Ok(repo) = RepoId::parse(&repo) {
                        take_away(&worktree_dir(layout, &repo, &task))?;
                    }
                }
                take_away(&path)?;
                gone.push(task);
            }
        }
    }
    for entry in listed(&layout.data.join("repos"))? {
        let root = layout.data.join("repos").join(&entry);
        // A store in use is left for the next time.
        let free = files::try_lock(&root.join("lock"), files::Missing::Make)
            .map_err(|source| RemoveError { path: root.clone(), source })?;
        if free.is_some() {
            for half in listed(&root.join("history"))?.iter().filter(|n| n.starts_with('.')) {
                remove(&root.join("history"), half)?;
            }
            for half in listed(&root.join("store.git/worktrees"))?.iter().filter(|n| n.starts_with(GOING)) {
                remove(&root.join("store.git/worktrees"), half)?;
            }
        }
    }
    Ok(gone)
}

/// Removes what exits have prepared that were planned and then neither begun nor given up. No journal names them.
fn abandoned_exits(layout: &Layout) -> Result<(), RemoveError> {
    let root = exits(layout);
    for entry in listed(&root)? {
        let place = root.join(&entry);
        let failed = |source| RemoveError { path: place.clone(), source };
        if entry.starts_with(GOING) {
            remove(&root, &entry)?;
            continue;
        }
        let age = match std::fs::symlink_metadata(&place).and_then(|meta| meta.modified()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            // One from the future is left alone.
            modified => modified.map_err(failed)?.elapsed().unwrap_or_default(),
        };
        if age < PLANNED || place.join(BEGUN).exists() || ExitId::parse(&entry).is_err() {
            continue;
        }
        // Whoever acts on it holds its lock, and says that it has begun before letting go.
        let lock = files::try_lock(&place.join("lock"), files::Missing::Make).map_err(failed)?;
        if lock.is_some() && !place.join(BEGUN).exists() {
            take_away(&place)?;
        }
    }
    Ok(())
}

/// Whether a task's creation was killed: its marker is there and nobody holds it. A directory without anything is one too.
fn is_half_made(task: &Path) -> io::Result<bool> {
    let marker = task.join(MARKER);
    if !marker.exists() {
        return Ok(std::fs::read_dir(task)?.next().is_none());
    }
    let held = files::try_lock(&marker, files::Missing::Leave)?;
    // Whoever finished between the two looks has taken the marker away first.
    Ok(held.is_some() && marker.exists())
}

/// Text names in a directory; none where it is missing.
fn listed(dir: &Path) -> Result<Vec<String>, RemoveError> {
    let failed = |source| RemoveError { path: dir.to_owned(), source };
    match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(failed(e)),
        Ok(entries) => entries
            .filter_map(|e| e.map(|e| e.file_name().into_string().ok()).transpose())
            .collect::<io::Result<_>>()
            .map_err(failed),
    }
}

/// Renames a directory out of the way, so that it is gone at once, and removes it.
fn take_away(path: &Path) -> Result<(), RemoveError> {
    let failed = |source| RemoveError { path: path.to_owned(), source };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let going = format!("{GOING}{}", name.to_string_lossy());
    if std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    remove(parent, &going)?;
    match std::fs::rename(path, parent.join(&going)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed(e)),
        Ok(()) => remove(parent, &going),
    }
}

fn remove(parent: &Path, name: &str) -> Result<(), RemoveError> {
    let failed = |source| RemoveError { path: parent.join(name), source };
    let dir = match files::open_dir(parent) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    let name = CString::new(std::ffi::OsStr::new(name).as_bytes()).map_err(|e| failed(e.into()))?;
    files::remove_all(dir.as_fd(), &name).map_err(failed)
}
