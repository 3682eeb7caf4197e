//! Records of the network, as other programs read them.

use crate::Engine;
use crate::error::{Code, Error};
use model::event::{Event, NetOp, Verdict, What};
use model::id::TaskId;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Events that are read at a time.
const PAGE: usize = 5_000;

impl Engine {
    /// Every record of the network, oldest first, one at a time.
    pub fn network(&self, task: &TaskId, each: &mut dyn FnMut(Event) -> Result<(), Error>) -> Result<(), Error> {
        let mut from = 1;
        loop {
            let page = self.events(task, from, PAGE, &["network".to_owned()])?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.seq + 1;
            page.into_iter().try_for_each(&mut *each)?;
        }
    }

    /// The requests that were read, as an HTTP archive (HAR 1.2): without headers and bodies, which are kept nowhere. What Airlock
    /// adds stands in fields that begin with `_`.
    pub fn har(&self, task: &TaskId) -> Result<Value, Error> {
        let mut entries = Vec::new();
        self.network(task, &mut |event| {
            entries.extend(entry(&event)?);
            Ok(())
        })?;
        let creator = json!({"name": "Airlock", "version": env!("CARGO_PKG_VERSION")});
        Ok(json!({"log": {"version": "1.2", "creator": creator, "entries": entries}}))
    }
}

fn entry(event: &Event) -> Result<Option<Value>, Error> {
    let What::Network { op: NetOp::Request, host, address, port, verdict, rule, reason, http: Some(http), .. } = &event.what
    else {
        return Ok(None);
    };
    // It is told when its answer is there, or when it was refused.
    let began = i128::from(event.time.saturating_sub(http.millis)) * 1_000_000;
    let began = OffsetDateTime::from_unix_timestamp_nanos(began).ok().and_then(|t| t.format(&Rfc3339).ok());
    let began = began.ok_or_else(|| Error::new(Code::Machine, "a record has a time that no calendar has"))?;
    let place = match (http.tls, port) {
        (true, 443) => format!("https://{host}"),
        (false, 80) => format!("http://{host}"),
        (true, port) => format!("https://{host}:{port}"),
        (false, port) => format!("http://{host}:{port}"),
    };
    let nothing = json!([]);
    let request = json!({
        "method": http.method, "url": format!("{place}{}", http.path), "httpVersion": "", "cookies": nothing, "headers": nothing,
        "queryString": nothing, "headersSize": -1, "bodySize": -1,
    });
    let response = json!({
        "status": http.status.unwrap_or(0), "statusText": "", "httpVersion": "", "cookies": nothing, "headers": nothing,
        "content": {"size": -1, "mimeType": ""}, "redirectURL": "", "headersSize": -1, "bodySize": -1,
    });
    let word = match verdict {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "denied",
        Verdict::Held => "held",
        Verdict::Noted => "noted",
    };
    let process = event.process.as_ref().map(|p| json!({"pid": p.pid, "program": p.program, "exe": p.exe}));
    Ok(Some(json!({
        "startedDateTime": began, "time": http.millis, "request": request, "response": response, "cache": {},
        "timings": {"send": 0, "wait": http.millis, "receive": 0}, "serverIPAddress": address.as_deref().unwrap_or_default(),
        "_verdict": word, "_rule": rule, "_reason": reason, "_process": process, "_count": event.count,
    })))
}
