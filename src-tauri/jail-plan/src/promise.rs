//! The promises as a table: how each is kept here, and how far, from what the jail says about itself.

use crate::report::{Guarantee, Report, Row, Status};
use Guarantee as G;
use serde::{Deserialize, Serialize};

/// One of the twelve, and what it stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// 1 to 12.
    pub number: u8,
    /// In plain words.
    pub title: &'static str,
    /// It holds as far as all of these do.
    pub rests_on: &'static [Guarantee],
    /// These help it; without them it is told and still holds.
    pub beside: &'static [Guarantee],
    /// What Airlock does for it outside the jail; empty where the jail is all.
    pub outside: &'static str,
}

const fn promise(
    number: u8,
    title: &'static str,
    rests_on: &'static [Guarantee],
    beside: &'static [Guarantee],
    outside: &'static str,
) -> Promise {
    Promise { number, title, rests_on, beside, outside }
}

/// All of them, in order.
pub const PROMISES: [Promise; 12] = [
    promise(1, "It writes only its workspace, its private home, caches and /tmp", &[G::Writes], &[G::Landlock], ""),
    promise(
        2,
        "It can't open your home, other repositories, other tasks or credentials",
        &[G::Reads],
        &[G::Landlock, G::Decoys],
        "",
    ),
    promise(
        3,
        "Nothing of it is in your repository until you let it",
        &[G::Writes],
        &[],
        "a git directory of its own; history is only read",
    ),
    promise(
        4,
        "It reaches no network but through the warden",
        &[G::Network],
        &[G::Events],
        "names and addresses are judged outside",
    ),
    promise(5, "It is handed no secret", &[G::Inherited], &[], "what a person keeps secret stays outside"),
    promise(6, "It can't reach what controls it", &[G::Control, G::Syscalls, G::Inherited], &[G::Landlock, G::Quotas], ""),
    promise(
        7,
        "Its work leaves only with your approval of exactly what you saw",
        &[G::Control],
        &[],
        "the approval names the tree and is used once",
    ),
    promise(
        8,
        "A runaway is stopped",
        &[G::Processes, G::OpenFiles, G::Wall, G::Memory, G::Cpu, G::Disk, G::Bytes, G::Output],
        &[],
        "",
    ),
    promise(
        9,
        "Airlock's git runs nothing that the workspace names",
        &[G::Writes],
        &[],
        "a workspace is read in a jail without network or home",
    ),
    promise(10, "A promise that can't be kept refuses the run", &G::ALL, &[], "the jail looks, and its starter looks again"),
    promise(
        11,
        "A kill at any moment loses nothing and leaves nothing running",
        &[G::Ends],
        &[],
        "what is shown was written before",
    ),
    promise(12, "A resumed task gets its files and nothing else", &[G::Ends, G::Inherited], &[], "a run starts from files alone"),
];

/// One promise as it is kept by one jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// 1 to 12.
    pub promise: u8,
    /// In plain words.
    pub title: String,
    /// By what, in words.
    pub how: String,
    /// How far.
    #[serde(flatten)]
    pub status: Status,
    /// Whether what is lost of it is lost by a name that the person's policy accepts.
    pub accepted: bool,
    /// The guarantees that it rests on, then those beside it.
    pub rows: Vec<Row>,
}

/// The table of one jail.
///
/// A promise is Full where all that it rests on is, Absent where none is, and Partial otherwise. The tenth rests on each row
/// being told, whatever it says.
pub fn promises(report: &Report) -> Vec<Kept> {
    PROMISES.iter().map(|p| kept(p, report)).collect()
}

/// The promises that rest on a guarantee, for a sentence.
pub fn resting_on(guarantee: Guarantee) -> String {
    let resting = PROMISES.iter().filter(|p| p.number != 10 && p.rests_on.contains(&guarantee));
    let words: Vec<String> = resting.map(|p| format!("promise {} ({})", p.number, p.title)).collect();
    if words.is_empty() { "no promise".into() } else { words.join(", ") }
}

fn kept(promise: &Promise, report: &Report) -> Kept {
    if promise.number == 10 {
        return refusal(promise, report);
    }
    let rows = |list: &[Guarantee]| -> Vec<Row> {
        let untold = |g| Row { guarantee: g, how: String::new(), status: Status::absent("the jail does not say") };
        list.iter().map(|g| report.row(*g).cloned().unwrap_or_else(|| untold(*g))).collect()
    };
    let (on, beside) = (rows(promise.rests_on), rows(promise.beside));
    let lost: Vec<&Row> = on.iter().filter(|r| r.status != Status::Full).collect();
    let accepted = !lost.is_empty() && lost.iter().all(|r| report.accepted.contains(&r.guarantee));
    let reason = || match (&lost[..], on.len()) {
        ([only], 1) => reason(only).to_owned(),
        (lost, _) => lost.iter().map(|r| format!("{}: {}", r.guarantee, reason(r))).collect::<Vec<_>>().join("; "),
    };
    let status = if lost.is_empty() {
        Status::Full
    } else if on.iter().all(|r| matches!(r.status, Status::Absent { .. })) {
        Status::absent(reason())
    } else {
        Status::partial(reason())
    };
    let mut how: Vec<&str> = Vec::new();
    let rows = on.into_iter().chain(beside).collect::<Vec<_>>();
    let ways = rows.iter().filter(|r| !matches!(r.status, Status::Absent { .. })).map(|r| r.how.as_str());
    for way in ways.chain([promise.outside]).filter(|w| !w.is_empty()) {
        if !how.contains(&way) {
            how.push(way);
        }
    }
    Kept { promise: promise.number, title: promise.title.into(), how: how.join(" + "), status, accepted, rows }
}

