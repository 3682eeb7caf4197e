//! What a policy answers to a request.

use crate::host::{Destination, Host, Target};
use crate::http::HttpRequest;
use crate::leads::Leads;
use crate::network::{Network, Rule};
use crate::source::Policy;
use model::decision::{Decision, Ruling};

/// Something that a task wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The address of a name. Answered like the most welcome of the name's ports, as no port is known yet.
    Lookup(Host),
    /// A TCP connection. Where its requests are read, it is let in as far as the door when any of them could be allowed.
    Connect(Target),
    /// A request of HTTP on a connection whose requests are read.
    Http(Target, HttpRequest),
}

impl Request {
    /// Reads what a person asks about: `example.org`, `example.org:443`, or `GET https://example.org/path`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((method, url)) = text.trim().split_once(' ') else {
            let text = text.trim();
            return match Target::parse(text) {
                Ok(target) => Ok(Self::Connect(target)),
                Err(_) if !text.contains(':') => Host::parse(text).map(Self::Lookup).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
        };
        let url = url.trim();
        let (usual, rest) = match url.split_once("://") {
            Some(("https", rest)) => (443, rest),
            Some(("http", rest)) => (80, rest),
            _ => return Err("a request is written as `GET https://example.org/path`".into()),
        };
        let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let path = path.split(['?', '#']).next().unwrap_or(path);
        let target = Target::parse(host).or_else(|_| Target::parse(&format!("{host}:{usual}"))).map_err(|e| e.to_string())?;
        Ok(Self::Http(target, HttpRequest::new(method, path).map_err(|e| e.to_string())?))
    }
}

/// A ruling, with where the winning rule says that the name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The decision, its rule and reason.
    pub ruling: Ruling,
    /// Where to connect, as the person's own winning rule says it.
    pub leads: Leads,
    /// What may be sent by the rules that mean it.
    pub caps: Vec<Cap>,
    /// Whether it is about this very request, and says nothing of others of its host.
    pub narrow: bool,
    /// Whether the person's own winning rule names more than one host.
    pub wild: bool,
}

/// How many bytes a run may send by one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// The rule, as a ruling has it.
    pub rule: String,
    /// Its file and line.
    pub source: String,
    /// Bytes.
    pub most: u64,
}

/// Judges a request: among the rules that match the strictest wins, `default` counts only where none does, and of the
/// person's file and the repository's the stricter answer counts.
pub fn decide(policy: &Policy, request: &Request) -> Ruling {
    answer(policy, request).ruling
}

/// Judges like [`decide`] and adds where it leads.
pub fn answer(policy: &Policy, request: &Request) -> Answer {
    match request {
        Request::Connect(target) => at(policy, &target.to, Some(target.port), None),
        Request::Http(target, request) => at(policy, &target.to, Some(target.port), Some(request)),
        Request::Lookup(host) => {
            let to = Destination::Name(host.clone());
            let matching = policy.networks.iter().flat_map(|n| &n.rules).filter(|r| r.host.matches(&to));
            let mut ports: Vec<u16> = matching.flat_map(|r| r.ports.listed().iter().copied()).collect();
            ports.sort_unstable();
            ports.dedup();
            let others = at(policy, &to, None, None);
            ports
                .into_iter()
                .map(|p| at(policy, &to, Some(p), None))
                .fold(others, |best, next| if next.ruling.decision < best.ruling.decision { next } else { best })
        }
    }
}

fn at(policy: &Policy, to: &Destination, port: Option<u16>, request: Option<&HttpRequest>) -> Answer {
    let mut worst: Option<Answer> = None;
    let mut leads = Leads::Public;
    let mut wild = false;
    for (i, section) in policy.networks.iter().enumerate() {
        let found = match request {
            None if policy.reads(to, port) => section.arrival(to, port),
            _ => section.rule_on(to, port, request),
        };
        let Some((ruling, rule)) = found else { continue };
        if i == 0 {
            leads = rule.map_or(Leads::Public, |r| r.leads);
            wild = rule.is_some_and(|r| r.host.is_wild());
        }
        if worst.as_ref().is_none_or(|w| ruling.decision > w.ruling.decision) {
            let narrow = request.is_some() && rule.is_some_and(|r| r.requests.narrow());
            worst = Some(Answer { ruling, leads: Leads::Public, caps: Vec::new(), narrow, wild: false });
        }
    }
    match worst {
        Some(a) => Answer { leads, wild, caps: caps(policy, to, port, request), ..a },
        None => Answer {
            ruling: Ruling {
                decision: Decision::Deny,
                rule: "network.default".into(),
                source: policy.name.clone(),
                reason: "the policy says nothing about the network".into(),
            },
            leads: Leads::Public,
            caps: Vec::new(),
            narrow: false,
            wild: false,
        },
    }
}

