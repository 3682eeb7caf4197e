//! What a candidate is spared: content that is too much to read while an agent stands still, and content or names that git
//! refuses, of which one alone would make everything else unreviewable.

use crate::git::pieces;
use crate::inside::{Entry, Fault, Keeper, REFUSED, lines};
use crate::left_out::LeftOut;
use std::fs::File;

/// A new or changed file above this is left out.
const LARGE: u64 = 256 << 20;
/// New and changed files together, smallest first, up to this; what is larger is left out.
const TOGETHER: u64 = 512 << 20;
/// Files up to this are neither called sparse nor measured twice.
pub(crate) const SMALL: u64 = 16 << 20;

/// A file that would be read, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes that reading it gives.
    pub(crate) size: u64,
    /// Bytes of it that are no hole, as far as that was looked at.
    pub(crate) stored: u64,
}

/// The files that are read, in order of their paths; the others are named with size and reason.
pub(crate) fn affordable(mut files: Vec<(Vec<u8>, Weight)>, left: &mut LeftOut) -> Vec<Vec<u8>> {
    files.sort_by(|(a, x), (b, y)| x.size.cmp(&y.size).then_with(|| a.cmp(b)));
    let mut together = 0;
    let mut taken = Vec::new();
    for (path, Weight { size, stored }) in files {
        let why = if size > LARGE {
            "and files above 256 MiB are not read"
        } else if size > SMALL && stored < size / 8 {
            "of which most is a hole (a sparse file)"
        } else if together + size > TOGETHER {
            "and changed files of 512 MiB together are read, smallest first"
        } else {
            together += size;
            taken.push(path);
            continue;
        };
        left.add(&path, &format!("{} MiB, {why}: its version before, if any, is kept", size >> 20));
    }
    taken.sort();
    taken
}

/// Why git has no file of this name.
pub(crate) fn no_such_name(path: &[u8]) -> &'static str {
    let passes_for_git = |part: &[u8]| {
        let text: String = String::from_utf8_lossy(part).chars().filter(|c| !ignored_by_hfs(*c)).collect();
        let text = text.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_ascii_lowercase();
        text == ".git" || text == "git~1"
    };
    if path.split(|b| matches!(b, b'/' | b'\\')).any(passes_for_git) {
        "git stores no file of this name: some file systems take it for `.git`"
    } else {
        "git stores no file of this name"
    }
}

/// Characters that do not count in names of macOS's file system, as git has them.
fn ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Whether a name could be one of a file that git reads settings from, by any of the spellings that it knows; rather too many.
fn is_settings(path: &[u8]) -> bool {
    let text: String = String::from_utf8_lossy(path).chars().filter(|c| !ignored_by_hfs(*c)).collect();
    let name = text.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["gitm", "gita", "gi7"].iter().any(|part| name.contains(part))
}

/// A path of the index that differs from the base.
struct Differing {
    path: Vec<u8>,
    new: Entry,
    old: Option<Entry>,
}

