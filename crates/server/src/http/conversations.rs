//! Conversations and their turns.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use merkwelt_app::view::{ConversationsView, TurnsView};
use merkwelt_app::{Appended, CarriedOver, OpenRequest, PageRequest, RunContext, TurnRequest};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::{Content, ConversationId};
use merkwelt_store::change::{Outcome, Receipt};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Face;
use super::answer::{self, LedgerView};
use super::answers::{BasisBody, bases};
use super::body::{Id, Json, NoBody, Parameters};
use super::caller::Asker;
use super::memories::page;
use super::problem::{Code, FieldError, Problem};
use super::words::{self, at_most, field};

/// A conversation to open.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConversationBody {
    /// How many days its turns are kept, 1 to 3,650. Without it they stay in memory for the present sitting
    /// and are never written to disk.
    #[schema(minimum = 1, maximum = 3650)]
    pub keep_days: Option<u32>,
    /// A summary of a conversation in another organisation, if the rule of this tenant lets one in. Only an
    /// application may say so.
    pub carried_over: Option<CarriedOverBody>,
}

/// A summary from elsewhere.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CarriedOverBody {
    /// The summary, at most 256 KiB.
    pub text: String,
    /// The rule that made it: lower-case letters, digits, `.`, `_`, `-`.
    #[schema(max_length = 64, example = "support-7")]
    pub rule: String,
}

/// A turn to append.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnBody {
    /// Who spoke.
    #[schema(schema_with = words::speaker)]
    pub role: String,
    /// What was said, at most 256 KiB.
    pub text: String,
    /// The revisions of sources it rests on. When another revision is current, or none can be told, the turn is
    /// delivered as historical.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub rests_on: Vec<BasisBody>,
    /// The context pack it rests on: all documents that were delivered in it are added to `rests_on`.
    pub pack_id: Option<String>,
}

/// A conversation that was opened.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct OpenedView {
    /// Its id.
    pub id: String,
    /// `session` (in memory only) or `kept`.
    pub retention: &'static str,
    /// For kept ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_days: Option<u32>,
    /// Whether this is the remembered answer to an earlier request with the same Idempotency-Key.
    pub replayed: bool,
    /// Its evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// A turn that was appended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct AppendedView {
    /// Its place, counted from one.
    pub number: u32,
    /// Whether it is on disk; a turn of the present sitting is not, and leaves no trace there.
    pub kept: bool,
    /// Whether this is the remembered answer to an earlier request with the same Idempotency-Key.
    pub replayed: bool,
    /// Its evidence, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// A conversation that was deleted.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct DeletedView {
    /// The conversation.
    pub id: String,
    /// How many kept turns went.
    pub turns: u32,
    /// How many memories that came from it went.
    pub memories: u32,
    /// Whether this is the remembered answer to an earlier request with the same Idempotency-Key.
    pub replayed: bool,
    /// Its evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// Which page.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// How many: 1 to 500, 50 if absent.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    pub limit: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

impl PageQuery {
    pub(super) fn parse(&self, run: RunContext) -> Result<PageRequest, FieldError> {
        let (after, limit) = page(self.cursor.as_deref(), self.limit.as_deref())?;
        Ok(PageRequest { after, limit, run })
    }
}

impl ConversationBody {
    fn parse(&self) -> Result<OpenRequest, FieldError> {
        let kept = self.keep_days.map(Retention::kept).transpose();
        let kept = kept.map_err(|reason| FieldError::new("keep_days", reason))?;
        let carried = |carried: &CarriedOverBody| {
            Ok(CarriedOver {
                text: kept_text("carried_over.text", &carried.text)?,
                rule: field("carried_over.rule", &carried.rule)?,
            })
        };
        Ok(OpenRequest {
            retention: kept.unwrap_or(Retention::Session),
            carried_over: self.carried_over.as_ref().map(carried).transpose()?,
        })
    }
}

pub(super) fn kept_text(name: &str, text: &str) -> Result<Content, FieldError> {
    Content::to_keep(text, Content::TURN_MAX_BYTES).map_err(|reason| FieldError::new(name, reason))
}

impl TurnBody {
    fn parse(&self, conversation: ConversationId) -> Result<TurnRequest, FieldError> {
        at_most("rests_on", &self.rests_on, RestsOn::MAX)?;
        let rests_on = RestsOn::new(bases("rests_on", &self.rests_on)?);
        Ok(TurnRequest {
            conversation,
            speaker: field::<Speaker>("role", &self.role)?,
            text: kept_text("text", &self.text)?,
            rests_on: rests_on.map_err(|reason| FieldError::new("rests_on", reason))?,
            pack: self.pack_id.as_deref().map(|id| field("pack_id", id)).transpose()?,
        })
    }
}

