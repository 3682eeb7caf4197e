//! The way in: a page that a program of the jail serves, in the person's own browser.
//!
//! Who may look is whoever holds a link of one use: it is traded for a cookie that no other site's pages send along. Nothing of
//! the person's goes in: no cookie that was not set here, no authorization. What the page does in the browser is the page's; it
//! can reach the Internet from there.

use crate::body::{AnyBody, words};
use crate::hops;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION, SET_COOKIE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::AddressFamily;
use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Bytes of a request's head.
const HEAD: usize = 64 << 10;
/// Between connecting and a whole head.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a program inside may take to accept.
const ACCEPT: Duration = Duration::from_secs(5);
/// Connections of browsers to all ports of a run at a time, and names of cookies that are remembered of one.
const BROWSERS: usize = 64;
const COOKIES: usize = 256;
/// How long a request waits for a connection to the inside, and one direction of a WebSocket for the end of the other.
const ROOM: Duration = Duration::from_secs(10);
/// Bytes that a server may send before the head of its answer has come: informational answers, of which there may be many.
const BEFORE: u64 = 1 << 20;
/// Tries to find a port that is free on both loopback addresses.
const PORTS: usize = 20;
/// Links that were given out and not used yet.
const LINKS: usize = 16;
/// What the cookie's name begins with that stands for a used link; the port follows, as browsers send cookies to every port.
const SESSION: &str = "airlock-preview-";
/// The key of a link.
const LINK: &str = "airlock";

/// Sockets of the jail's own network, each for one connection at a time.
#[derive(Debug)]
pub struct Inward {
    v4: Arc<Pool>,
    v6: Arc<Pool>,
    any: bool,
    browsers: Arc<Semaphore>,
}

/// Those of one family.
#[derive(Debug)]
struct Pool {
    free: Mutex<Vec<OwnedFd>>,
    places: Arc<Semaphore>,
    loopback: IpAddr,
}

impl Pool {
    fn of(sockets: Vec<OwnedFd>, loopback: IpAddr) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(sockets.len()));
        Arc::new(Self { free: Mutex::new(sockets), places, loopback })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(self: &Arc<Self>, port: u16) -> io::Result<Inner> {
        let place = tokio::time::timeout(ROOM, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| io::Error::other("every connection to it is in use"))?.map_err(io::Error::other)?;
        let socket = self.lock().pop().ok_or(io::ErrorKind::NotFound)?;
        let own = socket.try_clone();
        let lent = Lent { socket: Some(socket), of: Arc::clone(self), _place: place };
        let dialled = TcpSocket::from_std_stream(own?.into()).connect((self.loopback, port).into());
        let stream = tokio::time::timeout(ACCEPT, dialled).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(Inner { stream, _lent: lent, left: Arc::new(AtomicU64::new(BEFORE)) })
    }
}

impl Inward {
    /// `sockets` are TCP of either family, non-blocking and not connected.
    pub fn new(sockets: Vec<OwnedFd>) -> Self {
        let is_v4 = |s: &OwnedFd| rustix::net::sockopt::socket_domain(s).is_ok_and(|d| d == AddressFamily::INET);
        let any = !sockets.is_empty();
        let (v4, v6) = sockets.into_iter().partition(is_v4);
        let browsers = Arc::new(Semaphore::new(BROWSERS));
        Self { any, browsers, v4: Pool::of(v4, Ipv4Addr::LOCALHOST.into()), v6: Pool::of(v6, Ipv6Addr::LOCALHOST.into()) }
    }

    /// Whether there are any.
    pub fn leads_in(&self) -> bool {
        self.any
    }

    /// Connects to a port of the jail's loopback: a server may listen on either address alone.
    async fn connect(&self, port: u16) -> io::Result<Inner> {
        match self.v4.connect(port).await {
            Ok(inner) => Ok(inner),
            Err(first) => self.v6.connect(port).await.map_err(|_| first),
        }
    }
}

/// A socket that goes back, with nothing of its connection left, and then its place.
struct Lent {
    socket: Option<OwnedFd>,
    of: Arc<Pool>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        match disconnected(&socket) {
            Ok(()) => self.of.lock().push(socket),
            Err(e) => tracing::warn!(error = %e, "a socket of the way in is lost"),
        }
    }
}