impl Keeper<'_> {
    /// Takes settings files out of the index again that the host's git would refuse; the base's version takes their place.
    pub(crate) fn screen(&self, left: &mut LeftOut) -> Result<(), Fault> {
        let raw = self
            .git("compare with the base")
            .args(["diff-index", "--cached", "--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=none", self.base])
            .ok()?;
        let mut settings = Vec::new();
        let mut parts = pieces(&raw);
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let head = String::from_utf8_lossy(head);
            let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old, new, _] = words.as_slice() else { continue };
            if is_settings(path) && new_mode.starts_with("10") {
                let old = Some((*old_mode, *old)).filter(|(mode, _)| mode.starts_with('1'));
                settings.push(Differing {
                    path: path.to_vec(),
                    new: ((*new_mode).to_owned(), (*new).to_owned()),
                    old: old.map(|(mode, id)| (mode.to_owned(), id.to_owned())),
                });
            }
        }
        let mut bad = Vec::new();
        self.refused(&settings, &mut 0, &mut bad)?;
        if bad.is_empty() {
            return Ok(());
        }
        let (mut gone, mut back) = (Vec::new(), Vec::new());
        for (file, said) in bad {
            left.add(&file.path, &format!("git refuses its content ({said}): its version at the start, if any, is kept"));
            match &file.old {
                Some(old) => back.extend(entry_line(old, &file.path)),
                None => gone.push(file.path.clone()),
            }
        }
        self.git("take back refused files").args(["update-index", "--force-remove", "-z", "--stdin"]).input(lines(&gone)).ok()?;
        self.git("take back refused files").args(["update-index", "-z", "--index-info"]).input(back).ok()?;
        Ok(())
    }

    /// The files that git refuses, found by halving, with what it said.
    fn refused<'d>(
        &self,
        files: &'d [Differing],
        count: &mut usize,
        bad: &mut Vec<(&'d Differing, String)>,
    ) -> Result<(), Fault> {
        if files.is_empty() {
            return Ok(());
        }
        if *count >= REFUSED {
            bad.extend(files.iter().map(|f| (f, "like too many before it".to_owned())));
            return Ok(());
        }
        let Some(said) = self.checked(files)? else { return Ok(()) };
        if let [file] = files {
            *count += 1;
            bad.push((file, said));
            return Ok(());
        }
        let (a, b) = files.split_at(files.len() / 2);
        self.refused(a, count, bad)?;
        self.refused(b, count, bad)
    }

    /// What git says against these files, by the check that the host makes: a pack of a tree of them alone.
    fn checked(&self, files: &[Differing]) -> Result<Option<String>, Fault> {
        const DOING: &str = "check settings files";
        let at = |name: &str| self.places.git.join(name);
        let io = |source| Fault::Io { doing: DOING, source };
        for name in ["screen.index", "screen.pack", "screen.idx"] {
            drop(std::fs::remove_file(at(name)));
        }
        let entries = files.iter().flat_map(|f| entry_line(&f.new, &f.path)).collect();
        let git = || self.git(DOING).index(&at("screen.index"));
        git().args(["update-index", "-z", "--index-info"]).input(entries).ok()?;
        let tree = git().arg("write-tree").line()?;
        self.git_on_objects(DOING)
            .args(["pack-objects", "--revs", "--stdout", "-q"])
            .input(format!("{tree}\n").into_bytes())
            .write_to(File::create_new(at("screen.pack")).map_err(io)?)?
            .checked(DOING)?;
        let out = self
            .git_on_objects(DOING)
            .args(["index-pack", "--strict", "-o"])
            .arg(at("screen.idx"))
            .arg(at("screen.pack"))
            .run()?;
        for name in ["screen.index", "screen.pack", "screen.idx"] {
            drop(std::fs::remove_file(at(name)));
        }
        if out.code == 0 {
            return Ok(None);
        }
        if out.stderr.contains("No space left on device") {
            out.checked(DOING)?;
            return Ok(None);
        }
        // "error: object ID: what is wrong"
        let line = out.stderr.lines().next().unwrap_or_default();
        let said =
            line.split_once(": ").and_then(|(_, rest)| rest.strip_prefix("object ")).and_then(|rest| rest.split_once(": "));
        Ok(Some(said.map_or(line, |(_, said)| said).chars().take(200).collect()))
    }
}

/// A line for `update-index --index-info`.
pub(crate) fn entry_line((mode, id): &Entry, path: &[u8]) -> Vec<u8> {
    [format!("{mode} {id} 0\t").as_bytes(), path, b"\0"].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn names(paths: &[&str]) -> Vec<Vec<u8>> {
        paths.iter().map(|p| p.as_bytes().to_vec()).collect()
    }

    #[test]
    fn small_files_are_read_first_and_the_rest_is_told() {
        let mut left = LeftOut::default();
        let full = |name: &str, size: u64| (name.as_bytes().to_vec(), Weight { size, stored: size });
        let mut files: Vec<_> = (0..3).map(|n| full(&format!("big{n}"), 200 << 20)).collect();
        files.push(full("huge", LARGE + 1));
        files.push((b"hole".to_vec(), Weight { size: 100 << 20, stored: 4096 }));
        files.push(full("z-source.rs", 10));
        assert_eq!(affordable(files, &mut left), names(&["big0", "big1", "z-source.rs"]));
        let told: Vec<String> = left.into_list().into_iter().map(|(p, why)| format!("{p}: {why}")).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("big2: 200 MiB") && told[0].contains("512 MiB together"), "{told:?}");
        assert!(told[1].starts_with("hole: 100 MiB") && told[1].contains("sparse"), "{told:?}");
        assert!(told[2].starts_with("huge: 256 MiB") && told[2].contains("above 256 MiB"), "{told:?}");
    }

    #[test]
    fn names_that_pass_for_git_are_called_so() {
        for name in
            [".git\u{200c}/x", "a/.g\u{200c}it/x", ".GIT/x", "git~1", "a\\.git/x", ".git ./x", ".git::$INDEX_ALLOCATION/x"]
        {
            assert!(no_such_name(name.as_bytes()).contains("take it for"), "{name}");
        }
        assert!(!no_such_name(b".gitignore/x").contains("take it for"));
    }

    #[test]
    fn every_spelling_of_a_settings_file_is_looked_at() {
        for name in
            [".gitmodules", "a/.GitModules ", "GITMOD~1", "gi7eba~1", ".gitattributes", "x\\.gitmodules", ".git\u{200c}modules"]
        {
            assert!(is_settings(name.as_bytes()), "{name}");
        }
        assert!(!is_settings(b".gitmodules/readme") && !is_settings(b"src/main.rs"));
    }
}
