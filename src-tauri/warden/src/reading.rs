//! What a run needs of its way out: an authority that only it trusts, what is attached outside, the person's proxies.

use crate::refusal::Refusal;
use egress::{Authority, Proxies, Reading, Vault};
use jail_plan::{Guarantee, Report, Status};
use model::run::{RunSpec, SecretWord};
use policy::{Attach, Policy, Source};
use secrets::Secret;
use std::sync::Arc;
use supervise::compose::Grants;

/// What the way out is given beside the policy.
pub(crate) struct Road {
    pub(crate) reading: Option<Reading>,
    pub(crate) proxies: Proxies,
}

/// The person's proxies, by the policy and this process's environment, which is theirs. Through one the promise on the network is
/// kept in part only, and the report says so.
pub(crate) fn proxies(policy: &Policy) -> Result<Proxies, Refusal> {
    Proxies::of(policy.proxy(), |name| std::env::var(name).ok()).map_err(|e| Refusal::policy(e.to_string()))
}

/// Tells what is lost through a proxy.
pub(crate) fn told(proxies: &Proxies, report: &mut Report) {
    let (Some(proxy), Some(row)) = (proxies.words(), report.row(Guarantee::Network)) else { return };
    let before = match &row.status {
        Status::Full => String::new(),
        Status::Partial { reason } => format!("{reason}; "),
        Status::Absent { .. } => return,
    };
    let lost =
        format!("{before}connections leave by the proxy {proxy}, which resolves names itself: where a name leads is not checked");
    let how = row.how.clone();
    report.keep(Guarantee::Network, how, Status::partial(lost));
    // To name a proxy in one's policy is itself the word that accepts what it costs.
    if !report.accepted.contains(&Guarantee::Network) {
        report.accepted.push(Guarantee::Network);
    }
}

/// What the starter hands in beside the spec.
#[derive(Default)]
pub(crate) struct Secrets(Vec<SecretWord>);

impl Secrets {
    /// Reads them; nothing at all is none.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Self> {
        if json.is_empty() { Ok(Self::default()) } else { serde_json::from_slice(json).map(Self) }
    }

    /// What can't be attached in this run, in words.
    pub(crate) fn missing(&self, policy: &Policy) -> Vec<String> {
        let words = |w: &SecretWord| {
            let c = policy.credentials.iter().find(|c| c.index == w.credential)?;
            let why = w.why().map_or_else(|| c.missing(), str::to_owned);
            Some(format!("credential[{}] for {}: {why}, so that its requests are refused", c.index, c.host))
        };
        self.0.iter().filter(|w| w.is_empty()).filter_map(words).collect()
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
        // What is signed outside must be signed inside first.
        if matches!(credential.attach, Attach::SigV4(_)) {
            let pair = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
            grants.placeholders.extend(pair.map(|name| (name.to_owned(), placeholder.clone())));
        }
    }
    let vault = Arc::new(Vault::new(bound, placeholder));
    Ok(Some(Reading { authority: Arc::new(authority), vault, roots: egress::system_roots() }))
}
