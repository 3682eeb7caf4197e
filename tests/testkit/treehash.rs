//! What "nothing changed" means: one line for each entry of a tree, and one hash over all lines.
//!
//! Outside a `.git`: path, type, mode, owner, modification time, extended attributes, content or link target. Inside a `.git`
//! (a directory or a file of that name, at any depth): path, type, mode, content or link target; nothing that only a clock sets.

use rustix::fs::{lgetxattr, llistxattr};
use sha2::{Digest, Sha256};
use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A tree, hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHash {
    /// One line an entry, in the order of the paths' bytes; each ends with the path, escaped.
    pub lines: Vec<String>,
    /// SHA-256 over all lines, in hexadecimal.
    pub total: String,
}

impl TreeHash {
    /// What differs between two hashes of one tree: lines that only `self` has (`-`) and that only `after` has (`+`).
    pub fn difference(&self, after: &TreeHash) -> Vec<String> {
        let gone = self.lines.iter().filter(|l| !after.lines.contains(l)).map(|l| format!("- {l}"));
        let new = after.lines.iter().filter(|l| !self.lines.contains(l)).map(|l| format!("+ {l}"));
        gone.chain(new).collect()
    }
}

/// Hashes the tree at `root`, itself included; links are never followed, special files never opened.
///
/// # Errors
/// The first entry that can't be read, with its path.
pub fn treehash(root: &Path) -> io::Result<TreeHash> {
    let mut found = vec![];
    walk(root, Path::new(""), false, &mut found)?;
    found.sort();
    let lines: Vec<String> = found.into_iter().map(|(_, line)| line).collect();
    let mut all = Sha256::new();
    for line in &lines {
        all.update(line.as_bytes());
        all.update(b"\n");
    }
    Ok(TreeHash { lines, total: hex(&all.finalize()) })
}

fn walk(root: &Path, below: &Path, in_git: bool, found: &mut Vec<(Vec<u8>, String)>) -> io::Result<()> {
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    let about = path.symlink_metadata().map_err(|e| named(&path, &e))?;
    let in_git = in_git || below.file_name() == Some(OsStr::new(".git"));
    let line = describe(&path, below, &about, in_git).map_err(|e| named(&path, &e))?;
    found.push((below.as_os_str().as_bytes().to_vec(), line));
    if about.is_dir() {
        for entry in path.read_dir().map_err(|e| named(&path, &e))? {
            let entry = entry.map_err(|e| named(&path, &e))?;
            walk(root, &below.join(entry.file_name()), in_git, found)?;
        }
    }
    Ok(())
}

fn describe(path: &Path, below: &Path, about: &Metadata, in_git: bool) -> io::Result<String> {
    let kind = about.file_type();
    let (letter, content) = if kind.is_dir() {
        ('d', String::new())
    } else if kind.is_symlink() {
        ('l', escape(path.read_link()?.as_os_str().as_bytes()))
    } else if kind.is_file() {
        ('f', hash_file(path)?)
    } else {
        let letter = if kind.is_fifo() {
            'p'
        } else if kind.is_socket() {
            's'
        } else if kind.is_block_device() {
            'b'
        } else {
            'c'
        };
        (letter, format!("{:x}", about.rdev()))
    };
    let mut line = format!("{letter} {:04o}", about.mode() & 0o7777);
    if !in_git {
        let stamp = if about.mtime_nsec() == 0 {
            format!("{}", about.mtime())
        } else {
            format!("{}.{:09}", about.mtime(), about.mtime_nsec())
        };
        let _ = write!(line, " {}:{} {stamp}{}", about.uid(), about.gid(), xattrs(path)?);
    }
    if !content.is_empty() {
        let _ = write!(line, " {content}");
    }
    let _ = write!(line, " ./{}", escape(below.as_os_str().as_bytes()));
    Ok(line)
}

