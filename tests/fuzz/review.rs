//! What a reviewer is shown of a candidate: its list, its rows, its colours.

use model::diff::RowKind;
use model::path::hides;
use worktree::tried;

/// The list of changed files with their counts, in git's words; the names in it are the candidate's.
pub(crate) fn changes(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let Some((raw, counts)) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))) else { return };
    if let Some(files) = tried::listed(raw, counts) {
        assert!(files.len() <= raw.split(|b| *b == 0).count() / 2, "each file was named");
        let named = |path: &[u8]| raw.split(|b| *b == 0).any(|part| part == path);
        for file in files {
            assert!(named(file.path.as_bytes()) && file.old_path.is_none_or(|old| named(old.as_bytes())), "by this name");
        }
    }
}

/// Hunks, as git writes them around whatever the files hold.
pub(crate) fn rows(bytes: &[u8]) {
    let rows = tried::drawn(bytes);
    for (number, row) in rows.iter().enumerate() {
        let mut shown = row.spans.iter().flat_map(|span| span.text.chars());
        assert!(shown.all(|c| c == '\t' || !hides(c)), "what is drawn is seen: {row:?}");
        assert!(matches!(row.kind, RowKind::Del | RowKind::Add) || row.pair.is_none(), "only changes have a counterpart");
        if let Some(pair) = row.pair {
            let other = rows.get(pair as usize).expect("a counterpart is a row");
            assert_eq!(other.pair.and_then(|n| usize::try_from(n).ok()), Some(number), "and has this one for its own");
        }
    }
}

/// A file of some kind, coloured.
pub(crate) fn colours(bytes: &[u8]) {
    const KINDS: [&str; 16] =
        ["rs", "ts", "svelte", "py", "sh", "c", "md", "html", "yaml", "toml", "json", "css", "go", "rb", "sql", "tex"];
    let Some((kind, text)) = bytes.split_first() else { return };
    let path = format!("a.{}", KINDS[usize::from(*kind) % KINDS.len()]);
    let lines = tried::coloured(path.as_bytes(), text);
    for (line, ranges) in text.split_inclusive(|b| *b == b'\n').zip(&lines) {
        let length = String::from_utf8_lossy(line).chars().count();
        assert!(ranges.is_sorted_by(|a, b| a.0 < b.0), "ranges are in order: {ranges:?}");
        assert!(ranges.last().is_none_or(|last| last.0 as usize <= length), "and in the line: {ranges:?} of {length}");
    }
    assert!(lines.len() <= text.split_inclusive(|b| *b == b'\n').count(), "each in its line");
}
