//! What a person can do, one file a verb. The window and the command line call these and nothing else.
//!
//! Invariant: no tauri, no clap, no text formatting for a screen here; every verb blocks and may be called from any thread.

mod apply;
mod ask;
mod attach;
mod ballast;
mod caches;
mod candidate;
mod create;
mod credentials;
mod demo;
mod discard;
mod doctor;
mod error;
mod events;
mod export;
mod home;
mod host;
mod inherit;
mod kits;
mod launch;
mod pause;
mod policy_file;
mod policy_paths;
mod preview;
mod promises;
mod recover;
mod registries;
mod repos;
mod review;
mod stop;
mod tasks;

pub use apply::{Applied, ApplyRequest};
pub use ask::{AskView, For, GrantView, Revoked};
pub use attach::{Attached, Incoming, Sender};
pub use candidate::Look;
pub use create::{NewTask, Progress};
pub use doctor::{Advice, Check, Doctor};
pub use error::{Code, Error};
pub use host::{Host, Programs};
pub use inherit::settle;
pub use jail_plan::{Cache as CacheRow, Kept, Row, Status};
pub use kits::KitView;
pub use policy::duration;
pub use policy_file::PolicyView;
pub use promises::{RunView, weaker};
pub use repos::RepoView;
pub use tasks::TaskView;

use db::Database;

/// All verbs, over one person's data.
pub struct Engine {
    host: Host,
    db: Database,
}

impl Engine {
    /// Opens the person's data and finishes or undoes what a crash left half-way.
    pub fn open(host: Host) -> Result<Self, Error> {
        host.make_directories()?;
        let db = ballast::open(&host.layout)?;
        let engine = Self { host, db };
        // A full disk must not keep a person from looking, stopping and discarding.
        if let Err(e) = engine.recover() {
            tracing::warn!(error = %e, "what was cut off could not be mended now");
        }
        Ok(engine)
    }

    /// Where this engine works.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A number that changes with every change of tasks, runs, reviews or repositories, by any process.
    pub fn version(&self) -> Result<i64, Error> {
        Ok(self.db.version()?)
    }
}
