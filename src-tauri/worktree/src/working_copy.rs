//! The working copy that has a branch checked out: found, judged, staged; seen through a git directory of Airlock's own, so
//! that none of the person's hooks, filters and drivers count.

use crate::config::Persons;
use crate::files::{self, SEALED};
use crate::git::{Git, GitError, pieces};
use crate::plan::{ApplyError, Plan, WorkingCopy, failed, path};
use crate::put;
use crate::shadow;
use model::path::RawPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files in a git directory that tell of something unfinished.
const UNFINISHED: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge is not finished"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is not finished"),
    ("REVERT_HEAD", "a revert is not finished"),
    ("BISECT_LOG", "a bisect is going on"),
    ("rebase-merge", "a rebase is not finished"),
    ("rebase-apply", "a rebase or `git am` is not finished"),
];

/// The working copy that has the plan's branch checked out, if any; an error where that can't move now.
pub(crate) fn checkout(plan: &Plan) -> Result<Option<WorkingCopy>, ApplyError> {
    let common = plan.common_dir();
    let full = plan.full_ref();
    let mut found = None;
    for (git_dir, top) in git_dirs(plan)? {
        for state in ["rebase-merge/head-name", "rebase-apply/head-name"] {
            if std::fs::read_to_string(git_dir.join(state)).is_ok_and(|name| name.trim() == full) {
                let top = top.unwrap_or(git_dir);
                return Err(ApplyError::Busy { top, what: format!("`{}` is being rebased", plan.branch) });
            }
        }
        if head(plan, &git_dir)?.as_deref() != Some(&full) {
            continue;
        }
        let bare =
            git_dir == common && Git::new("look at it").at(common).args(["rev-parse", "--is-bare-repository"]).line()? == "true";
        match top {
            _ if bare => {}
            // A linked worktree whose directory is gone has nothing to move along.
            Some(top) if !top.exists() && git_dir != common => {}
            Some(top) => {
                for (name, what) in UNFINISHED {
                    if git_dir.join(name).exists() {
                        return Err(ApplyError::Busy { top, what: what.to_owned() });
                    }
                }
                if found.is_some() {
                    return Err(ApplyError::Busy { top, what: "the branch is checked out in two working copies".to_owned() });
                }
                found = Some(WorkingCopy { top: crate::plan::raw(&top), git_dir: crate::plan::raw(&git_dir) });
            }
            None => {
                return Err(ApplyError::Busy {
                    top: git_dir,
                    what: "its working copy, which has the branch checked out, can't be found".to_owned(),
                });
            }
        }
    }
    Ok(found)
}

/// Every git directory that has a HEAD of its own, with its working copy where that is known.
fn git_dirs(plan: &Plan) -> Result<Vec<(PathBuf, Option<PathBuf>)>, ApplyError> {
    let common = plan.common_dir().to_owned();
    let main = if plan.named.git_dir() == common {
        Some(plan.named.top().to_owned())
    } else {
        common.parent().filter(|_| common.file_name().is_some_and(|n| n == ".git")).map(Path::to_owned)
    };
    let mut all = vec![(common.clone(), main)];
    match std::fs::read_dir(common.join("worktrees")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(&common.join("worktrees"))(e)),
        Ok(entries) => {
            for entry in entries {
                let dir = entry.map_err(failed(&common))?.path();
                let Ok(mut link) = std::fs::read(dir.join("gitdir")) else { continue };
                if link.last() == Some(&b'\n') {
                    link.pop();
                }
                let top = dir.join(Path::new(std::ffi::OsStr::from_bytes(&link))).parent().map(Path::to_owned);
                all.push((dir, top));
            }
        }
    }
    Ok(all)
}

/// The ref that a HEAD names.
fn head(plan: &Plan, git_dir: &Path) -> Result<Option<String>, ApplyError> {
    if plan.reftable {
        let out = Git::new("read HEAD").at(git_dir).args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
        return Ok((out.code == 0).then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned()));
    }
    let text = std::fs::read_to_string(git_dir.join("HEAD")).map_err(failed(&git_dir.join("HEAD")))?;
    Ok(text.strip_prefix("ref:").map(|r| r.trim().to_owned()))
}

/// The plan's working copy, seen through a git directory of Airlock's own.
pub(crate) struct Shadow<'a> {
    place: &'a Path,
    plan: &'a Plan,
}

impl<'a> Shadow<'a> {
    /// Makes the git directory.
    pub(crate) fn make(place: &'a Path, plan: &'a Plan, persons: &Persons) -> Result<Self, ApplyError> {
        let dir = place.join("shadow");
        shadow::make(&dir, persons).map_err(failed(&dir))?;
        Ok(Self { place, plan })
    }

