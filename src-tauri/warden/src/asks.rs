//! What waits for the person: one thread keeps the asks and grants of a run, so that each answer meets exactly one state.

use crate::record::Recorder;
use db::{Database, DbError};
use egress::{Permit, Wanted};
use model::ask::{Answer, Ask, AskState, Asked, Grant, Moment, Scope};
use model::decision::{Decision, Ruling};
use model::event::{Process, Verdict, What};
use model::id::{AskId, GrantId, RepoId, RunId, TaskId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Asks that may be open at a time; what comes on top is refused, so that nobody is worn out.
const OPEN: usize = 32;
/// Of these, looks into hidden places: a program makes names up as it likes.
const READS: usize = 8;
/// New asks that a run may make at once, and how long it takes until it may make one more.
const BURST: u32 = 64;
const ONE_MORE: Duration = Duration::from_secs(10);
/// How often counts are stored at most.
const COUNTED: Duration = Duration::from_secs(1);
/// How often ends are looked at while a connection lives by a grant that ends: a machine that slept is noticed by then.
const LOOKED: Duration = Duration::from_secs(30);

/// Whose asks these are.
pub(crate) struct Whose {
    pub(crate) task: TaskId,
    pub(crate) repo: RepoId,
    pub(crate) run: RunId,
}

/// What needs the person's word.
pub(crate) struct Want {
    pub(crate) what: Asked,
    /// A word on this is one on it too.
    pub(crate) wider: Option<Asked>,
    pub(crate) who: Option<Process>,
    /// The rule that asks.
    pub(crate) ruling: Ruling,
}

impl From<Wanted> for Want {
    fn from(wanted: Wanted) -> Self {
        let (host, port) = (wanted.target.to.to_string(), wanted.target.port);
        let whole = Asked::Connect { host: host.clone(), port };
        let (who, ruling) = (Some(wanted.who), wanted.ruling);
        match wanted.request {
            None => Self { what: whole, wider: None, who, ruling },
            Some(r) => {
                let what = Asked::Request { host, port, method: r.method().to_owned(), path: r.path().to_owned() };
                Self { what, wider: wanted.by_host.then_some(whole), who, ruling }
            }
        }
    }
}

enum Message {
    Want(Box<Want>, oneshot::Sender<Permit>),
    Answer { ask: AskId, digest: String, answer: Answer, told: oneshot::Sender<Result<Option<GrantId>, String>> },
    Reread(oneshot::Sender<u64>),
    Withdraw(Asked),
    Close,
}

/// The way to the thread.
#[derive(Clone)]
pub(crate) struct Asks(Sender<Message>);

/// The thread; joined at the end, so that no ask stays open for nobody.
pub(crate) struct Desk(Sender<Message>, std::thread::JoinHandle<()>);

/// Starts the thread.
pub(crate) fn start(whose: Whose, db: Arc<Database>, recorder: Recorder) -> std::io::Result<(Asks, Desk)> {
    let (sender, receiver) = channel();
    let mut state = State::new(whose, db, recorder);
    let thread = std::thread::Builder::new().name("asks".into()).spawn(move || state.serve(&receiver))?;
    Ok((Asks(sender.clone()), Desk(sender, thread)))
}

impl Asks {
    /// Whether the person permits something.
    pub(crate) fn permit(&self, want: impl Into<Want>) -> oneshot::Receiver<Permit> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(Message::Want(Box::new(want.into()), sender)).ok();
        receiver
    }

    /// Passes the person's answer on; why not, in words, where the ask is not the one that they saw.
    pub(crate) async fn answer(&self, ask: AskId, digest: String, answer: Answer) -> Result<Option<GrantId>, String> {
        let (told, result) = oneshot::channel();
        self.0.send(Message::Answer { ask, digest, answer, told }).ok();
        result.await.unwrap_or_else(|_| Err("the run is ending".into()))
    }

    /// Nobody needs an answer any more.
    pub(crate) fn withdraw(&self, what: Asked) {
        self.0.send(Message::Withdraw(what)).ok();
    }

    /// Reads grants anew; how many connections were closed by that.
    pub(crate) async fn reread(&self) -> u64 {
        let (told, result) = oneshot::channel();
        self.0.send(Message::Reread(told)).ok();
        result.await.unwrap_or(0)
    }
}

impl Desk {
    /// Ends what is open and the thread with it.
    pub(crate) fn close(self) {
        self.0.send(Message::Close).ok();
        if self.1.join().is_err() {
            tracing::error!("the thread that keeps asks panicked");
        }
    }
}

