//! The answer cache and the check at execution time.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use merkwelt_app::{AnswerAudience, AnswerRequest, LookUpRequest, LookedUp, Maker, Resource, RunContext};
use merkwelt_domain::basis::Basis;
use merkwelt_domain::memory::Revision;
use merkwelt_domain::{Content, ConversationId, SourceId};
use merkwelt_ledger::token::Token;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Face;
use super::answer;
use super::body::{Json, not_repeatable};
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::words::{self, at_most, field};

/// The most sources of one answer.
const SOURCES_MAX: usize = 64;

/// A source that an answer rests on.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BasisBody {
    /// The source, as the citation named it.
    pub source_id: String,
    /// The revision that was delivered.
    #[schema(minimum = 1)]
    pub revision: u32,
}

/// The revisions that were named in a list.
pub(super) fn bases(name: &str, list: &[BasisBody]) -> Result<Vec<Basis>, FieldError> {
    let basis = |(i, basis): (usize, &BasisBody)| {
        let source: SourceId = field(&format!("{name}[{i}].source_id"), &basis.source_id)?;
        if basis.revision == 0 {
            return Err(FieldError::new(format!("{name}[{i}].revision"), "revisions are counted from one"));
        }
        Ok(Basis { source, revision: Revision::from_number(basis.revision) })
    };
    list.iter().enumerate().map(basis).collect()
}

/// An answer to keep.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerBody {
    /// The question, at most 32 KiB.
    pub question: String,
    /// The answer, at most 256 KiB.
    pub answer: String,
    /// Every source it rests on: at least one, at most 64.
    #[schema(min_items = 1, max_items = 64)]
    pub sources: Vec<BasisBody>,
    /// `subject` (the default): only the subject is given it again. `shared`: everybody in the tenant for whom
    /// every source passes; only an application may say so.
    pub audience: Option<String>,
    /// The conversation it was given in. Then it is given again in that conversation only, and goes with it.
    pub conversation: Option<String>,
    /// What made it: 1 to 128 letters, digits and `_-.:/`.
    #[schema(example = "mistral-small-3")]
    pub model: String,
    /// The version of the prompt.
    #[schema(example = "support-7")]
    pub prompt: String,
}

/// A look for a kept answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LookUpBody {
    /// The question, at most 32 KiB.
    pub question: String,
    /// What would make the answer.
    pub model: String,
    /// The version of the prompt.
    pub prompt: String,
    /// The conversation it is asked in. Answers of this conversation are looked for first.
    pub conversation: Option<String>,
}

/// An answer that is kept.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct KeptAnswerView {
    /// The generation of sources and rights it is bound to.
    pub knowledge_epoch: u64,
}

/// What a look for a kept answer finds.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only says in the document what the two answers look like")]
pub(super) enum FoundView {
    /// A kept answer.
    Answer(Box<merkwelt_app::view::AnswerView>),
    /// None.
    Miss(MissView),
}

/// No kept answer is right for this caller.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct MissView {
    /// `false`.
    pub hit: bool,
    /// `unknown`, `age`, `withdrawn`, `group`, `stale_revision` or `epoch`; only applications are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is asked about: one of the three.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResourceBody {
    /// A memory.
    Memory(String),
    /// A source.
    Source(String),
    /// A conversation.
    Conversation(String),
}

/// A check at execution time.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckBody {
    /// What the subject is to be allowed to see.
    pub resource: ResourceBody,
}

fn maker(model: &str, prompt: &str) -> Result<Maker, FieldError> {
    let token = |name: &str, text: &str| Token::parse(text).map_err(|reason| FieldError::new(name, reason));
    Ok(Maker { model: token("model", model)?, prompt: token("prompt", prompt)? })
}

fn conversation(id: Option<&str>) -> Result<Option<ConversationId>, FieldError> {
    id.map(|id| field("conversation", id)).transpose()
}

