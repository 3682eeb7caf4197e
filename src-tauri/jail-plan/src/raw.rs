//! Bytes of a path, an argument or a variable: Linux asks for no encoding, so neither does a plan.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Bytes. In JSON and on screen: printable ASCII as it is, a backslash as `\\`, every other byte as `\xNN`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Raw(Vec<u8>);

impl Raw {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let mut out = Vec::with_capacity(text.len());
        while let Some(b) = bytes.next() {
            out.push(match b {
                b'\\' => match bytes.next()? {
                    b'\\' => b'\\',
                    b'x' => {
                        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
                        digit(bytes.next()?)? << 4 | digit(bytes.next()?)?
                    }
                    _ => return None,
                },
                b' '..=b'~' => b,
                _ => return None,
            });
        }
        Some(Self(out))
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &b in &self.0 {
            match b {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(b))?,
                _ => write!(f, "\\x{b:02x}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<&[u8]> for Raw {
    fn from(b: &[u8]) -> Self {
        Self(b.to_vec())
    }
}

impl From<Vec<u8>> for Raw {
    fn from(b: Vec<u8>) -> Self {
        Self(b)
    }
}

impl From<&str> for Raw {
    fn from(s: &str) -> Self {
        Self(s.as_bytes().to_vec())
    }
}

impl From<String> for Raw {
    fn from(s: String) -> Self {
        Self(s.into_bytes())
    }
}

impl From<&Path> for Raw {
    fn from(p: &Path) -> Self {
        Self(p.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for Raw {
    fn from(p: PathBuf) -> Self {
        Self(p.into_os_string().into_vec())
    }
}

impl From<OsString> for Raw {
    fn from(s: OsString) -> Self {
        Self(s.into_vec())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is not an escaped byte string")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_byte_survives_a_plan() {
        let all: Vec<u8> = (0..=255).collect();
        let json = serde_json::to_string(&Raw::from(all.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Raw>(&json).unwrap().as_bytes(), all, "what is written must be read back: {json}");
    }

    #[test]
    fn a_text_that_is_no_escaped_string_is_refused() {
        for bad in [r#""\\y""#, r#""\\x4""#, r#""\\xzz""#, r#""é""#, r#""\\""#] {
            assert!(serde_json::from_str::<Raw>(bad).is_err(), "{bad} must not be guessed at");
        }
    }
}
