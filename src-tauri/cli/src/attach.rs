//! A run in this terminal: bytes both ways, signals, size; the run outlives all of it.

use engine::{Attached, Code, Engine, Error, Incoming, Sender};
use model::event::What;
use model::id::{AskId, TaskId};
use model::protocol::{Reply, Request};
use model::run::{Outcome, Stdio};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal, Read, Write};

/// What standard streams this process has.
pub(crate) fn stdio() -> Stdio {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    if input.is_terminal() && output.is_terminal() {
        let (cols, rows) = size();
        Stdio::Terminal { cols, rows }
    } else {
        Stdio::Pipes
    }
}

fn size() -> (u16, u16) {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or((80, 24), |s| (s.ws_col.max(1), s.ws_row.max(1)))
}

/// Signals that are carried on instead of ending this process. Blocked before any thread starts, so that all inherit it.
pub(crate) fn hold_signals() -> Result<SignalFd, Error> {
    let fail = |e: nix::Error| Error::new(Code::Machine, format!("taking signals failed: {e}"));
    let mut set = SigSet::empty();
    for s in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGWINCH] {
        set.add(s);
    }
    set.thread_block().map_err(fail)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map_err(fail)
}

/// A terminal in raw mode, until dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn enter() -> Self {
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok();
        Self(Some(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            tcsetattr(std::io::stdin(), OptionalActions::Drain, before).ok();
        }
    }
}

/// Where the command's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// To this process's own streams.
    Streams,
    /// Nowhere: it is kept with the run.
    Kept,
}

/// Carries bytes until the run ends.
pub(crate) fn attach(engine: &Engine, task: &TaskId, signals: SignalFd, stdio: Stdio, show: Show) -> Result<Outcome, Error> {
    let mut run = match engine.attach(task) {
        Ok(run) => run,
        // It ended before we came: everything is kept.
        Err(e) if e.code == Code::NotFound => return ended_before(engine, task, show),
        Err(e) => return Err(e),
    };
    run.send(&Request::Output { replay: u64::MAX })?;
    if show == Show::Streams {
        run.send(&Request::Events { from: 1, kinds: vec!["ask".into()] })?;
    }
    let raw = matches!(stdio, Stdio::Terminal { .. }).then(Raw::enter);
    // A connection of its own: the other waits while the command does not read.
    carry_signals(engine.attach(task).map_or_else(|_| run.sender(), |own| own.sender()), signals);
    carry_input(run.sender());
    let me = crate::out::me(engine.host());
    let ask = |about: &str, id: &AskId| {
        let end = if raw.is_some() { "\r" } else { "" };
        let verb = engine.ask(id).map_or("", |view| view.ask.what.verb());
        let about = crate::text::safe(about);
        crate::out::talk(&format!("it waits for you: {verb} {about}? {me} ask allow {id}, or deny{end}"));
    };
    let outcome = carry_output(&mut run, show, &ask);
    drop(raw);
    outcome
}

fn ended_before(engine: &Engine, task: &TaskId, show: Show) -> Result<Outcome, Error> {
    let run = engine.task(task)?.runs.pop().map(|r| r.run).ok_or_else(|| Error::new(Code::NotFound, "the task has no run"))?;
    if show == Show::Streams {
        let (out, err) = engine.output(&run, u64::MAX)?;
        std::io::stderr().write_all(&err).ok();
        crate::out::bytes(&out)?;
        let limit = |e: &model::event::Event| matches!(&e.what, model::event::What::Limit { limit, .. } if limit == "output");
        if engine.events(task, 1, 1000, &["limit".to_owned()])?.iter().any(limit) {
            crate::out::talk("the older part of the output went by `limits.output`");
        }
    }
    run.outcome
        .ok_or_else(|| Error::new(Code::Machine, "the run's warden is gone and left no outcome: `airlock task show` says more"))
}

fn carry_signals(sender: Sender, signals: SignalFd) {
    std::thread::spawn(move || {
        while let Ok(Some(info)) = signals.read_signal() {
            let request = match i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok()) {
                Some(Signal::SIGWINCH) => {
                    let (cols, rows) = size();
                    Request::Resize { cols, rows }
                }
                Some(other) => Request::Signal { signal: other as i32 },
                None => continue,
            };
            if sender.send(&request).is_err() {
                return;
            }
        }
    });
}

fn carry_input(sender: Sender) {
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 8192];
        loop {
            match input.read(&mut buffer) {
                Ok(0) | Err(_) => {
                    sender.send(&Request::Eof).ok();
                    return;
                }
                Ok(n) => {
                    if sender.type_bytes(&buffer[..n]).is_err() {
                        return;
                    }
                }
            }
        }
    });
}

fn carry_output(run: &mut Attached, show: Show, ask: &dyn Fn(&str, &AskId)) -> Result<Outcome, Error> {
    let mut deaf = show == Show::Kept;
    while let Some(incoming) = run.receive()? {
        match incoming {
            Incoming::Out(bytes) if !deaf => {
                let mut out = std::io::stdout().lock();
                if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                    // As in any pipeline: the writer is told that nobody reads.
                    deaf = true;
                    run.send(&Request::Signal { signal: Signal::SIGPIPE as i32 })?;
                }
            }
            Incoming::Err(bytes) if !deaf => {
                std::io::stderr().write_all(&bytes).ok();
            }
            Incoming::Out(_) | Incoming::Err(_) => {}
            Incoming::Reply(Reply::Ended { outcome }) => return Ok(outcome),
            Incoming::Reply(Reply::Error { message }) => crate::out::talk(&crate::text::safe(&message)),
            Incoming::Reply(Reply::Missed { bytes }) => {
                crate::out::talk(&format!("{bytes} bytes of output came faster than they were read and went by `limits.output`"));
            }
            Incoming::Reply(Reply::Event { event }) => {
                if let What::Ask { ask: id, about, .. } = &event.what {
                    ask(about, id);
                }
            }
            Incoming::Reply(
                Reply::Welcome { .. }
                | Reply::Status { .. }
                | Reply::Answered { .. }
                | Reply::NotAsked { .. }
                | Reply::GrantsRead { .. }
                | Reply::Previewed { .. }
                | Reply::Unpreviewed { .. }
                | Reply::NotPreviewed { .. }
                | Reply::Frozen { .. }
                | Reply::Thawed
                | Reply::Paused { .. }
                | Reply::Continued { .. },
            ) => {}
        }
    }
    Err(Error::new(Code::Machine, "the run's warden ended without a word: its jail ended with it; `airlock task show` says more"))
}
