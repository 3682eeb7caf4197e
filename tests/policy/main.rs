//! What policies promise: the shipped ones load, every case holds, and a second file can only take away.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod apparmor;
mod cases;
mod narrowing;
mod shipped;
