//! What the policy asks about waits for the person: held, answered, granted, taken back.

use crate::steps::{events, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testkit::airlock::LIMIT;
use testkit::{Live, Repo, Sandbox, eventually};

/// A web server of the test's. `/drip` goes on for ever.
struct Server {
    at: SocketAddr,
    served: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { at, served }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: std::net::TcpStream) {
    let mut request = [0; 4096];
    let n = stream.read(&mut request).unwrap_or(0);
    let drip = request[..n].starts_with(b"GET /drip");
    let head =
        if drip { "HTTP/1.1 200 OK\r\n\r\n" } else { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved" };
    let mut write = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    write(head.as_bytes());
    while drip && write(b"drip\n") {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A policy that asks about `model.test`, which is the server, and about everything else.
fn policy(person: &Sandbox, server: &Server, hold: &str) -> PathBuf {
    person.file(
        "policy.toml",
        &format!(
            "version = 1\nname = \"asks\"\n[network]\ndefault = \"ask\"\nhold = \"{hold}\"\n\
             [[network.rule]]\nhost = \"model.test\"\nports = [80]\naddress = \"{}\"\ndecision = \"ask\"\nreason = \"a server\"\n\
             [[network.rule]]\nhost = \"closed.test\"\ndecision = \"deny\"\n",
            server.at
        ),
    )
}

fn start(person: &Sandbox, repo: &Repo<'_>, policy: &std::path::Path, script: &str) -> Live {
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(policy).args(["--", "bash", "-c", script]);
    Live::start(c)
}

const GET: &str = "curl -sS -m 50 http://model.test/";

fn asks(person: &Sandbox, words: &[&str]) -> Vec<Value> {
    person.airlock([&["ask", "list", "--json"], words].concat()).ok().json_lines()
}

fn the_open_ask(person: &Sandbox) -> Value {
    eventually("an open ask", Duration::from_secs(30), || asks(person, &[]).into_iter().next())
}

fn named(ask: &Value) -> String {
    format!("{}@{}", text(ask, "id"), text(ask, "digest"))
}

#[test]
fn p4_an_unlisted_host_waits_goes_on_when_allowed_for_the_task_and_ends_when_that_is_taken_back() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "50s");
    let script = format!(
        "{GET}; echo; {GET}; echo; curl -sSN http://model.test/drip | head -c 100000000 | grep -m1 drip; echo first; \
                          curl -sSN -o drips http://model.test/drip; echo \"curl ended with $?\"; read go; {GET} || echo \"refused $?\""
    );
    let mut run = start(&person, &repo, &policy, &script);
    run.until_err("it waits for you: connect to model.test:80?");
    let ask = the_open_ask(&person);
    assert_eq!(server.served(), 0, "nothing left before the answer");
    assert_eq!((&ask["about"], &ask["host"], &ask["port"]), (&"connect".into(), &"model.test".into(), &80.into()), "{ask}");
    assert_eq!(ask["process"]["program"], "curl", "with the kernel's word on who: {ask}");
    assert_eq!(ask["reason"], "a server", "{ask}");
    let shown = person.airlock(["ask", "show", &text(&ask, "id")]).ok().out();
    for word in ["connect to model.test:80", "curl", "network.rule[0]", "a server", "ask allow"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let other = format!("{}@{}", text(&ask, "id"), "0".repeat(64));
    person.airlock(["ask", "allow", &other]).exits(3);
    assert_eq!(server.served(), 0, "an answer about something else changes nothing");

    person.airlock(["ask", "allow", &named(&ask), "--scope", "task"]).ok();
    run.until_out("served\nserved\n");
    assert!(asks(&person, &[]).is_empty(), "one answer serves the task");
    person.airlock(["ask", "deny", &named(&ask)]).exits(3);
    run.until_out("first");
    eventually("a connection that lives", LIMIT, || (server.served() >= 4).then_some(()));
    let grant = &person.airlock(["grant", "list", "--json"]).ok().json_lines()[0];
    assert_eq!((&grant["lives"], &grant["ask"]), (&true.into(), &ask["id"]), "{grant}");
    let used = || person.airlock(["grant", "list", "--json"]).ok().json_lines()[0]["used"].as_u64().unwrap();
    eventually("each use is counted", LIMIT, || (used() == 4).then_some(()));
    assert!(!run.out().contains("curl ended"), "it is open: {}", run.out());

    let taken = person.airlock(["grant", "revoke", &text(grant, "id"), "--json"]).ok().json();
    assert_eq!((&taken["was"], &taken["closed"]), (&true.into(), &1.into()), "{taken}");
    run.until_out("curl ended with ");
    let served = server.served();
    run.write(b"go\n");
    let again = the_open_ask(&person);
    assert_ne!(again["id"], ask["id"], "what was taken back is asked about anew");
    let begun = Instant::now();
    person.airlock(["ask", "deny", &named(&again)]).ok();
    run.until_out("refused ");
    assert!(begun.elapsed() < testkit::wait::patiently(Duration::from_secs(5)), "a denial ends it at once");
    run.end(LIMIT).ok();
    assert_eq!(server.served(), served, "nothing of a denied connection left");

    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let told: Vec<String> = events(&person, &task)
        .iter()
        .filter(|e| e["kind"] == "ask" || e["kind"] == "decision")
        .map(|e| format!("{} {}", text(e, "kind"), e.get("verdict").map_or_else(String::new, |v| v.as_str().unwrap().to_owned())))
        .collect();
    assert_eq!(told, ["ask ", "decision allowed", "decision denied", "ask ", "decision denied"]);
}

#[test]
fn p4_allowed_once_is_for_what_waits_and_denied_is_for_the_run() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "50s");
    let three =
        format!("for i in 1 2 3; do {GET} & done; wait; echo; echo three; {GET}; echo \"then $?\"; {GET}; echo \"again $?\"");
    let mut run = start(&person, &repo, &policy, &three);
    eventually("three tries of one ask", LIMIT, || (the_open_ask(&person)["tries"] == 3).then_some(()));
    let ask = the_open_ask(&person);
    assert_eq!(asks(&person, &[]).len(), 1, "many connections to one host are one ask");
    person.airlock(["ask", "allow", &named(&ask)]).ok();
    run.until_out("servedservedserved\nthree");
    assert_eq!(server.served(), 3);
    let next = the_open_ask(&person);
    assert_ne!(next["id"], ask["id"], "once is used up by those that waited");
    person.airlock(["ask", "deny", &text(&next, "id")]).ok();
    run.until_out("then ");
    run.until_out("again ");
    run.end(LIMIT).ok();
    assert_eq!(server.served(), 3, "nothing more got through");
    assert_eq!(asks(&person, &["--all"]).len(), 2, "what was denied is not asked about again");
}

#[test]
fn p4_a_grant_by_hand_serves_who_waits_and_never_what_the_policy_denies() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "50s");
    let script = format!("{GET}; echo; curl -sS -m 5 http://closed.test/ || echo \"closed $?\"");
    let mut run = start(&person, &repo, &policy, &script);
    let ask = the_open_ask(&person);
    for target in ["model.test:80", "closed.test:80"] {
        let mut c = person.airlock_command(["grant", "add", target, "--repo"]);
        c.arg(&repo.path);
        person.finish(c, b"").ok();
    }
    run.until_out("served\n");
    run.until_out("closed 6");
    run.end(LIMIT).ok();
    assert_eq!(server.served(), 1);
    let over = &asks(&person, &["--all"])[0];
    assert_eq!((&over["id"], &over["state"]), (&ask["id"], &"allowed".into()), "{over}");

    // Another task of the repository needs no ask, another repository does.
    let mut second = start(&person, &repo, &policy, GET);
    second.until_out("served");
    second.end(LIMIT).ok();
    assert_eq!(asks(&person, &["--all"]).len(), 1);
    let elsewhere = person.small_repo_at(person.root().join("elsewhere"));
    let mut third = start(&person, &elsewhere, &policy, GET);
    person.airlock(["ask", "deny", &text(&the_open_ask(&person), "id")]).ok();
    third.until_err("curl: ");
    third.end(LIMIT).exits(1);
}

