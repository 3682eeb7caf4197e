//! What the kernel says over `/dev/fuse`, as far as a file system needs it that refuses or only reads, and what it is told.
//!
//! Numbers are of `linux/fuse.h`, in the machine's own byte order. Nothing in a request is trusted: names are a jailed
//! program's, and an operation that is not known here is one more touch.

use jail_plan::Looks;

/// Bytes that hold any request: the kernel asks for at least 8 KiB, and sends no more than [`MAX_WRITE`] of data, names of
/// at most a path's length, and extended attributes of 64 KiB.
pub const REQUEST: usize = 80 << 10;
/// The least that the kernel takes; nothing is ever written here.
const MAX_WRITE: u32 = 4096;
const HEADER: usize = 40;
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Seconds for which the kernel may keep what never changes.
const LONG: u64 = 3600;
const ROOT: u64 = 1;
/// Numbers from here on are of what lies below a place.
pub const BELOW: u64 = 1 << 32;
/// `FOPEN_DIRECT_IO`: what is read is not kept by the kernel.
const UNKEPT: u32 = 1;
/// Bytes of an entry's head in a listing.
const ENTRY: usize = 24;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// What an answer refers to.
    pub unique: u64,
    /// The node that it is about.
    pub node: Node,
    /// The thread that asks, in the jail's own numbering; 0 for one outside.
    pub thread: u32,
    /// What is asked.
    pub ask: Ask<'a>,
}

/// A node of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The root, which only the set-up sees.
    Root,
    /// A hidden place by its number.
    Place {
        /// Which.
        number: u64,
        /// Whether it is bound as a directory.
        directory: bool,
    },
    /// Something below a place, by the number that it was given; at least [`BELOW`].
    Below(u64),
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask<'a> {
    /// To begin, with the kernel's version.
    Init {
        /// It must be 7.
        major: u32,
    },
    /// What lies below a name.
    Lookup(&'a [u8]),
    /// Attributes.
    Attributes,
    /// Whether one may; looking *at* a place is silent: `ls -la ~` and the completion of a shell do it.
    Access,
    /// Extended attributes and the like, which the kernel does without, likewise.
    Optional,
    /// Room on the file system, likewise.
    Room,
    /// Nothing that is answered.
    Note,
    /// That the kernel gives so many finds of a node back; not answered.
    Forget(u64),
    /// The same for many nodes: a count and a number each, to be read by [`forgotten`].
    ForgetAll(&'a [u8]),
    /// The end.
    Destroy,
    /// To open a file, with these flags.
    Open(u32),
    /// To open a directory.
    OpenDirectory,
    /// Where a link leads.
    Link,
    /// Bytes of what is open.
    Read(Part),
    /// Names in a directory that is open.
    List(Part),
    /// To close what is open under this number.
    Close(u64),
    /// To change the place itself.
    Change,
    /// To make something in it.
    Make,
    /// Anything else.
    Other,
}

/// A part of what is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number that opening gave.
    pub open: u64,
    /// Where it begins: a byte of a file, an entry of a listing.
    pub offset: u64,
    /// Bytes that are taken at most.
    pub size: u32,
}

/// What a file is, as far as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Bytes.
    pub size: u64,
    /// Changed last, in seconds and nanoseconds since 1970.
    pub changed: (i64, u32),
    /// Kind and permissions.
    pub mode: u32,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The protocol.
    Init,
    /// A node was found.
    Entry(Node),
    /// Its attributes.
    Attributes(Node),
    /// Something below a place was found; the kernel keeps nothing of it.
    Found(u64, Attributes),
    /// Attributes of what is served.
    Served(Node, Attributes),
    /// It is open under this number.
    Opened(u64),
    /// What was asked for.
    Bytes(Vec<u8>),
    /// There is room for nothing.
    Room,
    /// Yes.
    Done,
    /// An error number.
    Error(i32),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Reads one request; `None` for what is none.
pub fn decode(bytes: &[u8]) -> Option<Request<'_>> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER..length)?;
    let ask = match u32_at(bytes, 4)? {
        1 => Ask::Lookup(body.split(|b| *b == 0).next().unwrap_or_default()),
        2 => Ask::Forget(u64_at(body, 0)?),
        42 => Ask::ForgetAll(body),
        // INTERRUPT.
        36 => Ask::Note,
        3 => Ask::Attributes,
        // SETATTR, SETXATTR, REMOVEXATTR.
        4 | 21 | 24 => Ask::Change,
        // SYMLINK, MKNOD, MKDIR, LINK, CREATE, TMPFILE.
        6 | 8 | 9 | 13 | 35 | 51 => Ask::Make,
        5 => Ask::Link,
        14 => Ask::Open(u32_at(body, 0)?),
        15 => Ask::Read(part(body)?),
        17 => Ask::Room,
        // RELEASE, RELEASEDIR.
        18 | 29 => Ask::Close(u64_at(body, 0)?),
        // GETXATTR, LISTXATTR, FLUSH, POLL, LSEEK, STATX.
        22 | 23 | 25 | 40 | 46 | 52 => Ask::Optional,
        27 => Ask::OpenDirectory,
        28 => Ask::List(part(body)?),
        26 => Ask::Init { major: u32_at(body, 0)? },
        34 => Ask::Access,
        38 => Ask::Destroy,
        _ => Ask::Other,
    };
    Some(Request { unique: u64_at(bytes, 8)?, node: node(u64_at(bytes, 16)?), thread: u32_at(bytes, 32)?, ask })
}

