//! Promises of the jail, each tried on the real kernel: as root and as an ordinary user, whoever runs this.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something is not as promised, and says why"
)]

mod canary;
mod control;
mod decoys;
mod decoys_pressed;
mod decoys_unserved;
mod devices;
mod doors;
mod fallback;
mod files;
mod git;
mod installed;
mod keeper;
mod life;
mod limits;
mod nested;
mod network;
mod odd_paths;
mod overlay;
mod places;
mod planted;
mod race;
mod room;
mod start;
mod syscalls;
mod table;
mod terminal;
mod tools;
mod ways;
