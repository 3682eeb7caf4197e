//! `airlock policy …` and `airlock doctor`.

use crate::args::{Policy, PolicyVerb};
use crate::out;
use crate::text::safe;
use engine::{Engine, Error, PolicyView};
use jail_words::row;

pub(crate) fn policy(engine: &Engine, args: &Policy) -> Result<u8, Error> {
    match &args.verb {
        PolicyVerb::Check { file, json } => {
            let view = engine.policy_check(file)?;
            show(&view, *json)?;
        }
        PolicyVerb::Show(a) => show(&engine.policy_show(&engine.find_task(&a.id)?)?, a.json)?,
    }
    Ok(0)
}

fn show(view: &PolicyView, json: bool) -> Result<(), Error> {
    if json {
        return out::json(view);
    }
    for line in &view.words {
        out::line(&safe(line))?;
    }
    for (key, line, note) in &view.not_in_force {
        out::line(&format!("not in force yet: {} (line {line}): {}", safe(key), safe(note)))?;
    }
    Ok(())
}

pub(crate) fn doctor(engine: &Engine, json: bool) -> Result<u8, Error> {
    let doctor = engine.doctor()?;
    let code = if doctor.starts { 0 } else { 4 };
    if json {
        out::json(&doctor)?;
        return Ok(code);
    }
    for c in &doctor.checks {
        out::line(&format!("{} {:15} {}", if c.ok { "ok     " } else { "missing" }, c.name, c.detail))?;
    }
    let report = serde_json::to_value(&doctor.report).unwrap_or_default();
    for r in report.get("rows").and_then(serde_json::Value::as_array).into_iter().flatten() {
        out::line(&row(r))?;
    }
    if let Some(why) = &doctor.refused {
        out::line(&format!("refused {}", safe(why)))?;
    }
    out::talk(if doctor.starts { "tasks start on this machine" } else { "no task starts on this machine until this is mended" });
    Ok(code)
}

mod jail_words {
    /// One guarantee as a line.
    pub(super) fn row(r: &serde_json::Value) -> String {
        let get = |k: &str| r.get(k).and_then(serde_json::Value::as_str).unwrap_or("");
        let reason = if get("reason").is_empty() { String::new() } else { format!(": {}", get("reason")) };
        format!("{:7} {:15}{reason}", get("status"), get("guarantee"))
    }
}
