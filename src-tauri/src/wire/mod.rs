//! What crosses between the window and its Rust side: plain data, one file per topic, and their TypeScript form.

pub(crate) mod ask;
pub(crate) mod bindings;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod promise;
pub(crate) mod review;
pub(crate) mod task;
