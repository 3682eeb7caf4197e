//! Starts a warden: a process of its own that survives whoever asked for it.

use model::protocol::{CacheCopy, CopyCaches, Start};
use model::run::RunSpec;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Starts the program, hands it the spec and, in a second line, what is secret, and waits for its first line. Its notes go to
/// `notes` (appended).
pub fn start(program: &Path, spec: &RunSpec, secret: &[u8], notes: &Path) -> std::io::Result<Start> {
    let notes_file = OpenOptions::new().create(true).append(true).mode(0o600).open(notes)?;
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut child = Command::new(program)
        .arg("run")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(notes_file)
        .spawn()?;
    let spec = serde_json::to_vec(spec)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&spec)?;
        stdin.write_all(b"\n")?;
        stdin.write_all(secret)?;
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // Reaps it when it ends, for as long as this process lives.
    std::thread::spawn(move || child.wait());
    if line.is_empty() {
        let said = std::fs::read_to_string(notes).unwrap_or_default();
        let end: Vec<&str> = said.lines().rev().take(3).collect();
        return Err(std::io::Error::other(format!(
            "the warden ended before the jail stood; its last words: {}",
            end.join(" | ")
        )));
    }
    Ok(serde_json::from_str(&line)?)
}

/// Starts copying caches in a process of its own, which goes on whatever becomes of the caller. Its words come through the
/// receiver for as long as that lives.
pub fn copy_caches(program: &Path, words: &CopyCaches) -> std::io::Result<Receiver<CacheCopy>> {
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut child = Command::new(program)
        .arg("caches")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let words = serde_json::to_vec(words)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&words)?;
    }
    let (said, heard) = channel();
    let stdout = child.stdout.take();
    std::thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
            if serde_json::from_str(&line).is_ok_and(|copy: CacheCopy| said.send(copy).is_err()) {
                break;
            }
        }
        // Reaps it when it ends, for as long as this process lives.
        drop(child.wait());
    });
    Ok(heard)
}
