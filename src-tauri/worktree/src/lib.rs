//! Git, sealed: store, worktree, candidate, diff, review, apply, undo, remove.
//!
//! Invariants: git is started in `git.rs` alone, with nothing of the person's environment or system configuration; the host
//! never opens a path of a workspace (a keeper does); the person's repository is read only, but for an exit.

mod apply;
mod bring;
mod candidate;
mod config;
mod create;
mod diff;
mod files;
mod git;
mod highlight;
mod inside;
mod inside_bring;
mod inspect;
mod journal;
mod left_out;
mod look;
mod mask;
mod objects;
mod plan;
mod put;
mod recover;
mod remove;
mod review;
mod rows;
mod screen;
mod seed;
mod shadow;
mod store;
pub mod tried;
mod undo;
mod working_copy;

pub use apply::{act, discard_plan};
pub use bring::{BringError, Brought, Wanted, bring};
pub use candidate::{CandidateError, candidate};
pub use create::{CreateError, CreateSpec, Created, create};
pub use diff::{DiffError, changes, file_diff, unified};
pub use git::GitError;
pub use inside::{Places, keeper_main};
pub use inspect::{Branch, RefFormat, RepoError, RepoFacts, inspect};
pub use journal::{Journal, JournalError, Step};
pub use plan::{ApplyError, ApplySpec, FileMove, Onto, Plan, WorkingCopy, plan_apply};
pub use recover::{Outcome, recover};
pub use remove::{RemoveError, clean_up, remove_repo, remove_task};
pub use review::result_tree;
pub use seed::{SeedError, base_file, base_names, seed};
pub use store::{Progress, TaskGit};
pub use undo::plan_undo;
