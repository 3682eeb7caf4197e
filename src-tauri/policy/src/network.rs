//! The `[network]` section: rules by host and port, each with its reason and examples.

use crate::host::{Destination, HostPattern, Target, canonical};
use crate::http::{self, HttpRequest, Requests};
use crate::leads::{Leads, Range as Addresses};
use crate::problem::quote;
use crate::proxy::{self, Proxy};
use crate::read::{At, Notes, Table};
use crate::source::Whose;
use crate::unit;
use model::decision::Decision;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

/// Kinds of packages whose registries a task may read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ecosystems {
    /// Those that the repository's lock files speak of.
    FromLocks,
    /// These.
    Named(Vec<String>),
}

/// One file's word on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Where no rule matches; [`None`] in a repository's file that leaves it out, which then says nothing.
    pub default: Option<Decision>,
    /// How long a connection that is asked about is held; 60 s where absent.
    pub hold: Option<Duration>,
    /// The proxy through which connections to the public internet leave; only the person's file can say so.
    pub proxy: Option<Proxy>,
    /// Rules in the order of the file.
    pub rules: Vec<Rule>,
    /// Whose registries may be read.
    pub(crate) ecosystems: Option<Ecosystems>,
    /// Name of the file, for [`model::decision::Ruling::source`].
    pub(crate) source: String,
    /// Line of `default`, 0 where it is left out.
    pub(crate) line: u32,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Position in the file, from 0.
    pub index: usize,
    /// Its line, from 1.
    pub line: u32,
    /// Which hosts.
    pub host: HostPattern,
    /// Which ports.
    pub ports: Ports,
    /// Which requests of HTTP.
    pub requests: Requests,
    /// How what is inside a connection is treated.
    pub inside: Inside,
    /// Where it leads.
    pub leads: Leads,
    /// How many bytes a run may send by it, over all its connections.
    pub bytes_out: Option<u64>,
    /// What it says.
    pub decision: Decision,
    /// Why, shown to the person.
    pub reason: String,
}

/// What a rule says of the inside of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inside {
    /// Nothing: it is carried unread, TLS only for the name that was judged.
    #[default]
    Unsaid,
    /// It is carried unread, TLS for whatever name: an encrypted hello (ECH) shows another than the one that it is for.
    Ech,
    /// Every request is read and judged.
    Inspect,
    /// Whatever it is, it is carried unread.
    Tcp,
}

/// Ports of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// Every port; only a refusal can say so.
    Any,
    /// These.
    Only(Vec<u16>),
}

impl Ports {
    /// Whether `port` is meant; [`None`] is a port that no rule names.
    pub(crate) fn matches(&self, port: Option<u16>) -> bool {
        match (self, port) {
            (Self::Any, _) => true,
            (Self::Only(list), Some(p)) => list.contains(&p),
            (Self::Only(_), None) => false,
        }
    }

    /// The ports that are written down.
    pub fn listed(&self) -> &[u16] {
        match self {
            Self::Any => &[],
            Self::Only(list) => list,
        }
    }

    fn overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Only(a), Self::Only(b)) => a.iter().any(|p| b.contains(p)),
        }
    }
}

const DECISIONS: [(&str, Decision); 3] = [("allow", Decision::Allow), ("ask", Decision::Ask), ("deny", Decision::Deny)];

/// Reads `[network]`. The person's file always has a word on the network: left out, it denies.
pub(crate) fn network(root: &mut Table<'_>, notes: &mut Notes<'_>, source: &str, whose: Whose) -> Option<Network> {
    let silent = match whose {
        Whose::Person => Some(Decision::Deny),
        Whose::Repository => None,
    };
    let mut section = Network {
        default: silent,
        hold: None,
        proxy: None,
        ecosystems: None,
        rules: Vec::new(),
        source: source.to_owned(),
        line: 0,
    };
    let Some(mut t) = root.table(notes, "network") else {
        return (whose == Whose::Person).then_some(section);
    };
    if let Some(At { value, span }) = t.text(notes, "default") {
        section.line = notes.line(&span);
        match value.as_str() {
            "deny" => section.default = Some(Decision::Deny),
            "ask" => section.default = Some(Decision::Ask),
            "allow" => notes.problem(
                &span,
                "`network.default` can't be \"allow\"",
                "name the hosts in [[network.rule]]; the default is \"ask\" or \"deny\"",
            ),
            other => notes.problem(&span, format!("`network.default` can't be {}", quote(other)), "it is \"ask\" or \"deny\""),
        }
    }
    section.ecosystems = ecosystems(&mut t, notes, whose);
    if let Some(At { value, span }) = t.text(notes, "hold") {
        match unit::duration(&value) {
            Some(d) if (1..=60).contains(&d.as_secs()) => section.hold = Some(d),
            _ => notes.problem(&span, format!("`network.hold` can't be {}", quote(&value)), "from \"1s\" to \"60s\""),
        }
    }
    section.proxy = proxy::proxy(&mut t, notes, whose);
    let mut examples = Vec::new();
    for (index, table) in t.tables(notes, "rule").into_iter().enumerate() {
        let (r, e) = rule(table, notes, index, whose);
        section.rules.extend(r);
        examples.extend(e.into_iter().map(|e| (index, e)));
    }
    t.end(notes);
    pins_agree(&section, notes);
    check_examples(&section, &examples, notes);
    Some(section)
}

