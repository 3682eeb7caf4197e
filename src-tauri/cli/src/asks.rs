//! `airlock ask …` and `airlock grant …`.

use crate::args::{Ask, AskVerb, Grant, GrantVerb, Scope};
use crate::out;
use crate::text::{count, moment, safe};
use engine::{AskView, Code, Engine, Error, For, GrantView};
use model::ask::{Answer, AskState, Asked, Scope as Reach};
use model::id::{AskId, GrantId};
use serde_json::json;
use std::time::Duration;

fn usage(e: impl std::fmt::Display) -> Error {
    Error::new(Code::Usage, e.to_string())
}

fn duration(text: &str) -> Result<Duration, Error> {
    let found = engine::duration(text).filter(|d| !d.is_zero());
    found.ok_or_else(|| usage(format!("`{}` is no time: as in 90s, 30m, 4h, 1h30m or 2d", safe(text))))
}

fn state(state: AskState) -> &'static str {
    match state {
        AskState::Open => "open",
        AskState::Allowed => "allowed",
        AskState::Denied => "denied",
        AskState::Ended => "ended",
    }
}

pub(crate) fn ask(engine: &Engine, args: Ask) -> Result<u8, Error> {
    match args.verb {
        AskVerb::List { id, all, json } => {
            let task = id.map(|id| engine.find_task(&id)).transpose()?;
            for view in engine.asks(task.as_ref(), all)? {
                if json { out::json(&view)? } else { out::line(&line(&view))? }
            }
        }
        AskVerb::Show { ask, json } => {
            let view = engine.ask(&AskId::parse(&ask).map_err(usage)?)?;
            if json { out::json(&view)? } else { lines(&view).iter().try_for_each(|l| out::line(l))? }
        }
        AskVerb::Allow { ask, scope, lasts, json } => {
            let scope = match scope {
                Scope::Once => Reach::Once,
                Scope::Task => Reach::Task,
                Scope::Repo => Reach::Repo,
            };
            let lasts = lasts.as_deref().map(duration).transpose()?;
            let lasts = lasts.map(|l| u64::try_from(l.as_millis()).unwrap_or(u64::MAX));
            let (view, grant) = answer(engine, &ask, &Answer::Allow { scope, lasts })?;
            let reach = match scope {
                Reach::Once => "once, for what waits or else the next try".to_owned(),
                Reach::Task => "for this task".to_owned(),
                Reach::Repo => format!("for every task of {}", safe(&view.repository)),
            };
            let made = engine.grants(None)?.into_iter().find(|g| Some(&g.grant.id) == grant.as_ref());
            let until = made.and_then(|g| g.grant.until).map_or_else(String::new, |u| format!(", until {}", moment(u.wall)));
            if json {
                out::json(&json!({"ask": view.ask.id, "answer": "allow", "grant": grant}))?;
            } else if let Some(grant) = grant {
                let me = out::me(engine.host());
                let what = safe(&view.ask.what.to_string());
                out::talk(&format!("allowed {reach}{until}: {what}; {me} grant revoke {grant} takes it back"));
            }
        }
        AskVerb::Deny { ask, json } => {
            let (view, _) = answer(engine, &ask, &Answer::Deny)?;
            if json {
                out::json(&json!({"ask": view.ask.id, "answer": "deny"}))?;
            } else {
                out::talk(&format!("denied for the rest of the run: {}", safe(&view.ask.what.to_string())));
            }
        }
    }
    Ok(0)
}

/// `ASK` or `ASK@DIGEST`: without a digest, what the ask is about now is what is answered; it never changes.
fn answer(engine: &Engine, named: &str, answer: &Answer) -> Result<(AskView, Option<GrantId>), Error> {
    let (id, digest) = named.split_once('@').map_or((named, None), |(id, digest)| (id, Some(digest)));
    let view = engine.ask(&AskId::parse(id).map_err(usage)?)?;
    let grant = engine.answer(&view.ask.id, digest.unwrap_or(&view.digest), answer)?;
    Ok((view, grant))
}

fn line(view: &AskView) -> String {
    let ask = &view.ask;
    let who = ask.process.as_ref().map_or_else(|| "-".to_owned(), |p| format!("{} {}", p.program, p.pid));
    let tries = if ask.tries > 1 { format!("  {} tries", ask.tries) } else { String::new() };
    format!(
        "{}  {:8} {}  {who}  {} ({}){tries}",
        ask.id,
        state(ask.state),
        safe(&ask.what.to_string()),
        safe(&view.title),
        safe(&view.repository)
    )
}

