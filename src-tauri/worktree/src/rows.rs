//! One file's difference as rows ready to be drawn.

use crate::diff::{contents, sizes};
use crate::git::GitError;
use crate::highlight::{self, Colours};
use crate::store::TaskGit;
use model::diff::{ChangedFile, Class, FileDiff, Row, RowKind, Span};
use model::id::BlobId;
use model::path::hides;
use std::sync::Arc;

/// Larger files have no rows.
const SIZE: u64 = 8 << 20;
/// More rows are not sent.
const ROWS: usize = 150_000;
/// A line is cut after so many characters.
const CUT: usize = 4_000;
/// Lines of more words are not compared word by word.
const WORDS: usize = 300;

/// The rows of one changed file.
pub(crate) fn file_diff(task: &TaskGit, file: &ChangedFile, context: u32) -> Result<FileDiff, GitError> {
    let link = |mode: u32| mode == 0o160_000;
    let mut diff = FileDiff { file: file.clone(), rows: Vec::new(), sizes: (0, 0), note: None };
    if link(file.old_mode) || link(file.new_mode) {
        let name = |id: &Option<BlobId>| id.as_ref().map_or("nothing".to_owned(), |i| i.as_str().chars().take(12).collect());
        diff.note = Some(format!("submodule: {} → {}", name(&file.old_id), name(&file.new_id)));
        return Ok(diff);
    }
    let ids: Vec<&BlobId> = file.old_id.iter().chain(&file.new_id).collect();
    let known = sizes(task, &ids)?;
    let size = |id: &Option<BlobId>| known.iter().find(|(k, _)| Some(*k) == id.as_ref()).map_or(0, |(_, s)| *s);
    diff.sizes = (size(&file.old_id), size(&file.new_id));
    if file.binary {
        diff.note = Some("binary file".to_owned());
        return Ok(diff);
    }
    if diff.sizes.0 > SIZE || diff.sizes.1 > SIZE {
        diff.note = Some(format!("too large to show: {} → {} bytes", diff.sizes.0, diff.sizes.1));
        return Ok(diff);
    }
    let texts = contents(task, &ids, SIZE, 2 * SIZE)?;
    let text = |id: &Option<BlobId>| id.as_ref().and_then(|i| texts.get(i)).map_or(&b""[..], Vec::as_slice);
    let sides = Sides {
        old: side(file.old_path.as_ref().unwrap_or(&file.path).as_bytes(), file.old_id.as_ref(), text(&file.old_id)),
        new: side(file.path.as_bytes(), file.new_id.as_ref(), text(&file.new_id)),
    };
    let lines = match (&file.old_id, &file.new_id) {
        (Some(old), Some(new)) if old != new => changed(&hunks(task, old, new, context)?),
        (None, Some(_)) => whole(text(&file.new_id), RowKind::Add),
        (Some(_), None) => whole(text(&file.old_id), RowKind::Del),
        _ => Vec::new(),
    };
    if lines.len() > ROWS {
        diff.note = Some(format!("too long to show: {} rows, and {ROWS} are shown at most", lines.len()));
        return Ok(diff);
    }
    diff.rows = draw(&lines, &sides);
    Ok(diff)
}

/// The colours of both sides.
struct Sides {
    old: Arc<Colours>,
    new: Arc<Colours>,
}

fn side(path: &[u8], id: Option<&BlobId>, text: &[u8]) -> Arc<Colours> {
    id.map_or_else(Arc::default, |id| highlight::colours(path, id, text))
}

/// A row before it is drawn.
struct Line {
    kind: RowKind,
    old: Option<u32>,
    new: Option<u32>,
    hunk: u32,
    pair: Option<usize>,
    text: Vec<u8>,
}

/// Two blobs compared by git, so that hunks are those of `airlock diff`.
fn hunks(task: &TaskGit, old: &BlobId, new: &BlobId, context: u32) -> Result<Vec<u8>, GitError> {
    task.git("compare two files")
        .args(["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--text", "--inter-hunk-context=0"])
        .arg(format!("--unified={context}"))
        .args([old.as_str(), new.as_str(), "--"])
        .ok()
}

/// All of a file added or removed.
fn whole(text: &[u8], kind: RowKind) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut number = 0;
    for line in text.split_inclusive(|b| *b == b'\n') {
        number += 1;
        let (old, new) = if kind == RowKind::Add { (None, Some(number)) } else { (Some(number), None) };
        lines.push(Line { kind, old, new, hunk: 0, pair: None, text: line.strip_suffix(b"\n").unwrap_or(line).to_vec() });
    }
    if !text.is_empty() {
        let range = if kind == RowKind::Add { format!("@@ -0,0 +1,{number} @@") } else { format!("@@ -1,{number} +0,0 @@") };
        lines.insert(0, Line { kind: RowKind::Hunk, old: None, new: None, hunk: 0, pair: None, text: range.into_bytes() });
        if text.last() != Some(&b'\n') {
            lines.push(no_newline(0));
        }
    }
    lines
}

fn no_newline(hunk: u32) -> Line {
    Line { kind: RowKind::Note, old: None, new: None, hunk, pair: None, text: b"No newline at end of file".to_vec() }
}

