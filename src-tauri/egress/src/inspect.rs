//! A connection whose requests are read: TLS ends here, each request is judged by itself, and what is allowed goes on over a
//! connection of this process's own.

use crate::arbiter::{Arbiter, Permit, Wanted};
use crate::attach::{self, Next, Vault};
use crate::authority::Authority;
use crate::body::{self, AnyBody};
use crate::budget::{Budget, Spent, Way};
use crate::doors;
use crate::forges::{self, Does};
use crate::forward::Open;
use crate::gate::Gate;
use crate::heads::{self, HEAD, PATIENCE, Stopped, own};
use crate::hops;
use crate::roads::End;
use crate::scrub::{self, Needles};
use crate::signed::{self, Brought, Keys};
use crate::tokens::Tokens;
use crate::upstream::{Outside, Unanswered, Upstream};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use model::decision::{Decision, Ruling};
use model::event::{Http, Mode, Process, Verdict};
use policy::{Destination, HttpRequest, Leads, Target};
use secrets::Secret;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How much of a refused request's body is read.
const DRAINED: usize = 1 << 20;
/// Requests that all connections of a run may have under way together: each may hold a head and pieces of two bodies in memory.
pub(crate) const UNDER_WAY: usize = 512;
/// Lists of files that are in memory at once.
pub(crate) const LISTS: usize = 16;

/// What all inspected connections of a run share.
pub(crate) struct Reader {
    pub(crate) gate: Arc<Gate>,
    pub(crate) arbiter: Arc<dyn Arbiter>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) lists: Arc<Semaphore>,
}

/// One connection.
pub(crate) struct Read {
    reader: Arc<Reader>,
    target: Target,
    tls: bool,
    who: Process,
    upstream: Upstream,
    open: Arc<Open>,
    /// Whether the person let the whole host through for this connection.
    granted: bool,
    upgrades: Mutex<tokio::task::JoinSet<()>>,
}

/// What a connection was let in by.
pub(crate) struct Arrival {
    pub(crate) target: Target,
    pub(crate) leads: Leads,
    pub(crate) ruling: Ruling,
    pub(crate) ended: Option<watch::Receiver<bool>>,
    pub(crate) who: Process,
}

