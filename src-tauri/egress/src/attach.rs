//! Credentials: what a request brings of its own is taken away, what the policy binds to it is put there.

use crate::body::Broken;
use crate::doors::parameters;
use crate::otherwise::plain;
use crate::scrub::Needles;
use crate::signed::{Brought, Keys};
use crate::tokens::Tokens;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;
use policy::{Attach, Credential, Host, HttpRequest, Scope};
use secrets::Secret;
use std::sync::Arc;
use std::time::Instant;

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

/// Parameters that carry such keys, or a signature by one; lower case.
const PARAMETERS: [&str; 12] = [
    "access_token",
    "api_key",
    "apikey",
    "awsaccesskeyid",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-credential",
    "x-goog-signature",
    "googleaccessid",
    "sig",
    "signature",
];

/// The credentials of one run.
pub struct Vault {
    credentials: Vec<(Credential, Result<Held, String>)>,
    placeholder: String,
    /// When they were taken.
    taken: Instant,
}

/// What is held of a credential.
enum Held {
    Text(Secret),
    Keys(Keys, Scope),
    Tokens(Arc<Tokens>),
}

impl Held {
    /// `others` have what is shared: a refresh token that is good for one use is one, however many requests it is bound to.
    fn of(
        credential: &Credential,
        secret: Option<Secret>,
        others: &[(Credential, Result<Self, String>)],
    ) -> Result<Self, String> {
        let shared = others.iter().find(|(c, _)| c.attach == credential.attach && c.from == credential.from);
        if let Some((_, Ok(Self::Tokens(tokens)))) = shared {
            return Ok(Self::Tokens(Arc::clone(tokens)));
        }
        let secret = secret.ok_or_else(|| format!("{} when the run started", credential.missing()))?;
        match &credential.attach {
            Attach::SigV4(scope) => Keys::read(&secret).map(|keys| Self::Keys(keys, scope.clone())),
            Attach::OAuth(at) => Tokens::new(at, secret).map(|t| Self::Tokens(Arc::new(t))),
            Attach::Header(_) | Attach::Bearer | Attach::Basic(_) | Attach::Query(_) => Ok(Self::Text(secret)),
        }
        .map_err(str::to_owned)
    }
}

