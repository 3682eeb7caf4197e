//! A second file can only take away, and no text breaks the reader.

use policy::{Host, Request, Target};
use proptest::prelude::*;
use std::fmt::Write;

const HOSTS: [&str; 5] = ["a.test.org", "b.test.org", "*.test.org", "x.a.test.org", "198.51.100.1"];
const TARGETS: [&str; 5] = ["a.test.org", "b.test.org", "x.a.test.org", "other.org", "198.51.100.1"];

/// A file with rules over a few hosts and ports, so that they overlap often.
fn file(person: bool) -> impl Strategy<Value = String> {
    let decision = prop_oneof![Just("allow"), Just("ask"), Just("deny")];
    let rule = (0..HOSTS.len(), proptest::collection::vec(1_u16..4, 0..3), decision, any::<bool>());
    let default = proptest::option::of(prop_oneof![Just("ask"), Just("deny")]);
    (default, proptest::collection::vec(rule, 0..6), 8_u64..50).prop_map(move |(default, rules, processes)| {
        let mut out = "version = 1\n[network]\n".to_owned();
        if let Some(d) = default {
            writeln!(out, "default = \"{d}\"").unwrap();
        }
        for (host, ports, decision, inspect) in rules {
            writeln!(out, "[[network.rule]]\nhost = \"{}\"\ndecision = \"{decision}\"", HOSTS[host]).unwrap();
            if !ports.is_empty() {
                writeln!(out, "ports = {ports:?}").unwrap();
            }
            if inspect {
                writeln!(out, "methods = [\"GET\"]").unwrap();
            }
            // One place per port keeps rules from contradicting each other.
            if person && ports.len() == 1 && decision == "allow" && !inspect && host == 0 {
                writeln!(out, "reason = \"pinned\"").unwrap();
            }
        }
        writeln!(out, "[limits]\nprocesses = {processes}").unwrap();
        out
    })
}

/// A section of limits with a random choice of keys.
fn limits() -> impl Strategy<Value = String> {
    let figure = || proptest::option::of(1_u64..40);
    let sizes = ["memory", "disk", "bytes_out", "bytes_in", "output"];
    let required = proptest::sample::subsequence(vec!["memory", "cpus", "wall", "disk"], 0..3);
    (proptest::collection::vec(figure(), 9), required).prop_map(move |(figures, required)| {
        let mut out = "version = 1\n[limits]\n".to_owned();
        for (key, n) in sizes.iter().zip(&figures) {
            n.iter().for_each(|n| writeln!(out, "{key} = \"{n}GiB\"").unwrap());
        }
        figures[5].iter().for_each(|n| writeln!(out, "cpus = {n}").unwrap());
        figures[6].iter().for_each(|n| writeln!(out, "processes = {}", n + 10).unwrap());
        figures[7].iter().for_each(|n| writeln!(out, "open_files = {}", n + 70).unwrap());
        figures[8].iter().for_each(|n| writeln!(out, "wall = \"{n}m\"").unwrap());
        writeln!(out, "require = {required:?}").unwrap();
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn two_files_never_allow_more_than_either(own in file(true), theirs in file(false)) {
        let own = policy::parse("own", &own).unwrap();
        let theirs = policy::parse_repository("theirs", &theirs).unwrap();
        let both = policy::layer(&own, &theirs);
        prop_assert!(both.limits.processes <= own.limits.processes);
        for name in TARGETS {
            for port in [1, 2, 3, 4, 443] {
                let target = Target::parse(&format!("{name}:{port}")).unwrap();
                let request = Request::Connect(target.clone());
                let (b, o) = (policy::decide(&both, &request), policy::decide(&own, &request));
                let t = theirs.decide(&target).map(|r| r.decision);
                prop_assert_eq!(b.decision, t.map_or(o.decision, |t| t.max(o.decision)), "{}: {:?} {:?}", target, b, o);
            }
            if let Ok(host) = Host::parse(name) {
                let request = Request::Lookup(host);
                prop_assert!(policy::decide(&both, &request).decision >= policy::decide(&own, &request).decision);
            }
        }
    }

    #[test]
    fn p8_of_two_files_the_smaller_limit_counts(own in limits(), theirs in limits()) {
        let person = policy::parse("own", &own).unwrap();
        let (own, alone) = (person.limits.clone(), policy::parse("theirs", &theirs).unwrap().limits);
        let both = policy::layer(&person, &policy::parse_repository("theirs", &theirs).unwrap()).limits;
        let says = |key: &str| theirs.contains(&format!("\n{key} = "));
        for (key, both, own, alone) in [
            ("memory", both.memory, own.memory, alone.memory),
            ("disk", both.disk, own.disk, alone.disk),
            ("bytes_out", both.bytes_out, own.bytes_out, alone.bytes_out),
            ("bytes_in", both.bytes_in, own.bytes_in, alone.bytes_in),
            ("output", both.output, own.output, alone.output),
            ("cpus", both.cpus, own.cpus, alone.cpus),
            ("processes", both.processes, own.processes, alone.processes),
            ("open_files", both.open_files, own.open_files, alone.open_files),
            ("wall", both.wall.as_secs(), own.wall.as_secs(), alone.wall.as_secs()),
        ] {
            prop_assert_eq!(both, if says(key) { own.min(alone) } else { own }, "{}", key);
        }
        for limit in policy::Limit::ALL {
            prop_assert_eq!(both.require.contains(&limit), own.require.contains(&limit) || alone.require.contains(&limit));
        }
    }

    #[test]
    fn a_name_gets_an_address_exactly_where_some_port_is_allowed(own in file(true)) {
        let own = policy::parse("own", &own).unwrap();
        for name in TARGETS {
            let Ok(host) = Host::parse(name) else { continue };
            let best = [1, 2, 3, 443, 60_000].map(|p| policy::decide(&own, &Request::Connect(Target::parse(&format!("{name}:{p}")).unwrap())).decision);
            prop_assert_eq!(Some(policy::decide(&own, &Request::Lookup(host)).decision), best.into_iter().min(), "{}", name);
        }
    }

    #[test]
    fn no_text_breaks_the_reader(text in "(version = 1\n|\\[network\\]\n|\\[\\[network.rule\\]\\]\n|host = \"|\"|\n|= |[a-z\\[\\]{},.*\u{202e}é]|\\PC){0,60}") {
        for result in [policy::parse("x", &text).err(), policy::parse_repository("x", &text).err(), policy::Kit::parse(&text).err()] {
            for p in result.unwrap_or_default() {
                prop_assert!(p.line >= 1 && p.column >= 1 && p.line as usize <= text.lines().count() + 1, "{:?}", p);
            }
        }
    }
}

#[test]
fn p2_a_repository_masks_more_and_never_less() {
    let own = policy::parse("own", "version = 1\n[files]\nmask = [\".env\", \"!a/.env\"]\ncarry = [\"node_modules\"]\n").unwrap();
    let theirs = policy::parse_repository("theirs", "version = 1\n[files]\nmask = [\"*.key\", \".env\"]\n").unwrap();
    let both = policy::layer(&own, &theirs);
    assert_eq!(both.files.mask, [".env", "!a/.env", "*.key"]);
    assert_eq!(both.files.carry, ["node_modules"]);
}
