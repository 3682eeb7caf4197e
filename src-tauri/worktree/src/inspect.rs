//! What a directory is as a git repository, and why it can't be one for Airlock.

use crate::git::{Git, GitError};
use model::id::CommitId;
use model::layout::Layout;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The repository is shown in jails at its own path, and paths in it must still fit the kernel's 4,096 bytes.
const LONGEST: usize = 3_000;

/// How the repository keeps its refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefFormat {
    /// Loose files and packed-refs.
    Files,
    /// Reftable.
    Reftable,
}

/// A local branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Name without `refs/heads/`.
    pub name: String,
    /// Its commit.
    pub commit: CommitId,
}

/// What is known about a repository of the person's. Read without writing or locking anything there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFacts {
    /// Top of the working tree, absolute and without symbolic links.
    pub top: PathBuf,
    /// Git directory of this working tree.
    pub git_dir: PathBuf,
    /// Git directory that holds refs and objects; differs from `git_dir` for a linked worktree.
    pub common_dir: PathBuf,
    /// The commit checked out.
    pub head: CommitId,
    /// The branch checked out; `None` when HEAD is detached.
    pub head_branch: Option<String>,
    /// Local branches, by name. Names that are not UTF-8 are left out.
    pub branches: Vec<Branch>,
    /// The branch that work usually starts from: where `origin/HEAD` points, else `main` or `master`, else the branch of HEAD.
    pub default_branch: Option<String>,
    /// Whether the index or a tracked file may differ from HEAD, or untracked files exist (judged by time stamps and sizes).
    pub dirty: bool,
    /// History is cut (`git clone --depth`).
    pub shallow: bool,
    /// HEAD has a `.gitmodules`.
    pub submodules: bool,
    /// `top` is a linked worktree.
    pub linked: bool,
    /// How refs are kept.
    pub ref_format: RefFormat,
    /// User id of the owner of the working tree.
    pub owner: u32,
}

/// Why a directory can't be worked on.
#[derive(Debug, thiserror::Error)]
pub enum RepoError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The directory can't be opened.
    #[error("`{}` can't be opened: {source}. Name a directory that exists and that you may read", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// No repository there.
    #[error("`{}` is not in a git repository: run `git init` there, or name another directory", .0.display())]
    NotARepository(PathBuf),
    /// A repository without working tree.
    #[error("`{}` is a bare repository, without files to work on: name a clone or a worktree of it", .0.display())]
    Bare(PathBuf),
    /// Inside `.git`.
    #[error("`{}` is inside a git directory: name the top of the working tree", .0.display())]
    InsideGitDir(PathBuf),
    /// Nothing to start from.
    #[error("`{}` has no commit yet, so there is nothing to start from: make a first commit (`git commit --allow-empty -m start`)", .0.display())]
    NoCommit(PathBuf),
    /// A format that Airlock does not know.
    #[error("`{}` uses {what}, which Airlock can't work with yet: use a clone of it in git's usual format", path.display())]
    Unsupported {
        /// The repository.
        path: PathBuf,
        /// What it uses.
        what: String,
    },
    /// A place that must never be a workspace.
    #[error("`{}` can't be the repository: it is {why}. A jail would have to show all of it. Use a repository in a directory of its own", path.display())]
    Place {
        /// The top of the working tree.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// Too long.
    #[error(
        "the path of this repository has {0} bytes; Airlock takes up to {LONGEST}, so that paths inside it stay within the kernel's 4,096. Move it up"
    )]
    PathTooLong(usize),
    /// Somebody else's.
    #[error("`{}` belongs to user {owner}, not to you (user {you}), and git refuses to read it: {cure}", path.display())]
    Foreign {
        /// The repository.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// The user id that Airlock runs as.
        you: u32,
        /// What to do.
        cure: String,
    },
}

impl RepoFacts {
    /// A command on the repository.
    pub(crate) fn git<'a>(&self, doing: &'static str) -> Git<'a> {
        Git::new(doing).at(&self.git_dir)
    }

    /// The full id that a revision names, where it names one of this kind (`commit`, `tree`).
    pub(crate) fn resolve(&self, revision: &str, kind: &str) -> Result<Option<String>, GitError> {
        let out = self
            .git("resolve a revision")
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{revision}^{{{kind}}}")])
            .run()?;
        Ok((out.code == 0).then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned()))
    }
}

