//! Signals to the command, and its terminal's size.

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

fn named(signal: i32) -> io::Result<Signal> {
    Signal::from_named_raw(signal).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is no signal")))
}

/// The same where the command is known by its pidfd.
pub(crate) fn signal_to(command: &OwnedFd, signal: i32) -> io::Result<()> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", command.as_raw_fd()))?;
    let pid = about.lines().find_map(|l| l.strip_prefix("Pid:")).and_then(|n| n.trim().parse().ok());
    // -1 for one that ended.
    let pid = pid.filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the command has ended"))?;
    Ok(rustix::process::kill_process_group(pid, named(signal)?)?)
}

/// Sends a signal to the process group of the command.
pub(crate) fn signal(init: i32, signal: i32) -> io::Result<()> {
    let number = named(signal)?;
    let command = crate::freeze::command(init)?;
    // It leads its own session and group, whose number in this namespace is its pid here.
    Ok(rustix::process::kill_process_group(command, number)?)
}

/// Gives a terminal a new size, and its foreground group a SIGWINCH.
pub(crate) fn resize(pty: Option<&OwnedFd>, cols: u16, rows: u16) -> io::Result<()> {
    let pty = pty.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the command has no terminal"))?;
    Ok(rustix::termios::tcsetwinsize(pty, Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?)
}
