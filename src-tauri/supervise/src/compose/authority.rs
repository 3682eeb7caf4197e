//! The run's own certificate authority, where programs of a jail look for those that they trust.

use super::Grants;
use jail_plan::{Raw, Step};
use std::path::Path;

/// Where distributions keep the list of authorities that their programs read.
const LISTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Variables that name a list which stands in the place of the program's own, or of the system's.
const WHOLE: [&str; 8] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];
/// Variables that name one more authority.
const MORE: [&str; 1] = ["NODE_EXTRA_CA_CERTS"];

/// Where a jail with a root of its own has both lists.
pub(super) const PLACE: &str = "/run/airlock";

/// The system's list with the run's authority behind it, and the authority alone.
pub(super) struct Trusted {
    pub(super) whole: Vec<u8>,
    pub(super) own: Vec<u8>,
}

impl Trusted {
    pub(super) fn of(grants: &Grants) -> Option<Self> {
        let own = grants.authority.as_ref()?.clone().into_bytes();
        // The first that is there; they are one and the same where there are several.
        let mut whole = LISTS.iter().find_map(|l| std::fs::read(l).ok()).unwrap_or_default();
        if !whole.is_empty() && !whole.ends_with(b"\n") {
            whole.push(b'\n');
        }
        whole.extend_from_slice(&own);
        Some(Self { whole, own })
    }

    /// What shows them in a root of the jail's own: also in the place of the system's list, for programs that ask nobody.
    pub(super) fn steps(self) -> Vec<Step> {
        let regular = |l: &&&str| std::fs::symlink_metadata(l).is_ok_and(|m| m.is_file());
        let cover = |l: &&str| Step::Cover { target: Raw::from(*l), contents: Raw::from(self.whole.clone()) };
        let mut steps: Vec<Step> = LISTS.iter().filter(regular).map(cover).collect();
        let file = |name: &str, contents: Vec<u8>| Step::File {
            target: Raw::from(format!("{PLACE}/{name}")),
            contents: Raw::from(contents),
            mode: 0o444,
        };
        steps.extend([file("trusted.pem", self.whole.clone()), file("authority.pem", self.own)]);
        steps
    }

    /// The same as files in a directory of the jail's.
    pub(super) fn files(self, at: &Path) -> Vec<(Raw, Raw)> {
        let file = |name: &str, contents: Vec<u8>| (Raw::from(at.join(name)), Raw::from(contents));
        vec![file("trusted.pem", self.whole), file("authority.pem", self.own)]
    }
}

/// Variables for programs that keep a list of their own. `at` is where both lists are.
pub(super) fn variables(grants: &Grants, at: &Path) -> Vec<(String, String)> {
    if grants.authority.is_none() {
        return Vec::new();
    }
    let named = |names: &[&str], file: &str| -> Vec<(String, String)> {
        names.iter().map(|n| ((*n).to_owned(), at.join(file).display().to_string())).collect()
    };
    [named(&WHOLE, "trusted.pem"), named(&MORE, "authority.pem")].concat()
}
