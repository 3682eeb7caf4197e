//! What an apply would do, computed without doing it.
//!
//! Merging and comparing are the git program's: they read the person's repository, which libgit2 may refuse, and a file that the
//! task adds to a directory which the branch renamed is a conflict for git, while libgit2 leaves it in the old place unsaid.

use crate::candidate::base_tree;
use crate::config;
use crate::files;
use crate::git::{Git, GitError, LONG, pieces};
use crate::inspect::{RefFormat, RepoFacts};
use crate::journal::JournalError;
use crate::store::{TaskGit, is_full, store_dir};
use crate::working_copy::{self, Shadow};
use model::exit::{Approved, Exit};
use model::id::{CommitId, ExitId, TreeId};
use model::layout::Layout;
use model::path::RawPath;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where an exit goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Onto {
    /// An existing local branch.
    Branch(String),
    /// A local branch that is made at the task's base.
    NewBranch(String),
}

/// What to apply.
#[derive(Debug)]
pub struct ApplySpec<'a> {
    /// The task.
    pub task: &'a TaskGit,
    /// Id of this exit in the journal.
    pub exit: &'a ExitId,
    /// What was approved.
    pub approved: &'a Approved<Exit>,
    /// The person's repository, inspected just now.
    pub repo: &'a RepoFacts,
    /// The person's home, for their name and e-mail.
    pub home: &'a Path,
    /// Where to.
    pub onto: &'a Onto,
    /// Commit message.
    pub message: &'a str,
}

/// One file that an exit changes. A mode of 0 means that the file does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMove {
    /// Path in the tree.
    pub path: RawPath,
    /// Git file mode before.
    pub old_mode: u32,
    /// Content before, hexadecimal.
    pub old_id: String,
    /// Git file mode after.
    pub new_mode: u32,
    /// Content after, hexadecimal.
    pub new_id: String,
}

/// A working copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingCopy {
    /// Its top.
    pub top: RawPath,
    /// Its git directory.
    pub git_dir: RawPath,
}

impl WorkingCopy {
    pub(crate) fn top(&self) -> &Path {
        path(&self.top)
    }

    pub(crate) fn git_dir(&self) -> &Path {
        path(&self.git_dir)
    }
}

/// Everything that [`crate::act`] does. Kept in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// This exit.
    pub exit: ExitId,
    /// The person's repository: the git directory with refs and objects.
    pub common_dir: RawPath,
    /// The working copy that the person named.
    pub named: WorkingCopy,
    /// Whether refs are kept as reftable.
    pub reftable: bool,
    /// Branch, without `refs/heads/`.
    pub branch: String,
    /// Where the branch stands; `None` when the exit makes it.
    pub old: Option<CommitId>,
    /// Where it will stand; `None` when the exit (an undo) removes it.
    pub new: Option<CommitId>,
    /// Tree of the new commit.
    pub tree: TreeId,
    /// Files that change between old and new.
    pub files: Vec<FileMove>,
    /// The working copy that has the branch checked out and moves along.
    pub checkout: Option<WorkingCopy>,
    /// Line for the reflog.
    pub reflog: String,
    /// Name and e-mail for the reflog.
    pub who: (String, String),
}

impl Plan {
    pub(crate) fn common_dir(&self) -> &Path {
        path(&self.common_dir)
    }

    pub(crate) fn full_ref(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Where the branch stands now.
    pub(crate) fn standing(&self) -> Result<Option<CommitId>, GitError> {
        let out = Git::new("read the branch")
            .at(self.common_dir())
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", &self.full_ref()])
            .run()?;
        Ok(crate::inspect::commit(&out.stdout).filter(|_| out.code == 0))
    }
}

/// A file in an exit's own directory that says that a journal names it.
pub(crate) const BEGUN: &str = "begun";

/// Where the directories of all exits are.
pub(crate) fn exits(layout: &Layout) -> PathBuf {
    layout.data.join("exits")
}

/// The exit's own directory.
pub(crate) fn exit_dir(layout: &Layout, exit: &ExitId) -> PathBuf {
    exits(layout).join(exit.as_str())
}

pub(crate) fn path(raw: &RawPath) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(raw.as_bytes()))
}

pub(crate) fn raw(path: &Path) -> RawPath {
    RawPath::from(path.as_os_str().as_bytes())
}

