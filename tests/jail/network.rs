//! No flow leaves but through the way out.

use crate::room::{Room, good};
use crate::ways::{self, Canary, Needs, Peer};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{eventually, not_tested_here};

/// What the filter refuses by itself, so that it needs no packet rule, and no event tells of it.
const REFUSED: &[(&str, &str)] = &[
    ("fastopen-sendto", "sendto: Operation not supported"),
    ("fastopen-sendmsg", "sendmsg: Operation not supported"),
    ("fastopen-sendmmsg", "sendmmsg: Operation not supported"),
    ("fastopen-connect", "TCP_FASTOPEN_CONNECT: Protocol not available"),
    ("mptcp", "socket: Protocol not supported"),
    ("mptcp-fastopen", "socket: Protocol not supported"),
    ("smc", "socket: Address family not supported by protocol"),
    ("smc-inet", "socket: Protocol not supported"),
    ("sctp", "socket: Protocol not supported"),
    ("sctp-sendto", "socket: Operation not permitted"),
    ("io_uring-connect", "io_uring_setup: Function not implemented"),
    ("io_uring-sendmsg", "io_uring_setup: Function not implemented"),
    ("udplite", "socket: Protocol not supported"),
    ("raw", "socket: Operation not permitted"),
    ("raw-header", "socket: Operation not permitted"),
    ("icmp", "socket: Operation not permitted"),
    ("ping", "socket: Protocol not supported"),
    ("packet", "socket: Address family not supported by protocol"),
    ("packet-old", "socket: Operation not permitted"),
    ("vsock", "socket: Address family not supported by protocol"),
    ("netlink", "socket: Address family not supported by protocol"),
];

/// A jail with the program that knows all ways.
fn room_with_ways(program: &Path, network: bool) -> Room {
    let mut room = Room::new();
    room.grants.network = network;
    std::fs::copy(program, room.task.tree().join("ways")).unwrap();
    room
}

#[test]
fn no_way_to_start_a_flow_reaches_anything_with_the_way_out_off_or_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::program(dir.path()) else { return not_tested_here("a C compiler") };
    let mut canary = Canary::new(dir.path(), &ways::other_addresses());
    let peer = nix::unistd::Uid::effective().is_root().then(|| Peer::new(&mut canary)).flatten();
    let tries = canary.tries();
    let mut controls = 0;
    for one in &tries {
        let heard = one.needs != Needs::NoControl && canary.hears(&program, one);
        controls += u32::from(heard);
        assert!(heard || one.needs != Needs::Nothing, "without a jail the canary must hear {one:?}");
        assert!(heard || one.needs != Needs::Root || testkit::wait::column() != "root", "root can do this: {one:?}");
    }
    for network in [false, true] {
        let room = room_with_ways(&program, network);
        let went = room.sh(&ways::script(&tries));
        assert_eq!(good(&went).lines().count(), tries.len(), "each was tried: {went:?}");
        let heard = canary.heard();
        assert!(heard.is_empty(), "way out {network}: {heard:?} heard one of {went:#?}");
        for (way, error) in REFUSED {
            let mut lines = went.out.lines().filter(|line| line.split(' ').next() == Some(way)).peekable();
            assert!(lines.peek().is_some() && lines.all(|line| line.ends_with(error)), "{way} ends with {error}: {}", went.out);
        }
        if !network {
            // Datagrams end in the jail's own loopback.
            let datagram = |line: &&str| ["udp-", "broadcast", "multicast"].iter().any(|way| line.starts_with(way));
            let sent: Vec<&str> = went.out.lines().filter(|line| line.ends_with(" sent") && !datagram(line)).collect();
            assert!(sent.is_empty(), "there is nowhere to send to: {sent:?}");
            let interfaces = room.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /proc/net/route | tail -n +2");
            assert_eq!(good(&interfaces).trim(), "lo", "there is no other interface and no route");
        }
    }
    println!(
        "ways to start a flow: {} (peer by cable: {}); heard without a jail {controls}, from a jail without a way out 0, with one 0",
        tries.len(),
        peer.is_some()
    );
}

#[test]
fn p6_a_connection_grows_to_little_of_the_machines_memory_for_tcp() {
    let most =
        |text: &str| -> Vec<u64> { text.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse().ok()).collect() };
    let sizes = ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"];
    let outside = sizes.map(|path| std::fs::read_to_string(path).unwrap());
    for network in [false, true] {
        let mut room = Room::new();
        room.grants.network = network;
        let went = room.sh("cat /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_wmem");
        assert_eq!(most(good(&went)), [256 << 10, 256 << 10], "way out {network}: {went:?}");
        let went = room.sh("echo '4096 131072 33554432' > /proc/sys/net/ipv4/tcp_rmem && echo raised");
        assert!(!went.out.contains("raised"), "the jail can't change it: {went:?}");
    }
    assert_eq!(outside, sizes.map(|path| std::fs::read_to_string(path).unwrap()), "the machine's own stay as they are");
}

#[test]
fn every_way_that_this_machine_has_can_be_tried() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::program(dir.path()) else { return not_tested_here("a C compiler") };
    let mut canary = Canary::new(dir.path(), &[]);
    let unheard = |needs: &Needs| matches!(needs, Needs::Feature(_));
    let features: BTreeSet<Option<&str>> = canary
        .tries()
        .iter()
        .filter(|one| unheard(&one.needs) && !canary.hears(&program, one))
        .map(|one| if let Needs::Feature(feature) = one.needs { Some(feature) } else { None })
        .collect();
    for feature in features.into_iter().flatten() {
        not_tested_here(feature);
    }
    if Peer::new(&mut canary).is_none() {
        not_tested_here("a peer by a cable (veth)");
    }
}

