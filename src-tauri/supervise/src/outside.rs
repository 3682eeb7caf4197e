//! Programs of the person's that Airlock asks something, outside any jail, because their own policy names them.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long one may take, and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// Bytes that are taken of what it says.
const MOST: u64 = 64 << 10;

/// What a program says on stdout; why nothing, in words that hold none of it. It has the person's own environment, no input and no
/// terminal.
pub fn asked(words: &[String], directory: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = words.split_first().ok_or("no program is named")?;
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("`{program}` could not be started: {e}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("its number is none")?;
    let reader = child.stdout.take().map(|stdout| {
        std::thread::spawn(move || {
            let mut said = Zeroizing::new(Vec::with_capacity(4096));
            stdout.take(MOST + 1).read_to_end(&mut said).map(|_| said)
        })
    });
    let until = Instant::now() + PATIENCE;
    let late = loop {
        match rustix::process::waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
            Ok(None) if Instant::now() >= until => break true,
            Ok(None) | Err(Errno::INTR) => std::thread::sleep(LOOK),
            Ok(Some(_)) | Err(_) => break false,
        }
    };
    // With it goes whatever it left behind, which would hold its output open. It is not waited for yet: its number is still its own.
    _ = rustix::process::kill_process_group(group, Signal::KILL);
    let status = child.wait().map_err(|e| format!("`{program}` could not be waited for: {e}"))?;
    if late {
        return Err(format!("`{program}` did not end within {} s", PATIENCE.as_secs()));
    }
    let said = reader.and_then(|r| r.join().ok()).and_then(Result::ok).ok_or_else(|| format!("`{program}` could not be read"))?;
    if said.len() as u64 > MOST {
        return Err(format!("`{program}` said more than {MOST} bytes"));
    }
    if status.success() { Ok(said) } else { Err(format!("`{program}` ended with {status}")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn sh(script: &str) -> Result<Vec<u8>, String> {
        asked(&["sh".into(), "-c".into(), script.into()], Path::new("/")).map(|said| said.to_vec())
    }

    #[test]
    fn what_a_program_says_is_taken_and_its_failure_told_without_it() {
        assert_eq!(sh("echo word; cat").as_deref(), Ok(&b"word\n"[..]));
        let failed = sh("echo sk-secret; exit 3").unwrap_err();
        assert!(failed.contains("exit status: 3") && !failed.contains("sk-secret"), "{failed}");
        assert!(asked(&["/not/there".into()], Path::new("/")).unwrap_err().contains("/not/there"));
        // One that leaves something behind holds nobody up.
        let begun = Instant::now();
        assert_eq!(sh("sleep 600 & echo word").as_deref(), Ok(&b"word\n"[..]));
        assert!(begun.elapsed() < PATIENCE);
        assert!(sh("head -c 1000000 /dev/zero | tr '\\0' x").unwrap_err().contains("more than 65536 bytes"));
    }
}
