//! What the sensors tell.

use model::event::{FileOp, NetOp, Process, ProcessOp, Verdict, What};
use model::path::RawPath;
use std::net::IpAddr;
use std::sync::Arc;

/// One thing that a sensor saw. `process` is `None` where the kernel could no longer say who it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A process became another program; told only after it did.
    Exec {
        /// The process as it is *after*; `argv` is what it passed.
        process: Arc<Process>,
    },
    /// A process that was told by [`Fact::Exec`] ended.
    Exit {
        /// The process as it was last known.
        process: Arc<Process>,
        /// Exit code, or 128 + signal; `None` where it could not be learned.
        status: Option<i32>,
    },
    /// A stream socket was asked to connect to an Internet address (others stay inside; connecting a datagram socket sends
    /// nothing). Told before it happens, so what came of it is not known.
    Connect {
        /// Who.
        process: Option<Arc<Process>>,
        /// Where to, as written (a mapped IPv6 address is told as the IPv4 one).
        address: IpAddr,
        /// Port.
        port: u16,
    },
    /// A socket was asked to take an address.
    Bind {
        /// Who.
        process: Option<Arc<Process>>,
        /// Address inside.
        address: IpAddr,
        /// Port; 0 lets the kernel choose.
        port: u16,
    },
    /// A file was asked to change, or one in a hidden place was opened with the person's permission.
    File {
        /// Who.
        process: Option<Arc<Process>>,
        /// `Write`, `Create`, `Delete` or `Rename`; `Read` in a hidden place.
        op: FileOp,
        /// As the program wrote it, behind the directory it named by descriptor.
        path: RawPath,
        /// The new name of a rename.
        to: Option<RawPath>,
        /// `Denied` only where the path lies clearly outside every place that the jail can write to, `Allowed` for a look into a
        /// hidden place that the person permitted.
        verdict: Verdict,
        /// How many.
        count: u64,
    },
    /// Files below a quiet place were asked to change; told once a second for each process.
    Folded {
        /// Who.
        process: Option<Arc<Process>>,
        /// The quiet place.
        path: RawPath,
        /// How many.
        count: u64,
    },
    /// A call whose arguments could not be read in time; it went ahead unseen.
    Unreadable {
        /// Who.
        process: Option<Arc<Process>>,
        /// Which, e.g. `connect`.
        call: &'static str,
    },
    /// A hidden place was touched, and refused.
    Decoy {
        /// Who.
        process: Option<Arc<Process>>,
        /// What was tried.
        op: FileOp,
        /// The place, or a name in it.
        path: RawPath,
        /// How many.
        count: u64,
    },
    /// The watch saw a file of the workspace change.
    Seen {
        /// What.
        op: FileOp,
        /// Relative to the workspace.
        path: RawPath,
        /// New name of a rename, where both ends were seen.
        to: Option<RawPath>,
    },
    /// So many more happened and are not told one by one.
    Coalesced {
        /// How many.
        count: u64,
        /// Of what, e.g. `file events`.
        of: &'static str,
    },
    /// A sensor does not see everything from here on; told once.
    Incomplete {
        /// In words, with the figure.
        detail: String,
    },
}

impl Fact {
    /// The event's parts: who, what, and how many rows like it this one stands for. The caller adds number and time.
    pub fn into_event_what(self) -> (Option<Process>, What, u64) {
        let (process, what, count) = self.parts();
        (process.map(Arc::unwrap_or_clone), what, count)
    }

