//! The way out on loopback sockets: what the jail would dial is handed to the door by the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::door::Door;
use crate::gate::Gate;
use crate::record::Recorder;
use crate::{Arbiter, Fact, Inlets, Limits, Permit, Proxies, Wanted, dns, serve};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use model::decision::{Decision, Ruling};
use model::event::{NetOp, Origin, Process, Verdict, What};
use model::path::RawPath;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

mod reached;

/// Keeps all facts; announces every connection, or none.
struct Log {
    facts: Mutex<Vec<Fact>>,
    blind: bool,
    /// Connections that somebody made for the jail: from where, to where.
    made: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    /// What waits for an answer.
    asked: Mutex<Vec<(Wanted, oneshot::Sender<Permit>)>>,
}

impl Log {
    fn new(blind: bool) -> Arc<Self> {
        Arc::new(Self { facts: Mutex::default(), blind, made: Mutex::default(), asked: Mutex::default() })
    }

    /// `op host:port verdict rule`, a fact each.
    fn lines(&self) -> Vec<String> {
        let line = |f: &Fact| match &f.what {
            What::Network { op, host, port, verdict, rule, .. } => format!("{op:?} {host}:{port} {verdict:?} {rule}"),
            What::Limit { limit, .. } => format!("limit {limit}"),
            other => panic!("no fact of the way out: {other:?}"),
        };
        self.facts.lock().unwrap().iter().map(line).collect()
    }

    async fn wait_for(&self, line: &str) {
        for _ in 0..500 {
            if self.lines().iter().any(|l| l == line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never told: {line}; told: {:#?}", self.lines());
    }
}

impl Arbiter for Log {
    fn made(&self, from: SocketAddr) -> Option<(SocketAddr, Process)> {
        let mut made = self.made.lock().unwrap();
        let index = made.iter().position(|(at, _)| *at == from)?;
        Some((made.remove(index).1, self.announced(from)?))
    }
    fn announced(&self, _: SocketAddr) -> Option<Process> {
        let path = RawPath::from("/usr/bin/curl");
        let who = Process {
            pid: 7,
            parent: 1,
            program: RawPath::from("curl"),
            exe: path,
            origin: Origin::System,
            argv: vec![],
            ancestry: vec![],
        };
        (!self.blind).then_some(who)
    }
    fn permit(&self, wanted: Wanted) -> oneshot::Receiver<Permit> {
        let (sender, receiver) = oneshot::channel();
        self.asked.lock().unwrap().push((wanted, sender));
        receiver
    }
    fn record(&self, fact: Fact) {
        self.facts.lock().unwrap().push(fact);
    }
}

fn policy(rules: &str) -> Arc<policy::Policy> {
    Arc::new(policy::parse("test", &format!("version = 1\n[network]\ndefault = \"deny\"\n{rules}")).unwrap())
}

/// One that asks about everything that no rule names, and holds it for a second.
fn asking(rules: &str) -> Arc<policy::Policy> {
    Arc::new(policy::parse("test", &format!("version = 1\n[network]\ndefault = \"ask\"\nhold = \"1s\"\n{rules}")).unwrap())
}

fn asks(host: &str, port: u16, to: SocketAddr) -> String {
    pinned(host, port, to).replace("allow", "ask")
}

fn pinned(host: &str, port: u16, to: SocketAddr) -> String {
    format!("[[network.rule]]\nhost = \"{host}\"\nports = [{port}]\naddress = \"{to}\"\ndecision = \"allow\"\n")
}

fn ask(gate: &Gate, name: &Name, kind: RecordType) -> Message {
    let mut m = Message::query();
    m.add_query(Query::query(name.clone(), kind));
    Message::from_vec(&dns::answer(gate, &m.to_vec().unwrap()).expect("a question gets an answer")).unwrap()
}

fn code(gate: &Gate, name: &str, kind: RecordType) -> ResponseCode {
    ask(gate, &Name::from_ascii(name).unwrap(), kind).metadata.response_code
}

fn address(gate: &Gate, name: &str) -> IpAddr {
    match &ask(gate, &Name::from_ascii(name).unwrap(), RecordType::A).answers[0].data {
        RData::A(a) => IpAddr::V4(a.0),
        other => panic!("no address: {other:?}"),
    }
}

/// A server that says what it was sent, back to front of what it is asked: echoes until the end, then says `bye`.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut s, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut r, mut w) = s.split();
                tokio::io::copy(&mut r, &mut w).await.unwrap_or(0);
                w.write_all(b"bye").await.unwrap_or(());
            });
        }
    });
    at
}

