//! No flow leaves but through the way out.

use crate::room::{Room, good};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use testkit::eventually;

#[test]
fn without_a_way_out_no_way_to_start_a_flow_reaches_the_host() {
    let room = Room::new();
    let tcp = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap()];
    let udp = [UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap()];
    for socket in &tcp {
        socket.set_nonblocking(true).unwrap();
    }
    for socket in &udp {
        socket.set_nonblocking(true).unwrap();
    }
    let v4 = tcp[0].local_addr().unwrap().to_string();
    let v6 = tcp[1].local_addr().unwrap().to_string();
    let (u4, u6) = (udp[0].local_addr().unwrap().to_string(), udp[1].local_addr().unwrap().to_string());
    let ways: [&[&str]; 12] = [
        &["connect", &v4],
        &["connect", &v6],
        &["connect", "192.0.2.1:80"],
        &["udp", &u4],
        &["udp", &u6],
        &["fastopen", &v4],
        &["fastopen-connect", &v4],
        &["mptcp", &v4],
        &["raw", &v4],
        &["icmp", &v4],
        &["sctp", &v4],
        &["udplite", &u4],
    ];
    for way in ways {
        let got = room.probe(way);
        assert!(got.starts_with("refused"), "{way:?} must not get anywhere: {got}");
    }
    for listener in &tcp {
        assert!(listener.accept().is_err(), "nobody may have come to {listener:?}");
    }
    for socket in &udp {
        assert!(socket.recv(&mut [0; 16]).is_err(), "nothing may have come to {socket:?}");
    }
    let interfaces = room.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /proc/net/route | tail -n +2");
    assert_eq!(good(&interfaces).trim(), "lo", "there is no other interface and no route");
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
