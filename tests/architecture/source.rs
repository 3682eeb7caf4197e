//! The files under check, and Rust source with everything but code blanked out.

use std::path::Path;
use std::process::Command;

/// Files by path from the top of the checkout. Checks take one, so that each can be shown a bad sample.
pub(crate) struct Tree {
    files: Vec<(String, String)>,
}

impl Tree {
    /// What git knows or would add; files that are no UTF-8 text are listed with an empty text.
    pub(crate) fn checkout() -> Self {
        let top = testkit::program::checkout();
        let list = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&top)
            .output()
            .expect("git lists the checkout");
        assert!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
        let mut names: Vec<_> =
            String::from_utf8(list.stdout).expect("file names are UTF-8").split('\0').map(str::to_owned).collect();
        names.sort();
        names.dedup();
        let files = names.into_iter().filter(|n| !n.is_empty() && top.join(n).is_file()).map(|n| {
            let text = std::fs::read(top.join(&n)).ok().and_then(|b| String::from_utf8(b).ok()).unwrap_or_default();
            (n, text)
        });
        Self { files: files.collect() }
    }

    /// A sample in memory.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect() }
    }

    /// Every file: path and text.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(n, t)| (n.as_str(), t.as_str()))
    }

    /// The files with one of these extensions.
    pub(crate) fn with(&self, extensions: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.all()
            .filter(move |(n, _)| Path::new(n).extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e)))
    }

    /// Rust files whose path starts with one of `below`; all where it is empty.
    pub(crate) fn rust(&self, below: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.with(&["rs"]).filter(move |(n, _)| below.is_empty() || below.iter().any(|b| n.starts_with(b)))
    }
}

/// `text` with comments, strings and characters turned to blanks; lines keep their numbers.
pub(crate) fn code(text: &str) -> String {
    let b = text.as_bytes();
    let mut out = String::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let end = match b[i] {
            b'/' if b.get(i + 1) == Some(&b'/') => i + b[i..].iter().position(|c| *c == b'\n').unwrap_or(b.len() - i),
            b'/' if b.get(i + 1) == Some(&b'*') => end_of_comment(b, i),
            b'"' => end_of_string(b, i),
            b'r' | b'b' | b'c' if !inside_word(b, i) => match prefixed_string(b, i) {
                Some(end) => end,
                None => i,
            },
            b'\'' => end_of_char(b, i).unwrap_or(i),
            _ => i,
        };
        if end == i {
            // Bytes of a longer character are only ever in names, and no check looks for one.
            out.push(if b[i].is_ascii() { char::from(b[i]) } else { '_' });
            i += 1;
        } else {
            out.extend(b[i..end].iter().map(|c| if *c == b'\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

fn inside_word(b: &[u8], i: usize) -> bool {
    i > 0 && (b[i - 1].is_ascii_alphanumeric() || b[i - 1] == b'_')
}

fn end_of_comment(b: &[u8], start: usize) -> usize {
    let (mut i, mut depth) = (start + 2, 1);
    while i < b.len() && depth > 0 {
        match (b[i], b.get(i + 1)) {
            (b'/', Some(b'*')) => (depth, i) = (depth + 1, i + 2),
            (b'*', Some(b'/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    i
}

fn end_of_string(b: &[u8], start: usize) -> usize {
    let mut i = start + 1;
    while i < b.len() && b[i] != b'"' {
        i += if b[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// End of `b"…"`, `c"…"`, `r"…"`, `r#"…"#`, `br#"…"#` at `start`; none where it is a name.
fn prefixed_string(b: &[u8], start: usize) -> Option<usize> {
    let letters = b[start..].iter().take(2).take_while(|c| matches!(c, b'r' | b'b' | b'c')).count();
    let raw = b[start..start + letters].contains(&b'r');
    let hashes = b[start + letters..].iter().take_while(|c| **c == b'#').count();
    let quote = start + letters + hashes;
    if b.get(quote) != Some(&b'"') || (hashes > 0 && !raw) {
        return None;
    }
    if !raw {
        return Some(end_of_string(b, quote));
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let end = b[quote + 1..].windows(close.len()).position(|w| w == close)?;
    Some(quote + 1 + end + close.len())
}

/// End of a character literal at `start`; none where it is a lifetime.
fn end_of_char(b: &[u8], start: usize) -> Option<usize> {
    if b.get(start + 1) == Some(&b'\\') {
        // An escape may be a quote itself: the closing one is looked for behind it.
        return b.get(start + 3..)?.iter().position(|c| *c == b'\'').map(|n| start + 3 + n + 1);
    }
    (2..=5).find(|n| b.get(start + n) == Some(&b'\'')).filter(|n| *n == 2 || !b[start + 1].is_ascii()).map(|n| start + n + 1)
}

/// `code` without the modules that only tests compile: `#[cfg(test)]` and the item behind it, turned to blanks.
pub(crate) fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let b = out.as_bytes();
        let (mut i, mut depth) = (start, 0_u32);
        while i < b.len() {
            match b[i] {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            i += 1;
            if depth == 0 && (b[i - 1] == b'}' || b[i - 1] == b';') {
                break;
            }
        }
        let blank: String = out[start..i].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..i, &blank);
    }
    out
}

/// A file that only tests compile.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

/// Lines (from 1) of `code` where `word` stands as a whole word.
pub(crate) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let hit = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
            (!word.starts_with(part) || !before.is_some_and(part)) && (!word.ends_with(part) || !after.is_some_and(part))
        })
    };
    code.lines().enumerate().filter(|(_, l)| hit(l)).map(|(n, _)| n + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let cases = [
            ("unsafe {}", "unsafe {}"),
            ("// unsafe\nx", "         \nx"),
            ("/* a /* unsafe */ b */x", "                      x"),
            ("f(\"un\\\"safe\", 'a', '\\'', b\"x\")", "f(          ,    ,     ,     )"),
            ("r#\"un\"safe\"#;y", "            ;y"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("let bar = br; r#type", "let bar = br; r#type"),
        ];
        for (text, expected) in cases {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn modules_of_tests_are_taken_out() {
        let left = without_tests("a();\n#[cfg(test)]\nmod tests { fn f() { b(); } }\nc();\n#[cfg(test)] mod more;\nd();");
        assert!(left.contains("a();") && left.contains("c();") && left.contains("d();"), "{left}");
        assert!(!left.contains("b()") && !left.contains("more"), "{left}");
        assert_eq!(left.lines().count(), 6, "lines keep their numbers");
    }

    #[test]
    fn a_word_is_whole() {
        assert_eq!(lines_with("unsafe_code\nunsafe {\n", "unsafe"), vec![2]);
        assert_eq!(lines_with("a env::var(b)\nenv::vars()", "env::var("), vec![1]);
    }
}
