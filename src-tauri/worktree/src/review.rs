//! The tree that results from a review.

use crate::candidate::base_tree;
use crate::diff::{DiffError, listed};
use crate::git::GitError;
use crate::objects::{Objects, oid};
use crate::store::TaskGit;
use git2::{Index, IndexEntry, IndexTime, Oid};
use model::diff::ChangedFile;
use model::id::TreeId;
use model::path::RawPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DOING: &str = "put the accepted files together";

/// The base's tree with the accepted files of the candidate put in; written to the task's objects. A path is that of
/// [`crate::changes`] (the new one for a rename, which takes the old one away too).
pub fn result_tree(task: &TaskGit, candidate: &TreeId, accepted: &[RawPath]) -> Result<TreeId, DiffError> {
    let base = base_tree(task)?;
    let all = listed(task, &base, candidate)?;
    let files: Vec<&ChangedFile> = accepted
        .iter()
        .map(|path| all.iter().find(|f| f.path == *path).ok_or_else(|| DiffError::NoSuchFile(path.clone())))
        .collect::<Result<_, _>>()?;
    let failed = |source| GitError::Objects { doing: DOING, source };
    let objects = Objects::open(task, DOING)?;
    let mut index = objects.index(&base)?;
    // Removals come first, so that a directory can take the place of a file.
    for file in &files {
        let gone = file.old_path.as_ref().or_else(|| (file.new_mode == 0).then_some(&file.path));
        if let Some(path) = gone {
            index.remove(Path::new(OsStr::from_bytes(path.as_bytes())), 0).map_err(failed)?;
        }
    }
    for file in &files {
        let Some(id) = &file.new_id else { continue };
        if let Some(other) = in_the_way(&index, file.path.as_bytes()) {
            return Err(DiffError::Entangled(format!("{} and {}", file.path, RawPath::from(other.as_slice()))));
        }
        index.add(&entry(file.new_mode, oid(id.as_str()).map_err(failed)?, file.path.as_bytes())).map_err(failed)?;
    }
    Ok(objects.keep(&mut index)?)
}

/// A file of the index that is a directory of `path`, or has `path` as one; libgit2 would drop it silently.
fn in_the_way(index: &Index, path: &[u8]) -> Option<Vec<u8>> {
    // Of all that begin alike the shortest comes first.
    let first = |prefix: &[u8]| index.find_prefix(prefix).ok().and_then(|at| index.get(at)).map(|found| found.path);
    let above = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(end, _)| &path[..end]);
    above.filter_map(|dir| first(dir).filter(|found| found == dir)).next().or_else(|| first(&[path, b"/"].concat()))
}

fn entry(mode: u32, id: Oid, path: &[u8]) -> IndexEntry {
    let never = IndexTime::new(0, 0);
    IndexEntry {
        ctime: never,
        mtime: never,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_directory_of_one_name_are_in_each_others_way() {
        let mut index = Index::new().unwrap_or_else(|e| unreachable!("{e}"));
        for path in ["a", "a.b", "c/d/e", "c/d.e", "x/y"] {
            index.add(&entry(0o100_644, Oid::ZERO_SHA1, path.as_bytes())).unwrap_or_else(|e| unreachable!("{path}: {e}"));
        }
        for (path, other) in [("a/new", "a"), ("a/b/c", "a"), ("c", "c/d.e"), ("c/d", "c/d/e"), ("x/y/z/w", "x/y")] {
            assert_eq!(in_the_way(&index, path.as_bytes()).as_deref(), Some(other.as_bytes()), "{path}");
        }
        for path in ["a", "a.c/d", "c/d/f", "c/dd", "x/yy/z", "b"] {
            assert_eq!(in_the_way(&index, path.as_bytes()), None, "{path} has its own place");
        }
    }
}
