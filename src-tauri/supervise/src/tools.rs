//! Tools of the person's home that a jail shows: a table of subpaths, never a dot-directory whole.

use jail_plan::{Access, Raw, Step};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::path::{Path, PathBuf};

/// One place below the home.
struct Tool {
    /// Where.
    path: &'static str,
    /// Whether it is a directory of programs that belongs in `PATH`.
    programs: bool,
}

const fn tools(path: &'static str) -> Tool {
    Tool { path, programs: false }
}

const fn programs(path: &'static str) -> Tool {
    Tool { path, programs: true }
}

/// What is shown. Each line holds programs and libraries, and nothing that a tool keeps of its user: credentials, caches,
/// history and configuration lie beside them.
const TABLE: &[Tool] = &[
    programs(".cargo/bin"),
    tools(".rustup/toolchains"),
    tools(".rustup/settings.toml"),
    tools(".nvm/versions"),
    tools(".nvm/alias"),
    tools(".nvm/nvm.sh"),
    tools(".local/share/fnm"),
    tools(".volta/tools"),
    programs(".volta/bin"),
    programs(".npm-global/bin"),
    tools(".npm-global/lib"),
    programs(".bun/bin"),
    tools(".bun/install/global"),
    programs(".deno/bin"),
    tools(".local/share/pnpm"),
    tools(".yarn/releases"),
    tools(".pyenv/versions"),
    tools(".pyenv/libexec"),
    tools(".pyenv/version"),
    programs(".pyenv/bin"),
    programs(".pyenv/shims"),
    tools(".rbenv/versions"),
    programs(".rbenv/shims"),
    programs("go/bin"),
    tools(".sdkman/candidates"),
    tools(".asdf/installs"),
    programs(".asdf/shims"),
    tools(".local/share/mise/installs"),
    programs(".local/share/mise/shims"),
    tools(".local/share/uv/python"),
    tools(".local/share/uv/tools"),
    tools(".local/share/pipx/venvs"),
    tools(".local/share/claude"),
    programs(".local/bin"),
];

/// Binds for what of the table exists, and the directories of programs among it.
///
/// The way to each is walked without following a symlink: `~/.cargo` as a symlink to elsewhere would show elsewhere.
/// Symlinks *inside* a shown directory are just that; they lead somewhere only if the table shows that place too.
pub(crate) fn of_home(home: &Path) -> (Vec<Step>, Vec<PathBuf>) {
    let mut steps = Vec::new();
    let mut path = Vec::new();
    let Ok(root) = rustix::fs::openat(CWD, home, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
        return (steps, path);
    };
    for tool in TABLE {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found =
            rustix::fs::openat2(&root, tool.path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS);
        let Ok(kind) = found.and_then(|fd| rustix::fs::fstat(&fd)).map(|s| FileType::from_raw_mode(s.st_mode)) else { continue };
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            continue;
        }
        let place = home.join(tool.path);
        steps.push(show(&place, Access::Read));
        if tool.programs && kind == FileType::Directory {
            path.push(place);
        }
    }
    (steps, path)
}

/// A bind of a host path at its own place, with the person's ids.
pub(crate) fn show(path: &Path, access: Access) -> Step {
    let raw = Raw::from(path);
    Step::Bind { source: raw.clone(), target: raw, access, recursive: false, idmapped: true, optional: true }
}