/// An open ask and the connections that wait for its answer.
struct Waiting {
    ask: Ask,
    /// A word on this is one on it too.
    wider: Option<Asked>,
    connections: Vec<oneshot::Sender<Permit>>,
    /// Tries as they are stored.
    stored: u64,
}

impl Waiting {
    /// One more. Those that gave up go before more room is made, so that tries without end take none.
    fn wait(&mut self, connection: oneshot::Sender<Permit>) {
        if self.connections.len() == self.connections.capacity() {
            self.now();
        }
        self.connections.push(connection);
    }

    /// Those that did not give up.
    fn now(&mut self) -> u64 {
        self.connections.retain(|c| !c.is_closed());
        self.connections.len() as u64
    }
}

/// A grant with the connections that live by it.
struct Live {
    grant: Grant,
    ended: watch::Sender<bool>,
    /// Uses that are not stored yet.
    uses: u64,
}

impl Live {
    fn of(grant: Grant) -> Self {
        Self { grant, ended: watch::Sender::new(false), uses: 0 }
    }

    fn permit(&self) -> Permit {
        let Grant { id, ask, .. } = &self.grant;
        let reason = if ask.is_some() { "you allowed it when you were asked" } else { "you allowed it by hand" };
        let ruling =
            Ruling { decision: Decision::Allow, rule: format!("grant {id}"), source: "you".into(), reason: reason.into() };
        Permit::Granted { ruling, ended: self.ended.subscribe() }
    }
}

struct State {
    whose: Whose,
    db: Arc<Database>,
    recorder: Recorder,
    open: Vec<Waiting>,
    denied: HashMap<Asked, AskId>,
    grants: Vec<Live>,
    /// The database as it was when the grants were read.
    version: Option<i64>,
    room: u32,
    filled: Instant,
    counted: Instant,
    /// When it was last told that there is no room.
    full: Option<Instant>,
    boot_id: String,
}

impl State {
    fn new(whose: Whose, db: Arc<Database>, recorder: Recorder) -> Self {
        let now = Instant::now();
        Self {
            whose,
            db,
            recorder,
            open: Vec::new(),
            denied: HashMap::new(),
            grants: Vec::new(),
            version: None,
            room: BURST,
            filled: now,
            counted: now,
            full: None,
            boot_id: sys::clock::boot_id(),
        }
    }

    fn serve(&mut self, receiver: &Receiver<Message>) {
        loop {
            let message = match self.wait() {
                Some(wait) => receiver.recv_timeout(wait),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Want(want, connection)) => self.want(*want, connection),
                Ok(Message::Answer { ask, digest, answer, told }) => {
                    told.send(self.answer(&ask, &digest, &answer)).ok();
                }
                Ok(Message::Reread(told)) => {
                    told.send(self.reread().unwrap_or(0)).ok();
                }
                Ok(Message::Withdraw(what)) => self.withdraw(&what),
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.end_what_is_over();
            self.store_counts(false);
        }
        self.store_counts(true);
        let ended = self.db.end_asks(sys::clock::unix_millis(), &self.whose.run);
        ended.unwrap_or_else(|e| tracing::error!(error = %e, "open asks could not be ended"));
    }

    fn moment(&self) -> Moment {
        Moment { wall: sys::clock::unix_millis(), boot: sys::clock::boot_millis(), boot_id: self.boot_id.clone() }
    }

    /// How long nothing has to be done by itself; without end where nothing counts or ends.
    fn wait(&self) -> Option<Duration> {
        let now = self.moment();
        let lived_by = self.grants.iter().filter(|l| l.ended.receiver_count() > 0);
        let end = lived_by.filter_map(|l| l.grant.until.as_ref()).map(|u| Duration::from_millis(u.left(&now)).min(LOOKED)).min();
        let uncounted = self.grants.iter().any(|l| l.uses > 0) || self.open.iter().any(|w| w.ask.tries != w.stored);
        let count = uncounted.then(|| COUNTED.saturating_sub(self.counted.elapsed()));
        [end, count].into_iter().flatten().min()
    }

