//! Starts a warden: a process of its own that survives whoever asked for it.

use model::protocol::{CacheCopy, CopyCaches, Start};
use model::run::RunSpec;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Of the starter's environment what a warden, the libraries in it and its git read. All else, a person's keys among it, would stand in
/// its own for as long as it lives.
const KEPT: [&str; 25] = [
    "ALL_PROXY",
    "DBUS_SESSION_BUS_ADDRESS",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOCALDOMAIN",
    "LOGNAME",
    "NO_PROXY",
    "PATH",
    "RES_OPTIONS",
    "RUST_BACKTRACE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

fn kept() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(k, _)| KEPT.iter().any(|kept| k == kept))
}

/// Starts the program, hands it the spec and, in a second line, what is secret, and waits for its first line. Its notes go to
/// `notes` (appended).
pub fn start(program: &Path, spec: &RunSpec, secret: &[u8], notes: &Path) -> std::io::Result<Start> {
    let spec = serde_json::to_vec(spec)?;
    let mut notes_file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(notes)?;
    let before = notes_file.seek(SeekFrom::End(0))?;
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut child = Command::new(program)
        .arg("run")
        .current_dir("/")
        .env_clear()
        .envs(kept())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(notes_file.try_clone()?)
        .spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    reap(child);
    // One that dies early takes no more; why it died is said below.
    let handed = stdin.map_or(Ok(()), |mut stdin| {
        stdin.write_all(&spec)?;
        stdin.write_all(b"\n")?;
        stdin.write_all(secret)
    });
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() {
        notes_file.seek(SeekFrom::Start(before))?;
        let mut said = Vec::new();
        notes_file.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        return Err(std::io::Error::other(format!(
            "the warden ended before the jail stood; its last words: {}",
            lines[lines.len().saturating_sub(3)..].join(" | ")
        )));
    }
    handed?;
    Ok(serde_json::from_str(&line)?)
}

/// Takes a child's end whenever it comes, for as long as this process lives.
fn reap(mut child: Child) {
    std::thread::spawn(move || child.wait());
}

/// Starts copying caches in a process of its own, which goes on whatever becomes of the caller. Its words come through the
/// receiver for as long as that lives.
pub fn copy_caches(program: &Path, words: &CopyCaches) -> std::io::Result<Receiver<CacheCopy>> {
    let words = serde_json::to_vec(words)?;
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut child = Command::new(program)
        .arg("caches")
        .current_dir("/")
        .env_clear()
        .envs(kept())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    reap(child);
    if let Some(mut stdin) = stdin {
        stdin.write_all(&words)?;
    }
    let (said, heard) = channel();
    std::thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
            if serde_json::from_str(&line).is_ok_and(|copy: CacheCopy| said.send(copy).is_err()) {
                break;
            }
        }
    });
    Ok(heard)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    #[test]
    fn one_that_dies_early_is_heard_and_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (program, notes) = (dir.path().join("warden"), dir.path().join("notes"));
        let pid = dir.path().join("pid");
        // Nothing of what it is handed is read, which is more than a pipe holds.
        let script = format!("#!/bin/sh\necho $$ > {}\necho one >&2; echo two >&2; echo three >&2\nexit 1\n", pid.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&notes, "of an earlier run\n").unwrap();
        let spec = crate::compose::tests::spec("/repo");
        let said = start(&program, &spec, &vec![b'x'; 1 << 20], &notes).unwrap_err().to_string();
        assert!(said.ends_with("its last words: one | two | three"), "{said}");
        let pid: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while sys::proc::Stat::of(pid).is_ok() {
            assert!(Instant::now() < until, "it stays behind, dead");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
