//! What one caller may cost: sizes, times and how many requests are at work at once. Everything beyond is
//! refused early and cheaply.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Face;
use super::problem::{Code, Problem};
use super::shares::Work;

/// Limits of the HTTP face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest body in bytes.
    pub body_bytes_max: usize,
    /// The largest body of a batch in bytes.
    pub batch_bytes_max: usize,
    /// The largest document in bytes.
    pub document_bytes_max: usize,
    /// The most bytes of all headers and the address together.
    pub header_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a request may take, its body included.
    pub request_timeout: Duration,
    /// How long the taking in of a document may take: it is read, divided and embedded within.
    pub document_timeout: Duration,
    /// How many requests are at work at once. One whose body is still on the way is not.
    pub concurrent_requests: usize,
    /// How many requests of one key are under way at once, those with a body on the way included.
    pub key_requests: usize,
    /// How many requests of one tenant are under way at once.
    pub tenant_requests: usize,
    /// How many bytes of bodies are in memory at once; one tenant may have half of them.
    pub bodies_bytes_max: usize,
    /// How many connections are open at once.
    pub connections: usize,
    /// How long a connection may take to send the head of its next request.
    pub header_timeout: Duration,
}

impl Default for Limits {
    /// 1 MiB, 8 MiB for a batch, 32 MiB for a document, 16 KiB of headers, 10 and 30 seconds, 15 minutes for a
    /// document, 256 requests, of them 128 of one key and 192 of one tenant, 512 MiB of bodies, 1,024
    /// connections with 30 seconds for each head.
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            batch_bytes_max: 8 * 1024 * 1024,
            document_bytes_max: 32 * 1024 * 1024,
            header_bytes_max: 16 * 1024,
            body_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            document_timeout: Duration::from_secs(900),
            concurrent_requests: 256,
            key_requests: 128,
            tenant_requests: 192,
            bodies_bytes_max: 512 * 1024 * 1024,
            connections: 1024,
            header_timeout: Duration::from_secs(30),
        }
    }
}

/// Holds a request to the limits on headers, number and time.
pub(super) async fn hold(State(face): State<Face>, mut request: Request, next: Next) -> Response {
    if header_bytes(&request) > face.limits.header_bytes_max {
        return Problem::of(Code::HEADERS_TOO_LARGE).into_response();
    }
    let work = match Work::begin(&face.permits) {
        Ok(work) => work,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(work);
    // A hundred pages take a model longer than any other request may.
    let document = request.method() == Method::PUT && request.uri().path().ends_with("/revisions");
    let Limits { request_timeout, document_timeout, .. } = face.limits;
    let timeout = if document { document_timeout } else { request_timeout };
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::of(Code::TIMEOUT).into_response(),
    }
}

fn header_bytes(request: &Request) -> usize {
    let of_headers: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let uri = request.uri();
    of_headers + uri.path().len() + uri.query().map_or(0, str::len)
}
