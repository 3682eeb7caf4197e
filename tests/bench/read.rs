//! Many bytes of one answer over TLS: where its requests are read in a jail, against the same client without one.

use crate::connect::{Asked, with_client};
use crate::side::{Side, Table, compare};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use testkit::Sandbox;
use testkit::tls::Identity;

/// Bytes of the answer: a gibibyte.
const BYTES: u64 = 1 << 30;
const PIECE: usize = 256 << 10;
const HOST: &str = "read.test";
const OUTSIDE: &str = "without a jail";

/// The client: for each line on stdin one request and all of its answer; answers with nanoseconds. `roots` is a list of authorities.
pub(crate) fn client(to: &str, roots: &str) {
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(roots).expect("the list of authorities can be read");
    store.add_parsable_certificates(found.flatten());
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("both versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    let config = Arc::new(config);
    let mut piece = vec![0; PIECE];
    for line in std::io::stdin().lines() {
        line.expect("stdin can be read");
        let start = Instant::now();
        let name = ServerName::try_from(HOST).expect("a name");
        let tls = ClientConnection::new(Arc::clone(&config), name).expect("a connection");
        let mut stream = StreamOwned::new(tls, TcpStream::connect(to).expect("the connection opens"));
        let head = format!("GET /all HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("a request goes out");
        let mut came = 0;
        // The server may close without a word of TLS.
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            came += n as u64;
        }
        assert!(came > BYTES, "all of it, with its head: {came}");
        println!("{}", start.elapsed().as_nanos());
    }
}

/// Answers every request with so many bytes.
fn source(identity: &Identity) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let config = Arc::clone(&identity.config);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            std::thread::spawn(move || serve(&mut StreamOwned::new(tls, connection)));
        }
    });
    port
}

/// One connection. A client that breaks off is none of this server's business.
fn serve(stream: &mut (impl Read + Write)) -> Option<()> {
    let piece = vec![7; PIECE];
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes()).ok()?;
    for _ in 0..BYTES / PIECE as u64 {
        stream.write_all(&piece).ok()?;
    }
    stream.flush().ok()
}

pub(crate) fn table(person: &Sandbox, rounds: usize) -> Table {
    let identity = Identity::new(&[HOST], person.root());
    let server = source(&identity);
    let me = std::env::current_exe().expect("this program has a path");
    let repo = with_client(person, "read");
    let policy = person.file(
        "read.toml",
        &format!(
            "version = 1\nname = \"bench\"\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"{HOST}\"\nports = [443]\n\
             address = \"127.0.0.1:{server}\"\ninspect = true\ndecision = \"allow\"\n[limits]\nbytes_in = \"4000GiB\"\n"
        ),
    );
    let roots = |path: &Path| path.to_str().expect("a name of text").to_owned();
    let mut inside = person.airlock_command(["run", "--repo"]);
    let script = format!("exec ./bench read {HOST}:443 \"$SSL_CERT_FILE\"");
    inside
        .arg(&repo.path)
        .arg("--policy")
        .arg(policy)
        .args(["--", "sh", "-c", &script])
        .env("SSL_CERT_FILE", &identity.authority);
    let mut outside = Command::new(&me);
    outside.args(["read", &format!("127.0.0.1:{server}"), &roots(&identity.authority)]);
    let [mut read, mut plain] = [inside, outside].map(Asked::start);
    compare(
        "a gibibyte in one answer over TLS",
        rounds,
        &mut [
            // At least 0.3 of its bytes a second.
            Side::new("its requests read", || read.once()).at_most(1.0 / 0.3, OUTSIDE),
            Side::new(OUTSIDE, || plain.once()),
        ],
    )
}
