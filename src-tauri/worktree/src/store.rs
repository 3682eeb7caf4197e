//! Airlock's own repository of one of the person's, and the history that jails read.

use crate::config::{Persons, Text};
use crate::files;
use crate::git::{Git, GitError, LONG};
use crate::inspect::RepoFacts;
use model::id::{CommitId, RepoId, TaskId};
use model::layout::{Layout, TaskDir};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A history is packed anew instead of chained when its chain would be longer.
const CHAIN: usize = 8;

/// How far creation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// History is copied from the person's repository; percent of objects.
    History(u8),
    /// Files are written; percent of files.
    Files(u8),
    /// Ignored files come along from the working copy; how many so far.
    Carried {
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Something about the new task that a person should know.
    Note(String),
}

/// What git knows of one task: where its objects are and where it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskGit {
    /// Airlock's directories.
    pub layout: Layout,
    /// The repository.
    pub repo: RepoId,
    /// The task.
    pub task: TaskId,
    /// The commit that it started from.
    pub base: CommitId,
}

impl TaskGit {
    /// The task's directory.
    pub fn dir(&self) -> TaskDir {
        self.layout.task(&self.task)
    }

    /// The objects directories that the task's history is in, in the order in which jails show them (`…/history/0`, `…/history/1`).
    pub fn history(&self) -> Result<Vec<PathBuf>, GitError> {
        let list = std::fs::read_to_string(self.dir().objects().join("info/alternates"))
            .map_err(|source| GitError::Io { doing: "read the task's history", source })?;
        let root = self.layout.repo(&self.repo).join("history");
        Ok(list.lines().filter_map(|l| l.rsplit('/').next()).map(|key| root.join(key)).collect())
    }

    /// A command on the store that reads and writes the task's objects.
    pub(crate) fn git<'a>(&self, doing: &'static str) -> Git<'a> {
        Git::new(doing).at(&store_dir(&self.layout, &self.repo)).objects(&self.dir().objects())
    }
}

/// The bare repository.
pub(crate) fn store_dir(layout: &Layout, repo: &RepoId) -> PathBuf {
    layout.repo(repo).join("store.git")
}

/// The directory of a task's worktree in the store.
pub(crate) fn worktree_dir(layout: &Layout, repo: &RepoId, task: &TaskId) -> PathBuf {
    store_dir(layout, repo).join("worktrees").join(task.as_str())
}

/// A store that this process alone changes.
pub(crate) struct Store {
    root: PathBuf,
    _lock: File,
}

/// What is known of one packed history, kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The commits that it reaches from.
    tips: BTreeSet<CommitId>,
    /// Where a shallow history ends.
    shallow: BTreeSet<String>,
    /// The directories that hold it together, oldest first.
    chain: Vec<String>,
}

impl Store {
    /// Opens it, made or brought up to date with the person's configuration.
    pub(crate) fn open(layout: &Layout, repo: &RepoId, persons: &Persons) -> io::Result<Self> {
        let root = layout.repo(repo);
        files::make_dirs(&root.join("history"))?;
        let lock = files::lock(&root.join("lock"))?;
        let git = root.join("store.git");
        for dir in ["objects/info", "objects/pack", "refs/heads", "info", "worktrees"] {
            files::make_dirs(&git.join(dir))?;
        }
        files::replace(&git.join("config"), &Text::own().set("core.bare", "true").inert(persons).into_bytes())?;
        files::replace(&git.join("info/attributes"), &persons.attributes)?;
        // Written last: without it git sees no repository.
        files::replace(&git.join("HEAD"), b"ref: refs/heads/none\n")?;
        Ok(Self { root, _lock: lock })
    }

