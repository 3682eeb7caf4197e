//! From an allowed connection to its end outside, and the bytes between.

use crate::address::{globally_reachable, is_own, reachable_within};
use crate::arbiter::Limits;
use crate::budget::{Budget, Spent, Way};
use crate::gate::{Gate, name};
use crate::proxy::Proxies;
use crate::scrub::Sieve;
use model::decision::Ruling;
use model::event::{NetOp, Process, Verdict, What};
use policy::{Destination, Leads, Target};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// Bytes that are carried at once in each direction.
const CHUNK: usize = 64 * 1024;
/// How long the possible beginning of a secret is held back.
const HELD_BACK: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried.
const TRIED: usize = 8;

/// Why an allowed connection leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The address check refuses every address of the name.
    #[error("{0}")]
    Closed(String),
    /// The name has no address outside.
    #[error("{0} has no address outside: {1}")]
    Unknown(String, std::io::Error),
    /// No address answered.
    #[error("{0} did not take the connection: {1}")]
    Refused(SocketAddr, std::io::Error),
    /// The person's proxy does not connect.
    #[error(transparent)]
    Proxy(#[from] crate::proxy::Failed),
    /// It took too long.
    #[error("no answer from outside within {} s", .0.as_secs())]
    Late(Duration),
}

/// The ways to the outside.
pub(crate) struct Roads {
    resolving: Arc<Semaphore>,
    within: Duration,
    proxies: Proxies,
}

/// A connection outside.
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) end: End,
}

/// Where a connection outside ends.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// At an address that was checked.
    At(SocketAddr),
    /// Beyond a proxy of the person's, which resolves names by itself; that one in words.
    Beyond(String),
}

impl End {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(*address),
            Self::Beyond(_) => None,
        }
    }

    /// A reason with what is to be said of the end.
    pub(crate) fn told(&self, reason: &str) -> String {
        match self {
            Self::At(_) => reason.to_owned(),
            Self::Beyond(proxy) => {
                let between = if reason.is_empty() { "" } else { "; " };
                format!("{reason}{between}by the proxy {proxy}, so that where its name leads was not checked")
            }
        }
    }
}

impl Roads {
    pub(crate) fn new(limits: &Limits, proxies: Proxies) -> Self {
        Self { resolving: Arc::new(Semaphore::new(limits.resolving)), within: limits.connect, proxies }
    }

    /// How long connecting may take.
    pub(crate) fn within(&self) -> Duration {
        self.within
    }

    /// Connects to where an allowed target leads.
    pub(crate) async fn dial(&self, target: &Target, leads: Leads) -> Result<Dialled, Failed> {
        let work = async {
            if leads == Leads::Public {
                if let Destination::Address(ip) = target.to {
                    reachable(SocketAddr::new(ip, target.port), leads)?;
                }
                if let Some(stream) = self.proxies.connect(target).await {
                    let end = End::Beyond(self.proxies.words().unwrap_or_default());
                    return Ok(Dialled { stream: stream?, end });
                }
            }
            let addresses = match leads {
                Leads::At(a) => vec![a],
                Leads::Public | Leads::Within(_) => checked(resolve(target, &self.resolving).await?, leads)?,
            };
            let mut last = Failed::Closed(format!("{target} has no address"));
            for a in addresses.into_iter().take(TRIED) {
                match TcpStream::connect(a).await {
                    Ok(stream) => return Ok(Dialled { stream, end: End::At(a) }),
                    Err(e) => last = Failed::Refused(a, e),
                }
            }
            Err(last)
        };
        tokio::time::timeout(self.within, work).await.unwrap_or(Err(Failed::Late(self.within)))
    }
}

/// Whether a bare address may be connected to at all: known before anybody is asked.
pub(crate) fn reachable(address: SocketAddr, leads: Leads) -> Result<(), Failed> {
    match leads {
        Leads::At(_) => Ok(()),
        Leads::Public | Leads::Within(_) => checked(vec![address], leads).map(drop),
    }
}

async fn resolve(target: &Target, resolving: &Arc<Semaphore>) -> Result<Vec<SocketAddr>, Failed> {
    let host = match &target.to {
        Destination::Address(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Destination::Name(h) => h,
    };
    let closed = || Failed::Closed("the way out is closing".into());
    let permit = Arc::clone(resolving).acquire_owned().await.map_err(|_| closed())?;
    // The final dot keeps the host's search domains out: the name that was judged is the name that is resolved.
    let asked = (format!("{host}."), target.port);
    let answer = tokio::task::spawn_blocking(move || {
        // The system's resolver can't be called off: its place is taken until it answers, however long ago the caller gave up.
        let found = std::net::ToSocketAddrs::to_socket_addrs(&asked).map(Iterator::collect);
        drop(permit);
        found
    });
    match answer.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(e)) => Err(Failed::Unknown(host.to_string(), e)),
        Err(_) => Err(closed()),
    }
}