/// Reads git's hunks.
fn changed(text: &[u8]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut old, mut new, mut hunk) = (0, 0, None);
    // What is left of the hunk, so that a line of content never passes for a header.
    let (mut old_left, mut new_left) = (0, 0);
    for line in text.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let number = hunk.unwrap_or(0);
        let mut push = |kind, old, new, text: &[u8]| {
            lines.push(Line { kind, old, new, hunk: number, pair: None, text: text.to_vec() });
        };
        match line.split_first() {
            Some((b' ', rest)) if old_left > 0 && new_left > 0 => {
                push(RowKind::Context, Some(old), Some(new), rest);
                (old, new, old_left, new_left) = (old + 1, new + 1, old_left - 1, new_left - 1);
            }
            Some((b'-', rest)) if old_left > 0 => {
                push(RowKind::Del, Some(old), None, rest);
                (old, old_left) = (old + 1, old_left - 1);
            }
            Some((b'+', rest)) if new_left > 0 => {
                push(RowKind::Add, None, Some(new), rest);
                (new, new_left) = (new + 1, new_left - 1);
            }
            Some((b'\\', _)) if hunk.is_some() => lines.push(no_newline(number)),
            _ => {
                if let Some((o, n)) = ranges(line) {
                    hunk = Some(hunk.map_or(0, |h: u32| h + 1));
                    (old, old_left, new, new_left) = (o.0, o.1, n.0, n.1);
                    lines.push(Line {
                        kind: RowKind::Hunk,
                        old: None,
                        new: None,
                        hunk: hunk.unwrap_or(0),
                        pair: None,
                        text: line.to_vec(),
                    });
                }
            }
        }
    }
    pair(&mut lines);
    lines
}

/// Git's hunks as rows without colours.
pub(crate) fn drawn(hunks: &[u8]) -> Vec<Row> {
    draw(&changed(hunks), &Sides { old: Arc::default(), new: Arc::default() })
}

/// First line and count of both sides of `@@ -a,b +c,d @@`; lines count from 1, and only a side without any begins at 0.
fn ranges(line: &[u8]) -> Option<((u32, u32), (u32, u32))> {
    let text = String::from_utf8_lossy(line.strip_prefix(b"@@ -")?);
    let (both, _) = text.split_once(" @@")?;
    let (old, new) = both.split_once(" +")?;
    let range = |t: &str| -> Option<(u32, u32)> {
        let (first, count) = t.split_once(',').unwrap_or((t, "1"));
        let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
        ((first > 0 || count == 0) && first.checked_add(count).is_some()).then_some((first, count))
    };
    Some((range(old)?, range(new)?))
}

/// In each block of removed and added lines, the first stands beside the first.
fn pair(lines: &mut [Line]) {
    let mut at = 0;
    while at < lines.len() {
        let count = |from: usize, kind| lines[from..].iter().take_while(|l| l.kind == kind || l.kind == RowKind::Note).count();
        if lines[at].kind != RowKind::Del {
            at += 1;
            continue;
        }
        let dels = count(at, RowKind::Del);
        let adds = count(at + dels, RowKind::Add);
        let removed: Vec<usize> = (at..at + dels).filter(|i| lines[*i].kind == RowKind::Del).collect();
        let added: Vec<usize> = (at + dels..at + dels + adds).filter(|i| lines[*i].kind == RowKind::Add).collect();
        for (d, a) in removed.into_iter().zip(added) {
            lines[d].pair = Some(a);
            lines[a].pair = Some(d);
        }
        at += dels + adds;
    }
}

fn draw(lines: &[Line], sides: &Sides) -> Vec<Row> {
    lines
        .iter()
        .map(|line| {
            let colours = match line.kind {
                RowKind::Del => line.old.and_then(|n| sides.old.get(n as usize - 1)),
                RowKind::Add | RowKind::Context => line.new.and_then(|n| sides.new.get(n as usize - 1)),
                RowKind::Hunk | RowKind::Note => None,
            };
            let other = line.pair.and_then(|p| lines.get(p)).map(|l| l.text.as_slice());
            Row {
                kind: line.kind,
                old: line.old,
                new: line.new,
                hunk: line.hunk,
                pair: line.pair.and_then(|p| u32::try_from(p).ok()),
                spans: spans(&line.text, colours.map_or(&[], Vec::as_slice), other),
            }
        })
        .collect()
}

