//! Printing: results to stdout, Airlock's own talk to stderr.

use engine::{Code, Error, Host};
use serde::Serialize;
use std::io::Write;

fn failed(e: std::io::Error) -> Error {
    if e.kind() == std::io::ErrorKind::BrokenPipe {
        // The reader has enough: no words, and no success either.
        std::process::exit(0);
    }
    Error::new(Code::Machine, format!("printing failed: {e}"))
}

/// A line of text.
pub(crate) fn line(text: &str) -> Result<(), Error> {
    writeln!(std::io::stdout(), "{text}").map_err(failed)
}

/// Raw bytes.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(failed)
}

/// One JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|e| Error::new(Code::Machine, format!("writing JSON failed: {e}")))?;
    line(&text)
}

/// Airlock's own talk.
pub(crate) fn talk(text: &str) {
    writeln!(std::io::stderr(), "airlock: {text}").ok();
}

/// How this program is called from here: by its name where the PATH leads to it, else by its path.
pub(crate) fn me(host: &Host) -> String {
    let here = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| "airlock".into());
    match host.which("airlock") {
        Some(found) if found == here => "airlock".into(),
        _ => crate::text::safe(&here.display().to_string()),
    }
}

/// Why a verb was not done.
pub(crate) fn problem(text: &str) {
    talk(text);
}
