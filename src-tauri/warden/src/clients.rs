//! The warden's socket: any number of windows and command lines, each at its own pace.

use crate::asks::Asks;
use crate::hold::Hold;
use crate::output::{Output, Which};
use crate::previews::Previews;
use crate::raise::Raises;
use crate::record::Recorder;
use crate::terminal::{Input, InputSender};
use db::EventLog;
use model::frame::{Decoder, encode};
use model::id::{RunId, TaskId};
use model::protocol::{PausedBy, Reply, Request, VERSION, kind};
use model::run::Outcome;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use supervise::Jail;
use supervise::limits::Allowance;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};

/// Connections at a time.
const CLIENTS: usize = 64;

/// How long a connection may take to say hello.
const HELLO: Duration = Duration::from_secs(2);

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) task: TaskId,
    pub(crate) run: RunId,
    pub(crate) jail: Arc<Jail>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) raises: Raises,
    pub(crate) previews: Previews,
    pub(crate) output: Arc<Output>,
    pub(crate) asks: Asks,
    pub(crate) recorder: Recorder,
    pub(crate) events: PathBuf,
    pub(crate) input: InputSender,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) ended: watch::Receiver<Option<Outcome>>,
    pub(crate) freezer: Semaphore,
}

/// Makes the socket. The caller holds the run's lock, so what lies there is a dead warden's.
pub(crate) fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The connections that are served; all permits are free when none is.
pub(crate) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CLIENTS))
}

/// Waits until every client was sent everything.
pub(crate) async fn all_served(room: &Semaphore) {
    let all = u32::try_from(CLIENTS).unwrap_or(u32::MAX);
    drop(room.acquire_many(all).await);
}