    /// One that was made before.
    pub(crate) fn of(place: &'a Path, plan: &'a Plan) -> Self {
        Self { place, plan }
    }

    fn git(&self, doing: &'static str) -> Git<'a> {
        Git::new(doing)
            .at(&self.place.join("shadow"))
            .objects(&self.place.join("objects"))
            .alternates(&[self.plan.common_dir().join("objects")])
    }

    /// Puts the exit's objects into the person's repository.
    pub(crate) fn send_objects(&self) -> Result<(), ApplyError> {
        let pack = self.place.join("new.pack");
        let bytes = match std::fs::read(&pack) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed(&pack))?,
        };
        let count = bytes.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        let git = Git::new("add the objects")
            .at(&self.place.join("shadow"))
            .objects(&self.plan.common_dir().join("objects"))
            .time(crate::git::LONG)
            .input(bytes);
        // Unpacking skips what is there; above some thousand objects one pack is kinder to the repository.
        if count <= 2_000 {
            git.args(["unpack-objects", "-q"]).ok()?
        } else {
            git.args(["index-pack", "--stdin"]).ok()?
        };
        Ok(())
    }

    fn top(&self) -> &'a Path {
        self.plan.checkout.as_ref().map_or(Path::new("/nonexistent"), WorkingCopy::top)
    }

    fn here(&self, doing: &'static str) -> Git<'a> {
        self.git(doing).tree(self.top()).index(&self.place.join("index"))
    }

    /// Takes a copy of the working copy's index.
    pub(crate) fn copy_index(&self) -> Result<(), ApplyError> {
        let Some(copy) = &self.plan.checkout else { return Ok(()) };
        let index = self.place.join("index");
        if !shadow::copy_index(copy.git_dir(), &self.place.join("shadow"), &index).map_err(failed(copy.git_dir()))? {
            self.here("make an index").args(["read-tree", "--empty"]).ok()?;
        }
        Ok(())
    }

    /// Refuses files that the person's own filters would convert: Airlock does not run them.
    pub(crate) fn unfiltered(&self, filters: &[String]) -> Result<(), ApplyError> {
        let paths: Vec<u8> = self.plan.files.iter().flat_map(|f| f.path.as_bytes().iter().copied().chain([0])).collect();
        let out = self.here("read attributes").args(["check-attr", "-z", "--stdin", "filter"]).input(paths).ok()?;
        // Empty values don't occur, so three pieces make a record.
        let all: Vec<&[u8]> = pieces(&out).collect();
        let bad = |r: &[&[u8]]| match r {
            [path, _, value] if filters.iter().any(|f| f.as_bytes() == *value) => Some((
                RawPath::from(*path),
                format!("needs your filter `{}`, which Airlock does not run", String::from_utf8_lossy(value)),
            )),
            _ => None,
        };
        self.not_clean(all.chunks(3).filter_map(bad).collect())
    }

    /// Checks that index and working copy have the old content of every file that the plan touches, and nothing in the way.
    pub(crate) fn clean(&self) -> Result<(), ApplyError> {
        let mut bad: BTreeMap<RawPath, String> = BTreeMap::new();
        let list = self.here("list the index").args(["ls-files", "-s", "-v", "-z"]).ok()?;
        let mut index: BTreeMap<&[u8], Vec<&str>> = BTreeMap::new();
        for piece in pieces(&list) {
            let Some(tab) = piece.iter().position(|b| *b == b'\t') else { continue };
            if let Ok(head) = std::str::from_utf8(&piece[..tab]) {
                index.entry(&piece[tab + 1..]).or_default().push(head);
            }
        }
        for file in &self.plan.files {
            let entries = index.get(file.path.as_bytes()).map_or(&[][..], Vec::as_slice);
            let wanted = format!("H {:06o} {} 0", file.old_mode, file.old_id);
            let why = match entries {
                [] if file.old_mode == 0 => continue,
                [one] if *one == wanted => continue,
                [one] if one.starts_with('S') => "outside the sparse checkout",
                [one] if one.starts_with(|c: char| c.is_ascii_lowercase()) => "marked as assumed unchanged",
                [] => "removed in the index",
                [_] => "staged with other content",
                _ => "in conflict",
            };
            bad.insert(file.path.clone(), why.to_owned());
        }
        let refresh = self.here("compare the working copy").args(["update-index", "-q", "--refresh"]).run()?;
        if refresh.code > 1 {
            refresh.checked("compare the working copy")?;
        }
        let differs = self
            .here("compare the working copy")
            .args(["diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all", "--no-ext-diff", "--no-textconv"])
            .ok()?;
        let differs: BTreeSet<&[u8]> = pieces(&differs).filter(|p| !p.starts_with(b":")).collect();
        for file in self.plan.files.iter().filter(|f| differs.contains(f.path.as_bytes())) {
            bad.entry(file.path.clone()).or_insert_with(|| "changed".to_owned());
        }
        let root = files::open_dir(self.top()).map_err(failed(self.top()))?;
        let leaving: BTreeSet<&[u8]> = self.plan.files.iter().filter(|f| f.new_mode == 0).map(|f| f.path.as_bytes()).collect();
        for file in self.plan.files.iter().filter(|f| f.old_mode == 0) {
            if in_the_way(&root, file.path.as_bytes(), &leaving).map_err(failed(&self.top().join(path(&file.path))))? {
                bad.entry(file.path.clone()).or_insert_with(|| "an untracked file is there".to_owned());
            }
        }
        self.not_clean(bad.into_iter().collect())
    }

    fn not_clean(&self, paths: Vec<(RawPath, String)>) -> Result<(), ApplyError> {
        if paths.is_empty() {
            return Ok(());
        }
        Err(ApplyError::NotClean { branch: self.plan.branch.clone(), top: self.top().to_owned(), paths })
    }

    /// Puts what will be written aside: the files as they are under `old`, as they will be under `new`, and the new index.
    pub(crate) fn stage(&self) -> Result<(), ApplyError> {
        let (old, new, index) = (self.place.join("old"), self.place.join("new"), self.place.join("index.new"));
        let root = files::open_dir(self.top()).map_err(failed(self.top()))?;
        let kept = files::open_dir(&old).map_err(failed(&old))?;
        for file in self.plan.files.iter().filter(|f| f.old_mode != 0) {
            put::keep(&root, &file.path, &kept).map_err(failed(&self.top().join(path(&file.path))))?;
        }
        std::fs::copy(self.place.join("index"), &index).map_err(failed(&index))?;
        let mut lines = Vec::new();
        for gone in [true, false] {
            for file in self.plan.files.iter().filter(|f| (f.new_mode == 0) == gone) {
                lines.extend(format!("{:o} {}\t", file.new_mode, file.new_id).bytes());
                lines.extend(file.path.as_bytes());
                lines.push(0);
            }
        }
        // The stage stands for the working copy, so that attributes are those of the new index.
        let staged = |doing| self.git(doing).tree(&new).index(&index);
        staged("write the new index").args(["update-index", "--add", "-z", "--index-info"]).input(lines).ok()?;
        let coming = self.plan.files.iter().filter(|f| f.new_mode != 0);
        let paths: Vec<u8> = coming.flat_map(|f| f.path.as_bytes().iter().copied().chain([0])).collect();
        staged("write the new files").args(["checkout-index", "-q", "-z", "--stdin"]).input(paths).time(crate::git::LONG).ok()?;
        Ok(())
    }

    /// Puts the new index in place; the lock must be held.
    pub(crate) fn place_index(&self) -> Result<(), ApplyError> {
        let Some(copy) = &self.plan.checkout else { return Ok(()) };
        let new = self.place.join("index.new");
        let refresh = self
            .git("bring the index up to date")
            .tree(self.top())
            .index(&new)
            .args(["update-index", "-q", "--refresh"])
            .run()?;
        if refresh.code > 1 {
            refresh.checked("bring the index up to date")?;
        }
        let beside = copy.git_dir().join(format!("airlock-{}.index", self.plan.exit));
        let index = copy.git_dir().join("index");
        let bytes = std::fs::read(&new).map_err(failed(&new))?;
        drop(std::fs::remove_file(&beside));
        files::write_new(&beside, &bytes).map_err(failed(&beside))?;
        if let Ok(meta) = std::fs::metadata(&index) {
            std::fs::set_permissions(&beside, meta.permissions()).map_err(failed(&beside))?;
        }
        std::fs::File::open(&beside).and_then(|f| f.sync_all()).map_err(failed(&beside))?;
        std::fs::rename(&beside, &index).map_err(failed(&index))
    }
}