    /// Makes sure that everything reachable from `tips` is here; the keys of the directories that hold exactly it.
    pub(crate) fn history(
        &self,
        repo: &RepoFacts,
        tips: &BTreeSet<CommitId>,
        progress: &dyn Fn(u8),
    ) -> Result<Vec<String>, GitError> {
        let io = |source| match source {
            e if is_full(&e) => GitError::DiskFull { doing: "write the history" },
            source => GitError::Io { doing: "write the history", source },
        };
        let shallow = shallow(repo).map_err(io)?;
        let mut hash = Sha256::new();
        for part in tips.iter().map(CommitId::as_str).chain(shallow.iter().map(String::as_str)) {
            hash.update(part);
            hash.update("\n");
        }
        let key: String = hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
        let records = self.records().map_err(io)?;
        if let Some((_, known)) = records.iter().find(|(k, _)| *k == key) {
            return Ok(known.chain.clone());
        }
        let below = self.best_below(repo, tips, &shallow, records)?;
        let have: Vec<CommitId> = below.iter().flat_map(|r| r.tips.iter().cloned()).collect();
        let packed = self.pack(repo, tips, &have, &key, progress)?;
        let mut chain = below.map_or_else(Vec::new, |r| r.chain);
        if packed {
            chain.push(key.clone());
        }
        let record = Record { tips: tips.clone(), shallow, chain };
        let text = serde_json::to_vec(&record).map_err(|e| io(e.into()))?;
        files::replace(&self.root.join("history").join(format!("{key}.json")), &text).map_err(io)?;
        self.write_alternates().map_err(io)?;
        Ok(record.chain)
    }

