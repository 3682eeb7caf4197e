//! What requests and responses carry: counted against the run's budget as it passes, kept nowhere.

use crate::budget::Way;
use crate::forward::Open;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Why a body breaks off.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(crate) type AnyBody = BoxBody<Bytes, Broken>;

/// Words of Airlock's own.
pub(crate) fn words(text: String) -> AnyBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed()
}

/// A body that passes, and is counted.
pub(crate) fn counted(body: Incoming, way: Way, open: Arc<Open>) -> AnyBody {
    Counted { body, way, open }.boxed()
}

struct Counted {
    body: Incoming,
    way: Way,
    open: Arc<Open>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(frame) = std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = match frame {
            Ok(frame) => frame,
            Err(e) => return Poll::Ready(Some(Err(e.into()))),
        };
        if let Some(data) = frame.data_ref()
            && let Err(spent) = self.open.take(self.way, data.len() as u64)
        {
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
