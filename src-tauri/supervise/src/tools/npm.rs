//! Where npm installs programs for this person.

use std::path::{Path, PathBuf};

/// The prefix that the person's npm configuration names.
pub(crate) fn prefix(home: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<PathBuf> {
    let text = read(&home.join(".npmrc"))?;
    let value = text.lines().rev().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "prefix").then(|| value.trim().trim_matches(['"', '\'']))
    })?;
    let below = ["~/", "${HOME}/", "$HOME/"].iter().find_map(|h| value.strip_prefix(h));
    Some(below.map_or_else(|| PathBuf::from(value), |below| home.join(below)))
}