/// Hands the door one connection that was dialled to `dst`, and gives the program's end.
async fn dial(door: &Arc<Door>, dst: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (inside, _) = listener.accept().await.unwrap();
    let door = Arc::clone(door);
    tokio::spawn(async move { door.arrive(inside, dst, None, None).await });
    program
}

async fn is_reset(mut program: TcpStream) -> bool {
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_secs(20), program.read(&mut byte)).await.expect("a refusal comes at once");
    read.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn an_allowed_name_reaches_its_pinned_server_with_bytes_counted_and_half_close_kept() {
    let log = Log::new(false);
    let server = echo().await;
    let door = Arc::new(Door::new(
        policy(&pinned("model.test", 8443, server)),
        log.clone(),
        Limits::default(),
        None,
        Proxies::default(),
    ));
    let ip = address(&door.gate, "Model.Test.");
    let mut program = dial(&door, SocketAddr::new(ip, 8443)).await;
    program.write_all(b"hello").await.unwrap();
    program.shutdown().await.unwrap();
    let mut back = Vec::new();
    program.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"hellobye", "the server's answer after the program's end arrives too");
    log.wait_for("Close model.test:8443 Noted network.rule[0]").await;
    let facts = log.facts.lock().unwrap();
    assert_eq!(facts[0].process, None);
    let What::Network { op: NetOp::Connect, verdict: Verdict::Allowed, address: Some(outside), .. } = &facts[1].what else {
        panic!("{:?}", facts[1])
    };
    assert_eq!(*outside, server.to_string(), "the address outside is told");
    assert_eq!(facts[1].process.as_ref().map(|p| p.pid), Some(7), "with the kernel's word on who");
    assert!(matches!(facts[2].what, What::Network { op: NetOp::Close, sent: 5, received: 8, .. }), "{:?}", facts[2]);
}

#[tokio::test]
async fn everything_that_no_rule_allows_is_reset_and_told() {
    let log = Log::new(false);
    let server = echo().await;
    let rules =
        pinned("model.test", 8443, server) + "[[network.rule]]\nhost = \"169.254.169.254\"\nports = [80]\ndecision = \"allow\"\n";
    let door = Arc::new(Door::new(policy(&rules), log.clone(), Limits::default(), None, Proxies::default()));
    let ip = address(&door.gate, "model.test.");
    let tries = [
        (SocketAddr::new(ip, 80), "Connect model.test:80 Denied network.default"),
        (server, &format!("Connect :{} Denied network.default", server.port())[..]),
        ("93.184.216.34:443".parse().unwrap(), "Connect :443 Denied network.default"),
        ("[2606:4700::1]:443".parse().unwrap(), "Connect :443 Denied network.default"),
        ("169.254.169.254:80".parse().unwrap(), "Connect :80 Denied address check"),
        ("198.18.9.9:8443".parse().unwrap(), "Connect :8443 Denied name check"),
    ];
    for (dst, line) in tries {
        assert!(is_reset(dial(&door, dst).await).await, "{dst} must be reset");
        log.wait_for(line).await;
    }
    assert!(!log.lines().iter().any(|l| l.contains("Connect") && l.contains("Allowed")));
}

fn granted(ended: &watch::Sender<bool>) -> Permit {
    let ruling = Ruling { decision: Decision::Allow, rule: "grant x".into(), source: "you".into(), reason: String::new() };
    Permit::Granted { ruling, ended: ended.subscribe() }
}

