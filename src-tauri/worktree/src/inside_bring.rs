//! The part of a keeper that brings things along: it sees the person's working copy, read-only, and the task's tree.
//!
//! What comes along is what git calls ignored by the rules that the task was made with, and what the base does not track. The
//! working copy's own `.git` is not in sight. By the same rules no candidate holds any of it, whatever an agent ignores or not.

use crate::files::SEALED;
use crate::git::pieces;
use crate::inside::{Fault, Keeper};
use crate::mask;
use model::path::RawPath;
use model::pattern::{Pattern, named_by};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use stores::{Counts, Limits, Rules, Stop, Wish};

/// Bounds of what is carried.
const LIMITS: Limits = Limits { files: 1_000_000, bytes: 20 << 30, reserve: 1 << 30, until: None };
/// So many masked files are named; more are counted.
const NAMED: usize = 200;
/// A word on how far it is, so often at most.
const SAY: Duration = Duration::from_millis(200);

/// A line of a keeper that brings things along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// How far it is.
    SoFar { files: u64, bytes: u64 },
    /// It is done.
    Total(Total),
    /// It was given up.
    TooMuch(String),
    /// There was no room.
    DiskFull(String),
}

/// What was brought along.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: Vec<(String, u64)>,
    pub(crate) masked: Vec<RawPath>,
    pub(crate) masked_more: u64,
}

/// `bring [--carry PATTERN]… [--mask PATTERN]…`
pub(crate) fn bring(keeper: &Keeper<'_>, args: &[OsString], out: &mut dyn Write) -> Result<(), Fault> {
    let (mut carry, mut mask) = (Vec::new(), Vec::new());
    for pair in args.chunks(2) {
        let [option, pattern] = pair else { return Err(Fault::Usage) };
        let pattern = pattern.to_str().and_then(|p| Pattern::parse(p).ok()).ok_or(Fault::Usage)?;
        match option.to_str() {
            Some("--carry") => carry.push(pattern),
            Some("--mask") => mask.push(pattern),
            _ => return Err(Fault::Usage),
        }
    }
    let io = |doing| move |source| Fault::Io { doing, source };
    let out = RefCell::new(out);
    let say = |said: &Said| {
        let mut line = serde_json::to_vec(said)?;
        line.push(b'\n');
        let mut out = out.borrow_mut();
        out.write_all(&line)?;
        out.flush()
    };
    let roots = roots(keeper, &carry, &mask)?;
    let source = stores::open_dir(&keeper.places.source).map_err(io("open the working copy"))?;
    let tree = stores::open_dir(&keeper.places.tree).map_err(io("open the task's tree"))?;
    let last = RefCell::new(Instant::now());
    let tell = |counts: &Counts| {
        if last.borrow().elapsed() >= SAY {
            *last.borrow_mut() = Instant::now();
            return say(&Said::SoFar { files: counts.files, bytes: counts.bytes }).is_ok();
        }
        true
    };
    let rules = Brings { mask: &mask, masked: RefCell::default(), tell: &tell };
    let mut counts = Counts::default();
    for root in roots {
        let stopped = match one(&source, &tree, &root, &rules, &mut counts) {
            Ok(()) => continue,
            Err(stopped) => stopped,
        };
        let full = |e: &io::Error| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let said = match stopped {
            Stop::Disk(_) => Said::DiskFull(stopped.to_string()),
            Stop::Io { ref source, .. } if full(source) => Said::DiskFull(stopped.to_string()),
            Stop::Io { source, .. } => return Err(Fault::Io { doing: "write what comes along", source }),
            other => Said::TooMuch(other.to_string()),
        };
        return say(&said).map_err(io("say how it went"));
    }
    let masked = rules.masked.into_inner();
    let of_masked = masked.len() as u64;
    let total = Total {
        // A masked file is not carried.
        files: counts.files.saturating_sub(of_masked),
        bytes: counts.bytes.saturating_sub(masked.iter().map(|(_, n)| n).sum()),
        skipped: counts.skipped.into_iter().collect(),
        masked_more: of_masked.saturating_sub(NAMED as u64),
        masked: masked.into_iter().take(NAMED).map(|(path, _)| RawPath(path)).collect(),
    };
    say(&Said::Total(total)).map_err(io("say how it went"))
}

