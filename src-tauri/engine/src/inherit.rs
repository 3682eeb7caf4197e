//! What a program of Airlock's has from whoever started it.

use crate::error::{Code, Error};
use rustix::fs::Mode;

/// For the first line of a program over the engine: what its starter left open goes to no program that it starts, ended
/// children are heard of, and nothing it makes is closed to the person themself. The rest of the mask for new files stays: what
/// an exit writes is the person's.
///
/// # Errors
/// The kernel refused one of them.
pub fn settle() -> Result<(), Error> {
    let failed = |e| Error::new(Code::Machine, format!("letting go of what the starter handed on failed: {e}"));
    sys::fd::close_on_exec_from(3).map_err(failed)?;
    sys::inherit::keep_ended_children().map_err(failed)?;
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask & Mode::from_raw_mode(0o077));
    Ok(())
}
