//! Hostile programs, one for each known way out. Each is run outside first, where it must come through: that shows that it works.
//! Then it is run in a jail, where it must not, by the state of this machine and not by what the program says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something is not as promised, and says why"
)]
#![cfg(target_arch = "x86_64")]

mod canary;
mod compile;
mod control;
mod environment;
mod files;
mod inherit;
mod kernel;
mod machine;
mod mounts;
mod processes;
#[path = "../jail/room.rs"]
#[allow(dead_code, reason = "the suite of the jail needs more of it")]
mod room;
mod run;
mod sockets;
mod stage;
mod storms;
mod table;
mod terminal;
