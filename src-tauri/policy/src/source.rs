//! A policy file's shape at the top, and what it becomes.

use crate::credential::{self, Credential};
use crate::files;
use crate::host::{Destination, Host, Target};
use crate::limits::{self, Limits};
use crate::network::{self, Ecosystems, Inside, Network};
use crate::place::HostPath;
use crate::problem::{Problem, position, quote};
use crate::read::{Notes, Table};
use crate::sections;
use jail_plan::Guarantee;
use model::decision::Decision;
use toml::de::DeTable;

/// Largest file that is read, in bytes.
const LARGEST: usize = 256 * 1024;

/// A policy: everything in it was checked. Made by [`parse`], narrowed by [`crate::layer`], asked through [`crate::decide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The name that it gives itself, or the one that it was read under.
    pub name: String,
    /// Guarantees without which a run starts all the same, told all the time.
    pub accept: Vec<Guarantee>,
    /// Whether the weaker jail without namespaces may stand in where the machine gives none.
    pub fallback: bool,
    /// Environment of the jailed command.
    pub env: Env,
    /// Files of the host.
    pub files: Files,
    /// Whether programs inside may make user namespaces of their own, as browsers do for their sandbox.
    pub nested: bool,
    /// Bounds of a run.
    pub limits: Limits,
    /// What is attached to requests outside.
    pub credentials: Vec<Credential>,
    /// The person's rules, then the repository's; the strictest answer counts.
    pub(crate) networks: Vec<Network>,
    pub(crate) later: Vec<NotInForce>,
}

/// Environment of the jailed command, on top of what Airlock sets itself (`HOME`, `PATH`, `USER`, …).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env {
    /// Names taken from the host's environment; a final `*` stands for any ending.
    pub pass: Vec<String>,
    /// Names with their values; these win over `pass`.
    pub set: Vec<(String, String)>,
}

impl Env {
    /// Whether a name of the host's environment is passed in.
    pub fn passes(&self, name: &str) -> bool {
        self.pass.iter().any(|p| p.strip_suffix('*').map_or(p == name, |start| name.starts_with(start)))
            && !crate::variables::closed(name)
    }
}

/// What of the host's files is in the jail beside the system, the workspace and the private home.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// Tools of the person's home.
    pub tools: Tools,
    /// Caches of the tools that the repository uses.
    pub caches: Tools,
    /// Ignored trees of the working copy that come along, as [`model::pattern::Pattern`]s.
    pub carry: Vec<String>,
    /// Ignored files of the working copy that come along with placeholders for their values, as patterns.
    pub mask: Vec<String>,
    /// More host paths, read-only.
    pub read: Vec<HostPath>,
    /// More host paths, read-write.
    pub write: Vec<HostPath>,
    /// Device nodes under `/dev`, or directories of them, handed in read-write.
    pub devices: Vec<HostPath>,
    /// Places that are not there; a touch of `~/.ssh` is told.
    pub hide: Vec<Hidden>,
}

/// Which tools of the person's home, or caches of tools, are brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tools {
    /// None.
    #[default]
    None,
    /// By Airlock's table of known places.
    Auto,
}

/// A hidden place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Where.
    pub path: HostPath,
    /// What a touch means: [`Decision::Deny`], or [`Decision::Ask`], which refuses too but asks, and serves the retry.
    pub on_touch: Decision,
    /// The key, e.g. `files.hide[0]`.
    pub rule: String,
    /// File and line.
    pub source: String,
}

/// A key that is written and well-formed but has no effect yet, so that nobody believes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotInForce {
    /// The key, e.g. `limits.memory`.
    pub key: String,
    /// Its line, from 1.
    pub line: u32,
    /// What happens instead.
    pub note: String,
}

impl Policy {
    /// What the file says that this version does not do yet.
    pub fn not_in_force(&self) -> &[NotInForce] {
        &self.later
    }

    /// The person's network section first, then, where the repository narrows it, the repository's.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Kinds of packages whose registries a task may read from, where the person's file says so.
    pub fn ecosystems(&self) -> Option<&Ecosystems> {
        self.networks.first()?.ecosystems.as_ref()
    }

    /// The policy's text with leave to read from a registry and to do nothing else there; none where the text speaks of that host
    /// already, which counts then.
    pub fn with_registry(&self, text: &str, host: &Host, port: u16, reason: &str) -> Option<String> {
        let named = Destination::Name(host.clone());
        if self.networks.iter().flat_map(|n| &n.rules).any(|r| r.host.matches(&named)) {
            return None;
        }
        let rule = |methods: &str, decision: &str, reason: &str| {
            let reason = toml::Value::String(reason.to_owned());
            format!(
                "\n[[network.rule]]\nhost = \"{host}\"\nports = [{port}]\nmethods = [{methods}]\ndecision = \"{decision}\"\nreason = {reason}\n"
            )
        };
        let reads = rule("\"GET\", \"HEAD\"", "allow", reason);
        let writes = rule("\"POST\", \"PUT\", \"PATCH\", \"DELETE\"", "deny", "a registry is only read from");
        Some(format!("{}\n{reads}{writes}", text.trim_end()))
    }

    /// Whether requests on connections to a target are read: where a rule that may allow them says so, or a credential is bound to it.
    pub fn inspects(&self, target: &Target) -> bool {
        self.reads(&target.to, Some(target.port))
    }

