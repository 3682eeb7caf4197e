//! Secrets of the person's: held in memory that is wiped, shown to nobody by accident.
//!
//! A [`Secret`] can't be printed, copied or written down; whoever needs its text calls [`Secret::reveal`], and only `egress`, which
//! attaches it, and `engine`, which hands it to a warden, do.
//! ```compile_fail
//! let secret = secrets::Secret::new("x".to_owned()).unwrap();
//! println!("{secret:?}");
//! ```
//! ```compile_fail
//! let secret = secrets::Secret::new("x".to_owned()).unwrap();
//! let copy = secret.clone();
//! ```

mod keyring;

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest secret that is taken, in bytes.
const LARGEST: usize = 16 * 1024;

/// A secret's text.
pub struct Secret(Zeroizing<String>);

/// Why a secret is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NoSecret {
    /// It is not there.
    #[error("{0} is not set")]
    Unset(String),
    /// It is empty, has a line break or another control character, or is too long; none of it is said.
    #[error("what is there is no secret: it is empty, longer than {LARGEST} bytes, or holds a control character")]
    Odd,
    /// The desktop's keyring does not give it.
    #[error("the keyring does not give it: {0}")]
    Keyring(String),
    /// The file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Secret {
    /// Takes a text.
    ///
    /// # Errors
    /// One that could not stand in a header.
    pub fn new(text: String) -> Result<Self, NoSecret> {
        let text = Zeroizing::new(text);
        if text.is_empty() || text.len() > LARGEST || text.chars().any(char::is_control) {
            return Err(NoSecret::Odd);
        }
        Ok(Self(text))
    }

    /// Takes what a regular file holds, as [`Secret::of_text`] does.
    ///
    /// # Errors
    /// A file that is missing, is none, or holds none.
    pub fn of_file(path: &Path, json: bool) -> Result<Self, NoSecret> {
        let failed = |source| NoSecret::File { path: path.to_owned(), source };
        // A FIFO in its place must not hold up a start.
        const NONBLOCK: i32 = 0o4000;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(LARGEST + 2));
        file.take(LARGEST as u64 + 2).read_to_end(&mut bytes).map_err(failed)?;
        Self::of_text(&bytes, json)
    }

    /// Takes the first line; or, where it may be `json` and begins like an object, the whole of it as one line.
    ///
    /// # Errors
    /// What is no secret.
    pub fn of_text(bytes: &[u8], json: bool) -> Result<Self, NoSecret> {
        let text = std::str::from_utf8(bytes).map_err(|_| NoSecret::Odd)?;
        if json && text.trim_start().starts_with('{') {
            // In JSON no line break stands inside a string.
            return Self::new(text.trim().chars().map(|c| if c.is_ascii_whitespace() { ' ' } else { c }).collect());
        }
        Self::new(text.lines().next().unwrap_or_default().to_owned())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_could_not_stand_in_a_header_is_no_secret() {
        for odd in ["", "a\nb", "a\0", &"x".repeat(LARGEST + 1)] {
            assert!(Secret::new(odd.to_owned()).is_err());
        }
        assert_eq!(Secret::new("sk-x y".to_owned()).map(|s| s.reveal().to_owned()).ok().as_deref(), Some("sk-x y"));
    }

    #[test]
    fn a_file_gives_its_first_line_and_nothing_odd_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("airlock-secret-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("key"), "sk-x\nsecond\n").unwrap();
        assert_eq!(Secret::of_file(&dir.join("key"), true).map(|s| s.reveal().to_owned()).ok().as_deref(), Some("sk-x"));
        assert!(matches!(Secret::of_file(&dir.join("none"), true), Err(NoSecret::File { .. })));
        assert!(matches!(Secret::of_file(&dir, true), Err(NoSecret::File { .. })));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