/// Why an exit was not done. Nothing is changed then, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Approval of something else.
    #[error("the approval is for another task or base than this one: look at the changes and approve again")]
    NotApproved,
    /// Somebody else's repository.
    #[error("`{}` belongs to user {owner}, and files that you (user {you}) would write there would not be theirs: apply as its owner", path.display())]
    NotYours {
        /// The repository.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// The user id that Airlock runs as.
        you: u32,
    },
    /// The branch changed the same places.
    #[error("`{branch}` changed the same places as the task ({}): nothing was done. Start a task from the branch as it is now, or accept fewer files", list(.paths))]
    Conflicts {
        /// Branch.
        branch: String,
        /// Paths in conflict.
        paths: Vec<RawPath>,
    },
    /// The working copy has changes where the exit would write.
    #[error("`{branch}` is checked out in `{}`, where these files are in the way: {}. Nothing was done. Commit or stash them, or move them away, then try again", top.display(), reasons(.paths))]
    NotClean {
        /// Branch.
        branch: String,
        /// The working copy.
        top: PathBuf,
        /// Each path with what is in the way.
        paths: Vec<(RawPath, String)>,
    },
    /// The working copy is in the middle of something.
    #[error("`{}` is busy: {what}. Nothing was done. Finish that first, then apply again", top.display())]
    Busy {
        /// The working copy.
        top: PathBuf,
        /// What goes on.
        what: String,
    },
    /// No such branch.
    #[error("the branch `{0}` does not exist (any more): name another with --onto")]
    NoBranch(String),
    /// The new branch is there.
    #[error("the branch `{0}` exists already: name another")]
    BranchExists(String),
    /// The new branch has no possible name.
    #[error("`{0}` can't be a branch name")]
    BadBranch(String),
    /// The branch stands elsewhere than planned.
    #[error("the branch `{branch}` moved meanwhile (it stands at {}, not at {}): nothing was done. Look at what is new there first", at(.found), at(.expected))]
    BranchMoved {
        /// Branch.
        branch: String,
        /// Where the plan has it.
        expected: Option<CommitId>,
        /// Where it is.
        found: Option<CommitId>,
    },
    /// The task's base is gone.
    #[error("the commit {0} that the task started from is no longer in the repository: apply onto an existing branch")]
    NoBase(CommitId),
    /// No name or e-mail.
    #[error(
        "git does not know who you are: set them with `git config --global user.name \"Your Name\"` and `git config --global user.email you@example.org`"
    )]
    NoIdentity,
    /// No message.
    #[error("the commit message is empty: write one")]
    NoMessage,
    /// Nothing left.
    #[error("there is nothing to apply: the branch has all accepted changes already, or none was accepted")]
    Nothing,
    /// No room.
    #[error("the disk is full: `{}` could not be written, and everything is as before. Free some space and try again", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// A file failed.
    #[error("`{}` could not be written or read ({source}); everything is as before", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An exit that could not be taken back at once.
    #[error(
        "this stopped half-way: {}. Taking it back failed too: {}. The branch or some files may have changed, and git waits for the index lock. Mend that and start Airlock again: it finishes or takes back what was begun", .cause.bare(), .then.bare()
    )]
    HalfWay {
        /// What went wrong first.
        cause: Box<ApplyError>,
        /// What went wrong then.
        then: Box<ApplyError>,
    },
    /// An exit that was killed half-way and can't be finished or taken back now.
    #[error(
        "an apply or undo that was cut off can't be finished or taken back yet: {}. The branch or some files may have changed. Mend that and start Airlock again: it tries anew", .cause.bare()
    )]
    Unfinished {
        /// What went wrong.
        cause: Box<ApplyError>,
    },
}

impl ApplyError {
    /// What happened, without a word on what is changed or what to do: for where more than this went wrong.
    pub(crate) fn bare(&self) -> String {
        match self {
            Self::NotClean { top, paths, .. } => format!("files are in the way in `{}`: {}", top.display(), reasons(paths)),
            Self::Busy { top, what } => format!("`{}` is busy: {what}", top.display()),
            Self::BranchMoved { branch, expected, found } => {
                format!("the branch `{branch}` moved meanwhile (it stands at {}, not at {})", at(found), at(expected))
            }
            Self::Conflicts { branch, paths } => format!("`{branch}` changed the same places as the task ({})", list(paths)),
            Self::DiskFull { path } => format!("the disk is full: `{}` could not be written", path.display()),
            Self::Io { path, source } => format!("`{}` could not be written or read ({source})", path.display()),
            Self::HalfWay { cause, then } => format!("{}; then {}", cause.bare(), then.bare()),
            Self::Unfinished { cause } => cause.bare(),
            other => other.to_string(),
        }
    }
}

/// Makes an I/O error of `path` an [`ApplyError`].
pub(crate) fn failed(path: &Path) -> impl FnOnce(io::Error) -> ApplyError + use<> {
    let path = path.to_owned();
    move |source| if is_full(&source) { ApplyError::DiskFull { path } } else { ApplyError::Io { path, source } }
}