/// What is copied, each with everything below it: ignored paths that a pattern names, or that lie below one that it names.
fn roots(keeper: &Keeper<'_>, carry: &[Pattern], mask: &[Pattern]) -> Result<BTreeSet<Vec<u8>>, Fault> {
    let mut from = OsString::from("--exclude-from=");
    from.push(keeper.places.git.join("info/exclude"));
    let list = keeper
        .git("list ignored files")
        .tree(&keeper.places.source)
        .args(["ls-files", "-o", "-i", "--directory", "-z"])
        .arg(from)
        .ok()?;
    let mut roots = BTreeSet::new();
    for path in pieces(&list) {
        let (path, is_dir) = path.strip_suffix(b"/").map_or((path, false), |dir| (dir, true));
        let above = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at]).chain([path]);
        let carried = above.into_iter().any(|prefix| carry.iter().any(|p| p.matches(prefix)));
        if carried || (!is_dir && masks(mask, path)) {
            roots.insert(path.to_vec());
        }
        if is_dir && !carried {
            roots.extend(carry.iter().filter_map(|p| deeper(p, path)));
        }
    }
    Ok(roots)
}

/// Where a pattern leads below an ignored directory, whose files git does not list one by one.
fn deeper(pattern: &Pattern, dir: &[u8]) -> Option<Vec<u8>> {
    let parts = pattern.from_top()?;
    let depth = dir.split(|b| *b == b'/').count();
    let (above, below) = (parts.get(..depth)?, parts.get(depth..)?);
    let plain = |p: &String| !p.contains(['*', '?']);
    let leads = above.join("/").as_bytes() == dir && above.iter().chain(below).all(plain) && !below.is_empty();
    leads.then(|| parts.join("/").into_bytes())
}

fn masks(mask: &[Pattern], path: &[u8]) -> bool {
    named_by(mask, path) && !mask::is_example(path)
}

/// Copies one path and all below it. What is not there (any more) is passed over.
fn one(source: &OwnedFd, tree: &OwnedFd, path: &[u8], rules: &Brings<'_>, counts: &mut Counts) -> Result<(), Stop> {
    let mut skip = |why: &str| {
        *counts.skipped.entry(why.to_owned()).or_default() += 1;
        Ok(())
    };
    let slash = path.iter().rposition(|b| *b == b'/');
    let (above, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    let Ok(name) = CString::new(name) else { return skip("its name can't be") };
    let Ok(from) = descend(source, above, Missing::Leave) else { return skip("it is gone") };
    match rustix::fs::statat(&from, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(_) => return skip("it can't be read"),
        Ok(_) => {}
    }
    // The base may have a link or a file where the working copy has a directory.
    let Ok(to) = descend(tree, above, Missing::Make) else { return skip("something else is in its place") };
    stores::copy_entry(from.as_fd(), to.as_fd(), &name, path, rules, &LIMITS, counts)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Leave,
}

fn descend(top: &OwnedFd, path: &[u8], missing: Missing) -> io::Result<OwnedFd> {
    let mut at = top.try_clone()?;
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
        let part = OsStr::from_bytes(part);
        if missing == Missing::Make {
            match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat2(&at, part, flags, Mode::empty(), SEALED)?;
    }
    Ok(at)
}

struct Brings<'a> {
    mask: &'a [Pattern],
    /// Masked files, with the bytes that they have now.
    masked: RefCell<Vec<(Vec<u8>, u64)>>,
    tell: &'a dyn Fn(&Counts) -> bool,
}

impl Rules for Brings<'_> {
    fn wish(&self, path: &[u8]) -> Wish {
        if masks(self.mask, path) { Wish::Read } else { Wish::Own }
    }

    fn link(&self, path: &[u8]) -> Wish {
        if masks(self.mask, path) { Wish::Skip("a link where a file would be masked") } else { Wish::Own }
    }

    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn contents(&self, path: &[u8], bytes: Vec<u8>) -> Option<Vec<u8>> {
        let text = mask::placeholders(&bytes);
        self.masked.borrow_mut().push((path.to_vec(), text.len() as u64));
        Some(text)
    }

    fn goes_on(&self, so_far: &Counts) -> bool {
        (self.tell)(so_far)
    }
}
