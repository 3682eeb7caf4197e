//! Sockets of the person's: by path, by abstract name, on loopback; and what a server would hand over.

use crate::table::Control::{Apart, Plain};
use crate::table::{Attack, Program, Victim};

const SCRIPT: &str = include_str!("programs/sockets.py");

const fn socket(name: &'static str, why: &'static str, words: &'static [&'static str], victim: Victim) -> Attack {
    Attack::new(name, why, Program::Python(SCRIPT, words), victim, Plain)
}

const SOCKETS: &[Attack] = &[
    socket(
        "stream",
        "docker.sock, ssh-agent, gpg-agent, Wayland, a session bus: a socket file",
        &["stream", "{stream}"],
        Victim::Stream,
    ),
    socket("relative", "a socket file by a relative path", &["relative", "{stream}"], Victim::Stream),
    socket("by-link", "a socket file by a descriptor's link", &["by-link", "{stream}"], Victim::Stream),
    socket("handed-on", "a connection that a child made", &["handed-on", "{stream}"], Victim::Stream),
    socket("smuggled", "SCM_RIGHTS: a server hands a descriptor to whoever comes", &["stream", "{stream}"], Victim::Secret),
    socket("sendto", "nono#1096, #1089: a datagram needs no connect", &["sendto", "{datagram}"], Victim::Datagram),
    socket("sendmsg", "likewise, by sendmsg", &["sendmsg", "{datagram}"], Victim::Datagram),
    socket("connected", "a connected datagram socket", &["connected", "{datagram}"], Victim::Datagram),
    socket("abstract", "X11, a session bus: an abstract name", &["abstract", "{abstract}"], Victim::Abstract),
    socket("guessed", "abstract names as /proc lists them", &["guessed", "{abstract}"], Victim::Abstract),
    socket(
        "abstract-sendto",
        "a datagram to an abstract name",
        &["abstract-sendto", "{abstract-datagram}"],
        Victim::AbstractDatagram,
    ),
    socket("tcp", "a service on loopback", &["tcp", "{tcp}"], Victim::Tcp),
    socket("every-address", "a service on loopback by its other names", &["every-address", "{tcp}"], Victim::Tcp),
    socket("vsock", "a service of a virtual machine's host, or of this machine to its own", &["vsock", "{vsock}"], Victim::Vsock)
        .or_lacks("this kernel's vsock does not lead back to the machine itself"),
    socket("udp", "OpenShell#1169 kind: datagrams", &["udp", "{udp}"], Victim::Udp),
    socket("question", "CVE-2025-55284: a secret in a question to a name server", &["question", "{udp}"], Victim::Udp),
    Attack::new("probe-connect", "TCP, from Rust", Program::Probe(&["connect", "127.0.0.1:{tcp}"]), Victim::Tcp, Plain),
    Attack::new("probe-udp", "UDP, from Rust", Program::Probe(&["udp", "127.0.0.1:{udp}"]), Victim::Udp, Plain),
    Attack::new(
        "shell-tcp",
        "what bash does itself",
        Program::Shell("bash -c 'echo canary > /dev/tcp/127.0.0.1/{tcp}'"),
        Victim::Tcp,
        Plain,
    ),
    Attack::new("shell-udp", "likewise", Program::Shell("bash -c 'echo canary > /dev/udp/127.0.0.1/{udp}'"), Victim::Udp, Plain),
    Attack::new(
        "by-hint",
        "GHSA-27vp-2mmc-vmh3, GHSA-wr3w-jmg2-xhcx: the environment says where the session's sockets are",
        Program::Shell(
            "test -n \"$SOCKET\" && python3 -c 'import socket,os; s=socket.socket(1,1); s.connect(os.environ[\"SOCKET\"]); s.send(b\"canary\")'",
        ),
        Victim::Stream,
        Plain,
    ),
    Attack::new(
        "anywhere",
        "any socket file in sight that is not the agent's own",
        Program::Shell(
            "for s in $(find / -type s -not -path '/proc/*' 2>/dev/null | head -200); do case $s in *{name}*) python3 -c 'import socket,sys; s=socket.socket(1,1); s.connect(sys.argv[1]); s.send(b\"canary\")' $s;; esac; done",
        ),
        Victim::Stream,
        Plain,
    ),
];

const DOORS: &[Attack] = &[
    Attack::new(
        "netlink",
        "kernel services by netlink",
        Program::C("kernel", &["netlink", "{name}"]),
        Victim::Descriptor("netlink"),
        Plain,
    ),
    Attack::new(
        "packet",
        "whole frames",
        Program::C("kernel", &["packet", "{name}"]),
        Victim::Descriptor("packet"),
        Apart("\"$@\""),
    ),
    Attack::new("raw", "raw packets", Program::C("kernel", &["raw", "{name}"]), Victim::Descriptor("raw"), Apart("\"$@\"")),
    Attack::new(
        "icmp",
        "CVE-2025-55284: ping",
        Program::C("kernel", &["icmp", "{name}"]),
        Victim::Descriptor("icmp"),
        Apart("echo 0 0 > /proc/sys/net/ipv4/ping_group_range; \"$@\""),
    ),
];

const fn screen(name: &'static str, why: &'static str, words: &'static [&'static str]) -> Attack {
    Attack::new(name, why, Program::Python(include_str!("programs/screen.py"), words), Victim::Screen, Plain)
}

const SCREENS: &[Attack] = &[
    screen("x-path", "whoever reaches an X server reads every key and sends any", &["path", "{display}", "{name}"]),
    screen("x-abstract", "likewise, by its abstract name", &["abstract", "{display}", "{name}"]),
];

#[test]
fn p6_no_screen_of_the_persons_is_reached() {
    if std::process::Command::new("Xvfb").arg("-help").output().is_err() {
        return testkit::not_tested_here("an X server");
    }
    assert_eq!(crate::run::all(SCREENS), "", "each comes through outside and none from inside");
}

#[test]
fn p6_no_socket_of_the_persons_is_reached() {
    assert_eq!(crate::run::all(SOCKETS), "", "each comes through outside and none from inside");
}

#[test]
fn p4_no_other_kind_of_socket_opens() {
    assert_eq!(crate::run::all(DOORS), "", "each comes through outside and none from inside");
}
