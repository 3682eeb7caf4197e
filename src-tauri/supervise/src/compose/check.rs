//! What is granted can be kept: hides and narrower places that a run could lift refuse the start.

use super::Grants;
use crate::real::real;
use model::run::RunSpec;
use std::path::{Path, PathBuf};

/// What is granted can't be kept as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` names {}: {why}", place.display())]
pub struct Conflict {
    /// The key of the policy, as in `files.hide`.
    pub key: &'static str,
    /// The place.
    pub place: PathBuf,
    /// What would happen, and what to do.
    pub why: String,
}

/// Refuses what can't be kept.
///
/// What is mounted can't be moved by the jail, but every directory above it inside a writable place can: after
/// `mv data/a data/b` the next run finds nothing to close at `data/a/key`, or something planted there, and what was hidden
/// lies open in `data/b`. So whatever is narrower than the writable place around it must lie directly in that place.
pub(super) fn check(spec: &RunSpec, grants: &Grants) -> Result<(), Conflict> {
    let conflict = |key, place: &Path, why: String| Err(Conflict { key, place: place.to_owned(), why });
    for hidden in &grants.hide {
        if hidden.starts_with(&spec.workspace) {
            let why = "it lies in the repository, whose history the task has and which shows it too, hidden or not; ignored files \
                 of the working copy are not in the workspace in the first place. Take it out of the policy";
            return conflict("files.hide", hidden, why.into());
        }
        if spec.workspace.starts_with(hidden) && !hidden.starts_with(&spec.home) {
            let why = "it holds the repository of the task. Name what is to be hidden in it";
            return conflict("files.hide", hidden, why.into());
        }
        if spec.home.starts_with(hidden) {
            return conflict("files.hide", hidden, "it holds the home, and a jail has its own. Name places in it".into());
        }
    }
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime];
    let granted: Vec<(&Path, PathBuf)> =
        grants.read.iter().chain(&grants.write).chain(&spec.tools).filter_map(|g| Some((g.as_path(), real(g)?))).collect();
    for hidden in grants.hide.iter().chain(own) {
        let Some(place) = real(hidden) else { continue };
        for (grant, shown) in &granted {
            // Shown by a symlink's name and hidden by the real one, or the other way round, it would be in sight.
            let inside = place.strip_prefix(shown);
            if inside.is_ok() && inside != hidden.strip_prefix(grant) {
                let why = format!(
                    "it is {}, which {} shows by another name, through a symlink. Name both by their real path",
                    place.display(),
                    grant.display()
                );
                return conflict("files.hide", hidden, why);
            }
        }
    }
    let narrower = grants.hide.iter().map(|p| ("files.hide", p));
    let narrower = narrower.chain(grants.read.iter().map(|p| ("files.read", p)));
    let narrower = narrower.chain(own.into_iter().chain([&spec.workspace]).map(|p| ("files.write", p)));
    for (key, place) in narrower {
        if let Some(write) = grants.write.iter().find(|w| place.starts_with(w) && place.parent() != Some(w) && place != *w) {
            let why = format!(
                "it lies deeper in {}, which may be written: a run could move a directory above it, and the next one would find \
                 it open under another name. Only what lies directly in a writable place can be kept from it; write less, or \
                 name the place just below",
                write.display()
            );
            return conflict(key, place, why);
        }
    }
    Ok(())
}
