//! Names from a workspace: bytes, never assumed to be text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A path or name as bytes. In JSON and on screen it is text in which a backslash is `\\` and every byte that is
/// not UTF-8, and every control or direction-changing character, is `\xNN`; the text form parses back to the same bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RawPath(pub Vec<u8>);

/// Characters that hide or reorder what a person reads.
pub fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

impl RawPath {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the escaped text form.
    pub fn from_text(text: &str) -> Self {
        let b = text.as_bytes();
        let mut out = Vec::with_capacity(b.len());
        let mut i = 0;
        while i < b.len() {
            if b[i] == b'\\' {
                if b.get(i + 1) == Some(&b'\\') {
                    out.push(b'\\');
                    i += 2;
                    continue;
                }
                let hex = b.get(i + 2..i + 4).filter(|_| b.get(i + 1) == Some(&b'x'));
                if let Some(v) = hex.and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok()) {
                    out.push(v);
                    i += 4;
                    continue;
                }
            }
            out.push(b[i]);
            i += 1;
        }
        Self(out)
    }
}

impl From<&[u8]> for RawPath {
    fn from(b: &[u8]) -> Self {
        Self(b.to_vec())
    }
}

impl From<&str> for RawPath {
    fn from(s: &str) -> Self {
        Self(s.as_bytes().to_vec())
    }
}

impl fmt::Display for RawPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '\\' {
                    f.write_str("\\\\")?;
                } else if hides(c) {
                    let mut buf = [0; 4];
                    for b in c.encode_utf8(&mut buf).bytes() {
                        write!(f, "\\x{b:02x}")?;
                    }
                } else {
                    write!(f, "{c}")?;
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RawPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self::from_text(&String::deserialize(d)?))
    }
}

/// Paths as escaped text, so that names that are not UTF-8 survive JSON: `#[serde(with = "model::path::text")]`.
pub mod text {
    use super::RawPath;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    /// Writes one.
    pub fn serialize<S: Serializer>(path: &Path, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&RawPath::from(path.as_os_str().as_bytes()))
    }

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PathBuf, D::Error> {
        Ok(PathBuf::from(std::ffi::OsString::from_vec(RawPath::deserialize(d)?.0)))
    }
}

/// The same for lists.
pub mod texts {
    use super::RawPath;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::PathBuf;

    /// Writes them.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(paths.iter().map(|p| RawPath::from(p.as_os_str().as_bytes())))
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<RawPath>::deserialize(d)?;
        Ok(paths.into_iter().map(|p| PathBuf::from(std::ffi::OsString::from_vec(p.0))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_survives_its_text_form() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&b"a\\x41\n"[..], &all, b"\xff\xfe", "no\u{202e}dm.set".as_bytes(), b"\\\\"] {
            let p = RawPath::from(bytes);
            assert_eq!(RawPath::from_text(&p.to_string()), p, "the text form of {p} must parse back");
        }
    }

    #[test]
    fn text_that_hides_is_written_out() {
        assert_eq!(RawPath::from("no\u{202e}dm").to_string(), "no\\xe2\\x80\\xaedm");
        assert_eq!(RawPath::from("a\x1b[2J\n").to_string(), "a\\x1b[2J\\x0a");
    }
}