fn at(commit: &Option<CommitId>) -> &str {
    commit.as_ref().map_or("nothing", |c| &c.as_str()[..12])
}

/// The first few paths, in words.
fn list(paths: &[RawPath]) -> String {
    let mut text = paths.iter().take(5).map(|p| format!("`{p}`")).collect::<Vec<_>>().join(", ");
    if paths.len() > 5 {
        text.push_str(&format!(" and {} more", paths.len() - 5));
    }
    text
}

fn reasons(paths: &[(RawPath, String)]) -> String {
    let mut text = paths.iter().take(5).map(|(p, why)| format!("`{p}` ({why})")).collect::<Vec<_>>().join(", ");
    if paths.len() > 5 {
        text.push_str(&format!(" and {} more", paths.len() - 5));
    }
    text
}

/// Works out what applying would do: merges, writes the new commit to Airlock's own objects, checks the working copy. The
/// person's repository is only read. What it prepares is removed by [`crate::act`] or [`crate::discard_plan`].
pub fn plan_apply(spec: &ApplySpec<'_>) -> Result<Plan, ApplyError> {
    let place = exit_dir(&spec.task.layout, spec.exit);
    let plan = prepare(&place).and_then(|()| planned(spec, &place));
    if plan.is_err() {
        drop(std::fs::remove_dir_all(&place));
    }
    plan
}

/// Makes the exit's own directory.
pub(crate) fn prepare(place: &Path) -> Result<(), ApplyError> {
    for dir in ["objects/info", "objects/pack", "old", "new"] {
        let dir = place.join(dir);
        files::make_dirs(&dir).map_err(failed(&dir))?;
    }
    Ok(())
}

fn planned(spec: &ApplySpec<'_>, place: &Path) -> Result<Plan, ApplyError> {
    let (task, repo, exit) = (spec.task, spec.repo, spec.approved.get());
    if exit.task != task.task || exit.base != task.base {
        return Err(ApplyError::NotApproved);
    }
    yours(&repo.top, &repo.common_dir)?;
    if spec.message.trim().is_empty() {
        return Err(ApplyError::NoMessage);
    }
    let persons = config::persons(&repo.top, &repo.git_dir, &repo.common_dir, spec.home)?;
    let (Some(name), Some(email)) = (&persons.name, &persons.email) else { return Err(ApplyError::NoIdentity) };
    let (branch, old) = target(spec)?;
    let parent = old.clone().unwrap_or_else(|| task.base.clone());

    let mut read = task.history()?;
    read.push(task.dir().objects());
    read.push(repo.common_dir.join("objects"));
    let git = |doing| {
        Git::new(doing).at(&store_dir(&task.layout, &task.repo)).objects(&place.join("objects")).alternates(&read).by(name, email)
    };
    let base = base_tree(task)?;
    let before = tree(git("read the branch"), &parent)?;
    let merged = if before == base { exit.result.clone() } else { merge(&git, &branch, &base, &before, &exit.result)? };
    if merged == before {
        return Err(ApplyError::Nothing);
    }
    let new = git("write the commit")
        .args(["commit-tree", merged.as_str(), "-p", parent.as_str(), "-F", "-"])
        .input(format!("{}\n", spec.message.trim_end()).into_bytes())
        .ok()?;
    let new = crate::inspect::commit(&new).ok_or(GitError::Unknown { doing: "write the commit" })?;
    let files = moves(git("compare the branch"), &before, &merged)?;
    if let Some(file) = files.iter().find(|f| f.old_mode == 0o160_000 || f.new_mode == 0o160_000) {
        return Err(ApplyError::Conflicts { branch, paths: vec![file.path.clone()] });
    }

    let pack = place.join("new.pack");
    let file = std::fs::File::create_new(&pack).map_err(failed(&pack))?;
    git("pack the commit")
        .args(["pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"])
        .input(format!("{new}\n^{parent}\n").into_bytes())
        .time(LONG)
        .write_to(file)?
        .checked("pack the commit")?;
    // Here too, so that the files can be staged when the task's own objects are gone.
    let bytes = std::fs::read(&pack).map_err(failed(&pack))?;
    git("keep the commit").args(["index-pack", "--stdin"]).input(bytes).time(LONG).ok()?;

    let named = WorkingCopy { top: raw(&repo.top), git_dir: raw(&repo.git_dir) };
    let subject: String = spec.message.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
    let mut plan = Plan {
        exit: spec.exit.clone(),
        common_dir: raw(&repo.common_dir),
        named,
        reftable: repo.ref_format == RefFormat::Reftable,
        branch,
        old,
        new: Some(new),
        tree: merged,
        files,
        checkout: None,
        reflog: format!("airlock apply: {subject}"),
        who: (name.clone(), email.clone()),
    };
    plan.checkout = working_copy::checkout(&plan)?;
    let shadow = Shadow::make(place, &plan, &persons)?;
    if plan.checkout.is_some() {
        shadow.copy_index()?;
        shadow.unfiltered(&persons.filters)?;
        shadow.clean()?;
    }
    Ok(plan)
}

