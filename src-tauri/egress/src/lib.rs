//! The one way out of a jail: names, addresses, connections.
//!
//! The jail's namespace has no network. Every TCP connection arrives at one transparent listener and every question for a name at
//! one UDP socket; both live in the jail's namespace and are served here, outside. A name is judged before it gets an address, the
//! connection when it arrives, the address outside before it is connected to; what is not allowed is reset and told. What the policy
//! asks about is held until the person's answer, without a word to the outside: not even its name is resolved before.
//! For a jail without a namespace both arrive on the machine's loopback, as connections that were made for it (`Inlets::Made`).
//!
//! Invariant: no variable, feature or build kind changes a judgement; tests reach their own servers by a rule with `address`.

mod address;
mod arbiter;
mod attach;
mod authority;
mod body;
mod budget;
mod dns;
mod door;
mod doors;
mod forges;
mod forward;
mod gate;
mod heads;
mod held;
mod hello;
mod hops;
mod inspect;
mod names;
mod otherwise;
mod peer;
mod preview;
mod proxy;
mod rate;
mod record;
mod roads;
mod scrub;
mod signed;
mod tokens;
mod udp;
mod upstream;

#[cfg(test)]
mod tests;

pub use address::{Unreachable, globally_reachable};
pub use arbiter::{Arbiter, Fact, Limits, Permit, Wanted};
pub use attach::Vault;
pub use authority::{Authority, AuthorityError};
pub use dns::answered;
pub use door::{Inlets, Reading, ServeError, serve};
pub use forges::{Does, does};
pub use heads::{Onward, heads};
pub use hello::hello;
pub use preview::{Inward, Preview};
pub use proxy::{BadProxy, Proxies};
pub use upstream::system_roots;
