//! The run's own certificate authority, where programs of a jail look for those that they trust.

use super::{Grants, keystore};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jail_plan::{Raw, Step};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};

/// Where distributions keep the list of authorities that their programs read.
const LISTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The same for Java.
const JAVA_LISTS: [&str; 4] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/ca-certificates/extracted/java-cacerts.jks",
];
/// Where a Java has a list of its own, or a link to the system's.
const OF_A_JAVA: &str = "lib/security/cacerts";
/// Where distributions have their Javas.
const JAVAS: &str = "/usr/lib/jvm";

/// Where Chromium, Chrome and the Chrome that Playwright fetches look for what whoever runs the machine set up.
const BROWSERS: [&str; 3] = ["chromium", "opt/chrome", "opt/chrome_for_testing"];

/// Variables that name a list which stands in the place of the program's own, or of the system's.
const WHOLE: [&str; 9] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
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
        let regular: Vec<&str> = LISTS.into_iter().filter(|l| is_file(Path::new(l))).collect();
        let mut steps: Vec<Step> = regular.into_iter().map(|l| cover(Raw::from(l), &self.whole)).collect();
        let file = |name: &str, contents: Vec<u8>| Step::File {
            target: Raw::from(format!("{PLACE}/{name}")),
            contents: Raw::from(contents),
            mode: 0o444,
        };
        let own = CertificateDer::from_pem_slice(&self.own).map(|der| BASE64_STANDARD.encode(der)).unwrap_or_default();
        let policy = serde_json::json!({ "CACertificates": [own] }).to_string();
        steps.extend(BROWSERS.map(|browser| Step::File {
            target: Raw::from(format!("/etc/{browser}/policies/managed/airlock.json")),
            contents: Raw::from(policy.clone()),
            mode: 0o444,
        }));
        steps.extend([file("trusted.pem", self.whole), file("authority.pem", self.own)]);
        steps
    }

    /// What stands in the place of the lists of Java: the system's, and those that come with a Java in one of the places `shown`.
    pub(super) fn java(&self, shown: &[Step]) -> Vec<Step> {
        let mut lists: Vec<(PathBuf, Raw)> = JAVA_LISTS.map(|l| (l.into(), l.into())).to_vec();
        lists.extend(javas(Path::new(JAVAS)).map(|(java, _)| (java.clone(), java.into())));
        for step in shown {
            if let Step::Bind { source, target, .. } = step {
                let of_one = (source.as_path().join(OF_A_JAVA), target.as_path().join(OF_A_JAVA).into());
                let of_many = javas(&source.as_path().join("java"));
                let of_many = of_many.map(|(list, java)| (list, target.as_path().join("java").join(java).join(OF_A_JAVA).into()));
                lists.push(of_one);
                lists.extend(of_many);
            }
        }
        lists.retain(|(list, _)| is_file(list));
        if lists.is_empty() {
            return Vec::new();
        }
        let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(&self.whole).flatten().collect();
        let store = keystore::of(&certificates.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        lists.into_iter().map(|(_, target)| cover(target, &store)).collect()
    }

    /// The same as files in a directory of the jail's.
    pub(super) fn files(self, at: &Path) -> Vec<(Raw, Raw)> {
        let file = |name: &str, contents: Vec<u8>| (Raw::from(at.join(name)), Raw::from(contents));
        vec![file("trusted.pem", self.whole), file("authority.pem", self.own)]
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file())
}

fn cover(target: Raw, contents: &[u8]) -> Step {
    Step::Cover { target, contents: Raw::from(contents.to_vec()) }
}

/// The lists of all Javas in a directory, and what each Java is called.
fn javas(dir: &Path) -> impl Iterator<Item = (PathBuf, std::ffi::OsString)> + use<> {
    let real = |e: &std::fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    std::fs::read_dir(dir).into_iter().flatten().flatten().filter(real).map(|e| (e.path().join(OF_A_JAVA), e.file_name()))
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
