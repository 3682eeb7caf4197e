//! Airlock's nouns: ids, tasks, events, decisions, exits, and the warden's protocol.
//!
//! Invariant: nothing here reads a file, a clock, the environment or a socket.

pub mod ask;
pub mod decision;
pub mod diff;
pub mod event;
pub mod exit;
pub mod frame;
pub mod id;
pub mod keeper;
pub mod layout;
pub mod path;
pub mod pattern;
pub mod protocol;
pub mod review;
pub mod run;
pub mod task;
