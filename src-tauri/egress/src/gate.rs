//! Judges names and connections by the policy, and gives allowed names their addresses.

use crate::arbiter::Permit;
use crate::budget::{Budget, Spent};
use crate::names::{Meaning, Names};
use crate::rate::Rate;
use crate::record::Recorder;
use hickory_proto::rr::RecordType;
use model::decision::{Decision, Ruling};
use model::event::{Http, NetOp, Process, Verdict, What};
use policy::{Answer, Cap, Destination, Host, HttpRequest, Inside, Leads, Policy, Request, Target};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// New names under wildcards that may leave in a second; twice as many at once.
const FRESH: u32 = 20;

/// The policy with the names of this run.
pub(crate) struct Gate {
    policy: Arc<Policy>,
    names: Mutex<Names>,
    pub(crate) budget: Budget,
    /// By file and rule: as many as the policy has.
    shares: Mutex<HashMap<(String, String), Arc<Budget>>>,
    /// Names under wildcards that were let out, and room for new ones.
    wild: Mutex<HashSet<Host>>,
    fresh: Rate,
    pub(crate) recorder: Recorder,
}

/// What a question for a name gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// These addresses.
    Given(Ipv4Addr, Ipv6Addr),
    /// No such name.
    Refused,
    /// The run has had all the names it may.
    Full,
}

impl Gate {
    pub(crate) fn new(policy: Arc<Policy>, names: usize, recorder: Recorder) -> Self {
        let budget = Budget::new(policy.limits.bytes_out, policy.limits.bytes_in);
        Self {
            policy,
            names: Mutex::new(Names::new(names)),
            budget,
            shares: Mutex::default(),
            wild: Mutex::default(),
            fresh: Rate::per_second(FRESH),
            recorder,
        }
    }

    /// Whether a name that a wildcard allows may be asked for outside: each new one tells its server something, so not too many do.
    pub(crate) fn may_leave(&self, target: &Target) -> bool {
        let Destination::Name(host) = &target.to else { return true };
        let mut known = self.wild.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(host) {
            return true;
        }
        let may = self.fresh.take().is_ok();
        if may {
            known.insert(host.clone());
        } else {
            self.recorder.limit("names", format!("more than {FRESH} new names a second under wildcards: {host} was refused"));
        }
        may
    }

    /// What is left of what these rules let out, in this run.
    pub(crate) fn shares(&self, caps: &[Cap]) -> Vec<Arc<Budget>> {
        if caps.is_empty() {
            return Vec::new();
        }
        let mut known = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = |c: &Cap| {
            let key = (c.source.clone(), c.rule.clone());
            Arc::clone(known.entry(key).or_insert_with(|| Arc::new(Budget::of_rule((c.source.clone(), c.rule.clone()), c.most))))
        };
        caps.iter().map(share).collect()
    }

    /// The person's word on a limit that was reached: as much again, where they say so.
    pub(crate) async fn raise(&self, spent: Spent, who: Option<Process>) {
        let share = match &spent.rule {
            Some(rule) => match self.shares.lock().unwrap_or_else(PoisonError::into_inner).get(rule) {
                Some(share) => Some(Arc::clone(share)),
                None => return,
            },
            None => None,
        };
        let budget = share.as_deref().unwrap_or(&self.budget);
        let answer = self.recorder.raise(&spent.key(), budget.next(spent.way), who.as_ref());
        if let Ok(Permit::Granted { .. }) = answer.await {
            budget.raise(spent.way);
        }
    }

    /// Judges a name and tells it.
    pub(crate) fn lookup(&self, host: &Host, kind: RecordType) -> Lookup {
        let ruling = policy::decide(&self.policy, &Request::Lookup(host.clone()));
        // A name that is asked about gets an address that means nothing outside: who connects to it waits there for the answer.
        let verdict = match ruling.decision {
            Decision::Allow => Verdict::Allowed,
            Decision::Ask => Verdict::Noted,
            Decision::Deny => {
                self.tell_lookup(host.to_string(), kind, Verdict::Denied, &ruling);
                return Lookup::Refused;
            }
        };
        let given = self.names.lock().unwrap_or_else(PoisonError::into_inner).give(host);
        match given {
            Some((v4, v6)) => {
                self.tell_lookup(host.to_string(), kind, verdict, &ruling);
                Lookup::Given(v4, v6)
            }
            None => {
                self.recorder.limit("names", format!("this run has asked for as many names as it may; {host} gets no address"));
                Lookup::Full
            }
        }
    }

