//! Bytes between the command and Airlock: a terminal's master, or three pipes.

use crate::output::{Output, Which};
use crate::raise::Raises;
use crate::record::Recorder;
use model::event::What;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// What a client types.
pub(crate) enum Input {
    /// Bytes.
    Bytes(Vec<u8>),
    /// No more.
    Eof,
}

/// Where clients put what they type; waits when the command does not read.
pub(crate) type InputSender = Sender<Input>;

/// Frames of input that may wait.
const WAITING: usize = 32;

/// Threads that carry output into the files.
pub(crate) struct Pumps(Vec<JoinHandle<()>>);

impl Pumps {
    /// Waits until all output is kept, at most for two seconds: a daemon outside the run can't hold it open, but be sure.
    pub(crate) fn finish(&self) {
        for _ in 0..200 {
            if self.0.iter().all(JoinHandle::is_finished) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Starts carrying. `sources` are read until their end; `sink` takes input, and is told the end of input by closing it,
/// or by a control-D where it is a terminal.
pub(crate) fn start(
    sources: Vec<(Which, OwnedFd)>,
    sink: Option<OwnedFd>,
    terminal: bool,
    output: &Arc<Output>,
    raises: &Raises,
    recorder: &Recorder,
) -> (Pumps, InputSender) {
    let pumps = sources
        .into_iter()
        .map(|(which, fd)| {
            let output = Arc::clone(output);
            let recorder = recorder.clone();
            let raises = raises.clone();
            std::thread::spawn(move || carry(which, fd, &output, &raises, &recorder))
        })
        .collect();
    let (sender, receiver) = channel(WAITING);
    std::thread::spawn(move || feed(sink, terminal, receiver));
    (Pumps(pumps), sender)
}

fn carry(which: Which, fd: OwnedFd, output: &Arc<Output>, raises: &Raises, recorder: &Recorder) {
    let mut source = File::from(fd);
    let mut buffer = vec![0; 64 << 10];
    let mut told = None;
    loop {
        let n = match source.read(&mut buffer) {
            // A terminal whose last user is gone answers EIO.
            Ok(0) => return,
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let appended = output.append(which, &buffer[..n]);
        let full = appended.is_ok();
        let detail = match appended {
            Ok(false) => continue,
            Ok(true) => format!(
                "the kept output reached its {} bytes: its oldest part went, and goes from now on; `limits.output` raises it",
                output.limit()
            ),
            Err(e) => format!("output could not be kept: {e}"),
        };
        if told != Some(output.limit()) {
            told = Some(output.limit());
            let kept = Arc::clone(output);
            if full {
                raises.then("limits.output", supervise::limits::size(output.next()), None, move || kept.raise());
            }
            recorder.fact(None, What::Limit { limit: "output".into(), detail }, 1);
        }
    }
}

fn feed(sink: Option<OwnedFd>, terminal: bool, mut input: Receiver<Input>) {
    let Some(sink) = sink else { return };
    let mut sink = File::from(sink);
    while let Some(input) = input.blocking_recv() {
        match input {
            Input::Bytes(bytes) => {
                if sink.write_all(&bytes).is_err() {
                    return;
                }
            }
            Input::Eof if terminal => {
                if sink.write_all(&[4]).is_err() {
                    return;
                }
            }
            Input::Eof => return,
        }
    }
}
