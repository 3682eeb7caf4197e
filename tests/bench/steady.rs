//! A million requests that are read, of one run: what its warden holds after a tenth of them and after all.

use crate::connect::{address, with_client};
use crate::fleet::{mib, pss};
use crate::side::{Table, load};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;
use testkit::{Live, Sandbox, eventually};

/// Requests of the first part; all are ten times as many.
const PART: u64 = 100_000;
/// Connections that they come by.
const CONNECTIONS: u64 = 8;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The client: for each number on stdin as many requests, then a line.
pub(crate) fn client(host: &str, port: &str) {
    let at = address(host, port);
    let request = format!("GET /it HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    for line in std::io::stdin().lines() {
        let all: u64 = line.expect("stdin can be read").trim().parse().expect("a number");
        std::thread::scope(|s| {
            for _ in 0..CONNECTIONS {
                s.spawn(|| {
                    let mut stream = TcpStream::connect(at).expect("the connection opens");
                    stream.set_nodelay(true).expect("an option");
                    for _ in 0..all / CONNECTIONS {
                        stream.write_all(request.as_bytes()).expect("a request goes out");
                        let (mut came, mut piece) = (Vec::new(), [0; 1024]);
                        while !came.ends_with(b"\r\n\r\nok") {
                            let n = stream.read(&mut piece).expect("an answer comes");
                            assert!(n > 0, "the connection stands");
                            came.extend_from_slice(&piece[..n]);
                        }
                    }
                });
            }
        });
        println!("{all} done");
    }
}

fn server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut head, mut piece) = (Vec::new(), [0; 1024]);
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    head.extend_from_slice(&piece[..n]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        if stream.write_all(ANSWER).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

pub(crate) fn table(person: &Sandbox) -> Table {
    let port = server();
    let repo = with_client(person, "steady");
    let policy = person.file(
        "steady.toml",
        &format!(
            "version = 1\nname = \"bench\"\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"steady.test\"\nports = [{port}]\n\
             address = \"127.0.0.1:{port}\"\ninspect = true\ndecision = \"allow\"\n[limits]\nbytes_in = \"4000GiB\"\nbytes_out = \"4000GiB\"\n"
        ),
    );
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(policy).args(["--", "./bench", "steady", "steady.test", &port.to_string()]);
    let mut run = Live::start(c);
    let mut after = |requests: u64, lines: usize| {
        run.write(format!("{requests}\n").as_bytes());
        let done = || (run.out().matches("done").count() == lines || run.ended()).then_some(());
        eventually("they are answered", Duration::from_secs(900), done);
        std::thread::sleep(Duration::from_secs(2));
        person.wardens().first().map(|w| pss(*w))
    };
    let (part, all) = (after(PART, 1), after(9 * PART, 2));
    let load = load();
    println!("\na million requests that are read, by {CONNECTIONS} connections, load {load}");
    let (Some(part), Some(all)) = (part, all) else {
        println!("  FAILED: the run ended: {}", run.err());
        return Table { raw: json!({ "title": "a million requests", "failed": run.err() }), whole: false };
    };
    #[expect(clippy::cast_precision_loss, reason = "kibibytes")]
    let times = all as f64 / part as f64;
    let verdict = if times <= 1.1 { "within" } else { "over" };
    println!(
        "  the warden holds {} after {PART}, {} after all (PSS): {times:.3} ×, at most 1.10: {verdict}",
        mib(part),
        mib(all)
    );
    Table { raw: json!({ "title": "a million requests", "load": load, "pss_kib": [part, all] }), whole: true }
}
