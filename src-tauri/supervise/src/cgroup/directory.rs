//! A directory in the cgroup hierarchy, where no service manager owns it.

use super::{Together, of_process};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a jail's limits need; each is taken where it is.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
/// Longest wait for a cgroup whose processes have just ended.
const GONE: Duration = Duration::from_millis(500);

/// Makes one with these limits for a process, beside or above the caller's own.
pub(super) fn make(mount: &Path, pid: u32, limits: &Together) -> Result<PathBuf, String> {
    let own = of_process("self").ok_or("this process is in no cgroup of version 2")?;
    // A cgroup with processes in it hands no controller down, but for the root.
    let above = if own == Path::new("/") { Some(own.as_path()) } else { own.parent() };
    let mut why = "no cgroup above may be written".to_owned();
    for parent in above.into_iter().flat_map(Path::ancestors) {
        let base = mount.join(parent.strip_prefix("/").unwrap_or(parent)).join("airlock");
        match make_in(&base, pid, limits) {
            Ok(path) => return Ok(path),
            Err(e) => why = format!("{}: {e}", base.display()),
        }
    }
    Err(why)
}

fn make_in(base: &Path, pid: u32, limits: &Together) -> io::Result<PathBuf> {
    match std::fs::create_dir(base) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    for level in [base.parent(), Some(base)].into_iter().flatten() {
        for controller in CONTROLLERS {
            // Whatever is missing then is found missing when the limits are read back.
            drop(std::fs::write(level.join("cgroup.subtree_control"), format!("+{controller}")));
        }
    }
    sweep(base);
    let unique = u64::from_le_bytes(sys::random::bytes());
    let path = base.join(format!("{}-{unique:016x}", std::process::id()));
    std::fs::create_dir(&path)?;
    let period = 100_000;
    for (file, value) in [
        ("memory.max", limits.memory.to_string()),
        ("memory.swap.max", "0".to_owned()),
        ("pids.max", limits.tasks().to_string()),
        ("cpu.max", format!("{} {period}", limits.cpus * period)),
    ] {
        drop(std::fs::write(path.join(file), value));
    }
    std::fs::write(path.join("cgroup.procs"), pid.to_string()).inspect_err(|_| remove(&path))?;
    Ok(path)
}

/// Removes what wardens left that were killed: an empty directory each, named after a process that is gone.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|n| n.split_once('-')).and_then(|(pid, _)| pid.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            drop(std::fs::remove_dir(entry.path()));
        }
    }
}

/// Removes one whose processes have ended.
pub(super) fn remove(path: &Path) {
    let until = Instant::now() + GONE;
    while let Err(e) = std::fs::remove_dir(path) {
        if e.kind() != io::ErrorKind::ResourceBusy || Instant::now() > until {
            tracing::debug!(path = %path.display(), error = %e, "a cgroup is left; the next run removes it");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
