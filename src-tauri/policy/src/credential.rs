//! The `[[credential]]` tables: what is attached outside, to which requests, and where it is from.

use crate::attach::{Attach, attach};
use crate::host::{Destination, Host};
use crate::http::{self, HttpRequest, Requests};
use crate::network::only_person;
use crate::place::HostPath;
use crate::problem::quote;
use crate::read::{At, Notes, Table};
use crate::source::Whose;
use crate::unit;
use std::time::Duration;

/// The port that credentials are sent to: nowhere but over TLS.
const PORT: u16 = 443;

/// One credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Position in the file, from 0.
    pub index: usize,
    /// Its line, from 1.
    pub line: u32,
    /// The one host.
    pub host: Host,
    /// The requests.
    pub requests: Requests,
    /// How it is sent.
    pub attach: Attach,
    /// Where it is from.
    pub from: Source,
}

/// Where a credential is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This variable of the person's environment, as it is when a run starts.
    Env(String),
    /// The first line of this file, as it is when a run starts.
    File(HostPath),
    /// What this program of the person's says on its first line when a run starts; good for so long, or until the run ends.
    Command(Vec<String>, Option<Duration>),
    /// The one item of the desktop's keyring that has these attributes, when a run starts.
    Keyring(Vec<(String, String)>),
}

impl Credential {
    pub(crate) fn is_for(&self, to: &Destination, port: Option<u16>) -> bool {
        port.is_none_or(|p| p == PORT) && matches!(to, Destination::Name(h) if *h == self.host)
    }

    /// Why there is nothing to attach, where there is nothing.
    pub fn missing(&self) -> String {
        match &self.from {
            Source::Env(name) => format!("{name} was not set in the environment"),
            Source::File(path) => format!("{path} could not be read as one line"),
            Source::Command(words, _) => format!("`{}` gave nothing that could be one", words.join(" ")),
            Source::Keyring(attributes) => format!("the keyring had nothing for {}", listed(attributes)),
        }
    }

    /// For how long it is good.
    pub fn lease(&self) -> Option<Duration> {
        if let Source::Command(_, lease) = &self.from { *lease } else { None }
    }

    /// Whether it is attached to this request of its host.
    pub fn covers(&self, host: &Host, port: u16, request: &HttpRequest) -> bool {
        port == PORT && *host == self.host && self.requests.matches(request)
    }

    /// The table that reads back as this.
    pub(crate) fn as_toml(&self) -> String {
        let text = |s: &str| toml::Value::String(s.to_owned()).to_string();
        let list = |items: Vec<String>| toml::Value::Array(items.into_iter().map(toml::Value::String).collect()).to_string();
        let from = match &self.from {
            Source::Env(name) => format!("env = {}", text(name)),
            Source::File(path) => format!("file = {}", text(&path.to_string())),
            Source::Command(words, lease) => {
                let lease = lease.map_or_else(String::new, |l| format!(", lease = \"{}s\"", l.as_secs()));
                format!("command = {}{lease}", list(words.clone()))
            }
            Source::Keyring(attributes) => {
                let pairs: Vec<String> = attributes.iter().map(|(k, v)| format!("{} = {}", text(k), text(v))).collect();
                format!("keyring = {{ {} }}", pairs.join(", "))
            }
        };
        let methods = list(self.requests.methods.clone().unwrap_or_default());
        let paths = list(self.requests.paths.iter().flatten().map(ToString::to_string).collect());
        format!(
            "\n[[credential]]\nhost = {}\nmethods = {methods}\npaths = {paths}\n{}\nfrom = {{ {from} }}\n",
            text(self.host.as_str()),
            self.attach.as_toml()
        )
    }

    /// Name of the file's table, for showing.
    pub fn name(&self) -> String {
        format!("credential[{}]", self.index)
    }
}

