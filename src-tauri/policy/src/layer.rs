//! A repository's own file on top of the person's: it can only take away.

use crate::host::Target;
use crate::problem::Problem;
use crate::source::{NotInForce, Policy, Whose, parse, parse_as};
use model::decision::Ruling;
use model::run::PolicyText;

/// A repository's file (`.airlock.toml` of the base commit): only keys that narrow, so it is no policy by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowing(Policy);

impl Narrowing {
    /// What the repository's file alone answers about a connection, or [`None`] where it says nothing.
    pub fn decide(&self, target: &Target) -> Option<Ruling> {
        let section = self.0.networks.first()?;
        section.arrival(&target.to, Some(target.port)).map(|(ruling, _)| ruling)
    }
}

/// Reads a repository's file.
///
/// # Errors
/// Every problem, a key that could widen included.
pub fn parse_repository(name: &str, text: &str) -> Result<Narrowing, Vec<Problem>> {
    parse_as(name, text, Whose::Repository).map(Narrowing)
}

/// The person's policy as the repository narrows it: the strictest of both decides, hidden places add up, the smaller limit counts.
pub fn layer(own: &Policy, repository: &Narrowing) -> Policy {
    let mut out = own.clone();
    let theirs = &repository.0;
    out.networks.extend(theirs.networks.iter().cloned());
    for h in &theirs.files.hide {
        match out.files.hide.iter_mut().find(|o| o.path == h.path) {
            Some(o) => o.on_touch = o.on_touch.max(h.on_touch),
            None => out.files.hide.push(h.clone()),
        }
    }
    for m in &theirs.files.mask {
        if !out.files.mask.contains(m) {
            out.files.mask.push(m.clone());
        }
    }
    out.limits = own.limits.narrowed(&theirs.limits);
    let mark = |l: &NotInForce| NotInForce { key: format!(".airlock.toml: {}", l.key), ..l.clone() };
    out.later.extend(theirs.later.iter().map(mark));
    out
}

/// A task's policy from its texts: the person's, narrowed by the repository's where it has one.
///
/// # Errors
/// The name of the file that has problems, with all of them.
pub fn load(text: &PolicyText) -> Result<Policy, (String, Vec<Problem>)> {
    let own = parse(&text.name, &text.text).map_err(|p| (text.name.clone(), p))?;
    match &text.repository {
        None => Ok(own),
        Some(theirs) => {
            let narrowing = parse_repository(".airlock.toml", theirs).map_err(|p| (".airlock.toml".to_owned(), p))?;
            Ok(layer(&own, &narrowing))
        }
    }
}