/// Serves until the task is dropped; connections outlive it.
pub(crate) async fn serve(listener: UnixListener, shared: Arc<Shared>, room: Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Err(e) = connection(stream, &shared).await {
                        tracing::debug!(error = %e, "a client's connection ended");
                    }
                    drop(permit);
                });
            }
            Err(e) => {
                tracing::warn!(error = %e, "accepting a client failed");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// What a connection wants to be sent.
enum Order {
    Reply(Reply),
    Output {
        replay: u64,
    },
    Events {
        from: u64,
        kinds: Vec<String>,
    },
    /// Nothing but the end.
    End,
}

async fn connection(stream: UnixStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid != nix::unistd::getuid().as_raw() {
        return Err(std::io::Error::other("another user's connection"));
    }
    let (read, write) = stream.into_split();
    let (orders, inbox) = mpsc::channel(64);
    let writer = tokio::spawn(send(write, inbox, Arc::clone(shared)));
    let result = listen(read, &orders, shared).await;
    drop(orders);
    writer.await.map_err(std::io::Error::other)??;
    result
}

async fn listen(read: OwnedReadHalf, orders: &mpsc::Sender<Order>, shared: &Arc<Shared>) -> std::io::Result<()> {
    let mut frozen = None;
    let result = follow(read, orders, shared, &mut frozen).await;
    // A client that goes away must leave nothing stopped, however it went.
    if let Some(permit) = frozen {
        thaw(shared).await;
        drop(permit);
    }
    result
}

/// Does what a client asks until it goes away; `frozen` is what it then leaves stopped.
async fn follow<'s>(
    mut read: OwnedReadHalf,
    orders: &mpsc::Sender<Order>,
    shared: &'s Arc<Shared>,
    frozen: &mut Option<SemaphorePermit<'s>>,
) -> std::io::Result<()> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    let mut greeted = false;
    loop {
        let frame = match decoder.next_frame() {
            Ok(Some(f)) => f,
            Ok(None) => {
                let more = read.read(&mut buffer);
                // Whoever says nothing must not keep others out.
                let more = if greeted { more.await } else { tokio::time::timeout(HELLO, more).await? };
                match more {
                    Ok(0) => return Ok(()),
                    Ok(n) => {
                        decoder.push(&buffer[..n]);
                        continue;
                    }
                    Err(e) => return Err(e),
                }
            }
            Err(e) => return Err(std::io::Error::other(e)),
        };
        if frame.kind == kind::OUT && greeted {
            // Waits while the command does not read: so does the client, whose other words go over a connection of their own.
            shared.input.send(Input::Bytes(frame.payload)).await.ok();
            continue;
        }
        let request = match serde_json::from_slice::<Request>(&frame.payload) {
            Ok(r) if frame.kind == kind::JSON => r,
            Ok(_) | Err(_) => return Err(std::io::Error::other("not a request")),
        };
        let say = |reply| async move { orders.send(Order::Reply(reply)).await.map_err(std::io::Error::other) };
        match request {
            Request::Hello { version: VERSION } => {
                greeted = true;
                say(Reply::Welcome { task: shared.task.clone(), run: shared.run.clone(), pid: std::process::id() }).await?;
            }
            Request::Hello { version } => {
                say(Reply::Error { message: format!("this run's warden speaks version {VERSION}, not {version}: stop the run, or use the Airlock it was started with") }).await?;
                return Ok(());
            }
            _ if !greeted => return Err(std::io::Error::other("no hello")),
            Request::Output { replay } => orders.send(Order::Output { replay }).await.map_err(std::io::Error::other)?,
            Request::Events { from, kinds } => orders.send(Order::Events { from, kinds }).await.map_err(std::io::Error::other)?,
            Request::Resize { cols, rows } => {
                shared.jail.resize(cols, rows).ok();
            }
            Request::Eof => {
                shared.input.send(Input::Eof).await.ok();
            }
            Request::Signal { signal } => {
                if let Some(Err(e)) = aside(shared, move |shared| shared.jail.signal(signal)).await {
                    say(Reply::Error { message: format!("signal {signal} could not be sent: {e}") }).await?;
                }
            }
            Request::Stop => {
                shared.stop.send_replace(true);
                orders.send(Order::End).await.map_err(std::io::Error::other)?;
            }
            Request::Freeze if frozen.is_none() => {
                *frozen = shared.freezer.acquire().await.ok();
                let complete = aside(shared, |shared| shared.hold.look()).await.unwrap_or(false);
                shared.recorder.lifecycle("frozen", if complete { "" } else { "not every process could be stopped" });
                say(Reply::Frozen { complete }).await?;
                orders.send(Order::End).await.map_err(std::io::Error::other)?;
            }
            Request::Freeze => say(Reply::Error { message: "already frozen by this connection".into() }).await?,
            Request::Thaw => {
                if let Some(permit) = frozen.take() {
                    thaw(shared).await;
                    drop(permit);
                }
                say(Reply::Thawed).await?;
            }
            Request::Pause => {
                let complete = aside(shared, |shared| shared.hold.pause(PausedBy::Person)).await.unwrap_or(false);
                say(Reply::Paused { complete }).await?;
                orders.send(Order::End).await.map_err(std::io::Error::other)?;
            }
            Request::Continue => {
                // Raised before it goes on: else the next look would stop it again.
                let was = aside(shared, |shared| {
                    let limited = shared.hold.limited();
                    if let Some(allowance) = shared.allowance.as_ref().filter(|_| limited) {
                        allowance.disk();
                        shared.raises.done("limits.disk");
                    }
                    shared.hold.proceed()
                })
                .await
                .unwrap_or(false);
                say(Reply::Continued { was }).await?;
                orders.send(Order::End).await.map_err(std::io::Error::other)?;
            }
            Request::Answer { ask, digest, answer } => {
                say(match shared.asks.answer(ask, digest, answer).await {
                    Ok(grant) => Reply::Answered { grant },
                    Err(message) => Reply::NotAsked { message },
                })
                .await?;
            }
            Request::Preview { port } => {
                say(match shared.previews.link(port) {
                    Ok(link) => Reply::Previewed { link },
                    Err(message) => Reply::NotPreviewed { message },
                })
                .await?;
            }
            Request::Unpreview { port } => say(Reply::Unpreviewed { was: shared.previews.close(port) }).await?,
            Request::Grants => say(Reply::GrantsRead { closed: shared.asks.reread().await }).await?,
            Request::Status => {
                say(aside(shared, status).await.unwrap_or(Reply::Error { message: "the run could not be looked at".into() }))
                    .await?;
            }
        }
    }
}

fn status(shared: &Shared) -> Reply {
    let processes = u32::try_from(shared.jail.processes().len()).unwrap_or(u32::MAX);
    Reply::Status { command: 2, processes, frozen: shared.hold.is_held(), paused: shared.hold.paused() }
}

/// Does something that blocks on a thread of its own: the runtime's may all be waiting for a resolver that never answers.
async fn aside<T: Send + 'static>(shared: &Arc<Shared>, act: impl FnOnce(&Shared) -> T + Send + 'static) -> Option<T> {
    let shared = Arc::clone(shared);
    let (done, result) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().spawn(move || done.send(act(&shared)).ok());
    if let Err(e) = started {
        tracing::error!(error = %e, "no thread could be started");
    }
    result.await.ok()
}

async fn thaw(shared: &Arc<Shared>) {
    if aside(shared, |shared| shared.hold.looked()).await.is_none() {
        tracing::error!("thawing did not come to an end");
    }
    shared.recorder.lifecycle("thawed", "");
}

