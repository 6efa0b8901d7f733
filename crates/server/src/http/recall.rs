//! Search.

use axum::extract::State;
use axum::response::Response;
use merkwelt_app::view::RecallView;
use merkwelt_app::{RecallRequest, RunContext};
use merkwelt_domain::memory::Kind;
use merkwelt_store::query::{KindSet, TopK, Turns};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Face;
use super::answer;
use super::body::Json;
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::words::{self, IntervalBody, at_most, field, optional};

/// The most metadata keys of a filter.
const METADATA_MAX: usize = 32;

/// Which turns of conversations take part.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum HistoryBody {
    /// None.
    #[default]
    None,
    /// Those of all kept conversations of the subject.
    All,
    /// Those of this conversation.
    Conversation(String),
}

/// A search. Every filter narrows what the scope may see.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecallBody {
    /// The question, at most 32 KiB.
    #[schema(example = "Which language does she prefer?")]
    pub question: String,
    /// How many hits: 1 to 200, 10 if absent.
    #[schema(minimum = 1, maximum = 200, default = 10)]
    pub k: Option<u16>,
    /// Which kinds; all but `feedback` if absent. `feedback` is never ranked, only delivered by
    /// `/v1/context`.
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 3)]
    pub kinds: Option<Vec<String>>,
    /// Which turns of conversations; none if absent.
    pub history: Option<HistoryBody>,
    /// Whether passages of current sources take part; yes if absent.
    #[schema(default = true)]
    pub documents: Option<bool>,
    /// Only memories that came from this conversation. It leaves no passage.
    pub conversation: Option<String>,
    /// Metadata that must be equal, all of them.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Only what holds at some time in this span.
    pub interval: Option<IntervalBody>,
}

impl RecallBody {
    fn parse(self, run: RunContext) -> Result<RecallRequest, FieldError> {
        let k = self.k.map(TopK::new).transpose().map_err(|reason| FieldError::new("k", reason))?;
        let metadata = self.metadata.unwrap_or_default();
        if metadata.len() > METADATA_MAX {
            return Err(FieldError::new("metadata", format!("must have at most {METADATA_MAX} keys")));
        }
        Ok(RecallRequest {
            question: words::question(&self.question)?,
            k: k.unwrap_or_default(),
            kinds: kinds(self.kinds.as_deref())?,
            turns: turns(self.history)?,
            documents: self.documents.unwrap_or(true),
            conversation: optional("conversation", self.conversation.as_deref())?,
            metadata: metadata.into_iter().collect(),
            interval: self.interval.as_ref().map(IntervalBody::parse).transpose()?,
            run,
        })
    }
}

/// The kinds that are ranked; the schema says the same.
const KINDS_MAX: usize = 3;

fn kinds(names: Option<&[String]>) -> Result<KindSet, FieldError> {
    let Some(names) = names else { return Ok(KindSet::all().rankable()) };
    at_most("kinds", names, KINDS_MAX)?;
    let mut kinds = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let at = format!("kinds[{i}]");
        match field(&at, name)? {
            Kind::Feedback => {
                return Err(FieldError::new(at, "feedback is delivered by /v1/context and never ranked"));
            }
            kind @ (Kind::UserFact | Kind::ProjectState | Kind::Reference) => kinds.push(kind),
        }
    }
    if kinds.is_empty() { Err(FieldError::new("kinds", "must not be empty")) } else { Ok(KindSet::of(kinds)) }
}

fn turns(history: Option<HistoryBody>) -> Result<Turns, FieldError> {
    match history.unwrap_or_default() {
        HistoryBody::None => Ok(Turns::None),
        HistoryBody::All => Ok(Turns::All),
        HistoryBody::Conversation(id) => Ok(Turns::Of(field("history.conversation", &id)?)),
    }
}

/// Search
///
/// Returns what the scope may see, filtered first and ranked then.
#[utoipa::path(
    post, path = "/v1/recall", operation_id = "recall", tag = "recall", request_body = RecallBody,
    responses((status = 200, description = "The hits, best first.", body = RecallView))
)]
pub(super) async fn recall(
    State(face): State<Face>,
    asker: Asker,
    body: Json<RecallBody>,
) -> Result<Response, Problem> {
    let search = body.value.parse(asker.run)?;
    Ok(answer::released(face.app.recall(&asker.request, &search).await?))
}