/// Open a conversation
///
/// It is recorded with its owner before its first turn. Its turns are kept only if `keep_days` says so.
#[utoipa::path(
    post, path = "/v1/conversations", operation_id = "open_conversation", tag = "conversations",
    request_body = ConversationBody,
    responses(
        (status = 201, description = "It is open.", body = OpenedView),
        (status = 200, description = "This is a repeated request.", body = OpenedView),
    )
)]
pub(super) async fn open(
    State(face): State<Face>,
    asker: Asker,
    body: Json<ConversationBody>,
) -> Result<Response, Problem> {
    let wanted = body.value.parse()?;
    let receipt = face.app.open_conversation(&asker.request, &wanted, body.idempotent.as_ref()).await?;
    let view = opened(wanted.retention, receipt).ok_or_else(|| Problem::of(Code::UNAVAILABLE))?;
    Ok((answer::created(!view.replayed), Answer(view)).into_response())
}

fn opened(retention: Retention, receipt: Receipt) -> Option<OpenedView> {
    let id = receipt.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Opened { id } => Some(id.to_string()),
        Outcome::Created { .. }
        | Outcome::Superseded { .. }
        | Outcome::Merged { .. }
        | Outcome::Retracted { .. }
        | Outcome::Appended { .. }
        | Outcome::ConversationDeleted { .. } => None,
    })?;
    let (retention, keep_days) = match retention {
        Retention::Session => ("session", None),
        Retention::KeptDays(days) => ("kept", Some(days)),
    };
    let ledger = receipt.entry.map(Into::into);
    Some(OpenedView { id, retention, keep_days, replayed: receipt.replayed, ledger })
}

/// List conversations
///
/// The subject's own, newest first.
#[utoipa::path(
    get, path = "/v1/conversations", operation_id = "list_conversations", tag = "conversations",
    params(PageQuery),
    responses((status = 200, description = "A page of conversations.", body = ConversationsView))
)]
pub(super) async fn list(
    State(face): State<Face>,
    asker: Asker,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = query.parse(asker.run)?;
    Ok(answer::released(face.app.list_conversations(&asker.request, &wanted).await?))
}

/// Read a conversation
///
/// With a page of its turns, oldest first.
#[utoipa::path(
    get, path = "/v1/conversations/{id}", operation_id = "read_conversation", tag = "conversations",
    params(("id" = String, Path, description = "The conversation."), PageQuery),
    responses((status = 200, description = "The conversation and its turns.", body = TurnsView))
)]
pub(super) async fn read(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<ConversationId>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = query.parse(asker.run)?;
    Ok(answer::released(face.app.read_conversation(&asker.request, &id, &wanted).await?))
}

/// Append a turn
#[utoipa::path(
    post, path = "/v1/conversations/{id}/turns", operation_id = "append_turn", tag = "conversations",
    params(("id" = String, Path, description = "The conversation.")), request_body = TurnBody,
    responses(
        (status = 201, description = "It is appended; kept on disk only if `kept` says so.", body = AppendedView),
        (status = 200, description = "This is a repeated request.", body = AppendedView),
    )
)]
pub(super) async fn append(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<ConversationId>,
    body: Json<TurnBody>,
) -> Result<Response, Problem> {
    let turn = body.value.parse(id)?;
    let appended = face.app.append_turn(&asker.request, &turn, body.idempotent.as_ref()).await?;
    Ok(appended_view(appended))
}

pub(super) fn appended_view(appended: Appended) -> Response {
    let kept = appended.receipt.is_some();
    let (replayed, entry) =
        appended.receipt.map_or((false, None), |receipt| (receipt.replayed, receipt.entry));
    let view = AppendedView { number: appended.number, kept, replayed, ledger: entry.map(Into::into) };
    (answer::created(!replayed), Answer(view)).into_response()
}

/// Delete a conversation
///
/// Its turns and the memories that came from it go with it, and nothing else.
#[utoipa::path(
    delete, path = "/v1/conversations/{id}", operation_id = "delete_conversation", tag = "conversations",
    params(("id" = String, Path, description = "The conversation.")),
    responses((status = 200, description = "It is gone.", body = DeletedView))
)]
pub(super) async fn delete(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<ConversationId>,
    body: NoBody,
) -> Result<Answer<DeletedView>, Problem> {
    let receipt = face.app.delete_conversation(&asker.request, &id, body.idempotent.as_ref()).await?;
    deleted(receipt).map(Answer).ok_or_else(|| Problem::of(Code::UNAVAILABLE))
}

fn deleted(receipt: Receipt) -> Option<DeletedView> {
    let (id, turns, memories) = receipt.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::ConversationDeleted { id, turns, memories } => Some((id.to_string(), *turns, *memories)),
        Outcome::Created { .. }
        | Outcome::Superseded { .. }
        | Outcome::Merged { .. }
        | Outcome::Retracted { .. }
        | Outcome::Opened { .. }
        | Outcome::Appended { .. } => None,
    })?;
    let ledger = receipt.entry.map(Into::into);
    Some(DeletedView { id, turns, memories, replayed: receipt.replayed, ledger })
}
