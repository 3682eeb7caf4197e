//! The architecture as tests: edges, fences, the shape of the checkout. Each check is also shown a sample that it must refuse.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod edges;
mod fences;
mod linked;
mod source;
mod teeth;
mod tree;
