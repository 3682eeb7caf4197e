//! Real repositories of every kind that a person may have.

use crate::Sandbox;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository with the person's own git at hand.
pub struct Repo<'s> {
    sandbox: &'s Sandbox,
    /// Top of its working tree.
    pub path: PathBuf,
}

impl<'s> Repo<'s> {
    /// Wraps a directory that is a repository or is about to become one.
    pub fn at(sandbox: &'s Sandbox, path: impl Into<PathBuf>) -> Self {
        Self { sandbox, path: path.into() }
    }

    /// A git command of the person's in this repository, not started.
    pub fn git_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut c = self.sandbox.command("git");
        c.args(args).current_dir(&self.path);
        c
    }

    /// Runs git; ends the test where it fails; answers with its stdout, the last line end cut.
    #[track_caller]
    pub fn git<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let mut c = self.git_command(args);
        let out = c.output().expect("git is installed");
        assert!(out.status.success(), "{c:?} in {}: {}", self.path.display(), String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim_end_matches('\n').to_owned()
    }

    /// Writes a file of the working tree, with its parents.
    #[track_caller]
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("parents can be made");
        std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Reads a file of the working tree.
    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> String {
        let path = self.path.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Adds everything and commits.
    pub fn commit(&self, message: &str) {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// Content of a file in a commit, as bytes; nothing where it is not there.
    pub fn show(&self, rev: &str, file: &str) -> Option<Vec<u8>> {
        let out = self.git_command(["show", &format!("{rev}:{file}")]).output().expect("git is installed");
        out.status.success().then_some(out.stdout)
    }

    /// Every file of a commit as `mode id path`, for comparing two trees byte by byte.
    pub fn tree(&self, rev: &str) -> Vec<String> {
        self.git(["ls-tree", "-r", "--full-tree", rev]).lines().map(str::to_owned).collect()
    }
}

impl Sandbox {
    /// Where this person keeps repositories.
    pub fn projects(&self) -> PathBuf {
        let dir = self.home().join("projects");
        std::fs::create_dir_all(&dir).expect("the home can be written");
        dir
    }

    /// `git init` and a first commit of three files: `README.md`, `src/main.sh`, `src/lib.sh`.
    pub fn small_repo(&self) -> Repo<'_> {
        self.small_repo_at(self.projects().join("small"))
    }

    /// Same, at a path.
    pub fn small_repo_at(&self, path: impl Into<PathBuf>) -> Repo<'_> {
        let repo = self.empty_repo_at(path, &[]);
        repo.write("README.md", "# small\n\nA little repository.\n");
        repo.write("src/main.sh", "#!/bin/sh\n. src/lib.sh\ngreet world\n");
        repo.write("src/lib.sh", "greet() {\n    echo \"hello $1\"\n}\n");
        repo.write(".gitignore", "build/\n*.secret\n");
        repo.commit("first");
        repo
    }

    /// `git init` alone.
    pub fn empty_repo_at(&self, path: impl Into<PathBuf>, options: &[&str]) -> Repo<'_> {
        let repo = Repo::at(self, path);
        std::fs::create_dir_all(&repo.path).unwrap_or_else(|e| panic!("{}: {e}", repo.path.display()));
        let mut args: Vec<OsString> = vec!["init".into(), "-q".into()];
        args.extend(options.iter().map(OsString::from));
        repo.git(args);
        repo
    }

    /// A small repository with a staged change, an unstaged one, an untracked file and an ignored one.
    pub fn dirty_repo(&self) -> Repo<'_> {
        let repo = self.small_repo_at(self.projects().join("dirty"));
        repo.write("src/lib.sh", "greet() {\n    echo \"good day $1\"\n}\n");
        repo.git(["add", "src/lib.sh"]);
        repo.write("README.md", "# small\n\nChanged, not staged.\n");
        repo.write("untracked.txt", "mine\n");
        repo.write("build/out.o", "ignored\n");
        repo
    }

    /// A linked worktree `side` of a small repository, on its own branch.
    pub fn linked_worktree(&self) -> (Repo<'_>, Repo<'_>) {
        let main = self.small_repo_at(self.projects().join("main-tree"));
        let side = self.projects().join("side-tree");
        main.git([OsStr::new("worktree"), "add".as_ref(), "-q".as_ref(), "-b".as_ref(), "side".as_ref(), side.as_ref()]);
        let side = Repo::at(self, side);
        (main, side)
    }

    /// A small repository whose HEAD is no branch.
    pub fn detached_repo(&self) -> Repo<'_> {
        let repo = self.small_repo_at(self.projects().join("detached"));
        repo.git(["checkout", "-q", "--detach"]);
        repo
    }

    /// A repository with a submodule at `lib/dep`.
    pub fn repo_with_submodule(&self) -> Repo<'_> {
        let dep = self.small_repo_at(self.projects().join("dep"));
        let repo = self.small_repo_at(self.projects().join("with-submodule"));
        let mut add: Vec<OsString> = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"].map(Into::into).into();
        add.push(dep.path.clone().into());
        add.push("lib/dep".into());
        repo.git(add);
        repo.commit("with a submodule");
        repo
    }

    /// A repository whose `.git` is a symlink to a directory elsewhere.
    pub fn symlinked_git(&self) -> Repo<'_> {
        let repo = self.small_repo_at(self.projects().join("symlinked"));
        let elsewhere = self.projects().join("elsewhere.git");
        std::fs::rename(repo.path.join(".git"), &elsewhere).expect("`.git` can be moved");
        std::os::unix::fs::symlink(&elsewhere, repo.path.join(".git")).expect("a symlink can be made");
        repo
    }

    /// Names that break careless programs: spaces, quotes, a newline, bytes that are no text, an option, a very long path.
    pub fn odd_names() -> Vec<(&'static str, OsString)> {
        vec![
            ("spaces", "two  words ".into()),
            ("quotes", "it's \"quoted\" `x` $HOME".into()),
            ("newline", "line\nbreak".into()),
            ("non-UTF-8", OsStr::from_bytes(b"caf\xe9-\xff").to_owned()),
            ("an option", "--help".into()),
            ("colon and comma", "a:b,c=d;e".into()),
            ("backslash", "back\\slash\\040".into()),
        ]
    }

    /// A directory whose path is `length` bytes long (below what the kernel takes in one path, 4,096).
    pub fn long_dir(&self, length: usize) -> PathBuf {
        let mut path = self.projects();
        while path.as_os_str().len() + 1 < length {
            let room = length - path.as_os_str().len() - 1;
            // A rest of one byte would leave no room for a name after its slash.
            let name = if room > 200 && room < 203 { 100 } else { room.min(200) };
            path.push("d".repeat(name));
        }
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("a path of {length} bytes: {e}"));
        path
    }
}

