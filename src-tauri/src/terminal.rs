//! One terminal view: bytes between the window and the run's warden, in batches, with a cap on what is under way.

use crate::wire::error::CommandError;
use crate::wire::task::Outcome;
use engine::{Attached, Code, Engine, Incoming, Sender};
use model::id::TaskId;
use model::protocol::{Reply, Request};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tauri::ipc::{Channel, InvokeResponseBody};

/// Scrollback that is sent when a view opens, in bytes.
const REPLAY: u64 = 1 << 20;
/// Most bytes that are sent and not drawn yet: a flood waits in the warden's socket, not in the page.
const UNDER_WAY: usize = 512 << 10;
/// Longest wait before bytes are sent.
const BATCH: Duration = Duration::from_millis(16);
/// How often a connection that broke while the run lives is made again.
const ATTEMPTS: u32 = 5;
/// Between two of them.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a run may take to start.
const START: Duration = Duration::from_secs(60);

/// Where a terminal's bytes go.
pub(crate) struct Sink {
    pub(crate) output: Channel<InvokeResponseBody>,
    pub(crate) ended: Channel<Option<Outcome>>,
}

#[derive(Default)]
struct Flow {
    pending: Vec<u8>,
    under_way: usize,
    closed: bool,
    /// Nothing more comes; how it ended.
    over: Option<Option<Outcome>>,
}

/// The live connection: the half that speaks, and what ends it.
type Connection = (Sender, Box<dyn Fn() + Send>);

/// An open terminal.
pub(crate) struct Terminal {
    flow: Mutex<Flow>,
    moved: Condvar,
    live: Mutex<Option<Connection>>,
    size: Mutex<(u16, u16)>,
}

impl Terminal {
    /// Opens a view on a task's newest run: its live terminal, or what it printed.
    pub(crate) fn open(engine: Arc<Engine>, task: TaskId, cols: u16, rows: u16, sink: Sink) -> Result<Arc<Self>, CommandError> {
        let attached = match engine.attach(&task) {
            Ok(a) => Some(a),
            Err(e) if e.code == Code::NotFound => None,
            Err(e) => return Err(e.into()),
        };
        let terminal = Arc::new(Self {
            flow: Mutex::default(),
            moved: Condvar::new(),
            live: Mutex::new(None),
            size: Mutex::new((cols, rows)),
        });
        let (reader, writer) = (terminal.clone(), terminal.clone());
        std::thread::Builder::new()
            .name("terminal read".into())
            .spawn(move || reader.read(&engine, &task, attached))
            .map_err(CommandError::window)?;
        std::thread::Builder::new()
            .name("terminal send".into())
            .spawn(move || writer.send(&sink))
            .map_err(CommandError::window)?;
        Ok(terminal)
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, flow: MutexGuard<'a, Flow>) -> MutexGuard<'a, Flow> {
        self.moved.wait(flow).unwrap_or_else(PoisonError::into_inner)
    }

    /// Types bytes. Without a live run they go nowhere.
    pub(crate) fn input(&self, bytes: &[u8]) -> Result<(), CommandError> {
        let sender = self.live.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(s, _)| s.clone());
        sender.map_or(Ok(()), |s| s.type_bytes(bytes).map_err(Into::into))
    }

