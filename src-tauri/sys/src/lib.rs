//! Raw system calls: one a function, for what `nix` and `rustix` don't offer. The only crate with `unsafe`.
#![allow(unsafe_code, reason = "this crate is the fence: every other one denies unsafe code")]

pub mod bpf;
pub mod clock;
pub mod clone;
pub mod fd;
pub mod inherit;
pub mod mount;
pub mod proc;
pub mod random;
pub mod seccomp;
pub mod seccomp_notify;
pub mod signal;
pub mod socket;