/// Reads the tables.
pub(crate) fn credentials(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> Vec<Credential> {
    if whose == Whose::Repository {
        if let Some(v) = root.value("credential") {
            only_person(notes, &v.span, "credential");
        }
        return Vec::new();
    }
    let tables = root.tables(notes, "credential");
    tables.into_iter().enumerate().filter_map(|(index, t)| one(t, notes, index)).collect()
}

fn one(mut t: Table<'_>, notes: &mut Notes<'_>, index: usize) -> Option<Credential> {
    let before = notes.problems.len();
    let span = t.span.clone();
    let host = host(&mut t, notes);
    let requests = http::requests(&mut t, notes);
    for (key, there) in [("methods", requests.methods.is_some()), ("paths", requests.paths.is_some())] {
        if !there && t.value(key).is_none() {
            notes.problem(&span, format!("`{}` names no {key}", t.path), "a credential is bound to methods and paths");
        }
    }
    let attach = attach(&mut t, notes);
    let from = from(&mut t, notes);
    t.end(notes);
    if notes.problems.len() > before {
        return None;
    }
    Some(Credential { index, line: notes.line(&span), host: host?, requests, attach: attach?, from: from? })
}

fn host(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Host> {
    const HINT: &str = "it is one host's name, as in \"api.example.org\"";
    let given = t.value("host").is_some();
    let Some(At { value, span }) = t.text(notes, "host") else {
        if !given {
            notes.problem(&t.span, format!("`{}` is missing", t.name("host")), HINT);
        }
        return None;
    };
    let found = Host::parse(&value).ok().filter(|h| !h.is_localhost());
    if found.is_none() {
        notes.problem(&span, format!("{} is no host of a credential", quote(&value)), HINT);
    }
    found
}

fn from(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Source> {
    const SOURCES: [&str; 4] = ["env", "file", "keyring", "command"];
    let Some(mut from) = t.table(notes, "from") else {
        if t.value("from").is_none() {
            let message = format!("`{}` says not where the credential is from", t.path);
            notes.problem(&t.span, message, "as in from = { env = \"NAME\" }");
        }
        return None;
    };
    let written = SOURCES.iter().filter(|s| from.value(s).is_some()).count();
    let span = from.span.clone();
    if written != 1 {
        let message = format!("`{}` needs exactly one of {}", from.path, SOURCES.join(", "));
        notes.problem(&span, message, "as in { env = \"NAME\" }");
        return None;
    }
    let lease = from.text(notes, "lease");
    if let Some(At { span, .. }) = lease.as_ref().filter(|_| from.value("command").is_none()) {
        notes.problem(span, "only what a command gives has a lease", "leave it out");
    }
    if let Some(words) = from.texts(notes, "command") {
        let found = command(&words, lease, notes);
        from.end(notes);
        return found;
    }
    if let Some(keyring) = from.table(notes, "keyring") {
        let found = keyring_of(keyring, notes);
        from.end(notes);
        return found;
    }
    let given: Vec<(&str, At<String>)> = ["env", "file"].iter().filter_map(|s| Some((*s, from.text(notes, s)?))).collect();
    let found = match given.as_slice() {
        [("env", At { value, span })] => {
            if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                notes.problem(span, format!("{} is no variable's name", quote(value)), "letters, digits and `_`");
            }
            Some(Source::Env(value.clone()))
        }
        [("file", At { value, span })] => match HostPath::parse(value) {
            Ok(path) => Some(Source::File(path)),
            Err(e) => {
                notes.problem(span, format!("{} is no file: {e}", quote(value)), "it begins with `/` or `~/`");
                None
            }
        },
        _ => None,
    };
    from.end(notes);
    found
}

fn command(words: &At<Vec<At<String>>>, lease: Option<At<String>>, notes: &mut Notes<'_>) -> Option<Source> {
    const HINT: &str = "as in [\"pass\", \"show\", \"api\"]; no shell is asked";
    let texts: Vec<String> = words.value.iter().map(|w| w.value.clone()).collect();
    if texts.first().is_none_or(String::is_empty) || texts.iter().any(|w| w.chars().any(model::path::hides)) {
        notes.problem(&words.span, "that is no program with its arguments", HINT);
        return None;
    }
    let lease = match lease {
        None => None,
        Some(At { value, span }) => match unit::duration(&value).filter(|d| (1..=30 * 86_400).contains(&d.as_secs())) {
            Some(lease) => Some(lease),
            None => {
                notes.problem(&span, format!("a lease can't be {}", quote(&value)), "from \"1s\" to \"30d\", as in \"15m\"");
                return None;
            }
        },
    };
    Some(Source::Command(texts, lease))
}

fn keyring_of(table: Table<'_>, notes: &mut Notes<'_>) -> Option<Source> {
    let span = table.span.clone();
    let pairs: Vec<(String, String)> = table.pairs(notes).into_iter().map(|(k, v)| (k.value, v.value)).collect();
    if pairs.is_empty() || pairs.len() > 16 {
        notes.problem(
            &span,
            "an item of the keyring is named by its attributes",
            "as in { service = \"api\", username = \"me\" }",
        );
        return None;
    }
    Some(Source::Keyring(pairs))
}

fn listed(attributes: &[(String, String)]) -> String {
    attributes.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
}