/// What is left to do for a request.
pub(crate) enum Next<'a> {
    /// It is as it goes on.
    Nothing,
    /// It is to be signed, once its body is known.
    Sign(&'a Keys, Brought),
    /// It is to bear an access token.
    Bear(&'a Arc<Tokens>),
}

/// Why a request does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign(pub(crate) String);

impl Vault {
    /// `placeholder` is what stands for every one of them inside; a credential that is not to be had comes without its secret.
    pub fn new(credentials: Vec<(Credential, Option<Secret>)>, placeholder: String) -> Self {
        let mut all = Vec::new();
        for (credential, secret) in credentials {
            let held = Held::of(&credential, secret, &all);
            all.push((credential, held));
        }
        Self { credentials: all, placeholder, taken: Instant::now() }
    }

    /// None at all.
    pub fn empty() -> Self {
        Self::new(Vec::new(), String::new())
    }

    /// Whether requests to a host have what they bring taken away.
    pub(crate) fn bound(&self, host: &Host, port: u16) -> bool {
        port == 443 && self.credentials.iter().any(|(c, _)| c.host == *host)
    }

    /// What to take out of what a host sends back: every secret that may be attached for it, in each form that a server could repeat.
    pub(crate) fn needles_of(&self, host: &Host) -> Needles {
        let own = self.credentials.iter().filter(|(c, _)| c.host == *host);
        let mut needles = Needles::default();
        for (credential, held) in own.filter_map(|(c, h)| Some((c, h.as_ref().ok()?))) {
            match held {
                Held::Text(secret) => needles.add(secret.reveal()),
                Held::Keys(keys, _) => keys.secrets().for_each(|s| needles.add(s)),
                Held::Tokens(tokens) => tokens.secrets().iter().for_each(|s| needles.add(s.reveal())),
            }
            if let (Attach::Basic(user), Held::Text(secret)) = (&credential.attach, held) {
                needles.add_one(BASE64.encode(format!("{user}:{}", secret.reveal())).into_bytes());
            }
        }
        needles
    }

    /// Changes a request to a bound host. Gives what is left to do.
    ///
    /// # Errors
    /// A request that brings another key than the placeholder; or one whose credential is not to be had.
    pub(crate) fn attach(&self, host: &Host, port: u16, judged: &HttpRequest, request: &mut Parts) -> Result<Next<'_>, Foreign> {
        let brought = Brought::read(&request.headers);
        self.take_away(host, request)?;
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let found = self.credentials.iter().find(|(c, _)| c.covers(host, port, judged));
        // In pieces, in another charset or compressed by WebSocket's own means it could not be looked through. Of keys that sign, the
        // secret one is not sent at all, and large objects are read in pieces.
        let signs = found.is_some_and(|(_, held)| matches!(held, Ok(Held::Keys(..))));
        let pieces = ["if-range", "range"].into_iter().filter(|_| !signs);
        for name in ["accept-charset", "sec-websocket-extensions"].into_iter().chain(pieces) {
            request.headers.remove(name);
        }
        let Some((credential, held)) = found else {
            return Ok(Next::Nothing);
        };
        let name = credential.name();
        let failed = |why: String| Foreign(format!("{name} can't be attached: {why}"));
        let held = held.as_ref().map_err(|why| failed(format!("{why}; give it, and start again")))?;
        if let Some(lease) = credential.lease().filter(|lease| self.taken.elapsed() >= *lease) {
            return Err(failed(format!("it was good for {} s; start again, and it is taken anew", lease.as_secs())));
        }
        match held {
            Held::Text(secret) => {
                put(&credential.attach, secret, request).map_err(|e| failed(e.to_string()))?;
                Ok(Next::Nothing)
            }
            Held::Tokens(tokens) => Ok(Next::Bear(tokens)),
            Held::Keys(keys, scope) => {
                let brought = brought.ok_or_else(|| {
                    failed("the request is not signed; give the tool the placeholder as its pair of keys".into())
                })?;
                brought.is_for(scope).map_err(failed)?;
                crate::signed::is_plain(request).map_err(failed)?;
                if keys.is_over() {
                    return Err(failed("its session has ended; start again, and it is taken anew".into()));
                }
                Ok(Next::Sign(keys, brought))
            }
        }
    }

    fn take_away(&self, host: &Host, request: &mut Parts) -> Result<(), Foreign> {
        let own = self.credentials.iter().filter(|(c, _)| c.host == *host);
        let own = own.filter_map(|(c, _)| if let Attach::Header(name) = &c.attach { Some(name.as_str()) } else { None });
        let keys: Vec<String> = KEYS.into_iter().chain(own).map(|n| plain(n).to_ascii_lowercase()).collect();
        let bears = |name: &HeaderName| {
            [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name) || keys.contains(&plain(name.as_str()))
        };
        let names: Vec<HeaderName> = request.headers.keys().filter(|n| bears(n)).cloned().collect();
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
            // Some servers part them by `;` as well; what is read here is what any of them would.
            let (mut bears, mut foreign) = (false, None);
            for (name, value) in parameters(Some(pair)) {
                if keys.contains(&name.as_str()) || PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) {
                    bears = true;
                    foreign = foreign.or((value != self.placeholder).then_some(name));
                }
            }
            if let Some(name) = foreign {
                return Err(Foreign(format!("the request brings a key of its own in the parameter `{name}`")));
            }
            if !bears {
                kept.push(pair);
            }
        }
        let kept = kept.join("&");
        set_query(request, &kept).map_err(|e| Foreign(e.to_string()))
    }

    fn is_placeholder(&self, value: &HeaderValue) -> bool {
        let Ok(text) = value.to_str() else { return false };
        // Tools that send a pair have it in either half.
        if let Some(pair) = text.strip_prefix("Basic ") {
            let pair = BASE64.decode(pair.trim()).ok().and_then(|pair| String::from_utf8(pair).ok());
            return pair.is_some_and(|pair| match pair.split_once(':') {
                Some((user, key)) => {
                    key == self.placeholder || (user == self.placeholder && ["", "x-oauth-basic"].contains(&key))
                }
                None => false,
            });
        }
        if text.starts_with(crate::signed::SCHEME) {
            let id = crate::signed::part(text, "Credential").and_then(|scope| scope.split('/').next());
            return id == Some(self.placeholder.as_str());
        }
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
    match attach {
        Attach::Header(name) => drop(request.headers.insert(name.parse::<HeaderName>()?, hidden(secret.reveal().to_owned())?)),
        Attach::Bearer => bear(secret, request)?,
        Attach::Basic(user) => {
            let pair = BASE64.encode(format!("{user}:{}", secret.reveal()));
            drop(request.headers.insert(AUTHORIZATION, hidden(format!("Basic {pair}"))?));
        }
        Attach::SigV4(_) | Attach::OAuth(_) => return Err("it is not sent as it is".into()),
        Attach::Query(name) => {
            let value = percent_encoding::utf8_percent_encode(secret.reveal(), percent_encoding::NON_ALPHANUMERIC);
            let query = request.uri.query().filter(|q| !q.is_empty()).map_or_else(String::new, |q| format!("{q}&"));
            set_query(request, &format!("{query}{name}={value}"))?;
        }
    }
    Ok(())
}

