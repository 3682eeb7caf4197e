//! A git directory of Airlock's own through which a working copy of the person's is looked at: their conversions, but no hook,
//! filter, driver or monitor. (Even `git diff-files` runs a clean filter where an index entry is as young as the index.)

use crate::config::{Persons, Text};
use crate::files;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Makes one.
pub(crate) fn make(dir: &Path, persons: &Persons) -> io::Result<()> {
    for d in ["refs/heads", "info", "objects/info", "objects/pack"] {
        files::make_dirs(&dir.join(d))?;
    }
    files::write_new(&dir.join("config"), &Text::own().set("core.bare", "false").inert(persons).into_bytes())?;
    files::write_new(&dir.join("info/attributes"), &persons.attributes)?;
    files::write_new(&dir.join("HEAD"), b"ref: refs/heads/none\n")
}

/// Copies the index of `git_dir` to `index`, to be read through the shadow `dir`; false where there is none.
pub(crate) fn copy_index(git_dir: &Path, dir: &Path, index: &Path) -> io::Result<bool> {
    match std::fs::copy(git_dir.join("index"), index) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    // A split index has its larger part in a file beside it.
    for entry in std::fs::read_dir(git_dir)? {
        let entry = entry?;
        if entry.file_name().as_bytes().starts_with(b"sharedindex.") {
            std::fs::copy(entry.path(), dir.join(entry.file_name()))?;
        }
    }
    Ok(true)
}
