//! The desktop's keyring, by the Secret Service.

use crate::{NoSecret, Secret};
use secret_service::EncryptionType;
use secret_service::blocking::SecretService;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long the keyring may take: it asks nobody, since one that is locked is left alone.
const PATIENCE: Duration = Duration::from_secs(10);

impl Secret {
    /// Takes the one item that has these attributes; as [`Secret::of_text`] does where it may be `json`.
    ///
    /// # Errors
    /// No keyring, one that is locked, no item or more than one.
    pub fn of_keyring(attributes: &[(String, String)], json: bool) -> Result<Self, NoSecret> {
        let (tell, told) = mpsc::channel();
        let wanted = attributes.to_vec();
        // A service that does not answer must not hold up a start for ever.
        std::thread::spawn(move || drop(tell.send(find(&wanted, json))));
        told.recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err(NoSecret::Keyring(format!("it said nothing for {} s", PATIENCE.as_secs()))))
    }
}

fn find(attributes: &[(String, String)], json: bool) -> Result<Secret, NoSecret> {
    let failed = |e: secret_service::Error| NoSecret::Keyring(format!("no keyring answers on the session bus ({e})"));
    let service = SecretService::connect(EncryptionType::Dh).map_err(failed)?;
    let wanted: HashMap<&str, &str> = attributes.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let found = service.search_items(wanted).map_err(failed)?;
    let item = match (found.unlocked.as_slice(), found.locked.len()) {
        ([one], 0) => one,
        ([], 0) => return Err(NoSecret::Keyring("it has no item with these attributes".into())),
        ([], _) => return Err(NoSecret::Keyring("it is locked: unlock it and start again".into())),
        _ => return Err(NoSecret::Keyring("more than one item has these attributes: name more of them".into())),
    };
    let bytes = Zeroizing::new(item.get_secret().map_err(failed)?);
    if json {
        return Secret::of_text(&bytes, true);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| NoSecret::Odd)?;
    Secret::new(text.to_owned())
}
