//! Views that are open: each has a thread or two of its own, which end when the view is closed or the window is gone.

use crate::terminal::Terminal;
use crate::wire::error::CommandError;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Tells a view's threads to end.
#[derive(Clone, Default)]
pub(crate) struct Open(Arc<AtomicBool>);

impl Open {
    /// Whether the view is closed.
    pub(crate) fn closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum View {
    /// A feed of events or changes.
    Feed(Open),
    Terminal(Arc<Terminal>),
}

/// All open views, by number.
#[derive(Clone, Default)]
pub(crate) struct Views {
    next: Arc<AtomicU32>,
    open: Arc<Mutex<HashMap<u32, View>>>,
}

impl Views {
    fn add(&self, view: View) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, view);
        number
    }

    /// Opens a feed; `work` runs on a thread of its own until the feed is closed.
    pub(crate) fn feed(&self, work: impl FnOnce(&Open) + Send + 'static) -> Result<u32, CommandError> {
        let open = Open::default();
        let number = self.add(View::Feed(open.clone()));
        std::thread::Builder::new().name("feed".into()).spawn(move || work(&open)).map_err(CommandError::window)?;
        Ok(number)
    }

    /// Keeps an opened terminal.
    pub(crate) fn terminal(&self, terminal: Arc<Terminal>) -> u32 {
        self.add(View::Terminal(terminal))
    }

    /// The terminal of that number. One that is closed swallows what comes late.
    pub(crate) fn find_terminal(&self, number: u32) -> Option<Arc<Terminal>> {
        match self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&number) {
            Some(View::Terminal(t)) => Some(t.clone()),
            Some(View::Feed(_)) | None => None,
        }
    }

    /// Closes a view; one that is closed already stays closed.
    pub(crate) fn close(&self, number: u32) {
        match self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number) {
            Some(View::Feed(open)) => open.close(),
            Some(View::Terminal(terminal)) => terminal.close(),
            None => {}
        }
    }

    /// Closes everything: the page was loaded anew.
    pub(crate) fn close_all(&self) {
        let all: Vec<u32> = self.open.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        all.into_iter().for_each(|n| self.close(n));
    }
}
