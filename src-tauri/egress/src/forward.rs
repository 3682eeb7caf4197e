//! A connection that was let in: the bytes between its two ends, counted and told.

use crate::budget::{Budget, Spent, Way};
use crate::gate::{Gate, name};
use crate::hello::Named;
use crate::roads::Road;
use crate::scrub::Sieve;
use model::decision::Ruling;
use model::event::{Carried, Mode, NetOp, Process, Verdict, What};
use policy::Target;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Bytes that are carried at once in each direction, at first and at most.
const FIRST: usize = 2048;
const CHUNK: usize = 64 * 1024;
/// How long the possible beginning of a secret is held back.
const HELD_BACK: Duration = Duration::from_millis(250);

/// A connection that was let in; told then, and again with its bytes when dropped, however it ends.
pub(crate) struct Open {
    gate: Arc<Gate>,
    host: String,
    address: Option<SocketAddr>,
    port: u16,
    ruling: Ruling,
    who: Option<Process>,
    sent: AtomicU64,
    received: AtomicU64,
    /// What is left of what its rules let out; each request has its own where requests are read.
    shares: Vec<Arc<Budget>>,
    /// Why it was ended from here.
    why: Mutex<Option<String>>,
    mode: Mode,
    begun: Instant,
}

impl Open {
    /// `address` is the one outside, where there is one already.
    pub(crate) fn new(
        gate: Arc<Gate>,
        target: &Target,
        address: Option<SocketAddr>,
        ruling: Ruling,
        who: Option<Process>,
        (mode, shares): (Mode, Vec<Arc<Budget>>),
    ) -> Self {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let (host, why, begun) = (name(Some(target)), Mutex::default(), Instant::now());
        let open = Self { gate, host, address, port: target.port, ruling, who, sent, received, shares, why, mode, begun };
        open.tell(NetOp::Connect, Verdict::Allowed);
        open
    }

    fn tell(&self, op: NetOp, verdict: Verdict) {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let what = What::Network {
            op,
            host: self.host.clone(),
            address: self.address.map(|a| a.to_string()),
            port: self.port,
            verdict,
            rule: self.ruling.rule.clone(),
            reason: why.unwrap_or_else(|| self.ruling.reason.clone()),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            http: None,
            carried: Some(Carried {
                mode: self.mode,
                millis: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            }),
        };
        self.gate.recorder.tell(what, self.who.clone());
    }

    /// Keeps why it ends; the first word stays.
    pub(crate) fn note(&self, why: String) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// What permitted it has ended.
    pub(crate) fn cut(&self) {
        self.note(Broken::Grant.to_string());
    }

    /// Bytes are used up.
    pub(crate) fn spent(&self, spent: &Spent) {
        let (key, most, whose) = (spent.key(), spent.most, spent.whose());
        self.note(format!("`{key}` is used up"));
        if spent.first {
            let detail = format!(
                "the {most} bytes of {whose} are used up: its connections were closed, and no new one is made; `{key}` raises it"
            );
            self.gate.recorder.limit_by(spent.way.key(), detail, self.who.clone());
            let (gate, spent, who) = (Arc::clone(&self.gate), spent.clone(), self.who.clone());
            tokio::spawn(async move { gate.raise(spent, who).await });
        }
    }

