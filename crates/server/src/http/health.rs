//! What needs no key: whether the service lives and can work, its metrics, and the document of its API.
//! None of it tells anything about a tenant.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Face;
use super::problem::{Code, Problem};

/// Version of the service.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The process lives.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct HealthView {
    /// Always `ok`.
    pub status: &'static str,
}

/// The service can work.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ReadyView {
    /// Always `ready`.
    pub status: &'static str,
    /// `lexical` until an embedding model is installed, then `hybrid`.
    pub retrieval: &'static str,
    /// Version of the service.
    pub version: &'static str,
}

/// Whether the process lives
#[utoipa::path(
    get, path = "/healthz", operation_id = "healthz", tag = "health", security(()),
    responses((status = 200, description = "It lives.", body = HealthView))
)]
pub(super) async fn healthz() -> Answer<HealthView> {
    Answer(HealthView { status: "ok" })
}

/// Whether the service can work
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "health", security(()),
    responses((status = 200, description = "It can work.", body = ReadyView))
)]
pub(super) async fn readyz(State(face): State<Face>) -> Result<Answer<ReadyView>, Problem> {
    if !(face.ready)() {
        return Err(Problem::of(Code::UNAVAILABLE));
    }
    Ok(Answer(ReadyView { status: "ready", retrieval: face.app.retrieval(), version: VERSION }))
}

/// Metrics
///
/// Counts without a tenant, key or person in them. They need no key, so they belong on an internal network.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "health", security(()),
    responses((
        status = 200, description = "In the Prometheus text format.", body = String,
        content_type = "text/plain"
    ))
)]
pub(super) async fn metrics(State(face): State<Face>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], face.metrics.render()).into_response()
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI 3.1.", body = Object))
)]
pub(super) async fn openapi(State(face): State<Face>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], face.document.clone()).into_response()
}
