//! Text from a jail, made harmless for a terminal.

use model::path::hides;

/// Writes out every character that hides or acts.
pub(crate) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hides(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// The same for many lines of bytes: line ends and tabs stay.
pub(crate) fn safe_lines(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if hides(c) && c != '\n' && c != '\t' {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// Local time of day is the reader's business; this is UTC, to the second, and the same everywhere.
pub(crate) fn time(millis: u64) -> String {
    let day = millis / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", day / 3600, day / 60 % 60, day % 60, millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_reaches_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\u{202e}c\n"), "a\\u{1b}[2Jb\\u{202e}c\\u{a}");
        assert_eq!(safe_lines(b"+\tx\x1b]0;t\x07\n\xff"), "+\tx\\u{1b}]0;t\\u{7}\n\\xff");
    }
}
