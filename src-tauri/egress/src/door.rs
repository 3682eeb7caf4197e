//! Where the jail's connections arrive.

use crate::arbiter::{Arbiter, Limits, Permit, Wanted};
use crate::attach::Vault;
use crate::authority::Authority;
use crate::dns;
use crate::forges;
use crate::forward::{Open, reset};
use crate::gate::{Gate, name};
use crate::held::{self, Waited};
use crate::hello::Named;
use crate::inspect::{Arrival, LISTS, Reader, UNDER_WAY};
use crate::proxy::Proxies;
use crate::rate::Rate;
use crate::record::Recorder;
use crate::roads::{Dialled, Failed, Roads, reachable};
use crate::udp;
use crate::upstream::Outside;
use model::decision::{Decision, Ruling};
use model::event::{Mode, NetOp, Process, Verdict, What};
use policy::{Destination, Inside, Policy, Target};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// How long a connection for questions may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// Questions that one connection may ask.
const QUESTIONS: u32 = 256;

/// Where connections and questions arrive.
#[derive(Debug)]
pub enum Inlets {
    /// The two sockets in the jail's network namespace.
    Own {
        /// TCP, listening: a connection's own address is the destination that the jail dialled (tproxy).
        listener: OwnedFd,
        /// UDP, bound to port 53, with packet info, so that answers come from the address that was asked.
        dns: OwnedFd,
    },
    /// TCP sockets that listen on this machine's loopback, for connections that were made for the jail: whatever else arrives there is
    /// dropped. Questions come over TCP alone.
    Made(Vec<OwnedFd>),
}

/// How a connection says where it was meant to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meant {
    /// By its own address.
    ByAddress,
    /// By whoever made it.
    ByMaker,
}

