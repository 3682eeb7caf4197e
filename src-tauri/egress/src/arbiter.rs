//! What the way out asks of its owner and tells it.

use model::decision::Ruling;
use model::event::{Process, What};
use policy::{HttpRequest, Target};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The owner of a way out. Its methods are called from the runtime's threads and must not block.
pub trait Arbiter: Send + Sync + 'static {
    /// The process that the kernel saw connecting to `dst` (as the jail dialled it, IPv4 never as mapped IPv6), taken off the list:
    /// each call uses one announcement up. It is asked again for up to a second, as the telling may be a little behind; a [`None`] that
    /// stays closes the connection.
    fn announced(&self, dst: SocketAddr) -> Option<Process>;

    /// The connection that was made for the jail and comes from this address, with where it was meant to go, taken off the list; asked
    /// as [`Arbiter::announced`] is, and only with [`crate::Inlets::Made`].
    fn made(&self, _from: SocketAddr) -> Option<(SocketAddr, Process)> {
        None
    }

    /// Whether the person lets a connection through that the policy asks about (`ruling`). The answer may take as long as a person
    /// takes; a caller that stopped waiting has dropped the receiver. A sender that is dropped refuses, as where there is nobody to ask.
    fn permit(&self, _wanted: Wanted) -> oneshot::Receiver<Permit> {
        oneshot::channel().1
    }

    /// Whether the person lets the run carry more than a limit allows: `key` as a policy's file has it, bytes in all, and who came to
    /// its end. Answered as [`Arbiter::permit`] is.
    fn raise(&self, _key: &str, _to: u64, _who: Option<&Process>) -> oneshot::Receiver<Permit> {
        oneshot::channel().1
    }

    /// Keeps what happened.
    fn record(&self, fact: Fact);
}

/// A connection that waits.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where to.
    pub target: Target,
    /// The request that waits, where requests are read.
    pub request: Option<HttpRequest>,
    /// Whether a word on the whole host is one on this request too: no rule speaks of it in particular.
    pub by_host: bool,
    /// Who.
    pub who: Process,
    /// The rule that asks.
    pub ruling: Ruling,
}

/// The person's word on a connection.
#[derive(Debug, Clone)]
pub enum Permit {
    /// It may go on, for as long as `ended` does not turn true; `ruling` says by what.
    Granted {
        /// Shown as what allowed it.
        ruling: Ruling,
        /// Turns true when the grant ends; its sender is gone only with the run.
        ended: watch::Receiver<bool>,
    },
    /// It may not; why.
    Refused(Ruling),
}

/// One thing that happened at the way out: always [`What::Network`] or [`What::Limit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What.
    pub what: What,
    /// Who, for connections; a question for a name comes without.
    pub process: Option<Process>,
    /// How many alike this stands for (≥ 1).
    pub count: u64,
}

/// Bounds of one jail's way out. At a bound the jail waits, except for names and UDP questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Names that get an address in one run; then SERVFAIL.
    pub names: usize,
    /// Questions for names a second; more are dropped and counted.
    pub lookups: u32,
    /// Refusals a second; more wait, so that a scan can't flood the event log.
    pub refusals: u32,
    /// Names resolved outside at once.
    pub resolving: usize,
    /// Time for resolving and connecting outside.
    pub connect: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1024, names: 16_384, lookups: 500, refusals: 200, resolving: 64, connect: Duration::from_secs(10) }
    }
}
