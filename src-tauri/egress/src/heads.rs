//! Heads of requests: what one says of itself, in the one form that is judged and goes on.

use crate::doors;
use crate::forges;
use crate::hops;
use crate::otherwise;
use http_body_util::Empty;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use model::decision::{Decision, Ruling};
use model::event::Verdict;
use policy::{HttpRequest, Target};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Largest head of a request, in bytes.
pub(crate) const HEAD: usize = 64 * 1024;
/// How long a head may take once it has begun.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Requests of HTTP/2 that one connection may have under way.
const AT_ONCE: u32 = 128;
/// What is kept of an answer that its program does not read, for each request of HTTP/2.
const UNREAD: usize = 64 * 1024;

/// A request that goes nowhere.
pub(crate) struct Stopped {
    pub(crate) status: StatusCode,
    pub(crate) verdict: Verdict,
    pub(crate) ruling: Ruling,
}

impl Stopped {
    pub(crate) fn denied(status: StatusCode, ruling: Ruling) -> Self {
        Self { status, verdict: Verdict::Denied, ruling }
    }
}

/// A refusal by no rule of the policy's.
pub(crate) fn own(rule: &str, reason: String) -> Ruling {
    Ruling { decision: Decision::Deny, rule: rule.into(), source: "airlock".into(), reason }
}

/// Who reads them: HTTP/1 and HTTP/2, within bounds.
pub(crate) fn server() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .preserve_header_case(true)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX))
        .max_concurrent_streams(AT_ONCE)
        .max_send_buf_size(UNREAD);
    builder
}

/// What is to be judged of a request to `target`, where it can be said in one way, for this host, and is nothing that nobody may do.
pub(crate) fn judged(target: &Target, tls: bool, head: &mut Parts) -> Result<HttpRequest, Stopped> {
    is_for(target, tls, head).map_err(|why| Stopped::denied(StatusCode::MISDIRECTED_REQUEST, own("host check", why)))?;
    if head.method == Method::CONNECT {
        let ruling = own("host check", "no tunnel goes through another".into());
        return Err(Stopped::denied(StatusCode::METHOD_NOT_ALLOWED, ruling));
    }
    let path = |why| Stopped::denied(StatusCode::BAD_REQUEST, own("path check", why));
    let judged = HttpRequest::new(head.method.as_str(), head.uri.path()).map_err(|e| path(e.to_string()))?;
    otherwise::says(head).map_err(path)?;
    otherwise::one_host(head);
    if hops::coded(&head.headers) {
        let why = "the body is coded on its way, so it can't be said what it is".to_owned();
        return Err(Stopped::denied(StatusCode::NOT_IMPLEMENTED, own("body check", why)));
    }
    if let Some(forge) = forges::writes(target, &judged) {
        let why = format!("on {forge} this writes, or makes a way to; {}", doors::HOW);
        return Err(Stopped::denied(StatusCode::FORBIDDEN, own("git.forge", why)));
    }
    if doors::pushes(judged.method(), judged.path(), head.uri.query()) {
        return Err(Stopped::denied(StatusCode::FORBIDDEN, own("git.push", doors::HOW.into())));
    }
    Ok(judged)
}

/// A head as it goes on: by what was judged, and by nothing else of its address.
pub(crate) fn onward(judged: &HttpRequest, authority: &str, switches: bool, head: &mut Parts) -> Result<(), Stopped> {
    let bad = |rule, why| Stopped::denied(StatusCode::BAD_REQUEST, own(rule, why));
    let query = head.uri.query().map_or_else(String::new, |q| format!("?{q}"));
    head.uri = format!("{}{query}", judged.path())
        .parse()
        .map_err(|e: hyper::http::uri::InvalidUri| bad("path check", e.to_string()))?;
    head.version = hyper::Version::HTTP_11;
    hops::strip(&mut head.headers, switches);
    let host = HeaderValue::from_str(authority).map_err(|e| bad("host check", e.to_string()))?;
    head.headers.insert(HOST, host);
    Ok(())
}

