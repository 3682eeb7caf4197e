//! How many bytes one run may send and receive, over all its connections.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the jail.
    Out,
    /// To it.
    In,
}

impl Way {
    /// The key that raises it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Out => "bytes_out",
            Self::In => "bytes_in",
        }
    }
}

/// What one way has had, may have, and is given at a time.
struct Side {
    used: AtomicU64,
    most: AtomicU64,
    step: u64,
}

impl Side {
    fn new(most: u64) -> Self {
        Self { used: AtomicU64::new(0), most: AtomicU64::new(most), step: most }
    }
}

/// What is left of both.
pub(crate) struct Budget {
    /// File and rule that bound it; the run's own limits where none does.
    rule: Option<(String, String)>,
    out: Side,
    into: Side,
    spent: watch::Sender<Option<Way>>,
}

/// A limit was reached: nothing of what was asked for may be carried.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{}` of {most} bytes is used up", self.key())]
pub(crate) struct Spent {
    pub(crate) rule: Option<(String, String)>,
    pub(crate) way: Way,
    pub(crate) most: u64,
    /// Whether this is the first to find out.
    pub(crate) first: bool,
}

impl Spent {
    /// The key that raises it, as a policy's file has it.
    pub(crate) fn key(&self) -> String {
        format!("{}.{}", self.rule.as_ref().map_or("limits", |(_, rule)| rule), self.way.key())
    }

    /// What is used up.
    pub(crate) fn whose(&self) -> String {
        self.rule.as_ref().map_or_else(|| "the run".into(), |(_, rule)| format!("`{rule}`"))
    }
}

impl Budget {
    /// A run's.
    pub(crate) fn new(out: u64, into: u64) -> Self {
        Self { rule: None, out: Side::new(out), into: Side::new(into), spent: watch::Sender::new(None) }
    }

    /// What one rule lets out.
    pub(crate) fn of_rule(rule: (String, String), out: u64) -> Self {
        Self { rule: Some(rule), ..Self::new(out, u64::MAX) }
    }

    fn side(&self, way: Way) -> &Side {
        match way {
            Way::Out => &self.out,
            Way::In => &self.into,
        }
    }

    /// Takes room for bytes before they are carried, so that no more than the limit ever is.
    pub(crate) fn take(&self, way: Way, bytes: u64) -> Result<(), Spent> {
        let side = self.side(way);
        let most = side.most.load(Ordering::Relaxed);
        let taken = side.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(bytes).filter(|n| *n <= most));
        if taken.is_ok() {
            return Ok(());
        }
        let first = self.spent.send_if_modified(|spent| {
            // It was raised in this very moment: who comes again gets through.
            if side.used.load(Ordering::Relaxed).saturating_add(bytes) <= side.most.load(Ordering::Relaxed) {
                return false;
            }
            let first = spent.is_none();
            *spent = spent.or(Some(way));
            first
        });
        Err(Spent { rule: self.rule.clone(), way, most, first })
    }

    /// What the limit would be with as much again.
    pub(crate) fn next(&self, way: Way) -> u64 {
        let side = self.side(way);
        side.most.load(Ordering::Relaxed).saturating_add(side.step)
    }

    /// As much again may be carried.
    pub(crate) fn raise(&self, way: Way) {
        // Under the lock of what is spent, so that nobody who saw the old figure sets it again.
        self.spent.send_if_modified(|spent| {
            self.side(way).most.store(self.next(way), Ordering::Relaxed);
            spent.take_if(|s| *s == way).is_some()
        });
    }

    fn most(&self, way: Way) -> u64 {
        self.side(way).most.load(Ordering::Relaxed)
    }

    /// The limit that was reached, where one was.
    pub(crate) fn over(&self) -> Option<Spent> {
        let way = (*self.spent.borrow())?;
        Some(Spent { rule: self.rule.clone(), way, most: self.most(way), first: false })
    }

    /// Waits until one is.
    pub(crate) async fn used_up(&self) -> Spent {
        let mut spent = self.spent.subscribe();
        // The sender is this: it can't be gone.
        let way = spent.wait_for(Option::is_some).await.ok().and_then(|way| *way).unwrap_or(Way::Out);
        Spent { rule: self.rule.clone(), way, most: self.most(way), first: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_no_byte_more_than_the_limit_is_carried_and_one_is_the_first_to_know() {
        let budget = Budget::new(100, 1000);
        assert!(budget.take(Way::Out, 60).is_ok() && budget.over().is_none());
        let first = budget.take(Way::Out, 41).map_err(|s| (s.way, s.most, s.first));
        assert_eq!(first, Err((Way::Out, 100, true)));
        assert!(budget.take(Way::Out, 40).is_ok(), "what was refused took nothing of the rest");
        assert_eq!(budget.take(Way::In, 1001).map_err(|s| s.first), Err(false), "one limit is told once");
        assert_eq!(budget.over().map(|s| s.way.key()), Some("bytes_out"));
        budget.raise(Way::Out);
        assert!(budget.over().is_none() && budget.take(Way::Out, 100).is_ok(), "as much again");
        assert_eq!(budget.take(Way::Out, 1).map_err(|s| (s.most, s.first)), Err((200, true)), "and no more, told anew");
    }

    #[test]
    fn p8_no_raise_is_lost_to_who_takes_at_that_moment() {
        for _ in 0..2_000 {
            let budget = Budget::new(10, 10);
            assert!(budget.take(Way::Out, 11).is_err());
            std::thread::scope(|scope| {
                scope.spawn(|| drop(budget.take(Way::Out, 11)));
                scope.spawn(|| budget.raise(Way::Out));
            });
            assert!(budget.over().is_none(), "what is raised is not used up");
        }
    }
}