fn part(body: &[u8]) -> Option<Part> {
    Some(Part { open: u64_at(body, 0)?, offset: u64_at(body, 8)?, size: u32_at(body, 16)? })
}

/// Nodes of [`Ask::ForgetAll`], each with how many finds are given back.
pub fn forgotten(body: &[u8]) -> impl Iterator<Item = (Node, u64)> {
    body.get(8..).unwrap_or_default().chunks_exact(16).filter_map(|one| Some((node(u64_at(one, 0)?), u64_at(one, 8)?)))
}

fn node(id: u64) -> Node {
    match id {
        0 | ROOT => Node::Root,
        id @ BELOW.. => Node::Below(id),
        id => Node::Place { number: id / 2 - 1, directory: id % 2 == 0 },
    }
}

/// The node that the jail asks for by its name in the root: `Nd` or `Nf`.
pub fn named(name: &[u8], places: usize) -> Option<Node> {
    let (kind, digits) = name.split_last()?;
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let directory = match kind {
        b'd' => true,
        b'f' => false,
        _ => return None,
    };
    usize::try_from(number).is_ok_and(|n| n < places).then_some(Node::Place { number, directory })
}

impl Node {
    fn id(self) -> u64 {
        match self {
            Self::Root => ROOT,
            Self::Place { number, directory } => number * 2 + if directory { 2 } else { 3 },
            Self::Below(id) => id,
        }
    }

    /// As what it seems to be where nothing of it is served.
    fn attributes(self) -> Attributes {
        let mode = if let Self::Place { directory: false, .. } = self { 0o100_600 } else { 0o040_700 };
        Attributes { mode, ..Attributes::default() }
    }
}

/// The error that an open gets.
pub fn refusal(looks: Looks) -> i32 {
    match looks {
        Looks::Directory | Looks::File => nix::libc::EACCES,
        Looks::Gone => nix::libc::ENOENT,
    }
}

/// Writes an answer out. `owner` is the user and group that everything seems to belong to, as numbers inside.
pub fn encode(unique: u64, answer: &Answer, owner: (u32, u32)) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(160));
    out.u32(0);
    out.u32(match answer {
        Answer::Error(number) => number.wrapping_neg().cast_unsigned(),
        _ => 0,
    });
    out.u64(unique);
    match answer {
        Answer::Init => {
            for word in [MAJOR, MINOR, 0, 0] {
                out.u32(word);
            }
            // Background requests and congestion: none are made.
            out.u32(0);
            out.u32(MAX_WRITE);
            out.u32(1);
            out.zeros(36);
        }
        Answer::Entry(node) => {
            for word in [node.id(), 0, LONG, 0, 0] {
                out.u64(word);
            }
            out.attributes(*node, node.attributes(), owner);
        }
        Answer::Found(id, attributes) => {
            for word in [*id, 0, 0, 0, 0] {
                out.u64(word);
            }
            out.attributes(Node::Below(*id), *attributes, owner);
        }
        Answer::Attributes(node) => {
            out.zeros(16);
            out.attributes(*node, node.attributes(), owner);
        }
        Answer::Served(node, attributes) => {
            out.zeros(16);
            out.attributes(*node, *attributes, owner);
        }
        Answer::Opened(number) => {
            out.u64(*number);
            out.u32(UNKEPT);
            out.u32(0);
        }
        Answer::Bytes(bytes) => out.0.extend(bytes),
        Answer::Room => {
            out.zeros(40);
            for word in [512, 255, 512, 0] {
                out.u32(word);
            }
            out.zeros(24);
        }
        Answer::Done | Answer::Error(_) => {}
    }
    let length = u32::try_from(out.0.len()).unwrap_or(0);
    out.0[..4].copy_from_slice(&length.to_ne_bytes());
    out.0
}

struct Out(Vec<u8>);

impl Out {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    fn attributes(&mut self, node: Node, attributes: Attributes, owner: (u32, u32)) {
        let Attributes { size, changed: (seconds, nanoseconds), mode } = attributes;
        self.u64(node.id());
        self.u64(size);
        self.u64(size.div_ceil(512));
        for _ in 0..3 {
            self.u64(seconds.cast_unsigned());
        }
        for _ in 0..3 {
            self.u32(nanoseconds);
        }
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        for word in [mode, links, owner.0, owner.1, 0, 4096, 0] {
            self.u32(word);
        }
    }
}

