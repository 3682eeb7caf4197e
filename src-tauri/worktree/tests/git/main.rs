//! What the git crate promises, shown with real git on real repositories. The keeper's program runs unjailed here, on
//! directories laid out like a jail's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests"
)]

mod apply;
mod bring;
mod candidate;
mod create;
mod diff;
mod fixture;
mod hostile;
mod kill;
mod remove;
mod swap;
