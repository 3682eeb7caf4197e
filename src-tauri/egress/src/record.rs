//! Tells the owner what happened: the first of its kind at once, repeats within a second as one with their number.

use crate::arbiter::{Arbiter, Fact};
use model::event::{NetOp, Process, Verdict, What};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Kinds that are remembered for a second; beyond it every fact is told by itself.
const REMEMBERED: usize = 4096;

#[derive(PartialEq, Eq, Hash)]
struct Kind {
    text: String,
    port: u16,
    verdict: Verdict,
    pid: u32,
}

/// The way to the owner's log.
pub(crate) struct Recorder {
    arbiter: Arc<dyn Arbiter>,
    recent: Mutex<HashMap<Kind, (Fact, u64)>>,
    fresh: Notify,
}

impl Recorder {
    pub(crate) fn new(arbiter: Arc<dyn Arbiter>) -> Self {
        Self { arbiter, recent: Mutex::default(), fresh: Notify::new() }
    }

    /// Tells a fact. A connection that was opened or ended is always told by itself.
    pub(crate) fn tell(&self, what: What, process: Option<Process>) {
        let fact = Fact { what, process, count: 1 };
        let Some(kind) = kind(&fact) else { return self.arbiter.record(fact) };
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, more)) = recent.get_mut(&kind) {
                *more += 1;
                return;
            }
            if recent.len() < REMEMBERED {
                recent.insert(kind, (fact.clone(), 0));
            }
        }
        self.fresh.notify_one();
        self.arbiter.record(fact);
    }

    pub(crate) fn limit(&self, limit: &str, detail: String) {
        self.tell(What::Limit { limit: limit.into(), detail }, None);
    }

    /// Tells repeats, a second after the first; sleeps as long as nothing happens.
    pub(crate) async fn run(&self) {
        loop {
            self.fresh.notified().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.flush();
        }
    }

    fn flush(&self) {
        let recent = std::mem::take(&mut *self.recent.lock().unwrap_or_else(PoisonError::into_inner));
        for (fact, more) in recent.into_values().filter(|(_, more)| *more > 0) {
            self.arbiter.record(Fact { count: more, ..fact });
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

fn kind(fact: &Fact) -> Option<Kind> {
    let pid = fact.process.as_ref().map_or(0, |p| p.pid);
    match &fact.what {
        What::Network { op, host, address, port, verdict, rule, .. } if *op == NetOp::Lookup || *verdict == Verdict::Denied => {
            Some(Kind {
                text: format!("{op:?} {host} {} {rule}", address.as_deref().unwrap_or_default()),
                port: *port,
                verdict: *verdict,
                pid,
            })
        }
        What::Limit { limit, .. } => Some(Kind { text: limit.clone(), port: 0, verdict: Verdict::Noted, pid }),
        What::Network { .. } | What::File { .. } | What::Process { .. } | What::Lifecycle { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Log(Mutex<Vec<Fact>>);
    impl Arbiter for Log {
        fn announced(&self, _: std::net::SocketAddr) -> Option<Process> {
            None
        }
        fn record(&self, fact: Fact) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fact);
        }
    }

    #[test]
    fn repeats_are_counted_and_never_dropped() {
        let log = Arc::new(Log(Mutex::default()));
        let recorder = Recorder::new(log.clone());
        for _ in 0..1000 {
            recorder.limit("lookups", "too many".into());
        }
        recorder.limit("names", "too many".into());
        drop(recorder);
        let mut counts: Vec<u64> = log.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|f| f.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 999], "a thousand alike are two rows, and the other kind is one");
    }
}
