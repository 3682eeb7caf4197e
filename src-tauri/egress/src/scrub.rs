//! Takes a secret out of what a server sends back, should it ever repeat it: the same number of asterisks stands in its place.

use crate::body::{AnyBody, Broken};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_ENCODING, HeaderValue};
use hyper::http::response::Parts;
use memchr::memmem::Finder;
use secrets::Secret;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use zeroize::Zeroizing;

/// A response without the secrets, neither in its head nor in its body, wherever its pieces are cut.
pub(crate) fn response(mut head: Parts, body: AnyBody, secrets: &[&Secret]) -> Result<Response<AnyBody>, String> {
    let read = head.headers.get_all(CONTENT_ENCODING).iter().all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !read {
        return Err("the server's answer is encoded, though it was asked not to be, so it can't be looked through".into());
    }
    for value in head.headers.values_mut() {
        for secret in secrets {
            if let Some(clean) = without(value.as_bytes(), secret.reveal().as_bytes()) {
                *value = HeaderValue::from_bytes(&clean).map_err(|e| e.to_string())?;
            }
        }
    }
    let needles = secrets.iter().map(|s| Zeroizing::new(s.reveal().as_bytes().to_vec())).collect();
    let body = Scrubbed { body, needles, held: BytesMut::new(), ready: VecDeque::new(), over: false };
    Ok(Response::from_parts(head, body.boxed()))
}

fn without(text: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let mut out = text.to_vec();
    blank(&mut out, secret).then_some(out)
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

struct Scrubbed {
    body: AnyBody,
    needles: Vec<Zeroizing<Vec<u8>>>,
    /// The end of what came so far, where it may be the beginning of a secret.
    held: BytesMut,
    ready: VecDeque<Frame<Bytes>>,
    over: bool,
}

impl Scrubbed {
    fn take(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
        for needle in &self.needles {
            blank(&mut self.held, needle);
        }
        let keep = self.needles.iter().map(|n| begun(&self.held, n)).max().unwrap_or(0);
        let out = self.held.split_to(self.held.len() - keep);
        if !out.is_empty() {
            self.ready.push_back(Frame::data(out.freeze()));
        }
    }

    fn flush(&mut self) {
        let rest = self.held.split();
        if !rest.is_empty() {
            self.ready.push_back(Frame::data(rest.freeze()));
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
                        self.ready.push_back(other);
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty() && (self.over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // As long as nothing is held back, the rest is as long as it was: nothing is put in or left out.
        if self.ready.is_empty() && self.held.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn scrubbed(pieces: &[&[u8]], secret: &str) -> Vec<u8> {
        let needles = vec![Zeroizing::new(secret.as_bytes().to_vec())];
        let body = crate::body::words(String::new());
        let mut it = Scrubbed { body, needles, held: BytesMut::new(), ready: VecDeque::new(), over: false };
        for piece in pieces {
            it.take(piece);
        }
        it.flush();
        it.ready.into_iter().flat_map(|f| f.into_data().unwrap().to_vec()).collect()
    }

    #[test]
    fn what_is_no_beginning_of_a_secret_is_not_held_back() {
        let needles = vec![Zeroizing::new(b"sk-secret".to_vec())];
        let body = crate::body::words(String::new());
        let mut it = Scrubbed { body, needles, held: BytesMut::new(), ready: VecDeque::new(), over: false };
        it.take(b"data: hello\n\n");
        assert!(it.held.is_empty(), "an event of a stream goes on at once");
        it.take(b"a sk-sec");
        assert_eq!(&it.held[..], b"sk-sec");
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
