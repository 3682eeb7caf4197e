//! Who is at the other end of a connection over this machine's loopback.

use std::net::{IpAddr, SocketAddr};

/// Whether the peer of a connection is a program of the same user as this one. Who can't be told is a stranger.
pub(crate) fn is_own(peer: SocketAddr, local: SocketAddr) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let table = if peer.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    std::fs::read_to_string(table).is_ok_and(|text| owner(&text, peer, local) == Some(me))
}

/// The user of the socket that is bound to `from` and connected to `to`.
fn owner(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let (from, to) = (written(from), written(to));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let both = words.next() == Some(&from) && words.next() == Some(&to);
        // State, queues, timer and retransmissions stand between.
        both.then(|| words.nth(4)?.parse().ok()).flatten()
    })
}

/// As the kernel writes it: each 32-bit word in the machine's own order.
fn written(address: SocketAddr) -> String {
    let words = |bytes: &[u8]| {
        let word = |w: &[u8]| w.try_into().map_or(0, u32::from_ne_bytes);
        bytes.chunks_exact(4).map(|w| format!("{:08X}", word(w))).collect::<String>()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn p6_the_kernel_says_whose_a_connection_is() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert!(is_own(peer, server.local_addr().unwrap()), "{at}: this very process");
            drop(client);
        }
        let line = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                    0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n";
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!(owner(line, at("127.0.0.1:8080"), at("127.0.0.1:50000")), Some(1000));
        }
        assert_eq!(owner(line, at("127.0.0.1:8080"), at("127.0.0.1:50001")), None);
        assert_eq!(owner("odd\nx\n: :\n", at("127.0.0.1:8080"), at("127.0.0.1:50000")), None);
    }
}
