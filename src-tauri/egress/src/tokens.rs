//! Refresh tokens: changed outside for access tokens, which are kept for as long as they are good (RFC 6749, section 6).

use crate::body::{self, Broken};
use crate::upstream::{Outside, Upstream};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use policy::{Destination, Leads, Target, TokenEndpoint};
use secrets::Secret;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Largest answer of an endpoint, in bytes.
const ANSWER: usize = 64 * 1024;
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long before its end a token is not used any more.
const EARLY: Duration = Duration::from_secs(30);
/// How long one is good of which nobody says so.
const UNSAID: Duration = Duration::from_secs(300);
/// How long one is used at least, whatever is said of it.
const LEAST: Duration = Duration::from_secs(5);
/// How long a failure is remembered, so that a program that tries again and again does not knock there.
const FAILED: Duration = Duration::from_secs(10);
/// How long a token stays after one was refused.
const AGAIN: Duration = Duration::from_secs(60);
/// Tokens that may not come back, beside the one that the person keeps.
const KNOWN: usize = 64;

/// One credential's.
pub(crate) struct Tokens {
    at: TokenEndpoint,
    client: String,
    password: Option<Arc<Secret>>,
    state: tokio::sync::Mutex<State>,
    known: Mutex<Known>,
}

/// What may not come back, beside the password.
struct Known {
    /// The person's own, which outlives the run, and the one that is used now.
    refresh: [Arc<Secret>; 2],
    /// The last that were given.
    given: VecDeque<Arc<Secret>>,
}

struct State {
    refresh: Arc<Secret>,
    access: Option<(Arc<Secret>, Instant)>,
    failed: Option<(String, Instant)>,
    /// When a server did not take one, and it was forgotten.
    refused: Option<Instant>,
}

/// What the person keeps: the token alone, or JSON as tools keep it.
#[derive(Deserialize, Zeroize, ZeroizeOnDrop)]
struct Kept {
    refresh_token: String,
    client_id: Option<String>,
    client_secret: Option<String>,
}

/// What an endpoint answers.
#[derive(Deserialize, Zeroize, ZeroizeOnDrop)]
struct Given {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

/// A token to send, and whether it was taken just now.
pub(crate) struct Access {
    pub(crate) token: Arc<Secret>,
    pub(crate) fresh: bool,
}

impl Tokens {
    pub(crate) fn new(at: &TokenEndpoint, secret: Secret) -> Result<Self, &'static str> {
        const NONE: &str =
            "it holds no refresh token that can be used: the token alone, or JSON with refresh_token and client_id";
        let of = |text: &str| Secret::new(text.to_owned()).map_err(|_| NONE);
        let (refresh, client, password) = if secret.reveal().starts_with('{') {
            let kept: Kept = serde_json::from_str(secret.reveal()).map_err(|_| NONE)?;
            let password = kept.client_secret.as_deref().map(of).transpose()?;
            (of(&kept.refresh_token)?, kept.client_id.clone(), password)
        } else {
            (secret, None, None)
        };
        let client =
            at.client.clone().or(client).ok_or("nobody says which client the refresh token is of: name it in the policy")?;
        let refresh = Arc::new(refresh);
        let known = Known { refresh: [Arc::clone(&refresh), Arc::clone(&refresh)], given: VecDeque::new() };
        let state = tokio::sync::Mutex::new(State { refresh, access: None, failed: None, refused: None });
        Ok(Self { at: at.clone(), client, password: password.map(Arc::new), state, known: Mutex::new(known) })
    }

