//! Every way to start a flow, with canaries on the host that hear whatever gets out: `canary.hear(…)` first without a jail,
//! as the control, then for whichever jail is to be shown.

use rustix::net::{AddressFamily, Protocol, RawProtocol, RecvFlags, SocketFlags, SocketType, ipproto};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a control needs beside a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Capabilities over the host's network.
    Root,
    /// A part of the kernel that not all have.
    Feature(&'static str),
    /// Its control would leave the machine, so it is tried from inside alone.
    NoControl,
}

/// Where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// Every stream canary.
    Tcp,
    /// Those of IPv6, and those of IPv4 by their mapped addresses.
    Tcp6,
    /// Every datagram canary.
    Udp,
    /// Those of IPv4.
    Udp4,
    Udplite,
    Broadcast,
    Multicast,
    Loopback,
    Netlink,
    Socket(&'static str),
    Abstract(&'static str),
    Vsock,
}

/// All of them: the way's name in `ways.c`, where it leads, what its control needs.
const WAYS: &[(&str, To, Needs)] = &[
    ("connect", To::Tcp, Needs::Nothing),
    ("connect", To::Tcp6, Needs::Nothing),
    ("connect-nonblocking", To::Tcp, Needs::Nothing),
    ("connect-flow-label", To::Tcp6, Needs::Nothing),
    ("connect-by-device", To::Loopback, Needs::Nothing),
    ("connect-from-port", To::Tcp, Needs::Nothing),
    ("connect-transparent", To::Tcp, Needs::Root),
    ("connect-marked", To::Tcp, Needs::Root),
    ("fastopen-sendto", To::Tcp, Needs::Nothing),
    ("fastopen-sendmsg", To::Tcp, Needs::Nothing),
    ("fastopen-sendmmsg", To::Tcp, Needs::Nothing),
    ("fastopen-connect", To::Tcp, Needs::Nothing),
    ("mptcp", To::Tcp, Needs::Feature("MPTCP")),
    ("mptcp", To::Tcp6, Needs::Feature("MPTCP")),
    ("mptcp-fastopen", To::Tcp, Needs::Feature("MPTCP")),
    ("smc", To::Tcp, Needs::Feature("SMC sockets")),
    ("smc-inet", To::Tcp, Needs::Feature("SMC sockets")),
    ("sctp", To::Tcp, Needs::Feature("SCTP")),
    ("sctp-sendto", To::Tcp, Needs::Feature("SCTP")),
    ("io_uring-connect", To::Tcp, Needs::Feature("io_uring")),
    ("io_uring-sendmsg", To::Udp, Needs::Feature("io_uring")),
    ("udp-connect", To::Udp, Needs::Nothing),
    ("udp-sendto", To::Udp, Needs::Nothing),
    ("udp-sendmsg", To::Udp, Needs::Nothing),
    ("udp-sendmmsg", To::Udp, Needs::Nothing),
    ("udp-flags", To::Udp, Needs::Nothing),
    ("udplite", To::Udplite, Needs::Feature("UDP-Lite")),
    ("broadcast", To::Broadcast, Needs::Nothing),
    ("multicast", To::Multicast, Needs::Nothing),
    ("raw", To::Loopback, Needs::Root),
    ("raw-header", To::Udp4, Needs::Root),
    ("icmp", To::Loopback, Needs::Root),
    ("ping", To::Loopback, Needs::Feature("ICMP datagram sockets")),
    ("packet", To::Loopback, Needs::Root),
    ("packet-old", To::Loopback, Needs::Root),
    ("vsock", To::Vsock, Needs::NoControl),
    ("netlink", To::Netlink, Needs::Nothing),
    ("unix-stream", To::Socket("stream"), Needs::Nothing),
    ("unix-seqpacket", To::Socket("seqpacket"), Needs::Nothing),
    ("unix-datagram", To::Socket("datagram"), Needs::Nothing),
    ("unix-datagram-sendmmsg", To::Socket("datagram"), Needs::Nothing),
    ("abstract-stream", To::Abstract("stream"), Needs::Nothing),
    ("abstract-datagram", To::Abstract("datagram"), Needs::Nothing),
];

/// One way to one canary: words for the program `ways`, and what hearing it needs.
#[derive(Debug, Clone)]
pub(crate) struct Try {
    pub(crate) words: Vec<String>,
    pub(crate) needs: Needs,
}

/// Something that listens on the host.
enum Ear {
    Stream(TcpListener),
    Datagram(UdpSocket),
    Unix(UnixListener),
    UnixDatagram(UnixDatagram),
    /// Anything that datagrams, packets or connections can be received from.
    Other(OwnedFd),
}

/// All that listens, each with its name; what it hears counts if it has the token, or is a connection.
pub(crate) struct Canary {
    ears: Vec<(String, Ear)>,
    dir: PathBuf,
    token: String,
    netlink: u32,
}

impl Canary {
    /// Listens on loopback, on the other addresses of this host in `also`, at paths in `dir`, and at all else that the caller may.
    pub(crate) fn new(dir: &Path, also: &[IpAddr]) -> Self {
        let token = format!("canary-{}", dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default());
        let mut it = Self { ears: vec![], dir: dir.to_owned(), token, netlink: 0 };
        let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        for at in own.into_iter().chain(also.iter().copied()) {
            it.listen_at(at);
        }
        it.listen_by_protocol();
        it.listen_by_name();
        it
    }

    /// Listens for streams and datagrams at one address, in the network of the calling thread.
    pub(crate) fn listen_at(&mut self, at: IpAddr) {
        let stream = TcpListener::bind((at, 0)).unwrap_or_else(|e| panic!("listening at {at}: {e}"));
        stream.set_nonblocking(true).expect("a listener need not block");
        let datagram = UdpSocket::bind((at, 0)).unwrap_or_else(|e| panic!("listening at {at}: {e}"));
        datagram.set_nonblocking(true).expect("a socket need not block");
        self.ears.push((format!("TCP at {at}"), Ear::Stream(stream)));
        self.ears.push((format!("UDP at {at}"), Ear::Datagram(datagram)));
    }

    fn listen_by_protocol(&mut self) {
        let open = |family, kind, protocol: u32| {
            let protocol = NonZeroU32::new(protocol).map(|p| Protocol::from_raw(RawProtocol::from(p)));
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, protocol).ok()
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let udplite = ipproto::UDPLITE.as_raw().get();
        if let Some(lite) = open(AddressFamily::INET, SocketType::DGRAM, udplite).filter(|s| rustix::net::bind(s, &local).is_ok())
        {
            self.ears.push(("UDP-Lite".into(), Ear::Other(lite)));
        }
        let everyone = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket for everyone");
        everyone.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).expect("a group on loopback");
        everyone.set_nonblocking(true).expect("a socket need not block");
        self.ears.push(("broadcast and multicast".into(), Ear::Datagram(everyone)));
        // Only root gets these; the last hears whatever passes any interface of the host.
        for (name, family, protocol) in
            [("raw", AddressFamily::INET, 253), ("ICMP", AddressFamily::INET, 1), ("packets", AddressFamily::PACKET, 0x0300)]
        {
            if let Some(raw) = open(family, SocketType::RAW, protocol) {
                self.ears.push((name.into(), Ear::Other(raw)));
            }
        }
        let user_socket = 2;
        let netlink = open(AddressFamily::NETLINK, SocketType::DGRAM, user_socket).expect("a netlink socket");
        rustix::net::bind(&netlink, &rustix::net::netlink::SocketAddrNetlink::new(0, 0)).expect("a netlink address");
        let address = rustix::net::getsockname(&netlink).expect("it has an address");
        let address = rustix::net::netlink::SocketAddrNetlink::try_from(address).expect("of netlink");
        self.netlink = address.pid();
        self.ears.push(("netlink".into(), Ear::Other(netlink)));
    }

    fn listen_by_name(&mut self) {
        let stream = UnixListener::bind(self.dir.join("stream")).expect("a socket by path");
        let datagram = UnixDatagram::bind(self.dir.join("datagram")).expect("a socket by path");
        let name = |kind: &str| {
            std::os::unix::net::SocketAddr::from_abstract_name(format!("{}-{kind}", self.token)).expect("an abstract name")
        };
        let hidden_stream = UnixListener::bind_addr(&name("stream")).expect("an abstract socket");
        let hidden_datagram = UnixDatagram::bind_addr(&name("datagram")).expect("an abstract socket");
        for socket in [&stream, &hidden_stream] {
            socket.set_nonblocking(true).expect("a listener need not block");
        }
        for socket in [&datagram, &hidden_datagram] {
            socket.set_nonblocking(true).expect("a socket need not block");
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let packets = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        let at = rustix::net::SocketAddrUnix::new(self.dir.join("seqpacket")).expect("a path");
        rustix::net::bind(&packets, &at).and_then(|()| rustix::net::listen(&packets, 8)).expect("a socket by path");
        self.ears.push(("unix stream".into(), Ear::Unix(stream)));
        self.ears.push(("unix datagram".into(), Ear::UnixDatagram(datagram)));
        self.ears.push(("abstract stream".into(), Ear::Unix(hidden_stream)));
        self.ears.push(("abstract datagram".into(), Ear::UnixDatagram(hidden_datagram)));
        self.ears.push(("unix seqpacket".into(), Ear::Other(packets)));
    }

    /// Every way to every canary that it can lead to.
    pub(crate) fn tries(&self) -> Vec<Try> {
        let mut all = vec![];
        for (way, to, needs) in WAYS {
            for target in self.targets(*to) {
                let words = [(*way).to_owned(), self.token.clone()].into_iter().chain(target).collect();
                all.push(Try { words, needs: *needs });
            }
        }
        all
    }

    fn targets(&self, to: To) -> Vec<Vec<String>> {
        let at = |address: SocketAddr| vec![address.ip().to_string(), address.port().to_string()];
        let streams = || {
            self.ears.iter().filter_map(|(_, ear)| match ear {
                Ear::Stream(listener) => listener.local_addr().ok(),
                _ => None,
            })
        };
        let datagrams = || {
            self.ears.iter().filter_map(|(_, ear)| match ear {
                Ear::Datagram(socket) => socket.local_addr().ok(),
                _ => None,
            })
        };
        let everyone = |ip: Ipv4Addr| {
            let port = datagrams().find(|a| a.ip().is_unspecified()).expect("one hears everyone").port();
            vec![at((ip, port).into())]
        };
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(v4) => SocketAddr::from((v4.to_ipv6_mapped(), address.port())),
            IpAddr::V6(_) => address,
        };
        match to {
            To::Tcp => streams().map(at).collect(),
            To::Tcp6 => streams().map(mapped).map(at).collect(),
            To::Udp => datagrams().filter(|a| !a.ip().is_unspecified()).map(at).collect(),
            To::Udp4 => datagrams().filter(|a| a.is_ipv4() && !a.ip().is_unspecified()).map(at).collect(),
            To::Loopback => streams().find(|a| a.ip() == Ipv4Addr::LOCALHOST).map(at).into_iter().collect(),
            To::Udplite => {
                let lite = self.ears.iter().find_map(|(name, ear)| match ear {
                    Ear::Other(socket) if name == "UDP-Lite" => rustix::net::getsockname(socket).ok(),
                    _ => None,
                });
                let port = lite.and_then(|a| SocketAddr::try_from(a).ok()).map_or(9, |a| a.port());
                vec![at((Ipv4Addr::LOCALHOST, port).into())]
            }
            To::Broadcast => everyone(Ipv4Addr::new(127, 255, 255, 255)),
            To::Multicast => everyone(GROUP),
            To::Netlink => vec![vec![self.netlink.to_string()]],
            To::Socket(name) => vec![vec![self.dir.join(name).display().to_string()]],
            To::Abstract(name) => vec![vec![format!("{}-{name}", self.token)]],
            To::Vsock => vec![vec!["9999".into()]],
        }
    }

    /// Which of them heard something since this was asked last.
    pub(crate) fn heard(&self) -> BTreeSet<String> {
        let mut heard = BTreeSet::new();
        let mut bytes = [0; 2048];
        for (name, ear) in &self.ears {
            loop {
                let got = match ear {
                    Ear::Stream(listener) => listener.accept().is_ok().then_some(true),
                    Ear::Unix(listener) => listener.accept().is_ok().then_some(true),
                    Ear::Datagram(socket) => socket.recv(&mut bytes).ok().map(|n| self.is_token(&bytes[..n])),
                    Ear::UnixDatagram(socket) => socket.recv(&mut bytes).ok().map(|n| self.is_token(&bytes[..n])),
                    Ear::Other(socket) => match rustix::net::recv(socket.as_fd(), &mut bytes, RecvFlags::DONTWAIT) {
                        Ok((n, _)) => Some(self.is_token(&bytes[..n])),
                        // A listener is not received from.
                        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOTCONN) => {
                            rustix::net::accept(socket).is_ok().then_some(true)
                        }
                        Err(_) => None,
                    },
                };
                match got {
                    Some(true) => drop(heard.insert(name.clone())),
                    Some(false) => {}
                    None => break,
                }
            }
        }
        heard
    }

    fn is_token(&self, bytes: &[u8]) -> bool {
        bytes.windows(self.token.len()).any(|part| part == self.token.as_bytes())
    }

    /// Whether it hears this way, tried by a program on the host itself.
    pub(crate) fn hears(&self, program: &Path, try_: &Try) -> bool {
        let output = Command::new(program).args(&try_.words).output().expect("the program of ways runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("sent") || said.starts_with("refused"), "{try_:?}: {output:?}");
        let start = Instant::now();
        loop {
            let heard = !self.heard().is_empty();
            if heard || said.starts_with("refused") || start.elapsed() > Duration::from_secs(3) {
                return heard;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 77);

/// A script that tries them one after the other with `./ways`, a line for each: the way, and how it went.
pub(crate) fn script(tries: &[Try]) -> String {
    let word = |word: &String| format!("'{word}'");
    tries
        .iter()
        .map(|t| format!("echo \"{} $(./ways {})\"\n", t.words[0], t.words.iter().map(word).collect::<Vec<_>>().join(" ")))
        .collect()
}

/// The program `ways`: one that lies beside this test, else made by the C compiler in `dir`. `None` without either.
pub(crate) fn program(dir: &Path) -> Option<PathBuf> {
    compiled(dir, "ways", include_bytes!("ways.c"))
}

/// Another program in C, likewise.
pub(crate) fn compiled(dir: &Path, name: &str, text: &[u8]) -> Option<PathBuf> {
    let ready = testkit::program::profile_dir().join(name);
    if ready.is_file() {
        return Some(ready);
    }
    let made = dir.join(name);
    let mut compiler =
        Command::new("cc").args(["-O1", "-x", "c", "-o"]).arg(&made).arg("-").stdin(Stdio::piped()).spawn().ok()?;
    compiler.stdin.take().expect("a pipe").write_all(text).expect("the compiler reads");
    assert!(compiler.wait().expect("the compiler ends").success(), "{name}.c compiles");
    Some(made)
}

/// Addresses of this host beside loopback: nothing that is sent to them leaves it.
pub(crate) fn other_addresses() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().expect("a host has addresses");
    let of = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    };
    let outward = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        // One without a scope; multicast and link-local would need an interface.
        IpAddr::V6(v6) => !v6.is_loopback() && v6.segments()[0] & 0xffc0 != 0xfe80,
    };
    let found: BTreeSet<IpAddr> = all.filter_map(|i| i.address.and_then(of)).filter(outward).collect();
    let first = |v6: bool| found.iter().find(move |ip| ip.is_ipv6() == v6).copied();
    [first(false), first(true)].into_iter().flatten().collect()
}

