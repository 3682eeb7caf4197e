//! Hidden places that the policy asks about: whether the person opened one.

use crate::asks::{Asks, Want};
use egress::Permit;
use model::ask::Asked;
use model::decision::{Decision, Ruling};
use model::event::Process;
use model::path::RawPath;
use model::run::RunSpec;
use policy::Policy;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use supervise::decoy::{Doorkeeper, Doors, Pass};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// How long a touch waits for a grant that is there already; a person is never waited for.
const SOON: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_micros(200);
/// Paths whose answer is remembered before those that nobody waits for any more go.
const WAITING: usize = 128;

/// The places that the policy asks about; none where it asks about none.
pub(crate) fn of(spec: &RunSpec, policy: &Policy, asks: &Asks) -> Option<Doors> {
    let hidden = policy.files.hide.iter().filter(|h| h.on_touch == Decision::Ask);
    let rules: HashMap<RawPath, Ruling> = hidden
        .clone()
        .map(|h| {
            let reason = "a touch of this place is asked about".to_owned();
            let ruling = Ruling { decision: Decision::Ask, rule: h.rule.clone(), source: h.source.clone(), reason };
            (supervise::decoy::shown(&h.path.under(&spec.home), &spec.home), ruling)
        })
        .collect();
    if rules.is_empty() {
        return None;
    }
    let places: Vec<PathBuf> = hidden.map(|h| h.path.under(&spec.home)).collect();
    let written: Vec<PathBuf> = policy.files.write.iter().map(|p| p.under(&spec.home)).collect();
    let closed = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime].map(PathBuf::clone);
    let keeper = Keeper { asks: asks.clone(), rules, waiting: Mutex::default() };
    Some(Doors::open(&places, &written, &closed, Arc::new(keeper)))
}

struct Keeper {
    asks: Asks,
    rules: HashMap<RawPath, Ruling>,
    /// Answers that are to come, or came and were not used yet.
    waiting: Mutex<HashMap<RawPath, Awaited>>,
}

enum Awaited {
    Yet(oneshot::Receiver<Permit>),
    Here(Permit),
}

impl Awaited {
    /// Whether it is worth keeping: it may still be a yes.
    fn keeps(&mut self) -> bool {
        if let Self::Yet(answer) = self {
            match answer.try_recv() {
                Ok(permit @ Permit::Granted { .. }) => *self = Self::Here(permit),
                Ok(Permit::Refused(_)) | Err(TryRecvError::Closed) => return false,
                Err(TryRecvError::Empty) => {}
            }
        }
        true
    }
}

impl Doorkeeper for Keeper {
    fn pass(&self, path: &RawPath, place: &RawPath, who: Option<&Process>) -> Option<Pass> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let known = waiting.get_mut(path).map(Awaited::keeps);
        match (known, waiting.remove(path)) {
            (Some(true), Some(Awaited::Here(permit))) => {
                if let Some(pass) = pass(permit) {
                    return Some(pass);
                }
            }
            (Some(true), Some(yet)) => {
                waiting.insert(path.clone(), yet);
                return None;
            }
            _ => {}
        }
        let ruling = self.rules.get(place)?.clone();
        let whole = Asked::Read { path: place.clone() };
        let wider = (path != place).then_some(whole);
        let want = Want { what: Asked::Read { path: path.clone() }, wider, who: who.cloned(), ruling };
        let mut answer = self.asks.permit(want);
        let begun = Instant::now();
        loop {
            match answer.try_recv() {
                Ok(permit) => return pass(permit),
                Err(TryRecvError::Closed) => return None,
                Err(TryRecvError::Empty) if begun.elapsed() < SOON => std::thread::sleep(LOOK),
                Err(TryRecvError::Empty) => break,
            }
        }
        if waiting.len() >= WAITING {
            waiting.retain(|_, answer| answer.keeps());
        }
        // Beyond that its answer is one more try away.
        if waiting.len() < WAITING {
            waiting.insert(path.clone(), Awaited::Yet(answer));
        }
        None
    }
}

fn pass(permit: Permit) -> Option<Pass> {
    let Permit::Granted { ended, .. } = permit else { return None };
    let live = move || !*ended.borrow();
    live().then(|| Box::new(live) as Pass)
}
