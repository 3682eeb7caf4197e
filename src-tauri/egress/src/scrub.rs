//! Takes a secret out of what a server sends back, should it ever repeat it: the same number of asterisks stands in its place.

use crate::body::{AnyBody, Broken};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_ENCODING, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Response};
use memchr::memmem::Finder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zeroize::Zeroizing;

/// What most programs leave as it is in an address.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// A piece of base64 that is shorter stands for too much.
const SHORTEST: usize = 8;

/// What to look for, the longest first.
#[derive(Default, Clone)]
pub(crate) struct Needles(Arc<Vec<Zeroizing<Vec<u8>>>>);

impl Needles {
    /// A secret in the forms that servers put it in by themselves: as it is, in JSON, in an address, and in base64 with whatever around it.
    pub(crate) fn add(&mut self, secret: &str) {
        self.add_one(secret.as_bytes().to_vec());
        if let Ok(json) = serde_json::to_string(secret).map(Zeroizing::new) {
            let inner = &json[1..json.len() - 1];
            self.add_one(inner.replace('/', "\\/").into_bytes());
            self.add_one(inner.to_owned().into_bytes());
        }
        for set in [NON_ALPHANUMERIC, UNRESERVED] {
            let small = |piece: &str| if piece.starts_with('%') { piece.to_ascii_lowercase() } else { piece.to_owned() };
            self.add_one(utf8_percent_encode(secret, set).to_string().into_bytes());
            self.add_one(utf8_percent_encode(secret, set).map(small).collect::<String>().into_bytes());
        }
        // As dumps write it, in one row or in pairs.
        for (small, between) in [(true, ""), (false, ""), (true, " "), (false, " ")] {
            let pair = |b: u8| if small { format!("{b:02x}") } else { format!("{b:02X}") };
            let pairs: Vec<String> = secret.bytes().map(pair).collect();
            self.add_one(pairs.join(between).into_bytes());
        }
        for before in 0..3 {
            let bytes = Zeroizing::new([vec![0; before], secret.as_bytes().to_vec()].concat());
            // Digits whose bits are all the secret's own.
            let own = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
            if own.len() < SHORTEST {
                continue;
            }
            for engine in [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD] {
                let all = Zeroizing::new(engine.encode(&bytes));
                self.add_one(all.as_bytes()[own.clone()].to_vec());
            }
        }
    }

    pub(crate) fn add_one(&mut self, needle: Vec<u8>) {
        let all = Arc::make_mut(&mut self.0);
        if !needle.is_empty() && !all.iter().any(|n| **n == needle) {
            all.push(Zeroizing::new(needle));
            all.sort_by_key(|n| std::cmp::Reverse(n.len()));
        }
    }

    pub(crate) fn sieve(&self) -> Sieve {
        Sieve { needles: self.clone(), held: BytesMut::new() }
    }

