//! What comes along from the person's working copy: ignored trees as they are, ignored settings files with placeholders.
//! A keeper does it; the host hears what was done.

use crate::files;
use crate::git::{GitError, pieces};
use crate::inside_bring::{Said, Total};
use crate::inspect::RepoFacts;
use crate::mask;
use crate::store::{Progress, TaskGit};
use model::keeper::{Job, Keeper, KeeperError};
use model::path::RawPath;
use model::pattern::{Pattern, named_by};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

/// How long a keeper may copy.
const TIME: Duration = Duration::from_secs(900);
/// Bytes of a keeper's words.
const WORDS: u64 = 64 << 20;
/// A tracked settings file is looked at up to here.
const TRACKED: usize = 1 << 20;

/// What a task brings along, as patterns of [`model::pattern::Pattern`].
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Ignored trees and files that come along as they are.
    pub carry: &'a [String],
    /// Ignored files that come along with placeholders.
    pub mask: &'a [String],
}

/// What came along.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brought {
    /// Regular files that were carried.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was passed over, by reason.
    pub skipped: Vec<(String, u64)>,
    /// Files that have placeholders now; the first of them.
    pub masked: Vec<RawPath>,
    /// How many more.
    pub masked_more: u64,
    /// Tracked files that the patterns name and that hold nothing like a secret: they are in history and stay as they are.
    pub tracked: Vec<RawPath>,
}

/// Why nothing came along.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The keeper failed.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// A pattern is none.
    #[error("`{0}` is no pattern: {1}")]
    Pattern(String, &'static str),
    /// A secret is in history.
    #[error(
        "{} in the repository's history with what looks like a secret ({}), and history can't be masked: a task would see it. Take \
         it out of the repository and change the secret; or, if a task may see it, say so by name in a policy of yours: \
         `files.mask = [{}]`", are(files), keys.join(", "), exception(files)
    )]
    Tracked {
        /// The files.
        files: Vec<RawPath>,
        /// Names of the values in question.
        keys: Vec<String>,
    },
    /// Too much.
    #[error("what `files.carry` names is too much: {0}. Name less there")]
    TooMuch(String),
    /// No room.
    #[error(
        "the disk is full: what `files.carry` names could not be written ({0}). Free some space and try again; nothing was left"
    )]
    DiskFull(String),
    /// The keeper ended badly.
    #[error("what `files.carry` and `files.mask` name could not be brought along: {0}")]
    Ended(String),
    /// A file of Airlock's own failed.
    #[error("what comes along could not be written down: {0}")]
    Io(#[from] io::Error),
}

fn are(files: &[RawPath]) -> String {
    let list: Vec<String> = files.iter().map(|f| format!("`{f}`")).collect();
    format!("{} {}", list.join(", "), if files.len() == 1 { "is" } else { "are" })
}

fn exception(files: &[RawPath]) -> String {
    let list: Vec<String> = files.iter().map(|f| format!("\"!{f}\"")).collect();
    format!("\".env\", \".env.*\", {}", list.join(", "))
}

/// Brings along what the patterns name, from the working copy that `repo` speaks of into a task's tree that nothing has run in.
/// The working copy is only read.
pub fn bring(
    task: &TaskGit,
    repo: &RepoFacts,
    keeper: &dyn Keeper,
    wanted: Wanted<'_>,
    progress: &dyn Fn(Progress),
) -> Result<Brought, BringError> {
    let mut brought = Brought { tracked: tracked(task, wanted.mask)?, ..Brought::default() };
    if wanted.carry.is_empty() && wanted.mask.is_empty() {
        return Ok(brought);
    }
    let dir = task.dir();
    let _one_at_a_time = files::lock(&dir.path().join("keeper.lock"))?;
    let mut args: Vec<OsString> = vec!["bring".into()];
    for (option, patterns) in [("--carry", wanted.carry), ("--mask", wanted.mask)] {
        args.extend(patterns.iter().flat_map(|p| [option.into(), p.into()]));
    }
    let mut running = keeper.start(Job {
        tree: dir.tree(),
        write_tree: true,
        source: Some(repo.top.clone()),
        git: dir.keeper(),
        objects: dir.objects(),
        history: task.history()?,
        args,
        time_limit: TIME,
    })?;
    let from = running.stdout().ok_or_else(|| BringError::Ended("it has no output".into()))?;
    let mut total = None;
    for line in BufReader::new(from.take(WORDS)).split(b'\n') {
        match serde_json::from_slice::<Said>(&line?) {
            Ok(Said::SoFar { files, bytes }) => progress(Progress::Carried { files, bytes }),
            Ok(Said::Total(all)) => total = Some(all),
            Ok(Said::TooMuch(why)) => return Err(BringError::TooMuch(why)),
            Ok(Said::DiskFull(why)) => return Err(BringError::DiskFull(why)),
            Err(e) => return Err(BringError::Ended(format!("the keeper's words are not known: {e}"))),
        }
    }
    let (code, said) = running.wait()?;
    let Some(Total { files, bytes, skipped, masked, masked_more }) = total.filter(|_| code == 0) else {
        let silent = || {
            format!("the program that copies ended with exit code {code} and without a word; is Airlock installed completely?")
        };
        return Err(BringError::Ended(if said.is_empty() { silent() } else { said }));
    };
    brought = Brought { files, bytes, skipped, masked, masked_more, ..brought };
    Ok(brought)
}

/// The base's own files that the patterns name. One that holds something like a secret is an error.
fn tracked(task: &TaskGit, mask: &[String]) -> Result<Vec<RawPath>, BringError> {
    let mask = patterns(mask)?;
    if mask.is_empty() {
        return Ok(Vec::new());
    }
    let list = task.git("list the base's files").args(["ls-tree", "-r", "-z", "--full-tree", task.base.as_str()]).ok()?;
    let (mut open, mut secret, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for line in pieces(&list) {
        let mut halves = line.splitn(2, |b| *b == b'\t');
        let (Some(head), Some(path)) = (halves.next(), halves.next()) else { continue };
        if !head.starts_with(b"100") || !named_by(&mask, path) || mask::is_example(path) {
            continue;
        }
        let id = String::from_utf8_lossy(head).split(' ').nth(2).unwrap_or_default().to_owned();
        let content = task.git("read a settings file").args(["cat-file", "blob", &id]).ok()?;
        let found = mask::secrets(&content[..content.len().min(TRACKED)]);
        if found.is_empty() {
            open.push(RawPath(path.to_vec()));
        } else {
            secret.push(RawPath(path.to_vec()));
            keys.extend(found);
        }
    }
    if secret.is_empty() {
        return Ok(open);
    }
    keys.truncate(5);
    Err(BringError::Tracked { files: secret, keys })
}

pub(crate) fn patterns(texts: &[String]) -> Result<Vec<Pattern>, BringError> {
    texts.iter().map(|t| Pattern::parse(t).map_err(|why| BringError::Pattern(t.clone(), why))).collect()
}
