//! Servers that do what none should: each harms its own request alone, and its program hears of it.

use crate::reading::World;
use testkit::Sandbox;
use testkit::tls::TlsServer;

#[test]
fn p4_a_hostile_server_harms_its_own_request_alone() {
    let person = Sandbox::new();
    // A certificate of about a mebibyte.
    let names: Vec<String> = (0..40_000).map(|n| format!("name-number-{n}.huge.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["huge.test"]).collect();
    let huge = TlsServer::start(&names, &person.projects());
    let world = World::new(
        &person,
        &format!("[[network.rule]]\nhost = \"huge.test\"\naddress = \"{}\"\ninspect = true\ndecision = \"allow\"\n", huge.at),
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
}
