//! `airlock events`: one line a happening.

use crate::args::{Events, Export, Form};
use crate::out;
use crate::text::{safe, time};
use engine::{Code, Engine, Error, Incoming};
use model::event::{Event, FileOp, Mode, NetOp, ProcessOp, Verdict, What};
use model::protocol::{Reply, Request};
use std::io::Write;
use std::path::Path;

pub(crate) fn events(engine: &Engine, args: &Events) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let mut next = 1;
    let wanted = |e: &Event| args.kind.is_empty() || args.kind.iter().any(|k| k == e.what.kind());
    let print = |e: &Event| if args.json { out::json(e) } else { out::line(&words(e)) };
    if args.follow {
        match engine.attach(&id) {
            Ok(mut run) => {
                run.send(&Request::Events { from: next, kinds: args.kind.clone() })?;
                while let Some(incoming) = run.receive()? {
                    match incoming {
                        Incoming::Reply(Reply::Event { event }) => {
                            next = event.seq + 1;
                            if wanted(&event) {
                                print(&event)?;
                            }
                        }
                        Incoming::Reply(Reply::Ended { .. }) => break,
                        Incoming::Reply(_) | Incoming::Out(_) | Incoming::Err(_) => {}
                    }
                }
            }
            Err(e) if e.code == Code::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    // What is stored: everything without --follow; the rest after a warden that went away.
    loop {
        let batch = engine.events(&id, next, 1000, &[])?;
        let Some(last) = batch.last() else { return Ok(0) };
        next = last.seq + 1;
        batch.iter().filter(|e| wanted(e)).try_for_each(print)?;
    }
}

fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "DENIED",
        Verdict::Held => "held",
        Verdict::Noted => "",
    }
}

fn words(e: &Event) -> String {
    let who = e.process.as_ref().map_or_else(|| "-".to_owned(), |p| format!("{} {}", p.program, p.pid));
    let (what, verdict_word, rule) = match &e.what {
        What::File { op, path, to, verdict: v, rule } => {
            let op = match op {
                FileOp::Read => "read",
                FileOp::Write => "write",
                FileOp::Create => "create",
                FileOp::Change => "change",
                FileOp::Rename => "rename",
                FileOp::Delete => "delete",
            };
            let to = to.as_ref().map_or_else(String::new, |t| format!(" -> {t}"));
            (format!("{op} {path}{to}"), verdict(*v), rule.clone())
        }
        What::Process { op, status } => {
            let argv = e
                .process
                .as_ref()
                .map_or_else(String::new, |p| p.argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            let text = match op {
                ProcessOp::Exec => format!("exec {argv}"),
                ProcessOp::Exit => format!("exit {}", status.map_or_else(String::new, |s| s.to_string())),
            };
            (text, "", String::new())
        }
        What::Network { op, host, address, port, verdict: v, rule, reason, sent, received, http, carried } => {
            let name = match (host.is_empty(), address) {
                (false, _) => safe(host),
                (true, Some(a)) => safe(a),
                (true, None) => "?".into(),
            };
            let text = match op {
                NetOp::Lookup => format!("look up {name}"),
                NetOp::Connect => format!("connect {name}:{port}"),
                NetOp::Close => {
                    let (mode, millis) = carried.map_or(("", 0), |c| (mode(c.mode), c.millis));
                    let seconds = std::time::Duration::from_millis(millis).as_secs_f64();
                    format!("close {name}:{port}, {sent} bytes out, {received} in, {seconds:.1} s{mode}")
                }
                NetOp::Request => http.as_ref().map_or_else(String::new, |h| {
                    let status = h.status.map_or_else(String::new, |s| format!(" -> {s} in {} ms", h.millis));
                    format!("{} {name}:{port}{}{status}", safe(&h.method), safe(&h.path))
                }),
                NetOp::Bind => format!("bind {name}:{port}"),
            };
            let why = if reason.is_empty() { rule.clone() } else { format!("{rule}: {}", safe(reason)) };
            (text, verdict(*v), why)
        }
        What::Ask { ask, about, rule } => (format!("ask {ask}: {}", safe(about)), verdict(Verdict::Held), rule.clone()),
        What::Decision { ask, grant, about, verdict: v, detail } => {
            let ids = [ask.as_ref().map(|a| format!("ask {a}")), grant.as_ref().map(|g| format!("grant {g}"))];
            let ids: Vec<String> = ids.into_iter().flatten().collect();
            (format!("{}: {}", ids.join(", "), safe(about)), verdict(*v), safe(detail))
        }
        What::Limit { limit, detail } => (format!("limit {limit}: {}", safe(detail)), "", String::new()),
        What::Lifecycle { phase, detail } => (format!("{phase} {}", safe(detail)), "", String::new()),
    };
    let count = if e.count > 1 { format!(" ({} times)", e.count) } else { String::new() };
    let mut line = format!("{} {:9} {:20} {what}{count}", time(e.time), e.what.kind(), who);
    for part in [verdict_word, &rule] {
        if !part.is_empty() {
            line.push_str("  ");
            line.push_str(part);
        }
    }
    line.trim_end().to_owned()
}

/// How a connection was carried, behind what is said of it.
fn mode(of: Mode) -> &'static str {
    match of {
        Mode::Tunnel => ", as a tunnel",
        Mode::Inspect => ", its requests read",
        Mode::Unread => ", unread",
    }
}

/// Writes records of the network down.
pub(crate) fn export(engine: &Engine, args: &Export) -> Result<u8, Error> {
    let id = engine.find_task(&args.id)?;
    let named = |e: std::io::Error, path: &Path| Error::new(Code::Machine, format!("{} can't be written: {e}", path.display()));
    let mut to: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(std::io::BufWriter::new(std::fs::File::create(path).map_err(|e| named(e, path))?)),
        None => Box::new(std::io::BufWriter::new(std::io::stdout())),
    };
    let failed = |e: std::io::Error| named(e, args.output.as_deref().unwrap_or(Path::new("stdout")));
    match args.form {
        Form::Jsonl => engine.network(&id, &mut |event| {
            serde_json::to_writer(&mut to, &event).map_err(std::io::Error::from).and_then(|()| writeln!(to)).map_err(failed)
        })?,
        Form::Har => {
            serde_json::to_writer_pretty(&mut to, &engine.har(&id)?)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(to))
                .map_err(failed)?;
        }
    }
    to.flush().map_err(failed)?;
    Ok(0)
}