    fn want(&mut self, Want { what, wider, who, ruling }: Want, connection: oneshot::Sender<Permit>) {
        // Who gave up while others were served is not worth a look: tries come faster than a database answers.
        if connection.is_closed() {
            return;
        }
        // Somebody may have taken a grant back meanwhile; who can't read that lets nobody through.
        if let Err(e) = self.reread_if_changed() {
            return refuse(connection, "asks", format!("the database can't be read: {e}"));
        }
        if let Some(permit) = self.granted(&what).or_else(|| self.granted(wider.as_ref()?)) {
            connection.send(permit).ok();
        } else if let Some(ask) = self.denied.get(&what).or_else(|| self.denied.get(wider.as_ref()?)) {
            refuse(connection, "ask", format!("you denied it in this run (ask {ask}); `airlock grant add` allows it"));
        } else if let Some(waiting) = self.open.iter_mut().find(|w| w.ask.what == what) {
            waiting.ask.tries += 1;
            waiting.wait(connection);
        } else if let Err(why) = self.room(&what) {
            if self.full.is_none_or(|told| told.elapsed() >= ONE_MORE) {
                self.full = Some(Instant::now());
                self.recorder.fact(who, What::Limit { limit: "asks".into(), detail: why.clone() }, 1);
            }
            refuse(connection, "asks", why);
        } else if let Err(e) = self.open(what, wider, who, ruling, connection) {
            tracing::error!(error = %e, "an ask could not be stored");
        }
    }

    /// Opens an ask. Where it can't be stored, its connection is dropped, which refuses it.
    fn open(
        &mut self,
        what: Asked,
        wider: Option<Asked>,
        who: Option<Process>,
        ruling: Ruling,
        connection: oneshot::Sender<Permit>,
    ) -> Result<(), DbError> {
        let now = sys::clock::unix_millis();
        let ask = Ask {
            id: AskId::from_random(sys::random::bytes()),
            task: self.whose.task.clone(),
            run: self.whose.run.clone(),
            what,
            process: who.clone(),
            rule: ruling.rule,
            source: ruling.source,
            reason: ruling.reason,
            opened: now,
            state: AskState::Open,
            tries: 1,
            closed: None,
            grant: None,
        };
        self.db.open_ask(now, &ask)?;
        self.version = None;
        let told = What::Ask { ask: ask.id.clone(), about: ask.what.to_string(), rule: ask.rule.clone() };
        self.recorder.fact(who, told, 1);
        self.open.push(Waiting { ask, wider, connections: vec![connection], stored: 1 });
        Ok(())
    }

    /// Room for one more ask, or why there is none.
    fn room(&mut self, what: &Asked) -> Result<(), String> {
        // There are few limits, and each asks once at a time: a flood of others must not keep the person from hearing of one.
        if matches!(what, Asked::Raise { .. }) {
            return Ok(());
        }
        let reads = |w: &&Waiting| matches!(w.ask.what, Asked::Read { .. });
        if matches!(what, Asked::Read { .. }) && self.open.iter().filter(reads).count() >= READS {
            return Err(format!("{READS} asks about hidden places are open: answer some of them"));
        }
        if self.open.len() >= OPEN {
            return Err(format!("{OPEN} asks of this run are open: answer some of them"));
        }
        let more = u32::try_from(self.filled.elapsed().as_secs() / ONE_MORE.as_secs()).unwrap_or(u32::MAX);
        if more > 0 {
            self.room = self.room.saturating_add(more).min(BURST);
            self.filled = Instant::now();
        }
        self.room = self.room.checked_sub(1).ok_or_else(|| {
            format!("this run asked for too much at once; it may ask for one more thing every {} s", ONE_MORE.as_secs())
        })?;
        Ok(())
    }

    /// The permit of a grant that lives, with one use taken.
    fn granted(&mut self, what: &Asked) -> Option<Permit> {
        let now = self.moment();
        for live in self.grants.iter_mut().filter(|l| l.grant.what == *what && l.grant.lives(&now)) {
            match live.grant.left {
                None => live.uses += 1,
                // The last use is taken in the database first: a warden that is killed gives it to nobody twice.
                Some(left) => match self.db.use_up(now.wall, &live.grant.id) {
                    Ok(true) => {
                        live.grant.left = Some(left.saturating_sub(1));
                        self.version = None;
                    }
                    Ok(false) => {
                        live.grant.left = Some(0);
                        continue;
                    }
                    Err(e) => {
                        tracing::error!(error = %e, "a use could not be stored, so it is not given");
                        continue;
                    }
                },
            }
            return Some(live.permit());
        }
        None
    }

