//! What no link leads to.

use model::run::RunSpec;
use std::path::{Path, PathBuf};

/// Whether what really lies there is not shown, whatever leads to it.
pub(super) fn is(real: &Path, spec: &RunSpec, hide: &[PathBuf]) -> bool {
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime];
    let touches = |place: &Path| real.starts_with(place) || place.starts_with(real);
    let holds_a_home =
        spec.home.starts_with(real) || matches!(in_home(real, &spec.home), Some(rest) if rest.as_os_str().is_empty());
    holds_a_home
        || spec.workspace.starts_with(real)
        || hide.iter().chain(own).any(|p| touches(p) || crate::real::real(p).is_some_and(|p| touches(&p)))
        || in_home(real, &spec.home).is_some_and(policy::holds_credentials)
        || of_the_machine(real)
        || (real.is_dir() && is_repository(real))
}

/// The rest of a path below a home, whoever's.
fn in_home<'a>(path: &'a Path, home: &Path) -> Option<&'a Path> {
    if let Ok(rest) = path.strip_prefix(home) {
        return Some(rest);
    }
    if let Ok(rest) = path.strip_prefix("/root") {
        return Some(rest);
    }
    let rest = path.strip_prefix("/home").or_else(|_| path.strip_prefix("/var/home")).ok()?;
    let mut parts = rest.components();
    parts.next().map(|_| parts.as_path())
}

fn of_the_machine(real: &Path) -> bool {
    let kernels = ["/proc", "/sys", "/dev", "/etc", "/run", "/boot"];
    // A directory at the top, or the top itself, is everybody's.
    kernels.iter().any(|k| real.starts_with(k)) || real.components().count() <= 2
}

fn is_repository(directory: &Path) -> bool {
    directory.join(".git").symlink_metadata().is_ok() || (directory.join("HEAD").is_file() && directory.join("objects").is_dir())
}

/// Whether a directory is a repository's or lies in one.
pub(super) fn in_repository(directory: &Path) -> bool {
    directory.ancestors().any(is_repository)
}

/// The store of packages that a path lies in, each under a name of a hash: as in Nix, all of it is for everyone to read, and
/// programs in it need what lies beside them.
pub(super) fn store_of(real: &Path) -> Option<PathBuf> {
    let mut above = PathBuf::new();
    let mut parts = real.components().peekable();
    while let Some(part) = parts.next() {
        above.push(part);
        let package = |name: &str| {
            name.split_once('-').is_some_and(|(hash, name)| {
                hash.len() == 32 && !name.is_empty() && hash.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            })
        };
        let next = parts.peek().and_then(|p| p.as_os_str().to_str());
        if part.as_os_str() == "store" && next.is_some_and(package) {
            return Some(above);
        }
    }
    None
}
