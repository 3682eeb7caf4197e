//! `airlock diff`, `review`, `apply`, `undo`.

use crate::args::{Apply, Diff, One, Review};
use crate::out;
use crate::text::safe_lines;
use engine::{Applied, ApplyRequest, Code, Engine, Error};
use model::diff::{ChangeKind, ChangedFile, Mark};
use model::id::TreeId;
use model::path::RawPath;
use model::review::FileDecision;
use serde_json::json;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::Renamed => 'R',
        ChangeKind::Mode => 'T',
    }
}

fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Ci => "CI",
        Mark::Runs => "runs on your machine",
        Mark::Lockfile => "lockfile",
        Mark::Executable => "executable",
        Mark::Symlink => "symlink",
        Mark::Escapes => "symlink out of the tree",
        Mark::Binary => "binary",
        Mark::Bidi => "hidden characters",
    }
}

fn stat(f: &ChangedFile) -> String {
    let from = f.old_path.as_ref().map_or_else(String::new, |p| format!("{p} -> "));
    let size = if f.binary { "binary".to_owned() } else { format!("+{} -{}", f.added, f.removed) };
    let marks: Vec<&str> = f.marks.iter().map(|m| mark(*m)).collect();
    let marks = if marks.is_empty() { String::new() } else { format!("  ! {}", marks.join(", ")) };
    format!("{} {from}{}  {size}{marks}", letter(f.kind), f.path)
}

pub(crate) fn diff(engine: &Engine, args: &Diff) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let look = engine.look(&id)?;
    if args.json {
        out::json(&look)?;
        return Ok(0);
    }
    for (path, why) in &look.candidate.left_out {
        out::talk(&format!("left out: {path}: {why}"));
    }
    if !look.candidate.still {
        out::talk("taken while the agent could still write: it can be looked at, not approved");
    }
    out::talk(&format!("candidate {}", look.candidate.tree));
    if args.stat {
        look.files.iter().try_for_each(|f| out::line(&stat(f)))?;
    } else {
        let patch = engine.unified(&id, &look.candidate.tree)?;
        // A file's bytes must not drive the terminal; a pipe gets the patch as it is, for `git apply`.
        if std::io::stdout().is_terminal() { out::bytes(safe_lines(&patch).as_bytes())? } else { out::bytes(&patch)? }
    }
    Ok(0)
}

fn tree(text: &str) -> Result<TreeId, Error> {
    TreeId::parse(text).map_err(|e| Error::new(Code::Usage, e.to_string()))
}

fn paths(words: &[OsString]) -> Vec<RawPath> {
    words.iter().map(|w| RawPath::from(w.as_bytes())).collect()
}

pub(crate) fn review(engine: &Engine, args: &Review) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let tree = tree(&args.tree)?;
    let mut review = if args.accept.is_empty() && args.reject.is_empty() {
        engine.review(&id, &tree)?
    } else {
        engine.decide(&id, &tree, &paths(&args.accept), &paths(&args.reject))?
    };
    if args.approve {
        review = engine.approve(&id, &tree)?;
    }
    if args.json {
        out::json(&review)?;
        return Ok(0);
    }
    for f in &review.files {
        let word = match f.decision {
            FileDecision::Open => "open",
            FileDecision::Accepted => "accepted",
            FileDecision::Rejected => "rejected",
        };
        let since = if f.changed_since { "  (changed since it was decided)" } else { "" };
        out::line(&format!("{word:9} {}{since}", f.path))?;
    }
    out::talk(&format!("result {}{}", review.result, if review.approved { ", approved" } else { "" }));
    if review.approved {
        out::talk(&format!("apply it: {} apply {id} --tree {}", out::me(engine.host()), review.result));
    }
    Ok(0)
}

fn told(applied: &Applied, verb: &str, json: bool) -> Result<(), Error> {
    if json {
        return out::json(applied);
    }
    if applied.old.is_none() {
        out::talk(&format!("there was no branch {}: it is made at the task's base", applied.branch));
    }
    let at = |c: &Option<String>| c.as_deref().map_or("(no branch)", |c| &c[..c.len().min(12)]).to_owned();
    out::talk(&format!(
        "{verb} {}: {} -> {}, {} file{}{}",
        applied.branch,
        at(&applied.old),
        at(&applied.new),
        applied.files,
        if applied.files == 1 { "" } else { "s" },
        if applied.working_copy { ", with its working copy" } else { "" }
    ));
    Ok(())
}

pub(crate) fn apply(engine: &Engine, args: Apply) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let request = ApplyRequest { tree: tree(&args.tree)?, onto: args.onto, message: args.message };
    let applied = engine.apply(&id, &request)?;
    told(&applied, "applied onto", args.json)?;
    if !args.json {
        out::talk(&format!("take it back: {} undo {id}", out::me(engine.host())));
    }
    Ok(0)
}

pub(crate) fn undo(engine: &Engine, args: &One) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    told(&engine.undo(&id)?, "undone on", args.json)?;
    Ok(0)
}

/// A review in JSON for the demo's last word.
pub(crate) fn summary(files: &[ChangedFile]) -> serde_json::Value {
    json!(files.iter().map(stat).collect::<Vec<_>>())
}
