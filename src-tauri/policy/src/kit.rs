//! What Airlock knows about one agent: how it is started, what of its own it needs, and which hosts.

use crate::credential::{self, Credential, Source};
use crate::leads::Leads;
use crate::network::{self, Inside, Network, Ports};
use crate::place::HostPath;
use crate::problem::{Problem, quote};
use crate::read::{At, Notes, Table};
use crate::sections;
use crate::source::{Env, Whose, document, parse, plain_name};
use model::decision::Decision;

const KITS: [(&str, &str); 2] = [
    ("claude-code", include_str!("../../../policies/kits/claude-code.toml")),
    ("shell", include_str!("../../../policies/kits/shell.toml")),
];

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kit {
    /// Name on the command line, e.g. `claude-code`.
    pub name: String,
    /// Name for people, e.g. `Claude Code`.
    pub title: String,
    /// What a person must know before using it; may be empty.
    pub note: String,
    /// Which program it is.
    pub program: Vec<Program>,
    /// Where its install may lie; those that are there are handed in read-only.
    pub install: Vec<HostPath>,
    /// Files of its configuration that are handed in.
    pub config: Vec<HostPath>,
    /// Environment that it wants, on top of the policy's.
    pub env: Env,
    /// Hosts that it needs; see [`Kit::add_to`].
    pub network: Network,
    interactive: Vec<String>,
    prompted: Vec<String>,
    print: Vec<String>,
    rules: String,
    /// Credentials that it usually has, each with the text that adds it to a policy.
    credentials: Vec<(Credential, String)>,
}

/// Where a kit's program is looked for; the first that is there is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A name looked up on the person's `PATH`.
    OnPath(String),
    /// An absolute path.
    At(HostPath),
    /// The person's `$SHELL`.
    Shell,
}

/// How an agent is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In a terminal, with a first prompt or without.
    Interactive,
    /// One prompt, an answer on stdout, an end. Needs a prompt.
    Print,
}

/// The shipped kits, in the order in which they are offered.
///
/// # Errors
/// What is wrong with a shipped file, which is a mistake of this build.
pub fn kits() -> Result<Vec<Kit>, Vec<Problem>> {
    KITS.iter().map(|(_, text)| Kit::parse(text)).collect()
}

/// A shipped kit by its name; [`None`] where there is none of that name.
///
/// # Errors
/// What is wrong with the shipped file, which is a mistake of this build.
pub fn kit(name: &str) -> Result<Option<Kit>, Vec<Problem>> {
    KITS.iter().find(|(n, _)| *n == name).map(|(_, text)| Kit::parse(text)).transpose()
}

