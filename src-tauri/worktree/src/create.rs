//! Makes a task's files: history in the store, worktree, private git directory, the keeper's git directory.

use crate::config::{self, Persons, Text};
use crate::files;
use crate::git::{Git, GitError, LONG, pieces};
use crate::inspect::RepoFacts;
use crate::remove::remove_task;
use crate::store::{self, Progress, Store, TaskGit, is_full};
use model::id::{CommitId, RepoId, TaskId, TreeId};
use model::layout::Layout;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a jail shows history directory number N, from the objects of the private git directory: beside it in a jail's own root
/// and in the task's directory alike.
const HISTORY_INSIDE: &str = "../../history";

/// A file in a task's directory that exists, locked, while the task is being made.
pub(crate) const MARKER: &str = "creating";

/// Held while a new task's directory has no marker yet, and while leftovers are looked for.
pub(crate) const BEGINNING: &str = "tasks.lock";

/// What to create.
#[derive(Debug)]
pub struct CreateSpec<'a> {
    /// Airlock's directories.
    pub layout: &'a Layout,
    /// The person's home (their git configuration is read for name, e-mail, excludes and conversions).
    pub home: &'a Path,
    /// The repository.
    pub repo: &'a RepoFacts,
    /// Its id.
    pub repo_id: &'a RepoId,
    /// The new task's id; its directory must not exist.
    pub task_id: &'a TaskId,
    /// Where to start: any revision; `None` is HEAD.
    pub base: Option<&'a str>,
    /// The task's own branch (made in its private git directory only).
    pub branch: &'a str,
}

/// What was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The commit that the task starts from.
    pub base: CommitId,
    /// Its tree.
    pub base_tree: TreeId,
    /// The local branch that the base was named by, or HEAD's when it was HEAD.
    pub base_branch: Option<String>,
    /// Objects directories for the jail: number N is shown read-only as `/run/airlock/history/N`.
    pub history: Vec<PathBuf>,
}