/// What waits for an answer, once so many connections do.
async fn waiting(log: &Log, wanted: usize) -> Vec<(Wanted, oneshot::Sender<Permit>)> {
    for _ in 0..500 {
        let enough = log.asked.lock().unwrap().len() >= wanted;
        if enough {
            return std::mem::take(&mut *log.asked.lock().unwrap());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{wanted} never waited; told: {:#?}", log.lines());
}

#[tokio::test]
async fn p4_what_is_asked_about_waits_and_goes_on_when_it_is_allowed_until_that_ends() {
    let log = Log::new(false);
    let door = Arc::new(Door::new(
        asking(&asks("model.test", 8443, echo().await)),
        log.clone(),
        Limits::default(),
        None,
        Proxies::default(),
    ));
    let dst = SocketAddr::new(address(&door.gate, "model.test."), 8443);
    let mut program = dial(&door, dst).await;
    program.write_all(b"said while it waited, ").await.unwrap();
    let (wanted, answer) = waiting(&log, 1).await.remove(0);
    assert_eq!((wanted.target.to_string(), wanted.who.pid), ("model.test:8443".to_owned(), 7));
    log.wait_for("Connect model.test:8443 Held network.rule[0]").await;
    assert!(!log.lines().iter().any(|l| l.contains("Allowed")), "nothing went out: {:?}", log.lines());
    let ended = watch::Sender::new(false);
    answer.send(granted(&ended)).unwrap();
    program.write_all(b"and after").await.unwrap();
    let mut back = vec![0; 31];
    program.read_exact(&mut back).await.unwrap();
    assert_eq!(back, b"said while it waited, and after");
    log.wait_for("Connect model.test:8443 Allowed grant x").await;
    ended.send_replace(true);
    assert!(is_reset(program).await, "it ends with what permitted it");
    log.wait_for("Close model.test:8443 Noted grant x").await;
    let facts = log.facts.lock().unwrap();
    let What::Network { reason, sent: 31, .. } = &facts.last().unwrap().what else { panic!("{facts:?}") };
    assert_eq!(reason, "what permitted it has ended");
}

#[tokio::test]
async fn p4_what_nobody_answers_or_a_person_denies_is_reset_and_nothing_of_it_leaves() {
    let log = Log::new(false);
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rules = asks("model.test", 8443, server.local_addr().unwrap());
    let door = Arc::new(Door::new(asking(&rules), log.clone(), Limits::default(), None, Proxies::default()));
    let dst = SocketAddr::new(address(&door.gate, "model.test."), 8443);
    assert!(is_reset(dial(&door, dst).await).await, "nobody answers");
    log.wait_for("Connect model.test:8443 Denied network.rule[0]").await;
    assert!(waiting(&log, 1).await[0].1.is_closed(), "whoever answers later sees that nobody waits");

    let denied = dial(&door, dst).await;
    let (_, answer) = waiting(&log, 1).await.remove(0);
    let ruling = Ruling { decision: Decision::Deny, rule: "ask".into(), source: "you".into(), reason: String::new() };
    answer.send(Permit::Refused(ruling)).unwrap();
    assert!(is_reset(denied).await);
    log.wait_for("Connect model.test:8443 Denied ask").await;

    let orphan = dial(&door, dst).await;
    drop(waiting(&log, 1).await);
    assert!(is_reset(orphan).await, "an asker that is gone refuses");

    drop(dial(&door, dst).await);
    let gave_up = waiting(&log, 1).await;
    for _ in 0..200 {
        if gave_up[0].1.is_closed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gave_up[0].1.is_closed(), "a program that hangs up waits no more");
    let reached = tokio::time::timeout(Duration::from_millis(100), server.accept()).await;
    assert!(reached.is_err(), "nothing reached the server");
}

#[tokio::test]
async fn p4_nobody_is_asked_about_an_address_that_leads_home() {
    let log = Log::new(false);
    let door = Arc::new(Door::new(asking(""), log.clone(), Limits::default(), None, Proxies::default()));
    for home in ["169.254.169.254:80", "127.0.0.1:8080", "10.0.0.1:443", "[::1]:443", "[fd00:ec2::254]:80"] {
        assert!(is_reset(dial(&door, home.parse().unwrap()).await).await, "{home}");
    }
    log.wait_for("Connect :80 Denied address check").await;
    assert!(log.asked.lock().unwrap().is_empty());
    let program = dial(&door, "93.184.216.34:443".parse().unwrap()).await;
    assert_eq!(waiting(&log, 1).await[0].0.target.to_string(), "93.184.216.34:443", "a plain one is");
    drop(program);
}

#[tokio::test]
async fn p8_bytes_of_all_connections_together_are_bounded_and_the_limit_is_told_once() {
    for (limit, key) in [("bytes_out = \"1000B\"", "bytes_out"), ("bytes_in = \"1000B\"", "bytes_in")] {
        let log = Log::new(false);
        let rules = pinned("model.test", 8443, echo().await) + &format!("[limits]\n{limit}\n");
        let door = Arc::new(Door::new(policy(&rules), log.clone(), Limits::default(), None, Proxies::default()));
        let dst = SocketAddr::new(address(&door.gate, "model.test."), 8443);
        let (mut first, mut second) = (dial(&door, dst).await, dial(&door, dst).await);
        for program in [&mut first, &mut second] {
            program.write_all(&[7; 400]).await.unwrap();
            program.read_exact(&mut [0; 400]).await.unwrap();
        }
        second.write_all(&[7; 201]).await.unwrap();
        assert!(is_reset(second).await && is_reset(first).await, "{key}: at the limit every connection ends");
        assert!(is_reset(dial(&door, dst).await).await, "{key}: and no new one is made");
        log.wait_for(&format!("Connect model.test:8443 Denied limits.{key}")).await;
        let facts = log.facts.lock().unwrap();
        let told: Vec<&Fact> = facts.iter().filter(|f| matches!(f.what, What::Limit { .. })).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let What::Limit { limit, detail } = &told[0].what else { panic!("{told:?}") };
        assert!(limit == key && detail.contains("1000") && detail.contains(&format!("`limits.{key}` raises it")), "{told:?}");
        assert!(told[0].process.is_some(), "with the process: {told:?}");
        let (sent, received) = facts.iter().fold((0, 0), |(s, r), f| match f.what {
            What::Network { sent, received, .. } => (s + sent, r + received),
            _ => (s, r),
        });
        let carried = if key == "bytes_out" { sent } else { received };
        assert!(carried <= 1000, "no byte beyond the limit was carried: {carried}");
    }
}

#[tokio::test]
async fn p8_bytes_sent_by_one_rule_are_bounded_and_other_rules_go_on() {
    let log = Log::new(false);
    let rules = pinned("model.test", 8443, echo().await) + "bytes_out = \"1000B\"\n" + &pinned("free.test", 8443, echo().await);
    let door = Arc::new(Door::new(policy(&rules), log.clone(), Limits::default(), None, Proxies::default()));
    let at = |name: &str| SocketAddr::new(address(&door.gate, name), 8443);
    let (model, free) = (at("model.test."), at("free.test."));
    let mut other = dial(&door, free).await;
    for _ in 0..2 {
        let mut program = dial(&door, model).await;
        program.write_all(&[7; 500]).await.unwrap();
        program.read_exact(&mut [0; 500]).await.unwrap();
    }
    let mut program = dial(&door, model).await;
    program.write_all(&[7; 1]).await.unwrap();
    assert!(is_reset(program).await && is_reset(dial(&door, model).await).await, "nothing more by this rule");
    log.wait_for("Connect model.test:8443 Denied network.rule[0].bytes_out").await;
    other.write_all(&[7; 2000]).await.unwrap();
    other.read_exact(&mut [0; 2000]).await.unwrap();
    let facts = log.facts.lock().unwrap();
    let told: Vec<&What> = facts.iter().map(|f| &f.what).filter(|w| matches!(w, What::Limit { .. })).collect();
    let [What::Limit { limit, detail }] = told[..] else { panic!("{told:?}") };
    assert!(limit == "bytes_out" && detail.contains("the 1000 bytes of `network.rule[0]`"), "{detail}");
}

#[tokio::test]
async fn p4_names_under_a_wildcard_tell_no_server_much() {
    let log = Log::new(false);
    let rules = pinned("*.many.test", 8443, echo().await);
    let door = Arc::new(Door::new(policy(&rules), log.clone(), Limits::default(), None, Proxies::default()));
    let reached = |name: String| {
        let door = Arc::clone(&door);
        async move {
            let mut program = dial(&door, SocketAddr::new(address(&door.gate, &name), 8443)).await;
            program.write_all(b"x").await.is_ok() && program.read_exact(&mut [0; 1]).await.is_ok()
        }
    };
    assert!(reached("short.many.test.".to_owned()).await);
    // In one moment, so that how long this takes counts for nothing.
    let host = |n: usize| policy::Target::parse(&format!("n{n}.many.test:8443")).unwrap();
    let through = (0..10_000).take_while(|n| door.gate.may_leave(&host(*n))).count();
    assert!((20..5_000).contains(&through), "new names come slowly: {through}");
    let mut refused = false;
    for n in 0..200 {
        refused |= !reached(format!("m{n}.many.test.")).await;
    }
    assert!(refused, "and so at the door");
    assert!(reached("short.many.test.".to_owned()).await, "a known one as often as it likes");
    log.wait_for("limit names").await;
    // What a name alone could tell is asked about.
    let long = format!("{}.many.test.", "a".repeat(40));
    let program = dial(&door, SocketAddr::new(address(&door.gate, &long), 8443)).await;
    let asked = waiting(&log, 1).await;
    assert!(asked[0].0.ruling.reason.contains("can carry data out by itself"), "{:?}", asked[0].0.ruling);
    drop(program);
}

/// A proxy that takes every CONNECT to `server`, and the heads that it saw.
async fn proxy_to(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let heads = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut inside, _)) = listener.accept().await {
            let heads = Arc::clone(&heads);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(inside.read_u8().await.unwrap());
                }
                heads.lock().unwrap().push(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned());
                let mut outside = TcpStream::connect(server).await.unwrap();
                inside.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut inside, &mut outside).await);
            });
        }
    });
    (at, seen)
}

