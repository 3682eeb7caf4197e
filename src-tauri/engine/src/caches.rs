//! Caches of the person's tools: which a task has a use for, and that their copies are up to date.

use crate::Engine;
use crate::policy_file::InForce;
use model::protocol::{CacheCopy, CopyCaches};
use model::run::Cache;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use worktree::TaskGit;

/// A start waits so long for copies; whatever takes longer goes on in the background, for a later run.
const PATIENCE: Duration = Duration::from_secs(2);

impl Engine {
    /// The caches that a run of a task is to find. Copies of those that changed are made, as far as that is quick. Nothing here
    /// can fail a start: a run without a cache fetches anew what it may.
    pub(crate) fn caches(&self, task: &TaskGit, in_force: &InForce) -> Vec<Cache> {
        if !in_force.shows_caches() {
            return Vec::new();
        }
        let names = match worktree::base_names(task, &stores::is_manifest) {
            Ok(names) => names,
            Err(e) => {
                tracing::warn!(error = %e, "no cache is shown");
                return Vec::new();
            }
        };
        let root = self.host.layout.caches();
        let now = sys::clock::unix_millis() / 1000;
        let mut caches: Vec<Cache> = stores::live(&self.host.home, &self.host.env, &names)
            .into_iter()
            .map(|live| Cache { name: live.name.to_owned(), source: live.source, target: live.target, note: None })
            .collect();
        let changed: Vec<Cache> = caches.iter().filter(|c| stores::changed(&root, &c.name, &c.source, now)).cloned().collect();
        if changed.is_empty() {
            return caches;
        }
        let words = CopyCaches { root, caches: changed.clone() };
        let said = match supervise::warden::copy_caches(&self.host.programs.warden, &words) {
            Ok(heard) => {
                let until = Instant::now() + PATIENCE;
                let mut said: BTreeMap<String, CacheCopy> = BTreeMap::new();
                while said.values().filter(|c| c.ended).count() < changed.len()
                    && let Ok(copy) = heard.recv_timeout(until.saturating_duration_since(Instant::now()))
                {
                    said.insert(copy.name.clone(), copy);
                }
                said
            }
            Err(e) => {
                tracing::warn!(error = %e, "caches are not copied");
                BTreeMap::new()
            }
        };
        for cache in caches.iter_mut().filter(|c| changed.iter().any(|o| o.name == c.name)) {
            cache.note = match said.get(&cache.name) {
                Some(CacheCopy { ended: true, problem, .. }) => {
                    problem.as_ref().map(|why| format!("it was not copied anew: {why}"))
                }
                Some(CacheCopy { files, .. }) => {
                    Some(format!("it is being copied, {files} files so far; a later run finds the copy"))
                }
                None => Some("it is yet to be copied; a later run finds the copy".into()),
            };
        }
        caches
    }
}