    fn answer(&mut self, id: &AskId, digest: &str, answer: &Answer) -> Result<Option<GrantId>, String> {
        let Some(index) = self.open.iter().position(|w| w.ask.id == *id) else {
            return Err(format!("ask {id} is not open: it was answered, or its run ended"));
        };
        let now = self.moment();
        let waiting = &mut self.open[index];
        if waiting.ask.digest() != digest {
            return Err(format!("ask {id} is about something else than what was shown: look again"));
        }
        let here = waiting.now();
        let (grant, detail) = match answer {
            Answer::Deny => (None, "denied for the rest of the run".to_owned()),
            Answer::Allow { scope, lasts } => {
                let (task, left, detail) = match scope {
                    Scope::Once if here > 0 => (Some(&self.whose.task), Some(0), format!("allowed once, for {here} that waited")),
                    Scope::Once => (Some(&self.whose.task), Some(1), "allowed once, for the next try".to_owned()),
                    Scope::Task => (Some(&self.whose.task), None, "allowed for the task".to_owned()),
                    Scope::Repo => (None, None, "allowed for the repository".to_owned()),
                };
                let grant = Grant {
                    id: GrantId::from_random(sys::random::bytes()),
                    task: task.cloned(),
                    repo: self.whose.repo.clone(),
                    what: waiting.ask.what.clone(),
                    ask: Some(id.clone()),
                    made: now.wall,
                    until: lasts.map(|millis| now.after(millis)),
                    left,
                    used: here,
                    revoked: None,
                };
                let until = lasts.map_or_else(String::new, |millis| format!(", for {} s", millis / 1000));
                (Some(grant), detail + &until)
            }
        };
        let state = if grant.is_some() { AskState::Allowed } else { AskState::Denied };
        let id_of = grant.as_ref().map(|g| g.id.clone());
        match self.db.answer_ask(now.wall, id, state, id_of.as_ref(), grant.as_ref()) {
            Ok(true) => {}
            Ok(false) => return Err(format!("ask {id} is not open any more")),
            Err(e) => return Err(e.to_string()),
        }
        self.version = None;
        let verdict = if grant.is_some() { Verdict::Allowed } else { Verdict::Denied };
        let Waiting { ask, connections, .. } = self.open.remove(index);
        self.decided(Some(ask.id.clone()), id_of.clone(), &ask.what, verdict, detail);
        match grant.map(Live::of) {
            Some(live) => {
                for connection in connections {
                    connection.send(live.permit()).ok();
                }
                self.grants.push(live);
            }
            None => {
                for connection in connections {
                    refuse(connection, "ask", "you denied it".to_owned());
                }
                self.denied.insert(ask.what, ask.id);
            }
        }
        Ok(id_of)
    }

    fn withdraw(&mut self, what: &Asked) {
        let Some(index) = self.open.iter().position(|w| w.ask.what == *what) else { return };
        match self.db.answer_ask(sys::clock::unix_millis(), &self.open[index].ask.id, AskState::Ended, None, None) {
            Ok(_) => drop(self.open.remove(index)),
            Err(e) => tracing::error!(error = %e, "an ask could not be ended"),
        }
        self.version = None;
    }

    fn decided(&self, ask: Option<AskId>, grant: Option<GrantId>, what: &Asked, verdict: Verdict, detail: String) {
        let what = What::Decision { ask, grant, about: what.to_string(), verdict, detail };
        self.recorder.fact(None::<Process>, what, 1);
    }

    fn reread_if_changed(&mut self) -> Result<(), DbError> {
        if self.version.is_none() || self.version != Some(self.db.version()?) {
            self.reread()?;
        }
        Ok(())
    }

    /// Takes the grants as they are now: those that were taken back end with their connections, new ones serve who waits.
    fn reread(&mut self) -> Result<u64, DbError> {
        self.store_counts(true);
        let version = self.db.version()?;
        let found = self.db.grants(Some((&self.whose.repo, &self.whose.task)))?;
        let mut closed = 0;
        let mut ended = Vec::new();
        for live in &mut self.grants {
            match found.iter().find(|g| g.id == live.grant.id) {
                Some(now) if now.revoked.is_none() => live.grant = now.clone(),
                Some(_) | None => {
                    closed += live.ended.receiver_count() as u64;
                    live.grant.revoked = Some(live.grant.revoked.unwrap_or(live.grant.made));
                    ended.push(live.grant.clone());
                }
            }
        }
        let now = self.moment();
        for grant in found.into_iter().filter(|g| g.lives(&now)) {
            if !self.grants.iter().any(|l| l.grant.id == grant.id) {
                self.grants.push(Live::of(grant));
            }
        }
        for grant in ended {
            self.decided(None, Some(grant.id), &grant.what, Verdict::Denied, "taken back by you".to_owned());
        }
        self.end_what_is_over();
        self.version = Some(version);
        self.serve_who_waits();
        Ok(closed)
    }

