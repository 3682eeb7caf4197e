//! Where npm installs programs for this person.

use std::path::{Path, PathBuf};

/// The prefix that the person's npm configuration names.
pub(super) fn prefix(home: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(home.join(".npmrc")).ok()?;
    let value = text.lines().rev().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "prefix").then(|| value.trim().trim_matches(['"', '\'']))
    })?;
    let below = ["~/", "${HOME}/", "$HOME/"].iter().find_map(|h| value.strip_prefix(h));
    Some(below.map_or_else(|| PathBuf::from(value), |below| home.join(below)))
}
