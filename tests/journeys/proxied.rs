//! A person whose connections leave by a proxy: it is the warden's alone, and what is lost by it is told.

use crate::steps::{events, text};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use testkit::Sandbox;
use testkit::tls::TlsServer;

const USER: &str = "Basic bWU6cHJveHktcGFzc3dvcmQ=";

/// A proxy that lets this user alone through, whatever they ask for, to `server`; and what was asked.
fn proxy(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let kept = Arc::clone(&asked);
    std::thread::spawn(move || {
        for inside in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || serve(inside, server, &kept));
        }
    });
    (at, asked)
}

/// A client that breaks off is none of this proxy's business.
fn serve(mut inside: TcpStream, server: SocketAddr, kept: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        inside.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    kept.lock().unwrap().push(head.lines().next()?.to_owned());
    if !head.contains(USER) {
        return inside.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").ok();
    }
    let mut outside = TcpStream::connect(server).ok()?;
    inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    let (mut back_from, mut back_to) = (outside.try_clone().ok()?, inside.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    std::io::copy(&mut inside, &mut outside).ok().map(drop)
}

#[test]
fn p4_connections_leave_by_the_persons_proxy_and_nothing_inside_knows_of_it() {
    let person = Sandbox::new();
    let server = TlsServer::start(&["tunnel.test", "read.test", "127.0.0.1"], person.root());
    let (at, asked) = proxy(server.at);
    let repo = person.small_repo();
    let policy = person.file(
        "policy.toml",
        "version = 1\nname = \"proxied\"\n[network]\ndefault = \"deny\"\nproxy = \"environment\"\n\
         [[network.rule]]\nhost = \"tunnel.test\"\ndecision = \"allow\"\n\
         [[network.rule]]\nhost = \"read.test\"\ninspect = true\ndecision = \"allow\"\n",
    );
    let run = |proxy: String, script: &str| {
        let mut c = person.airlock_command(["run", "--repo"]);
        c.arg(&repo.path).arg("--policy").arg(&policy).args(["--", "bash", "-c", script]);
        c.env("SSL_CERT_FILE", &server.authority).env("HTTPS_PROXY", proxy);
        person.finish(c, b"")
    };
    let script = "curl -sS -m 30 -k https://tunnel.test/a; curl -sS -m 30 https://read.test/b; curl -sS -m 30 https://other.test/c; \
                  env | grep -i proxy; cat /proc/*/environ | tr '\\0' '\\n' | grep -i 'proxy-pass'; grep -rs 'proxy-pass' ~ /tmp; true";
    let ran = run(format!("http://me:proxy-password@{at}"), script).ok();
    assert_eq!(ran.out(), "servedserved", "both kinds get through, and no word of the proxy is inside: {}", ran.said());
    let lines: Vec<String> = server.seen().into_iter().map(|s| s.line).collect();
    assert_eq!(lines, ["GET /a", "GET /b"]);
    assert_eq!(*asked.lock().unwrap(), ["CONNECT tunnel.test:443 HTTP/1.1", "CONNECT read.test:443 HTTP/1.1"], "judged first");
    let lost =
        format!("connections leave by the proxy http://{at}, which resolves names itself: where a name leads is not checked");
    assert!(ran.err().contains("ACCEPTED LOSS: promise 4 is kept in part") && ran.err().contains(&lost), "{}", ran.said());
    assert!(!ran.said().contains("proxy-password"), "{}", ran.said());

    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let told: Vec<(String, String)> = events(&person, &task)
        .iter()
        .filter(|e| e["kind"] == "network" && (e["op"] == "request" || e["host"] == "tunnel.test" && e["op"] == "connect"))
        .map(|e| (text(e, "host"), text(e, "reason")))
        .collect();
    let unchecked = format!("by the proxy http://{at}, so that where its name leads was not checked");
    for host in ["tunnel.test", "read.test"] {
        let said = told.iter().find(|(h, _)| h == host).map(|(_, reason)| reason.ends_with(&unchecked));
        assert_eq!(said, Some(true), "{host}: {told:?}");
    }

    // The same over TLS, and not where nobody trusts who answers.
    let (front, before) = (server.front(at), asked.lock().unwrap().len());
    let ran = run(format!("https://me:proxy-password@{front}"), script).ok();
    assert_eq!((ran.out().as_str(), asked.lock().unwrap().len()), ("servedserved", before + 2), "{}", ran.said());
    let stranger = TlsServer::start(&["127.0.0.1"], &person.projects());
    let script = "curl -sS -m 30 https://read.test/b; true";
    let ran = run(format!("https://me:proxy-password@{}", stranger.front(at)), script).ok();
    assert!(ran.out().contains("can't be reached") && asked.lock().unwrap().len() == before + 2, "{}", ran.said());

    let refused = run(format!("http://me:wrong@{at}"), "curl -sS -m 30 https://read.test/b; true").ok();
    assert!(refused.out().contains("it does not take this user and password"), "{}", refused.said());
    let bad = run(format!("ftp://me:proxy-password@{at}"), "true");
    assert!(
        bad.status.code() == Some(2) && bad.err().contains("HTTPS_PROXY names no proxy") && !bad.err().contains("proxy-password"),
        "{}",
        bad.said()
    );
}