impl AnswerBody {
    fn parse(&self) -> Result<AnswerRequest, FieldError> {
        at_most("sources", &self.sources, SOURCES_MAX)?;
        let audience = match self.audience.as_deref() {
            None | Some("subject") => AnswerAudience::Subject,
            Some("shared") => AnswerAudience::Shared,
            Some(_) => return Err(FieldError::new("audience", "must be subject or shared")),
        };
        let answer = Content::question(&self.answer, Content::TURN_MAX_BYTES);
        Ok(AnswerRequest {
            question: words::question(&self.question)?,
            answer: answer.map_err(|reason| FieldError::new("answer", reason))?,
            sources: bases("sources", &self.sources)?,
            audience,
            conversation: conversation(self.conversation.as_deref())?,
            maker: maker(&self.model, &self.prompt)?,
        })
    }
}

impl LookUpBody {
    fn parse(&self, run: RunContext) -> Result<LookUpRequest, FieldError> {
        let question = words::question(&self.question)?;
        let conversation = conversation(self.conversation.as_deref())?;
        Ok(LookUpRequest { question, maker: maker(&self.model, &self.prompt)?, conversation, run })
    }
}

impl ResourceBody {
    fn parse(&self) -> Result<Resource, FieldError> {
        Ok(match self {
            Self::Memory(id) => Resource::Memory(field("resource.memory", id)?),
            Self::Source(id) => Resource::Source(field("resource.source", id)?),
            Self::Conversation(id) => Resource::Conversation(field("resource.conversation", id)?),
        })
    }
}

/// Keep an answer
///
/// It is kept in memory, bound to its sources with their revisions, to the generation of sources and rights, to the
/// subject, to the model and to the prompt.
#[utoipa::path(
    post, path = "/v1/answers", operation_id = "store_answer", tag = "answers", request_body = AnswerBody,
    responses((status = 201, description = "It is kept.", body = KeptAnswerView))
)]
pub(super) async fn store(
    State(face): State<Face>,
    asker: Asker,
    body: Json<AnswerBody>,
) -> Result<(StatusCode, Answer<KeptAnswerView>), Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let knowledge = face.app.store_answer(&asker.request, &body.value.parse()?).await?;
    Ok((StatusCode::CREATED, Answer(KeptAnswerView { knowledge_epoch: knowledge.number() })))
}

/// Look for a kept answer
///
/// It is given only if every source it rests on is registered and active, in the same revision, for this subject
/// now, in the same generation of sources and rights, and if it is not too old.
#[utoipa::path(
    post, path = "/v1/answers/lookup", operation_id = "look_up_answer", tag = "answers",
    request_body = LookUpBody,
    responses(
        (status = 200, description = "A kept answer that is still right, or that there is none.", body = FoundView),
    )
)]
pub(super) async fn look_up(
    State(face): State<Face>,
    asker: Asker,
    body: Json<LookUpBody>,
) -> Result<Response, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let wanted = body.value.parse(asker.run)?;
    match face.app.look_up_answer(&asker.request, &wanted).await? {
        LookedUp::Hit(released) => {
            face.metrics.answer("hit");
            Ok(answer::released(released))
        }
        LookedUp::Miss(reason) => {
            face.metrics.answer(reason.map_or("untold", merkwelt_app::Miss::name));
            let reason = reason.map(|reason| reason.name().to_owned());
            Ok(Answer(MissView { hit: false, reason }).into_response())
        }
    }
}

/// Check a permission at execution time
///
/// Whether the subject may see the resource now. Unknown, foreign and ended are all `false`.
#[utoipa::path(
    post, path = "/v1/authorizations/check", operation_id = "check_authorization", tag = "answers",
    request_body = CheckBody,
    responses((status = 200, description = "Whether they may.", body = merkwelt_app::view::AuthorizationView))
)]
pub(super) async fn check(
    State(face): State<Face>,
    asker: Asker,
    body: Json<CheckBody>,
) -> Result<Response, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let resource = body.value.resource.parse()?;
    Ok(answer::released(face.app.check_authorization(&asker.request, &resource, &asker.run).await?))
}
