//! What goes wrong, with the code that a caller may switch on.

use nix::libc;
use std::fmt;

/// Closed list of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// The call itself is wrong, or a policy file was refused.
    Usage,
    /// Refused by policy; an approval is missing.
    Refused,
    /// What was approved or named is not what is there now.
    Stale,
    /// A promise can't be kept on this machine.
    Promise,
    /// No such thing.
    NotFound,
    /// In the way of something else.
    Conflict,
    /// The machine failed.
    Machine,
}

impl Code {
    /// Exit code for the command line.
    pub fn exit(self) -> u8 {
        match self {
            Code::Usage => 2,
            Code::Refused | Code::Stale => 3,
            Code::Promise => 4,
            Code::NotFound => 5,
            Code::Conflict => 6,
            Code::Machine => 7,
        }
    }

    /// The code that a warden's refusal carries.
    pub(crate) fn from_exit(code: i32) -> Self {
        match code {
            2 => Code::Usage,
            3 => Code::Refused,
            4 => Code::Promise,
            5 => Code::NotFound,
            6 => Code::Conflict,
            _ => Code::Machine,
        }
    }
}

/// A verb that was not done.
#[expect(clippy::error_impl_error, reason = "the crate's one error, named with its crate where it is used")]
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Error {
    /// For callers.
    pub code: Code,
    /// What happened, why, and what to do.
    pub message: String,
}

impl Error {
    /// Makes one. Where the machine failed, the message says what to do about that.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if code == Code::Machine
            && let Some(hint) = what_to_do(&message)
        {
            message.push_str(": ");
            message.push_str(hint);
        }
        Self { code, message }
    }
}

/// What helps where a call failed for lack of something; the causes come from all crates and carry the kernel's number.
fn what_to_do(message: &str) -> Option<&'static str> {
    let failed = |number: i32| message.contains(&format!("(os error {number})"));
    if message.contains("ree some space") {
        None
    } else if failed(libc::EMFILE) || failed(libc::ENFILE) {
        Some("raise the limit of open files (`ulimit -n`) and try again")
    } else if failed(libc::ENOSPC) || failed(libc::EDQUOT) || message.contains("disk is full") {
        Some("free some space and try again")
    } else if message.contains(") at path \"") {
        // Only temporary files are told so.
        Some("make that directory one that you can write to, or name another in TMPDIR")
    } else if failed(libc::EROFS) || message.contains("unable to open database file") {
        Some(
            "it must be a place that you can write to, with some descriptors left (`ulimit -n`); XDG_DATA_HOME and XDG_RUNTIME_DIR name others",
        )
    } else {
        None
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<db::DbError> for Error {
    fn from(e: db::DbError) -> Self {
        Self::new(Code::Machine, e.to_string())
    }
}

impl From<model::task::IllegalStep> for Error {
    fn from(e: model::task::IllegalStep) -> Self {
        Self::new(Code::Conflict, e.to_string())
    }
}

/// Turns an I/O error into one that names the path.
pub(crate) fn io<'a>(what: &'a str, path: &'a std::path::Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |e| Error::new(Code::Machine, format!("{what} {} failed: {e}", path.display()))
}

/// Lower crates' errors keep their words; the code says what a caller can do.
macro_rules! coded {
    ($error:ty, $e:ident => $code:expr) => {
        impl From<$error> for Error {
            fn from($e: $error) -> Self {
                let code = $code;
                Self::new(code, $e.to_string())
            }
        }
    };
}

coded!(worktree::RepoError, e => match &e {
    worktree::RepoError::Git(_) => Code::Machine,
    worktree::RepoError::NoDirectory { .. } | worktree::RepoError::NotARepository(_) => Code::NotFound,
    _ => Code::Usage,
});
coded!(worktree::CreateError, e => match &e {
    worktree::CreateError::Git(_) | worktree::CreateError::DiskFull { .. } | worktree::CreateError::Io { .. } => Code::Machine,
    worktree::CreateError::NoSuchRevision(_) => Code::NotFound,
    worktree::CreateError::Exists(_) => Code::Conflict,
    _ => Code::Usage,
});
coded!(worktree::BringError, e => match &e {
    worktree::BringError::Tracked { .. } | worktree::BringError::TooMuch(_) => Code::Refused,
    worktree::BringError::Pattern(..) => Code::Usage,
    _ => Code::Machine,
});
coded!(worktree::CandidateError, e => match &e {
    worktree::CandidateError::TooLarge { .. } | worktree::CandidateError::Refused(_) => Code::Refused,
    _ => Code::Machine,
});
coded!(worktree::DiffError, e => match &e {
    worktree::DiffError::NoSuchFile(_) => Code::NotFound,
    _ => Code::Machine,
});
coded!(worktree::ApplyError, e => match &e {
    worktree::ApplyError::Git(_) | worktree::ApplyError::Journal(_) => Code::Machine,
    _ => Code::Conflict,
});
coded!(worktree::RemoveError, e => Code::Machine);
coded!(worktree::SeedError, e => Code::Machine);