    /// Judges a name that is asked for something else than its addresses: whether it exists for the jail.
    pub(crate) fn knows(&self, host: &Host, kind: RecordType) -> bool {
        let ruling = policy::decide(&self.policy, &Request::Lookup(host.clone()));
        let verdict = match ruling.decision {
            Decision::Allow => Verdict::Allowed,
            Decision::Ask => Verdict::Noted,
            Decision::Deny => Verdict::Denied,
        };
        self.tell_lookup(host.to_string(), kind, verdict, &ruling);
        verdict != Verdict::Denied
    }

    /// Tells a name that can't be one. `shown` holds no character that hides.
    pub(crate) fn malformed(&self, shown: String, why: String, kind: RecordType) {
        let ruling = Ruling { decision: Decision::Deny, rule: "name check".into(), source: "airlock".into(), reason: why };
        self.tell_lookup(shown, kind, Verdict::Denied, &ruling);
    }

    fn tell_lookup(&self, host: String, kind: RecordType, verdict: Verdict, ruling: &Ruling) {
        let (rule, reason) = (ruling.rule.clone(), ruling.reason.clone());
        let what = What::Network {
            op: NetOp::Lookup,
            host,
            address: None,
            port: 0,
            verdict,
            rule,
            reason,
            sent: 0,
            received: 0,
            http: None,
            carried: None,
        };
        self.recorder.lookup(what, kind);
    }

    /// The name that an address inside the jail was given to.
    pub(crate) fn name_of(&self, ip: IpAddr) -> Option<Host> {
        match self.names.lock().unwrap_or_else(PoisonError::into_inner).meaning(ip) {
            Meaning::Name(h) => Some(h),
            Meaning::Nobody | Meaning::Itself(_) => None,
        }
    }

    /// Judges a connection that was dialled to `dst`.
    pub(crate) fn connect(&self, dst: SocketAddr) -> (Option<Target>, Answer) {
        let meaning = self.names.lock().unwrap_or_else(PoisonError::into_inner).meaning(dst.ip());
        let to = match meaning {
            Meaning::Name(host) => Destination::Name(host),
            Meaning::Itself(ip) => Destination::Address(ip),
            Meaning::Nobody => {
                let reason = "the address stands for names of this run, and no name was answered with it".into();
                let ruling = Ruling { decision: Decision::Deny, rule: "name check".into(), source: "airlock".into(), reason };
                return (None, Answer { ruling, leads: Leads::Public, caps: Vec::new(), narrow: false, wild: false });
            }
        };
        let target = Target { to, port: dst.port() };
        let answer = policy::answer(&self.policy, &Request::Connect(target.clone()));
        (Some(target), answer)
    }

    /// How long a connection may be held for the person's answer.
    pub(crate) fn hold(&self) -> std::time::Duration {
        self.policy.hold()
    }

    /// Tells a connection that goes nowhere (yet).
    pub(crate) fn tell_connect(
        &self,
        dst: SocketAddr,
        target: Option<&Target>,
        verdict: Verdict,
        ruling: &Ruling,
        who: Option<Process>,
    ) {
        let what = What::Network {
            op: NetOp::Connect,
            host: name(target),
            address: Some(dst.ip().to_string()),
            port: dst.port(),
            verdict,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            sent: 0,
            received: 0,
            http: None,
            carried: None,
        };
        self.recorder.tell(what, who);
    }

    /// Judges a request on a connection whose requests are read.
    pub(crate) fn request(&self, target: &Target, request: &HttpRequest) -> Answer {
        policy::answer(&self.policy, &Request::Http(target.clone(), request.clone()))
    }

    /// Whether requests on connections to a target are read.
    pub(crate) fn reads(&self, target: &Target) -> bool {
        self.policy.inspects(target)
    }

    /// What must be so of a connection to a target that is carried unread.
    pub(crate) fn carried(&self, target: &Target) -> Inside {
        self.policy.carried(target)
    }

    /// Tells a request.
    pub(crate) fn tell_request(
        &self,
        target: &Target,
        address: Option<SocketAddr>,
        verdict: Verdict,
        ruling: &Ruling,
        http: Http,
        who: Option<Process>,
    ) {
        let what = What::Network {
            op: NetOp::Request,
            host: target.to.to_string(),
            address: address.map(|a| a.to_string()),
            port: target.port,
            verdict,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            sent: 0,
            received: 0,
            http: Some(Box::new(http)),
            carried: None,
        };
        self.recorder.tell(what, who);
    }
}

/// The name of a target; empty for a bare address.
pub(crate) fn name(target: Option<&Target>) -> String {
    match target.map(|t| &t.to) {
        Some(Destination::Name(h)) => h.to_string(),
        Some(Destination::Address(_)) | None => String::new(),
    }
}
