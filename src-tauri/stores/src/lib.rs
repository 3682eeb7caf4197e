//! Trees of files that are copied: the caches of a person's tools, frozen as generations, and what a task brings along.
//!
//! Invariants: the source is only read; every step goes by descriptor and follows no link; a generation never changes once it
//! has its name, and shares no file that its owner may change in place.

mod generation;
pub mod registries;
mod secret;
mod table;
mod tree;

pub use generation::{Held, Made, NotMade, changed, clean_up, hold, layer, refresh};
pub use secret::{holds_secret, is_secret};
pub use table::{Live, is_manifest, live};
pub use tree::{Counts, Limits, Rules, Stop, Wish, copy, copy_entry, open_dir};
