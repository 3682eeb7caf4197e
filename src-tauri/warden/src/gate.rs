//! What answers a jail: notifications, decoys, the watch, the way out; each fact becomes an event.

use crate::asks::Asks;
use crate::doors;
use crate::raise::Raises;
use crate::reading::Road;
use crate::record::Recorder;
use egress::{Arbiter, Fact, Inlets, Permit, Wanted};
use jail_plan::Plan;
use model::event::{Process, What};
use model::path::RawPath;
use model::run::RunSpec;
use policy::Policy;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use supervise::Jail;
use supervise::broker::{self, Flows, Reach, WayOut};
use supervise::decoy::Telling;
use supervise::notify::{Announced, Notify};
use supervise::watch::Watch;
use supervise::who::{JailRef, Who};
use tokio::sync::oneshot;

/// Everything that must answer before the command may run. Dropped after the jail has ended.
pub(crate) struct Sensors {
    way_out: Option<tokio::task::JoinHandle<()>>,
    /// Names processes of the jail.
    pub(crate) who: Arc<Who>,
    /// Rung when the jail makes a call that is told of.
    pub(crate) stir: Option<Arc<supervise::limits::Stir>>,
    // Dropped in this order; each stores what it still holds back.
    _decoys: Option<Telling>,
    _watch: Option<Watch>,
    _notify: Option<Notify>,
}

impl Drop for Sensors {
    fn drop(&mut self) {
        if let Some(task) = &self.way_out {
            task.abort();
        }
    }
}

/// The way out's owner: who connects is the kernel's word, whether what is asked about may go on the person's, what happened is recorded.
struct Owner {
    announced: Arc<Announced>,
    made: Option<Arc<Flows>>,
    asks: Asks,
    raises: Raises,
    recorder: Recorder,
}

impl Arbiter for Owner {
    fn announced(&self, dst: SocketAddr) -> Option<Process> {
        self.announced.take(dst)
    }

    fn made(&self, from: SocketAddr) -> Option<(SocketAddr, Process)> {
        self.made.as_ref()?.take(from)
    }

    fn permit(&self, wanted: Wanted) -> oneshot::Receiver<Permit> {
        self.asks.permit(wanted)
    }

    fn raise(&self, key: &str, to: u64, who: Option<&Process>) -> oneshot::Receiver<Permit> {
        self.raises.ask(key, supervise::limits::size(to), who.cloned())
    }

    fn record(&self, fact: Fact) {
        self.recorder.fact(fact.process, fact.what, fact.count);
    }
}

fn sink(recorder: &Recorder) -> impl Fn(supervise::fact::Fact) + Send + Sync + 'static {
    let recorder = recorder.clone();
    move |fact| {
        // The way out tells its connections itself, with a verdict.
        if !fact.told_by_way_out() {
            let (process, what, count) = fact.into_event_what();
            recorder.fact(process, what, count);
        }
    }
}

impl Sensors {
    /// Starts them all. A sensor that only shows (decoys, watch) may fail and is told; one that the way out needs may not.
    pub(crate) fn start(
        spec: &RunSpec,
        policy: &Arc<Policy>,
        plan: &Plan,
        jail: &mut Jail,
        (asks, raises): (&Asks, &Raises),
        road: Road,
        recorder: &Recorder,
    ) -> std::io::Result<Self> {
        let init_pid = u32::try_from(jail.pid).map_err(std::io::Error::other)?;
        let tools = spec.tools.clone();
        let jail_ref = if plan.fallback.is_some() {
            JailRef { init_pid, writable: broker::roots(plan), tools, quiet: vec![spec.dir.git()] }
        } else {
            let mut writable = vec![spec.workspace.clone(), spec.home.clone(), "/tmp".into()];
            writable.extend(policy.files.write.iter().map(|p| p.under(&spec.home)));
            JailRef { init_pid, writable, tools, quiet: vec![supervise::compose::GIT.into()] }
        };
        let who = Who::new(jail_ref).map_err(std::io::Error::other)?;
        let mut inlets = None;
        let notify = match jail.notify.take() {
            Some(fd) if plan.fallback.is_some() => {
                let (listeners, way_out) = listen()?;
                inlets = Some(Inlets::Made(listeners));
                let reach = Reach { roots: broker::roots(plan), way_out: Some(way_out) };
                Some(Notify::serve_making(fd, Arc::clone(&who), reach, sink(recorder)).map_err(std::io::Error::other)?)
            }
            Some(fd) => Some(Notify::serve(fd, Arc::clone(&who), sink(recorder)).map_err(std::io::Error::other)?),
            None => None,
        };
        let decoys = match jail.decoys.take() {
            Some(decoys) => {
                let doors = doors::of(spec, policy, asks);
                Some(decoys.tell(Arc::clone(&who), doors, sink(recorder)).map_err(std::io::Error::other)?)
            }
            None => None,
        };
        let watch = match Watch::start(&spec.dir.tree(), sink(recorder)) {
            Ok(w) => Some(w),
            Err(e) => {
                recorder.fact(None, What::Limit { limit: "events".into(), detail: e.to_string() }, 1);
                None
            }
        };
        if let (Some(listener), Some(dns)) = (jail.listener.take(), jail.dns.take()) {
            inlets = Some(Inlets::Own { listener, dns });
        }
        let way_out = inlets.map(|inlets| {
            let announced = notify.as_ref().map(Notify::announced).unwrap_or_default();
            let made = notify.as_ref().and_then(Notify::flows);
            let (asks, raises, told) = (asks.clone(), raises.clone(), recorder.clone());
            let owner: Arc<dyn Arbiter> = Arc::new(Owner { announced, made, asks, raises, recorder: told });
            tokio::spawn(serve(inlets, Arc::clone(policy), owner, road, recorder.clone()))
        });
        tracing::debug!(workspace = %RawPath::from(spec.workspace.as_os_str().as_bytes()), "sensors stand");
        let stir = notify.as_ref().map(Notify::stir);
        Ok(Self { way_out, who, stir, _decoys: decoys, _watch: watch, _notify: notify })
    }
}

/// Where connections that are made for a jail arrive: on this machine's loopback, as it has no other network.
fn listen() -> std::io::Result<(Vec<OwnedFd>, WayOut)> {
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
    let way_out = WayOut { v4: v4.local_addr()?, v6: v6.as_ref().map(TcpListener::local_addr).transpose()? };
    Ok(([Some(v4), v6].into_iter().flatten().map(OwnedFd::from).collect(), way_out))
}

async fn serve(inlets: Inlets, policy: Arc<Policy>, owner: Arc<dyn Arbiter>, road: Road, recorder: Recorder) {
    let Err(e) = egress::serve(inlets, policy, owner, crate::run::network_limits(), road.reading, road.proxies).await;
    tracing::error!(error = %e, "the way out ended");
    recorder.fact(None, What::Limit { limit: "network".into(), detail: format!("the way out is closed: {e}") }, 1);
}
