//! What keeps a run's processes stopped: a pause, and looks at the workspace. They go on when nothing does any more.

use crate::record::Recorder;
use db::Database;
use model::id::TaskId;
use model::protocol::PausedBy;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use supervise::Jail;

/// Over one jail. Its methods block until processes are seen stopped or going on.
pub(crate) struct Hold {
    jail: Arc<Jail>,
    recorder: Recorder,
    database: Arc<Database>,
    task: TaskId,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// By the person, and by a limit: each ends by itself.
    person: bool,
    limit: bool,
    /// It would see what was hidden: only the person's word ends it.
    exposed: bool,
    looks: u32,
}

impl Held {
    fn paused(&self) -> Option<PausedBy> {
        match *self {
            Self { exposed: true, .. } => Some(PausedBy::Limit),
            Self { person: true, .. } => Some(PausedBy::Person),
            Self { limit: true, .. } => Some(PausedBy::Limit),
            Self { .. } => None,
        }
    }

    fn end(&mut self) {
        (self.person, self.limit, self.exposed) = (false, false, false);
    }
}

impl Hold {
    pub(crate) fn new(jail: Arc<Jail>, recorder: Recorder, database: Arc<Database>, task: TaskId) -> Self {
        Self { jail, recorder, database, task, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the run is paused, where it is.
    pub(crate) fn paused(&self) -> Option<PausedBy> {
        self.held().paused()
    }

    /// Whether something keeps it stopped.
    pub(crate) fn is_held(&self) -> bool {
        let held = self.held();
        held.paused().is_some() || held.looks > 0
    }

    /// Stops everything for a look; false where not all was seen stopped, which then goes on.
    pub(crate) fn look(&self) -> bool {
        let mut held = self.held();
        let complete = self.jail.freeze();
        held.looks += 1;
        if !complete && held.paused().is_some() {
            if held.exposed {
                self.jail.kill();
            }
            held.end();
            self.record(None, "its processes could not be kept stopped");
        }
        complete
    }

    /// The look is over.
    pub(crate) fn looked(&self) {
        let mut held = self.held();
        held.looks = held.looks.saturating_sub(1);
        self.go_on(&held);
    }

    /// Stops everything until [`Hold::proceed`], or [`Hold::raised`] for a limit; false where that could not be done.
    pub(crate) fn pause(&self, by: PausedBy) -> bool {
        match by {
            PausedBy::Person => self.stop("by the person", |held| held.person = true),
            PausedBy::Limit => self.stop("by a limit", |held| held.limit = true),
        }
    }

    /// Stops everything, as it would see what was hidden, until [`Hold::proceed`]; false where that could not be done.
    pub(crate) fn expose(&self) -> bool {
        self.stop("as it would see what was hidden", |held| held.exposed = true)
    }

    fn stop(&self, why: &str, set: impl FnOnce(&mut Held)) -> bool {
        let mut held = self.held();
        let before = held.paused();
        if before.is_none() && !self.jail.freeze() {
            return false;
        }
        set(&mut held);
        if before != held.paused() {
            self.record(held.paused(), why);
        }
        true
    }

    /// Whether a limit keeps it stopped.
    pub(crate) fn limited(&self) -> bool {
        self.held().limit
    }

    /// The person lets it go on, whatever paused it; false where nothing had.
    pub(crate) fn proceed(&self) -> bool {
        let mut held = self.held();
        let was = held.paused().is_some();
        if was {
            held.end();
            self.go_on(&held);
            self.record(None, "by the person");
        }
        was
    }

    /// A limit was raised: what it paused goes on, unless something else keeps it.
    pub(crate) fn raised(&self) {
        let mut held = self.held();
        if std::mem::take(&mut held.limit) && held.paused().is_none() {
            self.go_on(&held);
            self.record(None, "as a limit was raised");
        }
    }

    fn go_on(&self, held: &Held) {
        if held.paused().is_none() && held.looks == 0 {
            self.jail.thaw();
        }
    }

    /// The lock is held: the order of what is recorded is that of what happened.
    fn record(&self, paused: Option<PausedBy>, why: &str) {
        self.recorder.lifecycle(if paused.is_some() { "paused" } else { "continued" }, why);
        let word = paused.map(|by| match by {
            PausedBy::Person => "person",
            PausedBy::Limit => "limit",
        });
        if let Err(e) = self.database.set_paused(sys::clock::unix_millis(), &self.task, word) {
            tracing::error!(error = %e, "the pause could not be recorded");
        }
    }
}