/// Why nothing was created. Nothing of the task is left then.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The base names nothing.
    #[error("`{0}` names no commit of this repository: name a branch, a tag or a commit id that `git log` shows")]
    NoSuchRevision(String),
    /// The branch name is no name.
    #[error(
        "`{0}` can't be a branch name: git allows no spaces, `..`, `~`, `^`, `:`, `?`, `*`, `[`, no leading `-` and no trailing `.lock`"
    )]
    BadBranch(String),
    /// The directory is there already.
    #[error("task `{0}` has files already: choose another id")]
    Exists(TaskId),
    /// A partial clone without the objects.
    #[error(
        "this is a partial clone and lacks objects that the task needs: fetch them with `git fetch --refetch --filter=tree:999999 origin` or use a full clone ({0})"
    )]
    Partial(String),
    /// No room.
    #[error("the disk is full: {} could not be written. Free some space and try again; nothing was left", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// A file failed.
    #[error("`{}` could not be written: {source}", path.display())]
    Io {
        /// What was being written.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Makes store, history, worktree, private git directory and the keeper's. Blocking. The person's repository is only read. On
/// an error nothing of the task is left; what a kill leaves is removed by [`crate::clean_up`].
pub fn create(spec: &CreateSpec<'_>, progress: &dyn Fn(Progress)) -> Result<Created, CreateError> {
    let name = Git::new("check the branch name").args(["check-ref-format", "--branch", spec.branch]).run()?;
    if name.code != 0 {
        return Err(CreateError::BadBranch(spec.branch.to_owned()));
    }
    let revision = spec.base.unwrap_or("HEAD");
    let unknown = || CreateError::NoSuchRevision(revision.to_owned());
    let base = spec.repo.resolve(revision, "commit")?.and_then(|t| CommitId::parse(&t).ok()).ok_or_else(unknown)?;
    let base_tree = spec.repo.resolve(base.as_str(), "tree")?.and_then(|t| TreeId::parse(&t).ok()).ok_or_else(unknown)?;
    let base_branch = match spec.base {
        None | Some("HEAD") => spec.repo.head_branch.clone(),
        Some(name) => {
            let name = name.strip_prefix("refs/heads/").unwrap_or(name);
            spec.repo.branches.iter().find(|b| b.name == name && b.commit == base).map(|b| b.name.clone())
        }
    };

    let dir = spec.layout.task(spec.task_id);
    let tasks = spec.layout.data.join("tasks");
    files::make_dirs(&tasks).map_err(|e| failed(&tasks, e))?;
    let marker = dir.path().join(MARKER);
    let lock = {
        let beginning = spec.layout.data.join(BEGINNING);
        let _beginning = files::lock(&beginning).map_err(|e| failed(&beginning, e))?;
        match <std::fs::DirBuilder as std::os::unix::fs::DirBuilderExt>::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(dir.path())
        {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(CreateError::Exists(spec.task_id.clone())),
            made => made.map_err(|e| failed(dir.path(), e))?,
        }
        files::lock(&marker).map_err(|e| failed(&marker, e))
    };
    let made = lock.and_then(|lock| {
        let history = fill(spec, &base, &base_tree, base_branch.as_deref(), progress)?;
        std::fs::remove_file(&marker).map_err(|e| failed(&marker, e))?;
        drop(lock);
        Ok(history)
    });
    match made {
        Ok(history) => Ok(Created { base, base_tree, base_branch, history }),
        Err(e) => {
            if let Err(left) = remove_task(spec.layout, spec.repo_id, spec.task_id) {
                tracing::warn!("a failed creation left files: {left}");
            }
            Err(match e {
                CreateError::Git(e) if e.says("missing") && is_partial(spec.repo) => CreateError::Partial(e.to_string()),
                other => other,
            })
        }
    }
}

fn is_partial(repo: &RepoFacts) -> bool {
    repo.git("read the configuration")
        .args(["config", "--get-regexp", r"^remote\..*\.promisor$"])
        .run()
        .is_ok_and(|o| o.code == 0)
}

fn failed(path: &Path, source: io::Error) -> CreateError {
    let path = path.to_owned();
    if is_full(&source) { CreateError::DiskFull { path } } else { CreateError::Io { path, source } }
}

fn fill(
    spec: &CreateSpec<'_>,
    base: &CommitId,
    base_tree: &TreeId,
    base_branch: Option<&str>,
    progress: &dyn Fn(Progress),
) -> Result<Vec<PathBuf>, CreateError> {
    let dir = spec.layout.task(spec.task_id);
    let persons = config::persons(&spec.repo.top, &spec.repo.git_dir, &spec.repo.common_dir, spec.home)?;
    let refs = known_refs(spec, base, base_branch)?;

    progress(Progress::History(0));
    let root = spec.layout.repo(spec.repo_id);
    let chain = {
        let store = Store::open(spec.layout, spec.repo_id, &persons).map_err(|e| failed(&root, e))?;
        let tips: BTreeSet<CommitId> = refs.iter().map(|(_, id)| id.clone()).chain([base.clone()]).collect();
        let chain = store.history(spec.repo, &tips, &|p| progress(Progress::History(p)))?;
        // Written while the store is locked, so that no other task's removal drops this history.
        let objects = dir.objects();
        for d in ["info", "pack"] {
            files::make_dirs(&objects.join(d)).map_err(|e| failed(&objects, e))?;
        }
        put(&objects.join("info/alternates"), store::task_alternates(spec.repo_id, &chain).as_bytes())?;
        chain
    };
    progress(Progress::History(100));
    let history: Vec<PathBuf> = chain.iter().map(|key| root.join("history").join(key)).collect();

    check_out(spec, base, progress)?;
    let index = store::worktree_dir(spec.layout, spec.repo_id, spec.task_id).join("index");
    private_git(spec, base, &refs, &persons, &index, history.len())?;
    keepers_git(spec, base_tree, &persons, &index)?;
    for d in [dir.home(), dir.jail(), dir.path().join("logs")] {
        files::make_dirs(&d).map_err(|e| failed(&d, e))?;
    }
    Ok(history)
}

/// A file of the new task.
fn put(path: &Path, bytes: &[u8]) -> Result<(), CreateError> {
    if let Some(dir) = path.parent() {
        files::make_dirs(dir).map_err(|e| failed(dir, e))?;
    }
    files::write_new(path, bytes).map_err(|e| failed(path, e))
}

/// The refs that the task's history holds beside its base: the base branch, its upstream, the default branch here and at origin.
fn known_refs(spec: &CreateSpec<'_>, base: &CommitId, base_branch: Option<&str>) -> Result<Vec<(String, CommitId)>, CreateError> {
    let mut names = Vec::new();
    if let Some(branch) = base_branch {
        names.push(format!("refs/heads/{branch}"));
        let full = format!("refs/heads/{branch}");
        let upstream = spec.repo.git("find the upstream").args(["for-each-ref", "--format=%(upstream)", &full]).ok()?;
        names
            .extend(String::from_utf8(upstream).ok().and_then(|u| u.lines().next().map(str::to_owned)).filter(|u| !u.is_empty()));
    }
    if let Some(default) = &spec.repo.default_branch {
        names.extend([format!("refs/heads/{default}"), format!("refs/remotes/origin/{default}")]);
    }
    let mut refs: Vec<(String, CommitId)> = Vec::new();
    for name in names {
        if refs.iter().all(|(known, _)| *known != name)
            && let Some(id) = spec.repo.resolve(&name, "commit")?.and_then(|t| CommitId::parse(&t).ok())
        {
            refs.push((name, id));
        }
    }
    // A branch moved between two reads must not make the base look like another one.
    if let Some(branch) = base_branch
        && let Some(own) = refs.iter_mut().find(|(n, _)| *n == format!("refs/heads/{branch}"))
    {
        own.1 = base.clone();
    }
    Ok(refs)
}

/// Registers the worktree in the store and writes its files.
fn check_out(spec: &CreateSpec<'_>, base: &CommitId, progress: &dyn Fn(Progress)) -> Result<(), CreateError> {
    let tree = spec.layout.task(spec.task_id).tree();
    let entry = store::worktree_dir(spec.layout, spec.repo_id, spec.task_id);
    files::make_dirs(&tree).map_err(|e| failed(&tree, e))?;
    // What `git worktree add` writes, under a name of our choosing.
    put(&entry.join("commondir"), b"../..\n")?;
    put(&entry.join("gitdir"), &[tree.join(".git").as_os_str().as_bytes(), b"\n"].concat())?;
    put(&entry.join("HEAD"), format!("{base}\n").as_bytes())?;
    put(&tree.join(".git"), &[b"gitdir: ", entry.as_os_str().as_bytes(), b"\n"].concat())?;
    progress(Progress::Files(0));
    const DOING: &str = "write the worktree's files";
    Git::new(DOING)
        .at(&entry)
        .tree(&tree)
        .by("Airlock", "airlock@localhost")
        .set("checkout.workers=0")
        .args(["checkout", "--progress", "--force", "--detach", base.as_str()])
        .time(LONG)
        .run_with(&|line| {
            if let Some(p) = store::percent(line, "Updating files:") {
                progress(Progress::Files(p));
            }
        })?
        .checked(DOING)
        .map_err(|e| {
            if e.says("unable to write file") && no_room(&entry, &tree, base) {
                CreateError::DiskFull { path: tree.clone() }
            } else {
                e.into()
            }
        })?;
    progress(Progress::Files(100));
    Ok(())
}

/// Git says that a file could not be written but not why, and removes it: whether the largest file fits tells.
fn no_room(entry: &Path, tree: &Path, base: &CommitId) -> bool {
    let Ok(space) = rustix::fs::statvfs(tree) else { return false };
    let listed = Git::new("list sizes").at(entry).args(["ls-tree", "-r", "-l", base.as_str()]).ok();
    let largest = listed.ok().and_then(|list| {
        let sizes = list.split(|b| *b == b'\n').filter_map(|line| {
            let words = std::str::from_utf8(line.split(|b| *b == b'\t').next()?).ok()?;
            words.split_whitespace().nth(3)?.parse::<u64>().ok()
        });
        sizes.max()
    });
    largest.is_some_and(|size| size > space.f_bavail.saturating_mul(space.f_frsize))
}

/// The git directory that the jail shows as the repository's own. The agent may write all of it, so the host never reads it.
fn private_git(
    spec: &CreateSpec<'_>,
    base: &CommitId,
    refs: &[(String, CommitId)],
    persons: &Persons,
    index: &Path,
    history: usize,
) -> Result<(), CreateError> {
    let git = spec.layout.task(spec.task_id).git();
    for dir in ["objects/pack", "refs/heads", "refs/tags", "info", "hooks"] {
        files::make_dirs(&git.join(dir)).map_err(|e| failed(&git, e))?;
    }
    let own = format!("refs/heads/{}", spec.branch);
    let clash = |name: &str| name == own || name.starts_with(&format!("{own}/")) || own.starts_with(&format!("{name}/"));
    let mut list: Vec<(String, &CommitId)> = refs.iter().filter(|(n, _)| !clash(n)).map(|(n, id)| (n.clone(), id)).collect();
    list.push((own.clone(), base));
    list.sort();
    let packed: String = list.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
    let text = Text::own()
        .set("core.bare", "false")
        .set("core.logAllRefUpdates", "true")
        .inert(persons)
        .set("user.name", persons.name.as_deref().unwrap_or("Airlock task"))
        .set("user.email", persons.email.as_deref().unwrap_or("task@airlock.invalid"));
    put(&git.join("config"), &text.into_bytes())?;
    put(&git.join("packed-refs"), packed.as_bytes())?;
    put(&git.join("info/exclude"), &persons.excludes)?;
    put(&git.join("info/attributes"), &persons.attributes)?;
    let alternates: String = (0..history).map(|n| format!("{HISTORY_INSIDE}/{n}\n")).collect();
    put(&git.join("objects/info/alternates"), alternates.as_bytes())?;
    let shallow = store::shallow(spec.repo).map_err(|e| failed(&git, e))?;
    if !shallow.is_empty() {
        put(&git.join("shallow"), shallow.iter().map(|l| format!("{l}\n")).collect::<String>().as_bytes())?;
    }
    copy_index(index, &git)?;
    put(&git.join("HEAD"), format!("ref: {own}\n").as_bytes())
}

/// The keeper's git directory: its index is what a candidate is made from.
fn keepers_git(spec: &CreateSpec<'_>, base_tree: &TreeId, persons: &Persons, index: &Path) -> Result<(), CreateError> {
    let git = spec.layout.task(spec.task_id).keeper();
    for dir in ["objects/info", "objects/pack", "refs/heads", "info"] {
        files::make_dirs(&git.join(dir)).map_err(|e| failed(&git, e))?;
    }
    put(&git.join("config"), &Text::own().set("core.bare", "false").inert(persons).into_bytes())?;
    let mut excludes = persons.excludes.clone();
    excludes.extend(base_excludes(spec, base_tree)?);
    put(&git.join("info/exclude"), &excludes)?;
    put(&git.join("info/attributes"), &persons.attributes)?;
    copy_index(index, &git)?;
    put(&git.join("HEAD"), b"ref: refs/heads/none\n")
}

fn copy_index(index: &Path, git: &Path) -> Result<(), CreateError> {
    std::fs::copy(index, git.join("index")).map(drop).map_err(|e| failed(git, e))
}

/// The base's own `.gitignore` files as one list: the agent's changes to them must not decide what a person is shown.
fn base_excludes(spec: &CreateSpec<'_>, base_tree: &TreeId) -> Result<Vec<u8>, CreateError> {
    let task = TaskGit {
        layout: spec.layout.clone(),
        repo: spec.repo_id.clone(),
        task: spec.task_id.clone(),
        base: CommitId::parse(base_tree.as_str()).map_err(|_| GitError::Unknown { doing: "read ignore rules" })?,
    };
    let list = task.git("list the base's files").args(["ls-tree", "-r", "-z", "--full-tree", base_tree.as_str()]).ok()?;
    let mut found: Vec<(usize, Vec<u8>, String)> = Vec::new();
    for line in pieces(&list) {
        let mut halves = line.splitn(2, |b| *b == b'\t');
        let (Some(head), Some(path)) = (halves.next(), halves.next()) else { continue };
        let dir = match path.strip_suffix(b".gitignore") {
            Some(dir) if dir.is_empty() || dir.ends_with(b"/") => dir,
            _ => continue,
        };
        let head = String::from_utf8_lossy(head);
        let mut words = head.split(' ');
        if let (Some("100644" | "100755"), Some("blob"), Some(id)) = (words.next(), words.next(), words.next())
            && !dir.contains(&b'\n')
        {
            found.push((dir.iter().filter(|b| **b == b'/').count(), dir.to_vec(), id.to_owned()));
        }
    }
    // A deeper file wins over one above it, and in one list the later line wins.
    found.sort();
    let mut excludes = Vec::new();
    for (_, dir, id) in found {
        let text = task.git("read ignore rules").args(["cat-file", "blob", &id]).ok()?;
        excludes.extend(lifted_rules(&dir, &text));
    }
    Ok(excludes)
}

/// The rules of `dir/.gitignore` (`dir` is empty or ends in a slash) written so that they mean the same at the top.
fn lifted_rules(dir: &[u8], text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut out = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let (not, rule) = match line.strip_prefix(b"!") {
            Some(rest) => (&b"!"[..], rest),
            None => (&b""[..], line),
        };
        out.extend(not);
        if !dir.is_empty() {
            let body = rule.trim_ascii_end();
            let anchored = body.strip_suffix(b"/").unwrap_or(body).contains(&b'/');
            out.push(b'/');
            for &b in dir {
                if matches!(b, b'*' | b'?' | b'[' | b'\\') {
                    out.push(b'\\');
                }
                out.push(b);
            }
            if !anchored {
                out.extend(b"**/");
            }
        }
        out.extend(if dir.is_empty() { rule } else { rule.strip_prefix(b"/").unwrap_or(rule) });
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignore_rules_mean_the_same_one_directory_up() {
        assert_eq!(lifted_rules(b"", b"\xef\xbb\xbf*.o\n# x\n\n!/a\n"), b"*.o\n!/a\n");
        assert_eq!(
            lifted_rules(b"a[1]/", b"*.o\n/x\nb/c\nd/\n!e\n"),
            b"/a\\[1]/**/*.o\n/a\\[1]/x\n/a\\[1]/b/c\n/a\\[1]/**/d/\n!/a\\[1]/**/e\n"
        );
    }
}