fn ecosystems(t: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> Option<Ecosystems> {
    let raw = t.value("ecosystems")?;
    if whose == Whose::Repository {
        only_person(notes, &raw.span, "network.ecosystems");
        return None;
    }
    if raw.value.as_str() == Some("from-lockfiles") {
        return Some(Ecosystems::FromLocks);
    }
    if raw.value.as_str().is_some() {
        notes.problem(
            &raw.span,
            "`network.ecosystems` is \"from-lockfiles\" or a list",
            "as in [\"npm\", \"cargo\"], or [] for none",
        );
        return None;
    }
    let list = t.texts(notes, "ecosystems")?;
    for e in &list.value {
        if !["cargo", "npm", "pip", "uv", "go"].contains(&e.value.as_str()) {
            notes.problem(&e.span, format!("unknown ecosystem {}", quote(&e.value)), "known: cargo, npm, pip, uv, go");
        }
    }
    Some(Ecosystems::Named(list.value.into_iter().map(|e| e.value).collect()))
}

pub(crate) fn only_person(notes: &mut Notes<'_>, span: &Range<usize>, key: &str) {
    notes.problem(span, format!("a repository's file can't say `{key}`"), "it can only narrow; put this into your own policy");
}

struct Example {
    want: Option<Decision>,
    text: String,
    span: Range<usize>,
}

fn rule(mut t: Table<'_>, notes: &mut Notes<'_>, index: usize, whose: Whose) -> (Option<Rule>, Vec<Example>) {
    let before = notes.problems.len();
    let (path, span) = (t.path.clone(), t.span.clone());
    let decision = t.word(notes, "decision", &DECISIONS);
    if decision.is_none() && notes.problems.len() == before {
        notes.problem(&span, format!("`{path}` has no decision"), "write decision = \"allow\", \"ask\" or \"deny\"");
    }
    let written = decision.map_or(Decision::Deny, |d| d.value);
    let (host, host_span) = host(&mut t, notes, written);
    let ports = ports(&mut t, notes, written);
    let leads = leads(&mut t, notes, written, whose);
    if let (Some(HostPattern::Under(suffix)), Leads::Public) = (&host, leads)
        && written != Decision::Deny
        && !suffix.as_str().contains('.')
    {
        notes.problem(
            &host_span,
            format!("`*.{suffix}` is every name under a whole top level"),
            "name at least two labels, as in `*.example.org`",
        );
    }
    let reason = t.text(notes, "reason").map_or_else(String::new, |r| r.value);
    let examples = examples(&mut t, notes);
    let requests = http::requests(&mut t, notes);
    let inside = inside(&mut t, notes, &requests);
    let bytes_out = bytes_out(&mut t, notes, written);
    t.end(notes);

    let line = notes.line(&span);
    let made = match (host, notes.problems.len() == before) {
        (Some(host), true) => {
            Some(Rule { index, line, host, ports, requests, inside, leads, bytes_out, decision: written, reason })
        }
        _ => None,
    };
    (made, examples)
}

fn host(t: &mut Table<'_>, notes: &mut Notes<'_>, written: Decision) -> (Option<HostPattern>, Range<usize>) {
    let given = t.value("host").is_some();
    let Some(At { value, span }) = t.text(notes, "host") else {
        if !given {
            notes.problem(&t.span, format!("`{}` names no host", t.path), "write host = \"example.org\" or \"*.example.org\"");
        }
        return (None, t.span.clone());
    };
    let hint = match value.as_str() {
        "*" => "there is no rule for every host; `network.default` says what counts elsewhere",
        v if v.contains("://") || v.contains('/') => "only the host's name, without scheme and path",
        v if v.parse::<SocketAddr>().is_ok()
            || v.rsplit_once(':').is_some_and(|(h, p)| !h.contains(':') && p.parse::<u16>().is_ok()) =>
        {
            "the port goes into `ports`"
        }
        _ => "",
    };
    match HostPattern::parse(&value) {
        Err(e) => {
            notes.problem(&span, format!("{} is no host: {e}", quote(&value)), hint);
            (None, span)
        }
        Ok(p) => {
            let inside = match &p {
                HostPattern::Exact(h) | HostPattern::Under(h) => h.is_localhost(),
                HostPattern::Address(a) => a.is_loopback() || a.is_unspecified(),
            };
            if inside && written != Decision::Deny {
                notes.problem(
                    &span,
                    format!("{p} is the jail's own and never leaves it"),
                    "choose a name of your own, as in host = \"db.test\", and pin it with `address`",
                );
                return (None, span);
            }
            (Some(p), span)
        }
    }
}

fn ports(t: &mut Table<'_>, notes: &mut Notes<'_>, written: Decision) -> Ports {
    let Some(list) = t.numbers(notes, "ports") else {
        return if written == Decision::Deny { Ports::Any } else { Ports::Only(vec![443]) };
    };
    if list.value.is_empty() {
        notes.problem(
            &list.span,
            format!("`{}.ports` is empty, so it can match nothing", t.path),
            "leave it out for 443, or name ports",
        );
    }
    let mut out = Vec::new();
    for At { value, span } in list.value {
        match u16::try_from(value) {
            Ok(0) | Err(_) => notes.problem(&span, format!("{value} is no port"), "ports go from 1 to 65535"),
            Ok(53) if written != Decision::Deny => {
                notes.problem(&span, "port 53 never leaves the jail", "Airlock answers names there itself");
            }
            Ok(p) => out.push(p),
        }
    }
    Ports::Only(out)
}

/// Reads `address` and `cidr`, of which a rule has one at most.
fn leads(t: &mut Table<'_>, notes: &mut Notes<'_>, written: Decision, whose: Whose) -> Leads {
    let pinned = address(t, notes, written, whose);
    let Some(At { value, span }) = t.text(notes, "cidr") else { return pinned.map_or(Leads::Public, Leads::At) };
    if whose == Whose::Repository {
        only_person(notes, &span, &format!("{}.cidr", t.path));
    } else if written == Decision::Deny {
        notes.problem(&span, format!("`{}` refuses, so that it leads nowhere", t.path), "take `cidr` out");
    } else if pinned.is_some() {
        notes.problem(&span, "a rule leads to one `address` or into one `cidr`", "take one of them out");
    } else {
        match Addresses::parse(&value) {
            Ok(range) => return Leads::Within(range),
            Err(cure) => notes.problem(&span, format!("{} is no range of addresses", quote(&value)), cure),
        }
    }
    Leads::Public
}

fn address(t: &mut Table<'_>, notes: &mut Notes<'_>, written: Decision, whose: Whose) -> Option<SocketAddr> {
    let At { value, span } = t.text(notes, "address")?;
    if whose == Whose::Repository {
        only_person(notes, &span, &format!("{}.address", t.path));
        return None;
    }
    let a = pinned(&At { value, span: span.clone() }, notes)?;
    if written == Decision::Deny {
        notes.problem(&span, format!("`{}` refuses, so its address leads nowhere", t.path), "take `address` out");
        return None;
    }
    Some(a)
}

/// Where a name may be said to lead.
pub(crate) fn pinned(At { value, span }: &At<String>, notes: &mut Notes<'_>) -> Option<SocketAddr> {
    let Ok(a) = value.parse::<SocketAddr>() else {
        notes.problem(span, format!("{} is no address", quote(value)), "as in \"127.0.0.1:5432\" or \"[::1]:5432\"");
        return None;
    };
    let a = SocketAddr::new(canonical(a.ip()), a.port());
    let odd = match a.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local(),
    };
    if odd || a.port() == 0 {
        notes.problem(
            span,
            format!("{a} can't be pinned"),
            "link-local (metadata), multicast and unspecified addresses and port 0 stay closed",
        );
        return None;
    }
    Some(a)
}

