//! A policy in plain language, and why it answers as it does.

use crate::credential::Source;
use crate::decide::{Request, answer};
use crate::host::Destination;
use crate::leads::Leads;
use crate::limits::Limits;
use crate::network::{Inside, Network, Ports, Rule};
use crate::source::{Policy, Tools};
use crate::unit::{show_duration, show_size};
use model::decision::Decision;
use model::path::RawPath;

/// Why a request is answered as it is, a line each: the answer, then every rule that matches.
pub fn explain(policy: &Policy, request: &Request) -> Vec<String> {
    let (what, to, port) = match request {
        Request::Lookup(h) => (format!("the address of {h}"), Destination::Name(h.clone()), None),
        Request::Connect(t) => (format!("a connection to {t}"), t.to.clone(), Some(t.port)),
        Request::Http(t, r) => (format!("{r} at {t}"), t.to.clone(), Some(t.port)),
    };
    let a = answer(policy, request);
    let mut out = vec![format!("{what}: {}, by {} ({})", word(a.ruling.decision), a.ruling.rule, a.ruling.source)];
    if !a.ruling.reason.is_empty() {
        out.push(format!("reason: {}", plain(&a.ruling.reason)));
    }
    if a.ruling.decision != Decision::Deny {
        out.extend(match a.leads {
            Leads::Public => None,
            Leads::At(address) => Some(format!("leads to {address}, without asking the name service")),
            Leads::Within(range) => Some(format!("leads to where the name service says, if that is in {range}")),
        });
    }
    for n in &policy.networks {
        let matches = |r: &&Rule| if port.is_some() { r.matches(&to, port) } else { r.host.matches(&to) };
        let hits: Vec<String> =
            n.rules.iter().filter(matches).map(|r| format!("{}: {}", n.ruling_of(r).source, rule(r))).collect();
        if hits.is_empty() {
            let default = n
                .default
                .map_or("it says nothing about others", |d| if d == Decision::Ask { "others ask" } else { "others are refused" });
            out.push(format!("{}: no rule matches; {default}", n.source));
        }
        out.extend(hits);
    }
    out
}

/// The policy as lines of plain language, for people.
pub fn show(policy: &Policy) -> Vec<String> {
    let mut out = vec![format!("Policy {}", policy.name)];
    for loss in &policy.accept {
        out.push(format!("ACCEPTED LOSS: a run starts without `{loss}`, on which rests {}.", jail_plan::resting_on(*loss)));
    }
    if policy.fallback {
        out.push(format!(
            "ACCEPTED LOSS: where the machine gives no namespaces (`{}`), a run starts in a weaker jail, and says what it keeps.",
            jail_plan::NO_NAMESPACES
        ));
    }
    let f = &policy.files;
    out.push("Files: the workspace, a private home and a private /tmp can be written; the system can be read.".into());
    out.push(match f.tools {
        Tools::Auto => "Tools of your home: those in known install places, read-only.".into(),
        Tools::None => "Tools of your home: none.".into(),
    });
    out.push(match f.caches {
        Tools::Auto => "Caches of the tools that the repository uses: a copy; what a task adds stays with it.".into(),
        Tools::None => "Caches of tools: none.".into(),
    });
    let list = |items: Vec<String>| if items.is_empty() { "nothing".to_owned() } else { items.join(", ") };
    if !f.carry.is_empty() {
        out.push(format!("Ignored files of the working copy that come along: {}.", list(f.carry.clone())));
    }
    if !f.mask.is_empty() {
        out.push(format!("Ignored files that come along with placeholders for their values: {}.", list(f.mask.clone())));
    }
    out.push(format!("Can also read: {}.", list(f.read.iter().map(ToString::to_string).collect())));
    out.push(format!("Can also WRITE: {}.", list(f.write.iter().map(ToString::to_string).collect())));
    if !f.devices.is_empty() {
        let nodes = list(f.devices.iter().map(ToString::to_string).collect());
        out.push(format!("DEVICES handed in, read-write: {nodes}. Their drivers are kernel code that no other jail reaches."));
    }
    if policy.nested {
        out.push(
            "NAMESPACES may be made inside, as browsers do for their own sandbox (jail.nested): the promise on system calls is \
             kept in part only."
                .into(),
        );
    } else {
        out.push("A browser's own sandbox can't start; `[jail] nested = true` in a policy of yours lets it.".into());
    }
    out.push(format!(
        "Not there: your home and all in it but the tools; named: {}. A touch of these is refused and told.",
        list(f.hide.iter().map(|h| h.path.to_string()).collect())
    ));
    let asked: Vec<String> = f.hide.iter().filter(|h| h.on_touch == Decision::Ask).map(|h| h.path.to_string()).collect();
    if !asked.is_empty() {
        out.push(format!("YOU ARE ASKED when these are touched, and may let a task read there: {}.", list(asked)));
    }
    out.push(format!("Environment passed in: {}.", list(policy.env.pass.clone())));
    for (k, v) in &policy.env.set {
        out.push(format!("Environment set: {k}={}", plain(v)));
    }
    for n in &policy.networks {
        network(n, &mut out);
    }
    if let Some(proxy) = policy.proxy() {
        let which = match proxy {
            crate::Proxy::Environment => {
                "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names, but for NO_PROXY's".to_owned()
            }
            crate::Proxy::At(address) => format!("the proxy {address}"),
        };
        out.push(format!(
            "Connections to the public internet leave by {which}. It resolves names itself: WHERE A NAME LEADS IS NOT CHECKED there."
        ));
    }
    for c in &policy.credentials {
        let from = match &c.from {
            Source::Env(name) => format!("{name} of your environment"),
            Source::File(path) => path.to_string(),
            Source::Command(words, None) => format!("what `{}` says when a run starts", words.join(" ")),
            Source::Command(words, Some(lease)) => {
                format!("what `{}` says when a run starts, for {} s", words.join(" "), lease.as_secs())
            }
            Source::Keyring(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k} {v}")).collect();
                format!("the keyring's item for {}", pairs.join(", "))
            }
        };
        let how = c.attach.words();
        out.push(format!("Attached outside, never seen inside: {from} {how}, to {} {}.", c.host, c.requests.words()));
    }
    out.extend(limits(&policy.limits));
    for n in &policy.later {
        out.push(format!("NOT IN FORCE: {} (line {}): {}.", n.key, n.line, n.note));
    }
    out
}

