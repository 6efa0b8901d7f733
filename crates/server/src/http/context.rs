//! The main job: one call per turn returns a context pack, and a delivered pack can be had again.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use merkwelt_app::{App, ContextRequest, Error, PackView, Released, RunContext};
use merkwelt_domain::PackId;
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::routing::StateChoice;
use merkwelt_store::query::PageSize;
use serde::Deserialize;
use tokio::runtime::Handle;
use utoipa::ToSchema;

use super::Face;
use super::answer;
use super::body::{Id, Json};
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::words::{self, IntervalBody, optional};

const BUDGET_DEFAULT: u32 = 2_000;
const LAST_TURNS_DEFAULT: u16 = 6;

/// A call for the context of one turn.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContextBody {
    /// The present question, at most 32 KiB.
    #[schema(example = "When does my order arrive?")]
    pub question: String,
    /// The conversation it belongs to.
    pub conversation: Option<String>,
    /// The most tokens: 200 to 128,000, 2,000 if absent.
    #[schema(minimum = 200, maximum = 128_000, default = 2_000)]
    pub budget: Option<u32>,
    /// The most of the last turns: 0 to 500, 6 if absent.
    #[schema(minimum = 0, maximum = 500, default = 6)]
    pub last_turns: Option<u16>,
    /// Whether `project_state` is looked up.
    #[schema(schema_with = words::project_state, required = false)]
    pub project_state: Option<String>,
    /// Only states that hold at some time in this span.
    pub interval: Option<IntervalBody>,
}

impl ContextBody {
    fn parse(&self, run: RunContext) -> Result<ContextRequest, FieldError> {
        let budget = TokenBudget::new(self.budget.unwrap_or(BUDGET_DEFAULT));
        let n_turns_max = self.last_turns.unwrap_or(LAST_TURNS_DEFAULT);
        if n_turns_max > PageSize::MAX {
            return Err(FieldError::new("last_turns", format!("must be at most {}", PageSize::MAX)));
        }
        Ok(ContextRequest {
            question: words::question(&self.question)?,
            conversation: optional("conversation", self.conversation.as_deref())?,
            budget: budget.map_err(|reason| FieldError::new("budget", reason))?,
            n_turns_max,
            state: state(self.project_state.as_deref())?,
            interval: self.interval.as_ref().map(IntervalBody::parse).transpose()?,
            run,
        })
    }
}

fn state(word: Option<&str>) -> Result<StateChoice, FieldError> {
    match word {
        None | Some("auto") => Ok(StateChoice::Auto),
        Some("include") => Ok(StateChoice::Include),
        Some("exclude") => Ok(StateChoice::Exclude),
        Some(_) => Err(FieldError::new("project_state", "must be one of auto, include, exclude")),
    }
}

/// Assemble the context of one turn
///
/// All rules, the facts, and what the question needs, within the budget. `system` is the stable prefix for
/// the system prompt; `turn` is placed next to the question.
#[utoipa::path(
    post, path = "/v1/context", operation_id = "assemble_context", tag = "context",
    request_body = ContextBody,
    responses((status = 200, description = "The pack.", body = PackView))
)]
pub(super) async fn assemble(
    State(face): State<Face>,
    asker: Asker,
    body: Json<ContextBody>,
) -> Result<Response, Problem> {
    let wanted = body.value.parse(asker.run.clone())?;
    let released = if wanted.budget.tokens() > LARGE_TOKENS {
        assemble_apart(face.app, asker, wanted).await
    } else {
        face.app.context(&asker.request, &wanted).await
    };
    Ok(answer::released(released?))
}

/// From here on the words of a pack take so long to count that others would wait for the thread.
const LARGE_TOKENS: u32 = 8_000;

/// Assembles on a thread of its own, which the system shares out; those that answer everybody stay free. The asker goes
/// with it: no capability outlives its request, and what the pack takes of a share is taken until it is made.
async fn assemble_apart(app: Arc<App>, asker: Asker, wanted: ContextRequest) -> Result<Released, Error> {
    let runtime = Handle::current();
    let make = move || runtime.block_on(app.context(&asker.request, &wanted));
    tokio::task::spawn_blocking(make).await.unwrap_or(Err(Error::Unavailable))
}

/// Have a delivered pack again
///
/// Byte for byte, while its content is kept.
#[utoipa::path(
    get, path = "/v1/packs/{id}", operation_id = "read_pack", tag = "context",
    params(("id" = String, Path, description = "The pack.")),
    responses((status = 200, description = "The pack as it was delivered.", body = PackView))
)]
pub(super) async fn read(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<PackId>,
) -> Result<Response, Problem> {
    Ok(answer::released(face.app.read_pack(&asker.request, &id, &asker.run).await?))
}