/// As a bearer token.
pub(crate) fn bear(secret: &Secret, request: &mut Parts) -> Result<(), Broken> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.reveal()))?;
    value.set_sensitive(true);
    request.headers.insert(AUTHORIZATION, value);
    Ok(())
}

fn set_query(request: &mut Parts, query: &str) -> Result<(), Broken> {
    let path = request.uri.path();
    let both = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    request.uri = both.parse()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use hyper::Request;

    const PLACEHOLDER: &str = "airlock-placeholder-1";

    fn vault(attach: &str) -> (Vault, Host) {
        let text = format!(
            "version = 1\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"api.test\"\ndecision = \"allow\"\n\
             [[credential]]\nhost = \"api.test\"\nmethods = [\"GET\"]\npaths = [\"/**\"]\n{attach}\nfrom = {{ env = \"KEY\" }}\n"
        );
        let policy = policy::parse("test", &text).unwrap();
        let secret = Secret::new("sk-REAL/1+2".to_owned()).unwrap();
        let host = policy.credentials[0].host.clone();
        (Vault::new(vec![(policy.credentials[0].clone(), Some(secret))], PLACEHOLDER.into()), host)
    }

    fn attached(attach: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(String, Vec<String>), Foreign> {
        let (vault, host) = vault(attach);
        let request = headers.iter().fold(Request::get(uri), |r, (name, value)| r.header(*name, *value));
        let mut head = request.body(()).unwrap().into_parts().0;
        drop(vault.attach(&host, 443, &HttpRequest::new("GET", "/a").unwrap(), &mut head)?);
        let mut all: Vec<String> = head.headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        all.sort();
        Ok((head.uri.to_string(), all))
    }

    #[test]
    fn p5_no_other_key_goes_to_a_bound_host_however_it_is_written() {
        let header = "header = \"x-own\"";
        for foreign in ["authorization", "X_Api_Key", "x-own", "X_Own", "Private_Token", "proxy-authorization"] {
            assert!(attached(header, "/a", &[(foreign, "sk-foreign")]).is_err(), "{foreign}");
            let (_, all) = attached(header, "/a", &[(foreign, PLACEHOLDER)]).unwrap();
            assert_eq!(all, ["accept-encoding: identity", "x-own: sk-REAL/1+2"], "{foreign}");
        }
        for foreign in ["/a?access_token=x", "/a?access%5Ftoken=x", "/a?x=1;api_key=x", "/a?k%65y=x", "/a?b=1&key="] {
            assert!(attached("query = \"key\"", foreign, &[]).is_err(), "{foreign}");
        }
        let (uri, _) = attached("query = \"key\"", &format!("/a?b=1&ke%79={PLACEHOLDER}"), &[]).unwrap();
        assert_eq!(uri, "/a?b=1&key=sk%2DREAL%2F1%2B2");
    }

    #[test]
    fn p5_what_is_signed_inside_is_signed_by_nobody_but_the_placeholder() {
        let sent = |scheme: &str| attached("bearer = true", "/a", &[("authorization", scheme)]);
        let by = |id: &str| {
            format!("AWS4-HMAC-SHA256 Credential={id}/20261130/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=00")
        };
        assert!(sent(&by(PLACEHOLDER)).is_ok(), "and it is taken away");
        for foreign in [by("AKID"), by(&format!("{PLACEHOLDER}x")), format!("AWS4-HMAC-SHA256 {PLACEHOLDER}"), by("")] {
            assert!(sent(&foreign).is_err(), "{foreign}");
        }
        for foreign in
            ["/a?X-Amz-Signature=0", "/a?x-amz-credential=x", "/a?X-Goog-Signature=x", "/a?GoogleAccessId=x", "/a?API_KEY=x"]
        {
            assert!(attached("bearer = true", foreign, &[]).is_err(), "{foreign}");
        }
    }

    #[test]
    fn the_placeholder_is_known_in_a_pair() {
        let sent = |pair: &str| attached("bearer = true", "/a", &[("authorization", &format!("Basic {}", BASE64.encode(pair)))]);
        for good in [format!("me:{PLACEHOLDER}"), format!("{PLACEHOLDER}:"), format!("{PLACEHOLDER}:x-oauth-basic")] {
            assert!(sent(&good).is_ok(), "{good}");
        }
        for foreign in ["me:sk-foreign".to_owned(), format!("{PLACEHOLDER}:sk-foreign"), PLACEHOLDER.to_owned(), "me:".to_owned()]
        {
            assert!(sent(&foreign).is_err(), "{foreign}");
        }
    }

    #[test]
    fn p5_an_answer_is_not_asked_for_in_a_form_that_hides_the_key() {
        let odd =
            [("range", "bytes=0-3"), ("accept-encoding", "gzip"), ("accept-charset", "utf-16"), ("cookie", "a=b"), ("x", "y")];
        let (_, all) = attached("bearer = true", "/a", &odd).unwrap();
        assert_eq!(all, ["accept-encoding: identity", "authorization: Bearer sk-REAL/1+2", "x: y"]);
    }

    #[test]
    fn p5_what_was_attached_comes_back_in_no_form() {
        let (vault, host) = vault("basic = \"me\"");
        for (form, text) in [
            ("plain", "sk-REAL/1+2".to_owned()),
            ("as it was sent", BASE64.encode("me:sk-REAL/1+2")),
            ("with more around it", BASE64.encode("{'user':'someone','pass':'sk-REAL/1+2'}")),
            ("for addresses", base64::prelude::BASE64_URL_SAFE_NO_PAD.encode("you:sk-REAL/1+2,")),
            ("percent", "sk-REAL%2F1%2B2".to_owned()),
            ("percent, small", "sk-REAL%2f1%2b2".to_owned()),
            ("percent, all", "sk%2DREAL%2F1%2B2".to_owned()),
            ("JSON", "sk-REAL\\/1+2".to_owned()),
            ("hex", "73 6B 2D 52 45 41 4C 2F 31 2B 32".to_owned()),
            ("a row of hex", "736b2d5245414c2f312b32".to_owned()),
        ] {
            let mut sieve = vault.needles_of(&host).sieve();
            let mut out = sieve.take(text.as_bytes()).to_vec();
            out.extend_from_slice(&sieve.rest());
            assert_eq!(out.len(), text.len(), "{form}");
            let out = String::from_utf8(out).unwrap();
            let hidden = out.chars().filter(|c| *c == '*').count();
            assert!(hidden >= 11 && !out.contains("REAL"), "{form}: {out}");
        }
    }
}