/// Never failing open: a row that is not told can't refuse.
fn refusal(promise: &Promise, report: &Report) -> Kept {
    let untold: Vec<String> = promise.rests_on.iter().filter(|g| report.row(**g).is_none()).map(ToString::to_string).collect();
    let status = if untold.is_empty() {
        Status::Full
    } else {
        Status::partial(format!("the jail says nothing about {}", untold.join(", ")))
    };
    Kept {
        promise: promise.number,
        title: promise.title.into(),
        how: promise.outside.into(),
        status,
        accepted: false,
        rows: Vec::new(),
    }
}

fn reason(row: &Row) -> &str {
    row.status.reason().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn all_full() -> Report {
        let mut report = Report::default();
        for g in G::ALL {
            report.keep(g, format!("by {g}"), Status::Full);
        }
        report
    }

    fn of(report: &Report, number: u8) -> Kept {
        promises(report).into_iter().find(|k| k.promise == number).unwrap()
    }

    #[test]
    fn p10_every_row_decides_every_promise_that_rests_on_it_and_no_other() {
        let full = promises(&all_full());
        assert!(full.iter().all(|k| k.status == Status::Full && !k.how.is_empty()), "{full:?}");
        assert_eq!(full.iter().map(|k| k.promise).collect::<Vec<_>>(), (1..=12).collect::<Vec<u8>>());
        for lost in G::ALL {
            let mut report = all_full();
            report.set(lost, Status::absent("gone"));
            for (before, after) in full.iter().zip(promises(&report)) {
                let promise = PROMISES.iter().find(|p| p.number == after.promise).unwrap();
                let rests = promise.number != 10 && promise.rests_on.contains(&lost);
                assert_eq!(after.status != Status::Full, rests, "{lost} and promise {}", after.promise);
                let uses = rests || promise.beside.contains(&lost);
                assert_eq!(*before != after, uses, "{lost} changes the row of promise {} or not", after.promise);
            }
        }
    }

    #[test]
    fn a_promise_that_rests_on_several_is_absent_only_with_all_of_them() {
        let mut report = all_full();
        report.set(G::Memory, Status::absent("no cgroup"));
        assert_eq!(of(&report, 8).status, Status::partial("memory: no cgroup"));
        assert!(!of(&report, 8).how.contains("by memory"), "what is not there keeps nothing: {}", of(&report, 8).how);
        for g in [G::Processes, G::OpenFiles, G::Wall, G::Cpu, G::Disk, G::Bytes, G::Output] {
            report.set(g, Status::absent("off"));
        }
        assert!(matches!(of(&report, 8).status, Status::Absent { .. }), "{:?}", of(&report, 8).status);
    }

    #[test]
    fn p10_a_row_that_is_not_told_counts_as_lost_and_is_said() {
        let mut report = all_full();
        report.rows.retain(|r| r.guarantee != G::Network);
        assert_eq!(of(&report, 4).status, Status::absent("the jail does not say"));
        assert_eq!(of(&report, 10).status, Status::partial("the jail says nothing about network"));
        assert!(report.missing(&[G::Network]).is_some(), "nor does such a run start");
    }

    #[test]
    fn p10_a_loss_is_accepted_only_where_all_of_it_is() {
        let mut report = all_full();
        report.set(G::Control, Status::absent("x"));
        report.set(G::Syscalls, Status::absent("y"));
        report.accepted = vec![G::Control];
        assert!(!of(&report, 6).accepted, "the filter's loss was not accepted");
        assert!(of(&report, 7).accepted, "the seventh rests on control alone");
        assert!(!of(&report, 1).accepted, "what is kept is not a loss");
        report.accepted.push(G::Syscalls);
        assert!(of(&report, 6).accepted);
    }

    #[test]
    fn every_guarantee_that_is_required_is_a_promises() {
        for g in G::REQUIRED {
            assert!(resting_on(g).contains("promise "), "{g}");
            assert_eq!(G::named(&g.to_string()), Some(g));
        }
        assert_eq!(G::named("everything"), None);
    }
}