impl Sandbox {
    /// A clone of the project under test, at `~/projects/airlock`, on the branch `main`.
    pub fn project_clone(&self) -> Repo<'_> {
        let from = crate::program::checkout();
        let repo = Repo::at(self, self.projects().join("airlock"));
        let config = self.home().join(".gitconfig");
        let mut text = std::fs::read_to_string(&config).expect("the sandbox wrote it");
        // The checkout may belong to another user than the one who runs the tests.
        text.push_str(&format!("[safe]\n\tdirectory = {0}\n\tdirectory = {0}/.git\n", from.display()));
        std::fs::write(&config, text).expect("the home can be written");
        let mut clone = self.command("git");
        clone.args(["clone", "-q", "--no-hardlinks"]).arg(&from).arg(&repo.path);
        let out = clone.output().expect("git is installed");
        assert!(out.status.success(), "the tests run in a git checkout: {clone:?}: {}", String::from_utf8_lossy(&out.stderr));
        if repo.git(["branch", "--show-current"]) != "main" {
            repo.git(["checkout", "-q", "-B", "main"]);
        }
        repo
    }
}

/// The object directories of git below a directory in which some object, unpacked, holds these bytes.
pub fn objects_that_hold(below: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let empty = tempfile::tempdir().expect("a temporary directory can be made");
    let git = |args: &[&str], objects: Option<&Path>| {
        let mut git = Command::new("git");
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", empty.path()).env("GIT_DIR", empty.path().join("git")).args(args);
        let out = git.envs(objects.map(|objects| ("GIT_OBJECT_DIRECTORY", objects))).output().expect("git runs");
        assert!(out.status.success(), "{args:?} {objects:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    git(&["init", "-q", "--bare"], None);
    let read = ["cat-file", "--batch-all-objects", "--batch", "--unordered"];
    let found = Command::new("find").arg(below).args(["-type", "d", "-name", "objects", "-print0"]).output().expect("find runs");
    assert!(found.status.success(), "{found:?}");
    let all = found.stdout.split(|b| *b == 0).filter(|path| !path.is_empty()).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    all.filter(|objects| git(&read, Some(objects)).windows(bytes.len()).any(|w| w == bytes)).collect()
}