    fn parts(self) -> (Option<Arc<Process>>, What, u64) {
        match self {
            Fact::Exec { process } => (Some(process), What::Process { op: ProcessOp::Exec, status: None }, 1),
            Fact::Exit { process, status } => (Some(process), What::Process { op: ProcessOp::Exit, status }, 1),
            Fact::Connect { process, address, port } => (process, network(NetOp::Connect, address, port), 1),
            Fact::Bind { process, address, port } => (process, network(NetOp::Bind, address, port), 1),
            Fact::File { process, op, path, to, verdict, count } => {
                let rule = match verdict {
                    Verdict::Denied => "files.write",
                    Verdict::Allowed => "files.hide",
                    Verdict::Held | Verdict::Noted => "",
                };
                (process, What::File { op, path, to, verdict, rule: rule.into() }, count)
            }
            Fact::Folded { process, path, count } => {
                let rule = String::new();
                (process, What::File { op: FileOp::Write, path, to: None, verdict: Verdict::Noted, rule }, count)
            }
            Fact::Unreadable { process, call } => {
                let detail =
                    format!("the arguments of a {call} could not be read in time; it went ahead and is not told in full");
                (process, What::Limit { limit: "events".into(), detail }, 1)
            }
            Fact::Decoy { process, op, path, count } => {
                (process, What::File { op, path, to: None, verdict: Verdict::Denied, rule: "files.hide".into() }, count)
            }
            Fact::Seen { op, path, to } => (None, What::File { op, path, to, verdict: Verdict::Noted, rule: String::new() }, 1),
            Fact::Coalesced { count, of } => (
                None,
                What::Limit { limit: "events".into(), detail: format!("{count} more {of}, counted and not told one by one") },
                count,
            ),
            Fact::Incomplete { detail } => (None, What::Limit { limit: "events".into(), detail }, 1),
        }
    }

    /// Whether the way out tells the same connection again, with its verdict: every stream connect but those that stay on
    /// the jail's own loopback.
    pub fn told_by_way_out(&self) -> bool {
        matches!(self, Fact::Connect { address, .. } if !stays_inside(*address))
    }

    pub(crate) fn key(&self) -> Option<Key> {
        let pid = |process: &Option<Arc<Process>>| process.as_ref().map(|p| p.pid);
        match self {
            Fact::File { process, op, path, to, verdict, .. } => Some((pid(process), *op, path.clone(), to.clone(), *verdict)),
            Fact::Decoy { process, op, path, .. } => Some((pid(process), *op, path.clone(), None, Verdict::Denied)),
            Fact::Folded { process, path, .. } => Some((pid(process), FileOp::Write, path.clone(), None, Verdict::Noted)),
            _ => None,
        }
    }

    pub(crate) fn set_count(&mut self, n: u64) {
        if let Fact::File { count, .. } | Fact::Decoy { count, .. } | Fact::Folded { count, .. } = self {
            *count = n;
        }
    }

    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            Fact::File { .. } | Fact::Folded { .. } | Fact::Seen { .. } | Fact::Unreadable { .. } => Some(Class::Files),
            Fact::Exec { .. } | Fact::Exit { .. } => Some(Class::Processes),
            Fact::Connect { .. } | Fact::Bind { .. } => Some(Class::Network),
            Fact::Decoy { .. } => Some(Class::Decoys),
            Fact::Coalesced { .. } | Fact::Incomplete { .. } => None,
        }
    }
}

/// Whether packets to this address never leave the jail's own loopback.
pub(crate) fn stays_inside(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

fn network(op: NetOp, address: IpAddr, port: u16) -> What {
    What::Network {
        op,
        host: String::new(),
        address: Some(address.to_string()),
        port,
        verdict: Verdict::Noted,
        rule: String::new(),
        reason: if stays_inside(address) { "inside the jail".into() } else { String::new() },
        sent: 0,
        received: 0,
        http: None,
        carried: None,
    }
}

/// What makes two facts the same.
pub(crate) type Key = (Option<u32>, FileOp, RawPath, Option<RawPath>, Verdict);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// Kinds that are limited apart, so that a flood of one hides nothing of another.
pub(crate) enum Class {
    Files,
    Processes,
    Network,
    Decoys,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_stays_inside() {
        let fact = |text: &str| Fact::Connect { process: None, address: text.parse().unwrap_or(IpAddr::from([0; 4])), port: 1 };
        for inside in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"] {
            assert!(!fact(inside).told_by_way_out(), "{inside} does not reach the way out");
        }
        for out in ["198.18.1.1", "fd53:4258::100", "::ffff:198.18.1.1", "128.0.0.1"] {
            assert!(fact(out).told_by_way_out(), "{out} reaches the way out");
        }
    }
}
