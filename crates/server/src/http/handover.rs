//! Summaries of conversations, and what goes along when a person changes the organisation.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::Response;
use merkwelt_app::SummaryRequest;
use merkwelt_app::view::HandOverView;
use merkwelt_domain::ConversationId;
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::summary::{OrganisationSwitch, SummaryOf};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Face;
use super::answer;
use super::answers::{BasisBody, bases};
use super::body::{Id, Json, Parameters, not_repeatable};
use super::caller::Asker;
use super::conversations::{AppendedView, PageQuery, appended_view, kept_text};
use super::problem::{FieldError, Problem};
use super::words::{self, at_most, field};

/// A summary of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SummaryBody {
    /// The summary, at most 256 KiB.
    pub text: String,
    /// The number of the last turn it stands for. It must be held.
    #[schema(minimum = 1)]
    pub through: u32,
    /// The rule that made it, with the version of prompt and model: lower-case letters, digits, `.`, `_`, `-`.
    #[schema(max_length = 64, example = "support-7")]
    pub rule: String,
    /// Whether the application approves that it may be carried to another organisation.
    #[serde(default)]
    pub approved: bool,
    /// The revisions that were marked as historical in what the summary was made from. If any other revision that
    /// its turns rest on is not current now, a source changed meanwhile, and the summary is refused.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub known_historical: Vec<BasisBody>,
}

/// What goes along when a person changes the organisation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchBody {
    /// `start_new` (nothing, the default), `approved_summary` or `continue`.
    #[schema(schema_with = words::organisation_switch)]
    pub rule: String,
}

impl SummaryBody {
    fn parse(&self, conversation: ConversationId) -> Result<SummaryRequest, FieldError> {
        at_most("known_historical", &self.known_historical, RestsOn::MAX)?;
        let known = RestsOn::new(bases("known_historical", &self.known_historical)?);
        let summary = SummaryOf::new(self.through, field("rule", &self.rule)?, self.approved);
        Ok(SummaryRequest {
            conversation,
            text: kept_text("text", &self.text)?,
            summary: summary.map_err(|reason| FieldError::new("through", reason))?,
            known_historical: known.map_err(|reason| FieldError::new("known_historical", reason))?,
        })
    }
}

/// Keep a summary
///
/// The newest one stands in context packs, never as authoritative. It ends with the first turn it stands for. Once a
/// source changes that one of its turns rests on, it stands in no pack and is not handed over; among the turns of
/// the conversation it is marked as historical.
#[utoipa::path(
    post, path = "/v1/conversations/{id}/summary", operation_id = "summarise_conversation", tag = "conversations",
    params(("id" = String, Path, description = "The conversation.")), request_body = SummaryBody,
    responses(
        (status = 201, description = "It is kept as a turn of its own.", body = AppendedView),
        (status = 200, description = "This is a repeated request.", body = AppendedView),
    )
)]
pub(super) async fn summarise(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<ConversationId>,
    body: Json<SummaryBody>,
) -> Result<Response, Problem> {
    let summary = body.value.parse(id)?;
    Ok(appended_view(face.app.sum_up(&asker.request, &summary, body.idempotent.as_ref()).await?))
}

/// Hand a conversation over
///
/// What the rule of this tenant lets go along: the newest approved summary, or the turns. The other organisation
/// takes a summary in with `carried_over` when it opens a conversation, if its own rule allows that.
#[utoipa::path(
    get, path = "/v1/conversations/{id}/handover", operation_id = "hand_over_conversation", tag = "conversations",
    params(("id" = String, Path, description = "The conversation."), PageQuery),
    responses((status = 200, description = "What may go along.", body = HandOverView))
)]
pub(super) async fn hand_over(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<ConversationId>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = query.parse(asker.run)?;
    Ok(answer::released(face.app.hand_over(&asker.request, &id, &wanted).await?))
}

/// See what goes along
#[utoipa::path(
    get, path = "/v1/organisation-switch", operation_id = "organisation_switch", tag = "directory",
    responses((status = 200, description = "The rule of this tenant.", body = SwitchBody))
)]
pub(super) async fn read(State(face): State<Face>, asker: Asker) -> Result<Answer<SwitchBody>, Problem> {
    let rule = face.app.organisation_switch(&asker.request).await?;
    Ok(Answer(SwitchBody { rule: rule.name().to_owned() }))
}

/// Say what goes along
///
/// It counts from the next request on, and is an entry of the ledger.
#[utoipa::path(
    put, path = "/v1/organisation-switch", operation_id = "set_organisation_switch", tag = "directory",
    request_body = SwitchBody,
    responses((status = 200, description = "The rule from now on.", body = SwitchBody))
)]
pub(super) async fn set(
    State(face): State<Face>,
    asker: Asker,
    body: Json<SwitchBody>,
) -> Result<Answer<SwitchBody>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let rule = field::<OrganisationSwitch>("rule", &body.value.rule)?;
    face.app.set_organisation_switch(&asker.request, rule).await?;
    Ok(Answer(SwitchBody { rule: rule.name().to_owned() }))
}