    fn records(&self) -> io::Result<Vec<(String, Record)>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(self.root.join("history"))? {
            let path = entry?.path();
            let key = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".json")).map(str::to_owned);
            if let Some(key) = key
                && let Ok(record) = serde_json::from_slice::<Record>(&std::fs::read(&path)?)
                && record.chain.iter().all(|k| self.root.join("history").join(k).join("pack").is_dir())
            {
                records.push((key, record));
            }
        }
        Ok(records)
    }

    /// The largest known history that the wanted one contains whole.
    fn best_below(
        &self,
        repo: &RepoFacts,
        tips: &BTreeSet<CommitId>,
        shallow: &BTreeSet<String>,
        records: Vec<(String, Record)>,
    ) -> Result<Option<Record>, GitError> {
        let mut best: Option<(u64, Record)> = None;
        for (_, record) in records {
            if record.shallow != *shallow || record.chain.len() >= CHAIN {
                continue;
            }
            let not = |from: &BTreeSet<CommitId>, not: &BTreeSet<CommitId>| {
                let lines: String = from.iter().map(|t| format!("{t}\n")).chain(not.iter().map(|t| format!("^{t}\n"))).collect();
                repo.git("compare histories").args(["rev-list", "--count", "--stdin"]).input(lines.into_bytes()).run()
            };
            // Tips that the person's repository has lost since make git fail: such a history is not built upon.
            let beyond = not(&record.tips, tips)?;
            if beyond.code != 0 || beyond.stdout.trim_ascii() != b"0" {
                continue;
            }
            let missing = not(tips, &record.tips)?;
            let missing = std::str::from_utf8(&missing.stdout).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(u64::MAX);
            if best.as_ref().is_none_or(|(least, _)| missing < *least) {
                best = Some((missing, record));
            }
        }
        Ok(best.map(|(_, record)| record))
    }

    /// Packs what `tips` reach and `have` do not; false where that is nothing.
    fn pack(
        &self,
        repo: &RepoFacts,
        tips: &BTreeSet<CommitId>,
        have: &[CommitId],
        key: &str,
        progress: &dyn Fn(u8),
    ) -> Result<bool, GitError> {
        const DOING: &str = "copy the history of the repository";
        let io = |source| GitError::Io { doing: DOING, source };
        let making = tempfile::Builder::new().prefix(".making-").tempdir_in(self.root.join("history")).map_err(io)?;
        for dir in ["pack", "info"] {
            files::make_dirs(&making.path().join(dir)).map_err(io)?;
        }
        let lines: String = tips.iter().map(|t| format!("{t}\n")).chain(have.iter().map(|t| format!("^{t}\n"))).collect();
        // Deltas that exist are reused and no new ones are looked for: the pack is read locally, so speed counts, not size.
        let source = repo
            .git(DOING)
            .args([
                "pack-objects",
                "--revs",
                "--stdout",
                "--delta-base-offset",
                "--window=0",
                "--progress",
                "--all-progress-implied",
            ])
            .input(lines.into_bytes())
            .time(LONG);
        let sink =
            Git::new(DOING).at(&self.root.join("store.git")).objects(making.path()).args(["index-pack", "--stdin"]).time(LONG);
        let (first, second) = source.into(sink, &|line| {
            if let Some(p) = percent(line, "Writing objects:") {
                progress(p);
            }
        })?;
        // The reader's failure (a full disk) breaks the writer's pipe, so it is told first.
        if second.code != 0 && first.code != 0 && !second.stderr.contains("early EOF") {
            second.checked(DOING)?;
        } else {
            first.checked(DOING)?;
            second.checked(DOING)?;
        }
        let empty =
            !std::fs::read_dir(making.path().join("pack")).map_err(io)?.any(|e| e.is_ok_and(|e| holds_objects(&e.path())));
        if empty {
            return Ok(false);
        }
        let place = self.root.join("history").join(key);
        std::fs::rename(making.path(), &place).map_err(io)?;
        drop(making.keep());
        Ok(true)
    }

    /// Makes the store a whole repository: its alternates are all histories.
    fn write_alternates(&self) -> io::Result<()> {
        let mut list = String::new();
        for entry in std::fs::read_dir(self.root.join("history"))? {
            let entry = entry?;
            if entry.path().join("pack").is_dir()
                && let Some(name) = entry.file_name().to_str().filter(|n| !n.starts_with('.'))
            {
                list.push_str(&format!("../../history/{name}\n"));
            }
        }
        files::replace(&self.root.join("store.git/objects/info/alternates"), list.as_bytes())
    }

    /// Drops histories that no task uses, but for the largest chain, from which the next task is made fast.
    pub(crate) fn prune(layout: &Layout, repo: &RepoId) -> io::Result<()> {
        let root = layout.repo(repo);
        if !root.is_dir() {
            return Ok(());
        }
        let store = Self { _lock: files::lock(&root.join("lock"))?, root };
        let mut used = BTreeSet::new();
        for task in std::fs::read_dir(layout.data.join("tasks"))? {
            let list = std::fs::read_to_string(task?.path().join("objects/info/alternates")).unwrap_or_default();
            let here = format!("/{repo}/history/");
            used.extend(list.lines().filter(|l| l.contains(&here)).filter_map(|l| l.rsplit('/').next()).map(str::to_owned));
        }
        let records = store.records()?;
        if let Some((_, record)) =
            records.iter().max_by_key(|(key, r)| (r.chain.iter().all(|k| used.contains(k)), r.chain.len(), key.clone()))
        {
            used.extend(record.chain.iter().cloned());
        }
        for (key, record) in &records {
            if !record.chain.iter().all(|k| used.contains(k)) {
                std::fs::remove_file(store.root.join("history").join(format!("{key}.json")))?;
            }
        }
        let dir = files::open_dir(&store.root.join("history"))?;
        for name in files::names(std::os::fd::AsFd::as_fd(&dir))? {
            let text = name.to_string_lossy();
            if !text.ends_with(".json") && !used.contains(text.as_ref()) {
                files::remove_all(std::os::fd::AsFd::as_fd(&dir), &name)?;
            }
        }
        if store.root.join("store.git/objects/info").is_dir() {
            store.write_alternates()?;
        }
        Ok(())
    }
}

/// Where the repository's history is cut.
pub(crate) fn shallow(repo: &RepoFacts) -> io::Result<BTreeSet<String>> {
    match std::fs::read_to_string(repo.common_dir.join("shallow")) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(e),
    }
}

/// The alternates of a task's objects, relative so that no character of a path means anything.
pub(crate) fn task_alternates(repo: &RepoId, chain: &[String]) -> String {
    chain.iter().map(|key| format!("../../../repos/{repo}/history/{key}\n")).collect()
}

/// Git writes a pack even of no objects: its count stands in bytes 8 to 11.
fn holds_objects(path: &Path) -> bool {
    let mut head = [0; 12];
    path.extension().is_some_and(|e| e == "pack")
        && File::open(path).and_then(|mut f| io::Read::read_exact(&mut f, &mut head)).is_ok()
        && head[8..] != [0; 4]
}

/// The percentage in a progress line that starts with `what`.
pub(crate) fn percent(line: &str, what: &str) -> Option<u8> {
    line.strip_prefix(what)?.split('%').next()?.trim().parse().ok()
}

/// Whether the disk (or the quota) is full.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
