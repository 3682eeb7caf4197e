//! Takes a candidate: a keeper reads the tree, the host checks what comes out.

use crate::files;
use crate::git::{GitError, pieces};
use crate::inside::Header;
use crate::objects::Objects;
use crate::store::TaskGit;
use model::diff::Candidate;
use model::id::TreeId;
use model::keeper::{Job, Keeper, KeeperError};
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

/// How long a keeper may read.
const TIME: Duration = Duration::from_secs(600);
/// Bytes of a keeper's first line.
const HEADER: u64 = 16 << 20;
/// Bytes of a candidate's pack.
const PACK: u64 = 4 << 30;
/// Memory to unpack it: a delta of some bytes can say "and the same again" a thousand times over.
const MEMORY: u64 = 2 << 30;
/// What git says where it gets none.
const NO_MEMORY: &str = "ut of memory";
/// Objects in a candidate's pack.
const OBJECTS: u32 = 1_000_000;

/// Why there is no candidate.
#[derive(Debug, thiserror::Error)]
pub enum CandidateError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The keeper failed.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// The keeper ended badly.
    #[error("the workspace could not be read: {0}")]
    Ended(String),
    /// What came out is not what a keeper says.
    #[error("the workspace's keeper answered in an unknown form ({0}): stop the run and try again")]
    Unknown(&'static str),
    /// What came out is too large.
    #[error(
        "the candidate is too large: {what}, and Airlock takes up to {limit}. Remove generated files or add them to `.gitignore` in the base"
    )]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, in words.
        limit: &'static str,
    },
    /// Git does not accept the objects.
    #[error("the candidate holds something that git refuses: {0}")]
    Refused(String),
    /// A file failed.
    #[error("the candidate could not be kept: {0}")]
    Io(#[from] io::Error),
}

/// Takes a candidate of a task. `still` says whether the caller froze (or ended) the run for as long as this takes.
pub fn candidate(task: &TaskGit, keeper: &dyn Keeper, still: bool) -> Result<Candidate, CandidateError> {
    let dir = task.dir();
    let _one_at_a_time = files::lock(&dir.path().join("keeper.lock"))?;
    let objects = dir.objects();
    for entry in std::fs::read_dir(objects.join("pack"))? {
        let path = entry?.path();
        if path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("tmp_")) {
            std::fs::remove_file(path)?;
        }
    }
    let base = base_tree(task)?;
    let mut args = vec!["candidate".into(), "--base".into(), base.as_str().into()];
    let last = dir.path().join("last-candidate");
    let known = std::fs::read_to_string(&last).ok().and_then(|t| TreeId::parse(t.trim()).ok());
    if let Some(tree) = &known {
        args.extend(["--have".into(), tree.as_str().into()]);
    }
    let mut running = keeper.start(Job {
        tree: dir.tree(),
        write_tree: false,
        source: None,
        git: dir.keeper(),
        objects,
        history: task.history()?,
        args,
        time_limit: TIME,
    })?;
    let mut from = BufReader::new(running.stdout().ok_or(CandidateError::Unknown("no output"))?);
    let mut line = Vec::new();
    from.by_ref().take(HEADER).read_until(b'\n', &mut line)?;
    let header = match line.pop() {
        Some(b'\n') => serde_json::from_slice::<Header>(&line).map_err(|_| CandidateError::Unknown("its first line"))?,
        _ => {
            let (code, said) = running.wait()?;
            return Err(CandidateError::Ended(if said.is_empty() { format!("exit code {code}") } else { said }));
        }
    };
    let tree = TreeId::parse(&header.tree).map_err(|_| CandidateError::Unknown("its tree"))?;
    take_in(task, from)?;
    let (code, said) = running.wait()?;
    if code != 0 {
        return Err(CandidateError::Ended(said));
    }
    check(task, &base, &tree)?;
    files::replace(&last, tree.as_str().as_bytes())?;
    Ok(Candidate { tree, still, left_out: header.left_out })
}

/// The tree of the task's base.
pub(crate) fn base_tree(task: &TaskGit) -> Result<TreeId, GitError> {
    Objects::open(task, "find the base's tree")?.base_tree()
}

/// Checks a pack and puts it into the task's objects; no pack at all is fine.
fn take_in(task: &TaskGit, mut from: BufReader<Box<dyn Read + Send>>) -> Result<(), CandidateError> {
    let mut head = Vec::new();
    from.by_ref().take(12).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(());
    }
    let &[b'P', b'A', b'C', b'K', _, _, _, _, a, b, c, d] = head.as_slice() else {
        return Err(CandidateError::Unknown("its pack"));
    };
    if u32::from_be_bytes([a, b, c, d]) > OBJECTS {
        return Err(CandidateError::TooLarge { what: "it has more than a million new files", limit: "1,000,000 objects" });
    }
    let whole = Box::new(io::Cursor::new(head).chain(from));
    let out = task
        .git("check the candidate's pack")
        // As the keeper packs: what is larger is stored whole, and passed through in pieces.
        .set("core.bigFileThreshold=16m")
        .memory(MEMORY)
        .args(["index-pack", "--strict", "--stdin", &format!("--max-input-size={PACK}")])
        .time(TIME + Duration::from_secs(60))
        .fed(whole, PACK);
    match out {
        Err(GitError::TooMuch { .. }) => Err(CandidateError::TooLarge { what: "its new files", limit: "4 GiB packed" }),
        Err(e) => Err(e.into()),
        Ok(out) if out.code == 0 => Ok(()),
        Ok(out) if out.stderr.contains("maximum allowed size") => {
            Err(CandidateError::TooLarge { what: "its new files", limit: "4 GiB packed" })
        }
        Ok(out) if out.stderr.contains(NO_MEMORY) => {
            Err(CandidateError::TooLarge { what: "one of its objects, unpacked", limit: "2 GiB of memory" })
        }
        Ok(out) => match out.checked("check the candidate's pack") {
            Err(GitError::Failed { stderr, .. }) => Err(CandidateError::Refused(stderr)),
            Err(e) => Err(e.into()),
            Ok(_) => Ok(()),
        },
    }
}

/// The tree must be whole, and hold no submodule that the base does not.
fn check(task: &TaskGit, base: &TreeId, tree: &TreeId) -> Result<(), CandidateError> {
    let refused = |e| match e {
        GitError::Failed { stderr, .. } if stderr.contains(NO_MEMORY) => {
            CandidateError::TooLarge { what: "the list of its files", limit: "2 GiB of memory" }
        }
        GitError::Failed { stderr, .. } => CandidateError::Refused(stderr),
        e => CandidateError::Git(e),
    };
    task.git("check that the candidate is whole")
        .memory(MEMORY)
        .args(["rev-list", "--objects", "--quiet", "--stdin"])
        .input(format!("{tree}\n^{base}\n").into_bytes())
        .time(TIME)
        .ok()
        .map_err(refused)?;
    let raw = task
        .git("compare the candidate")
        // A tree of some kilobytes can have more paths than can be counted.
        .memory(MEMORY)
        .args(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv", base.as_str(), tree.as_str()])
        .ok()
        .map_err(refused)?;
    let linked = pieces(&raw).any(|p| p.strip_prefix(b":").is_some_and(|r| r.get(7..13) == Some(b"160000")));
    if linked {
        return Err(CandidateError::Refused("a new or moved submodule".to_owned()));
    }
    Ok(())
}
