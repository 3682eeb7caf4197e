//! The tree that results from a review.

use crate::candidate::base_tree;
use crate::diff::{DiffError, listed};
use crate::git::GitError;
use crate::store::TaskGit;
use model::diff::ChangedFile;
use model::id::TreeId;
use model::path::RawPath;

/// The base's tree with the accepted files of the candidate put in; written to the task's objects. A path is that of
/// [`crate::changes`] (the new one for a rename, which takes the old one away too).
pub fn result_tree(task: &TaskGit, candidate: &TreeId, accepted: &[RawPath]) -> Result<TreeId, DiffError> {
    let base = base_tree(task)?;
    let all = listed(task, &base, candidate)?;
    let files: Vec<&ChangedFile> = accepted
        .iter()
        .map(|path| all.iter().find(|f| f.path == *path).ok_or_else(|| DiffError::NoSuchFile(path.clone())))
        .collect::<Result<_, _>>()?;
    let place = tempfile::tempdir_in(task.dir().path())?;
    let git = |doing| task.git(doing).index(&place.path().join("index"));
    git("read the base").args(["read-tree", base.as_str()]).ok()?;

    let mut lines = Vec::new();
    let mut line = |head: String, path: &RawPath| {
        lines.extend(head.bytes());
        lines.push(b'\t');
        lines.extend(path.as_bytes());
        lines.push(0);
    };
    // Removals come first, so that a directory can take the place of a file.
    for file in &files {
        let gone = file.old_path.as_ref().or_else(|| (file.new_mode == 0).then_some(&file.path));
        if let Some(path) = gone {
            line(format!("0 {}", "0".repeat(40)), path);
        }
    }
    for file in &files {
        if let Some(id) = &file.new_id {
            line(format!("{:06o} {id} 0", file.new_mode), &file.path);
        }
    }
    match git("put the accepted files together").args(["update-index", "--add", "-z", "--index-info"]).input(lines).ok() {
        Err(GitError::Failed { stderr, .. })
            if stderr.contains("as both a file and as a directory") || stderr.contains("cannot add to the index") =>
        {
            return Err(DiffError::Entangled(stderr.lines().next().unwrap_or_default().to_owned()));
        }
        other => drop(other?),
    }
    let tree = git("write the reviewed tree").arg("write-tree").line()?;
    Ok(TreeId::parse(&tree).map_err(|_| GitError::Unknown { doing: "write the reviewed tree" })?)
}
