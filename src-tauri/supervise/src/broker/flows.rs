//! Connections: made here on the caller's own socket, to the way out or to a socket beneath what the jail may write.

use super::places::{End, by_number};
use super::{Desk, Step, errno};
use crate::notify::{int, parse_address, plain};
use model::event::Process;
use nix::errno::Errno;
use nix::libc;
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, ipproto};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::seccomp_notify::Notification;

/// Connections that were made and did not arrive yet.
const KEPT: usize = 4096;
const FRESH: Duration = Duration::from_secs(10);

/// Where the way out listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayOut {
    /// On 127.0.0.1.
    pub v4: SocketAddr,
    /// On ::1, where the machine has IPv6.
    pub v6: Option<SocketAddr>,
}

/// Connections that were made for a jail, by the address that they come from: whatever arrives from another is nobody's.
#[derive(Debug, Default)]
pub struct Flows(Mutex<VecDeque<Flow>>);

#[derive(Debug)]
struct Flow {
    at: Instant,
    from: SocketAddr,
    to: SocketAddr,
    process: Arc<Process>,
}

impl Flows {
    /// Takes the connection that came from this address: where it was meant to go, and who asked for it.
    pub fn take(&self, from: SocketAddr) -> Option<(SocketAddr, Process)> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = list.iter().position(|flow| flow.from == plain(from) && flow.at.elapsed() < FRESH)?;
        list.remove(index).map(|flow| (flow.to, Arc::unwrap_or_clone(flow.process)))
    }

    pub(super) fn put(&self, from: SocketAddr, to: SocketAddr, process: Arc<Process>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An address that is used again means the newer connection.
        list.retain(|flow| flow.from != plain(from) && flow.at.elapsed() < FRESH);
        if list.len() >= KEPT {
            list.pop_front();
        }
        list.push_back(Flow { at: Instant::now(), from: plain(from), to: plain(to), process });
    }
}

/// Longest address that the kernel takes.
const LONGEST: usize = 128;

/// A socket of the caller's, and what it is.
struct Socket {
    fd: OwnedFd,
    domain: AddressFamily,
    kind: SocketType,
    tcp: bool,
}

/// An address as the caller wrote it, copied once.
pub(super) struct Written {
    pub(super) family: u16,
    pub(super) bytes: Vec<u8>,
}

impl Desk {
    pub(super) fn connect(&self, n: &Notification) -> Result<Step, Errno> {
        let address = self.address(n)?;
        let socket = self.socket(n)?;
        match socket.domain {
            AddressFamily::INET | AddressFamily::INET6 => self.connect_inet(n, socket, &address),
            AddressFamily::UNIX => self.connect_unix(n, socket, &address),
            _ => Err(Errno::EACCES),
        }
    }

    fn connect_inet(&self, n: &Notification, socket: Socket, address: &Written) -> Result<Step, Errno> {
        if socket.kind != SocketType::STREAM || !socket.tcp {
            return Err(Errno::EACCES);
        }
        if i32::from(address.family) == libc::AF_UNSPEC {
            // Ends the connection, so that the socket can make another.
            rustix::net::connect_unspec(&socket.fd).map_err(errno)?;
            return Ok(Step::Done(0));
        }
        if address.family != socket.domain.as_raw() {
            return Err(Errno::EAFNOSUPPORT);
        }
        let crate::notify::Address::Inet(to) = parse_address(&address.bytes) else { return Err(Errno::EINVAL) };
        let way_out = self.way_out.ok_or(Errno::ENETUNREACH)?;
        let inlet = if socket.domain == AddressFamily::INET { way_out.v4 } else { way_out.v6.ok_or(Errno::EADDRNOTAVAIL)? };
        let process = self.who.known(n.tid).ok_or(Errno::EACCES)?;
        self.still(n)?;
        Ok(beside(move |desk| {
            let made = rustix::net::connect(&socket.fd, &inlet).map_err(errno);
            if matches!(made, Ok(()) | Err(Errno::EINPROGRESS)) {
                let from = rustix::net::getsockname(&socket.fd).map_err(errno)?;
                desk.flows.put(SocketAddr::try_from(from).map_err(errno)?, to, process);
            }
            made.map(|()| 0)
        }))
    }

