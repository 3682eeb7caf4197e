//! Runs the command line `airlock` and reads what it says.

use crate::wait::patiently;
use crate::{Sandbox, program};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a command may take before the test ends; far above what it needs, so that only a hang is caught.
pub const LIMIT: Duration = Duration::from_secs(180);

/// A command that ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What was run, for messages.
    pub line: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
}

impl Ended {
    /// Exit code, or 128 + signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
    /// Stdout as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    /// Stderr as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
    /// Ends the test where the exit code is another one.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "`{}` must end with exit code {code}\n{}", self.line, self.said());
        self
    }
    /// Ends the test where the command did not succeed.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }
    /// The one JSON value on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("`{}` must print one JSON value: {e}\n{}", self.line, self.said()))
    }
    /// One JSON value a line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |l: &str| {
            serde_json::from_str(l)
                .unwrap_or_else(|e| panic!("`{}` must print JSON lines: {e} in {l:?}\n{}", self.line, self.said()))
        };
        self.out().lines().filter(|l| !l.trim().is_empty()).map(parse).collect()
    }
    /// Both streams, for messages.
    pub fn said(&self) -> String {
        let end = |b: &[u8]| String::from_utf8_lossy(&b[b.len().saturating_sub(6000)..]).into_owned();
        format!("exit code {}\n--- stdout\n{}\n--- stderr\n{}", self.code(), end(&self.stdout), end(&self.stderr))
    }
}

impl Sandbox {
    /// Runs `airlock ARGS` to its end, without stdin.
    pub fn airlock<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        self.finish(self.airlock_command(args), b"")
    }

    /// Runs `airlock ARGS` to its end with this on stdin.
    pub fn airlock_with_stdin<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, stdin: &[u8]) -> Ended {
        self.finish(self.airlock_command(args), stdin)
    }

    /// `airlock ARGS`, not started.
    pub fn airlock_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut c = self.command(program("airlock"));
        c.args(args);
        c
    }

    /// `airlock run --repo REPO OPTIONS --json -- sh -c SCRIPT` to its end.
    pub fn run_script(&self, repo: &Path, options: &[&str], script: &str) -> Ended {
        let mut c = self.airlock_command(["run", "--repo"]);
        c.arg(repo).args(options).args(["--json", "--", "sh", "-c", script]);
        self.finish(c, b"")
    }

    /// Runs a command to its end within [`LIMIT`].
    pub fn finish(&self, command: Command, stdin: &[u8]) -> Ended {
        let mut live = Live::start(command);
        live.write(stdin);
        live.end(LIMIT)
    }
}

/// A command that runs, in its own process group. Dropping it kills the group.
pub struct Live {
    line: String,
    child: Child,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Live {
    /// Starts it with three pipes.
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let line = format!("{command:?}");
        let line = line.rsplit_once("/airlock\"").map_or(line.clone(), |(_, args)| format!("airlock{args}"));
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("`{line}` can't be started: {e}"));
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("stdout is a pipe"), Arc::clone(&out)),
            collect(child.stderr.take().expect("stderr is a pipe"), Arc::clone(&err)),
        ];
        Self { line, child, out, err, readers }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id is an i32")
    }

    /// Writes to its stdin.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = self.child.stdin.as_mut() {
            // The command may have ended without reading.
            drop(stdin.write_all(bytes));
        }
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("the command still runs");
    }

    /// What it said on stdout up to now.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().expect("no reader panics")).into_owned()
    }

    /// What it said on stderr up to now.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().expect("no reader panics")).into_owned()
    }

    /// Waits until its stdout holds a text.
    #[track_caller]
    pub fn until_out(&mut self, text: &str) {
        self.until(text, Self::out);
    }

    /// Waits until its stderr holds a text.
    #[track_caller]
    pub fn until_err(&mut self, text: &str) {
        self.until(text, Self::err);
    }

    #[track_caller]
    fn until(&mut self, text: &str, said: impl Fn(&Self) -> String) {
        let start = Instant::now();
        while !said(self).contains(text) {
            let ended = self.ended() && !said(self).contains(text);
            let late = start.elapsed() > patiently(LIMIT);
            if ended || late {
                // The reader may lag behind the end.
                std::thread::sleep(Duration::from_millis(100));
                let (line, out, err) = (&self.line, self.out(), self.err());
                assert!(said(self).contains(text), "`{line}` must print {text:?}\n--- stdout\n{out}\n--- stderr\n{err}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it ended.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_some()
    }

    /// Closes stdin and waits for its end.
    #[track_caller]
    pub fn end(mut self, limit: Duration) -> Ended {
        let limit = patiently(limit);
        drop(self.child.stdin.take());
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                break status;
            }
            assert!(
                start.elapsed() < limit,
                "`{}` did not end within {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
                self.line,
                self.out(),
                self.err()
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        // A process left in the background may hold the pipes: what came within a second counts.
        let start = Instant::now();
        while self.readers.iter().any(|r| !r.is_finished()) && start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ended {
            line: self.line.clone(),
            status,
            stdout: self.out.lock().expect("no reader panics").clone(),
            stderr: self.err.lock().expect("no reader panics").clone(),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let group = nix::unistd::Pid::from_raw(self.pid());
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            drop(self.child.wait());
        }
    }
}

/// Keeps at most 64 MiB, reads on beyond.
fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<Vec<u8>>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        while let Ok(bytes) = from.fill_buf() {
            let n = bytes.len();
            if n == 0 {
                break;
            }
            let mut into = into.lock().expect("no reader panics");
            if into.len() < 64 << 20 {
                into.extend_from_slice(bytes);
            }
            drop(into);
            from.consume(n);
        }
    })
}