/// A line in coloured pieces. `other` is the line beside it, from which changed words are told.
fn spans(text: &[u8], colours: &[(u32, Class)], other: Option<&[u8]>) -> Vec<Span> {
    let body = text.strip_suffix(b"\r").unwrap_or(text);
    let mut words =
        other.map(|o| changed_words(body, o.strip_suffix(b"\r").unwrap_or(o))).unwrap_or_default().into_iter().peekable();
    let mut colours = colours.iter().peekable();
    let mut spans: Vec<Span> = Vec::new();
    let mut at = 0_usize;
    let mut cut = 0_usize;
    let mut put = |piece: &str, class: Option<Class>, characters: usize| {
        while words.peek().is_some_and(|w: &std::ops::Range<usize>| w.end <= at) {
            words.next();
        }
        while colours.peek().is_some_and(|c| c.0 as usize <= at) {
            colours.next();
        }
        let word = words.peek().is_some_and(|w| w.contains(&at));
        let class = class.unwrap_or_else(|| colours.peek().map_or(Class::Text, |c| c.1));
        at += characters;
        if at > CUT {
            cut += characters;
            return;
        }
        match spans.last_mut() {
            Some(last) if last.class == class && last.word == word => last.text.push_str(piece),
            _ => spans.push(Span { text: piece.to_owned(), class, word }),
        }
    };
    for chunk in body.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c != '\t' && hides(c) {
                let escape = if (c as u32) < 0x100 { format!("\\x{:02x}", c as u32) } else { format!("\\u{{{:x}}}", c as u32) };
                put(&escape, Some(Class::Esc), 1);
            } else {
                put(c.encode_utf8(&mut [0; 4]), None, 1);
            }
        }
        if !chunk.invalid().is_empty() {
            let escape: String = chunk.invalid().iter().map(|b| format!("\\x{b:02x}")).collect();
            put(&escape, Some(Class::Esc), 1);
        }
    }
    if cut > 0 {
        spans.push(Span { text: format!("… ({cut} more characters)"), class: Class::Esc, word: false });
    }
    // A line end is shown only where it is all that changed.
    if body.len() != text.len() && other == Some(body) {
        spans.push(Span { text: "\\r".to_owned(), class: Class::Esc, word: true });
    }
    spans
}

/// The ranges of characters of `line` that are not in `other`, where the two are alike enough for it to help.
fn changed_words(line: &[u8], other: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (line, other) = (String::from_utf8_lossy(line), String::from_utf8_lossy(other));
    let (a, b) = (split_words(&line), split_words(&other));
    if a.len() > WORDS || b.len() > WORDS || line == other {
        return Vec::new();
    }
    let ops = similar::capture_diff_slices(similar::Algorithm::Myers, &b, &a);
    let same: usize =
        ops.iter().filter(|o| o.tag() == similar::DiffTag::Equal).flat_map(|o| o.new_range()).map(|i| a[i].trim().len()).sum();
    if same * 3 < line.trim().len().max(other.trim().len()) {
        return Vec::new();
    }
    let mut starts = Vec::with_capacity(a.len() + 1);
    let mut at = 0;
    for word in &a {
        starts.push(at);
        at += word.chars().count();
    }
    starts.push(at);
    ops.iter()
        .filter(|o| o.tag() != similar::DiffTag::Equal)
        .map(|o| starts[o.new_range().start]..starts[o.new_range().end])
        .filter(|r| !r.is_empty())
        .collect()
}

/// Words, runs of spaces, and every other character by itself.
fn split_words(line: &str) -> Vec<&str> {
    let kind = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            1
        } else if c.is_whitespace() {
            2
        } else {
            0
        }
    };
    let mut words = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in line.char_indices() {
        if at > 0 && (last != Some(kind(c)) || kind(c) == 0) {
            words.push(&line[start..at]);
            start = at;
        }
        last = Some(kind(c));
    }
    if start < line.len() {
        words.push(&line[start..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spans: &[Span]) -> String {
        spans.iter().map(|s| s.text.as_str()).collect()
    }

    #[test]
    fn what_hides_is_written_out() {
        let s = spans("a\u{202e}b\tc\x1b".as_bytes(), &[], None);
        assert_eq!(text(&s), "a\\u{202e}b\tc\\x1b");
        assert!(s.iter().filter(|p| p.class == Class::Esc).count() == 2, "escapes are pieces of their own: {s:?}");
        assert_eq!(text(&spans(b"x\xff\xfey", &[], None)), "x\\xff\\xfey", "bytes that are no text are written out");
    }

    #[test]
    fn changed_words_are_marked() {
        let s = spans(b"let total = price * 2;", &[], Some(b"let total = price * 3;"));
        let marked: String = s.iter().filter(|p| p.word).map(|p| p.text.as_str()).collect();
        assert_eq!(marked, "2", "only the changed word is marked: {s:?}");
        assert!(spans(b"aaa bbb", &[], Some(b"ccc ddd")).iter().all(|p| !p.word), "lines that share nothing have no marks");
    }

    #[test]
    fn a_line_end_is_shown_where_it_is_all_that_changed() {
        assert_eq!(text(&spans(b"a\r", &[], Some(b"a"))), "a\\r");
        assert_eq!(text(&spans(b"a\r", &[], Some(b"b\r"))), "a");
    }

    #[test]
    fn content_that_looks_like_a_header_is_content() {
        let lines = changed(b"diff --git a b\n--- a\n+++ b\n@@ -1,2 +1,2 @@ fn x\n context\n--- old\n+++ new\n");
        let kinds: Vec<RowKind> = lines.iter().map(|l| l.kind).collect();
        assert_eq!(kinds, [RowKind::Hunk, RowKind::Context, RowKind::Del, RowKind::Add]);
        assert_eq!((lines[2].pair, lines[3].pair), (Some(3), Some(2)), "a removed line stands beside the added one");
    }
}