async fn json(write: &mut OwnedWriteHalf, reply: &Reply) -> std::io::Result<()> {
    write.write_all(&encode(kind::JSON, &serde_json::to_vec(reply)?)).await
}

/// Events that are read at once.
const MOST: usize = 200;

/// What one client is sent beside replies.
#[derive(Default)]
struct Feed {
    cursors: Option<(u64, u64)>,
    events: Option<(u64, Vec<String>, EventLog)>,
    /// Whether it said what it wants.
    asked: bool,
}

impl Feed {
    /// Takes an order; a reply is handed back to be sent.
    fn take(&mut self, order: Order, shared: &Shared) -> std::io::Result<Option<Reply>> {
        match order {
            Order::Reply(reply) => return Ok(Some(reply)),
            Order::Output { replay } => {
                self.cursors = Some((shared.output.cursor(Which::Out, replay), shared.output.cursor(Which::Err, replay)));
            }
            Order::Events { from, kinds } => {
                self.events = EventLog::read_only(&shared.events).map_err(std::io::Error::other)?.map(|log| (from, kinds, log));
            }
            Order::End => {}
        }
        self.asked = true;
        Ok(None)
    }

    /// Sends what is new; true where something was. Before the event `stored` everything is in the log.
    async fn send(&mut self, write: &mut OwnedWriteHalf, shared: &Shared, stored: u64) -> std::io::Result<bool> {
        let mut busy = false;
        if let Some((out, err)) = &mut self.cursors {
            for (which, cursor, kind) in [(Which::Out, out, kind::OUT), (Which::Err, err, kind::ERR)] {
                let piece = shared.output.read(which, cursor)?;
                if piece.missed > 0 {
                    json(write, &Reply::Missed { bytes: piece.missed }).await?;
                }
                if !piece.bytes.is_empty() {
                    write.write_all(&encode(kind, &piece.bytes)).await?;
                    busy = true;
                }
            }
        }
        if let Some((next, kinds, log)) = &mut self.events {
            let events = log.list(*next, MOST, kinds).map_err(std::io::Error::other)?;
            // What is of other kinds is not looked through again at each news.
            if events.len() < MOST {
                *next = stored.max(*next);
            }
            for event in events {
                *next = (event.seq + 1).max(*next);
                json(write, &Reply::Event { event: Box::new(event) }).await?;
                busy = true;
            }
        }
        Ok(busy)
    }
}

async fn send(mut write: OwnedWriteHalf, mut inbox: mpsc::Receiver<Order>, shared: Arc<Shared>) -> std::io::Result<()> {
    let mut grown = shared.output.grown();
    let mut stored = shared.recorder.stored();
    let mut ended = shared.ended.clone();
    let mut feed = Feed::default();
    loop {
        // Marked before reading, so that what comes while reading wakes the wait below.
        grown.borrow_and_update();
        let in_log = *stored.borrow_and_update();
        let outcome = ended.borrow_and_update().clone();
        let order = match inbox.try_recv() {
            Ok(order) => Some(order),
            Err(mpsc::error::TryRecvError::Disconnected) => return Ok(()),
            Err(mpsc::error::TryRecvError::Empty) if feed.send(&mut write, &shared, in_log).await? => continue,
            Err(mpsc::error::TryRecvError::Empty) => match outcome {
                // Whoever connects while the run ends has not said yet what it wants, and everything is still here.
                Some(outcome) if !feed.asked => match tokio::time::timeout(HELLO, inbox.recv()).await {
                    Ok(None) => return Ok(()),
                    Ok(order) => order,
                    Err(_) => return end(write, outcome).await,
                },
                Some(outcome) => return end(write, outcome).await,
                None => tokio::select! {
                    order = inbox.recv() => match order {
                        None => return Ok(()),
                        order => order,
                    },
                    r = grown.changed(), if feed.cursors.is_some() => { r.map_err(std::io::Error::other)?; None }
                    // The writer thread ends before the run does: its closed channel is no news.
                    r = stored.changed(), if feed.events.is_some() && stored.has_changed().is_ok() => { r.ok(); None }
                    r = ended.changed() => { r.map_err(std::io::Error::other)?; None }
                },
            },
        };
        if let Some(reply) = order.map(|o| feed.take(o, &shared)).transpose()?.flatten() {
            json(&mut write, &reply).await?;
        }
    }
}

/// The last word.
async fn end(mut write: OwnedWriteHalf, outcome: Outcome) -> std::io::Result<()> {
    json(&mut write, &Reply::Ended { outcome }).await?;
    write.shutdown().await
}