    /// Tells the new size.
    pub(crate) fn resize(&self, cols: u16, rows: u16) -> Result<(), CommandError> {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = (cols, rows);
        let sender = self.live.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(s, _)| s.clone());
        sender.map_or(Ok(()), |s| s.send(&Request::Resize { cols, rows }).map_err(Into::into))
    }

    /// The page has drawn so many bytes.
    pub(crate) fn drawn(&self, bytes: usize) {
        let mut flow = self.flow();
        flow.under_way = flow.under_way.saturating_sub(bytes);
        self.moved.notify_all();
    }

    /// Ends both threads and the connection; the run goes on.
    pub(crate) fn close(&self) {
        self.flow().closed = true;
        self.moved.notify_all();
        if let Some((_, hang_up)) = self.live.lock().unwrap_or_else(PoisonError::into_inner).take() {
            hang_up();
        }
    }

    /// Queues bytes, waiting while the page is behind. False when the view is closed.
    fn push(&self, bytes: &[u8]) -> bool {
        let mut flow = self.flow();
        while !flow.closed && flow.pending.len() + flow.under_way > UNDER_WAY {
            flow = self.wait(flow);
        }
        flow.pending.extend_from_slice(bytes);
        self.moved.notify_all();
        !flow.closed
    }

    fn over(&self, outcome: Option<Outcome>) {
        self.flow().over = Some(outcome);
        self.moved.notify_all();
    }

    fn read(&self, engine: &Engine, task: &TaskId, mut attached: Option<Attached>) {
        // A task can be on screen before its warden listens; that is not the end of its run.
        let asked = Instant::now();
        while attached.is_none() && !self.flow().closed && asked.elapsed() < START && starts(engine, task) {
            std::thread::sleep(AGAIN);
            attached = engine.attach(task).ok();
        }
        // It may have begun to listen between the two looks.
        attached = attached.or_else(|| engine.attach(task).ok());
        let mut attempts = 0;
        while let Some(connection) = attached.take() {
            match self.read_live(connection) {
                Live::Ended(outcome) => return self.over(Some(outcome)),
                Live::Closed => return,
                Live::Broken => {}
            }
            // Broken while the run may live: attach again and draw everything anew.
            attempts += 1;
            if attempts <= ATTEMPTS && !self.flow().closed {
                std::thread::sleep(AGAIN);
                attached = engine.attach(task).ok();
                if attached.is_some() && !self.push(b"\x1bc") {
                    return;
                }
            }
        }
        // A live run's screen was drawn already; what is kept is for a run that was over before.
        let outcome = engine.task(task).ok().and_then(|view| {
            let run = &view.runs.last()?.run;
            if attempts == 0 {
                let (out, err) = engine.output(run, REPLAY).unwrap_or_default();
                // Kept output can be longer than what may be under way at once.
                for part in out.chunks(64 << 10).chain(err.chunks(64 << 10)) {
                    if !self.push(part) {
                        return None;
                    }
                }
            }
            run.outcome.clone().map(Into::into)
        });
        self.over(outcome);
    }

    fn read_live(&self, mut connection: Attached) -> Live {
        let (cols, rows) = *self.size.lock().unwrap_or_else(PoisonError::into_inner);
        let hello =
            connection.send(&Request::Resize { cols, rows }).and_then(|()| connection.send(&Request::Output { replay: REPLAY }));
        if hello.is_err() {
            return Live::Broken;
        }
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some((connection.sender(), Box::new(connection.hang_up())));
        if self.flow().closed {
            self.close();
            return Live::Closed;
        }
        let out = loop {
            match connection.receive() {
                Ok(Some(Incoming::Out(bytes) | Incoming::Err(bytes))) => {
                    if !self.push(&bytes) {
                        break Live::Closed;
                    }
                }
                Ok(Some(Incoming::Reply(Reply::Ended { outcome }))) => break Live::Ended(outcome.into()),
                // Everything else is for others that share the protocol.
                Ok(Some(Incoming::Reply(_))) => {}
                Ok(None) | Err(_) => break Live::Broken,
            }
        };
        self.live.lock().unwrap_or_else(PoisonError::into_inner).take();
        out
    }

    fn send(&self, sink: &Sink) {
        loop {
            let mut flow = self.flow();
            while !flow.closed && flow.pending.is_empty() && flow.over.is_none() {
                flow = self.wait(flow);
            }
            if flow.closed {
                return;
            }
            if flow.pending.is_empty() {
                let outcome = flow.over.take().flatten();
                drop(flow);
                sink.ended.send(outcome).ok();
                return;
            }
            let bytes = std::mem::take(&mut flow.pending);
            flow.under_way += bytes.len();
            self.moved.notify_all();
            drop(flow);
            if sink.output.send(InvokeResponseBody::Raw(bytes)).is_err() {
                return self.close();
            }
            std::thread::sleep(BATCH);
        }
    }
}

/// Whether the newest run is still being started: its warden listens before it writes its report.
fn starts(engine: &Engine, task: &TaskId) -> bool {
    let view = engine.task(task).ok();
    view.and_then(|v| v.runs.last().map(|r| r.run.report.is_none() && r.run.outcome.is_none())).unwrap_or(false)
}

enum Live {
    Ended(Outcome),
    Closed,
    Broken,
}
