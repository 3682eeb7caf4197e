//! Starts one jail and holds it.

use crate::cgroup::{Scope, Together};
use crate::decoy::{Closer, Decoys};
use crate::freeze::Frozen;
use jail_plan::{Answer, DESCRIPTORS, Guarantee, Handed, Plan, Refusal, Report, Say, Status, Stdio};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketFlags, SocketType,
};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A start takes milliseconds; one that takes this long hangs (a dead network file system under a bind).
const START_LIMIT: Duration = Duration::from_secs(60);

/// A killed process may wait for an answer about a hidden place, which takes well below this.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Why there is no jail.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The jail itself refused; nothing of the command ran.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The jail program could not be started.
    #[error("`{}` could not be started: {source}; is Airlock installed completely?", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The jail program ended or fell silent before the jail stood.
    #[error("the jail program {0}; `airlock doctor` runs the same start and says what is missing")]
    Broken(String),
    /// The system refused a pipe, a socket or the like.
    #[error("starting the jail: {0}")]
    Io(#[from] io::Error),
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub exit: Option<i32>,
    /// The signal that ended it, or that ended the whole jail.
    pub signal: Option<i32>,
}

/// A jail that stands. Its command waits for [`Jail::go`]. Dropping it kills every process in it.
#[derive(Debug)]
pub struct Jail {
    /// How far each guarantee holds.
    pub report: Report,
    /// The terminal's master, with [`Stdio::Terminal`].
    pub pty: Option<OwnedFd>,
    /// Transparent TCP listener (dual-stack, non-blocking), with a way out.
    pub listener: Option<OwnedFd>,
    /// UDP socket at port 53 with packet info (dual-stack, non-blocking), with a way out.
    pub dns: Option<OwnedFd>,
    /// TCP sockets of the jail's network (of both families, non-blocking, not connected), with a way out.
    pub inward: Vec<OwnedFd>,
    /// The seccomp listener, with `notify`.
    pub notify: Option<OwnedFd>,
    /// The decoys, served from before the jail stood and not yet told of, where there are any.
    pub decoys: Option<Decoys>,
    /// Host pid of the jail's init.
    pub pid: i32,
    pidfd: OwnedFd,
    closer: Option<Closer>,
    socket: OwnedFd,
    ended: Mutex<Option<Ended>>,
    frozen: Frozen,
    scope: Option<Arc<Scope>>,
    /// The command, in a jail without namespaces: its first process is a guard, which ends all the others.
    command: Option<OwnedFd>,
}

/// Starts a jail and returns when everything in it stands but the command, which waits for [`Jail::go`]. `stdio` are
/// the command's standard streams, exactly when the plan says [`Stdio::Inherit`].
pub fn spawn(plan: &Plan, jail_program: &Path, stdio: Option<[OwnedFd; 3]>) -> Result<Jail, SpawnError> {
    start_jail(plan.clone(), jail_program, stdio, None)
}

/// As [`spawn`], with limits that the jail's processes keep together: by a cgroup of its own where the machine gives one, else
/// as far as the jail's own kernel limits go. The report says how far.
pub fn spawn_limited(
    plan: &Plan,
    jail_program: &Path,
    stdio: Option<[OwnedFd; 3]>,
    together: &Together,
) -> Result<Jail, SpawnError> {
    start_jail(plan.clone(), jail_program, stdio, Some(together))
}

fn start_jail(
    mut plan: Plan,
    jail_program: &Path,
    stdio: Option<[OwnedFd; 3]>,
    together: Option<&Together>,
) -> Result<Jail, SpawnError> {
    plan.check()?;
    if stdio.is_some() != (plan.stdio == Stdio::Inherit) {
        return Err(SpawnError::Io(io::Error::new(io::ErrorKind::InvalidInput, "standard streams and plan disagree")));
    }
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(io::Error::from)?;
    let memory = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let text = File::from(memory);
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut command = Command::new(jail_program);
    // The command line of PID 1 is seen inside, so it says nothing.
    command.arg0("init").env_clear().current_dir("/").stdin(theirs).stdout(text.try_clone()?);
    let mut launcher = start(command).map_err(|source| SpawnError::Program { program: jail_program.to_owned(), source })?;
    // It waits for its plan, so that whatever it makes is in the cgroup too.
    let scope = together.map(|together| Scope::around(launcher.id(), together).map(Arc::new));
    if let (Some(together), Some(scope)) = (together, &scope) {
        let scope = scope.as_ref().ok();
        if !scope.is_some_and(|s| s.keeps_cpus()) {
            plan.limits.cpus = u32::try_from(together.cpus).ok();
        }
        if scope.is_some_and(|s| s.keeps_processes()) {
            // The cgroup's count tells when it refuses, so it comes first.
            plan.limits.processes = plan.limits.processes.saturating_add(1);
        }
    }
    let begun = match begin(&ours, &plan, text, stdio.as_ref()) {
        // Whoever hung up has said why.
        Err(e) if !matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Err(e.into()),
        _ => listen(&ours, &plan, &mut launcher),
    };
    // The launcher ends by itself once the jail's init exists; an early end of ours must not leave it behind.
    if begun.is_err() {
        drop(launcher.kill());
    }
    launcher.wait()?;
    let Begun { pid, pidfd, mut report, handed, decoys } = begun?;
    match &scope {
        Some(Ok(scope)) => scope.tell(&mut report),
        Some(Err(why)) => report.set(Guarantee::Memory, Status::absent(format!("no cgroup keeps it: {why}"))),
        None => {}
    }
    let mut jail = Jail {
        report,
        pty: None,
        listener: None,
        dns: None,
        inward: Vec::new(),
        notify: None,
        closer: decoys.as_ref().map(Decoys::closer),
        decoys,
        pid,
        pidfd,
        socket: ours,
        ended: Mutex::new(None),
        frozen: Frozen::default(),
        scope: scope.and_then(Result::ok),
        command: None,
    };
    for (what, fd) in handed {
        match what {
            Handed::Pty => jail.pty = Some(fd),
            Handed::Listener => jail.listener = Some(fd),
            Handed::Dns => jail.dns = Some(fd),
            Handed::Inward => jail.inward.push(fd),
            Handed::Notify => jail.notify = Some(fd),
            Handed::Command => jail.command = Some(fd),
        }
    }
    Ok(jail)
}

