//! The table of promises of a run, from what its jail said.

use jail_plan::{Cache, Kept, Report, Status};
use model::run::Run;
use serde::Serialize;

/// A run with its table.
#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Every promise and how it is kept; empty where no jail stood.
    pub promises: Vec<Kept>,
    /// Caches of the person's tools that it was to see.
    pub caches: Vec<Cache>,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        let report = run.report.as_ref().map(read);
        let promises = report.as_ref().map(jail_plan::promises).unwrap_or_default();
        Self { run, promises, caches: report.map(|r| r.caches).unwrap_or_default() }
    }
}

/// A report that can't be read keeps nothing.
fn read(report: &serde_json::Value) -> Report {
    serde_json::from_value(report.clone()).unwrap_or_else(|e| {
        tracing::warn!(error = %e, "a run's report can't be read");
        Report { rows: Vec::new(), ..Report::default() }
    })
}

/// What is not kept in full, a line each: losses that were accepted first, with why; then what is told, by what it lacks.
pub fn weaker(promises: &[Kept]) -> Vec<String> {
    let line = |k: &Kept, word: &str, more: &str| {
        let much = if matches!(k.status, Status::Absent { .. }) { "not at all" } else { "in part" };
        format!("{word}promise {} is kept {much}: {} ({more})", k.promise, k.title)
    };
    let lacks = |k: &Kept| {
        let rows: Vec<String> = k.rows.iter().filter(|r| r.status != Status::Full).map(|r| r.guarantee.to_string()).collect();
        format!("{}: `airlock doctor` says how far", rows.join(", "))
    };
    let (accepted, told): (Vec<&Kept>, Vec<&Kept>) =
        promises.iter().filter(|k| k.status != Status::Full).partition(|k| k.accepted);
    let accepted = accepted.iter().map(|k| line(k, "ACCEPTED LOSS: ", k.status.reason().unwrap_or_default()));
    accepted.chain(told.iter().map(|k| line(k, "", &lacks(k)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jail_plan::Guarantee;

    #[test]
    fn p10_a_report_that_can_t_be_read_keeps_no_promise() {
        let report = read(&serde_json::json!({"rows": [{"guarantee": "writes", "status": "splendid"}]}));
        for kept in jail_plan::promises(&report) {
            assert_ne!(kept.status, Status::Full, "{kept:?}");
        }
    }

    #[test]
    fn p10_accepted_losses_are_said_first_and_by_that_word() {
        let mut report = Report::default();
        Guarantee::ALL.into_iter().for_each(|g| report.set(g, Status::Full));
        report.set(Guarantee::Memory, Status::absent("no cgroup"));
        report.set(Guarantee::Network, Status::partial("no packet rules"));
        report.accepted = vec![Guarantee::Network];
        let lines = weaker(&jail_plan::promises(&report));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("ACCEPTED LOSS: promise 4 ") && lines[0].contains("no packet rules"), "{lines:?}");
        assert!(lines[1].starts_with("promise 8 is kept in part") && lines[1].contains("(memory: `airlock doctor`"), "{lines:?}");
    }
}
