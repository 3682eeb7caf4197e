//! What `/proc/PID/stat` says, and signals to exactly the process of which it says so.

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;

/// What `stat` says of a process or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The short name, which a program chooses.
    pub comm: Vec<u8>,
    /// Whether it runs, sleeps, is stopped or dead: the letter of proc(5).
    pub state: u8,
    /// Its parent's number.
    pub parent: i32,
    /// When it began, in clock ticks since the machine started: with its number, this names a process.
    pub begun: u64,
    /// Where its stack starts; 0 where the reader may not know.
    pub start_stack: u64,
    /// How it ended; 0 where the reader may not know.
    pub exit_code: i32,
}

impl Stat {
    /// Reads that of a number; an error of [`is_gone`] where there is no such process.
    pub fn of(id: impl Display + Copy) -> io::Result<Stat> {
        Stat::parse(&std::fs::read(format!("/proc/{id}/stat"))?).ok_or_else(|| unclear(id))
    }

    /// Reads a text. A name may hold any bytes, parentheses among them: it ends at the last one.
    pub fn parse(text: &[u8]) -> Option<Stat> {
        let open = text.iter().position(|b| *b == b'(')?;
        let close = text.iter().rposition(|b| *b == b')')?;
        let comm = text.get(open + 1..close)?.to_vec();
        let rest: Vec<&str> = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
        // Numbers of proc(5), whose third field is the first after the name.
        let field = |n: usize| rest.get(n - 3).copied();
        Some(Stat {
            comm,
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            begun: field(22)?.parse().ok()?,
            start_stack: field(28).and_then(|v| v.parse().ok()).unwrap_or(0),
            exit_code: field(52).and_then(|v| v.parse().ok()).unwrap_or(0),
        })
    }

    /// Never runs again.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// An answer of `/proc` that says nothing.
pub fn unclear(id: impl Display) -> io::Error {
    io::Error::other(format!("what /proc says of process {id} can't be read"))
}

/// The only errors that say something about a process: that it has ended.
pub fn is_gone(e: &io::Error) -> bool {
    [Errno::NOENT, Errno::SRCH].iter().any(|gone| e.raw_os_error() == Some(gone.raw_os_error()))
}

/// Signals the process of this number that began then, and no later one of the same number; fine where it has ended.
pub fn signal(pid: i32, begun: u64, signal: Signal) -> io::Result<()> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(()) };
    let sent = rustix::process::pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from).and_then(|fd| {
        // Looked at while the descriptor is held: it is of this process, or of one that the signal no longer reaches.
        if Stat::of(pid)?.begun == begun { Ok(rustix::process::pidfd_send_signal(&fd, signal)?) } else { Ok(()) }
    });
    sent.or_else(|e| if is_gone(&e) { Ok(()) } else { Err(e) })
}

/// A descriptor of the process of a thread; before Linux 6.9 of its leader, whose open files are its threads' too.
pub fn of_thread(tid: u32, leader: impl FnOnce() -> Option<u32>) -> Result<OwnedFd, Errno> {
    const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
    let open = |id: Option<u32>, flags| {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        rustix::process::pidfd_open(id, flags)
    };
    open(Some(tid), PIDFD_THREAD).or_else(|_| open(leader(), PidfdFlags::empty()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_programs_own_name_is_not_its_state() {
        let line = b"7 (a ) T (name) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.comm, b"a ) T (name");
        assert_eq!((stat.state, stat.parent, stat.begun), (b'S', 3, 4711), "what counts comes after the last parenthesis");
        let tail =
            "S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1 1 1 1 99 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 256";
        for comm in ["cat", "a) S 1 (b", ") R 9", "\u{e9} \n"] {
            let stat = Stat::parse(format!("5 ({comm}) {tail}").as_bytes()).unwrap();
            assert_eq!((stat.comm.as_slice(), stat.parent, stat.begun), (comm.as_bytes(), 7, 4242), "{comm:?}");
            assert_eq!((stat.start_stack, stat.exit_code), (99, 256), "{comm:?}");
        }
        for cut in [b"".as_slice(), b"7 (x", b"7 (x) S", b"7 (x) S 3 7 7 0 -1", b")(", b"7 x S 3", b"5 (x) S x"] {
            assert!(Stat::parse(cut).is_none(), "half of it says nothing: {}", String::from_utf8_lossy(cut));
        }
    }

    #[test]
    fn a_process_of_another_beginning_is_not_signalled() {
        let me = i32::try_from(std::process::id()).unwrap();
        let begun = Stat::of(me).unwrap().begun;
        assert!(signal(me, begun + 1, Signal::KILL).is_ok(), "a number that is another's by now is passed over");
        #[allow(clippy::disallowed_methods, reason = "a process to end")]
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        signal(pid, Stat::of(pid).unwrap().begun, Signal::KILL).unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(9),
            "and the one meant is reached"
        );
        assert!(signal(pid, begun, Signal::KILL).is_ok(), "one that has ended needs no signal");
    }
}
