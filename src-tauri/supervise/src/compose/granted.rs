//! From a policy to what it grants one run.

use super::Grants;
use model::run::RunSpec;
use policy::Policy;

impl Grants {
    /// Whatever the policy lets a run do; caches are its warden's to add.
    pub fn of(spec: &RunSpec, policy: &Policy) -> Self {
        let mut env = spec.host_env.clone();
        env.extend(policy.env.set.iter().cloned());
        env.extend(spec.env.iter().cloned());
        Grants {
            read: policy.files.read.iter().map(|p| p.under(&spec.home)).collect(),
            write: policy.files.write.iter().map(|p| p.under(&spec.home)).collect(),
            devices: policy.files.devices.iter().map(|p| p.under(&spec.home)).collect(),
            hide: policy.files.hide.iter().map(|h| h.path.under(&spec.home)).collect(),
            env,
            processes: policy.limits.processes,
            open_files: policy.limits.open_files,
            disk: Some(policy.limits.disk),
            network: true,
            tools: policy.files.tools == policy::Tools::Auto,
            nested: policy.nested,
            accept: policy.accept.clone(),
            ..Grants::default()
        }
    }
}
