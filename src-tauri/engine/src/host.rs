//! The machine as one person has it: directories, programs, home, environment.

use crate::error::{Code, Error, io};
use model::layout::Layout;
use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Airlock's own programs, which lie side by side, and git.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `airlock-jail`
    pub jail: PathBuf,
    /// `airlock-warden`
    pub warden: PathBuf,
    /// `airlock-window`
    pub window: PathBuf,
}

/// Everything that verbs need to know of the machine.
#[derive(Debug, Clone)]
pub struct Host {
    /// Airlock's directories.
    pub layout: Layout,
    /// Programs.
    pub programs: Programs,
    /// The person's home.
    pub home: PathBuf,
    /// The person's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where throw-away things may be made again (`$XDG_CACHE_HOME/airlock`).
    pub cache: PathBuf,
}

impl Host {
    /// Reads the environment of this process once.
    pub fn discover() -> Result<Self, Error> {
        let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let var = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| PathBuf::from(v)).filter(|p| p.is_absolute());
        let home = var("HOME")
            .ok_or_else(|| Error::new(Code::Usage, "HOME is not set to an absolute path: set it to your home directory"))?;
        let data = var("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share")).join("airlock");
        let config = var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("airlock");
        let cache = var("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("airlock");
        let uid = rustix::process::getuid().as_raw();
        let runtime = var("XDG_RUNTIME_DIR")
            .or_else(|| Some(PathBuf::from(format!("/run/user/{uid}"))).filter(|p| p.is_dir()))
            // Without a session there is no runtime directory: the data directory is as private.
            .unwrap_or_else(|| data.join("run"))
            .join("airlock");
        let exe = std::fs::read_link("/proc/self/exe").map_err(|e| {
            let text = format!(
                "/proc/self/exe can't be read ({e}): /proc is missing or something else is mounted there, and no process can be \
                 watched without it; mount the kernel's own (`mount -t proc proc /proc`)"
            );
            Error::new(Code::Machine, text)
        })?;
        let beside = exe.parent().unwrap_or(Path::new("/")).to_owned();
        let programs = Programs {
            jail: beside.join("airlock-jail"),
            warden: beside.join("airlock-warden"),
            window: beside.join("airlock-window"),
        };
        Ok(Self { layout: Layout { data, config, runtime }, programs, home, env, cache })
    }

    /// Value of a variable, where it is text.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(k, _)| k == name).and_then(|(_, v)| v.to_str())
    }

    /// Finds a program on the person's PATH.
    pub fn which(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(self.var("PATH")?)
            .filter(|d| d.is_absolute())
            .map(|d| d.join(name))
            .find(|p| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
    }

    pub(crate) fn make_directories(&self) -> Result<(), Error> {
        for dir in [&self.layout.data, &self.layout.runtime] {
            private_directory(dir)?;
        }
        Ok(())
    }
}

/// Makes a directory with mode 0700, or checks that the one there is the person's own and closed to others.
pub(crate) fn private_directory(dir: &Path) -> Result<(), Error> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io("making the directory", dir))?;
    let meta = std::fs::symlink_metadata(dir).map_err(io("looking at", dir))?;
    let uid = rustix::process::getuid().as_raw();
    if !meta.is_dir() || meta.uid() != uid {
        return Err(Error::new(Code::Machine, format!("{} is not a directory of yours: move it away", dir.display())));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(io("closing to others", dir))?;
    }
    Ok(())
}
