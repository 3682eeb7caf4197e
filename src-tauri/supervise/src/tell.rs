//! From sensor to sink: a bounded queue, and the rule by which a flood is counted instead of repeated.

use crate::fact::{Class, Fact, Key};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::time::{Duration, Instant};

/// Facts that wait for the sink; a sensor never waits, what does not fit is counted.
const QUEUE: usize = 8192;

/// Pause between two looks at the queue while facts come.
const BREATH: Duration = Duration::from_millis(2);

/// Tells facts to a sink on a thread of its own, until [`Told::wait`].
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    /// `None` ends the thread.
    queue: SyncSender<Option<Fact>>,
    missed: Arc<AtomicU64>,
}

/// Ends the telling thread.
#[derive(Debug)]
pub(crate) struct Told {
    queue: SyncSender<Option<Fact>>,
    done: mpsc::Receiver<()>,
}

impl Told {
    /// Waits until everything told so far has reached the sink, at most some seconds; nothing is told afterwards.
    pub(crate) fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(2);
        while let Err(TrySendError::Full(_)) = self.queue.try_send(None) {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // An error means that the thread is gone or that the sink hangs; both leave nothing to wait for.
        let _ = self.done.recv_timeout(Duration::from_secs(2));
    }
}

impl Teller {
    /// Starts the thread.
    pub(crate) fn start(sink: impl Fn(Fact) + Send + 'static) -> std::io::Result<(Teller, Told)> {
        let (queue, facts) = mpsc::sync_channel(QUEUE);
        let (tell_done, done) = mpsc::sync_channel(1);
        let missed = Arc::new(AtomicU64::new(0));
        let lost = missed.clone();
        std::thread::Builder::new().name("facts".into()).spawn(move || {
            run(&facts, &lost, &sink);
            let _ = tell_done.send(());
        })?;
        Ok((Teller { queue: queue.clone(), missed }, Told { queue, done }))
    }

    /// Hands a fact over without ever waiting.
    pub(crate) fn tell(&self, fact: Fact) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Some(fact)) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn run(facts: &mpsc::Receiver<Option<Fact>>, missed: &AtomicU64, sink: &impl Fn(Fact)) {
    let mut flow = Coalescer::default();
    let mut told_any = false;
    loop {
        // The first fact of a burst is told at once; after it a sensor need not wake this thread for each.
        let waiting = facts.try_recv();
        if matches!(waiting, Err(TryRecvError::Empty)) && std::mem::take(&mut told_any) {
            std::thread::sleep(BREATH);
            continue;
        }
        let next = match flow.due() {
            _ if waiting.is_ok() => waiting.map_err(|_| RecvTimeoutError::Timeout),
            None => facts.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => facts.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        let now = Instant::now();
        let lost = missed.swap(0, Ordering::Relaxed);
        if lost > 0 {
            flow.missed(lost, now);
        }
        let ended = matches!(next, Ok(None) | Err(RecvTimeoutError::Disconnected));
        // The window ends by the clock also while facts keep coming.
        if ended || flow.due().is_some_and(|due| due <= now) {
            flow.flush().into_iter().for_each(sink);
        }
        if ended {
            return;
        }
        told_any = next.is_ok();
        if let Some(fact) = next.ok().flatten().and_then(|fact| flow.offer(fact, now)) {
            sink(fact);
        }
    }
}

const CLASSES: [(Class, &str); 4] = [
    (Class::Files, "file events"),
    (Class::Processes, "process events"),
    (Class::Network, "network events"),
    (Class::Decoys, "touches of hidden places"),
];

/// Distinct facts of one class told in one second; the rest is counted.
const PER_SECOND: u64 = 300;

/// Kinds remembered in a window beyond which what is to be folded counts as told one by one.
const FOLDED: usize = 4096;

/// Length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// Tells the first of a kind at once and counts its repeats until the window ends; what is folded waits for that end too.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    began: Option<Instant>,
    repeats: HashMap<Key, (Fact, u64)>,
    told: [u64; 4],
    over: [u64; 4],
    /// What a full queue did not take.
    lost: u64,
}

impl Coalescer {
    /// Takes a fact; returns it where it is to be told now.
    pub(crate) fn offer(&mut self, fact: Fact, now: Instant) -> Option<Fact> {
        self.began.get_or_insert(now);
        let Some(class) = fact.class() else { return Some(fact) };
        let index = class as usize;
        let key = fact.key();
        if let Some((_, more)) = key.as_ref().and_then(|key| self.repeats.get_mut(key)) {
            *more += 1;
            return None;
        }
        if let (Fact::Folded { .. }, Some(key)) = (&fact, &key)
            && self.repeats.len() < FOLDED
        {
            self.repeats.insert(key.clone(), (fact, 1));
            return None;
        }
        if self.told[index] >= PER_SECOND {
            self.over[index] += 1;
            return None;
        }
        self.told[index] += 1;
        if let Some(key) = key {
            self.repeats.insert(key, (fact.clone(), 0));
        }
        Some(fact)
    }

    /// Counts what a full queue could not take.
    pub(crate) fn missed(&mut self, count: u64, now: Instant) {
        self.began.get_or_insert(now);
        self.lost += count;
    }

    /// When the open window ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.began.map(|began| began + WINDOW)
    }

    /// Ends the window: what was counted in it.
    pub(crate) fn flush(&mut self) -> Vec<Fact> {
        let mut out: Vec<Fact> = Vec::new();
        for (_, (mut fact, more)) in self.repeats.drain() {
            if more > 0 {
                fact.set_count(more);
                out.push(fact);
            }
        }
        for (class, of) in CLASSES {
            let count = std::mem::take(&mut self.over[class as usize]);
            if count > 0 {
                out.push(Fact::Coalesced { count, of });
            }
        }
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            out.push(Fact::Coalesced { count: lost, of: "events" });
        }
        self.told = [0; 4];
        self.began = None;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::{FileOp, Verdict};

    fn write(path: &str) -> Fact {
        Fact::File { process: None, op: FileOp::Write, path: path.into(), to: None, verdict: Verdict::Noted, count: 1 }
    }

    #[test]
    fn every_fact_of_a_flood_is_told_or_counted() {
        let mut flow = Coalescer::default();
        let now = Instant::now();
        let mut total = 0;
        for i in 0..5000 {
            for _ in 0..3 {
                total += flow.offer(write(&format!("f{i}")), now).map_or(0, |fact| fact.into_event_what().2);
            }
        }
        flow.missed(7, now);
        assert_eq!(total, PER_SECOND, "the first of each of the first {PER_SECOND} paths is told at once");
        total += flow.flush().into_iter().map(|fact| fact.into_event_what().2).sum::<u64>();
        assert_eq!(total, 15_007, "nothing may vanish between what is told and what is counted");
        assert_eq!(flow.flush(), [], "a window is told once");
        assert!(flow.offer(write("f0"), now).is_some(), "a new window tells again");
    }

    #[test]
    fn what_is_folded_is_one_fact_a_window() {
        let mut flow = Coalescer::default();
        let folded = || Fact::Folded { process: None, path: "/git".into(), count: 1 };
        for _ in 0..40 {
            assert_eq!(flow.offer(folded(), Instant::now()), None, "it waits for the end of the window");
        }
        let all = flow.flush();
        assert_eq!(all, [Fact::Folded { process: None, path: "/git".into(), count: 40 }]);
        assert_eq!(flow.flush(), [], "a window is told once");
    }

    #[test]
    fn an_order_of_classes_matches_their_index() {
        for (index, (class, _)) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, index, "counts are kept by index");
        }
    }
}