impl Kit {
    /// Reads a kit's file.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let document = document(text)?;
        let mut notes = Notes::new(text);
        let mut root = Table::root(&document);
        let n = &mut notes;
        if root.number(n, "version", 1..2).is_none() && root.value("version").is_none() {
            n.problem(&(0..0), "`version` is missing", "write `version = 1` in the first line");
        }
        let name = needed(&mut root, n, "name");
        if !plain_name(&name) {
            n.problem(&(0..0), format!("the kit's name {} is not plain", quote(&name)), "letters, digits, `-` and `_`");
        }
        let title = needed(&mut root, n, "title");
        let note = root.text(n, "note").map_or_else(String::new, |t| t.value);
        let program = program(&mut root, n);
        let mut out = Self {
            install: paths(&mut root, n, "install"),
            config: paths(&mut root, n, "config"),
            interactive: Vec::new(),
            prompted: Vec::new(),
            print: Vec::new(),
            env: sections::env(&mut root, n, Whose::Person),
            network: Network {
                default: Some(Decision::Deny),
                hold: None,
                proxy: None,
                ecosystems: None,
                rules: Vec::new(),
                source: format!("kit {name}"),
                line: 0,
            },
            rules: String::new(),
            credentials: Vec::new(),
            name,
            title,
            note,
            program,
        };
        if let Some(mut start) = root.table(n, "start") {
            out.interactive = argv(&mut start, n, "interactive", false);
            out.prompted = argv(&mut start, n, "prompted", true);
            out.print = argv(&mut start, n, "print", true);
            start.end(n);
        } else if root.value("start").is_none() {
            n.problem(&(0..0), "[start] is missing", "it says how the agent is started");
        }
        let source = format!("kit {}", out.name);
        if let Some(network) = network::network(&mut root, n, &source, Whose::Person) {
            out.network = network;
        }
        let credentials = credential::credentials(&mut root, n, Whose::Person);
        root.end(n);
        if !notes.problems.is_empty() {
            return Err(notes.problems);
        }
        out.rules = rules_as_toml(&out.network, &out.title);
        out.credentials = credentials.into_iter().map(|c| (c.clone(), c.as_toml())).collect();
        Ok(out)
    }

    /// The command line. `program` is the path that was found; [`None`] where this form has no place for the prompt, or needs one.
    pub fn argv(&self, program: &str, form: Form, prompt: Option<&str>) -> Option<Vec<String>> {
        let (words, prompt) = match (form, prompt) {
            (Form::Interactive, None) => (&self.interactive, ""),
            (Form::Interactive, Some(p)) => (&self.prompted, p),
            (Form::Print, Some(p)) => (&self.print, p),
            (Form::Print, None) => return None,
        };
        let word = |w: &String| match w.as_str() {
            "{program}" => program.to_owned(),
            "{prompt}" => prompt.to_owned(),
            other => other.to_owned(),
        };
        (!words.is_empty()).then(|| words.iter().map(word).collect())
    }

    /// A policy's text with the kit's hosts added as rules at its end, and its credentials as far as the person has them (`has` says
    /// which variables are set) and the policy binds none of its own to their hosts. Where `network.default` is `deny` the text comes
    /// back as it is: such a policy names its hosts itself. A stricter rule of the policy still wins.
    ///
    /// # Errors
    /// Every problem of the policy, or of the two together.
    pub fn add_to(&self, name: &str, text: &str, has: &dyn Fn(&str) -> bool) -> Result<String, Vec<Problem>> {
        let own = parse(name, text)?;
        let asks = own.networks().first().is_some_and(|n| n.default == Some(Decision::Ask));
        if !asks || self.network.rules.is_empty() {
            return Ok(text.to_owned());
        }
        let mut both = format!("{}\n{}", text.trim_end(), self.rules);
        for (credential, as_toml) in &self.credentials {
            let there = matches!(&credential.from, Source::Env(name) if has(name));
            if there && !own.credentials.iter().any(|c| c.host == credential.host) {
                both.push_str(as_toml);
            }
        }
        parse(name, &both)?;
        Ok(both)
    }
}

fn needed(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str) -> String {
    match t.text(notes, key) {
        Some(v) => v.value,
        None => {
            if t.value(key).is_none() {
                notes.problem(&(0..0), format!("`{key}` is missing"), "");
            }
            String::new()
        }
    }
}

fn program(root: &mut Table<'_>, notes: &mut Notes<'_>) -> Vec<Program> {
    let mut out = Vec::new();
    for At { value, span } in root.some_texts(notes, "program").map(|l| l.value).unwrap_or_default() {
        if value == "$SHELL" {
            out.push(Program::Shell);
        } else if value.starts_with('/') {
            match HostPath::parse(&value) {
                Ok(p) => out.push(Program::At(p)),
                Err(why) => notes.problem(&span, format!("{} is no program: {why}", quote(&value)), ""),
            }
        } else if value.contains('/') || value.is_empty() {
            notes.problem(&span, format!("{} is no program", quote(&value)), "a name, an absolute path, or $SHELL");
        } else {
            out.push(Program::OnPath(value));
        }
    }
    if out.is_empty() && root.value("program").is_none() {
        notes.problem(&(0..0), "`program` is missing", "as in [\"claude\"]");
    }
    out
}

