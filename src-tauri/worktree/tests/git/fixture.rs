//! A person with a home, a repository, and Airlock's directories.

use model::diff::Candidate;
use model::id::{ExitId, RepoId, TaskId};
use model::keeper::{Job, Keeper, KeeperError, Running};
use model::layout::Layout;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use worktree::{CreateError, CreateSpec, Created, Places, RepoFacts, TaskGit, keeper_main};

static COUNT: AtomicU8 = AtomicU8::new(0);

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) repo: PathBuf,
    pub(crate) repo_id: RepoId,
}

impl World {
    /// A repository `repo` with one commit on `main`.
    pub(crate) fn new() -> Self {
        Self::named("repo")
    }

    pub(crate) fn named(name: impl AsRef<OsStr>) -> Self {
        let world = Self::empty(name);
        world.git(["init", "-q", "-b", "main"]);
        world.write("a.txt", "one\ntwo\nthree\n");
        world.write("src/lib.rs", "pub fn f() -> u8 {\n    1\n}\n");
        world.write(".gitignore", "*.log\n/target/\n");
        world.commit("start");
        world
    }

    pub(crate) fn empty(name: impl AsRef<OsStr>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let home = at.join("home");
        let layout = Layout { data: at.join("data/airlock"), config: at.join("config/airlock"), runtime: at.join("run/airlock") };
        let repo = at.join(name.as_ref());
        for d in [&home, &repo, &layout.data] {
            std::fs::create_dir_all(d).unwrap();
        }
        std::fs::write(home.join(".gitconfig"), "[user]\n\tname = Jo Person\n\temail = jo@example.org\n").unwrap();
        Self { home, layout, repo, repo_id: RepoId::from_random([7; 8]), dir }
    }

    pub(crate) fn git<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> String {
        self.git_in(&self.repo, args)
    }

    pub(crate) fn git_in<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, dir: &Path, args: I) -> String {
        let out = self.command(dir).args(args).output().unwrap();
        assert!(out.status.success(), "git failed: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    pub(crate) fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new("git");
        command.current_dir(dir).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", &self.home);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C").args(["-c", "protocol.file.allow=always"]);
        command
    }

    /// Makes it a reftable repository; false where this git has none.
    pub(crate) fn reftable(&self) -> bool {
        let made = self.command(&self.repo).args(["init", "-q", "-b", "main", "--ref-format=reftable"]).output().unwrap();
        if !made.status.success() {
            eprintln!("not tested here: reftable (git 2.45)");
        }
        made.status.success()
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        write(&self.repo.join(path), text);
    }

    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "-m", message]);
        self.git(["rev-parse", "HEAD"])
    }

    pub(crate) fn facts(&self) -> RepoFacts {
        worktree::inspect(&self.repo, &self.layout, &self.home).unwrap()
    }

    pub(crate) fn create(&self) -> Task {
        self.try_create(None).unwrap()
    }

    pub(crate) fn try_create(&self, base: Option<&str>) -> Result<Task, CreateError> {
        let id = task_id();
        let created = self.create_as(&id, base)?;
        Ok(Task { git: self.task_git(&id, &created), created })
    }

    pub(crate) fn create_as(&self, id: &TaskId, base: Option<&str>) -> Result<Created, CreateError> {
        let repo = self.facts();
        let spec = CreateSpec {
            layout: &self.layout,
            home: &self.home,
            repo: &repo,
            repo_id: &self.repo_id,
            task_id: id,
            base,
            branch: "the-task",
        };
        worktree::create(&spec, &|_| ())
    }

    pub(crate) fn task_git(&self, id: &TaskId, created: &Created) -> TaskGit {
        TaskGit { layout: self.layout.clone(), repo: self.repo_id.clone(), task: id.clone(), base: created.base.clone() }
    }

    /// Everything of the person's repository: name → type, mode, owner, times, content.
    pub(crate) fn listing(&self) -> BTreeMap<PathBuf, String> {
        listing(&self.repo)
    }
}

/// A created task.
pub(crate) struct Task {
    pub(crate) git: TaskGit,
    pub(crate) created: Created,
}

impl Task {
    pub(crate) fn tree(&self) -> PathBuf {
        self.git.dir().tree()
    }

