//! What the page may ask for: DTO in, engine verb, DTO out. Each name here is also in `build.rs` and `capabilities/main.json`.

pub(crate) mod asks;
pub(crate) mod events;
pub(crate) mod review;
pub(crate) mod tasks;
pub(crate) mod terminal;
