//! The environment of a jail, composed and never inherited.

use super::{Grants, SYSTEM_PATH, authority, identity};
use crate::etc;
use jail_plan::{Raw, Step};
use model::run::RunSpec;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// `PATH`: the person's own order as far as it leads into what is shown, since it says which of several versions is in use; then
/// what else there is of tools and of the system.
pub(super) fn search_path(spec: &RunSpec, tools: &[Step], programs: &[PathBuf]) -> Vec<PathBuf> {
    let own = spec.tool_env.iter().find(|(k, _)| k == "PATH").map_or("", |(_, v)| v);
    let system: Vec<PathBuf> = std::env::split_paths(SYSTEM_PATH).collect();
    let shown = |p: &PathBuf| system.contains(p) || tools.iter().any(|t| p.starts_with(t.target().as_path()));
    let mut path: Vec<PathBuf> = Vec::new();
    for directory in std::env::split_paths(own).filter(shown).chain(programs.iter().cloned()).chain(system.clone()) {
        if !path.contains(&directory) {
            path.push(directory);
        }
    }
    path
}

pub(super) fn environment(
    spec: &RunSpec,
    grants: &Grants,
    path: &[PathBuf],
    of_tools: &[(String, String)],
    trusted: &Path,
) -> Vec<(Raw, Raw)> {
    let uid = identity().uid;
    let path = path.iter().map(|p| p.as_os_str().as_bytes()).collect::<Vec<_>>().join(&b':');
    let mut env: Vec<(Raw, Raw)> = Vec::new();
    let mut set = |key: &str, value: Raw| {
        env.retain(|(k, _)| k.as_bytes() != key.as_bytes());
        env.push((Raw::from(key), value));
    };
    set("LANG", Raw::from("C.UTF-8"));
    if let model::run::Stdio::Terminal { .. } = spec.stdio {
        set("TERM", Raw::from("xterm-256color"));
    }
    // Where browsers of Chromium's family keep their profiles else is a decoy.
    set("CHROME_CONFIG_HOME", Raw::from(spec.home.join(".local/state")));
    let trusted = authority::variables(grants, trusted);
    for (key, value) in trusted.iter().chain(of_tools).chain(&grants.placeholders).chain(&grants.env) {
        set(key, Raw::from(value.as_str()));
    }
    // These say where things are inside, which nobody outside knows better.
    set("HOME", Raw::from(spec.home.as_path()));
    set("PATH", Raw::from(path));
    set("USER", Raw::from("agent"));
    set("LOGNAME", Raw::from("agent"));
    set("SHELL", Raw::from("/bin/sh"));
    set("TMPDIR", Raw::from("/tmp"));
    set("XDG_RUNTIME_DIR", Raw::from(etc::runtime_dir(uid)));
    set("PWD", Raw::from(spec.workspace.as_path()));
    for (key, value) in &spec.env {
        set(key, Raw::from(value.as_str()));
    }
    env
}