impl Jail {
    /// Lets the command run. Before this, the caller must be serving [`Jail::notify`] and the network, and telling
    /// of [`Jail::decoys`]: the command's very first system call may wait for an answer.
    pub fn go(&self) -> io::Result<()> {
        send(&self.socket, Answer::Go, &[])
    }

    /// Blocks until every process of the jail is gone, and says how its command ended. May be called from several
    /// threads, and again after the end.
    pub fn wait(&self) -> Result<Ended, SpawnError> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = *ended {
            return Ok(ended);
        }
        let status = loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
                Ok(status) => break status,
            }
        };
        let mut how = Ended { exit: None, signal: status.as_ref().and_then(|s| s.terminating_signal()) };
        // Init's last words say more than its own exit code: a signal is not confused with a code above 128.
        while let Ok(Some((say, _))) = receive(&self.socket, RecvFlags::DONTWAIT) {
            match say {
                Say::Ended { exit, signal } => how = Ended { exit, signal },
                Say::Refused { refusal } => return Err(refusal.into()),
                Say::Born { .. } | Say::Fuse | Say::Ready { .. } => {}
            }
        }
        *ended = Some(how);
        Ok(how)
    }

    /// Kills every process of the jail, double-forked daemons too: the kernel ends a pid namespace with its init, and a guard
    /// all that is in its domain. One that waits for an answer about a hidden place gets it, or an error when that takes long.
    pub fn kill(&self) {
        if let Some(scope) = &self.scope {
            scope.kill();
        }
        // An error means that it is gone already.
        if self.command.is_some() {
            // A guard that is stopped with the rest has to go on to end it.
            _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM);
            _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::CONT);
            return;
        }
        _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let Some(closer) = self.closer.clone() else { return };
        let close = match self.pidfd.try_clone() {
            Ok(pidfd) => std::thread::Builder::new().name("closer".into()).spawn(move || close_late(&pidfd, &closer)).map(drop),
            Err(e) => Err(e),
        };
        if let Err(error) = close {
            tracing::debug!(%error, "nobody looks whether the end is held up");
        }
    }

    /// Host pids of the jail's live processes, init first, parents before children.
    pub fn processes(&self) -> Vec<i32> {
        if self.gone() { Vec::new() } else { crate::freeze::tree(self.pid) }
    }

    /// Stops every process of the jail from outside; true when all were seen stopped and none was new, false when that
    /// failed again and again (they are left running then). What could not be looked at was not seen stopped. A jail that ended is
    /// as frozen as can be.
    pub fn freeze(&self) -> bool {
        let freeze = || match self.scope.as_ref().filter(|s| s.can_freeze()) {
            Some(scope) => scope.freeze(),
            None => self.frozen.freeze(self.pid),
        };
        self.gone() || freeze() || self.gone()
    }

    /// Lets stopped processes go on; returns when every one of them was reached or is gone.
    pub fn thaw(&self) {
        if self.gone() {
            return;
        }
        match self.scope.as_ref().filter(|s| s.can_freeze()) {
            Some(scope) => scope.thaw(),
            None => self.frozen.thaw(self.pid),
        }
    }

    /// Its cgroup, where it has one.
    pub fn scope(&self) -> Option<Arc<Scope>> {
        self.scope.clone()
    }

    /// Gives the terminal a new size.
    pub fn resize(&self, cols: u16, rows: u16) -> io::Result<()> {
        crate::stop::resize(self.pty.as_ref(), cols, rows)
    }

    /// Sends a signal to the command's process group.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        if self.gone() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the jail has ended"));
        }
        match &self.command {
            Some(command) => crate::stop::signal_to(command, signal),
            None => crate::stop::signal(self.pid, signal),
        }
    }

    /// Whether init is dead, reaped or not: its pid may then be another's soon.
    fn gone(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), look), Ok(None))
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.kill();
        drop(self.wait());
    }
}

