//! The jail's network: loopback alone, and with a way out every address made local, so that each connection arrives at
//! one listener that is handed out.

use crate::Context;
use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use crate::netlink::{Attributes, Socket, Wish, message, silent};
use jail_plan::{Guarantee, Handed, Net, Stage, Status};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{AddressFamily, Ipv6Addr, SocketAddrV6, SocketFlags, SocketType, netlink};
use std::os::fd::{AsFd as _, OwnedFd};

/// Loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;
/// Port of the listener; nothing else listens there, as ports below 1024 need a capability.
const LISTENER_PORT: u16 = 1;
const DNS_PORT: u16 = 53;
/// Sockets of each family that lead in: a browser keeps six connections to a server, and some that stay open beside them. One
/// that was connected by one family can't be used for the other.
const INWARD: usize = 8;
/// Bytes to which each queue of a connection grows by itself.
const MOST: u32 = 256 << 10;

/// Makes it. Where there can be no way out, the jail has loopback and nothing else, and the row says so.
pub(crate) fn make(context: &mut Context) -> Step<()> {
    let route = Socket::open(None).or_refuse(Stage::Network, UNEXPECTED, || "opening a route socket".into())?;
    route.ask(&loopback_up(), 1).or_refuse(Stage::Network, UNEXPECTED, || "bringing loopback up".into())?;
    small_buffers()?;
    let (how, status) = match context.plan.net {
        Net::None => ("own network namespace with loopback alone", Status::Full),
        Net::WayOut => match way_out(&route) {
            Ok(inlets) => {
                context.handed.extend(inlets);
                ("own network namespace, nftables tproxy to the warden", Status::Full)
            }
            Err(refusal) => ("", Status::absent(format!("no way out, so nothing is reached: {}", refusal.reason))),
        },
    };
    context.report.keep(Guarantee::Network, how, status);
    Ok(())
}

/// What a connection of this namespace may hold counts against the machine's memory for TCP, and the kernel lets one grow to many
/// megabytes. Over loopback, where no way is long, far less is as fast. `/proc/sys/net` speaks of the caller's own namespace.
fn small_buffers() -> Step<()> {
    for (name, least, first) in [("tcp_rmem", 4 << 10, 128 << 10), ("tcp_wmem", 4 << 10, 16 << 10)] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        std::fs::write(&path, format!("{least} {first} {MOST}"))
            .or_refuse(Stage::Network, UNEXPECTED, || format!("writing {path}"))?;
    }
    Ok(())
}

/// Every connection to another address arrives at the first of these, every question for a name at the second; by the others
/// the starter reaches what listens on loopback.
fn way_out(route: &Socket) -> Step<Vec<(Handed, OwnedFd)>> {
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let what = || format!("making every address of {family:?} local (was IPv6 turned off at boot?)");
        route.ask(&all_local(family), 1).or_refuse(Stage::Network, UNEXPECTED, what)?;
    }
    let filter = Socket::open(Some(netlink::NETFILTER))
        .or_refuse(Stage::Network, UNEXPECTED, || "the kernel has no nf_tables: opening a netfilter socket".into())?;
    let (rules, acks) = catch_all_tcp();
    let what = || "the kernel needs nf_tables with nft_tproxy: setting the rule that catches connections".into();
    filter.ask(&rules, acks).or_refuse(Stage::Network, UNEXPECTED, what)?;
    let listener = listener().or_refuse(Stage::Network, UNEXPECTED, || "opening the listener".into())?;
    let dns = dns().or_refuse(Stage::Network, UNEXPECTED, || "opening the socket for names".into())?;
    let mut inlets = vec![(Handed::Listener, listener), (Handed::Dns, dns)];
    for family in [AddressFamily::INET, AddressFamily::INET6].into_iter().cycle().take(2 * INWARD) {
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
            .or_refuse(Stage::Network, UNEXPECTED, || "opening a way in".into())?;
        inlets.push((Handed::Inward, socket));
    }
    Ok(inlets)
}

fn loopback_up() -> Vec<u8> {
    const NEW_LINK: u16 = 16;
    const UP: u32 = 1;
    // struct ifinfomsg: family, padding, type, index, flags, which flags to change.
    let header = [&[0u8; 4][..], &LOOPBACK.to_ne_bytes(), &UP.to_ne_bytes(), &UP.to_ne_bytes()].concat();
    message(NEW_LINK, Wish::Do, 1, Attributes::after(&header))
}

/// `ip route add local default dev lo`: connections to any address stay in this namespace and come back through
/// prerouting, where they are caught. There is no other interface, so nothing is routed past it.
fn all_local(family: AddressFamily) -> Vec<u8> {
    const NEW_ROUTE: u16 = 24;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    const ATTRIBUTE_OUT: u16 = 4;
    let (family, scope) = if family == AddressFamily::INET { (2, SCOPE_HOST) } else { (10, 0) };
    // struct rtmsg: family, destination length, source length, tos, table, protocol, scope, type, flags.
    let header = [family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, scope, TYPE_LOCAL, 0, 0, 0, 0];
    message(NEW_ROUTE, Wish::Create, 1, Attributes::after(&header).put(ATTRIBUTE_OUT, &LOOPBACK.to_ne_bytes()))
}

