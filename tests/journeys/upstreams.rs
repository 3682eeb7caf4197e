//! Servers that do what none should: each harms its own request alone, and its program hears of it.

use crate::reading::World;
use testkit::airlock::LIMIT;
use testkit::{Live, Sandbox};

/// A server whose certificate has about a mebibyte.
fn huge(person: &Sandbox) -> (Live, String) {
    let names: String = (0..40_000).map(|n| format!(",DNS:name-number-{n}.huge.test")).collect();
    let settings = person.file(
        "huge.conf",
        &format!("[req]\ndistinguished_name = d\nx509_extensions = x\nprompt = no\n[d]\nCN = huge.test\n[x]\nsubjectAltName = DNS:huge.test{names}\n"),
    );
    let [key, certificate] = ["huge.key", "huge.pem"].map(|name| person.root().join(name));
    let mut made = person.command("openssl");
    made.args(["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-config"]).arg(settings);
    made.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    person.finish(made, b"").ok();
    assert!(std::fs::metadata(&certificate).unwrap().len() > 1 << 20);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = person.command("openssl");
    server.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{port}"), "-cert"]).arg(certificate).arg("-key").arg(key);
    let mut server = Live::start(server);
    server.until_out("ACCEPT");
    (server, port)
}

#[test]
fn p4_a_hostile_server_harms_its_own_request_alone() {
    let person = Sandbox::new();
    let (huge, port) = huge(&person);
    let world = World::new(
        &person,
        &format!(
            "[[network.rule]]\nhost = \"huge.test\"\naddress = \"127.0.0.1:{port}\"\ninspect = true\ndecision = \"allow\"\n"
        ),
    );
    let get = |path: &str, more: &str| {
        format!("curl -sS -m 20 {more} -o out https://other.test/{path}; echo {path} $? $(head -c 60 out)\n")
    };
    let script = format!(
        "curl -sS -m 6 https://other.test/trickle & {}{}{}{}{}wait $!; echo trickle $?\n{}\
         curl -sS -m 20 https://huge.test/ | head -c 60; echo\n{}",
        get("endless", ""),
        get("cut", ""),
        get("cut-piece", ""),
        get("twice", ""),
        get("away", "-L"),
        get("good", ""),
        get("good", "--http1.1"),
    );
    let ran = world.run(&script).ok();
    let out = ran.out();
    let line =
        |name: &str| out.lines().find(|l| l.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name}: {}", ran.said()));
    for refused in ["endless", "twice"] {
        assert!(line(refused).starts_with(&format!("{refused} 0 Airlock: allowed, but")), "{}", ran.said());
    }
    // Half is not taken for all, by either kind of end.
    assert!(!line("cut").starts_with("cut 0") && !line("cut-piece").starts_with("cut-piece 0"), "{}", ran.said());
    assert!(!line("away").starts_with("away 0"), "a redirection leads nowhere: {}", ran.said());
    assert_eq!(line("trickle"), "trickle 28", "its program waits as long as it wants to: {}", ran.said());
    assert!(out.contains("Airlock: allowed, but TLS with huge.test failed"), "{}", ran.said());
    assert_eq!(out.matches("good 0 served").count(), 2, "others are served: {}", ran.said());
    let ends: Vec<String> = world.lines().into_iter().filter(|l| l.starts_with("/endless ended")).collect();
    let sent: usize = ends[0].rsplit(' ').next().unwrap().parse().unwrap();
    assert!(sent < 16 << 20, "it is not read for ever: {sent}");
    huge.signal(nix::sys::signal::Signal::SIGTERM);
    huge.end(LIMIT);
}