    fn connect_unix(&self, n: &Notification, socket: Socket, address: &Written) -> Result<Step, Errno> {
        if !matches!(socket.kind, SocketType::STREAM | SocketType::SEQPACKET) {
            return Err(Errno::EACCES);
        }
        let path = self.whole(n, None, path_of(address)?)?;
        let found = self.places.find(&path, End::Followed)?;
        let stat = rustix::fs::fstat(&found).map_err(errno)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::ECONNREFUSED);
        }
        self.still(n)?;
        Ok(beside(move |_| {
            let to = SocketAddrUnix::new(by_number(&found)).map_err(errno)?;
            rustix::net::connect(&socket.fd, &to).map_err(errno).map(|()| 0)
        }))
    }

    pub(super) fn bind(&self, n: &Notification) -> Result<i64, Errno> {
        let address = self.address(n)?;
        let socket = self.socket(n)?;
        match socket.domain {
            AddressFamily::INET | AddressFamily::INET6 if socket.tcp && address.family == socket.domain.as_raw() => {
                // A port that the kernel chooses takes none that others wait for; nothing listens at it, and from an address of
                // the machine's networks nothing of this comes.
                match parse_address(&address.bytes) {
                    crate::notify::Address::Inet(at) if at.port() == 0 && crate::fact::stays_inside(at.ip()) => {
                        let at = match (socket.domain, at.ip()) {
                            (AddressFamily::INET6, IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
                            (_, ip) => ip,
                        };
                        rustix::net::bind(&socket.fd, &SocketAddr::new(at, 0)).map_err(errno).map(|()| 0)
                    }
                    _ => Err(Errno::EACCES),
                }
            }
            AddressFamily::UNIX => {
                let path = self.whole(n, None, path_of(&address)?)?;
                let (directory, name) = self.places.parent(&path)?;
                self.still(n)?;
                let at = SocketAddrUnix::new(by_number(&directory).join(name)).map_err(errno)?;
                rustix::net::bind(&socket.fd, &at).map_err(errno).map(|()| 0)
            }
            // Without groups: they tell what the machine's network does.
            AddressFamily::NETLINK if address.bytes.get(8..12).is_none_or(|groups| groups == [0; 4]) => {
                let own = rustix::net::netlink::SocketAddrNetlink::new(0, 0);
                rustix::net::bind(&socket.fd, &own).map_err(errno).map(|()| 0)
            }
            _ => Err(Errno::EACCES),
        }
    }

    /// Nothing inside takes connections of the network, nor by a name that the machine shares.
    pub(super) fn listen(&self, n: &Notification) -> Result<i64, Errno> {
        let socket = self.socket(n)?;
        if socket.domain != AddressFamily::UNIX {
            return Err(Errno::EACCES);
        }
        let name = rustix::net::getsockname(&socket.fd).map_err(errno)?;
        let name = SocketAddrUnix::try_from(name).map_err(errno)?;
        if name.path().is_none() {
            return Err(Errno::EACCES);
        }
        rustix::net::listen(&socket.fd, int(n.args[1])).map_err(errno).map(|()| 0)
    }

    fn address(&self, n: &Notification) -> Result<Written, Errno> {
        let len = usize::try_from(int(n.args[2])).map_err(|_| Errno::EINVAL)?;
        if !(2..=LONGEST).contains(&len) {
            return Err(Errno::EINVAL);
        }
        let bytes = self.bytes(n, n.args[1], len)?;
        let family = bytes.first_chunk().map(|b| u16::from_ne_bytes(*b)).ok_or(Errno::EINVAL)?;
        Ok(Written { family, bytes })
    }

    fn socket(&self, n: &Notification) -> Result<Socket, Errno> {
        let fd = self.descriptor(n, n.args[0])?;
        let domain = rustix::net::sockopt::socket_domain(&fd).map_err(errno)?;
        let kind = rustix::net::sockopt::socket_type(&fd).map_err(errno)?;
        let tcp = rustix::net::sockopt::socket_protocol(&fd).map_err(errno)? == Some(ipproto::TCP);
        Ok(Socket { fd, domain, kind, tcp })
    }
}

/// Beside all other calls, also where the socket does not wait: its caller could change that at any moment.
fn beside(make: impl FnOnce(&Desk) -> Result<i64, Errno> + Send + 'static) -> Step {
    Step::Waits(Box::new(make))
}

/// The path of an address of a socket in the file system; names without one are the whole machine's.
pub(super) fn path_of(address: &Written) -> Result<&[u8], Errno> {
    if i32::from(address.family) != libc::AF_UNIX {
        return Err(Errno::EINVAL);
    }
    let path = address.bytes.get(2..).unwrap_or_default();
    let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
    let path = &path[..end];
    if path.is_empty() { Err(Errno::EACCES) } else { Ok(path) }
}