    /// Writes a file as the agent would.
    pub(crate) fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        write(&self.tree().join(path), text);
    }

    pub(crate) fn remove(&self, path: impl AsRef<Path>) {
        std::fs::remove_file(self.tree().join(path)).unwrap();
    }

    pub(crate) fn candidate(&self) -> Candidate {
        worktree::candidate(&self.git, &Unjailed, true).unwrap()
    }

    /// The files of a tree of the task's objects.
    pub(crate) fn files(&self, world: &World, tree: &str) -> Vec<String> {
        let out = world
            .command(&self.git.dir().path().join("../.."))
            .env("GIT_DIR", self.git.layout.repo(&self.git.repo).join("store.git"))
            .env("GIT_OBJECT_DIRECTORY", self.git.dir().objects())
            .args(["ls-tree", "-r", "--name-only", "-z", tree])
            .output()
            .unwrap();
        assert!(out.status.success(), "the tree is in the task's objects: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect()
    }
}

pub(crate) fn task_id() -> TaskId {
    TaskId::from_random([COUNT.fetch_add(1, Ordering::Relaxed), COUNT.fetch_add(1, Ordering::Relaxed), 0, 0, 0, 0, 0, 0])
}

pub(crate) fn exit_id(n: u8) -> ExitId {
    ExitId::from_random([n; 8])
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Shows that two listings are equal, naming only what differs.
#[track_caller]
pub(crate) fn same(now: &BTreeMap<PathBuf, String>, before: &BTreeMap<PathBuf, String>, why: &str) {
    let cut = |t: Option<&String>| t.map(|t| t.chars().take(300).collect::<String>());
    let names: std::collections::BTreeSet<_> = now.keys().chain(before.keys()).collect();
    let differ: Vec<_> = names.into_iter().filter(|n| now.get(*n) != before.get(*n)).collect();
    let list: Vec<_> = differ.iter().map(|n| (n, cut(before.get(*n)), cut(now.get(*n)))).collect();
    assert!(list.is_empty(), "{why}: {list:#?}");
}

pub(crate) fn listing(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            Vec::new()
        } else if meta.is_symlink() {
            std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            std::fs::read(&path).unwrap()
        };
        let text = format!(
            "{:o} {} {} {}.{} {:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            String::from_utf8_lossy(&content)
        );
        all.insert(path.strip_prefix(dir).unwrap().to_owned(), text);
    }
    all
}

pub(crate) fn reasons(candidate: &Candidate) -> BTreeMap<String, String> {
    candidate.left_out.iter().map(|(p, why)| (p.to_string(), why.clone())).collect()
}

/// Runs the keeper's own program in this process.
pub(crate) struct Unjailed;

struct Thread {
    out: Option<std::io::PipeReader>,
    thread: Option<std::thread::JoinHandle<(i32, String)>>,
}

impl Keeper for Unjailed {
    fn start(&self, job: Job) -> Result<Box<dyn Running>, KeeperError> {
        let (out, mut into) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || {
            let source = job.source.unwrap_or_else(|| "/nonexistent".into());
            let places = Places { tree: job.tree, source, git: job.git, objects: job.objects, history: job.history };
            let mut err = Vec::new();
            let code = keeper_main(&job.args, &places, &mut into, &mut err);
            (code, String::from_utf8_lossy(&err).into_owned())
        });
        Ok(Box::new(Thread { out: Some(out), thread: Some(thread) }))
    }
}

impl Running for Thread {
    fn stdout(&mut self) -> Option<Box<dyn Read + Send>> {
        self.out.take().map(|o| Box::new(o) as Box<dyn Read + Send>)
    }
    fn wait(&mut self) -> Result<(i32, String), KeeperError> {
        Ok(self.thread.take().unwrap().join().unwrap())
    }
}

/// A keeper that says what it is told to.
pub(crate) struct Says(pub(crate) Vec<u8>, pub(crate) i32);

impl Keeper for Says {
    fn start(&self, _job: Job) -> Result<Box<dyn Running>, KeeperError> {
        struct Said(Option<Vec<u8>>, i32);
        impl Running for Said {
            fn stdout(&mut self) -> Option<Box<dyn Read + Send>> {
                self.0.take().map(|b| Box::new(std::io::Cursor::new(b)) as Box<dyn Read + Send>)
            }
            fn wait(&mut self) -> Result<(i32, String), KeeperError> {
                Ok((self.1, "it said so".to_owned()))
            }
        }
        Ok(Box::new(Said(Some(self.0.clone()), self.1)))
    }
}
