//! A task's objects read in this process, and trees built from them, by libgit2.
//!
//! Only object databases are opened: no repository, so no configuration, attributes or references count. What is new is kept in
//! memory until [`Objects::keep`]. Objects of a task came through `index-pack --strict`; libgit2 checks their hashes again.

use crate::git::GitError;
use crate::store::TaskGit;
use git2::{Buf, Index, ObjectType, Odb, Oid, Repository};
use model::id::{BlobId, TreeId};

/// Above the priorities of what is on disk, so that what is written goes to memory.
const MEMORY: i32 = 1000;

/// The objects of one task.
pub(crate) struct Objects<'a> {
    task: &'a TaskGit,
    doing: &'static str,
    repo: Repository,
}

impl<'a> Objects<'a> {
    /// Opens them; `doing` completes "git could not …".
    pub(crate) fn open(task: &'a TaskGit, doing: &'static str) -> Result<Self, GitError> {
        let repo = Repository::from_odb(on_disk(task, doing)?).map_err(|source| GitError::Objects { doing, source })?;
        Ok(Self { task, doing, repo })
    }

    fn failed(&self) -> impl Fn(git2::Error) -> GitError + use<> {
        let doing = self.doing;
        move |source| GitError::Objects { doing, source }
    }

    /// The tree of the commit that the task started from.
    pub(crate) fn base_tree(&self) -> Result<TreeId, GitError> {
        let odb = self.repo.odb().map_err(self.failed())?;
        let commit = odb.read(oid(self.task.base.as_str()).map_err(self.failed())?).map_err(self.failed())?;
        // Its first line, and no more of it: old commits have authors that libgit2 can't read.
        let id =
            commit.data().strip_prefix(b"tree ").and_then(|rest| rest.get(..40)).filter(|_| commit.kind() == ObjectType::Commit);
        let id = id.and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| TreeId::parse(id).ok());
        id.ok_or(GitError::Unknown { doing: self.doing })
    }

    /// A blob's size; `None` for what is no blob or not here (a submodule's commit).
    pub(crate) fn size(&self, id: &BlobId) -> Result<Option<u64>, GitError> {
        let odb = self.repo.odb().map_err(self.failed())?;
        match odb.read_header(oid(id.as_str()).map_err(self.failed())?) {
            Ok((size, ObjectType::Blob)) => Ok(u64::try_from(size).ok()),
            Ok(_) => Ok(None),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(self.failed()(error)),
        }
    }

    /// A blob's content, whatever its size.
    pub(crate) fn content(&self, id: &BlobId) -> Result<Vec<u8>, GitError> {
        let odb = self.repo.odb().map_err(self.failed())?;
        let blob = odb.read(oid(id.as_str()).map_err(self.failed())?).map_err(self.failed())?;
        Ok(blob.data().to_vec())
    }

    /// The names in one directory of a tree; none where there is no such directory.
    pub(crate) fn names(&self, tree: &TreeId, dir: &[u8]) -> Result<Vec<Vec<u8>>, GitError> {
        let mut tree = oid(tree.as_str()).and_then(|id| self.repo.find_tree(id)).map_err(self.failed())?;
        for part in dir.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
            let inner = tree.iter().find(|e| e.name_bytes() == part && e.kind() == Some(ObjectType::Tree)).map(|e| e.id());
            let Some(inner) = inner else { return Ok(Vec::new()) };
            tree = self.repo.find_tree(inner).map_err(self.failed())?;
        }
        Ok(tree.iter().map(|e| e.name_bytes().to_vec()).collect())
    }

    /// An index in memory with the files of a tree.
    pub(crate) fn index(&self, tree: &TreeId) -> Result<Index, GitError> {
        let tree = oid(tree.as_str()).and_then(|id| self.repo.find_tree(id)).map_err(self.failed())?;
        let mut index = Index::new().map_err(self.failed())?;
        index.read_tree(&tree).map_err(self.failed())?;
        Ok(index)
    }

    /// Writes an index as a tree to the task's objects.
    pub(crate) fn keep(&self, index: &mut Index) -> Result<TreeId, GitError> {
        let odb = self.repo.odb().map_err(self.failed())?;
        odb.add_new_mempack_backend(MEMORY).map_err(self.failed())?;
        let tree = index.write_tree_to(&self.repo).map_err(self.failed())?;
        let known = on_disk(self.task, self.doing)?;
        let mut pack = self.repo.packbuilder().map_err(self.failed())?;
        let mut todo = vec![tree];
        while let Some(id) = todo.pop() {
            if known.exists(id) {
                continue;
            }
            pack.insert_object(id, None).map_err(self.failed())?;
            let tree = self.repo.find_tree(id).map_err(self.failed())?;
            todo.extend(tree.iter().filter(|entry| entry.kind() == Some(ObjectType::Tree)).map(|entry| entry.id()));
        }
        if pack.object_count() > 0 {
            let mut bytes = Buf::new();
            pack.write_buf(&mut bytes).map_err(self.failed())?;
            // By git, which writes each under another name first, so that no half of one is ever seen.
            self.task.git(self.doing).args(["unpack-objects", "-q"]).input(bytes.to_vec()).ok()?;
        }
        TreeId::parse(&tree.to_string()).map_err(|_| GitError::Unknown { doing: self.doing })
    }
}

/// The database of a task's objects and of the alternates named in it, which hold the task's history; nothing is written there.
fn on_disk(task: &TaskGit, doing: &'static str) -> Result<Odb<'static>, GitError> {
    let failed = |source| GitError::Objects { doing, source };
    let place = task.dir().objects();
    let place = place.to_str().ok_or(GitError::NotText { doing })?;
    let odb = Odb::new().map_err(failed)?;
    odb.add_disk_alternate(place).map_err(failed)?;
    Ok(odb)
}

/// A name as libgit2 has it.
pub(crate) fn oid(id: &str) -> Result<Oid, git2::Error> {
    Oid::from_str(id)
}
