//! `airlock repo …` and `airlock task …`.

use crate::args::{One, Preview, Repo, RepoVerb, Task, TaskVerb};
use crate::out;
use engine::{Code, Engine, Error};
use model::path::RawPath;
use model::task::TaskState;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn shown(path: &Path) -> RawPath {
    RawPath::from(path.as_os_str().as_bytes())
}

fn word(state: TaskState) -> &'static str {
    match state {
        TaskState::Ready => "ready",
        TaskState::Running => "running",
        TaskState::Ended => "ended",
        TaskState::Applied => "applied",
        TaskState::Failed => "failed",
        TaskState::Discarded => "discarded",
    }
}

/// Where a task stands, a pause included.
fn now(task: &model::task::Task) -> &'static str {
    if task.paused.is_some() { "paused" } else { word(task.state) }
}

fn repo_json(r: &model::task::Repo) -> serde_json::Value {
    json!({"id": r.id, "name": r.name, "path": shown(&r.path), "added": r.added})
}

pub(crate) fn repo(engine: &Engine, args: Repo) -> Result<u8, Error> {
    match args.verb {
        RepoVerb::List(a) => {
            for r in engine.repos()? {
                if a.json { out::json(&repo_json(&r))? } else { out::line(&format!("{}  {}", r.id, shown(&r.path)))? }
            }
        }
        RepoVerb::Add { dir, json } => {
            let r = engine.repo_add(&dir)?;
            if json { out::json(&repo_json(&r))? } else { out::line(&format!("{}  {}", r.id, shown(&r.path)))? }
        }
        RepoVerb::Forget { dir, json } => {
            let r = engine.find_repo(&dir)?;
            engine.repo_forget(&r.id)?;
            if json {
                out::json(&repo_json(&r))?;
            }
        }
    }
    Ok(0)
}

pub(crate) fn task(engine: &Engine, args: Task) -> Result<u8, Error> {
    match args.verb {
        TaskVerb::List(a) => {
            for t in engine.tasks()? {
                if a.json {
                    out::json(&t)?;
                } else {
                    out::line(&format!("{}  {:9}  {}", t.id, now(&t), t.title))?;
                }
            }
        }
        TaskVerb::Show(a) => show(engine, &a)?,
        TaskVerb::Stop(a) => {
            let id = engine.find_task(&a.id)?;
            let outcome = engine.stop(&id)?;
            if a.json {
                out::json(&json!({"task": id, "stopped": outcome.is_some(), "outcome": outcome}))?;
            } else {
                out::talk(if outcome.is_some() { "stopped: every process of the run has ended" } else { "nothing was running" });
            }
        }
        TaskVerb::Pause(a) => {
            let id = engine.find_task(&a.id)?;
            engine.pause(&id)?;
            if a.json {
                out::json(&json!({"task": id, "paused": true}))?;
            } else {
                let me = out::me(engine.host());
                out::talk(&format!(
                    "paused: every process of the run is stopped; the clock of `limits.wall` goes on. {me} task continue {id}"
                ));
            }
        }
        TaskVerb::Continue(a) => {
            let id = engine.find_task(&a.id)?;
            let was = engine.proceed(&id)?;
            if a.json {
                out::json(&json!({"task": id, "paused": false, "was": was}))?;
            } else {
                out::talk(if was { "the run goes on" } else { "it was not paused" });
            }
        }
        TaskVerb::Discard(a) => {
            let id = engine.find_task(&a.id)?;
            engine.discard(&id)?;
            if a.json {
                out::json(&json!({"task": id, "state": "discarded"}))?;
            }
        }
    }
    Ok(0)
}

fn show(engine: &Engine, args: &One) -> Result<(), Error> {
    let view = engine.task(&engine.find_task(&args.id)?)?;
    let last = view.runs.last();
    if args.json {
        let mut value = serde_json::to_value(&view).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.insert("hostname".into(), json!(last.map(|r| &r.run.hostname)));
            map.insert("log".into(), json!(last.map(|r| shown(&r.run.log))));
            map.insert("repository".into(), repo_json(&view.repository));
        }
        return out::json(&value);
    }
    let t = &view.task;
    out::line(&format!("task       {}  {}", t.id, t.title))?;
    out::line(&format!(
        "state      {}{}",
        match t.paused.as_deref() {
            Some("limit") => "paused by a limit (`airlock events --kind limit` says which)",
            _ => now(t),
        },
        t.problem.as_ref().map_or_else(String::new, |p| format!(": {}", crate::text::safe(p)))
    ))?;
    out::line(&format!("repository {}", shown(&view.repository.path)))?;
    out::line(&format!("base       {} {}", t.base_branch.as_deref().unwrap_or("(no branch)"), t.base))?;
    out::line(&format!("policy     {}", t.policy))?;
    if let Some(branch) = &view.applied_onto {
        out::line(&format!("applied    onto {branch}"))?;
    }
    for view in &view.runs {
        let r = &view.run;
        let how = match &r.outcome {
            None => "runs".to_owned(),
            Some(o) => match (&o.refused, &o.limit, o.signal, o.exit) {
                (Some(why), ..) => format!("refused: {}", crate::text::safe(why)),
                (_, Some(l), ..) => format!("ended by the limit {l}"),
                (_, _, Some(s), _) => format!("ended by signal {s}"),
                (_, _, _, Some(c)) => format!("exit {c}"),
                (None, None, None, None) => "ended".into(),
            },
        };
        out::line(&format!("run        {}  {}  {how}", r.id, r.hostname))?;
        out::line(&format!("  output   {}", shown(&r.log)))?;
        for line in crate::promises::table(&view.promises) {
            out::line(&format!("  {line}"))?;
        }
    }
    Ok(())
}

pub(crate) fn preview(engine: &Engine, args: &Preview) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let port = match args.port {
        Some(port) => port,
        None => match engine.ports(&id)?.as_slice() {
            [port] => *port,
            [] => return Err(Error::new(Code::NotFound, "nothing in this task has taken a port yet: name the one to look at")),
            ports => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                return Err(Error::new(Code::Usage, format!("its programs took the ports {}: name one", ports.join(", "))));
            }
        },
    };
    if args.close {
        let was = engine.close_preview(&id, port)?;
        if args.json {
            out::json(&serde_json::json!({"task": id, "port": port, "was": was}))?;
        } else {
            out::talk(if was { "closed" } else { "it was not open" });
        }
        return Ok(0);
    }
    let link = engine.preview(&id, port)?;
    if args.json {
        out::json(&serde_json::json!({"task": id, "port": port, "link": link}))?;
    } else {
        out::line(&link)?;
        out::talk("for one use, until the run ends; the page can talk to the internet from your browser");
    }
    Ok(0)
}
