//! A task on a small repository, and a place outside it that tells when it is touched.

use model::id::{RepoId, TaskId};
use model::layout::Layout;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::objects_that_hold;
use testkit::treehash::{TreeHash, treehash};
use worktree::{CreateSpec, RepoFacts, TaskGit};

pub(crate) const SECRET: &str = "SECRET-THAT-LIES-OUTSIDE";

pub(crate) struct World {
    dir: tempfile::TempDir,
    home: PathBuf,
    layout: Layout,
    /// Where the attacker prepares what it moves into the tree.
    pub(crate) stage: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) git: TaskGit,
    /// The person's working copy.
    pub(crate) repo: PathBuf,
    pub(crate) facts: RepoFacts,
}

/// Tells of everything that was opened, read, made or changed below a directory.
pub(crate) struct Watch(OwnedFd);

/// The outside as it was, and whether anybody was there.
pub(crate) struct Before(TreeHash, Watch);

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("airlock-race-").tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (home, repo, outside, stage) = (at("home"), at("repo"), at("outside"), at("stage"));
        let layout = Layout { data: at("data/airlock"), config: at("config"), runtime: at("run") };
        std::fs::write(home.join(".gitconfig"), "[user]\n\tname = Jo Person\n\temail = jo@example.org\n").unwrap();
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (name, text) in
            [("a.txt", "one\n"), ("src/lib.rs", "fn f() {}\n"), ("deep/er/file", "deep\n"), (".gitignore", "*.log\n.env\n")]
        {
            write(repo.join(name), text);
        }
        // What lies behind a link has the names that the tree has.
        for name in ["key", "dir/lib.rs", "dir/key", "deep/er/file", "repo/file"] {
            write(outside.join(name), &format!("{SECRET} in {name}\n"));
        }
        for at in [&repo, &outside.join("repo")] {
            for words in [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "start"]] {
                let out = git(&home, at, words);
                assert!(out.status.success(), "{words:?}: {out:?}");
            }
        }
        let (repo_id, task_id) = (RepoId::from_random([7; 8]), TaskId::from_random([1; 8]));
        let facts = worktree::inspect(&repo, &layout, &home).unwrap();
        let spec = CreateSpec {
            layout: &layout,
            home: &home,
            repo: &facts,
            repo_id: &repo_id,
            task_id: &task_id,
            base: None,
            branch: "the-task",
        };
        let created = worktree::create(&spec, &|_| ()).unwrap();
        let task = TaskGit { layout: layout.clone(), repo: repo_id, task: task_id, base: created.base };
        Self { tree: task.dir().tree(), git: task, dir, home, layout, stage, outside, repo, facts }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// The git directory that the agent may write.
    pub(crate) fn private_git(&self) -> PathBuf {
        self.git.dir().git()
    }

    /// Whether a `git add` of everything, on the host and without a keeper, stored something of the outside.
    pub(crate) fn add_all_took_it(&self) -> bool {
        let scratch = self.root().join("scratch.git");
        if !scratch.exists() {
            assert!(git(&self.home, self.root(), &["init", "-q", "--bare", "scratch.git"]).status.success());
        }
        let mut command = command(&self.home, &self.tree);
        command.env("GIT_DIR", &scratch).env("GIT_WORK_TREE", &self.tree).args([
            "-c",
            "core.bare=false",
            "add",
            "-A",
            "--ignore-errors",
        ]);
        // It may hang in a FIFO or fail half way; what it stored until then counts.
        let mut child = command.args(["--", "src", "deep"]).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..200 {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        drop(child.kill());
        child.wait().unwrap();
        drop(std::fs::remove_file(scratch.join("index.lock")));
        drop(std::fs::remove_file(scratch.join("index")));
        !objects_that_hold(&scratch, SECRET.as_bytes()).is_empty()
    }

    /// Watches the outside from now on.
    pub(crate) fn watch(&self) -> Before {
        let hash = treehash(&self.outside).unwrap();
        Before(hash, Watch::below(&self.outside))
    }

    pub(crate) fn watch_private_git(&self) -> Watch {
        Watch::below(&self.private_git())
    }

    /// Shows that nobody was at the outside, and that it is as before.
    pub(crate) fn untouched(&self, Before(hash, watch): Before) {
        watch.nothing_opened("what lies outside is not for a keeper");
        let after = treehash(&self.outside).unwrap();
        assert_eq!(hash.total, after.total, "the outside is as before: {:#?}", hash.difference(&after));
    }

    /// Looks into every object that Airlock keeps.
    /// Files of the tree that hold a text; no link is followed.
    pub(crate) fn files_with(&self, text: &str) -> Vec<String> {
        let out = Command::new("grep").args(["-rlD", "skip", text]).arg(&self.tree).output().unwrap();
        String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
    }

    pub(crate) fn no_object_has_the_secret(&self) {
        let dir = self.git.dir();
        let store = self.layout.repo(&self.git.repo).join("store.git/objects");
        assert!(!objects_that_hold(&store, b"fn f() {}").is_empty(), "the control: what is in objects is found");
        for objects in [dir.objects(), dir.keeper().join("objects"), store] {
            assert_eq!(
                objects_that_hold(&objects, SECRET.as_bytes()),
                Vec::<PathBuf>::new(),
                "an object holds what lies outside"
            );
        }
    }
}

impl Watch {
    fn below(root: &Path) -> Self {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::OPEN
            | WatchFlags::ACCESS
            | WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB;
        let mut todo = vec![root.to_owned()];
        let mut found = vec![];
        while let Some(path) = todo.pop() {
            let about = path.symlink_metadata().unwrap();
            if about.is_dir() {
                todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            }
            // A file tells of itself through the directory that it lies in; an open by another name is told of by itself.
            if about.is_dir() || about.is_file() && !path.components().any(|c| c.as_os_str() == "mass") {
                found.push(path);
            }
        }
        // Not before all is listed: the listing itself opens.
        for path in found {
            inotify::add_watch(&fd, path, flags | WatchFlags::DONT_FOLLOW).unwrap();
        }
        Self(fd)
    }

    pub(crate) fn nothing_opened(self, why: &str) {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        if let Ok(event) = reader.next() {
            panic!("{why}, but somebody was there: {:?} {:?}", event.events() & !ReadFlags::empty(), event.file_name());
        }
    }
}

fn command(home: &Path, at: &Path) -> Command {
    let mut c = Command::new("git");
    c.current_dir(at)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1");
    c
}

fn git(home: &Path, at: &Path, words: &[&str]) -> Output {
    command(home, at).args(words).output().unwrap()
}