/// Closes the decoys of a killed jail that does not end.
fn close_late(pidfd: &OwnedFd, closer: &Closer) {
    let limit = Timespec::try_from(KILL_LIMIT).ok();
    let mut poll = [PollFd::new(pidfd, PollFlags::IN)];
    if rustix::event::poll(&mut poll, limit.as_ref()) == Ok(0) {
        closer.close();
    }
}

/// What a start led to.
struct Begun {
    pid: i32,
    pidfd: OwnedFd,
    report: Report,
    handed: Vec<(Handed, OwnedFd)>,
    decoys: Option<Decoys>,
}

/// Hands over the plan and the streams.
fn begin(socket: &OwnedFd, plan: &Plan, mut text: File, stdio: Option<&[OwnedFd; 3]>) -> io::Result<()> {
    text.write_all(&serde_json::to_vec(plan)?)?;
    text.rewind()?;
    send(socket, Answer::Begin, &[])?;
    if let Some(streams) = stdio {
        let fds: Vec<BorrowedFd<'_>> = streams.iter().map(|f| f.as_fd()).collect();
        send(socket, Answer::Stdio, &fds)?;
    }
    Ok(())
}

/// Follows the jail program's words until the jail stands.
fn listen(socket: &OwnedFd, plan: &Plan, launcher: &mut Child) -> Result<Begun, SpawnError> {
    let deadline = Instant::now() + START_LIMIT;
    let mut born = None;
    let mut decoys = None;
    let result = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = [PollFd::new(socket, PollFlags::IN)];
        let limit = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match rustix::event::poll(&mut poll, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => break Err(io::Error::from(e).into()),
            Ok(0) => break Err(SpawnError::Broken(format!("said nothing for {START_LIMIT:?}"))),
            Ok(_) => {}
        }
        match receive(socket, RecvFlags::DONTWAIT) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                break Err(SpawnError::Broken("is none of this Airlock: its words are not known".into()));
            }
            Err(e) => break Err(e.into()),
            Ok(None) => {
                let status = launcher.try_wait()?.map_or_else(|| "is gone".to_owned(), |s| format!("ended with {s}"));
                break Err(SpawnError::Broken(format!("{status} without a word")));
            }
            Ok(Some((Say::Born { pid }, mut fds))) if fds.len() == 1 => born = fds.pop().map(|fd| (pid, fd)),
            // At once, since the jail waits for the first answers. Where that fails it finds nobody and says so.
            Ok(Some((Say::Fuse, mut fds))) if fds.len() == 1 && decoys.is_none() => {
                let owner = (plan.identity.uid, plan.identity.gid);
                let served = fds.pop().map(|fuse| Decoys::serve(fuse, crate::decoy::places(plan), owner));
                decoys = served.and_then(|served| served.inspect_err(|error| tracing::warn!(%error, "no decoys")).ok());
            }
            Ok(Some((Say::Refused { refusal }, _))) => break Err(refusal.into()),
            Ok(Some((Say::Ready { report, handed }, fds))) if handed.len() == fds.len() => {
                // The jail looked itself; whoever relies on the rows looks again.
                let partly = plan.fallback.as_ref().and_then(|f| report.absent(&f.partly));
                if let Some(refusal) = report.missing(&plan.require).or(partly) {
                    break Err(refusal.into());
                }
                break match born.take() {
                    Some((pid, pidfd)) => {
                        let handed = handed.into_iter().zip(fds).collect();
                        Ok(Begun { pid, pidfd, report, handed, decoys: decoys.take() })
                    }
                    None => Err(SpawnError::Broken("named no process".into())),
                };
            }
            Ok(Some((said, fds))) => {
                break Err(SpawnError::Broken(format!("said {said:?} with {} descriptors, which makes no sense", fds.len())));
            }
        }
    };
    if let (Err(_), Some((_, pidfd))) = (&result, &born) {
        _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    }
    result
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs `command` on a thread that lives as long as this process. The kernel ties a parent-death signal to the *thread*
/// that made the child: from a pool's thread a jail would die when the pool shrinks.
fn start(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = channel::<Job>();
        drop(std::thread::spawn(move || inbox.into_iter().for_each(|job| job())));
        Mutex::new(jobs)
    });
    let gone = || io::Error::other("the thread that starts jails is gone");
    let (answer, started) = channel();
    let job = Box::new(move || drop(answer.send(command.spawn())));
    spawner.lock().unwrap_or_else(PoisonError::into_inner).send(job).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

fn send(socket: &OwnedFd, answer: Answer, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(&answer)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// One packet; `None` at the end.
fn receive(socket: &OwnedFd, flags: RecvFlags) -> io::Result<Option<(Say, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; 64 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            // A reset is said once where the other end left words of ours unread; its own last words come after it.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(Some((serde_json::from_slice(&buffer[..got.bytes])?, fds)))
}