#[test]
fn p4_a_grant_ends_with_its_time_and_so_does_what_lives_by_it() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "50s");
    let mut run = start(&person, &repo, &policy, "curl -sSN -o drips http://model.test/drip; echo \"ended $?\"; wc -c < drips");
    let ask = the_open_ask(&person);
    person.airlock(["ask", "allow", &named(&ask), "--scope", "task", "--for", "2s"]).ok();
    run.until_out("ended ");
    run.end(LIMIT).ok();
    let grant = &person.airlock(["grant", "list", "--json"]).ok().json_lines()[0];
    assert_eq!((&grant["lives"], &grant["revoked"]), (&false.into(), &Value::Null), "{grant}");
    let until = &grant["until"];
    assert!(until["wall"].as_u64().unwrap() >= grant["made"].as_u64().unwrap() + 2000 && until["boot"].is_u64(), "{grant}");
    person.airlock(["ask", "allow", &named(&ask)]).exits(3);
    for bad in ["0s", "-1s", "soon", ""] {
        person.airlock(["ask", "allow", &named(&ask), &format!("--for={bad}")]).exits(2);
    }
}

#[test]
fn p4_where_nobody_answers_it_is_refused_the_ask_stays_and_ends_with_its_run() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "1s");
    let mut run = start(&person, &repo, &policy, &format!("{GET}; echo \"first $?\"; read go; {GET}; echo; read go"));
    run.until_out("first ");
    let ask = the_open_ask(&person);
    person.airlock(["ask", "allow", &named(&ask)]).ok();
    assert_eq!(server.served(), 0);
    run.write(b"go\n");
    run.until_out("served");
    run.write(b"go\n");
    run.end(LIMIT).ok();

    // Stopped and killed runs leave no ask open.
    for kill in [false, true] {
        let mut run = start(&person, &repo, &policy, &format!("sleep 100 & {GET}; echo \"first $?\"; wait"));
        run.until_out("first ");
        let ask = the_open_ask(&person);
        let task = text(&ask, "task");
        if kill {
            for warden in person.wardens() {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(warden), nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        } else {
            person.airlock(["task", "stop", &task]).ok();
        }
        drop(run.end(LIMIT));
        // What tells that a warden is gone comes a moment before its lock is free.
        let state = || person.airlock(["ask", "show", &text(&ask, "id"), "--json"]).ok().json()["state"].clone();
        eventually("the end of the ask", LIMIT, || (state() == "ended").then_some(()));
        let late = person.airlock(["ask", "allow", &named(&ask)]).exits(3).err();
        assert!(late.contains("grant add model.test:80"), "{late}");
    }
}