#[tokio::test]
async fn p4_what_leaves_by_the_persons_proxy_is_judged_first_and_told_as_unchecked() {
    let log = Log::new(false);
    let pinned_to = echo().await;
    let rule = |host: &str| format!("[[network.rule]]\nhost = \"{host}\"\nports = [8443]\ndecision = \"allow\"\n");
    let rules = rule("model.test") + &rule("direct.test") + &rule("10.1.2.3") + &pinned("db.test", 8443, pinned_to);
    let (at, heads) = proxy_to(echo().await).await;
    let variable = |name: &str| match name {
        "HTTPS_PROXY" => Some(format!("http://{at}")),
        "NO_PROXY" => Some("direct.test".to_owned()),
        _ => None,
    };
    let proxies = Proxies::of(Some(&policy::Proxy::Environment), variable).unwrap();
    let door = Arc::new(Door::new(policy(&rules), log.clone(), Limits::default(), None, proxies));
    let to = |name: &str| SocketAddr::new(address(&door.gate, name), 8443);
    for name in ["model.test.", "db.test."] {
        let mut program = dial(&door, to(name)).await;
        program.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        program.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"hello", "{name}");
    }
    assert!(is_reset(dial(&door, "10.1.2.3:8443".parse().unwrap()).await).await, "a bare address is checked all the same");
    log.wait_for("Connect :8443 Denied address check").await;
    assert!(is_reset(dial(&door, to("direct.test.")).await).await, "it has no address, and the proxy is not asked");
    assert!(is_reset(dial(&door, "9.9.9.9:8443".parse().unwrap()).await).await, "what no rule allows is not asked of it");
    assert_eq!(*heads.lock().unwrap(), ["CONNECT model.test:8443 HTTP/1.1"], "nothing else went there");
    let facts = log.facts.lock().unwrap();
    let by = |wanted: &str| {
        facts.iter().find_map(|f| match &f.what {
            What::Network { op: NetOp::Connect, host, address, reason, .. } if host == wanted => {
                Some((address.clone(), reason.clone()))
            }
            _ => None,
        })
    };
    let (address, reason) = by("model.test").unwrap();
    assert!(
        address.is_none() && reason.contains(&format!("by the proxy http://{at}, so that where its name leads was not checked")),
        "{reason}"
    );
    assert_eq!(by("db.test").unwrap().0, Some(pinned_to.to_string()), "what is pinned leaves directly");
}

