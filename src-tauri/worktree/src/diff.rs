//! What changed between two trees, and what a reviewer should look at first.
//!
//! The list and its counts are the git program's, as the text of [`unified`] is: libgit2 measures likeness in its own way, and a
//! file that is renamed in one and removed in the other would be accepted by halves. Contents are read by libgit2.

use crate::candidate::base_tree;
use crate::git::{Git, GitError, pieces};
use crate::objects::Objects;
use crate::rows;
use crate::store::TaskGit;
use model::diff::{ChangeKind, ChangedFile, FileDiff, Mark};
use model::id::{BlobId, TreeId};
use model::path::{RawPath, hides};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Files up to this size are searched for characters that hide.
const SEARCHED: u64 = 1 << 20;
/// All files searched together have at most this size.
const SEARCHED_TOGETHER: u64 = 64 << 20;
/// So many lists of changes are kept.
const KEPT: usize = 8;

/// Why a difference can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// No such file.
    #[error("`{0}` is not among the changed files of this candidate: list them with `airlock diff ID --stat`")]
    NoSuchFile(RawPath),
    /// Accepted files that can't be without others.
    #[error(
        "these files can't be accepted without others: a file and a directory would have the same name ({0}). Accept the removal too"
    )]
    Entangled(String),
    /// A file of Airlock's own failed.
    #[error("the review could not be written: {0}")]
    Io(#[from] std::io::Error),
}

/// The changed files between `from` (the task's base where `None`) and `to`, by path.
pub fn changes(task: &TaskGit, from: Option<&TreeId>, to: &TreeId) -> Result<Vec<ChangedFile>, DiffError> {
    Ok(listed(task, &start(task, from)?, to)?.as_ref().clone())
}

/// The whole difference as git writes it (raw bytes: hostile to a terminal). At most 256 MiB.
pub fn unified(task: &TaskGit, from: Option<&TreeId>, to: &TreeId) -> Result<Vec<u8>, DiffError> {
    let from = start(task, from)?;
    Ok(compare(task, "compare two trees")
        .args(["-p", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", from.as_str(), to.as_str()])
        .ok()?)
}

/// One file's difference as coloured rows, with `context` unchanged lines around each change.
pub fn file_diff(
    task: &TaskGit,
    from: Option<&TreeId>,
    to: &TreeId,
    path: &RawPath,
    context: u32,
) -> Result<FileDiff, DiffError> {
    let all = listed(task, &start(task, from)?, to)?;
    let file = all.iter().find(|f| f.path == *path).ok_or_else(|| DiffError::NoSuchFile(path.clone()))?;
    Ok(rows::file_diff(task, file, context)?)
}

fn start(task: &TaskGit, from: Option<&TreeId>) -> Result<TreeId, GitError> {
    from.map_or_else(|| base_tree(task), |t| Ok(t.clone()))
}

fn compare<'a>(task: &TaskGit, doing: &'static str) -> Git<'a> {
    task.git(doing).args(["diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"])
}

/// Trees and their changes, newest last.
type Known = Vec<((TreeId, TreeId), Arc<Vec<ChangedFile>>)>;

/// Lists are kept: trees never change, and a person reads one file after the other of the same two.
static LISTS: Mutex<Known> = Mutex::new(Vec::new());

pub(crate) fn listed(task: &TaskGit, from: &TreeId, to: &TreeId) -> Result<Arc<Vec<ChangedFile>>, GitError> {
    let key = (from.clone(), to.clone());
    if let Some((_, known)) = LISTS.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|(k, _)| *k == key) {
        return Ok(Arc::clone(known));
    }
    let list = Arc::new(list(task, from, to)?);
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if lists.len() >= KEPT {
        lists.remove(0);
    }
    lists.push((key, Arc::clone(&list)));
    Ok(list)
}

