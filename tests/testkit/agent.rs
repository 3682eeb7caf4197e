//! Programs of other people that tests run: installed by npm from a committed lock file (which holds each package's integrity
//! hash) into a cache outside the checkout, once.

use crate::{Sandbox, program::checkout};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the coding agent, as pinned in `tests/fixtures/agents/claude-code/package.json`.
pub fn claude_version() -> String {
    let text = std::fs::read_to_string(checkout().join("tests/fixtures/agents/claude-code/package.json")).expect("committed");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["dependencies"]["@anthropic-ai/claude-code"].as_str().expect("pinned").to_owned()
}

/// The native program `claude`, in the cache.
pub fn claude() -> PathBuf {
    let dir = npm_cache("claude-code", &checkout().join("tests/fixtures/agents/claude-code"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = dir.join(format!("node_modules/@anthropic-ai/claude-code-linux-{arch}/claude"));
    assert!(program.is_file(), "{} is missing: remove {} and run again", program.display(), dir.display());
    program
}

impl Sandbox {
    /// Installs the coding agent in this person's home, laid out as its own installer does:
    /// `~/.local/bin/claude` → `~/.local/share/claude/versions/VERSION`. Answers with the former.
    pub fn install_claude(&self) -> PathBuf {
        let version = self.home().join(".local/share/claude/versions").join(claude_version());
        let bin = self.home().join(".local/bin");
        std::fs::create_dir_all(version.parent().expect("below the home")).expect("the home can be written");
        std::fs::create_dir_all(&bin).expect("the home can be written");
        let cached = claude();
        // A hard link saves some hundred MB where cache and home are on one file system.
        if std::fs::hard_link(&cached, &version).is_err() {
            std::fs::copy(&cached, &version).unwrap_or_else(|e| panic!("{}: {e}", version.display()));
        }
        let link = bin.join("claude");
        symlink(&version, &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
        link
    }
}

/// `npm ci` of a directory with `package.json` and `package-lock.json` in the cache; answers with where. Two tests at once wait
/// for each other; an install that was cut off is made anew.
pub fn npm_cache(name: &str, from: &Path) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| home.map(|h| h.join(".cache")));
    let cache = cache.expect("XDG_CACHE_HOME or HOME is set").join("airlock-tests");
    std::fs::create_dir_all(&cache).unwrap_or_else(|e| panic!("{}: {e}", cache.display()));
    let lock = File::create(cache.join(format!("{name}.lock"))).expect("the cache can be written");
    lock.lock().expect("a file can be locked");
    let dir = cache.join(name);
    let wanted = std::fs::read(from.join("package-lock.json")).expect("committed");
    if std::fs::read(dir.join("installed")).is_ok_and(|have| have == wanted) {
        return dir;
    }
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    }
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(from.join(file), dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    let npm = Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&dir).output();
    let npm = npm.expect("npm is installed");
    assert!(
        npm.status.success(),
        "npm could not install {name} with the hashes of {}:\n{}",
        from.display(),
        String::from_utf8_lossy(&npm.stderr)
    );
    std::fs::write(dir.join("installed"), wanted).expect("the cache can be written");
    dir
}