#[tokio::test]
async fn a_connection_that_the_kernel_did_not_announce_is_closed() {
    let log = Log::new(true);
    let door = Arc::new(Door::new(
        policy(&pinned("model.test", 8443, echo().await)),
        log.clone(),
        Limits::default(),
        None,
        Proxies::default(),
    ));
    let ip = address(&door.gate, "model.test.");
    assert!(is_reset(dial(&door, SocketAddr::new(ip, 8443)).await).await);
    log.wait_for("Connect :8443 Denied attribution").await;
}

#[tokio::test]
async fn a_server_outside_that_is_not_there_is_told_as_such() {
    let log = Log::new(false);
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let door =
        Arc::new(Door::new(policy(&pinned("model.test", 8443, gone)), log.clone(), Limits::default(), None, Proxies::default()));
    let ip = address(&door.gate, "model.test.");
    assert!(is_reset(dial(&door, SocketAddr::new(ip, 8443)).await).await);
    log.wait_for("Connect model.test:8443 Noted network.rule[0]").await;
}

#[tokio::test]
async fn a_name_is_judged_before_it_gets_an_address() {
    let log = Log::new(false);
    let rules = pinned("model.test", 8443, "127.0.0.1:1".parse().unwrap())
        + "[[network.rule]]\nhost = \"*.evil.test\"\ndecision = \"deny\"\n";
    let gate = Gate::new(policy(&rules), 3, Recorder::new(log.clone()));
    for (name, kind, want) in [
        ("model.test.", RecordType::A, ResponseCode::NoError),
        ("model.test.", RecordType::AAAA, ResponseCode::NoError),
        ("model.test.", RecordType::HTTPS, ResponseCode::NoError),
        ("model.test.", RecordType::TXT, ResponseCode::NoError),
        ("_http._tcp.model.test.", RecordType::SRV, ResponseCode::NoError),
        ("_http._tcp.model.test.", RecordType::A, ResponseCode::NXDomain),
        ("other.test.", RecordType::A, ResponseCode::NXDomain),
        ("other.test.", RecordType::TXT, ResponseCode::NXDomain),
        ("a.evil.test.", RecordType::AAAA, ResponseCode::NXDomain),
        ("8.8.8.8.in-addr.arpa.", RecordType::PTR, ResponseCode::NXDomain),
        ("127.1.", RecordType::A, ResponseCode::NXDomain),
    ] {
        assert_eq!(code(&gate, name, kind), want, "{name} {kind}");
    }
    let told = log.lines();
    for line in [
        "Lookup other.test:0 Denied network.default",
        "Lookup a.evil.test:0 Denied network.rule[1]",
        "Lookup model.test:0 Allowed network.rule[0]",
        "Lookup 127.1:0 Denied name check",
    ] {
        assert!(told.iter().any(|l| l == line), "{line} not in {told:#?}");
    }
    assert_eq!(address(&gate, "localhost."), IpAddr::from([127, 0, 0, 1]));
    let IpAddr::V4(v4) = address(&gate, "model.test.") else { panic!() };
    let [a, b, c, d] = v4.octets();
    let pointer = ask(&gate, &Name::from_ascii(format!("{d}.{c}.{b}.{a}.in-addr.arpa.")).unwrap(), RecordType::PTR);
    assert_eq!(pointer.answers[0].data.to_string(), "model.test.", "an address given out leads back to its name");
}

