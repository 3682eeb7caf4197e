//! Ids as distinct types: mixing them up does not compile.
//!
//! ```compile_fail
//! use model::id::{RunId, TaskId};
//! let task = TaskId::parse("k3f9w2ab").unwrap();
//! let run: RunId = task;
//! ```
//! ```compile_fail
//! use model::id::{CommitId, TreeId};
//! let tree = TreeId::parse("4b825dc642cb6eb9a060e54bf8d69288fbee4904").unwrap();
//! let commit: CommitId = tree;
//! ```

use serde::{Deserialize, Serialize};
use std::fmt;

/// A text that is no id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {kind} id: expected {expected}")]
pub struct BadId {
    kind: &'static str,
    expected: &'static str,
    text: String,
}

/// Alphabet of random ids: lower case, no look-alikes, safe in file names, host names and refs.
pub const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $expected:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses the text form; anything else is refused.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                let ok: fn(&str) -> bool = $ok;
                if ok(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(BadId { kind: $kind, expected: $expected, text: text.chars().take(80).collect() })
                }
            }

            /// The text form.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        id!($(#[$doc])* $name, $kind, "8 characters of a-z and 2-9", |t| t.len() == 8 && t.bytes().all(|b| ALPHABET.contains(&b)));

        impl $name {
            /// Makes an id from eight random bytes.
            pub fn from_random(bytes: [u8; 8]) -> Self {
                Self(bytes.iter().map(|b| char::from(ALPHABET[usize::from(b % 32)])).collect())
            }
        }
    };
}

random_id!(/** One delegation. */ TaskId, "task");
random_id!(/** One launch of a command in a jail. */ RunId, "run");
random_id!(/** One repository that the person added. */ RepoId, "repository");
random_id!(/** One action that waits for the person. */ AskId, "ask");
random_id!(/** One answer that permits something. */ GrantId, "grant");
random_id!(/** One exit (apply or its undo) in the journal. */ ExitId, "exit");

fn object_id(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

id!(/** A git tree. */ TreeId, "tree", "40 or 64 hexadecimal digits", object_id);
id!(/** A git commit. */ CommitId, "commit", "40 or 64 hexadecimal digits", object_id);
id!(/** A git blob. */ BlobId, "blob", "40 or 64 hexadecimal digits", object_id);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_could_be_a_path_or_an_option() {
        for bad in ["", "../../etc", "--help!!", "ABCDEFGH", "abcdefg", "abcdefg\n", "abcdefgl1"] {
            assert!(TaskId::parse(bad).is_err(), "{bad:?} must not be a task id");
        }
        assert!(TreeId::parse(&"g".repeat(40)).is_err(), "an object id is hexadecimal");
    }

    #[test]
    fn random_ids_parse_back() {
        let id = TaskId::from_random([0, 1, 31, 32, 63, 128, 254, 255]);
        assert_eq!(TaskId::parse(id.as_str()), Ok(id.clone()), "what is made must be readable");
    }
}
