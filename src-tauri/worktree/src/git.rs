//! The only place that starts git: scrubbed environment, no hooks, no fsmonitor, no pager, time and output limits.

use rustix::process::Resource;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// For commands that look at a few refs or objects.
const SHORT: Duration = Duration::from_secs(60);
/// For packs and checkouts.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// Output that a command may give unless told otherwise.
const OUTPUT: u64 = 256 << 20;
/// How much of the end of stderr is kept.
const STDERR: usize = 8 << 10;

/// A git command that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No program.
    #[error("git was not found in the directories of PATH: install git 2.39 or newer")]
    Missing,
    /// It did not start, or its pipes broke.
    #[error("git could not {doing}: {source}")]
    Io {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It said no.
    #[error("git could not {doing} (exit code {code}): {stderr}")]
    Failed {
        /// What was asked.
        doing: &'static str,
        /// Its exit code, 128 + signal for a kill.
        code: i32,
        /// The end of what it said.
        stderr: String,
    },
    /// No room.
    #[error("the disk is full: git could not {doing}. Free some space and try again")]
    DiskFull {
        /// What was asked.
        doing: &'static str,
    },
    /// Too slow.
    #[error("git did not {doing} within {limit:?} and was ended")]
    Timeout {
        /// What was asked.
        doing: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Too much.
    #[error("git gave more than {limit} bytes when asked to {doing}: that is more than Airlock takes")]
    TooMuch {
        /// What was asked.
        doing: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Objects could not be read or written in this process.
    #[error("git data could not be read or written to {doing}: {source}")]
    Objects {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        #[source]
        source: git2::Error,
    },
    /// Airlock's own place has a name that libgit2 can't be given.
    #[error("git could not {doing}: the path of Airlock's data has characters that are no text; set XDG_DATA_HOME to another")]
    NotText {
        /// What was asked.
        doing: &'static str,
    },
    /// It answered in a form that is not known.
    #[error("git answered in an unknown form when asked to {doing}")]
    Unknown {
        /// What was asked.
        doing: &'static str,
    },
}

impl GitError {
    /// Whether stderr holds `text`, for the few refusals that git tells apart in words only (LC_ALL is C).
    pub(crate) fn says(&self, text: &str) -> bool {
        matches!(self, Self::Failed { stderr, .. } if stderr.contains(text))
    }
}

/// Whose configuration counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Config<'a> {
    /// The repository's alone.
    Repository,
    /// Also the person's and the system's: to read values that are copied, never to act.
    Person(&'a Path),
}

/// One git command to be run.
#[derive(Debug)]
pub(crate) struct Git<'a> {
    doing: &'static str,
    config: Config<'a>,
    settings: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    cwd: PathBuf,
    args: Vec<OsString>,
    input: Option<Vec<u8>>,
    holding: Option<File>,
    time: Duration,
    output: u64,
    memory: Option<u64>,
}

/// What a command gave.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl<'a> Git<'a> {
    /// A command; `doing` completes "git could not …".
    pub(crate) fn new(doing: &'static str) -> Self {
        Self {
            doing,
            config: Config::Repository,
            settings: Vec::new(),
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            args: Vec::new(),
            input: None,
            holding: None,
            time: SHORT,
            output: OUTPUT,
            memory: None,
        }
    }

    /// On this git directory.
    pub(crate) fn at(self, git_dir: &Path) -> Self {
        self.env("GIT_DIR", git_dir)
    }

    /// With this working tree, which is also where it runs.
    pub(crate) fn tree(mut self, tree: &Path) -> Self {
        self.cwd = tree.to_owned();
        self.env("GIT_WORK_TREE", tree)
    }

    /// In this directory, from which git finds the repository.
    pub(crate) fn cwd(mut self, dir: &Path) -> Self {
        self.cwd = dir.to_owned();
        self
    }

    /// With this index.
    pub(crate) fn index(self, index: &Path) -> Self {
        self.env("GIT_INDEX_FILE", index)
    }

    /// New objects go here (`info/alternates` in it counts).
    pub(crate) fn objects(self, dir: &Path) -> Self {
        self.env("GIT_OBJECT_DIRECTORY", dir)
    }

    /// More objects to read.
    pub(crate) fn alternates<P: AsRef<Path>>(self, dirs: &[P]) -> Self {
        let list = dirs.iter().map(|d| quote_alternate(d.as_ref())).collect::<Vec<_>>().join(OsStr::new(":"));
        self.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", list)
    }

    /// Reads the person's and the system's configuration too.
    pub(crate) fn persons_config(mut self, home: &'a Path) -> Self {
        self.config = Config::Person(home);
        self
    }

    /// A setting that wins over every file, as `-c` takes it.
    pub(crate) fn set(mut self, setting: impl Into<OsString>) -> Self {
        self.settings.push(setting.into());
        self
    }

    pub(crate) fn env(mut self, key: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key, value.as_ref().to_owned()));
        self
    }

    /// Who a commit or reflog entry is by.
    pub(crate) fn by(self, name: &str, email: &str) -> Self {
        self.env("GIT_AUTHOR_NAME", name)
            .env("GIT_AUTHOR_EMAIL", email)
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", email)
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Bytes for its stdin.
    pub(crate) fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = Some(bytes);
        self
    }

    /// Keeps a lock until git has ended, even where this process is killed first: the lock's file is its stdin.
    pub(crate) fn holding(mut self, lock: &File) -> Result<Self, GitError> {
        self.holding = Some(lock.try_clone().map_err(|source| GitError::Io { doing: self.doing, source })?);
        Ok(self)
    }

    /// May take long (packs, checkouts).
    pub(crate) fn time(mut self, limit: Duration) -> Self {
        self.time = limit;
        self
    }

    /// May use this many bytes of memory: some kilobytes of a pack can ask for all that the machine has.
    pub(crate) fn memory(mut self, limit: u64) -> Self {
        self.memory = Some(limit);
        self
    }

    /// Runs it; a non-zero exit code is an error.
    pub(crate) fn ok(self) -> Result<Vec<u8>, GitError> {
        let doing = self.doing;
        self.run().and_then(|out| out.checked(doing))
    }

    /// Runs it; the answer is one line of text.
    pub(crate) fn line(self) -> Result<String, GitError> {
        let doing = self.doing;
        let mut out = self.ok()?;
        if out.last() == Some(&b'\n') {
            out.pop();
        }
        String::from_utf8(out).map_err(|_| GitError::Unknown { doing })
    }

    /// Runs it; the answer is one path.
    pub(crate) fn path(self) -> Result<PathBuf, GitError> {
        let mut out = self.ok()?;
        if out.last() == Some(&b'\n') {
            out.pop();
        }
        Ok(PathBuf::from(OsStr::from_bytes(&out)))
    }

    /// Runs it; any exit code is an answer.
    pub(crate) fn run(self) -> Result<Output, GitError> {
        self.run_with(&|_| ())
    }

    /// Runs it and hands on each line of its stderr as it comes.
    pub(crate) fn run_with(mut self, said: &dyn Fn(&str)) -> Result<Output, GitError> {
        let doing = self.doing;
        let io = |source| GitError::Io { doing, source };
        let stdin = match self.input.take() {
            Some(bytes) => spooled(&bytes).map_err(io)?.into(),
            None => self.holding.take().map_or_else(Stdio::null, Stdio::from),
        };
        let deadline = Instant::now() + self.time;
        let mut child = self.spawn(stdin, Stdio::piped())?;
        let stdout = read_to_cap(child.child.stdout.take(), self.output);
        let code = child.end(deadline, said)?;
        let (stdout, whole) = match stdout.map(std::thread::JoinHandle::join) {
            Some(Ok(r)) => r.map_err(io)?,
            _ => (Vec::new(), false),
        };
        if !whole {
            return Err(GitError::TooMuch { doing, limit: self.output });
        }
        Ok(Output { code, stdout, stderr: std::mem::take(&mut child.tail) })
    }

    /// Runs it with its stdin fed from `from`, at most `limit` bytes.
    pub(crate) fn fed(self, from: Box<dyn Read + Send>, limit: u64) -> Result<Output, GitError> {
        let doing = self.doing;
        let deadline = Instant::now() + self.time;
        let mut child = self.spawn(Stdio::piped(), Stdio::piped())?;
        let stdin = child.child.stdin.take();
        let pump = std::thread::spawn(move || -> io::Result<bool> {
            let Some(mut to) = stdin else { return Ok(true) };
            let mut from = from.take(limit + 1);
            match io::copy(&mut from, &mut to) {
                // Git ends early when it refuses what it reads, and then says why.
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e),
                _ => Ok(from.limit() > 0),
            }
        });
        let stdout = read_to_cap(child.child.stdout.take(), OUTPUT);
        let code = child.end(deadline, &|_| ())?;
        let stdout = match stdout.map(std::thread::JoinHandle::join) {
            Some(Ok(Ok((bytes, _)))) => bytes,
            _ => Vec::new(),
        };
        // Joined only when it is done: its reader may belong to a keeper that hangs, which its owner ends.
        if pump.is_finished() && matches!(pump.join(), Ok(Ok(false))) {
            return Err(GitError::TooMuch { doing, limit });
        }
        Ok(Output { code, stdout, stderr: std::mem::take(&mut child.tail) })
    }

    /// Runs it with its stdout going straight into `sink`, and returns what both ended with (this one's code first).
    pub(crate) fn into(mut self, sink: Git<'_>, said: &dyn Fn(&str)) -> Result<(Output, Output), GitError> {
        let doing = self.doing;
        let stdin = match self.input.take() {
            Some(bytes) => spooled(&bytes).map_err(|source| GitError::Io { doing, source })?.into(),
            None => Stdio::null(),
        };
        let deadline = Instant::now() + self.time;
        let mut first = self.spawn(stdin, Stdio::piped())?;
        let pipe = first.child.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let mut second = sink.spawn(pipe, Stdio::piped())?;
        let stdout = read_to_cap(second.child.stdout.take(), OUTPUT);
        let code = first.end(deadline, said)?;
        let end = second.end(deadline, &|_| ())?;
        let stdout = match stdout.map(std::thread::JoinHandle::join) {
            Some(Ok(Ok((bytes, _)))) => bytes,
            _ => Vec::new(),
        };
        Ok((
            Output { code, stdout: Vec::new(), stderr: first.tail.clone() },
            Output { code: end, stdout, stderr: second.tail.clone() },
        ))
    }

    /// Runs it with its stdout written to `file`.
    pub(crate) fn write_to(mut self, file: File) -> Result<Output, GitError> {
        let doing = self.doing;
        let stdin = match self.input.take() {
            Some(bytes) => spooled(&bytes).map_err(|source| GitError::Io { doing, source })?.into(),
            None => Stdio::null(),
        };
        let deadline = Instant::now() + self.time;
        let mut child = self.spawn(stdin, file.into())?;
        let code = child.end(deadline, &|_| ())?;
        Ok(Output { code, stdout: Vec::new(), stderr: std::mem::take(&mut child.tail) })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where git is started")]
    fn spawn(&self, stdin: Stdio, stdout: Stdio) -> Result<Run, GitError> {
        let mut command = Command::new(program().ok_or(GitError::Missing)?);
        command.env_clear().envs([
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_PAGER", "cat"),
            ("GIT_EDITOR", "false"),
            ("GIT_ASKPASS", "false"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_LFS_SKIP_SMUDGE", "1"),
        ]);
        command.env("PATH", search_path());
        if let Some(zone) = std::env::var_os("TZ") {
            command.env("TZ", zone);
        }
        match self.config {
            Config::Repository => {
                command.envs([("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
            }
            Config::Person(home) => {
                command.env("HOME", home);
                if let Some(dir) = std::env::var_os("XDG_CONFIG_HOME") {
                    command.env("XDG_CONFIG_HOME", dir);
                }
            }
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command.args(["--no-pager", "--no-optional-locks"]);
        for fixed in [
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.pager=cat",
            "protocol.allow=never",
            "gc.auto=0",
            "maintenance.auto=false",
            "safe.bareRepository=explicit",
            "submodule.recurse=false",
            "commit.gpgSign=false",
            "core.quotePath=false",
        ] {
            command.args(["-c", fixed]);
        }
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        // A group of its own: Ctrl-C in a terminal must not end git between two steps of an exit.
        command.args(&self.args).current_dir(&self.cwd).stdin(stdin).stdout(stdout).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !self.cwd.is_dir() => GitError::Io { doing: self.doing, source },
            io::ErrorKind::NotFound => GitError::Missing,
            _ => GitError::Io { doing: self.doing, source },
        })?;
        if let Some(limit) = self.memory {
            // It has read nothing yet of what could make it grow.
            let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
            if let Err(e) = rustix::process::prlimit(Some(rustix::process::Pid::from_child(&child)), Resource::Data, limit) {
                drop(child.kill());
                drop(child.wait());
                return Err(GitError::Io { doing: self.doing, source: e.into() });
            }
        }
        let (to, lines) = channel();
        if let Some(mut stderr) = child.stderr.take() {
            std::thread::spawn(move || {
                let mut buf = [0; 4096];
                while let Ok(n @ 1..) = stderr.read(&mut buf) {
                    if to.send(buf[..n].to_vec()).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Run { doing: self.doing, limit: self.time, child, lines, tail: String::new(), reaped: false })
    }
}

impl Output {
    /// Its stdout where the exit code is 0.
    pub(crate) fn checked(self, doing: &'static str) -> Result<Vec<u8>, GitError> {
        match self.code {
            0 => Ok(self.stdout),
            _ if no_room(&self.stderr) => Err(GitError::DiskFull { doing }),
            code => Err(GitError::Failed { doing, code, stderr: self.stderr }),
        }
    }
}

/// Git passes the kernel's reason on in words only.
/// What git says first, whatever it then does, where a task's objects name the history beside them and a keeper's jail shows
/// that elsewhere: it is never the reason of anything.
fn is_of_alternates(line: &str) -> bool {
    line.starts_with("error: unable to normalize alternate object path: ")
        || (line.starts_with("error: object directory ") && line.ends_with("; check .git/objects/info/alternates"))
}

fn no_room(stderr: &str) -> bool {
    stderr.contains("No space left on device") || stderr.contains("Disk quota exceeded")
}

/// A git that runs; killed with its children when dropped early.
struct Run {
    doing: &'static str,
    limit: Duration,
    child: Child,
    lines: Receiver<Vec<u8>>,
    tail: String,
    reaped: bool,
}

impl Run {
    /// Waits for the end, passing stderr on; keeps its end without progress lines.
    fn end(&mut self, deadline: Instant, said: &dyn Fn(&str)) -> Result<i32, GitError> {
        let timeout = || GitError::Timeout { doing: self.doing, limit: self.limit };
        let mut part = Vec::new();
        let mut kept: Vec<String> = Vec::new();
        loop {
            let left = deadline.checked_duration_since(Instant::now()).ok_or_else(timeout)?;
            match self.lines.recv_timeout(left) {
                Ok(bytes) => {
                    for b in bytes {
                        if matches!(b, b'\n' | b'\r') {
                            let line = String::from_utf8_lossy(&part).into_owned();
                            said(&line);
                            if b == b'\n' && !is_of_alternates(&line) {
                                kept.push(line);
                            }
                            part.clear();
                        } else if part.len() < STDERR {
                            part.push(b);
                        }
                    }
                    if kept.len() > 64 {
                        kept.drain(..kept.len() - 64);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(timeout()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        kept.push(String::from_utf8_lossy(&part).into_owned());
        self.tail = kept.join("\n").trim().chars().take(STDERR).collect();
        // Its stderr is closed, so the end is near: an unhurried poll costs nothing.
        let mut pause = Duration::from_micros(200);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.reaped = true;
                    return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
                }
                Ok(None) if Instant::now() > deadline => return Err(timeout()),
                Ok(None) => std::thread::sleep(pause),
                Err(source) => return Err(GitError::Io { doing: self.doing, source }),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.reaped {
            if let Ok(pid) = i32::try_from(self.child.id())
                && let Some(pid) = rustix::process::Pid::from_raw(pid)
            {
                // The group exists as long as its leader is not reaped, so this ends no stranger.
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
            drop(self.child.wait());
        }
    }
}

type Reading = std::thread::JoinHandle<io::Result<(Vec<u8>, bool)>>;

/// Reads in a thread; the flag tells whether all of it was within the cap.
fn read_to_cap(from: Option<std::process::ChildStdout>, cap: u64) -> Option<Reading> {
    let from = from?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut limited = from.take(cap + 1);
        limited.read_to_end(&mut bytes)?;
        Ok((bytes, limited.limit() > 0))
    }))
}

/// Bytes as a file in memory: unlike a pipe it needs no thread to feed it, and no directory to be made in.
fn spooled(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// The directories of PATH without relative ones, which would find programs in whatever directory git runs in.
fn search_path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&own).filter(|d| d.is_absolute()).collect();
    dirs.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
    dirs.dedup();
    std::env::join_paths(dirs).unwrap_or_default()
}

fn program() -> Option<PathBuf> {
    let path = search_path();
    std::env::split_paths(&path).map(|d| d.join("git")).find(|p| p.is_file())
}

/// A directory as `GIT_ALTERNATE_OBJECT_DIRECTORIES` takes it: quoted where a colon or a quote would end it.
fn quote_alternate(dir: &Path) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    let bytes = dir.as_os_str().as_bytes();
    if !bytes.iter().any(|b| matches!(b, b':' | b'"' | b'\n' | b'#' | b'\\')) {
        return dir.as_os_str().to_owned();
    }
    let mut out = vec![b'"'];
    for &b in bytes {
        match b {
            b'"' | b'\\' => out.extend([b'\\', b]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(b),
        }
    }
    out.push(b'"');
    OsString::from_vec(out)
}

/// Splits at NUL; a last empty piece is no piece.
pub(crate) fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0).filter(|p| !p.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn the_environment_of_the_person_does_not_reach_git() {
        let out = Git::new("say its variables").args(["-c", "alias.x=!env", "x"]).ok().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("GIT_CONFIG_GLOBAL=/dev/null"), "the person's configuration is off: {text}");
        assert!(!text.contains("CARGO"), "variables of the caller are gone: {text}");
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let err = Git::new("sleep").args(["-c", "alias.x=!sleep 1000", "x"]).time(Duration::from_millis(300)).run();
        assert!(matches!(err, Err(GitError::Timeout { .. })), "a time limit ends it: {err:?}");
    }

    #[test]
    fn output_has_a_limit() {
        let mut git = Git::new("talk").args(["-c", "alias.x=!yes", "x"]);
        git.output = 10_000;
        assert!(matches!(git.run(), Err(GitError::TooMuch { .. })), "endless output is cut");
    }
}