fn list(task: &TaskGit, from: &TreeId, to: &TreeId) -> Result<Vec<ChangedFile>, GitError> {
    let said = |doing, how: &str| compare(task, doing).args([how, "-z", "--no-abbrev", from.as_str(), to.as_str()]).ok();
    let unknown = |doing| move || GitError::Unknown { doing };
    const LIST: &str = "list changed files";
    let mut files = read_list(&said(LIST, "--raw")?).ok_or_else(unknown(LIST))?;
    const COUNT: &str = "count changed lines";
    read_counts(&said(COUNT, "--numstat")?, &mut files).ok_or_else(unknown(COUNT))?;
    mark(task, to, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Reads `--raw -z`: names and modes are whatever the trees hold.
pub(crate) fn read_list(raw: &[u8]) -> Option<Vec<ChangedFile>> {
    let mut files = Vec::new();
    let mut parts = pieces(raw);
    while let Some(head) = parts.next() {
        let mut words = std::str::from_utf8(head).ok()?.strip_prefix(':')?.split(' ');
        let mut word = || words.next();
        let (old_mode, new_mode, old, new, status) = (word()?, word()?, word()?, word()?, word()?);
        let first = RawPath::from(parts.next()?);
        let renamed = status.starts_with('R');
        let (path, old_path) = if renamed { (RawPath::from(parts.next()?), Some(first)) } else { (first, None) };
        let mode = |m| u32::from_str_radix(m, 8).ok();
        let id = |t: &str| BlobId::parse(t).ok().filter(|_| t.bytes().any(|b| b != b'0'));
        let kind = match status.as_bytes().first() {
            Some(b'A') => ChangeKind::Added,
            Some(b'D') => ChangeKind::Deleted,
            Some(b'R') => ChangeKind::Renamed,
            Some(b'M' | b'T') if old == new => ChangeKind::Mode,
            _ => ChangeKind::Modified,
        };
        let (old_mode, new_mode) = (mode(old_mode)?, mode(new_mode)?);
        let (old_id, new_id) = (id(old), id(new));
        files.push(ChangedFile {
            path,
            old_path,
            kind,
            old_mode,
            new_mode,
            old_id,
            new_id,
            added: 0,
            removed: 0,
            binary: false,
            marks: Vec::new(),
        });
    }
    Some(files)
}

/// Reads `--numstat -z`, which fills in lines added and removed.
pub(crate) fn read_counts(out: &[u8], files: &mut [ChangedFile]) -> Option<()> {
    let mut counts: BTreeMap<&[u8], (&[u8], &[u8])> = BTreeMap::new();
    let mut parts = pieces(out);
    while let Some(part) = parts.next() {
        let mut fields = part.splitn(3, |b| *b == b'\t');
        let (added, removed, path) = (fields.next()?, fields.next()?, fields.next()?);
        // A rename has its two paths in pieces of their own.
        let path = if path.is_empty() { parts.nth(1)? } else { path };
        counts.insert(path, (added, removed));
    }
    for file in files {
        if let Some((added, removed)) = counts.get(file.path.as_bytes()) {
            let number = |t: &[u8]| std::str::from_utf8(t).ok().and_then(|t| t.parse().ok());
            file.binary = *added == b"-";
            file.added = number(added).unwrap_or(0);
            file.removed = number(removed).unwrap_or(0);
        }
    }
    Some(())
}

/// Sets the marks.
fn mark(task: &TaskGit, to: &TreeId, files: &mut [ChangedFile]) -> Result<(), GitError> {
    let wanted: Vec<&BlobId> = files
        .iter()
        .filter(|f| !f.binary && matches!(f.new_mode, 0o100_644 | 0o100_755 | 0o120_000))
        .filter_map(|f| f.new_id.as_ref())
        .collect();
    let texts = contents(task, &wanted, SEARCHED, SEARCHED_TOGETHER)?;
    let repositories = repositories(task, to, files)?;
    for file in files {
        let mut marks = BTreeSet::new();
        if let Some(mark) = by_name(file.path.as_bytes()) {
            marks.insert(mark);
        }
        let text = file.new_id.as_ref().and_then(|id| texts.get(id));
        match file.new_mode {
            0o100_755 if file.old_mode != 0o100_755 => drop(marks.insert(Mark::Executable)),
            0o120_000 => {
                marks.insert(Mark::Symlink);
                if text.is_none_or(|t| escapes(file.path.as_bytes(), t)) {
                    marks.insert(Mark::Escapes);
                }
            }
            _ => {}
        }
        if file.binary {
            marks.insert(Mark::Binary);
        }
        // A repository's configuration names programs, and git in that directory runs them.
        if file.new_mode != 0 && parents(file.path.as_bytes()).any(|dir| repositories.contains(dir)) {
            marks.insert(Mark::Runs);
        }
        let names = [Some(&file.path), file.old_path.as_ref()];
        if text.is_some_and(|t| hides_text(t)) || names.into_iter().flatten().any(|n| hides_name(n.as_bytes())) {
            marks.insert(Mark::Bidi);
        }
        file.marks = marks.into_iter().collect();
    }
    Ok(())
}

/// The directories above a path but for the top, which has a repository already.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..path.len()).filter(|at| path[*at] == b'/').map(|at| &path[..at])
}

/// The directories of `to` with changed files that git would take for a repository without a working tree, or that could lend
/// one its configuration.
fn repositories(task: &TaskGit, to: &TreeId, files: &[ChangedFile]) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let dirs: BTreeSet<&[u8]> = files.iter().filter(|f| f.new_mode != 0).flat_map(|f| parents(f.path.as_bytes())).collect();
    let objects = Objects::open(task, "look for repositories")?;
    let mut found = BTreeSet::new();
    for dir in dirs {
        if is_repository(&objects.names(to, dir)?) {
            found.insert(dir.to_vec());
        }
    }
    Ok(found)
}

/// Git asks for `HEAD`, `objects` and `refs`, the last two here or where `commondir` says.
fn is_repository(names: &[Vec<u8>]) -> bool {
    let has = |name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name.as_bytes()));
    (has("objects") && has("refs")) || (has("HEAD") && has("commondir"))
}