/// The namespace's whole rule set, as one transaction. In the words of `nft`:
///
/// ```text
/// table inet airlock {
///   chain catch {
///     type filter hook prerouting priority -150;
///     meta nfproto ipv4 meta l4proto tcp ip  daddr & 255.0.0.0 != 127.0.0.0 tproxy ip  to :1 accept
///     meta nfproto ipv6 meta l4proto tcp ip6 daddr             != ::1       tproxy ip6 to :1 accept
///   }
/// }
/// ```
///
/// Servers of the jail's own on loopback are left alone.
fn catch_all_tcp() -> (Vec<u8>, usize) {
    const BATCH_BEGIN: u16 = 16;
    const BATCH_END: u16 = 17;
    const NEW_TABLE: u16 = 10 << 8;
    const NEW_CHAIN: u16 = 10 << 8 | 3;
    const NEW_RULE: u16 = 10 << 8 | 6;
    const PREROUTING: u32 = 0;
    const BEFORE_NAT: i32 = -150;
    const TABLE: &str = "airlock";
    const CHAIN: &str = "catch";
    // struct nfgenmsg: family (1 is inet), version, resource in network order.
    let inet = || Attributes::after(&[1, 0, 0, 0]);
    let batch = || Attributes::after(&[0, 0, 0, 10]);
    let hook = Attributes::default().number(1, PREROUTING).number(2, BEFORE_NAT.cast_unsigned());
    let rule = |expressions| inet().text(1, TABLE).text(2, CHAIN).nest(4, expressions);
    let messages = [
        silent(BATCH_BEGIN, batch()),
        message(NEW_TABLE, Wish::Create, 1, inet().text(1, TABLE)),
        message(NEW_CHAIN, Wish::Create, 2, inet().text(1, TABLE).text(3, CHAIN).nest(4, hook).text(7, "filter")),
        message(NEW_RULE, Wish::Append, 3, rule(catch(2, 16, &[127]))),
        message(NEW_RULE, Wish::Append, 4, rule(catch(10, 24, &Ipv6Addr::LOCALHOST.octets()))),
        silent(BATCH_END, batch()),
    ];
    (messages.concat(), 4)
}

/// The expressions of one rule: TCP of this family, to another address than `loopback`, goes to the listener.
fn catch(family: u8, destination_offset: u32, loopback: &[u8]) -> Attributes {
    const REGISTER: u32 = 1;
    const PORT_REGISTER: u32 = 2;
    const VERDICT_REGISTER: u32 = 0;
    const META_NFPROTO: u32 = 15;
    const META_L4PROTO: u32 = 16;
    const TCP: u8 = 6;
    const EQUAL: u32 = 0;
    const NOT_EQUAL: u32 = 1;
    const NETWORK_HEADER: u32 = 1;
    const ACCEPT: u32 = 1;
    let expression =
        |all: Attributes, name: &str, data: Attributes| all.nest(1, Attributes::default().text(1, name).nest(2, data));
    let value = |bytes: &[u8]| Attributes::default().put(1, bytes);
    let meta = |key| Attributes::default().number(1, REGISTER).number(2, key);
    let compare = |op, bytes: &[u8]| Attributes::default().number(1, REGISTER).number(2, op).nest(3, value(bytes));
    let length = u32::try_from(loopback.len()).unwrap_or(0);
    let destination =
        Attributes::default().number(1, REGISTER).number(2, NETWORK_HEADER).number(3, destination_offset).number(4, length);
    let port = Attributes::default().number(1, PORT_REGISTER).nest(2, value(&LISTENER_PORT.to_be_bytes()));
    let proxy = Attributes::default().number(1, u32::from(family)).number(3, PORT_REGISTER);
    let verdict = Attributes::default().nest(2, Attributes::default().number(1, ACCEPT));
    let accept = Attributes::default().number(1, VERDICT_REGISTER).nest(2, verdict);
    [
        ("meta", meta(META_NFPROTO)),
        ("cmp", compare(EQUAL, &[family])),
        ("meta", meta(META_L4PROTO)),
        ("cmp", compare(EQUAL, &[TCP])),
        ("payload", destination),
        ("cmp", compare(NOT_EQUAL, loopback)),
        ("immediate", port),
        ("tproxy", proxy),
        ("immediate", accept),
    ]
    .into_iter()
    .fold(Attributes::default(), |all, (name, data)| expression(all, name, data))
}

/// Accepts for every address, v4 and v6: `getsockname` of a connection is where the program wanted to go.
fn listener() -> std::io::Result<OwnedFd> {
    let socket = dual_stack(SocketType::STREAM)?;
    setsockopt(&socket, sockopt::IpTransparent, &true)?;
    sys::socket::set_ipv6_transparent(socket.as_fd())?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, LISTENER_PORT, 0, 0))?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
}

/// Hears questions to any resolver; packet info says which, so that the answer can come from there.
fn dns() -> std::io::Result<OwnedFd> {
    let socket = dual_stack(SocketType::DGRAM)?;
    setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, DNS_PORT, 0, 0))?;
    Ok(socket)
}

fn dual_stack(kind: SocketType) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET6, kind, flags, None)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    Ok(socket)
}
