//! Limits that were reached: the person is asked for as much again, and the run gets it while it goes on.

use crate::asks::{Asks, Want};
use egress::Permit;
use model::ask::Asked;
use model::decision::{Decision, Ruling};
use model::event::Process;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Asks about the limits of one run.
#[derive(Clone)]
pub(crate) struct Raises {
    asks: Asks,
    /// File of the policy.
    source: String,
    runtime: Handle,
    /// By limit: what is asked for now, so that a limit that is reached again and again asks once.
    open: Arc<Mutex<HashMap<String, Asked>>>,
}

impl Raises {
    pub(crate) fn new(asks: Asks, source: String) -> Self {
        Self { asks, source, runtime: Handle::current(), open: Arc::default() }
    }

    /// Asks whether a limit may be raised.
    pub(crate) fn ask(&self, limit: &str, to: String, who: Option<Process>) -> oneshot::Receiver<Permit> {
        let reason = "the run came to this limit".to_owned();
        let ruling = Ruling { decision: Decision::Ask, rule: limit.to_owned(), source: self.source.clone(), reason };
        self.asks.permit(Want { what: Asked::Raise { limit: limit.to_owned(), to }, wider: None, who, ruling })
    }

    /// The same, and does it where the answer is yes.
    pub(crate) fn then(&self, limit: &str, to: String, who: Option<Process>, raise: impl FnOnce() + Send + 'static) {
        let what = Asked::Raise { limit: limit.to_owned(), to: to.clone() };
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.contains_key(limit) {
                return;
            }
            open.insert(limit.to_owned(), what);
        }
        let answer = self.ask(limit, to, who);
        let (open, limit) = (Arc::clone(&self.open), limit.to_owned());
        self.runtime.spawn(async move {
            let granted = matches!(answer.await, Ok(Permit::Granted { .. }));
            open.lock().unwrap_or_else(PoisonError::into_inner).remove(&limit);
            if granted {
                tokio::task::block_in_place(raise);
            }
        });
    }

    /// It was raised in another way: nobody has to answer any more.
    pub(crate) fn done(&self, limit: &str) {
        let what = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(limit).cloned();
        if let Some(what) = what {
            self.asks.withdraw(what);
        }
    }
}

/// Ends when the run has had its time, with what the person gave on top.
pub(crate) async fn wall(limit: Duration, raises: &Raises) -> Duration {
    /// Before the end: long enough for a person, short enough that most runs never ask. Half of a shorter time.
    const NOTICE: Duration = Duration::from_secs(300);
    let mut end = tokio::time::Instant::now() + limit;
    let mut whole = limit;
    loop {
        tokio::time::sleep_until(end - NOTICE.min(limit / 2)).await;
        let answer = raises.ask("limits.wall", policy::show_duration(whole + limit), None);
        match tokio::time::timeout_at(end, answer).await {
            Ok(Ok(Permit::Granted { .. })) => {
                end += limit;
                whole += limit;
            }
            Ok(Ok(Permit::Refused(_)) | Err(_)) | Err(_) => {
                tokio::time::sleep_until(end).await;
                return whole;
            }
        }
    }
}