fn lines(view: &AskView) -> Vec<String> {
    let ask = &view.ask;
    let closed = match (ask.state, ask.closed) {
        (AskState::Open, _) | (_, None) => String::new(),
        (AskState::Ended, Some(at)) => format!(", its run ended {}", moment(at)),
        (AskState::Allowed | AskState::Denied, Some(at)) => format!(", answered {}", moment(at)),
    };
    let verb = ask.what.verb();
    let mut out = vec![
        format!("ask      {}  {}, opened {}{closed}", ask.id, state(ask.state), moment(ask.opened)),
        format!("what     {verb} {}, {}", safe(&ask.what.to_string()), count(ask.tries, "try", "tries")),
        format!("task     {}  {} ({})", ask.task, safe(&view.title), safe(&view.repository)),
    ];
    if let Some(p) = &ask.process {
        let above: Vec<String> = p.ancestry.iter().map(|(pid, name)| format!("{name} {pid}")).collect();
        let origin = format!("{:?}", p.origin).to_lowercase();
        out.push(format!("who      {} {} ({}, {origin}), started by {}", p.program, p.pid, p.exe, above.join(" < ")));
        out.push(format!("says     {}", p.argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
    }
    let reason = if ask.reason.is_empty() { String::new() } else { format!(": {}", safe(&ask.reason)) };
    out.push(format!("rule     {} ({}){reason}", ask.rule, safe(&ask.source)));
    out.push(format!("digest   {}", view.digest));
    if let Some(grant) = &ask.grant {
        out.push(format!("grant    {grant}"));
    }
    if ask.state == AskState::Open {
        let id = &ask.id;
        out.push(format!("answers  airlock ask allow {id} [--scope once|task|repo] [--for 30m], airlock ask deny {id}"));
    }
    out
}

pub(crate) fn grant(engine: &Engine, args: Grant) -> Result<u8, Error> {
    match args.verb {
        GrantVerb::List { id, json } => {
            let task = id.map(|id| engine.find_task(&id)).transpose()?;
            for view in engine.grants(task.as_ref())? {
                if json { out::json(&view)? } else { out::line(&granted(&view))? }
            }
        }
        GrantVerb::Add { target, task, repo, lasts, json } => {
            let whom = match (task, repo) {
                (Some(id), _) => For::Task(engine.find_task(&id)?),
                (None, Some(dir)) => For::Repo(engine.find_repo(&dir)?.id),
                (None, None) => return Err(usage("say whom it is for: --task ID or --repo DIR")),
            };
            let grant = engine.add_grant(&whom, &target, lasts.as_deref().map(duration).transpose()?)?;
            if json {
                out::json(&json!({"grant": grant.id}))?;
            } else {
                out::line(grant.id.as_str())?;
                let what = safe(&grant.what.to_string());
                out::talk(&match grant.what {
                    Asked::Read { .. } => format!("{what} may be read where the policy asks about it"),
                    Asked::Connect { .. } | Asked::Request { .. } | Asked::Raise { .. } => {
                        format!("{what} may be connected to where the policy asks about it; what the policy denies stays denied")
                    }
                });
            }
        }
        GrantVerb::Revoke { grant, json } => {
            let id = GrantId::parse(&grant).map_err(usage)?;
            let done = engine.revoke_grant(&id)?;
            if json {
                out::json(&json!({"grant": id, "was": done.was, "closed": done.closed}))?;
            } else if done.was {
                out::talk(&format!("taken back; closed: {}", count(done.closed, "connection", "connections")));
            } else {
                out::talk("it was taken back before");
            }
        }
    }
    Ok(0)
}

fn granted(view: &GrantView) -> String {
    let g = &view.grant;
    let now = match (g.revoked, view.lives) {
        (Some(_), _) => "revoked",
        (None, true) => "live",
        (None, false) => "over",
    };
    let whom = view.title.as_ref().map_or_else(|| "every task".to_owned(), |t| safe(t));
    let until = g.until.as_ref().map_or_else(String::new, |u| format!("  until {}", moment(u.wall)));
    format!("{}  {now:8} {}  {whom} ({})  used {}{until}", g.id, safe(&g.what.to_string()), safe(&view.repository), g.used)
}
