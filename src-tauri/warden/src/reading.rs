//! What a run needs where its policy has requests read: an authority that only it trusts, and what is attached outside.

use crate::refusal::Refusal;
use egress::{Authority, Reading, Vault};
use model::run::{RunSpec, SecretWord};
use policy::{Policy, Source};
use secrets::Secret;
use std::sync::Arc;
use supervise::compose::Grants;

/// What the starter hands in beside the spec.
#[derive(Default)]
pub(crate) struct Secrets(Vec<SecretWord>);

impl Secrets {
    /// Reads them; nothing at all is none.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Self> {
        if json.is_empty() { Ok(Self::default()) } else { serde_json::from_slice(json).map(Self) }
    }

    fn take(&mut self, index: usize) -> Option<Option<Secret>> {
        let at = self.0.iter().position(|w| w.credential == index)?;
        Some(self.0.swap_remove(at).take().and_then(|text| Secret::new(text).ok()))
    }
}

/// Makes it, and grants the jail what it needs to trust the reader and to find placeholders. [`None`] where nothing is read.
pub(crate) fn prepare(
    spec: &RunSpec,
    policy: &Policy,
    mut secrets: Secrets,
    grants: &mut Grants,
) -> Result<Option<Reading>, Refusal> {
    if !policy.inspects_any() {
        return Ok(None);
    }
    let authority = Authority::new(spec.run.as_str()).map_err(|e| Refusal::machine("making the run's authority", e))?;
    grants.authority = Some(authority.pem().to_owned());
    // It is no secret, and says so; but no other key of the agent's can be the same by accident.
    let placeholder = format!("airlock-placeholder-{}", spec.run);
    // One that the person gave by hand is the agent's own: nothing is attached in its place.
    let bound = policy.credentials.iter().filter_map(|c| Some((c.clone(), secrets.take(c.index)?))).collect::<Vec<_>>();
    for (credential, _) in &bound {
        if let Source::Env(name) = &credential.from {
            grants.placeholders.push((name.clone(), placeholder.clone()));
        }
    }
    let vault = Arc::new(Vault::new(bound, placeholder));
    Ok(Some(Reading { authority: Arc::new(authority), vault, roots: egress::system_roots() }))
}
