//! Connections to the one server that an inspected connection is for: made when a request is allowed, used again for the next.

use crate::authority::ALPN;
use crate::body::AnyBody;
use crate::roads::{Dialled, End, Failed, Roads};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::UPGRADE;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use policy::{Destination, Leads, Target};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections of HTTP/1 that one inspected connection may have at once.
const AT_ONCE: usize = 32;
/// Largest head of a response, in bytes.
const HEAD: usize = 64 * 1024;

/// What a server of HTTP/2 may send before its program read it, in bytes.
const WINDOW: u32 = 1 << 20;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] Failed),
    /// No TLS.
    #[error("TLS with {host} failed: {source}")]
    Tls {
        /// With whom.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// No HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// What permitted it has ended.
    #[error("what permitted it has ended")]
    Ended,
    /// No more connections.
    #[error("{AT_ONCE} requests are under way on this connection")]
    Full,
}

/// What every upstream needs.
pub(crate) struct Outside {
    pub(crate) roads: Arc<Roads>,
    pub(crate) tls: Arc<ClientConfig>,
    /// The same without HTTP/2, in which nothing is switched.
    pub(crate) switching: Arc<ClientConfig>,
}

impl Outside {
    pub(crate) fn new(roads: Arc<Roads>, roots: Arc<RootCertStore>) -> Self {
        let mut tls = client(roots);
        let mut switching = tls.clone();
        switching.alpn_protocols = vec![b"http/1.1".to_vec()];
        tls.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        Self { roads, tls: Arc::new(tls), switching: Arc::new(switching) }
    }
}

/// Who trusts these roots.
pub(crate) fn client(roots: Arc<RootCertStore>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    // The provider has both versions, so this can't fail; a config without roots trusts nobody.
    match builder.with_safe_default_protocol_versions() {
        Ok(builder) => builder.with_root_certificates(roots).with_no_client_auth(),
        Err(e) => unreachable!("{e}"),
    }
}

/// The system's roots, as its own programs trust them.
pub fn system_roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for e in &found.errors {
        tracing::warn!(error = %e, "a root certificate of the system can't be read");
    }
    let (good, bad) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(good, bad, "root certificates of the system");
    Arc::new(roots)
}

enum Sender {
    One(http1::SendRequest<AnyBody>),
    Many(http2::SendRequest<AnyBody>),
}

/// The server's end of one inspected connection.
pub(crate) struct Upstream {
    target: Target,
    leads: Leads,
    tls: bool,
    outside: Arc<Outside>,
    many: tokio::sync::Mutex<Option<http2::SendRequest<AnyBody>>>,
    idle: Mutex<Vec<http1::SendRequest<AnyBody>>>,
    one: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
    /// Where the last connection ends.
    end: Mutex<Option<End>>,
}

impl Upstream {
    pub(crate) fn new(target: Target, leads: Leads, tls: bool, outside: Arc<Outside>) -> Self {
        Self {
            target,
            leads,
            tls,
            outside,
            many: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
            one: Arc::new(Semaphore::new(AT_ONCE)),
            tasks: Mutex::default(),
            end: Mutex::default(),
        }
    }

    /// Where the server is, once there was a connection.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&self, mut request: Request<AnyBody>) -> Result<Response<Incoming>, Unanswered> {
        if request.headers().contains_key(UPGRADE) {
            let _permit = Arc::clone(&self.one).try_acquire_owned().map_err(|_| Unanswered::Full)?;
            return match self.connect(&self.outside.switching).await? {
                Sender::One(mut sender) => Ok(sender.send_request(request).await?),
                Sender::Many(mut sender) => Ok(sender.send_request(absolute(request, &self.target)).await?),
            };
        }
        let known = self.many.lock().await.clone();
        if let Some(mut sender) = known
            && sender.ready().await.is_ok()
        {
            return Ok(sender.send_request(absolute(request, &self.target)).await?);
        }
        // One that its server closed meanwhile gives the request back untouched.
        while let Some(mut sender) = self.take_idle() {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.put_back(sender);
                    return Ok(response);
                }
                Err(mut e) => match e.take_message() {
                    Some(back) => request = back,
                    None => return Err(e.into_error().into()),
                },
            }
        }
        let permit = Arc::clone(&self.one).try_acquire_owned().map_err(|_| Unanswered::Full)?;
        let mut many = self.many.lock().await;
        // Whoever held it may just have made a connection that serves all.
        if let Some(mut sender) = many.clone()
            && sender.ready().await.is_ok()
        {
            drop(many);
            return Ok(sender.send_request(absolute(request, &self.target)).await?);
        }
        match self.connect(&self.outside.tls).await? {
            Sender::Many(mut sender) => {
                *many = Some(sender.clone());
                drop((many, permit));
                Ok(sender.send_request(absolute(request, &self.target)).await?)
            }
            Sender::One(mut sender) => {
                drop(many);
                let response = sender.send_request(request).await?;
                self.put_back(sender);
                drop(permit);
                Ok(response)
            }
        }
    }

    fn take_idle(&self) -> Option<http1::SendRequest<AnyBody>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|s| !s.is_closed());
        // One whose response is still being read is not free.
        let at = idle.iter().position(http1::SendRequest::is_ready)?;
        Some(idle.swap_remove(at))
    }

    fn put_back(&self, sender: http1::SendRequest<AnyBody>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < AT_ONCE {
            idle.push(sender);
        }
    }

    async fn connect(&self, tls: &Arc<ClientConfig>) -> Result<Sender, Unanswered> {
        let Dialled { road: stream, end } = self.outside.roads.dial(&self.target, self.leads).await?;
        stream.tcp().set_nodelay(true).unwrap_or_else(|e| tracing::debug!("options of a connection not set: {e}"));
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        if !self.tls {
            return Ok(Sender::One(self.one(stream).await?));
        }
        let host = self.target.to.to_string();
        let failed = |source| Unanswered::Tls { host: host.clone(), source };
        let name = match &self.target.to {
            Destination::Name(h) => ServerName::try_from(h.as_str().to_owned()).map_err(|e| failed(std::io::Error::other(e)))?,
            Destination::Address(ip) => ServerName::from(*ip),
        };
        let shake = tokio_rustls::TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        let late = || failed(std::io::ErrorKind::TimedOut.into());
        let stream = tokio::time::timeout(self.outside.roads.within(), shake).await.map_err(|_| late())?.map_err(failed)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX))
                .initial_connection_window_size(WINDOW)
                .initial_stream_window_size(WINDOW / 2)
                .max_send_buf_size(HEAD)
                .handshake(TokioIo::new(stream))
                .await?;
            self.keep(connection);
            return Ok(Sender::Many(sender));
        }
        Ok(Sender::One(self.one(stream).await?))
    }

    async fn one<S>(&self, stream: S) -> Result<http1::SendRequest<AnyBody>, Unanswered>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(HEAD).preserve_header_case(true).handshake(TokioIo::new(stream)).await?;
        self.keep(connection.with_upgrades());
        Ok(sender)
    }

    /// Drives a connection until this ends.
    fn keep(&self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("a connection to a server ended: {e}");
            }
        });
    }
}

/// HTTP/2 names the server in the request itself.
fn absolute(mut request: Request<AnyBody>, target: &Target) -> Request<AnyBody> {
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let authority = if target.port == 443 { target.to.to_string() } else { target.to_string() };
    let uri = hyper::Uri::builder().scheme("https").authority(authority).path_and_query(path).build();
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    for hop in ["host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        request.headers_mut().remove(hop);
    }
    *request.version_mut() = hyper::Version::HTTP_2;
    request
}
