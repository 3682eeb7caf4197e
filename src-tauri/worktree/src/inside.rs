//! The program that runs in a keeper: reads a tree in which every path is a trap, and says what it holds as a git tree.
//!
//! The tree is judged with git's own rules, but by Airlock's list of ignore rules, and every file is looked at before git opens
//! it. The index trusts inode and ctime only for files whose ctime is older than the last look.

use crate::git::{Git, GitError, LONG, pieces};
use crate::left_out::LeftOut;
use crate::look::{Kind, LONGEST, Look, Seen, TOO_LONG};
use crate::screen::{SMALL, affordable, entry_line, no_such_name};
use model::path::RawPath;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file larger than this is left out.
pub(crate) const HUGE: u64 = 1 << 30;
/// How many files that git can't store are looked for one by one.
pub(crate) const REFUSED: usize = 200;
/// A file whose ctime is at most this many seconds before the last look may have changed in the same tick as it.
const SLACK: i64 = 2;

/// Where the keeper finds things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The tree.
    pub tree: PathBuf,
    /// The person's working copy, where something comes along from it.
    pub source: PathBuf,
    /// Its git directory.
    pub git: PathBuf,
    /// The task's objects.
    pub objects: PathBuf,
    /// Objects directories of the history.
    pub history: Vec<PathBuf>,
}

impl Places {
    /// Where a keeper's jail shows them.
    pub fn inside() -> Self {
        use model::keeper::inside as at;
        Self {
            tree: at::TREE.into(),
            source: at::SOURCE.into(),
            git: at::GIT.into(),
            objects: at::OBJECTS.into(),
            history: (0..).map(|n: u32| Path::new(at::HISTORY).join(n.to_string())).take_while(|p| p.is_dir()).collect(),
        }
    }

    /// What `--at TREE GIT OBJECTS [--source DIR] [--history DIR]… --` says, for a keeper that sees places where they really are, and
    /// the arguments after it; as [`Places::inside`] without `--at`.
    pub fn named(args: &[OsString]) -> Option<(Self, &[OsString])> {
        let [at, tree, git, objects, rest @ ..] = args else { return Some((Self::inside(), args)) };
        if at != "--at" {
            return Some((Self::inside(), args));
        }
        let mut places =
            Self { tree: tree.into(), source: PathBuf::new(), git: git.into(), objects: objects.into(), history: Vec::new() };
        let mut rest = rest;
        loop {
            match rest {
                [key, value, more @ ..] if key == "--source" => (places.source, rest) = (value.into(), more),
                [key, value, more @ ..] if key == "--history" => {
                    places.history.push(value.into());
                    rest = more;
                }
                [key, more @ ..] if key == "--" => return Some((places, more)),
                _ => return None,
            }
        }
    }
}

/// What a keeper says before the pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The tree.
    pub(crate) tree: String,
    /// What is not in it.
    pub(crate) left_out: Vec<(RawPath, String)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("usage: airlock-warden keeper candidate --base TREE [--have TREE]… | bring [--carry PATTERN]… [--mask PATTERN]…")]
    Usage,
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("{doing}: {source}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the tree changed while it was read: stop the run and try again ({0})")]
    Moving(String),
    #[error("`{0}` is a FIFO, and git would wait in it for ever: remove it in the task, then look again")]
    Waits(RawPath),
}

/// Does one keeper job, named by `args` (what follows `airlock-warden keeper`), writing its answer to `out` and words for
/// people to `err`. Returns the exit code: 0 done, 1 failed, 2 usage.
pub fn keeper_main(args: &[OsString], places: &Places, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    match job(args, places, out) {
        Ok(()) => 0,
        Err(fault) => {
            // Nobody is left to tell where stderr is closed.
            drop(writeln!(err, "{fault}"));
            if matches!(fault, Fault::Usage) { 2 } else { 1 }
        }
    }
}

fn job(args: &[OsString], places: &Places, out: &mut dyn Write) -> Result<(), Fault> {
    if let Some((verb, rest)) = args.split_first()
        && verb == "bring"
    {
        let keeper = Keeper { places, base: "", have: &[], read: readable(places) };
        return crate::inside_bring::bring(&keeper, rest, out);
    }
    let words: Vec<&str> = args.iter().map(|a| a.to_str().ok_or(Fault::Usage)).collect::<Result<_, _>>()?;
    let ["candidate", "--base", base, rest @ ..] = words.as_slice() else { return Err(Fault::Usage) };
    let mut have = Vec::new();
    for pair in rest.chunks(2) {
        let ["--have", tree] = pair else { return Err(Fault::Usage) };
        have.push(*tree);
    }
    Keeper { places, base, have: &have, read: readable(places) }.candidate(out)
}