#[test]
fn p6_a_jail_that_asks_for_everything_wears_nobody_out() {
    let person = Sandbox::new();
    let (repo, server) = (person.small_repo(), Server::start());
    let policy = policy(&person, &server, "50s");
    let flood = "for i in $(seq 200); do timeout 8 bash -c \"exec 3<>/dev/tcp/n$i.test/443\" 2>/dev/null & done; wait; echo over; read go";
    let mut run = start(&person, &repo, &policy, flood);
    run.until_out("over");
    let open = asks(&person, &[]);
    assert_eq!(open.len(), 32, "so many are open and no more");
    let task = text(&open[0], "task");
    let limits: Vec<Value> =
        events(&person, &task).into_iter().filter(|e| e["kind"] == "limit" && e["limit"] == "asks").collect();
    run.write(b"go\n");
    assert!(!limits.is_empty() && limits.len() < 10, "that it is too much is told, and not each time: {limits:#?}");
    run.end(LIMIT).ok();
}

#[test]
fn an_explanation_names_the_grant_that_lets_a_request_through() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    person.run_script(&repo.path, &[], "true").ok();
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let made = text(&person.airlock(["grant", "add", "example.org", "--task", &task, "--json"]).ok().json(), "grant");
    let explained = |request: &str| person.airlock(["policy", "explain", &task, request]).ok().out();
    for request in ["example.org:443", "GET https://example.org/x"] {
        let said = explained(request);
        assert!(
            said.contains(": ask, by network.default")
                && said.contains(&format!("let through by the grant {made} for this task")),
            "{said}"
        );
    }
    assert!(!explained("other.example.org:443").contains("the grant"), "for that host alone");
    person.airlock(["grant", "revoke", &made]).ok();
    assert!(!explained("example.org:443").contains("the grant"), "and while it lives");
    // A preset is checked by its name.
    assert!(person.airlock(["policy", "check", "standard"]).ok().out().contains("everything else is asked about"));
}
