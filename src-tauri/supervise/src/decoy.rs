//! Hidden places: a file system in which every touch is refused at once and told with the process.
//!
//! Invariant: a request waits for nothing but a bounded look into `/proc`. If this server ends, the places fail closed.

use crate::fact::Fact;
use crate::tell::{Teller, Told};
use crate::who::Who;
use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request, Session, SessionACL, TimeOrNow,
};
use model::event::FileOp;
use model::path::RawPath;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Attributes of the places never change.
const LONG: Duration = Duration::from_secs(3600);
/// One may look into `/proc` while another answers.
const THREADS: usize = 2;

/// Why the hidden places can't be served.
#[derive(Debug, Error)]
pub enum DecoyError {
    /// No thread left.
    #[error("the hidden places can't be served: {0}; raise the limit of processes")]
    Start(#[from] std::io::Error),
}

/// Which hidden places the file system holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    /// The file system's root is the place.
    Root(RawPath),
    /// The root holds directories `0`, `1`, … that were bound over these places; the root itself is shown nowhere.
    Numbered(Vec<RawPath>),
}

/// Serves the hidden places of one jail. Dropping it stops telling; the places stay refused until their file system is gone.
#[derive(Debug)]
pub struct Decoys {
    told: Told,
}

impl Decoys {
    /// Serves the `/dev/fuse` descriptor of a mounted file system; returns at once. `owner` is the user and group that the
    /// places seem to belong to, as numbers inside.
    pub fn serve(
        fuse: OwnedFd,
        places: Places,
        owner: (u32, u32),
        who: Arc<Who>,
        sink: impl Fn(Fact) + Send + Sync + 'static,
    ) -> Result<Decoys, DecoyError> {
        let (teller, told) = Teller::start(sink)?;
        let decoy = Decoy { places, owner, who, teller: teller.clone() };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        std::thread::Builder::new().name("decoys".into()).spawn(move || {
            // The kernel lets in whom the mount's own options let in; all of them are jailed.
            let served = Session::from_fd(decoy, fuse, SessionACL::All, config).and_then(Session::run);
            if let Err(error) = served {
                let detail = format!("hidden places stay closed, but touches are no longer told: {error}");
                teller.tell(Fact::Incomplete { detail });
            }
        })?;
        Ok(Decoys { told })
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        self.told.wait();
    }
}

#[derive(Debug)]
struct Decoy {
    places: Places,
    owner: (u32, u32),
    who: Arc<Who>,
    teller: Teller,
}

impl Decoy {
    fn place(&self, ino: INodeNo) -> Option<&RawPath> {
        match &self.places {
            Places::Root(place) => (ino == INodeNo::ROOT).then_some(place),
            Places::Numbered(places) => places.get(usize::try_from(ino.0.checked_sub(2)?).ok()?),
        }
    }

    /// Names who asks while they still wait, and tells. The caller answers next.
    fn touched(&self, request: &Request, op: FileOp, ino: INodeNo, name: Option<&OsStr>) {
        let Some(place) = self.place(ino) else { return };
        // Nobody inside has the number 0: Airlock itself asked whether a program exists.
        if request.pid() == 0 {
            return;
        }
        let mut path = place.0.clone();
        if let Some(name) = name {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        let process = self.who.known_inside(request.pid());
        self.teller.tell(Fact::Decoy { process, op, path: RawPath(path), count: 1 });
    }

    fn attributes(&self, ino: INodeNo) -> FileAttr {
        FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o700,
            nlink: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Decoy {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let (Places::Numbered(places), INodeNo::ROOT) = (&self.places, parent) {
            let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
            match number.filter(|n| usize::try_from(*n).is_ok_and(|n| n < places.len())) {
                Some(number) => reply.entry(&LONG, &self.attributes(INodeNo(number + 2)), Generation(0)),
                None => reply.error(Errno::ENOENT),
            }
            return;
        }
        self.touched(request, FileOp::Read, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    // Looking *at* a place is silent: `ls -la ~` and the completion of a shell do it.

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONG, &self.attributes(ino));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        // The kernel then asks no more and says that there are none.
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    // Everything else is a touch.

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.touched(request, FileOp::Read, ino, None);
        reply.error(Errno::EACCES);
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.touched(request, FileOp::Read, ino, None);
        reply.error(Errno::EACCES);
    }

    fn readdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: u64, reply: ReplyDirectory) {
        self.touched(request, FileOp::Read, ino, None);
        reply.error(Errno::EACCES);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.touched(request, FileOp::Read, ino, None);
        reply.error(Errno::EACCES);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.touched(request, FileOp::Change, ino, None);
        reply.error(Errno::EACCES);
    }

    fn setxattr(&self, request: &Request, ino: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        self.touched(request, FileOp::Change, ino, None);
        reply.error(Errno::EACCES);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.touched(request, FileOp::Change, ino, None);
        reply.error(Errno::EACCES);
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        self.touched(request, FileOp::Create, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.touched(request, FileOp::Create, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, _: &Path, reply: ReplyEntry) {
        self.touched(request, FileOp::Create, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn link(&self, request: &Request, _: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.touched(request, FileOp::Create, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.touched(request, FileOp::Create, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.touched(request, FileOp::Delete, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.touched(request, FileOp::Delete, parent, Some(name));
        reply.error(Errno::EACCES);
    }

    fn rename(&self, request: &Request, parent: INodeNo, name: &OsStr, _: INodeNo, _: &OsStr, _: RenameFlags, reply: ReplyEmpty) {
        self.touched(request, FileOp::Rename, parent, Some(name));
        reply.error(Errno::EACCES);
    }
}

#[cfg(test)]
mod tests;
