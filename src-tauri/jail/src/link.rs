//! The socket to whoever started this jail.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Answer, DESCRIPTORS, Refusal, Say, Stage};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// One end of a `SOCK_SEQPACKET` pair.
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Takes the socket from descriptor 0.
    pub(crate) fn inherited() -> Step<Self> {
        let stdin = rustix::stdio::stdin();
        let is_socket = rustix::net::sockopt::socket_type(stdin) == Ok(rustix::net::SocketType::SEQPACKET);
        let fd = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(io::Error::from);
        let fd = fd.and_then(|fd| if is_socket { Ok(fd) } else { Err(io::Error::other("descriptor 0 is no packet socket")) });
        fd.map(Self)
            .or_refuse(Stage::Start, "airlock-jail is started by Airlock, not by hand", || "taking the starter's socket".into())
    }

    /// Who made the socket pair; `None` where that is nobody in this pid namespace.
    pub(crate) fn starter(&self) -> Result<Option<rustix::process::Pid>, rustix::io::Errno> {
        // The kernel writes 0 for a process that can't be seen from here, which the type would not hold.
        match nix::sys::socket::getsockopt(&self.0, nix::sys::socket::sockopt::PeerCredentials) {
            Ok(credentials) => Ok(rustix::process::Pid::from_raw(credentials.pid())),
            Err(e) => Err(rustix::io::Errno::from_raw_os_error(e as i32)),
        }
    }

    /// To wait for the starter's end: nothing else is ever seen.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::empty())
    }

    /// Says something.
    pub(crate) fn say(&self, say: &Say, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(say)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors for one packet"));
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Says why there is no jail. A starter that is gone does not hear it, and needs not.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        drop(self.say(&Say::Refused { refusal }, &[]));
    }

    /// Waits for an answer; an end of file (the starter is gone) is an error.
    pub(crate) fn hear(&self) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let mut buffer = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if got.bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the starter is gone"));
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        Ok((serde_json::from_slice(&buffer[..got.bytes])?, fds))
    }

    /// Dies with the starter from now on. The signal covers the future and the look at the socket the past: the starter
    /// may have died before the signal was asked for.
    pub(crate) fn die_with_starter(&self) -> Step<()> {
        self.signal_with_starter(rustix::process::Signal::KILL)
    }

    /// Gets this signal when the starter dies; one that is gone already is an error.
    pub(crate) fn signal_with_starter(&self, signal: rustix::process::Signal) -> Step<()> {
        rustix::process::set_parent_process_death_signal(Some(signal))
            .or_refuse(Stage::Start, UNEXPECTED, || "asking for a signal at the starter's death".into())?;
        let mut poll = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|n| n > 0);
        let alive = if gone { Err("it is gone") } else { Ok(()) };
        alive.or_refuse(Stage::Start, "start it again", || "looking for the starter".into())
    }
}