/// The contents of blobs of at most `each` bytes, until they have `together` bytes.
pub(crate) fn contents(task: &TaskGit, ids: &[&BlobId], each: u64, together: u64) -> Result<BTreeMap<BlobId, Vec<u8>>, GitError> {
    let objects = Objects::open(task, "read file contents")?;
    let mut texts = BTreeMap::new();
    let mut left = together;
    for id in ids {
        if let Some(size) = objects.size(id)?.filter(|size| *size <= each && *size <= left) {
            left -= size;
            texts.insert((*id).clone(), objects.content(id)?);
        }
    }
    Ok(texts)
}

/// The sizes of blobs; what is no blob (a submodule's commit) is left out.
pub(crate) fn sizes<'a>(task: &TaskGit, ids: &[&'a BlobId]) -> Result<Vec<(&'a BlobId, u64)>, GitError> {
    let objects = Objects::open(task, "read file sizes")?;
    let mut sizes = Vec::new();
    for id in ids {
        if let Some(size) = objects.size(id)? {
            sizes.push((*id, size));
        }
    }
    Ok(sizes)
}

fn by_name(path: &[u8]) -> Option<Mark> {
    let text = String::from_utf8_lossy(path).to_lowercase();
    let name = text.rsplit('/').next().unwrap_or_default();
    let dirs = || text.split('/').rev().skip(1);
    const CI_DIRS: [&str; 7] = [".github", ".gitlab", ".circleci", ".buildkite", ".woodpecker", ".ci", ".forgejo"];
    const CI_FILES: [&str; 7] = [
        ".gitlab-ci.yml",
        "jenkinsfile",
        "azure-pipelines.yml",
        ".travis.yml",
        ".drone.yml",
        "bitbucket-pipelines.yml",
        ".cirrus.yml",
    ];
    const LOCKS: [&str; 15] = [
        "cargo.lock",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
        "go.sum",
        "poetry.lock",
        "uv.lock",
        "pipfile.lock",
        "gemfile.lock",
        "composer.lock",
        "flake.lock",
        "gradle.lockfile",
    ];
    const RUN_DIRS: [&str; 8] = [".husky", ".githooks", ".vscode", ".idea", ".devcontainer", ".cargo", ".claude", ".cursor"];
    const RUN_FILES: [&str; 31] = [
        "package.json",
        "build.rs",
        "setup.py",
        "setup.cfg",
        "pyproject.toml",
        "conftest.py",
        "sitecustomize.py",
        "makefile",
        "gnumakefile",
        "justfile",
        "cmakelists.txt",
        "build.gradle",
        "build.gradle.kts",
        "settings.gradle",
        "pom.xml",
        "rakefile",
        "gemfile",
        "dockerfile",
        "compose.yaml",
        "docker-compose.yml",
        ".envrc",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".mcp.json",
        ".gitattributes",
        ".gitmodules",
        ".editorconfig",
        ".tool-versions",
    ];
    if dirs().any(|d| CI_DIRS.contains(&d)) || CI_FILES.contains(&name) {
        Some(Mark::Ci)
    } else if LOCKS.contains(&name) {
        Some(Mark::Lockfile)
    } else if dirs().any(|d| RUN_DIRS.contains(&d)) || RUN_FILES.contains(&name) {
        Some(Mark::Runs)
    } else {
        None
    }
}

/// Whether a link at `path` leads out of the tree, or into its `.git`.
fn escapes(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut at: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    at.pop();
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if at.pop().is_none() {
                    return true;
                }
            }
            part => at.push(part),
        }
    }
    at.iter().any(|p| p.eq_ignore_ascii_case(b".git"))
}

/// Whether a text has characters that a reader does not see, beside those that every text has.
fn hides_text(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.utf8_chunks().any(|c| c.valid().chars().any(|c| hides(c) && !matches!(c, '\t' | '\n' | '\r' | '\u{c}')))
}

/// Whether a name has characters that a reader does not see.
fn hides_name(name: &[u8]) -> bool {
    name.utf8_chunks().any(|c| c.valid().chars().any(hides))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_seen() {
        for (path, target) in [("a/b", "../../x"), ("a", "/etc/passwd"), ("a/b", "../.git/hooks"), ("l", "x/../../y")] {
            assert!(escapes(path.as_bytes(), target.as_bytes()), "{path} -> {target} leads out");
        }
        for (path, target) in [("a/b", "../x"), ("a", "b/c"), ("a/b/c", "../../d"), ("a", "./b//c")] {
            assert!(!escapes(path.as_bytes(), target.as_bytes()), "{path} -> {target} stays inside");
        }
    }

    #[test]
    fn hidden_characters_are_seen() {
        assert!(hides_text("a\u{202e}b".as_bytes()) && hides_text(b"a\x1b[2J"), "direction and control characters hide");
        assert!(!hides_text("\u{feff}a\tb\r\n".as_bytes()), "what every text has does not");
    }

    #[test]
    fn names_that_run_or_lock_are_marked() {
        assert_eq!(by_name(b".github/workflows/ci.yml"), Some(Mark::Ci));
        assert_eq!(by_name(b"web/package.json"), Some(Mark::Runs));
        assert_eq!(by_name(b"Cargo.lock"), Some(Mark::Lockfile));
        assert_eq!(by_name(b"src/main.rs"), None);
    }
}
