//! `key = value` by lines, with sections.

/// One line with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The section above it; empty before the first.
    pub(super) section: &'a str,
    pub(super) key: &'a str,
    /// Continued lines joined by a space.
    pub(super) value: String,
}

/// Reads lines; one that begins with white space continues the one before where `continues` says so.
pub(super) fn lines(text: &str, continues: bool) -> Vec<Line<'_>> {
    let mut out: Vec<Line<'_>> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if continues && line.starts_with([' ', '\t']) {
            if let Some(last) = out.last_mut().filter(|l| l.section == section) {
                last.value.push(' ');
                last.value.push_str(trimmed);
            }
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((key, value)) =
            trimmed.split_once(['=', ':']).filter(|_| continues).or_else(|| trimmed.split_once('='))
        {
            out.push(Line { section, key: key.trim(), value: unquoted(value.trim()).to_owned() });
        }
    }
    out
}

/// Without a pair of quotes around it.
pub(super) fn unquoted(text: &str) -> &str {
    ['"', '\''].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q)).unwrap_or(text)
}