impl Reader {
    /// Serves a connection to its end.
    pub(crate) async fn serve(self: &Arc<Self>, inside: TcpStream, first: Vec<u8>, arrival: Arrival) {
        let Arrival { target, leads, ruling, ended, who } = arrival;
        let granted = ended.is_some();
        let open =
            Arc::new(Open::new(Arc::clone(&self.gate), &target, None, ruling, Some(who.clone()), (Mode::Inspect, Vec::new())));
        let served = self.speak(inside, first, &target, leads, who, &open, granted);
        tokio::select! {
            ended = served => if let Err(e) = ended {
                open.note(e);
            },
            spent = self.gate.budget.used_up() => open.spent(&spent),
            () = crate::forward::over(ended) => open.cut(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one connection's own things, taken apart once")]
    async fn speak(
        self: &Arc<Self>,
        mut inside: TcpStream,
        mut first: Vec<u8>,
        target: &Target,
        leads: Leads,
        who: Process,
        open: &Arc<Open>,
        granted: bool,
    ) -> Result<(), String> {
        inside.set_nodelay(true).unwrap_or_else(|e| tracing::debug!("options of a connection not set: {e}"));
        if first.is_empty() {
            first.reserve(HEAD);
            match inside.read_buf(&mut first).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
        let tls = first.first() == Some(&0x16);
        if !tls && target.port == 443 {
            return Err("443 is for TLS; a rule with `protocol = \"tcp\"` lets anything else through".into());
        }
        let (read, write) = inside.into_split();
        let whole = tokio::io::join(std::io::Cursor::new(first).chain(read), write);
        let upstream = Upstream::new(target.clone(), leads, tls, Arc::clone(&self.outside));
        let one = Arc::new(Read {
            reader: Arc::clone(self),
            target: target.clone(),
            tls,
            who,
            upstream,
            open: Arc::clone(open),
            granted,
            upgrades: Mutex::default(),
        });
        if !tls {
            return one.http(whole).await;
        }
        let hello = tokio_rustls::LazyConfigAcceptor::new(rustls::server::Acceptor::default(), whole);
        let hello = tokio::time::timeout(PATIENCE, hello).await.map_err(|_| "no TLS hello came".to_owned())?;
        let hello = hello.map_err(|e| format!("no TLS hello: {e}"))?;
        let name = target.to.to_string();
        let asked = hello.client_hello().server_name().map(str::to_ascii_lowercase);
        if let (Some(asked), Destination::Name(_)) = (&asked, &target.to)
            && *asked != name
        {
            return Err(format!("TLS for {asked:?} on a connection that was judged for {name}"));
        }
        let config = self.authority.server(&name).map_err(|e| e.to_string())?;
        let stream = tokio::time::timeout(PATIENCE, hello.into_stream(config)).await;
        let stream = stream.map_err(|_| "the TLS handshake took too long".to_owned())?;
        let stream =
            stream.map_err(|e| format!("the TLS handshake failed inside, maybe as the program trusts its own list only: {e}"))?;
        one.http(stream).await
    }
}

impl Read {
    async fn http<S>(self: Arc<Self>, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = heads::server();
        let it = Arc::clone(&self);
        let service = service_fn(move |request| {
            let it = Arc::clone(&it);
            // Boxed, as the compiler can't see through the whole of it at once.
            let answer: Pin<Box<dyn Future<Output = Result<Response<AnyBody>, Infallible>> + Send>> =
                Box::pin(async move { Ok(it.answer(request).await) });
            answer
        });
        let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        // What was switched to another protocol goes on by itself.
        let mut upgrades = std::mem::take(&mut *self.upgrades.lock().unwrap_or_else(PoisonError::into_inner));
        while upgrades.join_next().await.is_some() {}
        served.map_err(|e| format!("the connection broke off: {e}"))
    }

    /// One request, from its head to the head of its answer.
    async fn answer(&self, mut request: Request<Incoming>) -> Response<AnyBody> {
        let begun = Instant::now();
        let shown = (request.method().to_string(), request.uri().path().chars().take(2048).collect::<String>());
        let switches = request.version() == Version::HTTP_11
            && *request.method() == Method::GET
            && hops::asks_for_web_socket(request.headers());
        let upgrade = switches.then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let mut body = Some(body);
        let told = |status: StatusCode, verdict, ruling: &Ruling| {
            let http = Http {
                tls: self.tls,
                method: shown.0.clone(),
                path: shown.1.clone(),
                status: Some(status.as_u16()),
                millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            };
            self.tell(verdict, ruling, http);
        };
        let answered = match Arc::clone(&self.reader.requests).try_acquire_owned() {
            Ok(place) => self.judged(head, &mut body, upgrade, Arc::new(place), &shown).await,
            Err(_) => Err(self.too_many()),
        };
        match answered {
            Ok((response, ruling)) => {
                told(response.status(), Verdict::Allowed, &ruling);
                response
            }
            Err(Stopped { status, verdict, ruling }) => {
                told(status, verdict, &ruling);
                if let Some(body) = body {
                    drain(body).await;
                }
                refusal(status, &ruling)
            }
        }
    }

    /// Tells a request. Who was let through by the policy went where the connection ends; who was not went nowhere.
    fn tell(&self, verdict: Verdict, ruling: &Ruling, http: Http) {
        let end = self.upstream.end();
        let said = end.as_ref().filter(|_| verdict != Verdict::Denied).map(|end| end.told(&ruling.reason));
        let ruling = Ruling { reason: said.unwrap_or_else(|| ruling.reason.clone()), ..ruling.clone() };
        let address = end.as_ref().and_then(End::address);
        self.reader.gate.tell_request(&self.target, address, verdict, &ruling, http, Some(self.who.clone()));
    }

    async fn judged(
        &self,
        mut head: Parts,
        body: &mut Option<Incoming>,
        upgrade: Option<hyper::upgrade::OnUpgrade>,
        place: Arc<OwnedSemaphorePermit>,
        shown: &(String, String),
    ) -> Result<(Response<AnyBody>, Ruling), Stopped> {
        let refused = Stopped::denied;
        let judged = heads::judged(&self.target, self.tls, &mut head)?;
        let (ruling, shares, ended) = self.permitted(&judged).await?;
        let ended = ended.map(one_life);

        let authority = heads::authority(&self.target, self.tls);
        heads::onward(&judged, &authority, upgrade.is_some(), &mut head)?;
        let attached = self.attach(&judged, &mut head, &place).await;
        let attached = attached.map_err(|why| refused(StatusCode::FORBIDDEN, own("credential", why)))?;
        // What could come behind its body stays inside.
        head.headers.remove(hyper::header::TRAILER);
        // What a head says leaves too.
        let spent = |spent: Spent| refused(StatusCode::FORBIDDEN, own(&spent.key(), spent.to_string()));
        self.open.take(Way::Out, body::of_request(&head), &shares).map_err(spent)?;
        let passing = |body, way| {
            let ended: body::Ended = Box::pin(crate::forward::over(ended.clone()));
            let (open, shares) = (Arc::clone(&self.open), shares.clone());
            body::Passing { body, way, open, shares, ended, _place: Arc::clone(&place) }.boxed()
        };
        let carried = body.take().map(|body| passing(body, Way::Out));
        let request = Request::from_parts(head, carried.unwrap_or_else(|| body::words(String::new())));
        let (mut request, known) = self.said(request, &judged).await?;
        let mut needles = attached.needles;
        if let Some(signing) = attached.signing {
            let signed = signed::signed(request, &authority, signing, known, &self.reader.lists).await;
            let failed = |e| refused(StatusCode::FORBIDDEN, own("credential", format!("it can't be signed: {e}")));
            let (back, signature) = signed.map_err(failed)?;
            request = back;
            needles.iter_mut().for_each(|n| n.add_one(signature.clone().into_bytes()));
        }
        let mut untold = Untold { read: self, shown, ruling: Some(ruling.clone()) };
        // Its end first: it may have come while the body was read.
        let sent = tokio::select! {
            biased;
            () = crate::forward::over(ended.clone()) => Err(Unanswered::Ended),
            sent = self.upstream.send(request) => sent,
        };
        untold.ruling = None;
        let response = sent.map_err(|e| {
            let ruling = Ruling { reason: format!("allowed, but {e}"), ..ruling.clone() };
            let status = match e {
                Unanswered::Dial(crate::roads::Failed::Closed(reason)) => {
                    return refused(StatusCode::FORBIDDEN, own("address check", reason));
                }
                Unanswered::Full => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            Stopped { status, verdict: Verdict::Noted, ruling }
        })?;
        self.open.take(Way::In, body::of_headers(response.headers()), &shares).map_err(spent)?;
        if let Some((tokens, token)) = attached.bears.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
            tokens.refused(&token);
        }
        let switched = upgrade.map(|inside| Switched { inside, shares: shares.clone(), ended: ended.clone() });
        let response = self.back(response, switched, needles, |body| passing(body, Way::In));
        let response = response.map_err(|why| refused(StatusCode::BAD_GATEWAY, own("answer check", why)))?;
        Ok((response, ruling))
    }

    /// Looks into bodies that say what is done; gives such a one as well.
    async fn said(&self, request: Request<AnyBody>, judged: &HttpRequest) -> Result<(Request<AnyBody>, Option<Bytes>), Stopped> {
        let denied = Stopped::denied;
        let (list, graphql) = (doors::is_list(&request), forges::is_graphql(&self.target, judged));
        if !list && !graphql {
            return Ok((request, None));
        }
        let query = request.uri().query().map(str::to_owned);
        let kind = request.headers().get(CONTENT_TYPE).and_then(|t| t.to_str().ok()).unwrap_or_default();
        let json = !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/graphql");
        let read = doors::whole(request, &self.reader.lists, doors::LIST).await;
        let (request, body) = read.map_err(|e| denied(StatusCode::PAYLOAD_TOO_LARGE, own("git.push", e.to_string())))?;
        if list && doors::uploads(&body) {
            return Err(denied(StatusCode::FORBIDDEN, own("git.push", doors::HOW.into())));
        }
        if !graphql {
            return Ok((request, Some(body)));
        }
        match forges::does(&body, query.as_deref(), json) {
            Does::Reads => {}
            Does::Writes(why) => {
                return Err(denied(StatusCode::FORBIDDEN, own("git.forge", format!("{why}; {}", doors::HOW))));
            }
            Does::Asks(names) => {
                // Its own words, so that a word on one mutation is none on another.
                let path = format!("{}:mutation({})", judged.path(), names.join(","));
                let asked = HttpRequest::new(judged.method(), &path);
                let asked = asked.map_err(|e| denied(StatusCode::BAD_REQUEST, own("path check", e.to_string())))?;
                let reason = "a mutation says or changes something there in your name".to_owned();
                let ruling = Ruling { decision: Decision::Ask, ..own("git.forge", reason) };
                self.ask(&asked, ruling, true).await?;
            }
        }
        Ok((request, Some(body)))
    }

    fn too_many(&self) -> Stopped {
        let why = format!("{UNDER_WAY} requests of this run are under way");
        self.reader.gate.recorder.limit_by("requests", why.clone(), Some(self.who.clone()));
        Stopped::denied(StatusCode::SERVICE_UNAVAILABLE, own("requests", why))
    }

    /// The policy's word, or the person's where it asks, with what it lets out and the end of it.
    async fn permitted(
        &self,
        judged: &HttpRequest,
    ) -> Result<(Ruling, Vec<Arc<Budget>>, Option<watch::Receiver<bool>>), Stopped> {
        let answer = self.reader.gate.request(&self.target, judged);
        let shares = self.reader.gate.shares(&answer.caps);
        let denied = |ruling| Stopped::denied(StatusCode::FORBIDDEN, ruling);
        match answer.ruling.decision {
            Decision::Allow => return Ok((answer.ruling, shares, None)),
            Decision::Deny => return Err(denied(answer.ruling)),
            // They let the host through, and no rule speaks of this request.
            Decision::Ask if self.granted && !answer.narrow => return Ok((answer.ruling, shares, None)),
            Decision::Ask => {}
        }
        let (ruling, ended) = self.ask(judged, answer.ruling, answer.narrow).await?;
        Ok((ruling, shares, Some(ended)))
    }

    /// The person's word on a request; on this one alone where it is `narrow`.
    async fn ask(&self, judged: &HttpRequest, asks: Ruling, narrow: bool) -> Result<(Ruling, watch::Receiver<bool>), Stopped> {
        let denied = |ruling| Stopped::denied(StatusCode::FORBIDDEN, ruling);
        let wanted = Wanted {
            target: self.target.clone(),
            request: Some(judged.clone()),
            by_host: !narrow,
            who: self.who.clone(),
            ruling: forges::marked(&asks, &self.target),
        };
        let mut asked = self.reader.arbiter.permit(wanted);
        let permit = match tokio::time::timeout(crate::held::AT_ONCE, &mut asked).await {
            Ok(known) => known.ok(),
            Err(_) => {
                let http =
                    Http { tls: self.tls, method: judged.method().into(), path: judged.path().into(), status: None, millis: 0 };
                let who = Some(self.who.clone());
                self.reader.gate.tell_request(&self.target, None, Verdict::Held, &asks, http, who);
                tokio::time::timeout(self.reader.gate.hold(), &mut asked).await.ok().and_then(Result::ok)
            }
        };
        match permit {
            Some(Permit::Granted { ruling, ended }) => Ok((ruling, ended)),
            Some(Permit::Refused(ruling)) => Err(denied(ruling)),
            None => {
                let reason = format!("nobody answered within {} s; the ask stays open", self.reader.gate.hold().as_secs());
                Err(denied(Ruling { reason, ..asks }))
            }
        }
    }

    /// Changes a request to a bound host; gives what is to be done for it later.
    async fn attach(
        &self,
        judged: &HttpRequest,
        request: &mut Parts,
        place: &Arc<OwnedSemaphorePermit>,
    ) -> Result<Later<'_>, String> {
        let Destination::Name(host) = &self.target.to else { return Ok(Later::default()) };
        let vault = &self.reader.vault;
        if !self.tls || !vault.bound(host, self.target.port) {
            return Ok(Later::default());
        }
        let (mut signing, mut bears) = (None, None);
        match vault.attach(host, self.target.port, judged, request).map_err(|e| e.0)? {
            Next::Nothing => {}
            Next::Sign(keys, brought) => signing = Some((keys, brought)),
            Next::Bear(tokens) => {
                let token = match tokens.ready() {
                    Some(token) => token,
                    None => self.fetched(tokens, place).await?,
                };
                attach::bear(&token, request).map_err(|e| e.to_string())?;
                bears = Some((tokens, token));
            }
        }
        Ok(Later { needles: Some(vault.needles_of(host)), signing, bears })
    }

    /// An access token from its endpoint, which is told. It goes on where this request is given up, with its place.
    async fn fetched(&self, tokens: &Arc<Tokens>, place: &Arc<OwnedSemaphorePermit>) -> Result<Arc<Secret>, String> {
        let (tokens, reader, to) = (Arc::clone(tokens), Arc::clone(&self.reader), self.target.to.to_string());
        let place = Arc::clone(place);
        let fetch = async move {
            let access = tokens.access(&reader.outside).await?;
            if access.fresh {
                let reason = format!("a refresh token was changed for an access token, outside, for {to}");
                let ruling = Ruling { decision: Decision::Allow, ..own("credential", reason) };
                let http = Http { tls: true, method: "POST".into(), path: tokens.path().into(), status: Some(200), millis: 0 };
                reader.gate.tell_request(&tokens.target(), None, Verdict::Allowed, &ruling, http, None);
            }
            drop(place);
            Ok(access.token)
        };
        tokio::spawn(fetch).await.unwrap_or_else(|_| Err("the way out is closing".into()))
    }

    /// The answer on its way back.
    fn back(
        &self,
        mut response: Response<Incoming>,
        switched: Option<Switched>,
        needles: Option<Needles>,
        passing: impl Fn(Incoming) -> AnyBody,
    ) -> Result<Response<AnyBody>, String> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(Switched { inside, shares, ended }) = switched.filter(|_| hops::asks_for_web_socket(response.headers()))
            else {
                return Err("the server switched to a protocol that it was not asked for".into());
            };
            let outside = hyper::upgrade::on(&mut response);
            let (mut head, _) = response.into_parts();
            hops::strip(&mut head.headers, true);
            if let Some(needles) = &needles {
                if head.headers.contains_key("sec-websocket-extensions") {
                    return Err("the server compresses what it was asked not to, so it can't be looked through".into());
                }
                scrub::head(&mut head, needles)?;
            }
            let open = Arc::clone(&self.open);
            let carry = async move {
                if let (Ok(inside), Ok(outside)) = (inside.await, outside.await) {
                    let sieve = needles.as_ref().map(Needles::sieve);
                    tokio::select! {
                        () = open.carry(TokioIo::new(inside), TokioIo::new(outside), &shares, sieve) => {}
                        () = crate::forward::over(ended) => {}
                    }
                }
            };
            self.upgrades.lock().unwrap_or_else(PoisonError::into_inner).spawn(carry);
            return Ok(Response::from_parts(head, body::words(String::new())));
        }
        let (mut head, body) = response.into_parts();
        if hops::coded(&head.headers) {
            return Err("the server's answer is coded on its way, so it can't be said what it is".into());
        }
        hops::strip(&mut head.headers, false);
        // It would lead to a server that was not judged, by a protocol that does not leave the jail.
        head.headers.remove(hyper::header::ALT_SVC);
        let body = passing(body);
        let Some(needles) = needles else { return Ok(Response::from_parts(head, body)) };
        scrub::response(head, body, &needles)
    }
}

/// What is left to do for a request to a bound host.
#[derive(Default)]
struct Later<'a> {
    /// What to take out of the answer.
    needles: Option<Needles>,
    signing: Option<(&'a Keys, Brought)>,
    /// What it bears, to be forgotten where the server does not take it.
    bears: Option<(&'a Arc<Tokens>, Arc<Secret>)>,
}

/// What a switch of protocol goes on with.
struct Switched {
    inside: hyper::upgrade::OnUpgrade,
    shares: Vec<Arc<Budget>>,
    ended: Option<watch::Receiver<bool>>,
}

/// What came to nothing before its answer was there, but left: told when it is dropped.
struct Untold<'a> {
    read: &'a Read,
    shown: &'a (String, String),
    ruling: Option<Ruling>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        let Some(ruling) = self.ruling.take() else { return };
        let (method, path) = self.shown.clone();
        self.read.tell(Verdict::Allowed, &ruling, Http { tls: self.read.tls, method, path, status: None, millis: 0 });
    }
}

/// A grant's end for one request: however many wait for it, it is one that lives by the grant.
fn one_life(ended: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (own, life) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            () = crate::forward::over(Some(ended)) => drop(own.send_replace(true)),
            () = own.closed() => {}
        }
    });
    life
}

/// Reads a request's body to its end, as far as it is small: some programs of HTTP/2 take an answer before that for a fault.
async fn drain(mut body: Incoming) {
    let all = async {
        let mut left = DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, bytes::Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // A body that does not come is not waited for.
    _ = tokio::time::timeout(Duration::from_secs(2), all).await;
}

fn refusal(status: StatusCode, ruling: &Ruling) -> Response<AnyBody> {
    let text = format!("Airlock: {} ({}, {})\n", ruling.reason, ruling.rule, ruling.source);
    let mut response = Response::new(body::words(text));
    *response.status_mut() = status;
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