/// Whether something that the plan does not remove is where a new file goes.
fn in_the_way(root: &OwnedFd, new: &[u8], leaving: &BTreeSet<&[u8]>) -> io::Result<bool> {
    let mut at = 0;
    loop {
        let end = new[at..].iter().position(|b| *b == b'/').map(|i| at + i);
        let part = &new[..end.unwrap_or(new.len())];
        // Every parent was just seen to be a directory, so no link is on the way.
        let (dir, name) = part.iter().rposition(|b| *b == b'/').map_or((&b"."[..], part), |i| (&part[..i], &part[i + 1..]));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat2(root, dir, flags, Mode::empty(), SEALED)?;
        let kind = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            stat => FileType::from_raw_mode(stat?.st_mode),
        };
        match (kind, end) {
            (FileType::Directory, Some(end)) => at = end + 1,
            (FileType::Directory, None) => return holds_others(root, part, leaving),
            // A file that leaves makes room for a directory.
            _ => return Ok(!leaving.contains(part)),
        }
    }
}

/// Whether a directory holds anything that does not leave.
fn holds_others(root: &OwnedFd, dir: &[u8], leaving: &BTreeSet<&[u8]>) -> io::Result<bool> {
    let fd = rustix::fs::openat2(root, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), SEALED)?;
    for name in files::names(fd.as_fd())? {
        let path = [dir, b"/", name.as_bytes()].concat();
        let stat = rustix::fs::statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let others = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => holds_others(root, &path, leaving)?,
            _ => !leaving.contains(path.as_slice()),
        };
        if others {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes git's lock of the working copy's index; its content says whose it is, from the first moment.
pub(crate) fn lock_index(plan: &Plan) -> Result<(), ApplyError> {
    let Some(copy) = &plan.checkout else { return Ok(()) };
    let (beside, lock) = (copy.git_dir().join(format!("airlock-{}.lock", plan.exit)), copy.git_dir().join("index.lock"));
    drop(std::fs::remove_file(&beside));
    files::write_new(&beside, lock_text(plan).as_bytes()).map_err(failed(&beside))?;
    let linked = std::fs::hard_link(&beside, &lock);
    drop(std::fs::remove_file(&beside));
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(ApplyError::Busy { top: copy.top().to_owned(), what: format!("git holds `{}`", lock.display()) })
        }
        other => other.map_err(failed(&lock)),
    }
}