fn hash_file(path: &Path) -> io::Result<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// ` name=hash` for each extended attribute, sorted; empty where the file system has none.
fn xattrs(path: &Path) -> io::Result<String> {
    let mut names = vec![0_u8; 64 * 1024];
    let n = match llistxattr(path, &mut names[..]) {
        Ok(n) => n,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => return Ok(String::new()),
        Err(e) => return Err(e.into()),
    };
    let mut list: Vec<String> = vec![];
    for name in names[..n].split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let mut value = vec![0_u8; 64 * 1024];
        let n = lgetxattr(path, name, &mut value[..])?;
        list.push(format!(" {}={}", escape(name.to_bytes()), hex(&Sha256::digest(&value[..n]))));
    }
    list.sort();
    Ok(list.concat())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", PathBuf::from(escape(path.as_os_str().as_bytes())).display()))
}

/// Names are hostile: only printable ASCII stays, a space or backslash would blur the columns.
fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        if b.is_ascii_graphic() && *b != b'\\' {
            out.push(char::from(*b));
        } else {
            let _ = write!(out, "\\x{b:02x}");
        }
        out
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git/refs")).unwrap();
        fs::write(dir.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.path().join("a file"), "one\n").unwrap();
        symlink("a file", dir.path().join("link")).unwrap();
        dir
    }

    /// A change that each hash must see (or not), as a sentence and what it does to the tree.
    fn seen(change: impl FnOnce(&Path)) -> bool {
        let dir = tree();
        let before = treehash(dir.path()).unwrap();
        change(dir.path());
        let after = treehash(dir.path()).unwrap();
        assert_eq!(
            before.total == after.total,
            before.difference(&after).is_empty(),
            "the total and the lines tell the same story"
        );
        before.total != after.total
    }

    fn touch(path: &Path) {
        let time = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::open(path).unwrap().set_times(time).unwrap();
    }

    #[test]
    fn an_untouched_tree_keeps_its_hash() {
        assert!(!seen(|_| ()), "reading a tree changes nothing in it");
    }

    #[test]
    fn everything_outside_dot_git_counts() {
        assert!(seen(|d| fs::write(d.join("a file"), "two\n").unwrap()), "content");
        assert!(seen(|d| fs::set_permissions(d.join("a file"), fs::Permissions::from_mode(0o600)).unwrap()), "mode");
        assert!(seen(|d| touch(&d.join("a file"))), "modification time");
        assert!(seen(|d| fs::write(d.join("new"), "").unwrap()), "a new file");
        assert!(seen(|d| fs::remove_file(d.join("link")).unwrap()), "a removed link");
        assert!(
            seen(|d| {
                fs::remove_file(d.join("link")).unwrap();
                symlink("elsewhere", d.join("link")).unwrap();
                touch(d);
            }),
            "a link's target"
        );
    }

    #[test]
    fn extended_attributes_count_where_the_file_system_has_them() {
        let probe = tempfile::NamedTempFile::new().unwrap();
        let set = |p: &Path| rustix::fs::setxattr(p, "user.airlock", b"1", rustix::fs::XattrFlags::empty());
        match set(probe.path()) {
            Ok(()) => assert!(seen(|d| set(&d.join("a file")).unwrap()), "an extended attribute"),
            Err(e) => {
                assert_eq!(e, rustix::io::Errno::OPNOTSUPP, "only a file system without them excuses this test");
                println!("not tested here: user extended attributes");
            }
        }
    }

    #[test]
    fn inside_dot_git_content_and_mode_count_but_no_clock() {
        assert!(seen(|d| fs::write(d.join(".git/HEAD"), "ref: refs/heads/other\n").unwrap()), "HEAD");
        assert!(seen(|d| fs::write(d.join(".git/refs/x"), "").unwrap()), "a new ref");
        assert!(seen(|d| fs::set_permissions(d.join(".git/HEAD"), fs::Permissions::from_mode(0o755)).unwrap()), "a mode");
        assert!(!seen(|d| touch(&d.join(".git/HEAD"))), "a time inside .git is no change");
    }

    #[test]
    fn special_files_are_named_and_never_opened() {
        let dir = tree();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let hash = treehash(dir.path()).unwrap();
        assert!(hash.lines.iter().any(|l| l.starts_with("p 0600") && l.ends_with(" ./pipe")), "{:?}", hash.lines);
    }

    #[test]
    fn a_missing_tree_is_an_error_that_names_it() {
        let error = treehash(Path::new("/nonexistent/tree")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/tree"), "{error}");
    }
}
