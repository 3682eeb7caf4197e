//! The demo's repository, and single files of a task's base.

use crate::TaskGit;
use git2::{ErrorCode, Repository, RepositoryInitOptions, Signature};
use std::collections::BTreeSet;
use std::path::Path;

/// A repository that could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// libgit2 said no.
    #[error("git data could not be read or written: {0}")]
    Git(#[from] git2::Error),
    /// A file failed.
    #[error("`{}` could not be written: {source}", path.display())]
    Io {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Makes a new repository with one commit of these files on the branch `main`. The directory must not exist.
pub fn seed(dir: &Path, files: &[(&str, &[u8])]) -> Result<(), SeedError> {
    let repo = Repository::init_opts(
        dir,
        RepositoryInitOptions::new().initial_head("main").no_reinit(true).mkpath(true).external_template(false),
    )?;
    let mut index = repo.index()?;
    for (name, content) in files {
        let path = dir.join(name);
        std::fs::write(&path, content).map_err(|source| SeedError::Io { path: path.clone(), source })?;
        index.add_path(Path::new(name))?;
    }
    index.write()?;
    let tree = repo.find_tree(index.write_tree()?)?;
    // A name for the commits that an apply makes here; the person's own counts where they have one.
    let mut config = repo.config()?;
    config.set_str("user.name", "Airlock demo")?;
    config.set_str("user.email", "demo@airlock.test")?;
    let who = Signature::now("Airlock demo", "demo@airlock.test")?;
    repo.commit(Some("HEAD"), &who, &who, "Greet everybody", &tree, &[])?;
    Ok(())
}

/// A file of the commit that a task starts from; `None` where it has none of that name.
pub fn base_file(task: &TaskGit, path: &str) -> Result<Option<Vec<u8>>, SeedError> {
    let repo = Repository::open_bare(task.layout.repo(&task.repo).join("store.git"))?;
    let tree = repo.find_commit(git2::Oid::from_str(task.base.as_str())?)?.tree()?;
    let entry = match tree.get_path(Path::new(path)) {
        Ok(entry) => entry,
        Err(e) if e.code() == ErrorCode::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    Ok(entry.to_object(&repo)?.as_blob().map(|b| b.content().to_vec()))
}

/// Names of the wanted files in the upper directories of the commit that a task starts from.
pub fn base_names(task: &TaskGit, wanted: &dyn Fn(&str) -> bool) -> Result<BTreeSet<String>, SeedError> {
    // Projects of a repository lie near its top; one that has very many directories there is not looked at for long.
    const DEEPEST: usize = 3;
    const DIRECTORIES: usize = 5_000;
    let repo = Repository::open_bare(task.layout.repo(&task.repo).join("store.git"))?;
    let mut found = BTreeSet::new();
    let mut todo = vec![(repo.find_commit(git2::Oid::from_str(task.base.as_str())?)?.tree_id(), 0)];
    let mut seen = 0;
    while let Some((tree, depth)) = todo.pop() {
        seen += 1;
        for entry in &repo.find_tree(tree)? {
            match (entry.kind(), entry.name()) {
                (Some(git2::ObjectType::Tree), _) if depth < DEEPEST && seen + todo.len() < DIRECTORIES => {
                    todo.push((entry.id(), depth + 1));
                }
                (Some(git2::ObjectType::Blob), Ok(name)) if wanted(name) => {
                    found.insert(name.to_owned());
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