/// The host of a target as a request names it.
pub(crate) fn authority(target: &Target, tls: bool) -> String {
    if target.port == usual(tls) { target.to.to_string() } else { target.to_string() }
}

fn usual(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Whether a request names this host and no other, wherever it names one.
fn is_for(target: &Target, tls: bool, request: &Parts) -> Result<(), String> {
    let mut named: Vec<String> = Vec::new();
    if let Some(authority) = request.uri.authority() {
        named.push(authority.as_str().to_owned());
    }
    for host in request.headers.get_all(HOST) {
        named.push(String::from_utf8_lossy(host.as_bytes()).into_owned());
    }
    if named.is_empty() {
        return Err("the request names no host".into());
    }
    for name in named {
        let with_port = if Target::parse(&name).is_ok() { name.clone() } else { format!("{name}:{}", usual(tls)) };
        if Target::parse(&with_port).ok().as_ref() != Some(target) {
            let name: String = name.chars().take(260).collect();
            return Err(format!("a request for {name:?} on a connection that was judged for {target}"));
        }
    }
    Ok(())
}

/// A request as it was judged, and its address and headers as they would go on.
pub type Onward = (HttpRequest, String, HeaderMap);

/// Reads the heads in what a program sends on one connection, HTTP/1 or HTTP/2, as a run does; gives those that can be judged. For
/// whoever wants to try it: nothing is sent anywhere.
pub async fn heads(target: &Target, bytes: &[u8]) -> Vec<Onward> {
    let (mut program, inside) = tokio::io::duplex(bytes.len().max(1) + 64);
    let found = Arc::<Mutex<Vec<Onward>>>::default();
    let (target, kept) = (target.clone(), Arc::clone(&found));
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (mut head, _) = request.into_parts();
        if let Ok(judged) = judged(&target, false, &mut head)
            && onward(&judged, &authority(&target, false), false, &mut head).is_ok()
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((judged, head.uri.to_string(), head.headers));
        }
        std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new())))
    });
    let builder = server();
    let served = builder.serve_connection(TokioIo::new(inside), service);
    let send = async {
        drop(program.write_all(bytes).await);
        // An end that comes at once is taken for one of all that came.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        drop(program.shutdown().await);
        // What is answered is nobody's business, but must not hold anything up.
        drop(tokio::io::copy(&mut program, &mut tokio::io::sink()).await);
    };
    drop(tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(served, send) }).await);
    std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    async fn read(bytes: &[u8]) -> Vec<String> {
        let found = heads(&Target::parse("api.test:80").unwrap(), bytes).await;
        found.iter().map(|(judged, uri, headers)| format!("{} {uri} {}", judged.method(), headers.len())).collect()
    }

    #[tokio::test]
    async fn p4_heads_of_both_versions_are_read_in_one_way() {
        let one = b"GET /a%2Db?c=1 HTTP/1.1\r\nHost: API.test:80\r\nConnection: close, x-y\r\nX-Y: z\r\nX-Forwarded-Host: other.test\r\n\r\n";
        assert_eq!(read(one).await, ["GET /a-b?c=1 1"], "nothing goes on but its host");
        // A preface, empty settings, and a head of `:method GET`, `:scheme http`, `:path /`, `:authority api.test`.
        let fields = [&[0x82, 0x86, 0x84, 0x41, 8], b"api.test".as_slice()].concat();
        let two = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
            &[0, 0, 0, 4, 0, 0, 0, 0, 0],
            &[0, 0, 13, 1, 5, 0, 0, 0, 1],
            &fields,
        ];
        assert_eq!(read(&two.concat()).await, ["GET / 1"]);
        for odd in [
            "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
            "CONNECT api.test:80 HTTP/1.1\r\nHost: api.test\r\n\r\n",
            "GET /../x HTTP/1.1\r\nHost: api.test\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(odd.as_bytes()).await, [] as [String; 0], "{odd:?}");
        }
    }
}