/// Looks at the repository that `dir` is in. `home` is the person's home directory.
///
/// A repository of somebody else is read where the person's own configuration lists it under `safe.directory`, or when root
/// asks; an exit into it is refused later, since it would leave files of the wrong owner.
pub fn inspect(dir: &Path, layout: &Layout, home: &Path) -> Result<RepoFacts, RepoError> {
    let dir = real(dir).map_err(|source| RepoError::NoDirectory { path: dir.to_owned(), source })?;
    too_long(&dir)?;
    let top = top_of(&dir, home)?;
    place(&top, layout, home)?;
    too_long(&top)?;

    let git = |doing| Git::new(doing).cwd(&top).set(safe(&top));
    let git_dir = git("find the git directory").args(["rev-parse", "--absolute-git-dir"]).path()?;
    let common_dir = git("find the git directory").args(["rev-parse", "--path-format=absolute", "--git-common-dir"]).path()?;
    let common_dir = real(&common_dir).map_err(|source| RepoError::NoDirectory { path: common_dir, source })?;
    let git_dir = real(&git_dir).map_err(|source| RepoError::NoDirectory { path: git_dir, source })?;
    let format = git("read the object format").args(["rev-parse", "--show-object-format"]).line()?;
    if format != "sha1" {
        return Err(RepoError::Unsupported { path: top, what: format!("the object format {format}") });
    }
    let git = |doing| Git::new(doing).at(&git_dir);
    let setting = |key: &str| -> Result<Option<String>, GitError> {
        let out = git("read the configuration").args(["config", "--get", key]).run()?;
        Ok((out.code == 0).then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned()))
    };
    let ref_format = match setting("extensions.refstorage")?.as_deref() {
        None | Some("files") => RefFormat::Files,
        Some("reftable") => RefFormat::Reftable,
        Some(other) => return Err(RepoError::Unsupported { path: top, what: format!("the ref format {other}") }),
    };

    let head = git("read HEAD").args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).run()?;
    if head.code != 0 {
        return Err(RepoError::NoCommit(top));
    }
    let head = commit(&head.stdout).ok_or(GitError::Unknown { doing: "read HEAD" })?;
    let symbolic = |name: &str| -> Result<Option<String>, GitError> {
        let out = git("read a symbolic ref").args(["symbolic-ref", "--quiet", name]).run()?;
        Ok(String::from_utf8(out.stdout).ok().filter(|_| out.code == 0).map(|t| t.trim_end_matches('\n').to_owned()))
    };
    let head_branch = symbolic("HEAD")?.and_then(|r| r.strip_prefix("refs/heads/").map(str::to_owned));
    let branches =
        branches(&git("list branches").args(["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads"]).ok()?);
    let has = |name: &str| branches.iter().any(|b| b.name == name).then(|| name.to_owned());
    let default_branch = symbolic("refs/remotes/origin/HEAD")?
        .and_then(|r| r.strip_prefix("refs/remotes/origin/").map(str::to_owned))
        .or_else(|| has("main"))
        .or_else(|| has("master"))
        .or_else(|| head_branch.clone());
    let shallow = git("read the history").args(["rev-parse", "--is-shallow-repository"]).line()? == "true";
    let submodules = git("look for submodules").args(["cat-file", "-e", "HEAD:.gitmodules"]).run()?.code == 0;
    let dirty = dirty(&top, &git_dir, &common_dir, &head, home)?;
    let owner = std::fs::metadata(&top).map_err(|source| RepoError::NoDirectory { path: top.clone(), source })?.uid();
    let linked = git_dir != common_dir;
    Ok(RepoFacts {
        top,
        git_dir,
        common_dir,
        head,
        head_branch,
        branches,
        default_branch,
        dirty,
        shallow,
        submodules,
        linked,
        ref_format,
        owner,
    })
}

/// The top of the working tree that `dir` is in.
fn top_of(dir: &Path, home: &Path) -> Result<PathBuf, RepoError> {
    let ask = |safe: Option<String>| {
        let git = Git::new("find the repository").cwd(dir).args(["rev-parse", "--show-toplevel"]);
        match safe {
            Some(setting) => git.set(setting).run(),
            None => git.run(),
        }
    };
    let mut out = ask(None)?;
    if out.stderr.contains("dubious ownership") {
        let you = rustix::process::geteuid().as_raw();
        if !(you == 0 || trusted(dir, home)?) {
            let owner = std::fs::metadata(dir).map_or(0, |m| m.uid());
            let cure = format!("if you trust it, run `git config --global --add safe.directory '{}'`", dir.display());
            return Err(RepoError::Foreign { path: dir.to_owned(), owner, you, cure });
        }
        out = ask(Some("safe.directory=*".to_owned()))?;
    }
    if out.code == 0 {
        let mut bytes = out.stdout;
        bytes.pop();
        let top = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
        return real(&top).map_err(|source| RepoError::NoDirectory { path: top, source });
    }
    let path = dir.to_owned();
    Err(match out.stderr.as_str() {
        said if said.contains("not a git repository") => RepoError::NotARepository(path),
        said if said.contains("cannot use bare repository") => {
            match Git::new("look at it").at(dir).args(["rev-parse", "--is-bare-repository"]).line() {
                Ok(answer) if answer == "true" => RepoError::Bare(path),
                _ => RepoError::InsideGitDir(path),
            }
        }
        said if said.contains("must be run in a work tree") => {
            let bare = Git::new("look at it").cwd(dir).args(["rev-parse", "--is-bare-repository"]).line();
            if bare.is_ok_and(|b| b == "true") { RepoError::Bare(path) } else { RepoError::InsideGitDir(path) }
        }
        said if said.contains("unknown repository extension")
            || said.contains("repo version")
            || said.contains("repository version") =>
        {
            RepoError::Unsupported { path, what: said.lines().map(str::trim).collect::<Vec<_>>().join(" ") }
        }
        _ => return Err(GitError::Failed { doing: "find the repository", code: out.code, stderr: out.stderr }.into()),
    })
}

