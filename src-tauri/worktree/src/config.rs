//! Git configuration: what is copied from the person's, and how Airlock writes its own.

use crate::git::{Git, GitError, pieces};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Keys that change how content is stored and compared, and can start nothing.
const INERT: [&str; 8] = [
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.ignorecase",
    "core.symlinks",
    "core.checkroundtripencoding",
    "core.sharedrepository",
];

/// Person's excludes and attributes are copied up to this size.
const FILE: u64 = 1 << 20;

/// What is taken over from the person's configuration.
#[derive(Debug, Default)]
pub(crate) struct Persons {
    /// Inert keys with their values, lower case.
    pub(crate) inert: Vec<(String, String)>,
    /// `user.name`.
    pub(crate) name: Option<String>,
    /// `user.email`.
    pub(crate) email: Option<String>,
    /// Their exclude patterns: `core.excludesFile`, then `info/exclude`.
    pub(crate) excludes: Vec<u8>,
    /// Their attributes: `core.attributesFile`, then `info/attributes`.
    pub(crate) attributes: Vec<u8>,
    /// Names of filters that have a program.
    pub(crate) filters: Vec<String>,
}

/// Reads the configuration that git would use in the person's repository.
pub(crate) fn persons(top: &Path, git_dir: &Path, common_dir: &Path, home: &Path) -> Result<Persons, GitError> {
    let git = |doing| Git::new(doing).at(git_dir).persons_config(home);
    let list = git("read the configuration").args(["config", "--list", "-z", "--includes"]).ok()?;
    let mut found = Persons::default();
    for entry in pieces(&list) {
        let mut halves = entry.splitn(2, |b| *b == b'\n');
        let (Some(key), value) = (halves.next(), halves.next().unwrap_or(b"true")) else { continue };
        let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else { continue };
        match key {
            "user.name" => found.name = Some(value.to_owned()).filter(|v| !v.trim().is_empty()),
            "user.email" => found.email = Some(value.to_owned()).filter(|v| !v.trim().is_empty()),
            _ if INERT.contains(&key) => {
                found.inert.retain(|(k, _)| k != key);
                found.inert.push((key.to_owned(), value.to_owned()));
            }
            _ => {
                let filter = key.strip_prefix("filter.").and_then(|k| k.rsplit_once('.'));
                if let Some((name, "clean" | "smudge" | "process")) = filter {
                    found.filters.push(name.to_owned());
                }
            }
        }
    }
    let settings = |key: &str, default: &str| -> Result<PathBuf, GitError> {
        let out = git("read the configuration").args(["config", "--type=path", "--get", key]).run()?;
        if out.code == 0 && out.stdout.len() > 1 {
            return Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&out.stdout[..out.stdout.len() - 1])));
        }
        let config =
            std::env::var_os("XDG_CONFIG_HOME").filter(|d| !d.is_empty()).map_or_else(|| home.join(".config"), PathBuf::from);
        Ok(config.join("git").join(default))
    };
    for (into, key, default, info) in [
        (&mut found.excludes, "core.excludesFile", "ignore", "info/exclude"),
        (&mut found.attributes, "core.attributesFile", "attributes", "info/attributes"),
    ] {
        for path in [settings(key, default)?, common_dir.join(info)] {
            into.extend(small_file(&top.join(path)));
            if into.last().is_some_and(|b| *b != b'\n') {
                into.push(b'\n');
            }
        }
    }
    Ok(found)
}

/// A regular file's content; nothing where it is none, too large or not readable. Never waits for a FIFO.
fn small_file(path: &Path) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else { return Vec::new() };
    let mut bytes = Vec::new();
    let regular = file.metadata().is_ok_and(|m| m.is_file() && m.len() <= FILE);
    if !regular || file.take(FILE).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    bytes
}

/// A configuration file being written.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// Adds `section.key = value`; `key` is of Airlock's own making, `value` may hold any byte.
    pub(crate) fn set(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        let (section, name) = key.split_once('.').unwrap_or(("airlock", key));
        self.0.extend(format!("[{section}]\n\t{name} = \"").bytes());
        for &b in value.as_ref() {
            match b {
                b'"' | b'\\' => self.0.extend([b'\\', b]),
                b'\n' => self.0.extend(b"\\n"),
                b'\t' => self.0.extend(b"\\t"),
                0 => {}
                _ => self.0.push(b),
            }
        }
        self.0.extend(b"\"\n");
        self
    }

    /// Adds the person's inert keys.
    pub(crate) fn inert(mut self, persons: &Persons) -> Self {
        for (key, value) in &persons.inert {
            self = self.set(key, value);
        }
        self
    }

    /// What every git directory of Airlock's has.
    pub(crate) fn own() -> Self {
        Self::default()
            .set("core.repositoryformatversion", "0")
            .set("core.fsmonitor", "false")
            .set("core.untrackedCache", "false")
            .set("core.splitIndex", "false")
            .set("core.trustctime", "true")
            .set("core.protectHFS", "true")
            .set("core.protectNTFS", "true")
            .set("diff.ignoreSubmodules", "all")
            .set("gc.auto", "0")
            .set("maintenance.auto", "false")
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn values_survive_gits_own_reader() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        for value in ["plain", "a \"b\" \\c", "line\nline\ttab # ; x", " edge "] {
            std::fs::write(&file, Text::default().set("core.worktree", value).into_bytes()).unwrap();
            let read = Git::new("read").args(["config", "--file"]).arg(&file).args(["-z", "core.worktree"]).ok().unwrap();
            assert_eq!(&read[..read.len() - 1], value.as_bytes(), "git reads back what was written");
        }
    }
}