#[tokio::test]
async fn odd_labels_get_no_address_and_are_told_as_plain_text() {
    let log = Log::new(false);
    let gate =
        Gate::new(policy("[[network.rule]]\nhost = \"*.evil.test\"\ndecision = \"allow\"\n"), 9, Recorder::new(log.clone()));
    for label in [&b"a\0b"[..], b"a.b", b"\xff", b"a b", b"\x1b[2J", b"-a", "\u{202e}".as_bytes()] {
        let name = Name::from_labels([label, b"evil", b"test"]).unwrap();
        assert_eq!(ask(&gate, &name, RecordType::A).metadata.response_code, ResponseCode::NXDomain, "{label:?}");
    }
    for f in log.facts.lock().unwrap().iter() {
        let What::Network { host, verdict: Verdict::Denied, .. } = &f.what else { panic!("{f:?}") };
        assert!(!host.chars().any(model::path::hides), "{host:?}");
    }
}

#[tokio::test]
async fn a_run_gets_so_many_names_and_no_more() {
    let log = Log::new(false);
    let gate =
        Gate::new(policy("[[network.rule]]\nhost = \"*.many.test\"\ndecision = \"allow\"\n"), 3, Recorder::new(log.clone()));
    let codes: Vec<ResponseCode> = (0..5).map(|i| code(&gate, &format!("n{i}.many.test."), RecordType::A)).collect();
    assert_eq!(
        codes,
        [ResponseCode::NoError, ResponseCode::NoError, ResponseCode::NoError, ResponseCode::ServFail, ResponseCode::ServFail]
    );
    assert_eq!(code(&gate, "n1.many.test.", RecordType::A), ResponseCode::NoError, "names that have an address keep it");
    assert!(log.lines().contains(&"limit names".to_owned()));
}