/// A network of its own with one cable to the host's, as root. Both ends go with it. One at a time on a machine, as all have the same
/// address.
pub(crate) struct Peer {
    _only: std::fs::File,
    cable: String,
    end: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peer {
    /// Makes one, with `canary` listening in it; `None` where `ip` is missing or may not.
    pub(crate) fn new(canary: &mut Canary) -> Option<Self> {
        let at = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
        let only = std::fs::File::create(std::env::temp_dir().join("airlock-test-cable")).ok()?;
        only.lock().ok()?;
        let name = format!("alck{}", std::process::id() % 100_000);
        let ip = |words: &[&str]| Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
        let (end, until) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let cable = name.clone();
        let thread = std::thread::spawn(move || {
            if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
                return drop(tell.send(None));
            }
            // Made from inside, as the host's side is named by the process whose network that is.
            let host = std::process::id().to_string();
            let stands = ip(&["link", "add", "peer", "type", "veth", "peer", "name", &cable, "netns", &host])
                && ip(&["addr", "add", "198.51.100.2/30", "dev", "peer"])
                && ip(&["link", "set", "peer", "up"]);
            let mut own = Canary { ears: vec![], dir: PathBuf::new(), token: String::new(), netlink: 0 };
            if stands {
                own.listen_at(at);
            }
            drop(tell.send(stands.then_some(own.ears)));
            // The network lives as long as this thread or a socket of it.
            let _ = until.recv();
        });
        let ears = told.recv().ok()??;
        if !(ip(&["addr", "add", "198.51.100.1/30", "dev", &name]) && ip(&["link", "set", &name, "up"])) {
            return None;
        }
        canary.ears.extend(ears);
        Some(Self { _only: only, cable: name, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // At once: the kernel takes its time for a network that nobody is in any more.
        drop(Command::new("ip").args(["link", "del", &self.cable]).status());
        drop(self.end.take());
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}