#[test]
fn nobody_outside_reaches_what_listens_inside() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::program(dir.path()) else { return not_tested_here("a C compiler") };
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let targets: Vec<SocketAddr> = ways::other_addresses()
        .into_iter()
        .chain(["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()])
        .map(|ip| SocketAddr::new(ip, port))
        .collect();
    let words = |any: &str| ["listen", "x", any, &port.to_string()].map(str::to_owned);
    let said = |out: &mut dyn std::io::BufRead| {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    for target in &targets {
        let any = if target.is_ipv6() { "::" } else { "0.0.0.0" };
        let mut control = Command::new(&program).args(words(any)).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = std::io::BufReader::new(control.stdout.take().unwrap());
        assert_eq!(said(&mut out), "listening");
        // It ends once somebody came, which may reset the connection before this side has heard of it.
        let came = TcpStream::connect(target).map_err(|e| e.kind());
        assert!(matches!(came, Ok(_) | Err(std::io::ErrorKind::ConnectionReset)), "{target}: {came:?}");
        assert_eq!(said(&mut out), "somebody came", "without a jail {target} is reached");
        control.wait().unwrap();
        for network in [false, true] {
            let room = room_with_ways(&program, network);
            let inside = words(any);
            let argv: Vec<&str> = ["./ways"].into_iter().chain(inside.iter().map(String::as_str)).collect();
            let mut running = room.start(&argv, |_| ()).unwrap();
            let mut out = std::io::BufReader::new(running.out.take().unwrap());
            assert_eq!(said(&mut out), "listening");
            let came = TcpStream::connect_timeout(target, Duration::from_secs(2));
            assert!(came.is_err(), "what listens inside is not at {target}, way out {network}: {came:?}");
            running.jail.kill();
        }
    }
}

#[test]
fn families_without_packet_rules_are_closed() {
    let room = Room::new();
    // Kernel crypto, Bluetooth, CAN, KCM, key management, packets, RDS, TIPC, VSOCK, XDP, SMC, NFC, QRTR.
    for family in [38, 31, 29, 41, 15, 17, 21, 30, 40, 44, 43, 39, 42] {
        let got = room.probe(&["family", &family.to_string()]);
        assert!(got.starts_with("refused"), "no socket of family {family} may be made: {got}");
    }
    assert!(room.probe(&["netlink", "0"]).starts_with("ok"), "getifaddrs asks the routing family");
    for protocol in [2, 4, 6, 9, 12, 15, 16, 20] {
        let got = room.probe(&["netlink", &protocol.to_string()]);
        assert!(got.starts_with("refused"), "netlink {protocol} is not for a jail: {got}");
    }
}

#[test]
fn every_connection_arrives_at_the_way_out_with_where_it_wanted_to_go() {
    let mut room = Room::new();
    room.grants.network = true;
    room.bring_probe();
    for target in
        ["93.184.216.34:443", "10.0.0.1:22", "169.254.169.254:80", "192.168.1.1:65535", "[2001:db8::7]:8080", "[fd00::1]:1"]
    {
        let running = room.start(&["./probe", "connect", target], |_| ()).unwrap();
        let listener = TcpListener::from(running.jail.listener.as_ref().unwrap().try_clone().unwrap());
        let (mut stream, from) = eventually(target, Duration::from_secs(10), || listener.accept().ok());
        let mut seen = stream.local_addr().unwrap();
        seen.set_ip(seen.ip().to_canonical());
        let wanted: SocketAddr = target.parse().unwrap();
        assert_eq!((seen.ip(), seen.port()), (wanted.ip(), wanted.port()), "it came from {from} and wanted {target}");
        stream.set_nonblocking(false).unwrap();
        let mut said = [0; 6];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(b"through").unwrap();
        drop(stream);
        assert_eq!(good(&running.finish()).trim(), "ok through", "{target}");
    }
}

#[test]
fn names_arrive_whichever_server_is_asked_and_other_datagrams_nowhere() {
    let mut room = Room::new();
    room.grants.network = true;
    room.bring_probe();
    for target in ["8.8.8.8:53", "198.18.0.1:53", "[2001:4860:4860::8888]:53"] {
        let running = room.start(&["./probe", "udp", target], |_| ()).unwrap();
        let dns = UdpSocket::from(running.jail.dns.as_ref().unwrap().try_clone().unwrap());
        let mut question = [0; 32];
        let (len, _) = eventually("a datagram", Duration::from_secs(10), || dns.recv_from(&mut question).ok());
        assert_eq!(&question[..len], b"canary", "what was sent to {target}");
        running.jail.kill();
    }
    for target in ["8.8.8.8:443", "127.0.0.1:9", "[2001:db8::1]:123"] {
        let got = room.probe(&["udp", target]);
        assert!(got.contains("ECONNREFUSED") || got.contains("Connection refused"), "{target} must be refused at once: {got}");
    }
}

#[test]
fn the_jails_own_servers_on_loopback_stay_its_own() {
    let mut room = Room::new();
    room.grants.network = true;
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let address = canary.local_addr().unwrap().to_string();
    let got = room.probe(&["connect", &address]);
    assert!(got.starts_with("refused"), "loopback inside is not the host's: {got}");
    assert!(canary.accept().is_err(), "nobody came");
    // The way round: nothing outside reaches in.
    let running = room.start(&["/bin/sleep", "100"], |_| ()).unwrap();
    assert!(
        TcpStream::connect_timeout(&"127.0.0.1:1".parse().unwrap(), Duration::from_secs(1)).is_err(),
        "the listener is of the jail's network"
    );
    running.jail.kill();
}
