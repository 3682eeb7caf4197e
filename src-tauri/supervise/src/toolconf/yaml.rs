//! As much of YAML as settings files of tools use: keys, plain values, lists of plain values. What is more than that (blocks of
//! text, anchors, tags, flow collections) has no value here.

/// Each plain value with the keys above it, the list's key for what stands in a list.
pub(super) fn values(text: &str) -> Vec<(Vec<&str>, &str)> {
    let mut out = Vec::new();
    // Indentation and key of what is open.
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        let indent = line.len() - line.trim_start().len();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---" {
            continue;
        }
        // Below a key with `|` or `>` everything deeper is one text.
        if block.is_some_and(|at| indent > at) {
            continue;
        }
        block = None;
        if let Some(item) = trimmed.strip_prefix("- ") {
            open.retain(|(at, _)| *at <= indent);
            out.push((open.iter().map(|(_, key)| *key).collect(), plain(item)));
            continue;
        }
        open.retain(|(at, _)| *at < indent);
        let Some((key, value)) = key_of(trimmed) else { continue };
        if value.starts_with(['|', '>']) {
            block = Some(indent);
            continue;
        }
        let path = open.iter().map(|(_, key)| *key).chain([key]).collect();
        open.push((indent, key));
        if !value.is_empty() {
            out.push((path, plain(value)));
        }
    }
    out
}

/// A line's key, which may begin with `:` as Ruby's do, or stand in quotes, and what follows it.
fn key_of(line: &str) -> Option<(&str, &str)> {
    if let Some(quote) = line.chars().next().filter(|c| ['"', '\''].contains(c)) {
        let (key, rest) = line[1..].split_once(quote)?;
        return Some((key, rest.trim_start().strip_prefix(':')?.trim()));
    }
    let at =
        line.char_indices().skip(1).find(|(i, c)| *c == ':' && line[i + 1..].chars().next().is_none_or(char::is_whitespace))?.0;
    Some((line[..at].trim(), line[at + 1..].trim()))
}

fn plain(value: &str) -> &str {
    let value = value.trim();
    let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.split_once(*q)).map(|(inside, _)| inside);
    // A comment begins with white space and `#`.
    quoted.unwrap_or_else(|| value.split(" #").next().unwrap_or_default().trim())
}
