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

/// A moment of any day, UTC, to the minute.
pub(crate) fn moment(millis: u64) -> String {
    // Days to a date of the civil calendar, by eras of 400 years from 1 March of the year 0.
    let days = millis / 86_400_000 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let minute = millis / 60_000 % 1440;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

/// `1 try`, `2 tries`.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_with_its_day() {
        for (millis, said) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00 UTC"),
            (1_772_323_200_000, "2026-03-01 00:00 UTC"),
            (1_798_761_599_000, "2026-12-31 23:59 UTC"),
        ] {
            assert_eq!(moment(millis), said);
        }
    }

    #[test]
    fn nothing_that_acts_reaches_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\u{202e}c\n"), "a\\u{1b}[2Jb\\u{202e}c\\u{a}");
        assert_eq!(safe_lines(b"+\tx\x1b]0;t\x07\n\xff"), "+\tx\\u{1b}]0;t\\u{7}\n\\xff");
    }
}