fn paths(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str) -> Vec<HostPath> {
    let mut out = Vec::new();
    for At { value, span } in t.texts(notes, key).map(|l| l.value).unwrap_or_default() {
        match HostPath::parse(&value).map(|p| (p.closed(), p)) {
            Ok((None, p)) => out.push(p),
            Ok((Some(why), p)) => notes.problem(&span, format!("{p} can't be handed in: {why}"), ""),
            Err(why) => notes.problem(&span, format!("{} can't be handed in: {why}", quote(&value)), ""),
        }
    }
    out
}

fn argv(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str, prompt: bool) -> Vec<String> {
    let Some(list) = t.texts(notes, key) else { return Vec::new() };
    let words: Vec<String> = list.value.into_iter().map(|w| w.value).collect();
    let prompts = words.iter().filter(|w| *w == "{prompt}").count();
    if words.first().map(String::as_str) != Some("{program}") || prompts != usize::from(prompt) {
        let want = if prompt { "and has one {prompt}" } else { "and has no {prompt}" };
        notes.problem(&list.span, format!("`start.{key}` begins with {{program}} {want}"), "");
    }
    words
}

/// Rules as text that can stand at the end of a policy's file.
fn rules_as_toml(network: &Network, title: &str) -> String {
    let mut out = String::new();
    for r in &network.rules {
        let text = |s: String| toml::Value::String(s).to_string();
        let ports = match &r.ports {
            Ports::Any => String::new(),
            Ports::Only(list) => format!("ports = {list:?}\n"),
        };
        let decision = match r.decision {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        };
        let leads = match r.leads {
            Leads::Public => String::new(),
            Leads::At(a) => format!("address = \"{a}\"\n"),
            Leads::Within(range) => format!("cidr = \"{range}\"\n"),
        };
        let list = |key: &str, values: Vec<String>| format!("{key} = {}\n", toml::Value::from(values));
        let methods = r.requests.methods.clone().map_or_else(String::new, |m| list("methods", m));
        let paths = r.requests.paths.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        let paths = r.requests.paths.as_ref().map_or_else(String::new, |_| list("paths", paths));
        let inside = match r.inside {
            Inside::Unsaid => "",
            Inside::Ech => "ech = true\n",
            Inside::Inspect => "inspect = true\n",
            Inside::Tcp => "protocol = \"tcp\"\n",
        };
        let most = r.bytes_out.map_or_else(String::new, |n| format!("bytes_out = \"{n}B\"\n"));
        let (host, reason) = (text(r.host.to_string()), text(format!("{title}: {}", r.reason)));
        out.push_str(&format!("\n[[network.rule]]\nhost = {host}\n{ports}{leads}{methods}{paths}{inside}{most}decision = \"{decision}\"\nreason = {reason}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_kits_rule_says_all_of_itself_when_it_is_written_out() {
        let text = "version = 1\n[network]\ndefault = \"deny\"\n\
                    [[network.rule]]\nhost = \"*.example.org\"\nports = [443, 8443]\nmethods = [\"GET\"]\npaths = [\"/a/**\", \"/b\"]\n\
                    decision = \"allow\"\n[[network.rule]]\nhost = \"read.test\"\ninspect = true\ndecision = \"ask\"\n\
                    [[network.rule]]\nhost = \"db.test\"\nports = [5432]\nprotocol = \"tcp\"\naddress = \"127.0.0.1:5432\"\ndecision = \"allow\"\n\
                    [[network.rule]]\nhost = \"intern.test\"\ncidr = \"10.20.0.0/16\"\nbytes_out = \"10MiB\"\ndecision = \"allow\"\n\
                    [[network.rule]]\nhost = \"never.test\"\ndecision = \"deny\"\n";
        let said = |text: &str| {
            let policy = parse("kit", text).unwrap();
            let rules = policy.networks[0].rules.clone().into_iter();
            (rules.map(|r| (r.host, r.ports, r.requests, r.inside, r.leads, r.bytes_out, r.decision)).collect::<Vec<_>>(), policy)
        };
        let (rules, policy) = said(text);
        let written = rules_as_toml(&policy.networks[0], "a kit");
        assert_eq!(said(&format!("version = 1\n[network]\ndefault = \"deny\"\n{written}")).0, rules, "{written}");
    }
}
