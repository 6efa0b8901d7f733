//! Whether the body of a request was read to its end. If not, the connection cannot be used again, and the answer
//! says so: a caller that keeps connections would otherwise find its next request cut off.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Shared by a request's body and its answer.
pub(super) struct Unread(Arc<AtomicBool>);

struct Watched {
    inner: Body,
    unread: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream() {
            self.unread.store(false, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Unread {
    /// Watches the body of a request.
    pub(super) fn watch(request: Request) -> (Request, Self) {
        let unread = Arc::new(AtomicBool::new(!request.body().is_end_stream()));
        let watched = Arc::clone(&unread);
        (request.map(|inner| Body::new(Watched { inner, unread: watched })), Self(unread))
    }

    /// Says in the answer that the connection ends, if bytes of the body may still be on the way.
    pub(super) fn close(&self, response: &mut Response) {
        if self.0.load(Ordering::Relaxed) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}
