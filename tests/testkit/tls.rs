//! A web server of the test's over TLS, with an authority of its own: each request is kept, and answered by what its path says.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `GET /path?query`.
    pub line: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Who a server is, and the authority that says so.
pub struct Identity {
    /// What the server is set up with.
    pub config: Arc<ServerConfig>,
    /// The authority's certificate, as a file.
    pub authority: PathBuf,
    /// Its own certificate and key, as files.
    pub files: [PathBuf; 2],
}

impl Identity {
    /// A fresh one for these names; the authority's file lies in `dir`.
    pub fn new(names: &[&str], dir: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = dir.join("authority.pem");
        std::fs::write(&authority, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(own.serialize_der()).into())
            .unwrap();
        let files = ["leaf.pem", "leaf.key"].map(|name| dir.join(name));
        std::fs::write(&files[0], leaf.pem()).unwrap();
        std::fs::write(&files[1], own.serialize_pem()).unwrap();
        Self { config: Arc::new(config), authority, files }
    }
}

/// The running server.
pub struct TlsServer {
    /// Where it listens.
    pub at: SocketAddr,
    /// The authority's certificate, as a file.
    pub authority: PathBuf,
    seen: Arc<Mutex<Vec<Seen>>>,
    config: Arc<ServerConfig>,
}

impl TlsServer {
    /// Starts one for these names. `/echo` says back what it was sent, head and all; `/switch` turns to another protocol, which says
    /// back each byte, after the request's head where the path ends with `/told`; `…/drip` never ends, `…/silent` never begins, `…/unauthorized` is 401;
    /// `/endless`, `/trickle`, `/cut`, `/cut-piece`, `/away` and `/twice` at a path's end are what no server should do.
    /// `/token` gives tokens that are named by how many were given, `/token-slow` after three seconds; everything else is answered with `served`.
    pub fn start(names: &[&str], dir: &Path) -> Self {
        Self::offering(names, dir, &[])
    }

    /// The same, which says that it speaks these protocols, the better first. It speaks HTTP/1.1 alone.
    pub fn offering(names: &[&str], dir: &Path, protocols: &[&[u8]]) -> Self {
        let Identity { mut config, authority, .. } = Identity::new(names, dir);
        Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        let front = Arc::clone(&config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, kept) = (Arc::clone(&config), Arc::clone(&kept));
                std::thread::spawn(move || serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &kept));
            }
        });
        Self { at, authority, seen, config: front }
    }

    /// One without TLS, which knows what is no HTTP by its first line, and answers that with `x`.
    pub fn plain() -> Self {
        let mut server = Self::start(&["unused.test"], tempfile::tempdir().unwrap().path());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        server.at = listener.local_addr().unwrap();
        let kept = Arc::clone(&server.seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || plainly(stream, &kept));
            }
        });
        server
    }

    /// Ends TLS as this server does, and hands what is inside on.
    pub fn front(&self, to: SocketAddr) -> SocketAddr {
        let config = Arc::clone(&self.config);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&config));
                    tokio::spawn(async move {
                        let mut inside = acceptor.accept(stream).await?;
                        let mut outside = tokio::net::TcpStream::connect(to).await?;
                        tokio::io::copy_bidirectional(&mut inside, &mut outside).await
                    });
                }
            });
        });
        told.recv().unwrap()
    }

    /// What came so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// A connection to its end. A client that breaks off is none of this server's business.