#[tokio::test]
async fn names_are_served_over_udp_and_connections_wait_at_the_cap() {
    let log = Log::new(false);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let names = socket.local_addr().unwrap();
    let server = echo().await;
    // Here the listener's own address is what is dialled, so a rule by address stands for a name.
    let limits = Limits { connections: 2, ..Limits::default() };
    let inlets = Inlets::Own { listener: listener.into(), dns: socket.into() };
    let rules = pinned("model.test", 8443, server);
    let way_out = tokio::spawn(serve(inlets, policy(&rules), log.clone(), limits, None, Proxies::default()));

    let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 512];
    client.send_to(b"\xff\xff\x00", names).await.unwrap();
    let mut m = Message::query();
    m.add_query(Query::query(Name::from_ascii("model.test.").unwrap(), RecordType::A));
    client.send_to(&m.to_vec().unwrap(), names).await.unwrap();
    let n =
        tokio::time::timeout(Duration::from_secs(20), client.recv(&mut buffer)).await.expect("a question is answered").unwrap();
    assert_eq!(Message::from_vec(&buffer[..n]).unwrap().answers.len(), 1, "garbage before it changes nothing");

    for _ in 0..5 {
        assert!(is_reset(TcpStream::connect(at).await.unwrap()).await, "loopback of the host is a bare address like any other");
    }
    log.wait_for(&format!("Connect :{} Denied network.default", at.port())).await;
    way_out.abort();
    assert!(way_out.await.is_err_and(|e| e.is_cancelled()));
}

#[tokio::test]
async fn p4_where_connections_are_made_each_goes_where_it_was_meant_and_a_strangers_nowhere() {
    let log = Log::new(false);
    let inlets: Vec<std::net::TcpListener> =
        ["127.0.0.1:0", "127.0.0.1:0"].map(|at| std::net::TcpListener::bind(at).unwrap()).into();
    let at: Vec<SocketAddr> = inlets.iter().map(|l| l.local_addr().unwrap()).collect();
    let server = echo().await;
    let rules = pinned("model.test", 8443, server);
    let inlets = Inlets::Made(inlets.into_iter().map(Into::into).collect());
    let way_out = tokio::spawn(serve(inlets, policy(&rules), log.clone(), Limits::default(), None, Proxies::default()));
    // A question over TCP, to any server's port 53, gives the name its address.
    let mut asks = TcpStream::connect(at[1]).await.unwrap();
    log.made.lock().unwrap().push((asks.local_addr().unwrap(), "192.0.2.1:53".parse().unwrap()));
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii("model.test.").unwrap(), RecordType::A));
    let question = question.to_vec().unwrap();
    asks.write_u16(u16::try_from(question.len()).unwrap()).await.unwrap();
    asks.write_all(&question).await.unwrap();
    let mut reply = vec![0; usize::from(asks.read_u16().await.unwrap())];
    asks.read_exact(&mut reply).await.unwrap();
    let RData::A(ip) = Message::from_vec(&reply).unwrap().answers[0].data else { panic!("no address") };
    for at in at {
        let mut program = TcpStream::connect(at).await.unwrap();
        let told = (program.local_addr().unwrap(), SocketAddr::new(IpAddr::V4(ip.0), 8443));
        log.made.lock().unwrap().push(told);
        program.write_all(b"to the server").await.unwrap();
        program.shutdown().await.unwrap();
        let mut said = Vec::new();
        program.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"to the serverbye");
        let before = log.lines();
        assert!(is_reset(TcpStream::connect(at).await.unwrap()).await, "one that nobody made is nobody's");
        assert_eq!(log.lines().len(), before.len(), "and no event of the run's: {:?}", log.lines());
    }
    way_out.abort();
    assert!(way_out.await.is_err_and(|e| e.is_cancelled()));
}

