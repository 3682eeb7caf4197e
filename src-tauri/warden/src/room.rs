//! What one run may add to the event log: a jail chooses how much happens, and how many words each row has.

use model::event::{Process, Verdict, What};

/// Bytes of each kind.
const EACH: usize = 256 << 20;

/// A row beside its words: numbers, and the names of what is in it.
const ROW: usize = 320;

/// Marks around a name in a list, and the number of an ancestor.
const NAME: usize = 16;

/// What is left for each kind. Kinds are apart, so that a flood of what anybody may do hides neither a connection that went out
/// nor a touch of a hidden place.
pub(crate) struct Room([usize; 6]);

impl Default for Room {
    fn default() -> Self {
        Self([EACH; 6])
    }
}

impl Room {
    /// Whether a fact is stored; what is not has to be counted. Steps of the run are few, and stored always.
    pub(crate) fn take(&mut self, process: Option<&Process>, what: &What) -> bool {
        let Some(left) = kind(what).and_then(|kind| self.0.get_mut(kind)) else { return true };
        *left = left.saturating_sub(weight(process, what));
        *left > 0
    }
}

fn kind(what: &What) -> Option<usize> {
    match what {
        What::File { verdict: Verdict::Denied, .. } => Some(1),
        What::Network { verdict: Verdict::Allowed, .. } => Some(2),
        What::Network { verdict: Verdict::Denied | Verdict::Held, .. } => Some(3),
        What::Limit { .. } => Some(4),
        What::Ask { .. } | What::Decision { .. } => Some(5),
        What::File { .. } | What::Process { .. } | What::Network { verdict: Verdict::Noted, .. } => Some(0),
        What::Lifecycle { .. } => None,
    }
}

/// What it takes on disk, rather too much.
fn weight(process: Option<&Process>, what: &What) -> usize {
    let process = process.map_or(0, |p| {
        let names = p.argv.iter().chain(p.ancestry.iter().map(|(_, name)| name)).chain([&p.program, &p.exe]);
        names.map(|name| shown(&name.0) + NAME).sum::<usize>()
    });
    let what = match what {
        What::File { path, to, rule, .. } => shown(&path.0) + to.as_ref().map_or(0, |to| shown(&to.0)) + rule.len(),
        What::Network { host, address, rule, reason, http, .. } => {
            let http = http.as_ref().map_or(0, |h| h.method.len() + h.path.len() + 2 * NAME);
            host.len() + address.as_ref().map_or(0, String::len) + rule.len() + reason.len() + http
        }
        What::Ask { about, rule, .. } => about.len() + rule.len(),
        What::Decision { about, detail, .. } => about.len() + detail.len(),
        What::Limit { limit, detail } => limit.len() + detail.len(),
        What::Process { .. } | What::Lifecycle { .. } => 0,
    };
    ROW + process + what
}

/// Length of a name in JSON, where whatever can't be shown is `\\xNN`.
fn shown(name: &[u8]) -> usize {
    let plain = |b: &&u8| (b.is_ascii_graphic() || **b == b' ') && !matches!(b, b'"' | b'\\');
    let plain = name.iter().filter(plain).count();
    plain + (name.len() - plain) * 5
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at once")]
    use super::*;
    use db::EventLog;
    use model::event::{Event, FileOp, NetOp, Origin, ProcessOp};
    use model::id::{AskId, RunId};
    use model::path::RawPath;

    /// As many words as a process may have, of bytes that can't be shown.
    fn wordy() -> Process {
        Process {
            pid: 7,
            parent: 1,
            program: "python3".into(),
            exe: "/usr/bin/python3".into(),
            origin: Origin::System,
            ancestry: Vec::new(),
            argv: vec![RawPath(vec![1; 4096]); 4],
        }
    }

    fn network(op: NetOp, verdict: Verdict) -> What {
        What::Network {
            op,
            host: String::new(),
            address: Some("127.0.0.1".into()),
            port: 1,
            verdict,
            rule: String::new(),
            reason: String::new(),
            sent: 0,
            received: 0,
            http: None,
            carried: None,
        }
    }

    fn floods() -> Vec<What> {
        let file = |verdict| What::File { op: FileOp::Read, path: "f".into(), to: None, verdict, rule: String::new() };
        vec![
            file(Verdict::Noted),
            file(Verdict::Denied),
            What::Process { op: ProcessOp::Exec, status: None },
            network(NetOp::Bind, Verdict::Noted),
            network(NetOp::Connect, Verdict::Allowed),
            network(NetOp::Connect, Verdict::Denied),
            network(NetOp::Lookup, Verdict::Held),
            What::Ask { ask: AskId::from_random([1; 8]), about: "n1.test:443".into(), rule: "network.default".into() },
            What::Limit { limit: "events".into(), detail: "the arguments of a connect could not be read in time".into() },
        ]
    }

    #[test]
    fn p8_no_kind_of_event_fills_the_disk_and_none_hides_another() {
        let (jail, step) = (wordy(), What::Lifecycle { phase: "ended".into(), detail: "exit 0".into() });
        for flood in floods() {
            let mut room = Room::default();
            let stored = (0..10_000).take_while(|_| room.take(Some(&jail), &flood)).count();
            let bytes = stored * weight(Some(&jail), &flood);
            assert!(stored > 1000, "{flood:?}: what a run usually does is stored, not {stored} rows");
            assert!(bytes <= EACH, "{flood:?}: {bytes} bytes of one kind were let in");
            assert!(!room.take(Some(&jail), &flood), "{flood:?}: what is full stays full");
            assert!(room.take(None, &step), "a step of the run is stored after {flood:?}");
            for other in floods().iter().filter(|other| kind(other) != kind(&flood)) {
                assert!(room.take(Some(&jail), other), "{other:?} is stored after a flood of {flood:?}");
            }
        }
    }

    #[test]
    fn p8_a_row_weighs_at_least_what_it_takes_on_disk() {
        let plain = Process { argv: vec!["cc".into(), "-c".into()], ancestry: vec![(1, "sh".into())], ..wordy() };
        for process in [Some(wordy()), Some(plain), None] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("events.db");
            let mut log = EventLog::open(&path).unwrap();
            let before = std::fs::metadata(&path).unwrap().len();
            let run = RunId::from_random([3; 8]);
            let event = |what: &What| {
                let (process, what) = (process.clone(), what.clone());
                Event { seq: 0, time: 1_764_500_000_000, run: run.clone(), count: u64::MAX, process, what }
            };
            let mut events: Vec<Event> = floods().iter().cycle().take(140).map(event).collect();
            log.append(&mut events).unwrap();
            drop(log);
            let weights: usize = events.iter().map(|e| weight(e.process.as_ref(), &e.what)).sum();
            let on_disk = usize::try_from(std::fs::metadata(&path).unwrap().len() - before).unwrap();
            assert!(on_disk > 0 && on_disk <= weights * 11 / 10, "{weights} counted, {on_disk} taken");
            assert!(weights < on_disk * 3, "{weights} counted, {on_disk} taken: too little would be stored");
        }
    }
}
