//! `airlock demo`: the whole path in a terminal.

use crate::attach::{self, Show};
use crate::{out, review, run};
use engine::{Engine, Error};
use serde_json::json;

pub(crate) fn demo(engine: &Engine, json: bool) -> Result<u8, Error> {
    let signals = attach::hold_signals()?;
    let task = engine.demo(&run::progress())?;
    let stdio = if json { model::run::Stdio::Pipes } else { attach::stdio() };
    let env = if json {
        [("DEMO_PAUSE", "0"), ("DEMO_WAIT", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec()
    } else {
        Vec::new()
    };
    let run = engine.launch(&task, None, stdio, env)?;
    run::say_losses(&run);
    let outcome = attach::attach(engine, &task, signals, stdio, if json { Show::Kept } else { Show::Streams })?;
    let look = engine.look(&task)?;
    if json {
        out::json(&json!({
            "task": task, "run": run.id, "exit": outcome.exit, "signal": outcome.signal, "limit": outcome.limit,
            "tree": look.candidate.tree, "files": review::summary(&look.files), "denied": run::refused(engine, &task)?,
        }))?;
        return Ok(u8::from(outcome.exit != Some(0)));
    }
    run::finish(engine, &task, &outcome, false)?;
    let me = out::me(engine.host());
    out::talk(&format!(
        "or:    {me} review {task} --tree {} --accept greet.sh names.txt --reject NOTES.md --approve",
        look.candidate.tree
    ));
    Ok(u8::from(outcome.exit != Some(0)))
}