    pub(crate) fn reads(&self, to: &Destination, port: Option<u16>) -> bool {
        let rules = self.networks.iter().flat_map(|n| &n.rules);
        rules.filter(|r| r.matches(to, port)).any(|r| r.inside == Inside::Inspect)
            || self.credentials.iter().any(|c| c.is_for(to, port))
    }

    /// What must be so of a connection that is carried unread: the least that a rule says.
    pub fn carried(&self, target: &Target) -> Inside {
        let rules = self.networks.iter().take(1).flat_map(|n| &n.rules);
        let said: Vec<Inside> = rules.filter(|r| r.matches(&target.to, Some(target.port))).map(|r| r.inside).collect();
        [Inside::Tcp, Inside::Ech].into_iter().find(|inside| said.contains(inside)).unwrap_or_default()
    }

    /// Whether any connection's requests may be read, so that what runs inside has to trust the reader.
    pub fn inspects_any(&self) -> bool {
        !self.credentials.is_empty() || self.networks.iter().flat_map(|n| &n.rules).any(|r| r.inside == Inside::Inspect)
    }

    /// The proxy through which connections to the public internet leave.
    pub fn proxy(&self) -> Option<&crate::Proxy> {
        self.networks.first().and_then(|n| n.proxy.as_ref())
    }

    /// How long a connection that is asked about is held: the shortest time that a file names, 60 s where none does.
    pub fn hold(&self) -> std::time::Duration {
        self.networks.iter().filter_map(|n| n.hold).min().unwrap_or(std::time::Duration::from_secs(60))
    }

    /// Targets that some rule allows by an exact name, for showing.
    pub fn allowed_targets(&self) -> Vec<Target> {
        let mut out = Vec::new();
        for rule in self.networks.iter().take(1).flat_map(|n| &n.rules) {
            let to = match &rule.host {
                crate::HostPattern::Exact(h) => Destination::Name(h.clone()),
                crate::HostPattern::Address(a) => Destination::Address(*a),
                crate::HostPattern::Under(_) => continue,
            };
            for port in rule.ports.listed() {
                let target = Target { to: to.clone(), port: *port };
                if crate::decide(self, &crate::Request::Connect(target.clone())).decision == Decision::Allow {
                    out.push(target);
                }
            }
        }
        out
    }
}

/// Whose file is read: the person's own says all; a repository's may only take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Person,
    Repository,
}

/// Reads a person's policy file. `name` is a preset's name or the file's path, as it stands in `Ruling::source`.
///
/// # Errors
/// Every problem of the file, ordered by place; nothing may start then.
pub fn parse(name: &str, text: &str) -> Result<Policy, Vec<Problem>> {
    parse_as(name, text, Whose::Person)
}

pub(crate) fn parse_as(name: &str, text: &str, whose: Whose) -> Result<Policy, Vec<Problem>> {
    let document = document(text)?;
    let mut notes = Notes::new(text);
    let mut root = Table::root(&document);

    let version = root.number(&mut notes, "version", 0..u64::from(u32::MAX));
    match version {
        Some(v) if v.value != 1 => {
            notes.problem(&v.span, format!("version {} is not known", v.value), "this Airlock reads version 1");
        }
        Some(_) => {}
        None if root.value("version").is_none() => {
            notes.problem(&(0..0), "`version` is missing", "write `version = 1` in the first line");
        }
        None => {}
    }
    let own = root.text(&mut notes, "name");
    if let Some(n) = own.as_ref().filter(|n| !plain_name(&n.value)) {
        notes.problem(&n.span, format!("the name {} is not plain", quote(&n.value)), "use letters, digits, `-` and `_`");
    }

    let (accept, fallback) = sections::accept(&mut root, &mut notes, whose);
    let env = sections::env(&mut root, &mut notes, whose);
    let files = files::files(&mut root, &mut notes, name, whose);
    let networks = network::network(&mut root, &mut notes, name, whose);
    let nested = sections::jail(&mut root, &mut notes, whose);
    let limits = limits::limits(&mut root, &mut notes, whose);
    let credentials = credential::credentials(&mut root, &mut notes, whose);
    sections::later(&mut root, &mut notes, whose);
    root.end(&mut notes);

    let Notes { mut problems, mut later, .. } = notes;
    if !problems.is_empty() {
        problems.sort_by_key(|p| (p.line, p.column));
        return Err(problems);
    }
    later.sort_by_key(|l| l.line);
    let name = own.map_or_else(|| name.to_owned(), |n| n.value);
    Ok(Policy {
        name,
        accept,
        fallback,
        env,
        files,
        nested,
        limits,
        credentials,
        networks: networks.into_iter().collect(),
        later,
    })
}

/// The TOML tree, or every place where it is no TOML.
pub(crate) fn document(text: &str) -> Result<toml::Spanned<DeTable<'_>>, Vec<Problem>> {
    if text.len() > LARGEST {
        let message = format!("the file has {} bytes; a policy has at most {LARGEST}", text.len());
        return Err(vec![Problem { line: 1, column: 1, message, hint: String::new() }]);
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(document);
    }
    let problem = |e: toml::de::Error| {
        let (line, column) = position(text, e.span().map_or(0, |s| s.start));
        Problem { line, column, message: format!("not valid TOML: {}", e.message()), hint: String::new() }
    };
    Err(errors.into_iter().map(problem).collect())
}

pub(crate) fn plain_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
