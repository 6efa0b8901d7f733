//! What needs no key: whether the service lives and can work, its metrics, and the document of its API.
//! None of it tells more of a tenant than that it cannot be served.

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Face;
use super::problem::{Code, Problem};
use crate::embedding::Told;

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
    /// `ready`, or `degraded` if some tenants cannot be served; the others are.
    pub status: &'static str,
    /// Tenants that cannot be served, by their pseudonyms: their stored data are damaged, or the service may not
    /// use their files. `merkwelt doctor` says what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub damaged_tenants: Vec<String>,
    /// `lexical` until an embedding model is installed, then `hybrid`.
    pub retrieval: &'static str,
    /// How far a change of the embedding model is, while one is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub embedding_change: Option<ChangeView>,
    /// Version of the service.
    pub version: &'static str,
}

/// A change of the embedding model. Searches go on meanwhile.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ChangeView {
    /// `gathering` vectors of the coming model, `waiting` for its engine (the log says why), `switching` tenants, or
    /// `complete`: then make `[next_embedding]` the new `[embedding]` of the configuration.
    pub state: &'static str,
    /// The coming model.
    pub model: String,
    /// Vectors made since the start of the process.
    pub made: u64,
    /// Entries and passages that are known to be without one.
    pub left: u64,
    /// Those of them whose text the engine does not take.
    pub refused: u64,
}

impl ChangeView {
    fn of(told: Told) -> Self {
        let Told { model, stage, made, left, refused } = told;
        Self { state: stage.name(), model, made, left, refused }
    }
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
///
/// It writes and reads a trial file.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "health", security(()),
    responses((status = 200, description = "It can work.", body = ReadyView))
)]
pub(super) async fn readyz(State(face): State<Face>) -> Result<Answer<ReadyView>, Problem> {
    let ready = Arc::clone(&face.ready);
    let damaged = match tokio::task::spawn_blocking(move || ready()).await {
        Ok(answer) => answer.map_err(Problem::of)?,
        // A defect is answered like every other one.
        Err(_) => return Err(Problem::of(Code::INTERNAL)),
    };
    let status = if damaged.is_empty() { "ready" } else { "degraded" };
    let damaged_tenants = damaged.iter().map(ToString::to_string).collect();
    let embedding_change = face.progress.told().map(ChangeView::of);
    let retrieval = face.app.retrieval();
    Ok(Answer(ReadyView { status, damaged_tenants, retrieval, embedding_change, version: VERSION }))
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
    (
        [(header::CONTENT_TYPE, kind)],
        face.metrics.render() + &face.connectors.render() + &face.progress.render(),
    )
        .into_response()
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI 3.1.", body = Object))
)]
pub(super) async fn openapi(State(face): State<Face>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    let document = face.document.get_or_init(|| super::openapi_json().into());
    ([(header::CONTENT_TYPE, kind)], document.clone()).into_response()
}