/// As many entries of a listing as `size` bytes hold: inode, kind by `DT_*`, name. Each is numbered by its place in the
/// listing, so that the kernel can go on behind it.
pub fn listing<'a>(entries: impl Iterator<Item = (u64, u32, &'a [u8])>, offset: u64, size: u32) -> Vec<u8> {
    let most = usize::try_from(size).unwrap_or(0);
    let mut out = Out(Vec::new());
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    for (number, (inode, kind, name)) in entries.enumerate().skip(skipped) {
        let length = (ENTRY + name.len()).next_multiple_of(8);
        let Ok(named) = u32::try_from(name.len()) else { continue };
        if out.0.len() + length > most {
            break;
        }
        let end = out.0.len() + length;
        out.u64(inode);
        out.u64(number as u64 + 1);
        out.u32(named);
        out.u32(kind);
        out.0.extend(name);
        out.0.resize(end, 0);
    }
    out.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn request(op: u32, id: u64, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut out = Out(Vec::new());
        out.u32(length);
        out.u32(op);
        out.u64(7);
        out.u64(id);
        for word in [1000, 1000, 42, 0] {
            out.u32(word);
        }
        out.0.extend(body);
        out.0
    }

    #[test]
    fn a_request_is_read_as_the_kernel_writes_it() {
        let place = Node::Place { number: 3, directory: true };
        let bytes = request(1, place.id(), b"id\xff\n\0");
        assert_eq!(decode(&bytes), Some(Request { unique: 7, node: place, thread: 42, ask: Ask::Lookup(b"id\xff\n") }));
        let flags = 0x8001u32.to_ne_bytes();
        assert_eq!(decode(&request(14, 3, &flags)).map(|r| (r.node, r.ask)), {
            Some((Node::Place { number: 0, directory: false }, Ask::Open(0x8001)))
        });
        assert_eq!(decode(&request(4000, 1, b"")).map(|r| (r.node, r.ask)), Some((Node::Root, Ask::Other)), "not known here");
    }

    #[test]
    fn anything_may_come() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 56) as u8
        };
        for round in 0..20_000usize {
            let mut bytes: Vec<u8> = (0..round % 120).map(|_| random()).collect();
            if round % 3 == 0 && bytes.len() >= 8 {
                let length = u32::try_from(bytes.len()).unwrap();
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..8].copy_from_slice(&u32::from(random() % 64).to_ne_bytes());
            }
            if let Some(request) = decode(&bytes) {
                assert!(bytes.len() >= HEADER, "no request is shorter than its header: {bytes:?}");
                if let Ask::Lookup(name) = request.ask {
                    assert!(!name.contains(&0) && name.len() <= bytes.len() - HEADER, "a name is of the request: {bytes:?}");
                    assert!(named(name, 5).is_none_or(|node| node.id() < 12), "no node beyond the places: {name:?}");
                }
            }
        }
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_asks_for() {
        let node = Node::Place { number: 1, directory: false };
        let sizes = [
            (Answer::Init, 64),
            (Answer::Entry(node), 128),
            (Answer::Found(BELOW, Attributes::default()), 128),
            (Answer::Attributes(node), 104),
            (Answer::Served(node, Attributes::default()), 104),
            (Answer::Opened(3), 16),
            (Answer::Bytes(vec![0; 7]), 7),
            (Answer::Room, 80),
            (Answer::Done, 0),
            (Answer::Error(13), 0),
        ];
        for (answer, size) in sizes {
            let bytes = encode(9, &answer, (1, 2));
            assert_eq!(bytes.len(), 16 + size, "{answer:?}");
            assert_eq!(u32_at(&bytes, 0), u32::try_from(bytes.len()).ok(), "it says its own length");
            assert_eq!(u64_at(&bytes, 8), Some(9));
        }
        assert_eq!(encode(9, &Answer::Error(13), (1, 2))[4..8], (-13i32).to_ne_bytes());
    }

    #[test]
    fn a_nodes_name_leads_to_it_and_to_no_other() {
        for number in [0, 1, 9, 10] {
            for (directory, kind) in [(true, 'd'), (false, 'f')] {
                let node = Node::Place { number, directory };
                assert_eq!(named(format!("{number}{kind}").as_bytes(), 11), Some(node));
                assert_eq!(decode(&request(3, node.id(), b"")).unwrap().node, node);
            }
        }
        for bad in ["", "d", "11d", "0x", "-1d", "0", "999999999999999999999d", "0d/"] {
            assert_eq!(named(bad.as_bytes(), 11), None, "{bad}");
        }
    }
}