fn serve(mut stream: impl Read + Write, kept: &Mutex<Vec<Seen>>) {
    while let Some((raw, seen)) = request(&mut stream) {
        let line = seen.line.clone();
        kept.lock().unwrap().push(seen);
        let path = line.split(' ').nth(1).unwrap_or_default();
        if path.starts_with("/switch") {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            let mut byte = [0];
            let told = if path.ends_with("/told") { raw } else { Vec::new() };
            let mut going = stream.write_all(&[head.as_bytes(), &told].concat()).and_then(|()| stream.flush()).is_ok();
            while going && stream.read_exact(&mut byte).is_ok() {
                going = stream.write_all(&byte).and_then(|()| stream.flush()).is_ok();
            }
            return;
        }
        if let Some(end) = hostile(&mut stream, path) {
            kept.lock().unwrap().push(Seen { line: format!("{path} ended after {end}"), headers: Vec::new(), body: Vec::new() });
            return;
        }
        if path.ends_with("/silent") {
            while stream.read_exact(&mut [0]).is_ok() {}
            return;
        }
        if path.ends_with("/drip") {
            let mut going = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_ok();
            while going {
                going = stream.write_all(b"5\r\ndrip\n\r\n").and_then(|()| stream.flush()).is_ok();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            return;
        }
        let body = match path {
            "/token" | "/token-slow" => {
                std::thread::sleep(std::time::Duration::from_secs(if path == "/token" { 0 } else { 3 }));
                let given = kept.lock().unwrap().iter().filter(|s| s.line.starts_with("POST /token")).count();
                let words = "\"token_type\":\"Bearer\",\"expires_in\":3600";
                format!("{{\"access_token\":\"access-TOKEN-{given}\",\"refresh_token\":\"refresh-TOKEN-{given}\",{words}}}")
                    .into_bytes()
            }
            path if path.starts_with("/echo") => raw,
            _ => b"served".to_vec(),
        };
        let status = if path.ends_with("/unauthorized") { "401 Unauthorized" } else { "200 OK" };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(&[head.as_bytes(), &body].concat()).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// What a server should not do, where the path says so; how many bytes it got rid of.
fn hostile(stream: &mut impl Write, path: &str) -> Option<usize> {
    let (begin, piece, pause): (&[u8], &[u8], u64) = match path.rsplit('/').next()? {
        "endless" => (b"HTTP/1.1 200 OK\r\n", b"X-More: 0123456789012345678901234567890123456789\r\n", 0),
        "trickle" => (b"HTTP/1.1 200 OK\r\n", b"X", 100),
        "cut" => (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"", 0),
        "cut-piece" => (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", b"", 0),
        "away" => (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n", b"", 0),
        "twice" => (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", b"", 0),
        _ => return None,
    };
    let mut sent = 0;
    let mut write = |bytes: &[u8]| {
        let good = stream.write_all(bytes).and_then(|()| stream.flush()).is_ok();
        sent += if good { bytes.len() } else { 0 };
        good
    };
    let mut going = write(begin) && !piece.is_empty();
    while going {
        going = write(piece);
        std::thread::sleep(std::time::Duration::from_millis(pause));
    }
    Some(sent)
}

fn plainly(mut stream: TcpStream, kept: &Mutex<Vec<Seen>>) {
    let mut peeked = [0; 64];
    let Ok(length @ 1..) = stream.peek(&mut peeked) else { return };
    // A line of HTTP may be longer, or come in pieces.
    let first = String::from_utf8_lossy(&peeked[..length]);
    let Some(first) = first.split_once('\n').map(|(line, _)| line.trim_end()).filter(|line| !line.contains("HTTP/1")) else {
        return serve(stream, kept);
    };
    let line = if first.starts_with("SSH-") { "of-ssh".to_owned() } else { first.to_owned() };
    kept.lock().unwrap().push(Seen { line, headers: Vec::new(), body: Vec::new() });
    drop(stream.write_all(b"x\n"));
}

fn request(stream: &mut impl Read) -> Option<(Vec<u8>, Seen)> {
    let mut raw = Vec::new();
    let mut byte = [0];
    while !raw.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        raw.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&raw).into_owned();
    let mut lines = head.lines();
    let line = lines.next()?.rsplit_once(' ')?.0.to_owned();
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned())).collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    let mut headers = headers;
    if headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked") {
        // What comes behind the last piece is kept with the headers.
        let behind = chunks(stream, &mut body)?;
        headers.extend(
            behind.into_iter().filter_map(|l| l.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))),
        );
    } else {
        stream.read_exact(&mut body).ok()?;
    }
    raw.extend_from_slice(&body);
    Some((raw, Seen { line, headers, body }))
}

fn chunks(stream: &mut impl Read, body: &mut Vec<u8>) -> Option<Vec<String>> {
    loop {
        let size = usize::from_str_radix(line(stream)?.split(';').next()?, 16).ok()?;
        if size == 0 {
            return Some(std::iter::from_fn(|| line(stream).filter(|l| !l.is_empty())).collect());
        }
        let from = body.len();
        body.resize(from + size, 0);
        stream.read_exact(&mut body[from..]).ok()?;
        line(stream)?;
    }
}

fn line(stream: &mut impl Read) -> Option<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}