/// Takes a socket from its connection: it can be used for another.
fn disconnected(socket: &OwnedFd) -> io::Result<()> {
    rustix::net::connect_unspec(socket)?;
    // What the old connection ended with is nothing to the next one.
    _ = rustix::net::sockopt::socket_error(socket)?;
    Ok(())
}

/// A connection to a program inside.
struct Inner {
    stream: TcpStream,
    _lent: Lent,
    /// Bytes that may still come; without bound once the head of an answer is there.
    left: Arc<AtomicU64>,
}

impl AsyncRead for Inner {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = (buf.filled().len() - before) as u64;
        let within = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(came) };
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => read,
            Err(_) => Poll::Ready(Err(io::Error::other("it sent too much before an answer"))),
        }
    }
}

impl AsyncWrite for Inner {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// One port of the jail, served to the person's browser until this is dropped.
#[derive(Debug)]
pub struct Preview {
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    inward: Arc<Inward>,
    port: u16,
    /// `NAME.localhost:PORT`, as the browser knows it.
    host: String,
    /// Name of the cookie that stands for a used link.
    cookie: String,
    session: String,
    links: Mutex<Vec<String>>,
    cookies: Mutex<HashSet<Vec<u8>>>,
    random: fn() -> String,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("port", &self.port).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Preview {
    /// Begins to serve `port`. `name` is a label of a host name, `random` gives words that nobody guesses.
    pub fn open(inward: Arc<Inward>, port: u16, name: &str, random: fn() -> String) -> io::Result<Self> {
        let (v4, v6) = listeners()?;
        let at = v4.local_addr()?.port();
        let shared = Arc::new(Shared {
            inward,
            port,
            host: format!("{name}.localhost:{at}"),
            cookie: format!("{SESSION}{at}"),
            session: random(),
            links: Mutex::default(),
            cookies: Mutex::default(),
            random,
        });
        let mut serving = JoinSet::new();
        for listener in [Some(v4), v6].into_iter().flatten() {
            listener.set_nonblocking(true)?;
            serving.spawn(accept(TcpListener::from_std(listener)?, Arc::clone(&shared)));
        }
        Ok(Self { shared, _serving: serving })
    }

    /// A link for one use.
    pub fn link(&self) -> String {
        let link = (self.shared.random)();
        let mut links = self.shared.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= LINKS {
            links.remove(0);
        }
        links.push(link.clone());
        format!("http://{}/?{LINK}={link}", self.shared.host)
    }
}

/// One port on both loopback addresses: a browser tries either first, and who else held the other would be sent the link.
fn listeners() -> io::Result<(StdListener, Option<StdListener>)> {
    for _ in 0..PORTS {
        let v4 = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        match StdListener::bind((Ipv6Addr::LOCALHOST, v4.local_addr()?.port())) {
            Ok(v6) => return Ok((v4, Some(v6))),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            // The machine has none.
            Err(_) => return Ok((v4, None)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "every port that was tried is taken on the other loopback address"))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut browsers = JoinSet::new();
    loop {
        while browsers.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                // A stranger takes no place of the person's.
                let own = stream.local_addr().is_ok_and(|at| crate::peer::is_own(from, at));
                let Some(place) = own.then(|| Arc::clone(&shared.inward.browsers).try_acquire_owned().ok()).flatten() else {
                    continue;
                };
                let shared = Arc::clone(&shared);
                browsers.spawn(async move {
                    shared.serve(stream).await;
                    drop(place);
                });
            }
            // No descriptor is left for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let it = Arc::clone(&self);
        let service = service_fn(move |request| {
            let it = Arc::clone(&it);
            async move { Ok::<_, Infallible>(it.answer(request).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD).preserve_header_case(true);
        if let Err(e) = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
            tracing::debug!("a browser's connection broke off: {e}");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<AnyBody> {
        let named = request.headers().get(HOST).is_some_and(|h| h.as_bytes().eq_ignore_ascii_case(self.host.as_bytes()));
        // A form of the address that names a host is a proxy's.
        if !named || request.uri().authority().is_some() || request.method() == Method::CONNECT {
            return said(StatusCode::MISDIRECTED_REQUEST, "This is a preview of another name.");
        }
        if let Some(link) = asked(request.uri().query()) {
            return self.enter(link, request.uri().path());
        }
        if !self.known(request.headers()) {
            return said(StatusCode::FORBIDDEN, "This preview is opened by a link of its own: open it from Airlock again.");
        }
        self.forward(request).await.unwrap_or_else(|e| {
            let port = self.port;
            said(StatusCode::BAD_GATEWAY, &format!("Nothing in the sandbox answers on port {port}: {e}. Is the server running?"))
        })
    }

    /// Trades a link for the cookie.
    fn enter(&self, link: &str, path: &str) -> Response<AnyBody> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = links.iter().position(|l| same(l.as_bytes(), link.as_bytes())) else {
            return said(StatusCode::FORBIDDEN, "This link was used before: open the preview from Airlock again.");
        };
        links.remove(index);
        let mut response = said(StatusCode::SEE_OTHER, "");
        let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie, self.session);
        // `//host` would be another host's.
        let path = format!("/{}", path.trim_start_matches(['/', '\\']));
        for (name, value) in [(SET_COOKIE, cookie), (LOCATION, path)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    fn known(&self, headers: &HeaderMap) -> bool {
        cookies(headers).any(|(name, value)| name == self.cookie.as_bytes() && same(value, self.session.as_bytes()))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> io::Result<Response<AnyBody>> {
        let switches = request.version() == Version::HTTP_11 && hops::asks_for_web_socket(request.headers());
        let outside = switches.then(|| hyper::upgrade::on(&mut request));
        let inner = self.inward.connect(self.port).await?;
        let left = Arc::clone(&inner.left);
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD)
            .preserve_header_case(true)
            .handshake(TokioIo::new(inner))
            .await
            .map_err(io::Error::other)?;
        let connection = tokio::spawn(connection.with_upgrades());
        let (mut head, body) = request.into_parts();
        hops::strip(&mut head.headers, switches);
        self.strip(&mut head.headers);
        let ends = Ends(connection);
        let request = Request::from_parts(head, body);
        let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
        left.store(u64::MAX, Ordering::Relaxed);
        self.learn(response.headers_mut());
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(outside) = outside.filter(|_| switched && hops::asks_for_web_socket(response.headers())) {
            let inside = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(outside), Ok(inside)) = (outside.await, inside.await) {
                    carry(TokioIo::new(outside), TokioIo::new(inside)).await;
                }
                drop(ends);
            });
            let (mut head, _) = response.into_parts();
            hops::strip(&mut head.headers, true);
            return Ok(Response::from_parts(head, words(String::new())));
        }
        if switched {
            return Err(io::Error::other("it switched to a protocol that it was not asked for"));
        }
        let (mut head, body) = response.into_parts();
        hops::strip(&mut head.headers, false);
        let body = body.map_err(crate::body::Broken::from).map_frame(move |frame| {
            let _ = &ends;
            frame
        });
        Ok(Response::from_parts(head, body.boxed()))
    }

    /// Takes what is the person's, and not this page's, out of a request.
    fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(PROXY_AUTHORIZATION);
        let own = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<Vec<u8>> =
            cookies(headers).filter(|(name, _)| own.contains(*name)).map(|(name, value)| [name, b"=", value].concat()).collect();
        headers.remove(COOKIE);
        if let Ok(kept) = HeaderValue::from_bytes(&kept.join(&b"; "[..]))
            && !kept.is_empty()
        {
            headers.insert(COOKIE, kept);
        }
    }

    /// Remembers the cookies that the page sets, and keeps them to its own name.
    fn learn(&self, headers: &mut HeaderMap) {
        let set: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
        headers.remove(SET_COOKIE);
        let mut own = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        for cookie in set {
            let mut parts = cookie.as_bytes().split(|b| *b == b';');
            let first = parts.next().unwrap_or_default();
            let name = first.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
            let ours = name.starts_with(SESSION.as_bytes());
            if ours || name.is_empty() || (own.len() >= COOKIES && !own.contains(name)) {
                continue;
            }
            own.insert(name.to_vec());
            // With a domain it would go to other servers of this machine.
            let domain = |p: &&[u8]| !p.trim_ascii_start().get(..6).is_some_and(|p| p.eq_ignore_ascii_case(b"domain"));
            let kept = std::iter::once(first).chain(parts.filter(domain)).collect::<Vec<_>>().join(&b";"[..]);
            if let Ok(value) = HeaderValue::from_bytes(&kept) {
                headers.append(SET_COOKIE, value);
            }
        }
    }
}

/// Carries both ways until one ends, and the other a little longer: a socket that goes in is not held by a program that never ends.
async fn carry<A, B>(outside: A, inside: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut from_browser, mut to_browser) = tokio::io::split(outside);
    let (mut from_server, mut to_server) = tokio::io::split(inside);
    let there = async {
        // How it ended is the two programs' matter.
        drop(tokio::io::copy(&mut from_browser, &mut to_server).await);
        drop(to_server.shutdown().await);
    };
    let back = async {
        drop(tokio::io::copy(&mut from_server, &mut to_browser).await);
        drop(to_browser.shutdown().await);
    };
    tokio::pin!(there, back);
    tokio::select! {
        () = &mut there => drop(tokio::time::timeout(ROOM, back).await),
        () = &mut back => drop(tokio::time::timeout(ROOM, there).await),
    }
}

/// Ends a connection to the inside with what came of it.
struct Ends(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn asked(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix(LINK)?.strip_prefix('='))
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let all = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    all.filter_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|b| *b == b'=')?;
        Some((&pair[..at], &pair[at + 1..]))
    })
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

