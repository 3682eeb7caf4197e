//! Promise 4: a jail reaches no network but through the way out. Real kernel, real jail, servers of the test on loopback that are
//! reached by rules with `address`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod inside;

use inside::{Inside, server};
use model::event::{NetOp, Verdict, What};

/// Greets once in each direction over an open connection, or says how it broke.
const TALK: &str = "talk() { exec 3<>/dev/tcp/$1/$2 && echo hello >&3 && timeout 20 cat <&3; }\n";

#[test]
fn a_name_allowed_by_host_and_port_reaches_its_server_and_the_kernel_says_who() {
    let server = server("from the server\n");
    let went = Inside::new(&server.rule("model.test", 8443)).bash(&format!("{TALK}talk model.test 8443; talk MODEL.test 8443"));
    assert_eq!(went.out, "from the server\nfrom the server\n", "{went:#?}");
    assert_eq!(server.heard(), "hello\nhello\n", "what the program sends arrives");
    let connects = went.network(NetOp::Connect);
    assert_eq!(connects.len(), 2, "{went:#?}");
    for fact in connects {
        let What::Network { host, port: 8443, verdict: Verdict::Allowed, address: Some(outside), .. } = &fact.what else {
            panic!("{fact:?}")
        };
        assert_eq!((host.as_str(), outside), ("model.test", &server.address.to_string()));
        let who = fact.process.as_ref().expect("the kernel's word on who");
        assert_eq!(who.program.to_string(), "bash");
    }
    let ends = went.network(NetOp::Close);
    assert_eq!(ends.len(), 2, "an end is told for each");
    assert!(ends.iter().all(|f| matches!(f.what, What::Network { sent: 6, received: 16, .. })), "with its bytes: {ends:?}");
}

#[test]
fn no_other_port_host_or_address_is_reached_and_each_try_is_told() {
    let server = server("from the server\n");
    let own = server.address.port();
    let script = format!(
        "{TALK}
        t() {{ out=$( (talk $1 $2) 2>/dev/null) && echo \"REACHED $1 $2 $out\"; }}
        t model.test 80; t other.test 8443; t 93.184.216.34 443; t 2606:4700::1 443; t 169.254.169.254 80; t 10.0.0.1 22
        t 127.0.0.1 {own}; t ::1 {own}; t 0.0.0.0 {own}; t ::ffff:127.0.0.1 {own}; t 198.18.77.77 8443; t localhost {own}
        echo done"
    );
    let went = Inside::new(&server.rule("model.test", 8443)).bash(&script);
    assert_eq!(went.out, "done\n", "{went:#?}");
    assert_eq!(server.heard(), "", "nothing arrived");
    for (op, host, port, rule) in [
        (NetOp::Connect, "model.test", 80, "network.default"),
        (NetOp::Lookup, "other.test", 0, "network.default"),
        (NetOp::Connect, "", 443, "network.default"),
        (NetOp::Connect, "", 22, "network.default"),
        (NetOp::Connect, "", 80, "network.default"),
        (NetOp::Connect, "", 8443, "name check"),
    ] {
        let told = went.network(op).iter().any(|f| {
            matches!(&f.what, What::Network { host: h, port: p, verdict: Verdict::Denied, rule: r, .. } if h == host && *p == port && r == rule)
        });
        assert!(told, "{op:?} {host}:{port} by {rule} is told: {went:#?}");
    }
    assert!(!went.facts.iter().any(|f| matches!(f.what, What::Network { op: NetOp::Connect, verdict: Verdict::Allowed, .. })));
}

#[test]
fn a_rule_by_address_does_not_open_metadata_or_private_networks() {
    let rule = |ip: &str| format!("[[network.rule]]\nhost = \"{ip}\"\nports = [80]\ndecision = \"allow\"\n");
    let rules: String = ["169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1", "fd00:ec2::254"].map(rule).concat();
    let script = format!(
        "{TALK}for a in 169.254.169.254 10.0.0.1 192.168.0.1 100.64.0.1 fd00:ec2::254; do (talk $a 80) 2>/dev/null && echo \"REACHED $a\"; done; echo done"
    );
    let went = Inside::new(&rules).bash(&script);
    assert_eq!(went.out, "done\n", "{went:#?}");
    let refused = went.network(NetOp::Connect);
    assert_eq!(refused.len(), 5, "{went:#?}");
    assert!(
        refused
            .iter()
            .all(|f| matches!(&f.what, What::Network { verdict: Verdict::Denied, rule, .. } if rule == "address check"))
    );
}

#[test]
fn names_are_answered_whichever_server_is_asked_and_other_datagrams_go_nowhere() {
    // A question for A of model.test, and one for A of other.test, each with the id `ab`.
    let question =
        |name: &str| format!("ab\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x05{name}\\x04test\\x00\\x00\\x01\\x00\\x01");
    let script = format!(
        "ask() {{ exec 3<>/dev/udp/$1/53; printf '{}' >&3; timeout 20 head -c 12 <&3 | od -An -tx1 | tr -d ' \\n'; echo; }}
        ask 9.9.9.9; ask 2620:fe::9
        ask2() {{ exec 3<>/dev/udp/$1/53; printf '{}' >&3; timeout 20 head -c 12 <&3 | od -An -tx1 | tr -d ' \\n'; echo; }}
        ask2 9.9.9.9
        exec 3<>/dev/udp/9.9.9.9/443; echo quic >&3; sleep 0.2; (echo quic >&3) 2>/dev/null || echo refused",
        question("model"),
        question("other")
    );
    let went = Inside::new("[[network.rule]]\nhost = \"model.test\"\ndecision = \"allow\"\n").bash(&script);
    let lines: Vec<&str> = went.out.lines().collect();
    assert_eq!(lines.len(), 4, "{went:#?}");
    assert!(lines[0].starts_with("6162") && lines[0].ends_with("0001000100000000"), "one question, one answer: {went:#?}");
    assert_eq!(lines[1], lines[0], "over IPv6 too");
    assert!(lines[2].starts_with("6162") && &lines[2][7..8] == "3", "no such name: {went:#?}");
    assert_eq!(lines[3], "refused", "QUIC falls back at once: {went:#?}");
}

#[test]
fn at_the_cap_the_jail_waits_and_nothing_is_lost() {
    let server = server("bye\n");
    let mut inside = Inside::new(&server.rule("model.test", 8443));
    inside.limits.connections = 3;
    let script = "
        for i in 1 2 3 4 5 6; do
          ( exec 3<>/dev/tcp/model.test/8443; echo $i >&3; timeout 60 cat <&3 ) &
          sleep 0.1
        done
        wait";
    let went = inside.bash(script);
    assert_eq!(went.out, "bye\n".repeat(6), "{went:#?}");
    let opened = went.network(NetOp::Connect).len();
    assert_eq!(opened, 6, "{went:#?}");
    assert_eq!(server.most_at_once(), 3, "no more than the cap at once");
    assert!(went.facts.iter().any(|f| matches!(&f.what, What::Limit { limit, .. } if limit == "connections")), "and it is told");
}
