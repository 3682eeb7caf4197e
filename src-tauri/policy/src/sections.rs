//! The smaller sections: environment, and those whose feature comes later, which are checked and listed.

use crate::network::only_person;
use crate::problem::quote;
use crate::read::{At, Notes, Table};
use crate::source::{Env, Whose};
use crate::variables::{OWN, jails_own, looks_secret};
use jail_plan::Guarantee;

fn variable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads `[env]`.
pub(crate) fn env(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> Env {
    let mut out = Env::default();
    if whose == Whose::Repository {
        if let Some(v) = root.value("env") {
            only_person(notes, &v.span, "env");
        }
        return out;
    }
    let Some(mut t) = root.table(notes, "env") else { return out };
    for At { value, span } in t.texts(notes, "pass").map(|l| l.value).unwrap_or_default() {
        let stem = value.strip_suffix('*').unwrap_or(&value);
        if !variable(stem) {
            notes.problem(
                &span,
                format!("{} is no variable's name", quote(&value)),
                "letters, digits and `_`; a final `*` stands for any ending, as in \"LC_*\"",
            );
        } else if jails_own(stem) {
            notes.problem(
                &span,
                format!("{value} can't be passed in"),
                if OWN.contains(&stem) {
                    "the jail has its own, and none of the person's sockets"
                } else {
                    "the jail has its own, and none of the person's sockets or start-up settings; `env.set` gives a value of your choice"
                },
            );
        } else if looks_secret(stem) {
            notes.problem(
                &span,
                format!("{value} looks like a secret, and a policy passes none in"),
                "for one run, give it by hand: `--env`",
            );
        } else {
            out.pass.push(value);
        }
    }
    if let Some(set) = t.table(notes, "set") {
        for (k, v) in set.pairs(notes) {
            if !variable(&k.value) {
                notes.problem(&k.span, format!("{} is no variable's name", quote(&k.value)), "letters, digits and `_`");
            } else if OWN.contains(&k.value.as_str()) {
                notes.problem(&k.span, format!("{} can't be set", k.value), "Airlock sets it");
            } else if v.value.contains('\0') {
                notes.problem(&v.span, format!("the value of {} holds a zero byte", k.value), "");
            } else {
                out.set.push((k.value, v.value));
            }
        }
    }
    t.end(notes);
    out
}

/// Reads the sections that have no effect yet.
pub(crate) fn later(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) {
    if whose == Whose::Repository {
        for key in ["events", "service", "verify"] {
            if let Some(v) = root.value(key) {
                only_person(notes, &v.span, key);
            }
        }
    } else {
        events(root, notes);
        services(root, notes);
        verify(root, notes);
    }
    git(root, notes, whose);
    review(root, notes);
}

/// Reads `accept`: what a run may lack, by name. Only the person can say so.
/// The second is whether the jail without namespaces may stand in, whose own table says what is lost.
pub(crate) fn accept(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> (Vec<Guarantee>, bool) {
    if whose == Whose::Repository {
        if let Some(v) = root.value("accept") {
            only_person(notes, &v.span, "accept");
        }
        return (Vec::new(), false);
    }
    let (mut out, mut fallback) = (Vec::new(), false);
    for At { value, span } in root.texts(notes, "accept").map(|l| l.value).unwrap_or_default() {
        match Guarantee::named(&value) {
            None if value == jail_plan::NO_NAMESPACES => fallback = true,
            Some(g) if Guarantee::REQUIRED.contains(&g) => {
                if !out.contains(&g) {
                    out.push(g);
                }
            }
            Some(g) => notes.problem(
                &span,
                format!("a run starts without `{g}` anyhow, and says so"),
                "take it out; for a limit, `limits.require` makes the start refuse instead",
            ),
            None => {
                let names = Guarantee::REQUIRED.iter().map(ToString::to_string).chain([jail_plan::NO_NAMESPACES.to_owned()]);
                let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
                notes.problem(&span, format!("{} is no loss's name", quote(&value)), format!("one of {}", names.join(", ")));
            }
        }
    }
    (out, fallback)
}

/// Reads `[jail]`: whether namespaces may be made inside, which only the person's own file may say.
pub(crate) fn jail(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) -> bool {
    if whose == Whose::Repository {
        if let Some(v) = root.value("jail") {
            only_person(notes, &v.span, "jail");
        }
        return false;
    }
    let Some(mut t) = root.table(notes, "jail") else { return false };
    let nested = t.flag(notes, "nested").is_some_and(|f| f.value);
    t.end(notes);
    nested
}

fn events(root: &mut Table<'_>, notes: &mut Notes<'_>) {
    let Some(mut t) = root.table(notes, "events") else { return };
    if let Some(all) = t.word(notes, "reads", &[("hidden", false), ("all", true)]).filter(|w| w.value) {
        notes.not_yet(&all.span, "events.reads", "only touches of hidden places are told");
    }
    if let Some(f) = t.flag(notes, "bodies").filter(|f| f.value) {
        notes.not_yet(&f.span, "events.bodies", "no body is kept yet");
    }
    t.end(notes);
}

fn need(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str, good: impl Fn(&str) -> bool, want: &str) {
    let given = t.value(key).is_some();
    match t.text(notes, key) {
        Some(v) if !good(&v.value) => {
            notes.problem(&v.span, format!("`{}` can't be {}", t.name(key), quote(&v.value)), format!("it is {want}"))
        }
        None if !given => notes.problem(&t.span, format!("`{}` is missing", t.name(key)), format!("it is {want}")),
        Some(_) | None => {}
    }
}

fn services(root: &mut Table<'_>, notes: &mut Notes<'_>) {
    for mut t in root.tables(notes, "service") {
        need(&mut t, notes, "name", crate::source::plain_name, "a plain name");
        need(&mut t, notes, "start", |s| !s.is_empty(), "a command");
        t.text(notes, "seed");
        notes.not_yet(&t.span, t.path.clone(), "no service is started yet");
        t.end(notes);
    }
}

fn verify(root: &mut Table<'_>, notes: &mut Notes<'_>) {
    for mut t in root.tables(notes, "verify") {
        t.word(notes, "deps", &[("install", ()), ("reuse", ()), ("none", ())]);
        t.text(notes, "prepare");
        need(&mut t, notes, "command", |s| !s.is_empty(), "a command");
        notes.not_yet(&t.span, t.path.clone(), "nothing is verified yet");
        t.end(notes);
    }
}

fn git(root: &mut Table<'_>, notes: &mut Notes<'_>, whose: Whose) {
    const PUSH: &str = "nothing can be pushed yet, by a policy or without one";
    let Some(mut t) = root.table(notes, "git") else { return };
    if whose == Whose::Repository {
        for key in ["history", "lfs"] {
            if let Some(v) = t.value(key) {
                only_person(notes, &v.span, &format!("git.{key}"));
            }
        }
    } else {
        history(&mut t, notes);
        if let Some(l) = t.word(notes, "lfs", &[("pointer", false), ("content", true)]).filter(|l| l.value) {
            notes.not_yet(&l.span, "git.lfs", "files of LFS stay pointers");
        }
    }
    for key in ["push", "other", "tags", "force", "delete"] {
        if let Some(span) = ask_or_deny(&mut t, notes, key) {
            notes.not_yet(&span, format!("git.{key}"), PUSH);
        }
    }
    for mut r in t.tables(notes, "ref") {
        need(&mut r, notes, "pattern", |p| p.starts_with("refs/"), "a full ref or pattern, as in \"refs/heads/main\"");
        if ask_or_deny(&mut r, notes, "push").is_none() && r.value("push").is_none() {
            notes.problem(&r.span, format!("`{}.push` is missing", r.path), "it is \"ask\" or \"deny\"");
        }
        notes.not_yet(&r.span, r.path.clone(), PUSH);
        r.end(notes);
    }
    t.end(notes);
}

fn history(t: &mut Table<'_>, notes: &mut Notes<'_>) {
    let Some(raw) = t.value("history") else { return };
    if raw.value.as_table().is_some() {
        let Some(mut h) = t.table(notes, "history") else { return };
        let branches = h.some_texts(notes, "branches").is_some();
        let depth = h.number(notes, "depth", 1..1_000_000).is_some();
        if branches == depth {
            notes.problem(&h.span, "`git.history` names branches or a depth", "as in { depth = 50 }");
        }
        notes.not_yet(&raw.span, "git.history", "the history of the base is handed in");
        h.end(notes);
    } else if let Some(all) = t.word(notes, "history", &[("base", false), ("all", true)]).filter(|w| w.value) {
        notes.not_yet(&all.span, "git.history", "the history of the base is handed in");
    }
}

fn ask_or_deny(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str) -> Option<std::ops::Range<usize>> {
    let At { value, span } = t.text(notes, key)?;
    match value.as_str() {
        "ask" | "deny" => Some(span),
        "allow" => {
            notes.problem(
                &span,
                format!("`{}` can't be \"allow\"", t.name(key)),
                "no file lets anything be pushed without a person; \"ask\" or \"deny\"",
            );
            None
        }
        other => {
            notes.problem(&span, format!("`{}` can't be {}", t.name(key), quote(other)), "it is \"ask\" or \"deny\"");
            None
        }
    }
}

fn review(root: &mut Table<'_>, notes: &mut Notes<'_>) {
    let Some(mut t) = root.table(notes, "review") else { return };
    if let Some(list) = t.texts(notes, "sensitive") {
        for p in list.value.iter().filter(|p| p.value.is_empty() || p.value.starts_with('/')) {
            notes.problem(
                &p.span,
                format!("{} is no pattern of paths", quote(&p.value)),
                "relative to the repository, as in \"payments/**\"",
            );
        }
        if !list.value.is_empty() {
            notes.not_yet(&list.span, "review.sensitive", "no second yes is asked for yet");
        }
    }
    if let Some(f) = t.flag(notes, "require_evidence").filter(|f| f.value) {
        notes.not_yet(&f.span, "review.require_evidence", "nothing is verified yet, so an apply does not wait for evidence");
    }
    t.end(notes);
}
