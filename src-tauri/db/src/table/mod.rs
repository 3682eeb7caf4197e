//! One file a table: its schema beside its rows, reads and writes.

pub(crate) mod asks;
pub(crate) mod exits;
pub(crate) mod grants;
pub(crate) mod repos;
pub(crate) mod reviews;
pub(crate) mod runs;
pub(crate) mod tasks;