fn examples(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Vec<Example> {
    let Some(mut e) = t.table(notes, "examples") else { return Vec::new() };
    let mut out = Vec::new();
    let keys = [("allow", Some(Decision::Allow)), ("ask", Some(Decision::Ask)), ("deny", Some(Decision::Deny)), ("not", None)];
    for (key, want) in keys {
        for At { value, span } in e.some_texts(notes, key).map(|l| l.value).unwrap_or_default() {
            out.push(Example { want, text: value, span });
        }
    }
    e.end(notes);
    out
}

/// Reads `inspect`, `protocol` and `ech`, which agree with each other and with what is said of requests.
fn inside(t: &mut Table<'_>, notes: &mut Notes<'_>, requests: &Requests) -> Inside {
    let inspect = t.flag(notes, "inspect");
    let protocol = t.text(notes, "protocol");
    if let Some(p) = protocol.as_ref().filter(|p| p.value != "tcp") {
        notes.problem(
            &p.span,
            format!("the protocol {} is not known", quote(&p.value)),
            "\"tcp\" is the only one; UDP never leaves the jail",
        );
    }
    let read = requests.narrow() || inspect.as_ref().is_some_and(|f| f.value);
    if let Some(f) = inspect.as_ref().filter(|f| !f.value && requests.narrow()) {
        notes.problem(&f.span, "methods and paths can only be judged where requests are read", "take `inspect = false` out");
    }
    let ech = t.flag(notes, "ech").filter(|f| f.value);
    if let Some(f) = ech.as_ref().filter(|_| read || protocol.is_some()) {
        let message = "what is read, or no TLS, has no encrypted hello";
        notes.problem(&f.span, message, "take `ech` out, or the others");
    }
    match protocol {
        Some(p) if read => {
            notes.problem(
                &p.span,
                "a connection that is carried unread can't be inspected",
                "take `protocol` out, or the others",
            );
            Inside::Inspect
        }
        Some(_) => Inside::Tcp,
        None if read => Inside::Inspect,
        None if ech.is_some() => Inside::Ech,
        None => Inside::Unsaid,
    }
}

fn bytes_out(t: &mut Table<'_>, notes: &mut Notes<'_>, written: Decision) -> Option<u64> {
    let b = t.text(notes, "bytes_out")?;
    let size = unit::size(&b.value).filter(|n| *n > 0);
    if size.is_none() {
        notes.problem(&b.span, format!("{} is no size", quote(&b.value)), "as in \"10MiB\"");
    } else if written == Decision::Deny {
        notes.problem(&b.span, format!("`{}` refuses, so that nothing is sent", t.path), "take `bytes_out` out");
    }
    size
}

/// Two rules that allow the same must agree on where it leads.
fn pins_agree(section: &Network, notes: &mut Notes<'_>) {
    for (i, b) in section.rules.iter().enumerate() {
        for a in &section.rules[..i] {
            if a.host == b.host && a.decision == b.decision && a.ports.overlap(&b.ports) && a.leads != b.leads {
                let message = format!(
                    "`network.rule[{}]` and `network.rule[{}]` lead the same host and port to different places",
                    a.index, b.index
                );
                notes.problem_at_line(b.line, message, "keep one of them");
            }
        }
    }
}

fn check_examples(section: &Network, examples: &[(usize, Example)], notes: &mut Notes<'_>) {
    for (index, e) in examples {
        let Some(rule) = section.rules.iter().find(|r| r.index == *index) else { continue };
        let target = match Target::parse(&e.text) {
            Ok(t) => t,
            Err(bad) => {
                notes.problem(
                    &e.span,
                    format!("the example {} can't be read: {bad}", quote(&e.text)),
                    "as in \"example.org:443\"",
                );
                continue;
            }
        };
        let hit = rule.matches(&target.to, Some(target.port));
        let Some(want) = e.want else {
            if hit {
                notes.problem(
                    &e.span,
                    format!("the rule matches {target}, which `not` says it doesn't"),
                    "narrow the rule or take the example out",
                );
            }
            continue;
        };
        let strictest = section.rules.iter().filter(|r| r.matches(&target.to, Some(target.port))).max_by_key(|r| r.decision);
        if !hit {
            notes.problem(&e.span, format!("the rule does not match its own example {target}"), "check host and ports");
        } else if rule.decision != want {
            notes.problem(
                &e.span,
                format!("the rule does not say this about {target}"),
                "put the example under the rule's own decision",
            );
        } else if let Some(other) = strictest.filter(|r| r.decision > want) {
            notes.problem(
                &e.span,
                format!("`network.rule[{}]` is stricter about {target}", other.index),
                "the strictest rule wins",
            );
        }
    }
}

impl Rule {
    /// Whether a connection's requests are meant, or some of them.
    pub(crate) fn matches(&self, to: &Destination, port: Option<u16>) -> bool {
        self.host.matches(to) && self.ports.matches(port)
    }

    /// Whether a request is meant. Without one only a rule counts that means all of them.
    pub(crate) fn means(&self, to: &Destination, port: Option<u16>, request: Option<&HttpRequest>) -> bool {
        self.matches(to, port) && request.map_or(!self.requests.narrow(), |r| self.requests.matches(r))
    }
}
