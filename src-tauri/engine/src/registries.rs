//! Registries of packages: a task reads from those that its repository has a use for and the person's own tools know.

use crate::Engine;
use crate::error::Error;
use crate::policy_file;
use model::run::PolicyText;
use policy::{Ecosystems, Host};
use worktree::{Progress, TaskGit};

impl Engine {
    /// Adds to a policy what its `network.ecosystems` stands for in this repository, and says what that is.
    pub(crate) fn add_registries(
        &self,
        policy: &mut PolicyText,
        git: &TaskGit,
        progress: &dyn Fn(Progress),
    ) -> Result<(), Error> {
        let in_force = policy_file::in_force(policy)?;
        let ecosystems: Vec<String> = match in_force.policy().ecosystems() {
            None => return Ok(()),
            Some(Ecosystems::Named(named)) => named.clone(),
            Some(Ecosystems::FromLocks) => {
                let files = worktree::base_names(git, &stores::registries::is_lock)?;
                stores::registries::ecosystems(&files).into_iter().map(str::to_owned).collect()
            }
        };
        for ecosystem in ecosystems {
            let found = stores::registries::of(&ecosystem, &self.host.home);
            if found.is_empty() {
                progress(Progress::Note(format!(
                    "{ecosystem}: its registry is not known here, so its first use is judged as any host's"
                )));
            }
            for registry in found {
                let Ok(host) = Host::parse(&registry.host) else { continue };
                let reason = format!("a registry of {ecosystem}, by {}", registry.from);
                let current = policy_file::in_force(policy)?;
                if let Some(text) = current.policy().with_registry(&policy.text, &host, registry.port, &reason) {
                    policy.text = text;
                    progress(Progress::Note(format!("{ecosystem} is read from {host}, by {}", registry.from)));
                }
            }
        }
        Ok(())
    }
}
