//! Configuration of tools, written anew for a jail: which registry, which mirror, which name, and no secret or program.
//!
//! Each reader takes a person's file as text and writes another from an allowlist of keys, whose values must be of a plain
//! kind. Whatever is not listed, or not of its kind, is not there: tokens, passwords, credential helpers, proxies, aliases,
//! hooks, references to variables, and every key that is not known here.

use std::path::{Path, PathBuf};

mod cargo;
mod gem;
mod git;
mod go;
mod gradle;
mod ini;
mod maven;
mod npm;
mod pip;
#[cfg(test)]
mod tests;
mod uv;
mod value;
mod yaml;
mod yarn;

/// Largest file that is read, in bytes.
pub const LARGEST: u64 = 256 << 10;

/// From a person's text to the jail's.
type Reader = fn(&str) -> String;

/// A file of the person's below the home, and what reads it.
const FILES: &[(&str, Reader)] = &[
    (".npmrc", npm::anew),
    (".config/pnpm/rc", npm::anew),
    (".yarnrc", yarn::classic),
    (".yarnrc.yml", yarn::berry),
    (".pip/pip.conf", pip::anew),
    (".config/pip/pip.conf", pip::anew),
    (".config/uv/uv.toml", uv::anew),
    (".cargo/config.toml", cargo::anew),
    (".cargo/config", cargo::anew),
    (".config/go/env", go::anew),
    (".m2/settings.xml", maven::anew),
    (".gradle/gradle.properties", gradle::anew),
    (".gemrc", gem::anew),
];

/// The machine's own files of such tools, which lie in directories that every jail shows.
const SYSTEM: &[(&str, Reader)] = &[("/usr/etc/npmrc", npm::anew), ("/usr/local/etc/npmrc", npm::anew)];

/// A private home's files: where each lies below the home, and what is in it. `read` gives the text of a file of the person's,
/// by its absolute path, and nothing where there is none. Files of which nothing is left are not there.
pub fn of_home(home: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<(PathBuf, String)> {
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    let mut add = |at: PathBuf, text: String| {
        let new = !found.iter().any(|(other, _)| *other == at);
        if new && !text.trim().is_empty() {
            found.push((at, text));
        }
    };
    for (file, anew) in FILES {
        if let Some(text) = read(&home.join(file)) {
            add(file.into(), anew(&text));
        }
    }
    // npm reads a second file where it installs programs, if that is in the home.
    if let Some(prefix) = crate::tools::npm_prefix(home, read)
        && let (Ok(below), Some(text)) = (prefix.strip_prefix(home), read(&prefix.join("etc/npmrc")))
    {
        add(below.join("etc/npmrc"), npm::anew(&text));
    }
    for (at, text) in git::of_home(home, read) {
        add(at, text);
    }
    found
}

/// What is to be seen instead of the machine's own files, by where they really lie.
pub(crate) fn of_machine() -> Vec<(PathBuf, String)> {
    let mut out: Vec<(PathBuf, String)> = Vec::new();
    for (path, anew) in SYSTEM {
        let Some(place) = crate::real::real(Path::new(path)).filter(|p| p.is_file() && p.starts_with("/usr")) else { continue };
        // What is too large to be read is covered all the same.
        let small = place.metadata().is_ok_and(|m| m.len() <= LARGEST);
        let text = if small { std::fs::read_to_string(&place).unwrap_or_default() } else { String::new() };
        if !out.iter().any(|(p, _)| *p == place) {
            out.push((place, anew(&text)));
        }
    }
    out
}