/// Those of every rule that means it, be it outdone by another or not: none of them lets more through than it says.
fn caps(policy: &Policy, to: &Destination, port: Option<u16>, request: Option<&HttpRequest>) -> Vec<Cap> {
    let rules = policy.networks.iter().flat_map(|n| n.rules.iter().map(move |r| (n, r)));
    let means = rules.filter(|(_, r)| r.bytes_out.is_some() && r.means(to, port, request));
    let cap = |(n, r): (&Network, &Rule)| {
        let ruling = n.ruling_of(r);
        Some(Cap { rule: ruling.rule, source: ruling.source, most: r.bytes_out? })
    };
    means.filter_map(cap).collect()
}

impl Network {
    /// This file's answer with the rule that gave it; [`None`] where it has none.
    pub(crate) fn rule_on(
        &self,
        to: &Destination,
        port: Option<u16>,
        request: Option<&HttpRequest>,
    ) -> Option<(Ruling, Option<&Rule>)> {
        let winner =
            self.rules.iter().filter(|r| r.means(to, port, request)).reduce(|best, r| {
                if (r.decision, r.host.narrowness()) > (best.decision, best.host.narrowness()) { r } else { best }
            });
        if let Some(rule) = winner {
            let mut ruling = self.ruling_of(rule);
            if ruling.decision == Decision::Allow && rule.host.says_much(to) {
                ruling.decision = Decision::Ask;
                ruling.reason = "a long name under a wildcard can carry data out by itself".to_owned();
            }
            return Some((ruling, Some(rule)));
        }
        let decision = self.default?;
        let source = if self.line == 0 { self.source.clone() } else { format!("{}:{}", self.source, self.line) };
        let named = self.rules.iter().any(|r| r.host.matches(to));
        let reason = match port {
            Some(_) if request.is_some() && named => format!("no rule names this request of {to}"),
            Some(port) if named => format!("no rule names port {port} of {to}"),
            None if named => format!("no rule allows a port of {to}"),
            Some(_) | None => format!("no rule names {to}"),
        };
        Some((Ruling { decision, rule: "network.default".into(), source, reason }, None))
    }

    /// This file's answer to a connection whose requests are read: the most welcome of them, as none is known yet. One that could
    /// be allowed may come as far as the door, where each is judged by itself.
    pub(crate) fn arrival(&self, to: &Destination, port: Option<u16>) -> Option<(Ruling, Option<&Rule>)> {
        let whole = self.rule_on(to, port, None)?;
        let some = self.rules.iter().filter(|r| r.matches(to, port) && r.requests.narrow());
        let Some(best) = some.min_by_key(|r| r.decision) else { return Some(whole) };
        let floor = if whole.1.is_some() { whole.0.decision } else { Decision::Allow };
        if best.decision.max(floor) >= whole.0.decision {
            return Some(whole);
        }
        let Ruling { reason, .. } = self.ruling_of(best);
        let reason = if reason.is_empty() { String::new() } else { reason + "; " } + "each request is judged by itself";
        Some((Ruling { decision: Decision::Allow, reason, ..self.ruling_of(best) }, Some(best)))
    }

    pub(crate) fn ruling_of(&self, rule: &Rule) -> Ruling {
        Ruling {
            decision: rule.decision,
            rule: format!("network.rule[{}]", rule.index),
            source: format!("{}:{}", self.source, rule.line),
            reason: rule.reason.clone(),
        }
    }
}
