//! Connections: made outside, to the way out alone; nothing listens, nothing is sent without connecting.

use super::here;
use crate::room::{Room, good};
use crate::ways::{self, Canary};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::time::Duration;
use testkit::{eventually, not_tested_here};

#[test]
fn p4_no_way_to_start_a_flow_reaches_anything_without_namespaces() {
    if !here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::program(dir.path()) else { return not_tested_here("a C compiler") };
    let canary = Canary::new(dir.path(), &ways::other_addresses());
    let tries = canary.tries();
    let controls = tries.iter().filter(|one| one.needs == ways::Needs::Nothing && canary.hears(&program, one)).count();
    assert!(controls > 30, "without a jail the canaries hear: {controls}");
    for network in [false, true] {
        let mut room = Room::new();
        room.grants.network = network;
        std::fs::copy(&program, room.task.tree().join("ways")).unwrap();
        let plan = room.bare_plan(&["/bin/sh", "-c", &ways::script(&tries)]);
        let bare = room.start_bare(&plan).unwrap();
        let went = bare.running.finish();
        assert_eq!(good(&went).lines().count(), tries.len(), "each was tried: {went:?}");
        let heard = canary.heard();
        assert!(heard.is_empty(), "way out {network}: {heard:?} heard one of {went:#?}");
        // These do connect, to the way out and nothing else.
        let stream = |line: &&str| line.starts_with("connect");
        let sent: Vec<&str> = went.out.lines().filter(|line| line.ends_with(" sent") && !(network && stream(line))).collect();
        assert!(sent.is_empty(), "way out {network}: nothing goes anywhere: {sent:#?}");
    }
    println!("ways without namespaces: {} tried, heard without a jail {controls}, from inside 0", tries.len());
}

#[test]
fn p4_every_connection_arrives_with_where_it_wanted_to_go_and_nobody_elses_does() {
    if !here() {
        return;
    }
    let mut room = Room::new();
    room.grants.network = true;
    room.bring_probe();
    for target in ["93.184.216.34:443", "10.0.0.1:22", "169.254.169.254:80", "127.0.0.1:631", "0.0.0.0:1"] {
        let bare = room.start_bare(&room.bare_plan(&["./probe", "connect", target])).unwrap();
        bare.inlet.set_nonblocking(true).unwrap();
        let (mut stream, from) = eventually(target, Duration::from_secs(10), || bare.inlet.accept().ok());
        let (to, process) = eventually("a flow", Duration::from_secs(1), || bare.flows.take(from));
        assert_eq!(to, target.parse::<SocketAddr>().unwrap(), "it came from {from}");
        assert_eq!(process.program.to_string(), "probe", "and who asked is known");
        assert!(bare.flows.take(from).is_none(), "once");
        stream.set_nonblocking(false).unwrap();
        let mut said = [0; 6];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(b"through").unwrap();
        drop(stream);
        // A program of this machine that finds the listener by itself.
        let stranger = TcpStream::connect(bare.inlet.local_addr().unwrap()).unwrap();
        assert!(bare.flows.take(stranger.local_addr().unwrap()).is_none(), "it is nobody's");
        assert_eq!(good(&bare.running.finish()).trim(), "ok through", "{target}");
    }
}

#[test]
fn p4_nothing_inside_listens_on_the_network() {
    if !here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::program(dir.path()) else { return not_tested_here("a C compiler") };
    let room = Room::new();
    std::fs::copy(&program, room.task.tree().join("ways")).unwrap();
    for any in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
        // A port that the kernel chooses may be bound, as connections do.
        for port in ["0", "34567"] {
            let went = room.bare_sh(&format!("timeout 10 ./ways listen x {any} {port}"));
            assert!(went.out.starts_with("refused"), "{any} port {port}: {went:?}");
        }
    }
}

#[test]
fn p6_sockets_of_the_person_are_out_of_reach_and_its_own_work() {
    if !here() {
        return;
    }
    let room = Room::new();
    let outside = room.home.join("agent.sock");
    let listener = UnixListener::bind(&outside).unwrap();
    listener.set_nonblocking(true).unwrap();
    room.bring_probe();
    let path = outside.display();
    let went = room.bare_sh(&format!(
        "ln -s '{path}' link; ln '{path}' hard 2>/dev/null && echo linked; mv '{path}' moved 2>/dev/null && echo moved; mkdir deep; \
         for p in '{path}' link ./deep/../link \"$PWD/link\" /proc/self/cwd/link; do ./probe unix $p; done; cd /; ./probe unix '{path}'"
    ));
    assert!(
        !went.out.contains("ok ") && !went.out.contains("ed\n") || went.out.lines().all(|l| l.starts_with("refused")),
        "{went:#?}"
    );
    assert!(listener.accept().is_err(), "nobody came: {went:#?}");
    let own = room.bare_sh(
        "python3 -c '
import socket, os, threading
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(\"own%d\" % kind); s.listen(1)
    c = socket.socket(socket.AF_UNIX, kind); c.connect(os.path.abspath(\"own%d\" % kind)); c.send(b\"x\")
    assert s.accept()[0].recv(1) == b\"x\"
for name in (\"\\0abstract\", \"/tmp/airlock-outside\", \"../outside\", os.environ[\"PWD\"] + \"/../outside\"):
    s = socket.socket(socket.AF_UNIX)
    try: s.bind(name); s.listen(1); print(\"bound\", name)
    except OSError: pass
a, b = socket.socketpair(); a.send(b\"y\"); assert b.recv(1) == b\"y\"
print(\"fine\")'",
    );
    assert_eq!(good(&own), "fine\n", "{own:#?}");
}

/// Tries connections to a server that takes none any more, by a socket whose flag another process turns on and off all the time.
/// More than may wait at once, so that those that do not go on trying.
const FLICKER: &str = r#"
import fcntl, os, signal, socket, threading, time
server = socket.socket(socket.AF_UNIX)
server.bind("full")
server.listen(0)
first = socket.socket(socket.AF_UNIX)
first.connect("full")
s = socket.socket(socket.AF_UNIX)
on = fcntl.fcntl(s, fcntl.F_GETFL) | os.O_NONBLOCK
child = os.fork()
if child == 0:
    while True:
        fcntl.fcntl(s, fcntl.F_SETFL, on)
        fcntl.fcntl(s, fcntl.F_SETFL, on & ~os.O_NONBLOCK)
until = time.monotonic() + 4
def attempts():
    while time.monotonic() < until:
        try: s.connect("full")
        except OSError: pass
for _ in range(160): threading.Thread(target=attempts, daemon=True).start()
time.sleep(5)
os.kill(child, signal.SIGKILL)
open("file", "w").close()
os.chmod("file", 0o600)
print("made", flush=True)
os._exit(0)
"#;

#[test]
fn a_socket_that_stops_not_waiting_holds_up_no_other_call() {
    if !here() {
        return;
    }
    let mut room = Room::new();
    // All of the user's count, whoever runs beside.
    room.grants.processes = 2048;
    std::fs::write(room.task.tree().join("flicker.py"), FLICKER).unwrap();
    let went = room.bare_sh("timeout -s KILL 20 python3 flicker.py; true");
    assert!(went.out.contains("made"), "a change of a mode is made meanwhile: {went:#?}");
}
