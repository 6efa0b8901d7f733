//! The use cases. Each authorises, does one thing through the ports, records it, and hands out a
//! [`Released`] answer or a receipt; the faces only parse, call one of these, and map the result. There
//! is no other way from a store to the outside (I-4).

mod access;
mod admin;
mod answer_cache;
mod answers;
mod authorization;
mod citation;
mod context;
mod conversation;
pub mod embedding;
mod error;
mod evidence;
mod footing;
mod handover;
mod memory;
mod pack;
mod recall;
mod record;
mod register;
mod release;
mod remember;
mod reranking;
mod session;
mod settings;
mod sources;
mod summary;
pub mod view;

use std::sync::Arc;

use merkwelt_domain::Env;
use merkwelt_inference::TokenCounter;
use merkwelt_store::Backend;

pub use admin::{GroupRequest, KeyRequest, TenantRequest};
pub use answers::{AnswerAudience, AnswerRequest, LookUpRequest, LookedUp, Maker, Miss};
pub use authorization::Resource;
pub use context::ContextRequest;
pub use conversation::{Appended, PageRequest, TurnRequest};
pub use embedding::{EmbeddingModel, NextModel, Offload};
pub use error::{Conflict, Error};
pub use evidence::LedgerHead;
pub use handover::{CarriedOver, OpenRequest};
pub use memory::ListRequest;
pub use pack::view::{LeftOutView, PackItemView, PackView, RoutingView, SystemView, TokensView};
pub use recall::RecallRequest;
pub use record::RunContext;
pub use release::Released;
pub use remember::{CorrectRequest, IdempotentRequest, StatementRequest};
pub use reranking::RerankingModel;
pub use settings::{AnswerLimits, Boundary, DocumentMemory, SessionLimits, Settings};
pub use sources::{PassageRequest, RemovalReceipt, RevisionReceipt, RevisionRequest, SourceRequest};
pub use summary::SummaryRequest;

/// The application: the ports it was wired with and its settings. Cheap to share behind an `Arc`.
pub struct App {
    backend: Arc<dyn Backend>,
    env: Arc<dyn Env>,
    model: Option<EmbeddingModel>,
    next: Option<NextModel>,
    reranking: Option<RerankingModel>,
    counter: &'static dyn TokenCounter,
    settings: Settings,
    sessions: session::Sessions,
    prefixes: pack::Prefixes,
    answers: answer_cache::Answers,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl App {
    /// Wires the application. Without a model retrieval is lexical.
    #[must_use]
    pub fn new(
        backend: Arc<dyn Backend>,
        env: Arc<dyn Env>,
        model: Option<EmbeddingModel>,
        counter: &'static dyn TokenCounter,
        settings: Settings,
    ) -> Self {
        let sessions = session::Sessions::new(settings.session);
        let answers = answer_cache::Answers::new(settings.answers, &*env);
        let prefixes = pack::Prefixes::default();
        Self {
            backend,
            env,
            model,
            next: None,
            reranking: None,
            counter,
            settings,
            sessions,
            prefixes,
            answers,
        }
    }

    /// Proves the holder of a presented key.
    ///
    /// # Errors
    /// [`merkwelt_authz::Unauthenticated`] for every reason alike.
    pub async fn authenticate(
        &self,
        presented: &merkwelt_authz::ApiKey,
    ) -> Result<merkwelt_authz::Caller, merkwelt_authz::Unauthenticated> {
        merkwelt_authz::authenticate(&*self.backend, presented, self.env.now()).await
    }

    /// How searches are ranked now: `lexical` while there is no embedding model, or its engine is away.
    #[must_use]
    pub fn retrieval(&self) -> &'static str {
        if self.has_engine() { "hybrid" } else { "lexical" }
    }

    /// The settings it runs with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
