//! What requests and responses carry: counted against the run's budget as it passes, kept nowhere.

use crate::budget::{Budget, Way};
use crate::forward::Open;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::request::Parts;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

/// Why a body breaks off.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(crate) type AnyBody = BoxBody<Bytes, Broken>;

/// Words of Airlock's own.
pub(crate) fn words(text: String) -> AnyBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed()
}

/// About as many bytes as headers or trailers take.
pub(crate) fn of_headers(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 4) as u64).sum()
}

/// The same for a whole head.
pub(crate) fn of_request(head: &Parts) -> u64 {
    let line = head.method.as_str().len() + head.uri.path_and_query().map_or(0, |p| p.as_str().len());
    line as u64 + of_headers(&head.headers)
}

/// A body on its way: it is counted, breaks off when what permits it ends, and holds its place until it is through.
pub(crate) struct Passing {
    pub(crate) body: Incoming,
    /// A request's goes on without the trailers that may follow it: they could bring a key, or what else nobody judged.
    pub(crate) way: Way,
    pub(crate) open: Arc<Open>,
    pub(crate) shares: Vec<Arc<Budget>>,
    pub(crate) ended: Ended,
    pub(crate) _place: Arc<OwnedSemaphorePermit>,
}

/// The end of what permits something.
pub(crate) type Ended = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Body for Passing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // A future that is over must not be polled again.
            self.ended = Box::pin(std::future::ready(()));
            return Poll::Ready(Some(Err("what permitted it has ended".into())));
        }
        let Some(frame) = std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = match frame {
            Ok(frame) if frame.is_trailers() && self.way == Way::Out => return Poll::Ready(None),
            Ok(frame) => frame,
            Err(e) => return Poll::Ready(Some(Err(e.into()))),
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64) + frame.trailers_ref().map_or(0, of_headers);
        if let Err(spent) = self.open.take(self.way, bytes, &self.shares) {
            return Poll::Ready(Some(Err(spent.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
