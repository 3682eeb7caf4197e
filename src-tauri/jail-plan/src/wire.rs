//! The words between starter and jail, one JSON object a packet, over a `SOCK_SEQPACKET` socket pair.
//!
//! The jail program finds the socket at descriptor 0 and the plan at descriptor 1, which it reads after the starter's first
//! packet, `{"answer":"begin"}`. With [`crate::Stdio::Inherit`] the next is `{"answer":"stdio"}` with three descriptors.

use crate::report::{Refusal, Report};
use serde::{Deserialize, Serialize};

/// Jail to starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub enum Say {
    /// The jail's init exists. One descriptor: its pidfd.
    Born {
        /// Its pid as the starter sees it.
        pid: i32,
    },
    /// The decoys' file system is mounted, and the jail is about to look its entries up. One descriptor: its `/dev/fuse`,
    /// non-blocking. Said at most once, and only where the plan has a decoy. Node `Nd` of the root is a directory and `Nf`
    /// a file for the plan's Nth decoy, from 0. Closing the descriptor closes the decoys for good.
    Fuse,
    /// Everything stands and the command waits for [`Answer::Go`]. Descriptors: those of `handed`, in order.
    Ready {
        /// How far each guarantee holds.
        report: Report,
        /// What the descriptors are.
        handed: Vec<Handed>,
    },
    /// There is no jail; this is the last word.
    Refused {
        /// Why.
        refusal: Refusal,
    },
    /// The command ended; every other process ends now.
    Ended {
        /// Its exit code.
        exit: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

/// Descriptors that one packet carries at most.
pub const DESCRIPTORS: usize = 32;

/// A descriptor that the jail hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handed {
    /// The terminal's master.
    Pty,
    /// The transparent TCP listener.
    Listener,
    /// The UDP socket at port 53.
    Dns,
    /// One of the TCP sockets that lead to the jail's own servers.
    Inward,
    /// The seccomp listener.
    Notify,
    /// The command's pidfd, of a jail without namespaces: its number there is the host's.
    Command,
}

/// Starter to jail. The first is always [`Answer::Begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// The plan is whole, and the jail program is where the starter wants it (in a cgroup, say).
    Begin,
    /// Three descriptors: the command's standard streams.
    Stdio,
    /// Run the command.
    Go,
}