/// Why a way out ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket can't be used.
    #[error("the way out can't use its {socket} socket, so the jail has no network: {source}")]
    Socket {
        /// Which.
        socket: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What is needed where the policy has requests read.
pub struct Reading {
    /// Makes the certificates that only what runs inside trusts.
    pub authority: Arc<Authority>,
    /// What is attached.
    pub vault: Arc<Vault>,
    /// Whom outside to trust.
    pub roots: Arc<rustls::RootCertStore>,
}

/// Serves one jail until the future is dropped, which ends its connections too. Without `reading`, connections whose requests the
/// policy wants read are refused.
///
/// # Errors
/// A socket that can't be used; nothing gets out then.
pub async fn serve(
    inlets: Inlets,
    policy: Arc<Policy>,
    arbiter: Arc<dyn Arbiter>,
    limits: Limits,
    reading: Option<Reading>,
    proxies: Proxies,
) -> Result<Infallible, ServeError> {
    let tcp = |source| ServeError::Socket { socket: "TCP", source };
    let listening = |fd: OwnedFd| {
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(true).map_err(tcp)?;
        TcpListener::from_std(listener).map_err(tcp)
    };
    let (listeners, dns, meant) = match inlets {
        Inlets::Own { listener, dns } => (vec![listening(listener)?], Some(dns), Meant::ByAddress),
        Inlets::Made(fds) => (fds.into_iter().map(listening).collect::<Result<_, _>>()?, None, Meant::ByMaker),
    };
    let door = Arc::new(Door::new(policy, arbiter, limits, reading, proxies));
    let dns = async {
        let Some(dns) = dns else { return std::future::pending().await };
        let ended = udp::serve(dns, &door.gate, &door.lookups, door.limits.lookups).await;
        ended.map_err(|source| ServeError::Socket { socket: "DNS", source })
    };
    tokio::select! {
        never = accept(&door, &listeners, meant) => match never {},
        () = door.gate.recorder.run() => Err(tcp(std::io::ErrorKind::Interrupted.into())),
        ended = dns => match ended {
            Err(e) => Err(e),
            Ok(()) => Err(ServeError::Socket { socket: "DNS", source: std::io::ErrorKind::UnexpectedEof.into() }),
        },
    }
}

/// Takes connections. Who made one is asked at once, since that is known for some seconds only; then it waits for room. Beyond as many
/// as that again the jail waits.
async fn accept(door: &Arc<Door>, listeners: &[TcpListener], meant: Meant) -> Infallible {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&door.arrivals).acquire_owned().await else { return std::future::pending().await };
        match next(listeners).await {
            Ok((stream, from)) => {
                let door = Arc::clone(door);
                tasks.spawn(async move {
                    let to = match meant {
                        Meant::ByAddress => stream.local_addr().ok().map(|dst| (canonical(dst), None)),
                        // Any program of this machine can come here; one that nobody sent is nobody's.
                        Meant::ByMaker => {
                            let made = door.told(|door| door.arbiter.made(canonical(from))).await;
                            made.map(|(to, who)| (canonical(to), Some(who)))
                        }
                    };
                    match to {
                        Some((dst, who)) => door.arrive(stream, dst, who, Some(place)).await,
                        None => reset(stream),
                    }
                });
            }
            Err(e) => {
                door.gate.recorder.limit("connections", format!("a connection can't be taken: {e}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The next connection of any listener.
async fn next(listeners: &[TcpListener]) -> std::io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        let ready = listeners.iter().map(|l| l.poll_accept(context)).find(std::task::Poll::is_ready);
        ready.unwrap_or(std::task::Poll::Pending)
    })
    .await
}

/// The address as the jail's programs wrote it: IPv4 arrives at the dual-stack listener as mapped IPv6.
fn canonical(a: SocketAddr) -> SocketAddr {
    match a.ip() {
        IpAddr::V6(v6) => SocketAddr::new(v6.to_ipv4_mapped().map_or(a.ip(), IpAddr::V4), a.port()),
        IpAddr::V4(_) => a,
    }
}

/// One jail's way out.
pub(crate) struct Door {
    pub(crate) gate: Arc<Gate>,
    arbiter: Arc<dyn Arbiter>,
    limits: Limits,
    connections: Arc<Semaphore>,
    arrivals: Arc<Semaphore>,
    roads: Arc<Roads>,
    lookups: Rate,
    refusals: Rate,
    reader: Option<Arc<Reader>>,
}

impl Door {
    pub(crate) fn new(
        policy: Arc<Policy>,
        arbiter: Arc<dyn Arbiter>,
        limits: Limits,
        reading: Option<Reading>,
        proxies: Proxies,
    ) -> Self {
        let gate = Arc::new(Gate::new(policy, limits.names, Recorder::new(Arc::clone(&arbiter))));
        let roads = Arc::new(Roads::new(&limits, proxies));
        let reader = reading.map(|Reading { authority, vault, roots }| {
            let outside = Arc::new(Outside::new(Arc::clone(&roads), roots));
            let (requests, lists) = (Arc::new(Semaphore::new(UNDER_WAY)), Arc::new(Semaphore::new(LISTS)));
            let (gate, arbiter) = (Arc::clone(&gate), Arc::clone(&arbiter));
            Arc::new(Reader { gate, arbiter, authority, vault, outside, requests, lists })
        });
        Self {
            gate,
            arbiter,
            connections: Arc::new(Semaphore::new(limits.connections)),
            arrivals: Arc::new(Semaphore::new(limits.connections.max(16))),
            roads,
            lookups: Rate::per_second(limits.lookups),
            refusals: Rate::per_second(limits.refusals),
            reader,
            limits,
        }
    }

    /// Room for one more connection, waited for and told where there is none.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(room) = Arc::clone(&self.connections).try_acquire_owned() {
            return Some(room);
        }
        self.gate.recorder.limit("connections", format!("{} connections are open; further ones wait", self.limits.connections));
        Arc::clone(&self.connections).acquire_owned().await.ok()
    }

    /// One connection from its arrival to its end. `dst` is what the jail dialled, `who` who did, where that came with it; `place` is
    /// held until there is room.
    pub(crate) async fn arrive(
        &self,
        inside: TcpStream,
        dst: SocketAddr,
        who: Option<Process>,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let who = match who {
            Some(who) => Some(who),
            None => self.told(|door| door.arbiter.announced(dst)).await,
        };
        let Some(who) = who else {
            let reason = "the kernel told of no process that connects there".into();
            let ruling = Ruling { decision: Decision::Deny, rule: "attribution".into(), source: "airlock".into(), reason };
            return self.refuse(inside, dst, None, &ruling, None).await;
        };
        let _room = self.room().await;
        drop(place);
        self.handle(inside, dst, who).await;
    }

    async fn handle(&self, mut inside: TcpStream, dst: SocketAddr, who: Process) {
        if dst.port() == 53 {
            return self.questions(inside).await;
        }
        let (target, answer) = self.gate.connect(dst);
        let mut first = Vec::new();
        let (target, ruling, ended) = match (target, answer.ruling.decision) {
            (Some(target), Decision::Allow) => (target, answer.ruling, None),
            (Some(target), Decision::Ask) => {
                if let Destination::Address(ip) = target.to
                    && let Err(closed) = reachable(SocketAddr::new(ip, target.port), answer.leads)
                {
                    let reason = closed.to_string();
                    let ruling =
                        Ruling { decision: Decision::Deny, rule: "address check".into(), source: "airlock".into(), reason };
                    return self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
                }
                match Box::pin(self.hold(&mut inside, &mut first, dst, &target, &answer.ruling, &who)).await {
                    Some(Permit::Granted { ruling, ended }) => (target, ruling, Some(ended)),
                    Some(Permit::Refused(ruling)) => {
                        return self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
                    }
                    None => return reset(inside),
                }
            }
            (target, _) => return self.refuse(inside, dst, target.as_ref(), &answer.ruling, Some(who)).await,
        };
        if answer.wild && ended.is_none() && !self.gate.may_leave(&target) {
            let reason = "too many new names under wildcards at once".to_owned();
            let ruling = Ruling { decision: Decision::Deny, rule: "names".into(), source: "airlock".into(), reason };
            return self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
        }
        let shares = self.gate.shares(&answer.caps);
        if let Some(spent) = shares.iter().find_map(|s| s.over()).or_else(|| self.gate.budget.over()) {
            let (rule, reason) = (spent.key(), spent.to_string());
            let ruling = Ruling { decision: Decision::Deny, rule, source: "airlock".into(), reason };
            return self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
        }
        if self.gate.reads(&target) {
            let Some(reader) = &self.reader else {
                let reason = "its requests are to be read, and nothing can read them in this run".into();
                let ruling = Ruling { decision: Decision::Deny, rule: "inspect".into(), source: "airlock".into(), reason };
                return self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
            };
            let arrival = Arrival { target, leads: answer.leads, ruling, ended, who };
            return Box::pin(reader.serve(inside, first, arrival)).await;
        }
        // What lasts but a moment takes no room in what lasts.
        match Box::pin(self.roads.dial(&target, answer.leads)).await {
            Ok(Dialled { road: outside, end }) => {
                let (address, ruling) = (end.address(), Ruling { reason: end.told(&ruling.reason), ..ruling });
                let (named, mode) = match self.gate.carried(&target) {
                    Inside::Tcp => (None, Mode::Unread),
                    Inside::Ech => (Some(Named { target: &target, hides: true }), Mode::Tunnel),
                    Inside::Unsaid | Inside::Inspect => (Some(Named { target: &target, hides: false }), Mode::Tunnel),
                };
                let open = Open::new(Arc::clone(&self.gate), &target, address, ruling, Some(who), (mode, shares));
                open.relay(inside, outside, first, named, ended).await;
            }
            Err(Failed::Closed(reason)) => {
                let ruling = Ruling { decision: Decision::Deny, rule: "address check".into(), source: "airlock".into(), reason };
                self.refuse(inside, dst, Some(&target), &ruling, Some(who)).await;
            }
            Err(failed) => self.fail(inside, dst, &target, &ruling, failed, who),
        }
    }

    /// Asks again for up to a second, as the telling may be a little behind.
    async fn told<T>(&self, ask: impl Fn(&Self) -> Option<T>) -> Option<T> {
        for pause in [1, 2, 5, 10, 20, 50, 100, 300, 500] {
            if let Some(told) = ask(self) {
                return Some(told);
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        ask(self)
    }

    async fn refuse(&self, inside: TcpStream, dst: SocketAddr, target: Option<&Target>, ruling: &Ruling, who: Option<Process>) {
        self.refusals.wait().await;
        self.gate.tell_connect(dst, target, Verdict::Denied, ruling, who);
        reset(inside);
    }

    /// Holds a connection that the policy asks about until the person's word; nothing where it ended without one, which is told.
    async fn hold(
        &self,
        inside: &mut TcpStream,
        first: &mut Vec<u8>,
        dst: SocketAddr,
        target: &Target,
        ruling: &Ruling,
        who: &Process,
    ) -> Option<Permit> {
        let wanted = Wanted {
            target: target.clone(),
            request: None,
            by_host: true,
            who: who.clone(),
            ruling: forges::marked(ruling, target),
        };
        let mut answer = self.arbiter.permit(wanted);
        if let Ok(known) = tokio::time::timeout(held::AT_ONCE, &mut answer).await {
            return known.ok();
        }
        let tell = |verdict, ruling: &Ruling| self.gate.tell_connect(dst, Some(target), verdict, ruling, Some(who.clone()));
        tell(Verdict::Held, ruling);
        let within = self.gate.hold();
        let why = match held::wait(inside, first, &mut answer, within).await {
            Waited::Answered(permit) => return Some(permit),
            Waited::Unanswered => format!("nobody answered within {} s; the ask stays open", within.as_secs()),
            Waited::GivenUp => "its program gave up waiting; the ask stays open".to_owned(),
        };
        tell(Verdict::Denied, &Ruling { reason: why, ..ruling.clone() });
        None
    }

    /// Allowed, but outside nobody took it.
    fn fail(&self, inside: TcpStream, dst: SocketAddr, target: &Target, ruling: &Ruling, failed: Failed, who: Process) {
        let what = What::Network {
            op: NetOp::Connect,
            host: name(Some(target)),
            address: Some(dst.ip().to_string()),
            port: dst.port(),
            verdict: Verdict::Noted,
            rule: ruling.rule.clone(),
            reason: format!("allowed, but {failed}"),
            sent: 0,
            received: 0,
            http: None,
            carried: None,
        };
        self.gate.recorder.tell(what, Some(who));
        reset(inside);
    }

    /// Questions for names over TCP: each with its length before it.
    async fn questions(&self, mut inside: TcpStream) {
        for _ in 0..QUESTIONS {
            let read = async {
                let length = usize::from(inside.read_u16().await?);
                if length > udp::LARGEST {
                    return Err(std::io::ErrorKind::InvalidData.into());
                }
                let mut packet = vec![0; length];
                inside.read_exact(&mut packet).await?;
                Ok::<_, std::io::Error>(packet)
            };
            let Ok(Ok(packet)) = tokio::time::timeout(SILENCE, read).await else { return };
            self.lookups.wait().await;
            let Some(reply) = dns::answer(&self.gate, &packet) else { return };
            let Ok(length) = u16::try_from(reply.len()) else { return };
            let framed = [&length.to_be_bytes()[..], &reply].concat();
            let Ok(Ok(())) = tokio::time::timeout(SILENCE, inside.write_all(&framed)).await else { return };
        }
    }
}