    /// Takes room for bytes that are about to be carried, and counts them.
    pub(crate) fn take(&self, way: Way, bytes: u64, shares: &[Arc<Budget>]) -> Result<(), Spent> {
        let of_rules = shares.iter().map(AsRef::as_ref);
        for budget in of_rules.chain([&self.gate.budget]) {
            budget.take(way, bytes).inspect_err(|spent| self.spent(spent))?;
        }
        let count = match way {
            Way::Out => &self.sent,
            Way::In => &self.received,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Carries bytes both ways until both ends are done. An end that breaks off breaks the other, so that nobody takes half for all.
    /// `first` was taken from the program before; TLS must be for `named`, where that is given; `ended` turns true when what permits
    /// the connection ends.
    pub(crate) async fn relay(
        &self,
        mut inside: TcpStream,
        mut outside: Road,
        first: Vec<u8>,
        named: Option<Named<'_>>,
        ended: Option<watch::Receiver<bool>>,
    ) {
        quick(&inside);
        quick(outside.tcp());
        let (ir, iw) = inside.split();
        let (or, ow) = tokio::io::split(&mut outside);
        let both =
            async { tokio::try_join!(self.carry_out(ir, ow, first, named), self.carry_one(or, iw, Way::In, &self.shares)) };
        let ended = tokio::select! {
            ended = both => ended.map(drop),
            spent = self.gate.budget.used_up() => Err(Broken::Limit(spent)),
            () = over(ended) => Err(Broken::Grant),
        };
        if let Err(e) = ended {
            tracing::debug!("a connection to {} broke off: {e}", self.host);
            match &e {
                Broken::Limit(spent) => self.spent(spent),
                Broken::Grant | Broken::Odd(_) => self.note(e.to_string()),
                Broken::Io(_) => {}
            }
            reset(inside);
            at_once(outside.tcp());
        }
    }

    /// The same for streams that were switched from HTTP to something else; what comes back goes through `sieve`.
    pub(crate) async fn carry(
        &self,
        inside: impl AsyncRead + AsyncWrite,
        outside: impl AsyncRead + AsyncWrite,
        shares: &[Arc<Budget>],
        sieve: Option<Sieve>,
    ) {
        let (ir, iw) = tokio::io::split(inside);
        let (or, ow) = tokio::io::split(outside);
        if let Err(e) = tokio::try_join!(self.carry_one(ir, ow, Way::Out, shares), self.sift(or, iw, sieve)) {
            tracing::debug!("a switched connection to {} broke off: {e}", self.host);
        }
    }

    /// Carries what comes back to its end, without secrets.
    async fn sift(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        mut sieve: Option<Sieve>,
    ) -> Result<(), Broken> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let held = sieve.as_ref().is_some_and(Sieve::holds);
            let read = tokio::select! {
                read = from.read(&mut buffer) => Some(read?),
                // A message may end like a secret begins, and its program waits for it before it says more.
                () = tokio::time::sleep(HELD_BACK), if held => None,
            };
            self.take(Way::In, read.unwrap_or(0) as u64, &[])?;
            match (&mut sieve, read) {
                (Some(sieve), Some(0) | None) => to.write_all(&sieve.rest()).await?,
                (Some(sieve), Some(n)) => to.write_all(&sieve.take(&buffer[..n])).await?,
                (None, n) => to.write_all(&buffer[..n.unwrap_or(0)]).await?,
            }
            to.flush().await?;
            if read == Some(0) {
                return Ok(to.shutdown().await?);
            }
        }
    }

    async fn carry_out(
        &self,
        mut from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
        mut first: Vec<u8>,
        named: Option<Named<'_>>,
    ) -> Result<(), Broken> {
        if let Some(named) = named {
            Box::pin(crate::hello::check(&mut from, &mut first, named)).await?;
            first.shrink_to_fit();
        }
        self.carry_one(std::io::Cursor::new(first).chain(from), to, Way::Out, &self.shares).await
    }

    /// Carries one direction to its end, then passes the end on. What there is no room for is not carried.
    async fn carry_one(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        way: Way,
        shares: &[Arc<Budget>],
    ) -> Result<(), Broken> {
        // Most connections stand and say little.
        let mut buffer = vec![0; FIRST];
        loop {
            let n = from.read(&mut buffer).await?;
            if n == 0 {
                return Ok(to.shutdown().await?);
            }
            self.take(way, n as u64, shares)?;
            to.write_all(&buffer[..n]).await?;
            // Where TLS is around it, the rest may still be in its own buffer.
            to.flush().await?;
            if n == buffer.len() && n < CHUNK {
                buffer.resize((4 * n).min(CHUNK), 0);
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.tell(NetOp::Close, Verdict::Noted);
    }
}

/// Why a connection broke off.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Limit(#[from] Spent),
    #[error(transparent)]
    Odd(#[from] crate::hello::Odd),
    #[error("what permitted it has ended")]
    Grant,
}

/// Waits for the end of a grant; for ever where there is none, or where nobody can end it any more.
pub(crate) async fn over(ended: Option<watch::Receiver<bool>>) {
    if let Some(mut ended) = ended
        && ended.wait_for(|over| *over).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Small writes go out at once, and a peer that vanished is noticed.
fn quick(stream: &TcpStream) {
    let done = stream
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(stream, true)?))
        .and_then(|()| Ok(rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?));
    done.unwrap_or_else(|e| tracing::debug!("options of a connection not set: {e}"));
}

/// Ends a connection so that its program sees a reset and no orderly end.
pub(crate) fn reset(stream: TcpStream) {
    at_once(&stream);
    drop(stream);
}

fn at_once(stream: &TcpStream) {
    stream.set_zero_linger().unwrap_or_else(|e| tracing::debug!("a connection ends without a reset: {e}"));
}