/// An exit leaves files behind, so only the owner may do it.
pub(crate) fn yours(top: &Path, common_dir: &Path) -> Result<(), ApplyError> {
    let you = rustix::process::geteuid().as_raw();
    for dir in [top, common_dir] {
        let owner = std::fs::metadata(dir).map_err(failed(dir))?.uid();
        if owner != you {
            return Err(ApplyError::NotYours { path: dir.to_owned(), owner, you });
        }
    }
    Ok(())
}

/// The branch and where it stands.
fn target(spec: &ApplySpec<'_>) -> Result<(String, Option<CommitId>), ApplyError> {
    let standing = |name: &str| -> Result<Option<CommitId>, ApplyError> {
        Ok(spec.repo.resolve(&format!("refs/heads/{name}"), "commit")?.and_then(|t| CommitId::parse(&t).ok()))
    };
    match spec.onto {
        Onto::Branch(name) => match standing(name)? {
            Some(commit) => Ok((name.clone(), Some(commit))),
            None => Err(ApplyError::NoBranch(name.clone())),
        },
        Onto::NewBranch(name) => {
            if Git::new("check the branch name").args(["check-ref-format", "--branch", name]).run()?.code != 0 {
                return Err(ApplyError::BadBranch(name.clone()));
            }
            if standing(name)?.is_some() {
                return Err(ApplyError::BranchExists(name.clone()));
            }
            if spec.repo.resolve(spec.task.base.as_str(), "commit")?.is_none() {
                return Err(ApplyError::NoBase(spec.task.base.clone()));
            }
            Ok((name.clone(), None))
        }
    }
}

fn tree(git: Git<'_>, commit: &CommitId) -> Result<TreeId, GitError> {
    let name = format!("{commit}^{{tree}}");
    let id = git.args(["rev-parse", "--verify", "--quiet", "--end-of-options", &name]).line()?;
    TreeId::parse(&id).map_err(|_| GitError::Unknown { doing: "read the branch" })
}

/// A three-way merge of trees. Commits are made around them so that the base is the task's own, whatever the histories.
fn merge<'a>(
    git: &dyn Fn(&'static str) -> Git<'a>,
    branch: &str,
    base: &TreeId,
    ours: &TreeId,
    theirs: &TreeId,
) -> Result<TreeId, ApplyError> {
    const DOING: &str = "merge";
    let wrap = |tree: &TreeId, parent: Option<&str>| {
        git(DOING).args(["commit-tree", tree.as_str(), "-m", "merge"]).args(parent.iter().flat_map(|p| ["-p", p])).line()
    };
    let root = wrap(base, None)?;
    let (ours, theirs) = (wrap(ours, Some(&root))?, wrap(theirs, Some(&root))?);
    let out =
        git(DOING).args(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &ours, &theirs]).time(LONG).run()?;
    if out.code == 1 {
        let paths = pieces(&out.stdout).skip(1).map(RawPath::from).collect();
        return Err(ApplyError::Conflicts { branch: branch.to_owned(), paths });
    }
    let out = out.checked(DOING)?;
    let id = pieces(&out).next().and_then(|p| std::str::from_utf8(p).ok()).unwrap_or_default().trim();
    Ok(TreeId::parse(id).map_err(|_| GitError::Unknown { doing: DOING })?)
}

/// The files that differ between two trees.
fn moves(git: Git<'_>, from: &TreeId, to: &TreeId) -> Result<Vec<FileMove>, GitError> {
    const DOING: &str = "compare the branch";
    let unknown = || GitError::Unknown { doing: DOING };
    let out = git
        .args([
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-abbrev",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            from.as_str(),
            to.as_str(),
        ])
        .ok()?;
    let mut files = Vec::new();
    let mut parts = pieces(&out);
    while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
        let words: Vec<&str> = std::str::from_utf8(head).map_err(|_| unknown())?.trim_start_matches(':').split(' ').collect();
        let [old_mode, new_mode, old_id, new_id, _] = words.as_slice() else { return Err(unknown()) };
        let mode = |m: &str| u32::from_str_radix(m, 8).map_err(|_| unknown());
        files.push(FileMove {
            path: RawPath::from(path),
            old_mode: mode(old_mode)?,
            old_id: (*old_id).to_owned(),
            new_mode: mode(new_mode)?,
            new_id: (*new_id).to_owned(),
        });
    }
    Ok(files)
}
