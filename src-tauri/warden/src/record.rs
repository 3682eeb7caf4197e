//! Event → record → notify: facts are numbered and stored by one thread, then shown.

use crate::room::Room;
use db::EventLog;
use model::event::{Event, Process, What};
use model::id::RunId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Facts that may wait for the disk; what comes on top is counted.
const WAITING: usize = 16_384;

/// How long facts are gathered from the first on.
const GATHER: Duration = Duration::from_millis(20);

/// How often a count is written at most.
const COUNTED: Duration = Duration::from_secs(5);

enum Message {
    Fact(Box<Draft>),
    Close,
}

struct Draft {
    time: u64,
    count: u64,
    process: Option<Process>,
    what: What,
}

/// Takes facts from any thread without waiting.
#[derive(Clone)]
pub(crate) struct Recorder {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    stored: watch::Receiver<u64>,
}

/// The thread behind; joined at the end so that everything is stored.
pub(crate) struct Writer {
    thread: JoinHandle<()>,
    sender: SyncSender<Message>,
}

/// Starts the thread.
pub(crate) fn start(log: EventLog, run: RunId) -> (Recorder, Writer) {
    let (sender, receiver) = sync_channel(WAITING);
    let (announce, stored) = watch::channel(log.next());
    let lost = Arc::new(AtomicU64::new(0));
    let lost_too = Arc::clone(&lost);
    let thread = std::thread::spawn(move || write(log, &run, &receiver, &announce, &lost_too));
    (Recorder { sender: sender.clone(), lost, stored }, Writer { thread, sender })
}

impl Recorder {
    /// Records a fact.
    pub(crate) fn fact(&self, process: Option<Process>, what: What, count: u64) {
        let draft = Draft { time: sys::clock::unix_millis(), count: count.max(1), process, what };
        match self.sender.try_send(Message::Fact(Box::new(draft))) {
            Ok(()) => {}
            Err(TrySendError::Full(Message::Fact(d))) => {
                self.lost.fetch_add(d.count, Ordering::Relaxed);
            }
            Err(TrySendError::Full(Message::Close) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Records a step of the run.
    pub(crate) fn lifecycle(&self, phase: &str, detail: impl Into<String>) {
        self.fact(None, What::Lifecycle { phase: phase.to_owned(), detail: detail.into() }, 1);
    }

    /// The number of the next event, after each that is stored.
    pub(crate) fn stored(&self) -> watch::Receiver<u64> {
        self.stored.clone()
    }
}

impl Writer {
    /// Waits until everything that was recorded so far is stored; what comes later is dropped.
    pub(crate) fn finish(self) {
        self.sender.send(Message::Close).ok();
        if self.thread.join().is_err() {
            tracing::error!("the thread that stores events panicked");
        }
    }
}

fn write(mut log: EventLog, run: &RunId, receiver: &Receiver<Message>, announce: &watch::Sender<u64>, lost: &AtomicU64) {
    let mut open = true;
    let mut room = Room::default();
    let mut told: Option<Instant> = None;
    while open {
        let mut batch = Vec::new();
        match receiver.recv() {
            Ok(Message::Fact(d)) => batch.push(d),
            Ok(Message::Close) | Err(_) => open = false,
        }
        // A short gathering time makes one transaction of a burst.
        let until = Instant::now() + GATHER;
        while open && batch.len() < 1000 {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Fact(d)) => batch.push(d),
                Ok(Message::Close) => open = false,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        }
        batch.retain(|d| {
            let stored = room.take(d.process.as_ref(), &d.what);
            if !stored {
                lost.fetch_add(d.count, Ordering::Relaxed);
            }
            stored
        });
        let due = !open || told.is_none_or(|t| t.elapsed() >= COUNTED);
        let missed = if due { lost.swap(0, Ordering::Relaxed) } else { 0 };
        if missed > 0 {
            told = Some(Instant::now());
            batch.push(Box::new(Draft {
                time: sys::clock::unix_millis(),
                count: missed,
                process: None,
                what: What::Limit {
                    limit: "events".into(),
                    detail: format!("{missed} events came faster than they could be stored, or are beyond what one run keeps, and were only counted"),
                },
            }));
        }
        let mut events: Vec<Event> = batch
            .into_iter()
            .map(|d| Event { seq: 0, time: d.time, run: run.clone(), count: d.count, process: d.process, what: d.what })
            .collect();
        if events.is_empty() {
            continue;
        }
        match log.append(&mut events) {
            Ok(()) => {
                announce.send_replace(log.next());
            }
            Err(e) => {
                tracing::error!(error = %e, count = events.len(), "events could not be stored");
                lost.fetch_add(events.iter().map(|e| e.count).sum(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at once")]
    use super::*;

    #[test]
    fn facts_that_keep_coming_are_stored_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(&dir.path().join("events.db")).unwrap();
        let (recorder, writer) = start(log, RunId::from_random([1; 8]));
        let mut last = 0;
        while *recorder.stored().borrow() == 1 {
            last += 1;
            assert!(last < 400, "nothing was stored of {last} facts, each of which came soon after the one before");
            recorder.lifecycle("beat", last.to_string());
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.finish();
        assert_eq!(*recorder.stored().borrow(), last + 1, "and none is lost");
    }
}