fn said(status: StatusCode, text: &str) -> Response<AnyBody> {
    let mut response = Response::new(words(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::io::AsyncReadExt as _;

    /// So many of each family.
    fn sockets(count: usize) -> Vec<OwnedFd> {
        use rustix::net::{SocketFlags, SocketType};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let one = |family| rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
        (0..count).flat_map(|_| [one(AddressFamily::INET), one(AddressFamily::INET6)]).collect()
    }

    fn random() -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        format!("secret{}", NEXT.fetch_add(1, Ordering::SeqCst))
    }

    /// A server that answers each request with its head, sets two cookies, and speaks to who switches.
    async fn server() -> u16 {
        server_at("127.0.0.1:0").await
    }

    async fn server_at(address: &str) -> u16 {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let text = String::from_utf8(head).unwrap();
                    if text.to_lowercase().contains("upgrade: websocket") {
                        stream
                            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                            .await
                            .unwrap();
                        let mut word = [0; 4];
                        stream.read_exact(&mut word).await.unwrap();
                        stream.write_all(&[b"got ".as_slice(), &word].concat()).await.unwrap();
                        // It never ends of itself.
                        return std::future::pending().await;
                    }
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nSet-Cookie: page=1; Domain=localhost; Path=/\r\nSet-Cookie: airlock-preview-1=mine\r\nContent-Length: {}\r\n\r\n",
                        text.len()
                    );
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream.write_all(text.as_bytes()).await.unwrap();
                });
            }
        });
        port
    }

    /// Head and body of the answer to a request that ends the connection.
    async fn get(at: &str, path: &str, headers: &str) -> String {
        let port: u16 = at.rsplit(':').next().unwrap().parse().unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// The host of a link, its path with the word, and the cookie that it is traded for.
    async fn entered(preview: &Preview) -> (String, String, String) {
        let link = preview.link();
        let (host, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (host, path) = (host.to_owned(), format!("/{path}"));
        let answer = get(&host, &path, "").await;
        assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("HttpOnly; SameSite=Strict"), "{answer}");
        let cookie = answer.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap().to_owned();
        (host, path, cookie)
    }

    #[tokio::test]
    async fn p6_only_who_has_a_link_of_one_use_looks_in_and_brings_nothing_of_theirs() {
        let preview = Preview::open(Arc::new(Inward::new(sockets(2))), server().await, "abc", random).unwrap();
        let (host, path, cookie) = entered(&preview).await;
        assert!(host.starts_with("abc.localhost:"), "{host}");
        assert!(get(&host, &path, "").await.starts_with("HTTP/1.1 403"), "a link is for one use");
        assert!(get(&host, "/", "").await.starts_with("HTTP/1.1 403"), "no cookie, no page");
        assert!(
            get(&host, "/", &format!("Cookie: {}=secret\r\n", cookie.split('=').next().unwrap()))
                .await
                .starts_with("HTTP/1.1 403"),
            "nor a guessed one"
        );
        let other = host.replace("abc", "abd");
        assert!(get(&other, "/", &format!("Cookie: {cookie}\r\n")).await.starts_with("HTTP/1.1 421"), "nor under another name");
        let own = format!(
            "Cookie: other=theirs; {cookie}; page=1\r\nAuthorization: Basic eDp5\r\nProxy-Authorization: x\r\nX-Kept: yes\r\n"
        );
        let first = get(&host, "/a?b=c", &own).await;
        assert!(
            first.starts_with("HTTP/1.1 200") && first.contains("GET /a?b=c HTTP/1.1") && first.contains("X-Kept: yes"),
            "{first}"
        );
        for word in ["theirs", "airlock-preview", "Basic", "roxy-", "page=1\r\nConn", "Domain", "domain"] {
            assert!(!first.contains(word), "`{word}` goes neither in nor out: {first}");
        }
        assert!(!first.to_lowercase().contains("\r\ncookie:"), "nothing was set here before: {first}");
        let odd = format!("Cookie: theme=\u{fc}; {cookie}\r\n");
        assert!(get(&host, "/", &odd).await.starts_with("HTTP/1.1 200"), "a cookie in another charset shuts nobody out");
        let second = get(&host, "/", &own).await;
        assert!(second.contains("page=1\r\n") && !second.contains("theirs"), "what the page set is its own: {second}");
    }

    #[tokio::test]
    async fn a_page_has_web_sockets_and_more_requests_than_sockets() {
        let inward = Arc::new(Inward::new(sockets(2)));
        let preview = Preview::open(Arc::clone(&inward), server().await, "abc", random).unwrap();
        let (host, _, cookie) = entered(&preview).await;
        let mine = format!("Cookie: {cookie}\r\n");
        let all = (0..30).map(|n| {
            let (host, mine) = (host.clone(), mine.clone());
            tokio::spawn(async move { get(&host, &format!("/{n}"), &mine).await })
        });
        for (n, one) in all.collect::<Vec<_>>().into_iter().enumerate() {
            let answer = one.await.unwrap();
            assert!(answer.contains(&format!("GET /{n} HTTP/1.1")), "{n}: {answer}");
        }
        let port: u16 = host.rsplit(':').next().unwrap().parse().unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let ask = format!("GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{mine}\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut got = vec![0; 2048];
        let n = stream.read(&mut got).await.unwrap();
        assert!(got[..n].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&got[..n]));
        stream.write_all(b"word").await.unwrap();
        let mut back = [0; 8];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"got word");
        drop(stream);
        let deadline = std::time::Instant::now() + 3 * ROOM;
        while inward.v4.lock().len() < 2 && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(inward.v4.lock().len(), 2, "every socket came back");
        drop(preview);
        let gone = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        assert!(gone.is_err(), "it is closed with the run");
    }

    #[tokio::test]
    async fn p6_both_addresses_of_a_port_are_this_ones() {
        let (v4, v6) = listeners().unwrap();
        let port = v4.local_addr().unwrap().port();
        if let Some(v6) = v6 {
            assert_eq!(v6.local_addr().unwrap().port(), port);
            assert!(StdListener::bind((Ipv6Addr::LOCALHOST, port)).is_err());
        }
    }

    #[tokio::test]
    async fn p8_a_server_that_says_wait_without_end_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                while stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)).await.is_ok() {}
            }
        });
        let preview = Preview::open(Arc::new(Inward::new(sockets(1))), port, "abc", random).unwrap();
        let (host, _, cookie) = entered(&preview).await;
        let answer = tokio::time::timeout(Duration::from_secs(20), get(&host, "/", &format!("Cookie: {cookie}\r\n"))).await;
        assert!(answer.expect("it comes to an end").starts_with("HTTP/1.1 502"));
    }

    #[tokio::test]
    async fn a_server_may_listen_on_either_address_alone() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let port = server_at(address).await;
            let preview = Preview::open(Arc::new(Inward::new(sockets(1))), port, "abc", random).unwrap();
            let (host, _, cookie) = entered(&preview).await;
            for round in 0..5 {
                let answer = get(&host, "/", &format!("Cookie: {cookie}\r\n")).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{address} {round}: {answer}");
            }
        }
    }

    #[tokio::test]
    async fn where_nothing_listens_a_page_says_so() {
        let unused = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let preview = Preview::open(Arc::new(Inward::new(sockets(1))), unused, "abc", random).unwrap();
        let (host, _, cookie) = entered(&preview).await;
        let answer = get(&host, "/", &format!("Cookie: {cookie}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(&format!("port {unused}")), "{answer}");
        assert!(!Inward::new(Vec::new()).leads_in());
    }
}