/// Objects directories beside the keeper's own.
fn readable(places: &Places) -> Vec<PathBuf> {
    let mut history = places.history.clone();
    history.push(places.objects.clone());
    history
}

pub(crate) struct Keeper<'a> {
    pub(crate) places: &'a Places,
    pub(crate) base: &'a str,
    have: &'a [&'a str],
    /// Objects directories that are read beside its own.
    read: Vec<PathBuf>,
}

/// One entry of the index: mode and content.
pub(crate) type Entry = (String, String);

impl Keeper<'_> {
    /// On index and tree.
    pub(crate) fn git(&self, doing: &'static str) -> Git<'_> {
        self.git_on_objects(doing).set("core.bare=false").tree(&self.places.tree)
    }

    /// On objects alone: with a tree at hand git would look for attributes in it, even to pack.
    pub(crate) fn git_on_objects(&self, doing: &'static str) -> Git<'_> {
        Git::new(doing)
            .at(&self.places.git)
            .cwd(&self.places.git)
            .set("core.bare=true")
            .alternates(&self.read)
            // Refusing to store a file for its line ends is for people who type `git add`.
            .set("core.safecrlf=false")
            // What the host's check of a pack refuses, so that one name does not make all others unreviewable.
            .set("core.protectHFS=true")
            .set("core.protectNTFS=true")
            // Its objects are packed at once; compressing them before keeps an agent waiting.
            .set("core.looseCompression=0")
            .time(LONG)
    }

    fn candidate(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let started = self.clock()?;
        self.tidy()?;
        let (tree, left_out) = match self.look(true) {
            // An index that names objects of a candidate that never arrived is started anew.
            Err(Fault::Git(e)) if e.says("invalid object") || e.says("index file") => {
                self.start_over()?;
                self.look(false)?
            }
            other => other?,
        };
        self.write("scan", started.to_string().as_bytes())?;
        let io = |source| Fault::Io { doing: "send the candidate", source };
        let mut line = serde_json::to_vec(&Header { tree: tree.clone(), left_out }).map_err(|e| io(e.into()))?;
        line.push(b'\n');
        if tree == self.base || self.have.contains(&tree.as_str()) {
            out.write_all(&line).map_err(io)?;
        } else {
            let mut pack = self.pack(&tree)?;
            out.write_all(&line).map_err(io)?;
            io::copy(&mut pack, out).map_err(io)?;
        }
        out.flush().map_err(io)?;
        self.write("last", tree.as_bytes())
    }

    /// The kernel's clock as files are stamped with it, in seconds.
    fn clock(&self) -> Result<i64, Fault> {
        self.write("clock", b"")?;
        let meta =
            std::fs::metadata(self.places.git.join("clock")).map_err(|source| Fault::Io { doing: "read the clock", source })?;
        Ok(meta.ctime())
    }

    fn write(&self, name: &'static str, bytes: &[u8]) -> Result<(), Fault> {
        std::fs::write(self.places.git.join(name), bytes)
            .map_err(|source| Fault::Io { doing: "write the keeper's own files", source })
    }

    /// Removes what a killed keeper left, and objects that the host has taken over.
    fn tidy(&self) -> Result<(), Fault> {
        let git = &self.places.git;
        drop(std::fs::remove_file(git.join("index.lock")));
        let last = std::fs::read_to_string(git.join("last")).unwrap_or_default();
        if self.have.contains(&last.as_str()) {
            let io = |source| Fault::Io { doing: "drop old objects", source };
            for entry in std::fs::read_dir(git.join("objects")).map_err(io)? {
                let path = entry.map_err(io)?.path();
                if path.file_name().is_some_and(|n| n.len() == 2) {
                    std::fs::remove_dir_all(&path).map_err(io)?;
                }
            }
        }
        Ok(())
    }

    fn start_over(&self) -> Result<(), Fault> {
        for name in ["index", "index.lock", "scan"] {
            drop(std::fs::remove_file(self.places.git.join(name)));
        }
        self.git("read the base").args(["read-tree", self.base]).ok()?;
        Ok(())
    }

    fn index(&self) -> Result<BTreeMap<Vec<u8>, Entry>, Fault> {
        let list = self.git("list the index").args(["ls-files", "-s", "-z"]).ok()?;
        let entry = |piece: &[u8]| {
            let tab = piece.iter().position(|b| *b == b'\t')?;
            let mut head = std::str::from_utf8(&piece[..tab]).ok()?.split(' ');
            Some((piece[tab + 1..].to_vec(), (head.next()?.to_owned(), head.next()?.to_owned())))
        };
        Ok(pieces(&list).filter_map(entry).collect())
    }

    /// Brings the index up to what the tree holds; its tree and what is not in it.
    fn look(&self, trust: bool) -> Result<(String, Vec<(RawPath, String)>), Fault> {
        let before = self.index()?;
        let excludes = self.places.git.join("info/exclude");
        let list = |extra: &[&str]| {
            let mut from = OsString::from("--exclude-from=");
            from.push(&excludes);
            self.git("list untracked files").args(["ls-files", "-o", "-z"]).args(extra).arg(from).ok()
        };
        let not_wanted = list(&["-i", "--directory"])?;
        let ignored_files: BTreeSet<&[u8]> = pieces(&not_wanted).filter(|p| !p.ends_with(b"/")).collect();
        let ignored: BTreeSet<Vec<u8>> = pieces(&not_wanted)
            .filter_map(|p| p.strip_suffix(b"/"))
            .filter(|dir| !before.range(joined(dir, b"")..).next().is_some_and(|(p, _)| p.starts_with(&joined(dir, b""))))
            .map(<[u8]>::to_vec)
            .collect();
        let untracked = list(&[])?;
        let nested: BTreeSet<Vec<u8>> = pieces(&untracked).filter_map(|p| p.strip_suffix(b"/")).map(<[u8]>::to_vec).collect();
        let mut left = LeftOut::default();
        for path in &nested {
            left.add(path, "a nested git repository: its files are not carried");
        }
        let skip: BTreeSet<&[u8]> = ignored.iter().chain(&nested).map(Vec::as_slice).collect();
        let links: BTreeSet<&[u8]> = before.iter().filter(|(_, e)| e.0 == "160000").map(|(p, _)| p.as_slice()).collect();
        let io = |source| Fault::Io { doing: "open the tree", source };
        let look = Look::open(&self.places.tree).map_err(io)?;
        let walked = look.walk(&skip, &links, &mut left).map_err(io)?;
        if let Some(path) = walked.waits {
            return Err(Fault::Waits(RawPath(path)));
        }
        let found = walked.found;

        let huge = self.distrust(&before, &found, trust, &mut left)?;
        let refresh = self.git("compare the tree").args(["update-index", "-q", "--refresh"]).run()?;
        if refresh.code > 1 {
            refresh.checked("compare the tree")?;
        }
        let differs = self
            .git("compare the tree")
            .args(["diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all", "--no-ext-diff", "--no-textconv"])
            .ok()?;
        let mut changed: Vec<&[u8]> = pieces(&differs).filter(|p| !p.starts_with(b":")).collect();
        changed.extend(pieces(&untracked).filter(|p| !p.ends_with(b"/")));

        let (mut gone, mut put) = (Vec::new(), Vec::new());
        for path in changed {
            if links.contains(path) || huge.contains(path) {
                continue;
            }
            if path.len() > LONGEST {
                left.add(path, TOO_LONG);
                continue;
            }
            match look.at(path) {
                Kind::Readable(weight) => put.push((path.to_vec(), weight)),
                Kind::Gone if before.contains_key(path) => gone.push(path.to_vec()),
                Kind::Gone => {}
                Kind::Special(what) => {
                    left.add(path, what);
                    if before.contains_key(path) {
                        gone.push(path.to_vec());
                    }
                }
                Kind::Huge => left.add(path, "larger than 1 GiB: its version before is kept"),
                Kind::Unreadable(why) => left.add(path, &format!("not readable ({why}): its version before is kept")),
            }
        }
        if !gone.is_empty() {
            self.git("record removed files")
                .args(["update-index", "--force-remove", "-z", "--stdin"])
                .input(lines(&gone))
                .ok()?;
        }
        let put = affordable(put, &mut left);
        let mut refused = 0;
        self.put(&put, &mut refused, &mut left)?;
        self.screen(&mut left)?;

        let after = self.index()?;
        for path in put.iter().filter(|p| !after.contains_key(*p)) {
            left.add(path, no_such_name(path));
        }
        for path in found.keys().filter(|p| !after.contains_key(*p) && !ignored_files.contains(p.as_slice())) {
            left.add(path, "git did not list it: it is new since this look began, or git can't reach it");
        }
        if let Some((path, _)) = after.iter().find(|(p, e)| e.0 == "160000" && before.get(*p) != Some(e)) {
            return Err(Fault::Moving(format!("`{}` became a repository", RawPath(path.clone()))));
        }
        let tree = self.git("write the tree").arg("write-tree").line()?;
        Ok((tree, left.into_list()))
    }

    /// Takes the index's word away about every file that may have changed since the last look without a trace, and keeps git
    /// from reading huge ones. Those are returned.
    fn distrust(
        &self,
        before: &BTreeMap<Vec<u8>, Entry>,
        found: &BTreeMap<Vec<u8>, Seen>,
        trust: bool,
        left: &mut LeftOut,
    ) -> Result<BTreeSet<Vec<u8>>, Fault> {
        let last =
            std::fs::read_to_string(self.places.git.join("scan")).ok().and_then(|t| t.parse::<i64>().ok()).filter(|_| trust);
        let skipped = std::fs::read(self.places.git.join("skipped")).unwrap_or_default();
        let skipped: BTreeSet<&[u8]> = pieces(&skipped).collect();
        let mut huge = BTreeSet::new();
        let (mut reset, mut measured) = (Vec::new(), Vec::new());
        for (path, entry) in before {
            let Some(seen) = found.get(path).filter(|_| entry.0 != "160000") else { continue };
            if seen.weight.size > HUGE {
                huge.insert(path.clone());
            }
            if skipped.contains(path.as_slice()) || last.is_none_or(|last| seen.ctime >= last - SLACK) {
                reset.extend(entry_line(entry, path));
                if seen.weight.size > SMALL && seen.weight.size <= HUGE {
                    measured.push((path, &entry.1, seen.weight));
                }
            }
        }
        // Comparing reads files, so those that can't be what they were count as new ones do. The others were afforded before.
        let ids: String = measured.iter().map(|(_, id, _)| format!("{id}\n")).collect();
        let sizes = match ids.is_empty() {
            true => Vec::new(),
            false => self.git("measure files").args(["cat-file", "--batch-check=%(objectsize)"]).input(ids.into_bytes()).ok()?,
        };
        let sizes = String::from_utf8_lossy(&sizes);
        let other: Vec<_> = (measured.iter().zip(sizes.lines()))
            .filter(|((_, _, weight), size)| size.parse() != Ok(weight.size))
            .map(|((path, _, weight), _)| ((*path).clone(), *weight))
            .collect();
        let read: BTreeSet<Vec<u8>> = affordable(other.clone(), left).into_iter().collect();
        huge.extend(other.into_iter().map(|(path, _)| path).filter(|path| !read.contains(path)));
        if !reset.is_empty() {
            self.git("look at changed files").args(["update-index", "-z", "--index-info"]).input(reset).ok()?;
        }
        let list = lines(&huge.iter().cloned().collect::<Vec<_>>());
        if !huge.is_empty() {
            self.git("pass over huge files")
                .args(["update-index", "--assume-unchanged", "-z", "--stdin"])
                .input(list.clone())
                .ok()?;
        }
        self.write("skipped", &list)?;
        Ok(huge)
    }

    /// Puts files into the index. Where git refuses (an encoding that the tree's own attributes demand, say) the files at fault
    /// are found by halving.
    fn put(&self, paths: &[Vec<u8>], refused: &mut usize, left: &mut LeftOut) -> Result<(), Fault> {
        if paths.is_empty() {
            return Ok(());
        }
        if *refused >= REFUSED {
            for path in paths {
                left.add(path, "git could not store it, like too many before it");
            }
            return Ok(());
        }
        let out = self
            .git("read changed files")
            .args(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"])
            .input(lines(paths))
            .run()?;
        if out.code == 0 {
            return Ok(());
        }
        if out.stderr.contains("No space left on device") {
            out.checked("read changed files")?;
            return Ok(());
        }
        if let [path] = paths {
            *refused += 1;
            let said: String = out.stderr.lines().next().unwrap_or_default().chars().take(200).collect();
            left.add(path, &format!("git could not store it ({said})"));
            return Ok(());
        }
        let (a, b) = paths.split_at(paths.len() / 2);
        self.put(a, refused, left)?;
        self.put(b, refused, left)
    }

    /// A pack of what the tree holds beyond the base and what the host has.
    fn pack(&self, tree: &str) -> Result<File, Fault> {
        let io = |source| Fault::Io { doing: "pack the candidate", source };
        let path = self.places.git.join("candidate.pack");
        drop(std::fs::remove_file(&path));
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(io)?;
        drop(std::fs::remove_file(&path));
        let mut input = format!("{tree}\n^{}\n", self.base);
        for have in self.have {
            input.push_str(&format!("^{have}\n"));
        }
        self.git_on_objects("pack the candidate")
            // A large file is stored, not thought about: an agent may stand still for as long as this takes.
            .set("core.bigFileThreshold=16m")
            .set("pack.compression=1")
            .args(["pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"])
            .input(input.into_bytes())
            .write_to(file.try_clone().map_err(io)?)?
            .checked("pack the candidate")?;
        let mut file = file;
        io::Seek::rewind(&mut file).map_err(io)?;
        Ok(file)
    }
}

/// `dir/name`.
fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

pub(crate) fn lines(paths: &[Vec<u8>]) -> Vec<u8> {
    paths.iter().flat_map(|p| p.iter().copied().chain([0])).collect()
}
