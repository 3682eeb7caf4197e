//! `airlock policy …`.

use crate::args::{Policy, PolicyVerb};
use crate::out;
use crate::text::safe;
use engine::{Engine, Error, PolicyView};

pub(crate) fn policy(engine: &Engine, args: &Policy) -> Result<u8, Error> {
    match &args.verb {
        PolicyVerb::Check { file, json } => {
            let view = engine.policy_check(file)?;
            show(&view, *json)?;
        }
        PolicyVerb::Explain { id, request, json } => {
            let lines = engine.policy_explain(&engine.find_task(id)?, request)?;
            if *json {
                out::json(&serde_json::json!({ "lines": lines }))?;
            } else {
                lines.iter().try_for_each(|l| out::line(&safe(l)))?;
            }
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