    /// What may not come back.
    pub(crate) fn secrets(&self) -> Vec<Arc<Secret>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.refresh.iter().chain(&known.given).chain(&self.password).map(Arc::clone).collect()
    }

    /// The token, where one is good already.
    pub(crate) fn ready(&self) -> Option<Arc<Secret>> {
        self.state
            .try_lock()
            .ok()?
            .access
            .as_ref()
            .filter(|(_, until)| Instant::now() < *until)
            .map(|(token, _)| Arc::clone(token))
    }

    /// An access token that is good. Many that ask at once make one request. To be driven to its end, whoever waits for it: what an
    /// endpoint gave once it may never give again.
    pub(crate) async fn access(&self, outside: &Arc<Outside>) -> Result<Access, String> {
        let mut state = self.state.lock().await;
        if let Some((token, until)) = &state.access
            && Instant::now() < *until
        {
            return Ok(Access { token: Arc::clone(token), fresh: false });
        }
        if let Some((why, at)) = &state.failed
            && at.elapsed() < FAILED
        {
            return Err(why.clone());
        }
        let given = tokio::time::timeout(PATIENCE, self.ask(&state.refresh, outside)).await;
        let given = given.unwrap_or_else(|_| Err(format!("it said nothing for {} s", PATIENCE.as_secs())));
        let taken = given.and_then(|given| {
            let odd = |_| "it gave a token that can't be sent".to_owned();
            let token = Arc::new(Secret::new(given.access_token.clone()).map_err(odd)?);
            let next = given.refresh_token.clone().map(|t| Secret::new(t).map(Arc::new).map_err(odd)).transpose()?;
            let good =
                given.expires_in.map_or(UNSAID, |s| Duration::from_secs(s.min(30 * 86_400))).saturating_sub(EARLY).max(LEAST);
            Ok((token, next, Instant::now() + good))
        });
        match taken {
            Ok((token, next, until)) => {
                self.learn(&token, next.as_ref());
                state.refresh = next.unwrap_or_else(|| Arc::clone(&state.refresh));
                state.access = Some((Arc::clone(&token), until));
                state.failed = None;
                Ok(Access { token, fresh: true })
            }
            Err(why) => {
                let why = format!("the token endpoint at {} gives none: {why}", self.at.host);
                state.failed = Some((why.clone(), Instant::now()));
                Err(why)
            }
        }
    }

    /// A server did not take the token: the next request has another. Not again and again, as what is refused is the program's choice.
    pub(crate) fn refused(&self, token: &Arc<Secret>) {
        // Who asks for another now has it soon.
        let Ok(mut state) = self.state.try_lock() else { return };
        let known = state.access.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, token));
        if known && state.refused.is_none_or(|at| at.elapsed() >= AGAIN) {
            (state.access, state.refused) = (None, Some(Instant::now()));
        }
    }

    fn learn(&self, token: &Arc<Secret>, refresh: Option<&Arc<Secret>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.given.push_back(Arc::clone(token));
        if let Some(refresh) = refresh {
            let before = std::mem::replace(&mut known.refresh[1], Arc::clone(refresh));
            known.given.push_back(before);
        }
        let over = known.given.len().saturating_sub(KNOWN);
        known.given.drain(..over);
    }

    /// Where it is.
    pub(crate) fn target(&self) -> Target {
        Target { to: Destination::Name(self.at.host.clone()), port: self.at.port }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &str {
        &self.at.path
    }

    async fn ask(&self, refresh: &Secret, outside: &Arc<Outside>) -> Result<Given, String> {
        let target = self.target();
        let leads = self.at.address.map_or(Leads::Public, Leads::At);
        let host = if self.at.port == 443 { self.at.host.to_string() } else { target.to_string() };
        let request = self.request(refresh, &host).map_err(|e| e.to_string())?;
        let upstream = Upstream::new(target, leads, true, Arc::clone(outside));
        let (head, body) = upstream.send(request).await.map_err(|e| e.to_string())?.into_parts();
        let body = Limited::new(body, ANSWER).collect().await.map_err(|e| e.to_string())?;
        read(&Response::from_parts(head, Zeroizing::new(body.to_bytes().to_vec())))
    }

    fn request(&self, refresh: &Secret, host: &str) -> Result<Request<body::AnyBody>, Broken> {
        let coded = |text: &str| Zeroizing::new(utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
        let client = coded(&self.client);
        let mut words = format!("grant_type=refresh_token&refresh_token={}", *coded(refresh.reveal()));
        let mut request = Request::post(&self.at.path).header(HOST, host).header(ACCEPT, "application/json");
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match &self.password {
            Some(password) => {
                let pair = Zeroizing::new(format!("{}:{}", *client, *coded(password.reveal())));
                let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(pair.as_bytes())))?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            None => words.push_str(&format!("&client_id={}", *client)),
        }
        Ok(request.body(body::words(words))?)
    }
}