/// Whether the person's own configuration trusts a repository of somebody else.
fn trusted(dir: &Path, home: &Path) -> Result<bool, GitError> {
    let out = Git::new("read safe.directory").persons_config(home).args(["config", "-z", "--get-all", "safe.directory"]).run()?;
    Ok(crate::git::pieces(&out.stdout).any(|entry| entry == b"*" || dir.ancestors().any(|up| up.as_os_str().as_bytes() == entry)))
}

fn safe(top: &Path) -> std::ffi::OsString {
    // Ownership was judged when the repository was found.
    let mut setting = std::ffi::OsString::from("safe.directory=");
    setting.push(top);
    setting
}

/// Refuses places that a jail can't have as its workspace.
fn place(top: &Path, layout: &Layout, home: &Path) -> Result<(), RepoError> {
    let refuse = |why| Err(RepoError::Place { path: top.to_owned(), why });
    let home = real(home).unwrap_or_else(|_| home.to_owned());
    if top == Path::new("/") {
        return refuse("the root directory");
    }
    if top == home {
        return refuse("your home directory");
    }
    if home.starts_with(top) {
        return refuse("above your home directory");
    }
    for own in [&layout.data, &layout.config, &layout.runtime] {
        let own = real(own).unwrap_or_else(|_| own.clone());
        if own.starts_with(top) {
            return refuse("above Airlock's own data");
        }
        if top.starts_with(&own) {
            return refuse("inside Airlock's own data");
        }
    }
    Ok(())
}

fn too_long(path: &Path) -> Result<(), RepoError> {
    let length = path.as_os_str().len();
    if length > LONGEST { Err(RepoError::PathTooLong(length)) } else { Ok(()) }
}

/// Compares index, HEAD and working copy through a git directory of Airlock's own: the person's would run their filters.
fn dirty(top: &Path, git_dir: &Path, common_dir: &Path, head: &CommitId, home: &Path) -> Result<bool, GitError> {
    const DOING: &str = "look for changes";
    let io = |source| GitError::Io { doing: DOING, source };
    let untracked = Git::new(DOING).at(git_dir).tree(top);
    if !untracked.args(["ls-files", "-o", "-z", "--exclude-standard", "--directory", "--no-empty-directory"]).ok()?.is_empty() {
        return Ok(true);
    }
    let persons = crate::config::persons(top, git_dir, common_dir, home)?;
    let dir = tempfile::tempdir().map_err(io)?;
    let index = dir.path().join("index");
    crate::shadow::make(dir.path(), &persons).map_err(io)?;
    if !crate::shadow::copy_index(git_dir, dir.path(), &index).map_err(io)? {
        return Ok(true);
    }
    let git = || Git::new(DOING).at(dir.path()).tree(top).index(&index).alternates(&[common_dir.join("objects")]);
    Ok(git().args(["diff-index", "--cached", "--quiet", "--ignore-submodules=all", head.as_str(), "--"]).run()?.code == 1
        || !git()
            .args(["diff-files", "--raw", "-z", "--ignore-submodules=all", "--no-ext-diff", "--no-textconv"])
            .ok()?
            .is_empty())
}

fn branches(list: &[u8]) -> Vec<Branch> {
    let line = |l: &[u8]| {
        let (id, name) = std::str::from_utf8(l).ok()?.split_once(' ')?;
        Some(Branch { name: name.strip_prefix("refs/heads/")?.to_owned(), commit: CommitId::parse(id).ok()? })
    };
    list.split(|b| *b == b'\n').filter_map(line).collect()
}

/// A commit id as git prints it.
pub(crate) fn commit(line: &[u8]) -> Option<CommitId> {
    CommitId::parse(std::str::from_utf8(line).ok()?.trim()).ok()
}

/// The path of a directory without symbolic links, as the kernel tells it of the opened directory.
pub(crate) fn real(dir: &Path) -> std::io::Result<PathBuf> {
    let fd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
