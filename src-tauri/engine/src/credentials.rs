//! What the policy attaches outside: taken from where the person keeps it when a run starts, and handed to its warden alone.

use crate::{Engine, policy_file};
use model::run::SecretWord;
use policy::Source;
use secrets::Secret;
use zeroize::Zeroizing;

impl Engine {
    /// What the warden reads behind its spec. A credential whose variable the person gave by hand for this run is left out: what they
    /// gave is used as it is. One that is not to be had comes empty, so that its requests are refused and say why.
    pub(crate) fn secrets(&self, in_force: &policy_file::InForce, by_hand: &[(String, String)]) -> Zeroizing<Vec<u8>> {
        let given = |name: &str| by_hand.iter().any(|(k, _)| k == name);
        let word = |c: &policy::Credential| {
            let told = |e: secrets::NoSecret| Some(e.to_string());
            let found = match &c.from {
                Source::Env(name) if given(name) => return None,
                Source::Env(name) => match self.host.var(name).filter(|v| !v.is_empty()) {
                    Some(value) if c.attach.takes_json() => Secret::of_text(value.as_bytes(), true).map_err(told),
                    Some(value) => Secret::new(value.to_owned()).map_err(told),
                    None => Err(None),
                },
                Source::File(path) => Secret::of_file(&path.under(&self.host.home), c.attach.takes_json()).map_err(told),
                Source::Keyring(attributes) => Secret::of_keyring(attributes, c.attach.takes_json()).map_err(told),
                Source::Command(words, _) => supervise::outside::asked(words, &self.host.home).map_err(Some).and_then(|said| {
                    let secret = Secret::of_text(&said, c.attach.takes_json());
                    secret.map_err(|e| Some(format!("of what `{}` said: {e}", words[0])))
                }),
            };
            Some(SecretWord::new(c.index, found.map(|s| s.reveal().to_owned())))
        };
        let words: Vec<SecretWord> = in_force.policy().credentials.iter().filter_map(word).collect();
        Zeroizing::new(serde_json::to_vec(&words).unwrap_or_default())
    }

    /// Whether a variable of the person's environment is set, so that a kit's credential can be attached.
    pub(crate) fn has_variable(&self, name: &str) -> bool {
        self.host.var(name).is_some_and(|v| !v.is_empty())
    }
}
