//! A person's own directories for one test: home, data, config, runtime.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One test's person. Dropping it ends what still runs for it and removes its files.
pub struct Sandbox {
    dir: Option<tempfile::TempDir>,
    root: PathBuf,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// Fresh directories; a home with a git identity and an `~/.ssh` that nobody may read.
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// The same in another place than that for temporary files.
    pub fn below(place: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("airlock-test-").tempdir_in(place).expect("a temporary directory can be made");
        let root = dir.path().canonicalize().expect("the temporary directory exists");
        let it = Self { dir: Some(dir), root };
        for d in [it.home(), it.data(), it.config(), it.runtime(), it.home().join(".ssh")] {
            std::fs::create_dir_all(&d).unwrap_or_else(|e| panic!("{}: {e}", d.display()));
        }
        std::fs::set_permissions(it.runtime(), std::fs::Permissions::from_mode(0o700)).expect("the runtime directory is ours");
        std::fs::set_permissions(it.home().join(".ssh"), std::fs::Permissions::from_mode(0o700)).expect("~/.ssh is ours");
        std::fs::write(it.home().join(".ssh/id_ed25519"), "CANARY-PRIVATE-KEY\n").expect("a canary key can be written");
        std::fs::write(
            it.home().join(".gitconfig"),
            "[user]\n\tname = Test Person\n\temail = person@example.org\n[init]\n\tdefaultBranch = main\n",
        )
        .expect("the git identity can be written");
        it
    }

    /// The person of another process, who stays when this is dropped.
    pub fn of(root: PathBuf) -> Self {
        Self { dir: None, root }
    }

    /// Everything of this test is below.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// `HOME`.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }
    /// `XDG_DATA_HOME`.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }
    /// `XDG_CONFIG_HOME`.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }
    /// `XDG_RUNTIME_DIR`, mode 0700.
    pub fn runtime(&self) -> PathBuf {
        self.root.join("run")
    }
    /// Airlock's own directory of a task.
    pub fn task_dir(&self, task: &str) -> PathBuf {
        self.data().join("airlock/tasks").join(task)
    }

    /// A file of this test, made with its parents.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("parents can be made");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// A command that sees this person's directories and nothing else of the environment but `PATH`, with
    /// `~/.local/bin` before it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut c = Command::new(program);
        let mut path = self.home().join(".local/bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        c.env_clear().envs(self.env()).env("PATH", path).current_dir(&self.root);
        c
    }

    /// The environment that makes a program see this person's directories. The session bus, where there is one, is the real one:
    /// their service manager is there, and no other can be made.
    pub fn env(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let bus = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").map(|address| ("DBUS_SESSION_BUS_ADDRESS", address));
        let mut env = vec![
            ("HOME", self.home().into()),
            ("XDG_DATA_HOME", self.data().into()),
            ("XDG_CONFIG_HOME", self.config().into()),
            ("XDG_RUNTIME_DIR", self.runtime().into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "xterm-256color".into()),
            ("USER", "person".into()),
        ];
        env.extend(bus);
        env
    }

    /// Process ids of this person's live wardens: whoever holds the lock of a task.
    pub fn wardens(&self) -> Vec<i32> {
        let tasks = std::fs::read_dir(self.data().join("airlock/tasks")).into_iter().flatten().flatten();
        let locks: Vec<u64> = tasks.filter_map(|t| t.path().join("run.lock").metadata().ok()).map(|m| m.ino()).collect();
        let table = std::fs::read_to_string("/proc/locks").expect("the kernel lists locks");
        let mut holders: Vec<i32> = table
            .lines()
            // `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131077 0 EOF`; a waiter's line has `->` before the kind.
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [_, "FLOCK", _, "WRITE", pid, file, ..] => {
                    let inode = file.rsplit(':').next()?.parse::<u64>().ok()?;
                    // The kernel writes 0 for a process that can't be seen from here.
                    locks.contains(&inode).then(|| pid.parse().ok())?.filter(|pid| *pid > 0)
                }
                _ => None,
            })
            .collect();
        holders.sort_unstable();
        holders
    }

    /// Process ids of programs of that name that have one of this person's files open or in their environment.
    pub fn processes(&self, name: &str) -> Vec<i32> {
        let root = self.root.as_os_str().as_encoded_bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            let proc = entry.path();
            let comm = std::fs::read(proc.join("comm")).unwrap_or_default();
            if comm.trim_ascii_end() != &name.as_bytes()[..name.len().min(15)] {
                continue;
            }
            let contains = |bytes: &[u8]| bytes.windows(root.len()).any(|w| w == root);
            let by_word = ["environ", "cmdline"].iter().any(|f| std::fs::read(proc.join(f)).is_ok_and(|b| contains(&b)));
            let by_file = || {
                let fds = std::fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
                fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|p| contains(p.as_os_str().as_encoded_bytes()))
            };
            if by_word || by_file() {
                found.push(pid);
            }
        }
        found
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for pid in self.wardens() {
            // It may have ended by itself.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        if std::env::var_os("AIRLOCK_TEST_KEEP").is_some() {
            println!("kept: {}", self.root.display());
            self.dir.take().map(tempfile::TempDir::keep);
        } else if let Some(dir) = self.dir.take() {
            // Directories that a test closed must not keep the rest from being removed.
            let mut open = Command::new("chmod");
            open.args(["-R", "u+rwX"]).arg(dir.path()).stderr(std::process::Stdio::null());
            drop(open.status());
            if let Err(e) = dir.close() {
                eprintln!("left behind: {e}");
            }
        }
    }
}
