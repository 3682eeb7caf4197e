//! What is wrong with a file, where, and what to do.

use std::fmt;

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do; empty where the message says it all.
    pub hint: String,
}

impl fmt::Display for Problem {
    /// `12:5: message (hint)`, without the file's name, which the caller knows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " ({})", self.hint) }
    }
}

/// Line and column of a byte offset, both from 1.
pub(crate) fn position(text: &str, offset: usize) -> (u32, u32) {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// Text from a file as it may stand in a message: nothing that hides or reorders, and not too long.
pub(crate) fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", model::path::RawPath::from(short.as_str()))
}
