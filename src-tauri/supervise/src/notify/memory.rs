//! Memory of a jailed process: bounded reads of strings, argument lists and socket addresses.

use crate::who::{ARGV_CAP, TEXT_CAP, cap_argv};
use model::path::RawPath;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const PAGE: usize = 4096;
/// Longest argv read, in bytes over all.
const ARGV_BYTES: usize = 16 * 1024;
const FAMILY_INET: u16 = 2;
const FAMILY_INET6: u16 = 10;

/// Where bytes come from; a trait so that a test can be slow.
pub(crate) trait Memory: Send + Sync + 'static {
    /// Reads up to `buf.len()` bytes at `address` of thread `tid`; 0 where none can be read.
    fn read(&self, tid: u32, address: u64, buf: &mut [u8]) -> usize;
}

/// `process_vm_readv`.
#[derive(Debug)]
pub(crate) struct Remote;

impl Memory for Remote {
    fn read(&self, tid: u32, address: u64, buf: &mut [u8]) -> usize {
        let (Ok(tid), Ok(base)) = (i32::try_from(tid), usize::try_from(address)) else { return 0 };
        let len = buf.len();
        process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(buf)], &[RemoteIoVec { base, len }]).unwrap_or(0)
    }
}

/// Bytes in this process, from an address on.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Memory for Bytes {
    fn read(&self, _tid: u32, address: u64, buf: &mut [u8]) -> usize {
        let at = address.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        let Some(rest) = at.and_then(|at| self.bytes.get(at..)) else { return 0 };
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// Fills as much of `buf` as can be read without crossing from a good page into a bad one in a single call.
fn fill(memory: &dyn Memory, tid: u32, address: u64, buf: &mut [u8], first: usize, enough: impl Fn(&[u8]) -> bool) -> usize {
    let mut got = 0;
    while got < buf.len() {
        let Some(at) = address.checked_add(got as u64) else { break };
        let page_left = PAGE - usize::try_from(at % PAGE as u64).unwrap_or(0);
        let chunk = page_left.min(buf.len() - got).min(if got == 0 { first } else { PAGE });
        let n = memory.read(tid, at, &mut buf[got..got + chunk]).min(chunk);
        if n == 0 {
            break;
        }
        got += n;
        if enough(&buf[got - n..got]) {
            break;
        }
    }
    got
}

/// Fills as much of `buf` as can be read; how much.
pub(crate) fn fill_all(memory: &dyn Memory, tid: u32, address: u64, buf: &mut [u8]) -> usize {
    fill(memory, tid, address, buf, PAGE, |_| false)
}

/// A string that ends in NUL, at most [`TEXT_CAP`] bytes; `None` where nothing can be read there.
pub(crate) fn text(memory: &dyn Memory, tid: u32, address: u64) -> Option<Vec<u8>> {
    if address == 0 {
        return None;
    }
    let mut buf = [0u8; TEXT_CAP];
    let got = fill(memory, tid, address, &mut buf, 256, |part| part.contains(&0));
    if got == 0 {
        return None;
    }
    let end = buf[..got].iter().position(|b| *b == 0).unwrap_or(got);
    Some(buf[..end].to_vec())
}

/// An argument list, capped in number and bytes; `None` where nothing can be read there.
pub(crate) fn argv(memory: &dyn Memory, tid: u32, address: u64) -> Option<Vec<RawPath>> {
    if address == 0 {
        return None;
    }
    let mut buf = [0u8; ARGV_CAP * 8];
    let got = fill(memory, tid, address, &mut buf, 256, |part| part.chunks_exact(8).any(|pointer| pointer == [0; 8]));
    if got < 8 {
        return None;
    }
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut left = ARGV_BYTES;
    for pointer in buf[..got].chunks_exact(8) {
        let pointer = pointer.try_into().map_or(0, u64::from_ne_bytes);
        let Some(part) = text(memory, tid, pointer).filter(|_| left > 0) else { break };
        left = left.saturating_sub(part.len() + 1);
        out.push(part);
    }
    Some(cap_argv(out.iter().map(Vec::as_slice)))
}

/// What a socket address says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// IPv4 or IPv6; a mapped address as the IPv4 one.
    Inet(SocketAddr),
    /// Another family: nothing of it leaves the jail.
    Other,
}

/// Reads a socket address of `len` bytes; `None` where it can't be read.
pub(crate) fn socket_address(memory: &dyn Memory, tid: u32, address: u64, len: u64) -> Option<Address> {
    let mut buf = [0u8; 28];
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buf.len());
    let got = fill(memory, tid, address, &mut buf[..len], 28, |_| false);
    (got == len && len >= 2).then(|| parse_address(&buf[..len]))
}

