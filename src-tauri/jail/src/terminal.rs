//! The command's terminal: made inside, so that it is the jail's own; its master is handed out.

use crate::Context;
use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::{Handed, Stage, Stdio};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};
use std::os::fd::OwnedFd;

/// Makes it, if the plan wants one.
pub(crate) fn make(context: &mut Context) -> Step<()> {
    make_at(context, "/dev/pts/ptmx")
}

/// The same, of another file system of terminals.
pub(crate) fn make_at(context: &mut Context, ptmx: &str) -> Step<()> {
    let Stdio::Terminal { cols, rows } = context.plan.stdio else { return Ok(()) };
    let (master, streams) = open(ptmx, cols, rows).or_refuse(Stage::Terminal, UNEXPECTED, || "making a terminal".into())?;
    context.handed.push((Handed::Pty, master));
    context.streams = Some(streams);
    Ok(())
}

fn open(ptmx: &str, cols: u16, rows: u16) -> std::io::Result<(OwnedFd, [OwnedFd; 3])> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::openat(CWD, ptmx, flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::termios::tcsetwinsize(&slave, Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?;
    let mut modes = rustix::termios::tcgetattr(&slave)?;
    // Backspace over a character of several bytes erases all of them.
    modes.input_modes |= InputModes::IUTF8;
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok((master, [slave.try_clone()?, slave.try_clone()?, slave]))
}
