//! The client's end of a warden's socket.

use crate::Engine;
use crate::error::{Code, Error};
use model::frame::{Decoder, encode};
use model::id::TaskId;
use model::protocol::{Reply, Request, VERSION, kind};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What comes from a warden.
#[derive(Debug)]
pub enum Incoming {
    /// A reply or an event.
    Reply(Reply),
    /// Terminal or stdout bytes.
    Out(Vec<u8>),
    /// Stderr bytes.
    Err(Vec<u8>),
}

/// A live connection to a task's warden.
pub struct Attached {
    stream: UnixStream,
    decoder: Decoder,
    sender: Sender,
    /// The warden's process id.
    pub warden: u32,
}

/// The half that speaks; may be cloned and used from any thread.
#[derive(Clone)]
pub struct Sender(Arc<Mutex<UnixStream>>);

/// Somebody listens or listened: whatever goes wrong then does not mean that nothing runs.
fn gone(e: impl std::fmt::Display) -> Error {
    Error::new(
        Code::Machine,
        format!("the run's warden does not answer ({e}): try again; `airlock task stop` ends the run in any case"),
    )
}

/// A connection that the other end gave up is a run that ended; one that is silent is a warden that does not answer.
fn cut(e: std::io::Error) -> Error {
    match e.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => {
            Error::new(Code::NotFound, "the run has just ended")
        }
        _ => gone(e),
    }
}

impl Sender {
    fn frame(&self, kind: u8, payload: &[u8]) -> Result<(), Error> {
        let mut stream = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stream.write_all(&encode(kind, payload)).map_err(cut)
    }

    /// Says something.
    pub fn send(&self, request: &Request) -> Result<(), Error> {
        self.frame(kind::JSON, &serde_json::to_vec(request).map_err(gone)?)
    }

    /// Types bytes into the command.
    pub fn type_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        bytes.chunks(64 << 10).try_for_each(|part| self.frame(kind::OUT, part))
    }
}

impl Attached {
    fn connect(stream: UnixStream) -> Result<Self, Error> {
        let sender = Sender(Arc::new(Mutex::new(stream.try_clone().map_err(gone)?)));
        let mut attached = Self { stream, decoder: Decoder::default(), sender, warden: 0 };
        attached.stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(gone)?;
        attached.sender.send(&Request::Hello { version: VERSION })?;
        match attached.receive()? {
            Some(Incoming::Reply(Reply::Welcome { pid, .. })) => attached.warden = pid,
            Some(Incoming::Reply(Reply::Error { message })) => return Err(Error::new(Code::Machine, message)),
            // It ended between the look and the hello; whether nothing runs is its lock's word, which whoever relies on it takes.
            Some(Incoming::Reply(Reply::Ended { .. })) | None => {
                return Err(Error::new(Code::NotFound, "the run has just ended"));
            }
            other => return Err(gone(format!("{other:?} instead of a welcome"))),
        }
        attached.stream.set_read_timeout(None).map_err(gone)?;
        Ok(attached)
    }

    /// The half that speaks.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Says something.
    pub fn send(&self, request: &Request) -> Result<(), Error> {
        self.sender.send(request)
    }

    /// Makes a blocked [`Attached::receive`] return `None`, from another thread.
    pub fn hang_up(&self) -> impl Fn() + Send + 'static + use<> {
        let stream = self.stream.try_clone();
        move || {
            if let Ok(s) = &stream {
                s.shutdown(std::net::Shutdown::Both).ok();
            }
        }
    }

    /// Waits for what comes next; `None` at the end.
    pub fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(gone)? {
                return Ok(Some(match frame.kind {
                    kind::JSON => Incoming::Reply(serde_json::from_slice(&frame.payload).map_err(gone)?),
                    kind::OUT => Incoming::Out(frame.payload),
                    kind::ERR => Incoming::Err(frame.payload),
                    other => return Err(gone(format!("frame kind {other}"))),
                }));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(n) => self.decoder.push(&buffer[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cut(e)),
            }
        }
    }

    /// Says something and waits for the reply that `pick` takes.
    pub(crate) fn ask<T>(&mut self, limit: Duration, request: &Request, pick: impl Fn(&Reply) -> Option<T>) -> Result<T, Error> {
        self.send(request)?;
        let told = self.wait_for(limit, |reply| match reply {
            Reply::Ended { .. } => Some(None),
            reply => pick(reply).map(Some),
        })?;
        told.ok_or_else(|| Error::new(Code::NotFound, "the run has just ended"))
    }

    /// Waits for a reply that `pick` takes; others are dropped.
    pub(crate) fn wait_for<T>(&mut self, limit: Duration, mut pick: impl FnMut(&Reply) -> Option<T>) -> Result<T, Error> {
        self.stream.set_read_timeout(Some(limit)).map_err(gone)?;
        let out = loop {
            match self.receive()? {
                None => break Err(gone("connection closed")),
                Some(Incoming::Reply(Reply::Error { message })) => break Err(Error::new(Code::Machine, message)),
                Some(Incoming::Reply(reply)) => {
                    if let Some(value) = pick(&reply) {
                        break Ok(value);
                    }
                }
                Some(Incoming::Out(_) | Incoming::Err(_)) => {}
            }
        };
        self.stream.set_read_timeout(None).map_err(gone)?;
        out
    }
}

impl Engine {
    /// Connects to the task's live warden.
    pub fn attach(&self, task: &TaskId) -> Result<Attached, Error> {
        let path = self.host.layout.socket(task);
        match UnixStream::connect(&path) {
            Ok(stream) => Attached::connect(stream),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
                Err(Error::new(Code::NotFound, format!("nothing runs in task {task}")))
            }
            Err(e) => Err(gone(e)),
        }
    }
}
