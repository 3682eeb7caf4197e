//! What the tests of Airlock stand on: a person's own directories for one test, real repositories, a scripted model, the
//! real window. Nothing here knows the product from inside: tests run its programs and read what they print.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test kit ends the test where something is not as it must be, and says why"
)]

pub mod agent;
pub mod airlock;
pub mod endpoint;
pub mod framebuffer;
pub mod program;
pub mod repos;
pub mod sandbox;
pub mod tls;
pub mod treehash;
pub mod wait;
pub mod window;

pub use airlock::{Ended, Live};
pub use program::program;
pub use repos::{Repo, objects_that_hold};
pub use sandbox::Sandbox;
pub use wait::{eventually, not_tested_here};
