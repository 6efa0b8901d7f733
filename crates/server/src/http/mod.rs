//! The HTTP face: parse, obtain a caller, call one use case, map the result. It cannot mint a capability,
//! it does not see a store, and the only content it can send are the bytes of a released answer (I-4).

mod answer;
mod answers;
mod body;
mod caller;
mod context;
mod conversations;
mod document;
mod groups;
mod handover;
mod health;
mod keys;
mod ledger;
mod limits;
mod listen;
mod memories;
mod metrics;
mod observe;
mod precise;
pub mod problem;
mod recall;
pub mod routes;
mod shares;
mod source_views;
mod sources;
pub mod strict;
mod tenants;
mod unread;
mod words;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::middleware::from_fn_with_state;
use merkwelt_app::App;
use merkwelt_domain::{Env, TenantId};
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::connector::Signals;
use crate::embedding::Progress;
pub use limits::Limits;
pub use listen::serve;
pub(crate) use memories::check as check_memory;
use problem::{Code, Problem};

/// Whether the service can work now, and which tenants it cannot serve, or the problem that stands in the
/// way. It is asked at every `/readyz`, on a thread that may block.
pub type Ready = Arc<dyn Fn() -> Result<Vec<TenantId>, Code> + Send + Sync>;

/// Everything the face works with. Clones share the application, the counts and the permits.
#[derive(Clone)]
pub struct Face {
    app: Arc<App>,
    env: Arc<dyn Env>,
    limits: Limits,
    ready: Ready,
    connectors: Signals,
    progress: Progress,
    permits: Arc<Semaphore>,
    shares: shares::Shares,
    metrics: Arc<metrics::Registry>,
    /// Made when somebody asks for it.
    document: Arc<OnceLock<Bytes>>,
}

impl Face {
    /// A face of `app`, always ready. `env` gives the ids of requests and the time that bodies are checked
    /// against.
    #[must_use]
    pub fn new(app: Arc<App>, env: Arc<dyn Env>, limits: Limits) -> Self {
        Self {
            app,
            env,
            limits,
            ready: Arc::new(|| Ok(Vec::new())),
            connectors: Signals::default(),
            progress: Progress::default(),
            permits: Arc::new(Semaphore::new(limits.concurrent_requests)),
            shares: shares::Shares::default(),
            metrics: Arc::default(),
            document: Arc::default(),
        }
    }

    /// The same face, asking `ready` whether the service can work.
    #[must_use]
    pub fn with_ready(self, ready: Ready) -> Self {
        Self { ready, ..self }
    }

    /// The same face, with what connectors say of themselves among the metrics.
    #[must_use]
    pub fn with_connectors(self, connectors: Signals) -> Self {
        Self { connectors, ..self }
    }

    /// The same face, telling how far a change of the embedding model is.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> Self {
        Self { progress, ..self }
    }
}

impl std::fmt::Debug for Face {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Face").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The router over all routes, with limits, problems and signals.
pub fn router(face: Face) -> Router {
    let held = api().layer(from_fn_with_state(face.clone(), limits::hold));
    let (router, _) = held.merge(open()).split_for_parts();
    router
        .fallback(|| async { Problem::not_found() })
        .method_not_allowed_fallback(|| async { Problem::of(Code::METHOD_NOT_ALLOWED) })
        .layer(from_fn_with_state(face.clone(), observe::observe))
        .with_state(face)
}

/// The document of the API.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let (_, paths) = api().merge(open()).split_for_parts();
    document::complete(paths)
}

/// The document of the API as the repository keeps it and `/openapi.json` serves it: indented JSON with a
/// newline at the end.
#[must_use]
pub fn openapi_json() -> String {
    // A document made of strings and numbers cannot fail to serialise.
    openapi().to_pretty_json().unwrap_or_default() + "\n"
}

/// Routes that need a key.
fn api() -> OpenApiRouter<Face> {
    OpenApiRouter::with_openapi(document::base())
        .routes(routes!(memories::remember, memories::list))
        .routes(routes!(memories::remember_many))
        .routes(routes!(memories::read, memories::correct, memories::retract))
        .routes(routes!(recall::recall))
        .routes(routes!(context::assemble))
        .routes(routes!(context::read))
        .routes(routes!(conversations::open, conversations::list))
        .routes(routes!(conversations::read, conversations::delete))
        .routes(routes!(conversations::append))
        .routes(routes!(handover::summarise))
        .routes(routes!(handover::hand_over))
        .routes(routes!(handover::read, handover::set))
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::delete))
        .routes(routes!(groups::members, groups::change_members))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(sources::register, sources::list))
        .routes(routes!(sources::read, sources::delete))
        .routes(routes!(sources::put_revision))
        .routes(routes!(sources::manifest, sources::discard))
        .routes(routes!(sources::publish))
        .routes(routes!(sources::restore))
        .routes(routes!(sources::admit))
        .routes(routes!(sources::withdraw))
        .routes(routes!(sources::cite))
        .routes(routes!(answers::store))
        .routes(routes!(answers::look_up))
        .routes(routes!(answers::check))
        .routes(routes!(ledger::checkpoint))
        .routes(routes!(ledger::export))
        .routes(routes!(ledger::proof))
}

/// Routes that need no key.
fn open() -> OpenApiRouter<Face> {
    OpenApiRouter::default()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::openapi))
}