/// Reads a `sockaddr`; too short for its family is [`Address::Other`], as the kernel refuses it.
pub(crate) fn parse_address(raw: &[u8]) -> Address {
    let two = |at: usize| raw.get(at..at + 2).and_then(|b| b.try_into().ok());
    let (Some(family), Some(port)) = (two(0).map(u16::from_ne_bytes), two(2).map(u16::from_be_bytes)) else {
        return Address::Other;
    };
    let ip = match family {
        // The kernel takes no `sockaddr_in` under 16 bytes.
        FAMILY_INET if raw.len() >= 16 => raw.get(4..8).and_then(|b| <[u8; 4]>::try_from(b).ok()).map(IpAddr::from),
        FAMILY_INET6 => raw.get(8..24).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(|b| Ipv6Addr::from(b).to_canonical()),
        _ => None,
    };
    ip.map_or(Address::Other, |ip| Address::Inet(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of two pages from 0x1000; everything else is bad.
    struct Pages(Vec<u8>);

    impl Memory for Pages {
        fn read(&self, _: u32, address: u64, buf: &mut [u8]) -> usize {
            let Some(at) = address.checked_sub(0x1000).and_then(|at| usize::try_from(at).ok()) else { return 0 };
            let Some(rest) = self.0.get(at..) else { return 0 };
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            n
        }
    }

    fn random(seed: &mut u64) -> u8 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 56) as u8
    }

    #[test]
    fn a_string_may_end_with_its_mapping() {
        let mut pages = vec![b'x'; 8192];
        let last = pages.len() - 4;
        pages[last..].copy_from_slice(b"a\xffb\0");
        let memory = Pages(pages);
        assert_eq!(text(&memory, 1, 0x1000 + last as u64).unwrap(), b"a\xffb", "bytes that are no text are kept");
        assert_eq!(text(&memory, 1, 0x1000).unwrap().len(), TEXT_CAP, "a string without an end is capped");
        assert_eq!(text(&memory, 1, 0x3000), None, "nothing behind the mapping");
        for wild in [0, 1, u64::MAX, u64::MAX - 3, 1 << 63] {
            assert_eq!(text(&memory, 1, wild), None, "{wild:#x} is no address");
            assert_eq!(argv(&memory, 1, wild), None, "{wild:#x} is no list");
        }
    }

    #[test]
    fn a_huge_argv_is_capped_in_number_and_bytes() {
        let mut pages = vec![b'y'; 8192];
        for slot in pages[..4096].chunks_exact_mut(8) {
            slot.copy_from_slice(&0x2000u64.to_ne_bytes());
        }
        let list = argv(&Pages(pages), 1, 0x1000).unwrap();
        assert!(list.len() <= ARGV_CAP, "at most {ARGV_CAP} arguments");
        assert!(list.iter().map(|a| a.0.len()).sum::<usize>() <= ARGV_BYTES + TEXT_CAP, "bounded over all");
        let mut pages = vec![0u8; 8192];
        for slot in pages[..4096].chunks_exact_mut(8) {
            slot.copy_from_slice(&0x2ffeu64.to_ne_bytes());
        }
        pages[8190] = b'z';
        assert_eq!(argv(&Pages(pages), 1, 0x1000).unwrap(), vec![RawPath::from("z"); ARGV_CAP], "a list without an end is cut");
    }

    #[test]
    fn garbage_addresses_are_no_addresses() {
        let mut seed = 7;
        for len in 0..=40usize {
            for _ in 0..400 {
                let mut raw: Vec<u8> = (0..len).map(|_| random(&mut seed)).collect();
                if len >= 2 && random(&mut seed) & 1 == 0 {
                    raw[1] = 0;
                }
                let family = raw.get(..2).map(|b| u16::from_ne_bytes(b.try_into().unwrap()));
                if let Address::Inet(address) = parse_address(&raw) {
                    let short = match family {
                        Some(FAMILY_INET) => len < 16 || !address.is_ipv4(),
                        Some(FAMILY_INET6) => len < 24,
                        _ => true,
                    };
                    assert!(!short, "{raw:?} must not be read as {address}");
                }
            }
        }
        let v4 = [2, 0, 0x1f, 0x90, 198, 18, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse_address(&v4), Address::Inet("198.18.1.9:8080".parse().unwrap()));
        let mut mapped = vec![10, 0, 0x1f, 0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 1, 9];
        assert_eq!(parse_address(&mapped), Address::Inet("198.18.1.9:8080".parse().unwrap()), "mapped and plain are one");
        mapped.truncate(23);
        assert_eq!(parse_address(&mapped), Address::Other, "the kernel refuses it");
    }

    #[test]
    fn own_memory_reads_back() {
        let text_here = std::ffi::CString::new("h\u{e9}llo").unwrap();
        let read = text(&Remote, std::process::id(), text_here.as_ptr() as u64);
        assert_eq!(read.as_deref(), Some("h\u{e9}llo".as_bytes()));
        assert_eq!(text(&Remote, std::process::id(), 8), None, "an unmapped page is no string");
    }
}