#[tokio::test]
async fn a_silent_connection_holds_one_place_and_the_next_is_known_and_waits_for_it() {
    let log = Log::new(false);
    let limits = Limits { connections: 1, ..Limits::default() };
    let door =
        Arc::new(Door::new(policy(&pinned("model.test", 8443, echo().await)), log.clone(), limits, None, Proxies::default()));
    let dst = SocketAddr::new(address(&door.gate, "model.test."), 8443);
    let first = dial(&door, dst).await;
    log.wait_for("Connect model.test:8443 Allowed network.rule[0]").await;
    let mut second = dial(&door, dst).await;
    log.wait_for("limit connections").await;
    second.write_all(b"hello").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(300), second.read_u8()).await;
    assert!(early.is_err(), "an open connection keeps its place, however silent");
    assert_eq!(
        log.lines().iter().filter(|l| l.contains("Allowed network")).count(),
        2,
        "its lookup and itself: {:?}",
        log.lines()
    );
    drop(first);
    let back = tokio::time::timeout(Duration::from_secs(20), second.read_u8()).await.expect("its end makes room").unwrap();
    assert_eq!(back, b'h');
}

#[tokio::test]
async fn names_are_served_over_tcp_too() {
    let log = Log::new(false);
    let door = Arc::new(Door::new(
        policy(&pinned("model.test", 8443, "127.0.0.1:1".parse().unwrap())),
        log.clone(),
        Limits::default(),
        None,
        Proxies::default(),
    ));
    let mut program = dial(&door, "9.9.9.9:53".parse().unwrap()).await;
    for (name, want) in [("model.test.", ResponseCode::NoError), ("other.test.", ResponseCode::NXDomain)] {
        let mut m = Message::query();
        m.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        let packet = m.to_vec().unwrap();
        program.write_u16(u16::try_from(packet.len()).unwrap()).await.unwrap();
        program.write_all(&packet).await.unwrap();
        let mut reply = vec![0; usize::from(program.read_u16().await.unwrap())];
        program.read_exact(&mut reply).await.unwrap();
        assert_eq!(Message::from_vec(&reply).unwrap().metadata.response_code, want, "{name}");
    }
}

proptest! {
    #[test]
    fn no_packet_breaks_the_name_service(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
        let gate = Gate::new(policy(""), 3, Recorder::new(Log::new(false)));
        if let Some(reply) = dns::answer(&gate, &packet) {
            prop_assert!(reply[2] & 0x80 != 0, "what is sent is an answer");
            prop_assert!(reply.len() <= 600 + 12);
        }
    }

    #[test]
    fn no_damaged_question_breaks_the_name_service(at in 0_usize..40, byte: u8, cut in 12_usize..60, kind: u16) {
        let gate = Gate::new(policy("[[network.rule]]\nhost = \"*.many.test\"\ndecision = \"allow\"\n"), 3, Recorder::new(Log::new(false)));
        let mut m = Message::new(7, hickory_proto::op::MessageType::Query, OpCode::Query);
        m.add_query(Query::query(Name::from_ascii("some.name.many.test.").unwrap(), RecordType::from(kind)));
        let mut packet = m.to_vec().unwrap();
        let last = packet.len() - 1;
        packet[at.min(last)] = byte;
        packet.truncate(cut);
        if let Some(reply) = dns::answer(&gate, &packet) {
            prop_assert!(Message::from_vec(&reply).is_ok(), "an answer can be read");
        }
    }
}

#[tokio::test]
async fn a_connection_that_stands_takes_little_memory() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let door = Door::new(policy(""), Log::new(false), Limits::default(), None, Proxies::default());
    let arrives = door.arrive(stream, "192.0.2.1:443".parse().unwrap(), None, None);
    let size = std::mem::size_of_val(&arrives);
    assert!(size <= 4 << 10, "{size} bytes, whatever becomes of it");
}