    /// Asks that a grant answers which was made elsewhere.
    fn serve_who_waits(&mut self) {
        let now = self.moment();
        for index in (0..self.open.len()).rev() {
            let Waiting { ask: Ask { what, .. }, wider, .. } = &self.open[index];
            let means = |granted: &Asked| granted == what || Some(granted) == wider.as_ref();
            let Some(live) = self.grants.iter().find(|l| l.grant.left.is_none() && means(&l.grant.what) && l.grant.lives(&now))
            else {
                continue;
            };
            let grant = live.grant.id.clone();
            match self.db.answer_ask(now.wall, &self.open[index].ask.id, AskState::Allowed, Some(&grant), None) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(e) => {
                    tracing::error!(error = %e, "an ask could not be answered by a grant");
                    continue;
                }
            }
            self.version = None;
            let Waiting { ask, connections, .. } = self.open.remove(index);
            self.denied.remove(&ask.what);
            self.decided(Some(ask.id), Some(grant.clone()), &ask.what, Verdict::Allowed, "by a grant".to_owned());
            if let Some(live) = self.grants.iter_mut().find(|l| l.grant.id == grant) {
                for connection in connections {
                    live.uses += u64::from(connection.send(live.permit()).is_ok());
                }
            }
        }
    }

    /// Ends the connections of grants that are over, and forgets those.
    fn end_what_is_over(&mut self) {
        let now = self.moment();
        let recorder = &self.recorder;
        self.grants.retain(|live| {
            let over = live.grant.over(&now);
            if over && live.grant.revoked.is_none() && live.ended.receiver_count() > 0 {
                let detail = "its time is over".to_owned();
                let (grant, about) = (Some(live.grant.id.clone()), live.grant.what.to_string());
                recorder.fact(None, What::Decision { ask: None, grant, about, verdict: Verdict::Denied, detail }, 1);
            }
            if over {
                live.ended.send_replace(true);
            }
            !over && (live.grant.left != Some(0) || live.ended.receiver_count() > 0)
        });
    }

    fn store_counts(&mut self, now: bool) {
        if !now && self.counted.elapsed() < COUNTED {
            return;
        }
        let time = sys::clock::unix_millis();
        let mut stored = false;
        for live in self.grants.iter_mut().filter(|l| l.uses > 0) {
            match self.db.count_uses(time, &live.grant.id, live.uses) {
                Ok(()) => (live.uses, stored) = (0, true),
                Err(e) => tracing::warn!(error = %e, "uses could not be counted now"),
            }
        }
        for waiting in self.open.iter_mut().filter(|w| w.ask.tries != w.stored) {
            match self.db.count_tries(time, &waiting.ask.id, waiting.ask.tries) {
                Ok(()) => (waiting.stored, stored) = (waiting.ask.tries, true),
                Err(e) => tracing::warn!(error = %e, "tries could not be counted now"),
            }
        }
        if stored {
            self.version = None;
        }
        self.counted = Instant::now();
    }
}

fn refuse(connection: oneshot::Sender<Permit>, rule: &str, reason: String) {
    let ruling = Ruling { decision: Decision::Deny, rule: rule.to_owned(), source: "you".into(), reason };
    connection.send(Permit::Refused(ruling)).ok();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at once")]
    use super::*;

    #[test]
    fn p8_tries_that_gave_up_take_no_room() {
        let ask = Ask {
            id: AskId::from_random([1; 8]),
            task: TaskId::from_random([1; 8]),
            run: RunId::from_random([1; 8]),
            what: Asked::Connect { host: "a.test".into(), port: 443 },
            process: None,
            rule: String::new(),
            source: String::new(),
            reason: String::new(),
            opened: 0,
            state: AskState::Open,
            tries: 1,
            closed: None,
            grant: None,
        };
        let mut waiting = Waiting { ask, wider: None, connections: Vec::new(), stored: 1 };
        let patient: Vec<_> = (0..10)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                waiting.wait(sender);
                receiver
            })
            .collect();
        for _ in 0..10_000 {
            waiting.wait(oneshot::channel().0);
        }
        assert!(waiting.connections.len() <= 32, "{} are kept", waiting.connections.len());
        assert_eq!(waiting.now(), patient.len() as u64, "those that still wait are among them");
    }
}