/// The addresses that may be connected to. They are connected to as they are here, so a name that changes later changes nothing.
fn checked(found: Vec<SocketAddr>, leads: Leads) -> Result<Vec<SocketAddr>, Failed> {
    let mut good = Vec::new();
    let mut why = String::new();
    for a in found {
        let may = match leads {
            Leads::Within(range) => reachable_within(a.ip(), range),
            Leads::Public | Leads::At(_) => globally_reachable(a.ip()),
        };
        match may {
            Err(e) => why = e.to_string(),
            Ok(()) if is_own(a.ip()) => {
                why = format!("{} is an address of this machine; only a rule with `address` leads there", a.ip())
            }
            Ok(()) => good.push(a),
        }
    }
    if good.is_empty() && !why.is_empty() { Err(Failed::Closed(why)) } else { Ok(good) }
}

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
}

impl Open {
    /// `address` is the one outside, where there is one already.
    pub(crate) fn new(
        gate: Arc<Gate>,
        target: &Target,
        address: Option<SocketAddr>,
        ruling: Ruling,
        who: Option<Process>,
        shares: Vec<Arc<Budget>>,
    ) -> Self {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let host = name(Some(target));
        let open = Self { gate, host, address, port: target.port, ruling, who, sent, received, shares, why: Mutex::default() };
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
        mut outside: TcpStream,
        first: Vec<u8>,
        named: Option<&Target>,
        ended: Option<watch::Receiver<bool>>,
    ) {
        quick(&inside);
        quick(&outside);
        let (ir, iw) = inside.split();
        let (or, ow) = outside.split();
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
            reset(outside);
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
        named: Option<&Target>,
    ) -> Result<(), Broken> {
        if let Some(target) = named {
            crate::hello::check(&mut from, &mut first, target).await?;
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
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = from.read(&mut buffer).await?;
            if n == 0 {
                return Ok(to.shutdown().await?);
            }
            self.take(way, n as u64, shares)?;
            to.write_all(&buffer[..n]).await?;
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
    stream.set_zero_linger().unwrap_or_else(|e| tracing::debug!("a connection ends without a reset: {e}"));
    drop(stream);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_that_leads_home_leads_nowhere() {
        let a = |t: &str| t.parse::<SocketAddr>().unwrap();
        for home in
            ["127.0.0.1:443", "[::1]:443", "10.1.2.3:443", "169.254.169.254:80", "[fe80::1]:443", "[::ffff:127.0.0.1]:443"]
        {
            assert!(matches!(checked(vec![a(home)], Leads::Public), Err(Failed::Closed(_))), "{home}");
        }
        let mixed = checked(vec![a("127.0.0.1:443"), a("1.1.1.1:443"), a("10.0.0.1:443")], Leads::Public).unwrap();
        assert_eq!(mixed, [a("1.1.1.1:443")], "a name that also leads home keeps its public addresses only");
    }

    #[test]
    fn p4_a_range_is_the_only_place_that_its_rule_leads_to() {
        let a = |t: &str| t.parse::<SocketAddr>().unwrap();
        let within = |range: &str, found: &[&str]| {
            checked(found.iter().map(|f| a(f)).collect(), Leads::Within(policy::Range::parse(range).unwrap()))
        };
        let found = within("10.20.0.0/16", &["10.20.1.2:443", "10.21.1.2:443", "1.1.1.1:443", "127.0.0.1:443"]).unwrap();
        assert_eq!(found, [a("10.20.1.2:443")], "nothing beside it, be it public");
        assert_eq!(within("fd12::/16", &["[fd12::1]:443"]).unwrap(), [a("[fd12::1]:443")]);
        for (range, home) in [
            ("127.0.0.0/8", "127.0.0.1:443"),
            ("169.254.0.0/16", "169.254.169.254:80"),
            ("224.0.0.0/8", "224.0.0.1:443"),
            ("fe80::/16", "[fe80::1]:443"),
            ("64:ff9b::/96", "[64:ff9b::a01:203]:443"),
            ("2002::/16", "[2002:a01:203::1]:443"),
        ] {
            assert!(matches!(within(range, &[home]), Err(Failed::Closed(_))), "{home} stays closed within {range}");
        }
    }
}
