//! Netlink messages, written by hand: `ip` and `nft` may not be installed, and need rights that nobody has.

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE: u16 = 0x400;
const EXCLUSIVE: u16 = 0x200;
const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const ERROR: u16 = 2;

/// What a message wants of what it names.
#[derive(Clone, Copy)]
pub(crate) enum Wish {
    /// Plain.
    Do,
    /// Must not be there yet.
    Create,
    /// After those that are there.
    Append,
}

/// Attributes in the making.
#[derive(Default)]
pub(crate) struct Attributes(pub(crate) Vec<u8>);

impl Attributes {
    /// A payload that starts with a fixed header.
    pub(crate) fn after(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    /// Bytes.
    pub(crate) fn put(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A text with its NUL.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.put(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// A number in network order, as nf_tables wants it.
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Attributes within an attribute.
    pub(crate) fn nest(self, kind: u16, inner: Self) -> Self {
        self.put(kind | NESTED, &inner.0)
    }
}

/// One message.
pub(crate) fn message(kind: u16, wish: Wish, sequence: u32, payload: Attributes) -> Vec<u8> {
    let flags = match wish {
        Wish::Do => REQUEST | ACK,
        Wish::Create => REQUEST | ACK | CREATE | EXCLUSIVE,
        Wish::Append => REQUEST | ACK | CREATE | APPEND,
    };
    with_flags(kind, flags, sequence, payload)
}

/// A message that nothing answers.
pub(crate) fn silent(kind: u16, payload: Attributes) -> Vec<u8> {
    with_flags(kind, REQUEST, 0, payload)
}

fn with_flags(kind: u16, flags: u16, sequence: u32, payload: Attributes) -> Vec<u8> {
    let len = u32::try_from(16 + payload.0.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(16 + payload.0.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(payload.0);
    message
}

/// A netlink socket.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Opens one; no protocol is number 0, which is the routing one.
    pub(crate) fn open(protocol: Option<Protocol>) -> Result<Self, Errno> {
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol).map(Self)
    }

    /// Sends messages in one piece and waits until `acks` of them are answered; the first error is the result.
    pub(crate) fn ask(&self, messages: &[u8], acks: usize) -> Result<(), Errno> {
        rustix::net::send(&self.0, messages, SendFlags::empty())?;
        let mut buffer = vec![0; 32 << 10];
        let mut answered = 0;
        let mut result = Ok(());
        while answered < acks {
            let (len, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..len];
            while let Some((kind, body, next)) = split(rest) {
                if kind == ERROR {
                    answered += 1;
                    // The kernel writes 0 for an acknowledgement, else the negative error number.
                    let code = body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
                    if code != 0 && result.is_ok() {
                        result = Err(Errno::from_raw_os_error(-code));
                    }
                }
                rest = next;
            }
            // An error ends a batch: the messages after it may stay unanswered.
            if result.is_err() {
                break;
            }
        }
        result
    }
}

/// Takes one message off: its kind, its payload, what follows.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(16..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}
