//! The UDP socket that questions for names arrive at, whichever server's address they were sent to.

use crate::dns;
use crate::gate::Gate;
use crate::rate::Rate;
use nix::libc::{ECONNREFUSED, EINTR, ENOBUFS, ENOMEM};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Largest question that is read; larger ones are cut and so malformed.
pub(crate) const LARGEST: usize = 4096;

/// Answers questions until the socket fails.
pub(crate) async fn serve(socket: OwnedFd, gate: &Gate, rate: &Rate, per_second: u32) -> std::io::Result<()> {
    // The jail's addresses are routes and on no interface, so that IPv6 answers from one need this; the option is one for both families.
    rustix::net::sockopt::set_ip_freebind(&socket, true)?;
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let mut buffer = vec![0; LARGEST];
    loop {
        let got = socket.async_io(Interest::READABLE, || Ok(receive(socket.as_raw_fd(), &mut buffer)?)).await;
        match got {
            Ok(Some(question)) if rate.take().is_ok() => {
                if let Some(reply) = dns::answer(gate, &buffer[..question.length]) {
                    // UDP may lose packets; a full buffer loses this one, and the program asks again.
                    question
                        .reply(socket.as_raw_fd(), &reply)
                        .unwrap_or_else(|e| tracing::debug!("answer to a question for a name not sent: {e}"));
                }
            }
            Ok(Some(_)) => gate
                .recorder
                .limit("lookups", format!("more than {per_second} questions for names a second; the rest is dropped")),
            Ok(None) => {}
            Err(e) if matches!(e.raw_os_error(), Some(EINTR | ENOMEM | ENOBUFS | ECONNREFUSED)) => {}
            Err(e) => return Err(e),
        }
    }
}

struct Question {
    length: usize,
    from: SockaddrStorage,
    /// The address that was asked, which the answer must come from.
    asked: Option<Asked>,
}

enum Asked {
    V4(nix::libc::in_pktinfo),
    V6(nix::libc::in6_pktinfo),
}

/// One packet; [`None`] for one without a sender.
fn receive(socket: RawFd, buffer: &mut [u8]) -> nix::Result<Option<Question>> {
    let mut control = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::in_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control), MsgFlags::empty())?;
    let asked = got.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::Ipv6PacketInfo(i) => Some(Asked::V6(i)),
        ControlMessageOwned::Ipv4PacketInfo(i) => Some(Asked::V4(i)),
        _ => None,
    });
    Ok(got.address.map(|from| Question { length: got.bytes, from, asked }))
}

impl Question {
    fn reply(&self, socket: RawFd, reply: &[u8]) -> nix::Result<()> {
        let parts = [IoSlice::new(reply)];
        let send =
            |control: &[ControlMessage<'_>]| sendmsg(socket, &parts, control, MsgFlags::MSG_DONTWAIT, Some(&self.from)).map(drop);
        match &self.asked {
            None => send(&[]),
            Some(Asked::V6(i)) => {
                let from = nix::libc::in6_pktinfo { ipi6_addr: i.ipi6_addr, ipi6_ifindex: 0 };
                send(&[ControlMessage::Ipv6PacketInfo(&from)])
            }
            Some(Asked::V4(i)) => {
                let from = nix::libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: i.ipi_addr, ipi_addr: i.ipi_addr };
                send(&[ControlMessage::Ipv4PacketInfo(&from)])
            }
        }
    }
}