    fn clean(&self, headers: &mut HeaderMap) -> Result<(), String> {
        let small = |name: &HeaderName| {
            self.0.iter().any(|n| Finder::new(&n.to_ascii_lowercase()).find(name.as_str().as_bytes()).is_some())
        };
        let odd: Vec<HeaderName> = headers.keys().filter(|n| small(n)).cloned().collect();
        for name in odd {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            let mut text = value.as_bytes().to_vec();
            let found = self.0.iter().filter(|n| blank(&mut text, n)).count();
            if found > 0 {
                *value = HeaderValue::from_bytes(&text).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

/// A response without the secrets, neither in its head, nor in its body wherever its pieces are cut, nor behind that.
pub(crate) fn response(mut head: Parts, body: AnyBody, needles: &Needles) -> Result<Response<AnyBody>, String> {
    let read = head.headers.get_all(CONTENT_ENCODING).iter().all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !read {
        return Err("the server's answer is encoded, though it was asked not to be, so it can't be looked through".into());
    }
    self::head(&mut head, needles)?;
    let body = Scrubbed { body, sieve: needles.sieve(), ready: VecDeque::new(), over: false };
    Ok(Response::from_parts(head, body.boxed()))
}

/// The same of a head alone.
pub(crate) fn head(head: &mut Parts, needles: &Needles) -> Result<(), String> {
    // The server's own words behind the status, and its spelling of headers.
    head.extensions.clear();
    needles.clean(&mut head.headers)
}

/// Whether any was found.
fn blank(text: &mut [u8], secret: &[u8]) -> bool {
    let found: Vec<usize> = Finder::new(secret).find_iter(text).collect();
    for at in &found {
        text[*at..*at + secret.len()].fill(b'*');
    }
    !found.is_empty()
}

/// How many bytes at the end of a text may be the beginning of a secret.
fn begun(text: &[u8], secret: &[u8]) -> usize {
    let most = text.len().min(secret.len() - 1);
    (1..=most).rev().find(|n| text[text.len() - n..] == secret[..*n]).unwrap_or(0)
}

/// Takes secrets out of a stream.
pub(crate) struct Sieve {
    needles: Needles,
    /// The end of what came so far, where it may be the beginning of a secret.
    held: BytesMut,
}

impl Sieve {
    /// What may go on of what was held back and this.
    pub(crate) fn take(&mut self, data: &[u8]) -> BytesMut {
        self.held.extend_from_slice(data);
        for needle in self.needles.0.iter() {
            blank(&mut self.held, needle);
        }
        let keep = self.needles.0.iter().map(|n| begun(&self.held, n)).max().unwrap_or(0);
        self.held.split_to(self.held.len() - keep)
    }

    /// What is held back.
    pub(crate) fn rest(&mut self) -> BytesMut {
        self.held.split()
    }

    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

struct Scrubbed {
    body: AnyBody,
    sieve: Sieve,
    ready: VecDeque<Frame<Bytes>>,
    over: bool,
}

impl Scrubbed {
    fn take(&mut self, data: &[u8]) {
        let out = self.sieve.take(data);
        self.pass(out);
    }

    fn flush(&mut self) {
        let rest = self.sieve.rest();
        self.pass(rest);
    }

    fn pass(&mut self, out: BytesMut) {
        if !out.is_empty() {
            self.ready.push_back(Frame::data(out.freeze()));
        }
    }
}

impl Body for Scrubbed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => {
                    self.over = true;
                    self.flush();
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.take(&data),
                    Err(other) => {
                        self.flush();
                        if let Ok(mut trailers) = other.into_trailers() {
                            self.sieve.needles.clean(&mut trailers)?;
                            self.ready.push_back(Frame::trailers(trailers));
                        }
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && !self.sieve.holds() && (self.over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // As long as nothing is held back, the rest is as long as it was: nothing is put in or left out.
        if self.ready.is_empty() && !self.sieve.holds() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn sieve(secret: &str) -> Sieve {
        let mut needles = Needles::default();
        needles.add(secret);
        needles.sieve()
    }

    fn scrubbed(pieces: &[&[u8]], secret: &str) -> Vec<u8> {
        let mut it = sieve(secret);
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| it.take(piece)).collect();
        out.extend_from_slice(&it.rest());
        out
    }

    #[test]
    fn what_is_no_beginning_of_a_secret_is_not_held_back() {
        let mut it = sieve("sk-secret");
        assert_eq!(it.take(b"data: hello\n\n"), "data: hello\n\n", "an event of a stream goes on at once");
        assert_eq!(it.take(b"a sk-sec"), "a ");
        assert_eq!(it.rest(), "sk-sec");
    }

    #[tokio::test]
    async fn p5_a_head_and_what_follows_a_body_have_no_secret_either() {
        let named = |value: &'static str| {
            HeaderMap::from_iter([("x-told".parse::<HeaderName>().unwrap(), HeaderValue::from_static(value))])
        };
        let mut odd = named("key sk-SECRET!");
        odd.insert("x-sk-secret", HeaderValue::from_static("1"));
        let body =
            http_body_util::Full::new(Bytes::from_static(b"body")).with_trailers(std::future::ready(Some(Ok(odd.clone()))));
        let mut response = Response::new(body.map_err(|never| match never {}).boxed());
        *response.headers_mut() = odd;
        response.extensions_mut().insert(hyper::ext::ReasonPhrase::from_static(b"sk-SECRET"));
        let (head, body) = response.into_parts();
        let mut needles = Needles::default();
        needles.add("sk-SECRET");
        let clean = super::response(head, body, &needles).unwrap();
        assert_eq!(clean.headers(), &named("key *********!"));
        assert!(clean.extensions().get::<hyper::ext::ReasonPhrase>().is_none());
        assert_eq!(clean.into_body().collect().await.unwrap().trailers(), Some(&named("key *********!")));
    }

    proptest! {
        #[test]
        fn p5_a_secret_is_found_wherever_it_is_cut(before in "[a-k]{0,9}", after in "[a-k]{0,9}", cuts in proptest::collection::vec(0usize..40, 0..6)) {
            let secret = "abcabcabd";
            let text = format!("{before}{secret}{after}").into_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).chain([0, text.len()]).collect();
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let out = scrubbed(&pieces, secret);
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(Finder::new(secret.as_bytes()).find(&out).is_none(), "{:?}", String::from_utf8_lossy(&out));
        }
    }
}
