//! `airlock run`: a task, its run, and its end.

use crate::args::Run;
use crate::attach::{self, Show};
use crate::{out, text};
use engine::{Code, Engine, Error, NewTask, Progress};
use model::event::{Event, Verdict, What};
use model::id::TaskId;
use model::run::Outcome;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Says how far creation is, on a terminal in one line that is written over.
pub(crate) fn progress() -> impl Fn(Progress) {
    let terminal = std::io::stderr().is_terminal();
    move |p| {
        if let Progress::Note(note) = &p {
            out::talk(&text::safe(note));
            return;
        }
        if terminal {
            let (what, percent) = match p {
                Progress::History(n) => ("copying history", n),
                Progress::Files(n) => ("writing files", n),
                Progress::Carried { files, bytes } => {
                    write!(std::io::stderr(), "\rairlock: carrying: {files} files, {} MiB\r", bytes >> 20).ok();
                    return;
                }
                Progress::Note(_) => return,
            };
            let end = if matches!(p, Progress::Files(100)) { "\r\x1b[K" } else { "" };
            write!(std::io::stderr(), "\rairlock: {what} {percent:3} %{end}").ok();
        }
    }
}

fn utf8(words: Vec<std::ffi::OsString>) -> Result<Vec<String>, Error> {
    words
        .into_iter()
        .map(|w| {
            w.into_string().map_err(|w| Error::new(Code::Usage, format!("the argument {} is not UTF-8", w.to_string_lossy())))
        })
        .collect()
}

pub(crate) fn run(engine: &Engine, args: Run) -> Result<u8, Error> {
    let signals = attach::hold_signals()?;
    let env = args
        .env
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((k, v)) if !k.is_empty() => Ok((k.to_owned(), v.to_owned())),
            Some(_) | None => Err(Error::new(Code::Usage, format!("--env {} is not NAME=VALUE", text::safe(pair)))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let new = NewTask {
        title: args.title,
        prompt: args.prompt.unwrap_or_default(),
        base: args.base,
        agent: args.agent,
        argv: utf8(args.command)?,
        policy: args.policy,
    };
    let repo = engine.repo_add(args.repo.as_deref().unwrap_or(Path::new(".")))?;
    let task = engine.create(&repo.id, &new, &progress())?;
    let stdio = if args.json || args.detach { detached(args.detach && !args.json) } else { attach::stdio() };
    if !args.json && engine.repo_view(&repo.id).is_ok_and(|r| r.dirty) {
        out::talk("your uncommitted changes stay where they are and are not in the task");
    }
    let run = match engine.launch(&task.id, None, stdio, env) {
        Ok(run) => run,
        Err(e) => {
            // Nothing ran: a task without a run is of no use to anybody.
            engine.discard(&task.id)?;
            return Err(e);
        }
    };
    say_losses(&run);
    if args.detach {
        if args.json {
            out::json(&json!({"task": task.id, "run": run.id}))?;
        } else {
            out::line(&format!("{} {}", task.id, run.id))?;
        }
        return Ok(0);
    }
    if !args.json {
        for line in caches(&run) {
            out::talk(&line);
        }
    }
    let show = if args.json { Show::Kept } else { Show::Streams };
    let outcome = attach::attach(engine, &task.id, signals, stdio, show)?;
    let tree = finish(engine, &task.id, &outcome, args.json)?;
    if args.rm {
        engine.discard(&task.id)?;
    }
    if args.json {
        out::json(&json!({
            "task": task.id, "run": run.id, "exit": outcome.exit, "signal": outcome.signal, "limit": outcome.limit,
            "refused": outcome.refused, "tree": tree,
        }))?;
    }
    match &outcome.refused {
        Some(why) => Err(Error::new(Code::NotFound, why.clone())),
        None => Ok(u8::from(outcome.exit != Some(0))),
    }
}

/// A detached run in a terminal of the usual size can be looked at from the window; for scripts pipes do.
fn detached(terminal: bool) -> model::run::Stdio {
    if terminal { model::run::Stdio::Terminal { cols: 120, rows: 32 } } else { model::run::Stdio::Pipes }
}

/// The rows of a task's log that say that something was refused.
pub(crate) fn refused(engine: &Engine, task: &TaskId) -> Result<Vec<Event>, Error> {
    let mut events = engine.events(task, 1, 1_000_000, &["file".to_owned(), "network".to_owned()])?;
    events.retain(|e| match &e.what {
        What::File { verdict, .. } | What::Network { verdict, .. } => *verdict == Verdict::Denied,
        What::Process { .. } | What::Ask { .. } | What::Decision { .. } | What::Limit { .. } | What::Lifecycle { .. } => false,
    });
    Ok(events)
}

/// Says what this run's jail does not keep in full; at every start.
pub(crate) fn say_losses(run: &model::run::Run) {
    let view = engine::RunView::from(run.clone());
    for line in engine::weaker(&view.promises) {
        out::talk(&text::safe(&line));
    }
}

/// What of the caches is not as a person may expect, a line each.
fn caches(run: &model::run::Run) -> Vec<String> {
    let line = |row: engine::CacheRow| {
        let how = if row.shown { "is shown as it was before" } else { "is not shown" };
        row.reason.map(|why| format!("the cache {} {how}: {}", text::safe(&row.name), text::safe(&why)))
    };
    engine::RunView::from(run.clone()).caches.into_iter().filter_map(line).collect()
}

/// Says how it ended and what changed; gives the candidate's tree.
pub(crate) fn finish(engine: &Engine, task: &TaskId, outcome: &Outcome, quiet: bool) -> Result<String, Error> {
    let look = engine.look(task)?;
    if !quiet {
        let how = match outcome {
            Outcome { refused: Some(why), .. } => text::safe(why),
            Outcome { limit: Some(l), .. } => format!("ended by the limit `{l}`"),
            Outcome { signal: Some(s), .. } => format!("ended by signal {s}"),
            Outcome { exit: Some(c), .. } => format!("exit {c}"),
            Outcome { .. } => "ended".into(),
        };
        let refused = refused(engine, task)?.len();
        if refused > 0 {
            let times = if refused == 1 { "once".to_owned() } else { format!("{refused} times") };
            out::talk(&format!("the jail refused something {times}: {} events {task}", out::me(engine.host())));
        }
        let n = look.files.len();
        out::talk(&format!("task {task}: {how}; {n} file{} changed", if n == 1 { "" } else { "s" }));
        if n > 0 {
            let me = out::me(engine.host());
            out::talk(&format!("look:  {me} diff {task}"));
            out::talk(&format!("then:  {me} review {task} --tree {} --accept . --approve", look.candidate.tree));
        }
    }
    Ok(look.candidate.tree.to_string())
}