fn read(response: &Response<Zeroizing<Vec<u8>>>) -> Result<Given, String> {
    if response.status() != StatusCode::OK {
        #[derive(Deserialize)]
        struct Refused {
            error: String,
        }
        // A word of the standard's, and nothing else of what the server says.
        let word = serde_json::from_slice::<Refused>(response.body()).map(|r| r.error).unwrap_or_default();
        let plain = (1..=40).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let hint = if word == "invalid_grant" { "; the refresh token is not good any more: log in again" } else { "" };
        let word = if plain { format!(" ({word})") } else { String::new() };
        return Err(format!("it answers {}{word}{hint}", response.status().as_u16()));
    }
    let given: Given = serde_json::from_slice(response.body()).map_err(|_| "its answer can't be read".to_owned())?;
    if !given.token_type.eq_ignore_ascii_case("bearer") {
        return Err("it gives a token that is no bearer token".into());
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tokens(client: &str, secret: &str) -> Result<Tokens, &'static str> {
        let text = format!(
            "version = 1\n[network]\ndefault = \"deny\"\n[[credential]]\nhost = \"api.test\"\nmethods = [\"GET\"]\npaths = [\"/**\"]\n\
             oauth = {{ token = \"https://login.test/token\"{client} }}\nfrom = {{ env = \"KEY\" }}\n"
        );
        let policy = policy::parse("test", &text).unwrap();
        let policy::Attach::OAuth(at) = &policy.credentials[0].attach else { panic!("it is one of these") };
        Tokens::new(at, Secret::new(secret.to_owned()).unwrap())
    }

    async fn sent(client: &str, secret: &str) -> (Option<String>, String) {
        let it = tokens(client, secret).unwrap();
        let refresh = Arc::clone(&it.state.lock().await.refresh);
        let (head, body) = it.request(&refresh, "login.test").unwrap().into_parts();
        let words = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        (head.headers.get(AUTHORIZATION).map(|v| v.to_str().unwrap().to_owned()), words)
    }

    #[tokio::test]
    async fn a_refresh_token_is_sent_as_the_standard_says() {
        let (by, words) = sent(", client = \"me\"", "r/1").await;
        assert_eq!((by, words.as_str()), (None, "grant_type=refresh_token&refresh_token=r%2F1&client_id=me"));
        let (by, words) =
            sent("", "{\"refresh_token\":\"r\",\"client_id\":\"a b\",\"client_secret\":\"c:d\",\"type\":\"x\"}").await;
        assert_eq!(by, Some(format!("Basic {}", BASE64.encode("a%20b:c%3Ad"))));
        assert_eq!(words, "grant_type=refresh_token&refresh_token=r");
        assert!(tokens("", "r").err().unwrap().contains("which client"));
        assert!(tokens("", "{\"client_id\":\"x\"}").is_err());
    }

    #[test]
    fn p5_the_persons_own_token_is_looked_for_however_many_came_after_it() {
        let it = tokens(", client = \"me\"", "r-OWN").unwrap();
        let token = |n: usize, kind: char| Arc::new(Secret::new(format!("{kind}-{n}")).unwrap());
        it.learn(&token(0, 'a'), Some(&token(0, 'r')));
        for n in 1..2 * KNOWN {
            it.learn(&token(n, 'a'), None);
        }
        let known: Vec<String> = it.secrets().iter().map(|s| s.reveal().to_owned()).collect();
        assert_eq!(known.len(), KNOWN + 2);
        for kept in ["r-OWN", "r-0", "a-127"] {
            assert!(known.iter().any(|k| k == kept), "{kept}: {known:?}");
        }
    }

    #[test]
    fn p5_what_an_endpoint_says_is_told_by_a_word_of_the_standard_alone() {
        let said = |status: u16, body: &str| {
            read(&Response::builder().status(status).body(Zeroizing::new(body.as_bytes().to_vec())).unwrap()).err()
        };
        let why = said(400, "{\"error\":\"invalid_grant\",\"error_description\":\"r-SECRET\"}").unwrap();
        assert!(why.contains("invalid_grant") && why.contains("log in again") && !why.contains("SECRET"), "{why}");
        for odd in ["{\"error\":\"r-SECRET\"}", "r-SECRET", "{\"error\":7}"] {
            assert_eq!(said(500, odd).as_deref(), Some("it answers 500"));
        }
        assert!(said(200, "{\"access_token\":\"a\",\"token_type\":\"mac\"}").unwrap().contains("bearer"));
        assert!(said(200, "{}").is_some());
        assert!(said(200, "{\"access_token\":\"a\",\"token_type\":\"bearer\",\"expires_in\":60}").is_none());
    }
}
