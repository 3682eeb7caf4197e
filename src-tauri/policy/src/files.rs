//! The `[files]` section.

use crate::network::only_person;
use crate::place::HostPath;
use crate::problem::quote;
use crate::read::{At, Notes, Table};
use crate::source::{Files, Hidden, Tools, Whose};
use model::decision::Decision;
use model::pattern::Pattern;

const TOUCH: [(&str, Decision); 2] = [("deny", Decision::Deny), ("ask", Decision::Ask)];

/// Reads `[files]`.
pub(crate) fn files(root: &mut Table<'_>, notes: &mut Notes<'_>, source: &str, whose: Whose) -> Files {
    let mut out = Files::default();
    let Some(mut t) = root.table(notes, "files") else { return out };
    if whose == Whose::Repository {
        for key in ["tools", "caches", "carry", "read", "write", "devices"] {
            if let Some(v) = t.value(key) {
                only_person(notes, &v.span, &format!("files.{key}"));
            }
        }
    } else {
        if let Some(tools) = t.word(notes, "tools", &[("auto", Tools::Auto), ("none", Tools::None)]) {
            out.tools = tools.value;
        }
        if let Some(caches) = t.word(notes, "caches", &[("auto", Tools::Auto), ("none", Tools::None)]) {
            out.caches = caches.value;
        }
        out.read = paths(&mut t, notes, "read");
        out.write = paths(&mut t, notes, "write");
        out.carry = patterns(&mut t, notes, "carry", false);
        out.devices = devices(&mut t, notes);
    }
    out.hide = hide(&mut t, notes, source, whose);
    out.mask = patterns(&mut t, notes, "mask", whose == Whose::Person);
    if let Some(both) = out.read.iter().find(|r| out.write.contains(r)) {
        notes.problem(&t.span, format!("{both} is in `files.read` and in `files.write`"), "keep one of them");
    }
    for p in out.read.iter().chain(&out.write) {
        if let Some(h) = out.hide.iter().find(|h| p.within(&h.path)) {
            notes.problem(&t.span, format!("{p} is shown although `files.hide` hides {}", h.path), "keep one of them");
        }
    }
    let narrower = out.hide.iter().map(|h| ("files.hide", &h.path)).chain(out.read.iter().map(|r| ("files.read", r)));
    for (key, p) in narrower {
        if let Some(w) = out.write.iter().find(|w| p.movable_in(w)) {
            notes.problem(
                &t.span,
                format!("{p} is in `{key}` and lies deeper in {w}, which `files.write` names: a run could move what is above it"),
                "only what lies directly in a writable place can be kept from it",
            );
        }
    }
    t.end(notes);
    out
}

fn paths(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str) -> Vec<HostPath> {
    let mut out = Vec::new();
    for At { value, span } in t.texts(notes, key).map(|l| l.value).unwrap_or_default() {
        let path = match HostPath::parse(&value) {
            Ok(p) => p,
            Err(why) => {
                notes.problem(
                    &span,
                    format!("{} can't be in `files.{key}`: {why}", quote(&value)),
                    "as in \"~/projects/shared\" or \"/srv/data\"",
                );
                continue;
            }
        };
        let why = path.closed().or_else(|| if key == "write" { path.executes() } else { None });
        match why {
            Some(why) => {
                notes.problem(&span, format!("{path} can't be in `files.{key}`: {why}"), "name a place that holds data only")
            }
            None => out.push(path),
        }
    }
    out
}

fn hide(t: &mut Table<'_>, notes: &mut Notes<'_>, source: &str, whose: Whose) -> Vec<Hidden> {
    let mut out: Vec<Hidden> = Vec::new();
    for mut h in t.tables(notes, "hide") {
        let on_touch = h.word(notes, "on_touch", &TOUCH);
        if let Some(ask) = on_touch.as_ref().filter(|a| a.value == Decision::Ask && whose == Whose::Repository) {
            notes.problem(&ask.span, "a repository's file can't ask for a hidden place", "leave `on_touch` out: it is denied");
        }
        let on_touch = on_touch.map_or(Decision::Deny, |a| a.value);
        let given = h.value("path").is_some();
        match h.text(notes, "path") {
            None if !given => {
                notes.problem(&h.span, format!("`{}` names no path", h.path), "as in { path = \"~/.ssh\", on_touch = \"deny\" }")
            }
            None => {}
            Some(At { value, span }) => match HostPath::parse(&value) {
                Err(why) => notes.problem(&span, format!("{} can't be hidden: {why}", quote(&value)), "as in \"~/.ssh\""),
                Ok(path) if path == HostPath::parse("~").unwrap_or_else(|_| path.clone()) || path.to_string() == "/" => {
                    notes.problem(&span, format!("{path} can't be hidden"), "the jail has its own; name a place inside");
                }
                Ok(path) if path.system().is_some() => {
                    let why = path.system().unwrap_or_default();
                    notes.problem(&span, format!("{path} can't be hidden: {why}"), "name a place that holds something of yours");
                }
                Ok(path) if out.iter().any(|o| o.path == path) => notes.problem(&span, format!("{path} is hidden twice"), ""),
                Ok(path) => {
                    let source = format!("{source}:{}", notes.line(&h.span));
                    out.push(Hidden { path, on_touch, rule: h.path.clone(), source });
                }
            },
        }
        h.end(notes);
    }
    out
}

/// Patterns of paths inside the repository. An exception takes away from what is masked, so only a person's own file has one.
fn patterns(t: &mut Table<'_>, notes: &mut Notes<'_>, key: &'static str, exceptions: bool) -> Vec<String> {
    let mut out = Vec::new();
    for At { value, span } in t.texts(notes, key).map(|l| l.value).unwrap_or_default() {
        let hint = if key == "mask" { "as in \".env\" or \"config/*.local\"" } else { "as in \"node_modules\" or \"web/.venv\"" };
        match Pattern::parse(&value) {
            Err(why) => {
                notes.problem(&span, format!("{} can't be in `files.{key}`: {why}", quote(&value)), hint);
            }
            Ok(p) if p.excepts() && !exceptions => {
                let why = if key == "mask" { "a repository's file can only mask more" } else { "name what is to come along" };
                notes.problem(&span, format!("{} can't be in `files.{key}`: {why}", quote(&value)), hint);
            }
            Ok(_) => out.push(value),
        }
    }
    out
}

fn devices(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Vec<HostPath> {
    let mut out: Vec<HostPath> = Vec::new();
    for At { value, span } in t.texts(notes, "devices").map(|l| l.value).unwrap_or_default() {
        match HostPath::parse(&value).and_then(|p| p.device().map_or(Ok(p), Err)) {
            Ok(path) if out.contains(&path) => notes.problem(&span, format!("{path} is in `files.devices` twice"), ""),
            Ok(path) => out.push(path),
            Err(why) => notes.problem(&span, format!("{} can't be handed in: {why}", quote(&value)), "as in \"/dev/dri\""),
        }
    }
    out
}
