//! Starts a warden: a process of its own that survives whoever asked for it.

use model::protocol::Start;
use model::run::RunSpec;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts the program, hands it the spec, and waits for its first line. Its notes go to `notes` (appended).
pub fn start(program: &Path, spec: &RunSpec, notes: &Path) -> std::io::Result<Start> {
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