fn limits(l: &Limits) -> Vec<String> {
    let mut out = vec![
        format!(
            "Limits: {} of memory, {} CPUs, {} processes, {} of growth on disk, {} in all (a pause counts).",
            show_size(l.memory),
            l.cpus,
            l.processes,
            show_size(l.disk),
            show_duration(l.wall)
        ),
        format!(
            "Limits: {} sent and {} received over the network, {} open files a process, {} of output kept.",
            show_size(l.bytes_out),
            show_size(l.bytes_in),
            l.open_files,
            show_size(l.output)
        ),
    ];
    if !l.require.is_empty() {
        let keys: Vec<&str> = l.require.iter().map(|r| r.key()).collect();
        out.push(format!("Nothing starts where one of these can't be kept in full: {}.", keys.join(", ")));
    }
    out
}

fn network(n: &Network, out: &mut Vec<String>) {
    let others = match n.default {
        Some(Decision::Deny) => "refused",
        Some(Decision::Ask | Decision::Allow) => "asked about: it waits for your answer",
        None => "not its business",
    };
    out.push(format!("Network by {}: {} rules; everything else is {others}.", n.source, n.rules.len()));
    out.extend(n.rules.iter().map(|r| format!("  {}", rule(r))));
}

fn rule(r: &Rule) -> String {
    let ports = match &r.ports {
        Ports::Any => "every port".to_owned(),
        Ports::Only(list) => format!("port {}", list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let inside = match r.inside {
        Inside::Unsaid => String::new(),
        Inside::Ech => ", TLS that may hide its name".to_owned(),
        Inside::Tcp => ", carried unread".to_owned(),
        Inside::Inspect if r.requests.narrow() => format!(", {}", r.requests.words()),
        Inside::Inspect => ", each request read".to_owned(),
    };
    let leads = match r.leads {
        Leads::Public => String::new(),
        Leads::At(a) => format!(", leading to {a}"),
        Leads::Within(range) => format!(", leading into {range}"),
    };
    let most = r.bytes_out.map_or_else(String::new, |n| format!(", {} may be sent", show_size(n)));
    let reason = if r.reason.is_empty() { String::new() } else { format!(": {}", plain(&r.reason)) };
    format!("{} {} on {ports}{inside}{leads}{most}{reason}", word(r.decision), r.host)
}

fn word(d: Decision) -> &'static str {
    match d {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

/// Text of a file, as it may stand on a terminal.
pub(crate) fn plain(text: &str) -> RawPath {
    RawPath::from(text)
}
