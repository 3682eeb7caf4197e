//! Credentials: what a request brings of its own is taken away, what the policy binds to it is put there.

use crate::body::Broken;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;
use policy::{Attach, Credential, Host, HttpRequest};
use secrets::Secret;

/// Headers that carry keys of well-known services, beside those that the policy names.
const KEYS: [&str; 10] = [
    "api-key",
    "private-token",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-key",
    "x-auth-token",
    "x-csrf-token",
    "x-github-token",
    "x-goog-api-key",
    "x-token",
];

/// The credentials of one run.
pub struct Vault {
    credentials: Vec<(Credential, Option<Secret>)>,
    placeholder: String,
}

/// Why a request does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign(pub(crate) String);

impl Vault {
    /// `placeholder` is what stands for every one of them inside; a credential that is not to be had comes without its secret.
    pub fn new(credentials: Vec<(Credential, Option<Secret>)>, placeholder: String) -> Self {
        Self { credentials, placeholder }
    }

    /// None at all.
    pub fn empty() -> Self {
        Self::new(Vec::new(), String::new())
    }

    /// Whether requests to a host have what they bring taken away.
    pub(crate) fn bound(&self, host: &Host, port: u16) -> bool {
        port == 443 && self.credentials.iter().any(|(c, _)| c.host == *host)
    }

    /// Every secret that may be attached for a host, for taking them out of what comes back.
    pub(crate) fn secrets_of(&self, host: &Host) -> Vec<&Secret> {
        self.credentials.iter().filter(|(c, _)| c.host == *host).filter_map(|(_, s)| s.as_ref()).collect()
    }

    /// Changes a request to a bound host. Gives the name of what was attached.
    ///
    /// # Errors
    /// A request that brings another key than the placeholder; or one whose credential is not to be had.
    pub(crate) fn attach(
        &self,
        host: &Host,
        port: u16,
        judged: &HttpRequest,
        request: &mut Parts,
    ) -> Result<Option<String>, Foreign> {
        self.take_away(host, request)?;
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let Some((credential, secret)) = self.credentials.iter().find(|(c, _)| c.covers(host, port, judged)) else {
            return Ok(None);
        };
        let name = credential.name();
        let Some(secret) = secret else {
            return Err(Foreign(format!("{name} can't be attached: it was not to be had when the run started")));
        };
        put(&credential.attach, secret, request).map_err(|e| Foreign(format!("{name} can't be attached: {e}")))?;
        Ok(Some(name))
    }

    fn take_away(&self, host: &Host, request: &mut Parts) -> Result<(), Foreign> {
        let own = self.credentials.iter().filter(|(c, _)| c.host == *host);
        let own = own.filter_map(|(c, _)| if let Attach::Header(name) = &c.attach { Some(name.as_str()) } else { None });
        let names: Vec<HeaderName> = KEYS
            .into_iter()
            .chain(own)
            .filter_map(|n| n.parse().ok())
            .chain([AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE])
            .collect();
        for name in names {
            for value in request.headers.get_all(&name) {
                if name != COOKIE && !self.is_placeholder(value) {
                    return Err(Foreign(format!(
                        "the request brings a key of its own in `{name}`: {host} has one attached outside, and no other goes there"
                    )));
                }
            }
            request.headers.remove(&name);
        }
        self.query(host, request)
    }

    /// Takes parameters away that carry keys.
    fn query(&self, host: &Host, request: &mut Parts) -> Result<(), Foreign> {
        let Some(query) = request.uri.query() else { return Ok(()) };
        let keys = self.credentials.iter().filter(|(c, _)| c.host == *host);
        let keys: Vec<&str> =
            keys.filter_map(|(c, _)| if let Attach::Query(name) = &c.attach { Some(name.as_str()) } else { None }).collect();
        let mut kept = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !keys.contains(&name) && !["access_token", "api_key", "apikey"].contains(&name) {
                kept.push(pair);
            } else if value != self.placeholder {
                return Err(Foreign(format!("the request brings a key of its own in the parameter `{name}`")));
            }
        }
        let kept = kept.join("&");
        set_query(request, &kept).map_err(|e| Foreign(e.to_string()))
    }

    fn is_placeholder(&self, value: &HeaderValue) -> bool {
        let Ok(text) = value.to_str() else { return false };
        let bare = text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("token ")).unwrap_or(text);
        bare == self.placeholder
    }
}

fn put(attach: &Attach, secret: &Secret, request: &mut Parts) -> Result<(), Broken> {
    let hidden = |text: String| -> Result<HeaderValue, Broken> {
        let mut value = HeaderValue::from_str(&text)?;
        value.set_sensitive(true);
        Ok(value)
    };
    let headers = &mut request.headers;
    match attach {
        Attach::Header(name) => drop(headers.insert(name.parse::<HeaderName>()?, hidden(secret.reveal().to_owned())?)),
        Attach::Bearer => drop(headers.insert(AUTHORIZATION, hidden(format!("Bearer {}", secret.reveal()))?)),
        Attach::Basic(user) => {
            let pair = BASE64.encode(format!("{user}:{}", secret.reveal()));
            drop(headers.insert(AUTHORIZATION, hidden(format!("Basic {pair}"))?));
        }
        Attach::Query(name) => {
            let value = percent_encoding::utf8_percent_encode(secret.reveal(), percent_encoding::NON_ALPHANUMERIC);
            let query = request.uri.query().filter(|q| !q.is_empty()).map_or_else(String::new, |q| format!("{q}&"));
            set_query(request, &format!("{query}{name}={value}"))?;
        }
    }
    Ok(())
}

fn set_query(request: &mut Parts, query: &str) -> Result<(), Broken> {
    let path = request.uri.path();
    let both = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    request.uri = both.parse()?;
    Ok(())
}
