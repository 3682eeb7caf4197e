//! `airlock doctor`, and the table of promises as text.

use crate::out;
use crate::text::safe;
use engine::{Engine, Error, Kept, Status};

pub(crate) fn doctor(engine: &Engine, json: bool) -> Result<u8, Error> {
    let doctor = engine.doctor()?;
    let code = if doctor.starts { 0 } else { 4 };
    if json {
        out::json(&doctor)?;
        return Ok(code);
    }
    for c in &doctor.checks {
        out::line(&format!("{} {:15} {}", if c.ok { "ok     " } else { "missing" }, c.name, safe(&c.detail)))?;
    }
    for line in table(&doctor.promises) {
        out::line(&line)?;
    }
    for (word, list) in [("blocked", &doctor.blockers), ("weaker", &doctor.weaker)] {
        for advice in list {
            out::line(&format!("{word:7} {}: {}", advice.at, safe(&advice.what)))?;
            out::line(&format!("        because {}", safe(&advice.why)))?;
            if let Some(command) = &advice.command {
                out::line(&format!("        mend it with: {}", safe(command)))?;
            }
            if let Some(name) = &advice.accept {
                out::line(&format!("        or accept the loss in your own policy: accept = [\"{name}\"]"))?;
            }
        }
    }
    out::talk(if doctor.starts { "tasks start on this machine" } else { "no task starts on this machine until this is mended" });
    Ok(code)
}

/// The table, for people: each promise, by what it is kept, and what of it is not.
pub(crate) fn table(promises: &[Kept]) -> Vec<String> {
    let mut out = Vec::new();
    for k in promises {
        let accepted = if k.accepted { " (ACCEPTED LOSS)" } else { "" };
        out.push(format!("{:7} {:2} {}{accepted}", word(&k.status), k.promise, k.title));
        if !k.how.is_empty() {
            out.push(format!("           by {}", safe(&k.how)));
        }
        for row in k.rows.iter().filter(|r| r.status != Status::Full) {
            let reason = row.status.reason().unwrap_or_default();
            out.push(format!("           {} {}: {}", row.guarantee, word(&row.status), safe(reason)));
        }
    }
    out
}

fn word(status: &Status) -> &'static str {
    match status {
        Status::Full => "full",
        Status::Partial { .. } => "partial",
        Status::Absent { .. } => "absent",
    }
}
