//! Starts, watches and ends jails: the only crate that starts processes (git apart).
//!
//! Invariant: observation never decides. What a jail may do is in its plan and kept by the kernel; the facts told here
//! (decoys, notifications, watches) are for people. The one exception has a module of its own: in a jail without namespaces the
//! broker makes some calls itself.

pub mod broker;
mod cgroup;
pub mod compose;
pub mod decoy;
mod etc;
pub mod fact;
mod freeze;
pub mod keeper;
pub mod limits;
pub mod notify;
pub mod outside;
mod real;
mod spawn;
pub mod stands;
mod stop;
mod tell;
mod tier;
pub mod toolconf;
mod tools;
pub mod warden;
pub mod watch;
pub mod who;

pub use cgroup::{Scope, Together};
pub use spawn::{Ended, Jail, SpawnError, spawn, spawn_limited};
pub use tier::{Stood, prepare, stand};
pub use tools::variables as tool_variables;