/// Whether the index lock is this exit's.
pub(crate) fn holds_lock(plan: &Plan) -> bool {
    let lock = plan.checkout.as_ref().map(|c| c.git_dir().join("index.lock"));
    lock.and_then(|l| std::fs::read(l).ok()).is_some_and(|text| text == lock_text(plan).as_bytes())
}

/// Gives the index lock back, where it is this exit's, and removes what lies beside it.
pub(crate) fn unlock_index(plan: &Plan) -> Result<(), ApplyError> {
    let Some(copy) = &plan.checkout else { return Ok(()) };
    for name in [format!("airlock-{}.lock", plan.exit), format!("airlock-{}.index", plan.exit)] {
        drop(std::fs::remove_file(copy.git_dir().join(name)));
    }
    if holds_lock(plan) {
        let lock = copy.git_dir().join("index.lock");
        std::fs::remove_file(&lock).map_err(failed(&lock))?;
    }
    Ok(())
}

fn lock_text(plan: &Plan) -> String {
    format!("airlock exit {}\n", plan.exit)
}

/// Moves the branch from `from` to `to`, if it stands at `from`. Git keeps the exit's `lock` until it is done, so that whoever
/// recovers a killed exit waits for a move that is still under way.
pub(crate) fn move_branch(
    plan: &Plan,
    lock: &std::fs::File,
    from: Option<&model::id::CommitId>,
    to: Option<&model::id::CommitId>,
) -> Result<(), ApplyError> {
    let zero = "0".repeat(40);
    let id = |c: Option<&model::id::CommitId>| c.map_or(zero.clone(), |c| c.as_str().to_owned());
    // Through the working copy's own git directory, so that its HEAD's reflog tells of it too.
    let git_dir = plan.checkout.as_ref().map_or(plan.common_dir(), WorkingCopy::git_dir);
    let git = Git::new("move the branch").at(git_dir).holding(lock)?.by(&plan.who.0, &plan.who.1).args([
        "update-ref",
        "-m",
        &plan.reflog,
    ]);
    let out = match to {
        Some(to) => git.args([&plan.full_ref(), to.as_str(), &id(from)]).run()?,
        None => git.args(["-d", &plan.full_ref(), &id(from)]).run()?,
    };
    if out.code == 0 {
        return Ok(());
    }
    let found = plan.standing()?;
    if found.as_ref() != from {
        return Err(ApplyError::BranchMoved { branch: plan.branch.clone(), expected: from.cloned(), found });
    }
    match out.checked("move the branch") {
        Err(e) => Err(e.into()),
        Ok(_) => Err(GitError::Unknown { doing: "move the branch" }.into()),
    }
}
