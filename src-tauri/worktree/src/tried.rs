//! The ways from hostile bytes to what is shown or written, with no repository: for whoever wants to try them.

use crate::{diff, highlight, mask, rows};
use model::diff::{ChangedFile, Class, Row};

/// Changed files, from git's `--raw -z` and `--numstat -z`; `None` for what git does not say.
pub fn listed(raw: &[u8], counts: &[u8]) -> Option<Vec<ChangedFile>> {
    let mut files = diff::read_list(raw)?;
    diff::read_counts(counts, &mut files)?;
    Some(files)
}

/// A file's rows, from git's hunks, without colours.
pub fn drawn(hunks: &[u8]) -> Vec<Row> {
    rows::drawn(hunks)
}

/// For each line of a file, the character at which each colour ends.
pub fn coloured(path: &[u8], text: &[u8]) -> Vec<Vec<(u32, Class)>> {
    highlight::coloured(path, text)
}

/// A settings file with placeholders, as a task finds it.
pub fn masked(settings: &[u8]) -> Vec<u8> {
    mask::placeholders(settings)
}
