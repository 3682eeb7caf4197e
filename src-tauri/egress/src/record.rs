//! Tells the owner what happened: the first of its kind at once, repeats within a second as one with their number. A program
//! that looks a name up asks for several kinds of record at once: that is one lookup.

use crate::arbiter::{Arbiter, Fact};
use hickory_proto::rr::RecordType;
use model::event::{NetOp, Process, Verdict, What};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Kinds that are remembered for a second; beyond it every fact is told by itself.
const REMEMBERED: usize = 4096;

/// Questions for different records of a name within this time are one lookup.
const LOOKUP: Duration = Duration::from_millis(400);

#[derive(PartialEq, Eq, Hash)]
struct Kind {
    text: String,
    port: u16,
    verdict: Verdict,
    pid: u32,
}

/// A fact that was told, and what came after it.
struct Repeated {
    fact: Fact,
    more: u64,
    /// The last lookup: when it began, and which records it asked for so far.
    lookup: Option<(Instant, Vec<RecordType>)>,
}

/// The way to the owner's log.
pub(crate) struct Recorder {
    arbiter: Arc<dyn Arbiter>,
    recent: Mutex<HashMap<Kind, Repeated>>,
    fresh: Notify,
}

impl Recorder {
    pub(crate) fn new(arbiter: Arc<dyn Arbiter>) -> Self {
        Self { arbiter, recent: Mutex::default(), fresh: Notify::new() }
    }

    /// Tells a fact. A connection that was opened or ended is always told by itself.
    pub(crate) fn tell(&self, what: What, process: Option<Process>) {
        self.take(what, process, None);
    }

    /// Tells that a name was asked for.
    pub(crate) fn lookup(&self, what: What, record: RecordType) {
        self.take(what, None, Some(record));
    }

    fn take(&self, what: What, process: Option<Process>, record: Option<RecordType>) {
        let fact = Fact { what, process, count: 1 };
        let Some(kind) = kind(&fact) else { return self.arbiter.record(fact) };
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            let lookup = record.map(|record| (Instant::now(), vec![record]));
            if let Some(known) = recent.get_mut(&kind) {
                match (&mut known.lookup, lookup) {
                    (Some((began, asked)), Some((now, record))) if now - *began < LOOKUP && !asked.contains(&record[0]) => {
                        asked.extend(record);
                    }
                    (_, lookup) => {
                        known.more += 1;
                        known.lookup = lookup;
                    }
                }
                return;
            }
            if recent.len() < REMEMBERED {
                recent.insert(kind, Repeated { fact: fact.clone(), more: 0, lookup });
            }
        }
        self.fresh.notify_one();
        self.arbiter.record(fact);
    }

    pub(crate) fn limit(&self, limit: &str, detail: String) {
        self.limit_by(limit, detail, None);
    }

    /// Tells a limit that a process reached.
    pub(crate) fn limit_by(&self, limit: &str, detail: String, process: Option<Process>) {
        self.tell(What::Limit { limit: limit.into(), detail }, process);
    }

    /// Asks whether a limit may be raised.
    pub(crate) fn raise(&self, key: &str, to: u64, who: Option<&Process>) -> tokio::sync::oneshot::Receiver<crate::Permit> {
        self.arbiter.raise(key, to, who)
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
        for Repeated { fact, more, .. } in recent.into_values().filter(|known| known.more > 0) {
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
        What::Network { op, host, address, port, verdict, rule, .. }
            if *op == NetOp::Lookup || matches!(verdict, Verdict::Denied | Verdict::Held) =>
        {
            Some(Kind {
                text: format!("{op:?} {host} {} {rule}", address.as_deref().unwrap_or_default()),
                port: *port,
                verdict: *verdict,
                pid,
            })
        }
        What::Limit { limit, .. } => Some(Kind { text: limit.clone(), port: 0, verdict: Verdict::Noted, pid }),
        What::Network { .. }
        | What::File { .. }
        | What::Process { .. }
        | What::Ask { .. }
        | What::Decision { .. }
        | What::Lifecycle { .. } => None,
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
    fn a_lookup_of_both_families_is_one() {
        let log = Arc::new(Log(Mutex::default()));
        let recorder = Recorder::new(log.clone());
        let what = |host: &str| What::Network {
            op: NetOp::Lookup,
            host: host.into(),
            address: None,
            port: 0,
            verdict: Verdict::Denied,
            rule: String::new(),
            reason: String::new(),
            sent: 0,
            received: 0,
            http: None,
            carried: None,
        };
        recorder.lookup(what("a.test"), RecordType::A);
        recorder.lookup(what("a.test"), RecordType::AAAA);
        recorder.lookup(what("b.test"), RecordType::AAAA);
        let counts = || log.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|f| f.count).collect::<Vec<_>>();
        recorder.flush();
        assert_eq!(counts(), [1, 1], "each name is one row");
        for record in [RecordType::A, RecordType::AAAA, RecordType::A, RecordType::AAAA, RecordType::AAAA] {
            recorder.lookup(what("c.test"), record);
        }
        drop(recorder);
        assert_eq!(counts(), [1, 1, 1, 2], "asking for the same again is another lookup, and counted");
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
