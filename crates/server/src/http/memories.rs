//! Memories: remember one or many, list, read, correct, withdraw.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use merkwelt_app::view::MemoriesView;
use merkwelt_app::{CorrectRequest, ListRequest, Settings, StatementRequest};
use merkwelt_domain::memory::{
    Author, Error as MemoryError, Expiry, Kind, Metadata, NoExpiryReason, Particulars, Pointer, Revision,
    Statement,
};
use merkwelt_domain::{Content, GroupName, Interval, MemoryId, Timestamp};
use merkwelt_store::change::{NewOwner, Outcome, Receipt};
use merkwelt_store::query::{Cursor, KindSet, PageSize};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Face;
use super::answer::{self, BatchView, WrittenView};
use super::body::{BatchJson, Id, Json, NoBody, Parameters};
use super::caller::Asker;
use super::problem::{Code, FieldError, Problem};
use super::words::{self, at_most, field, optional};

/// The most memories of a batch.
pub(super) const BATCH_MAX: usize = 500;
/// 9999-01-01T00:00:00Z: later than anything that is kept.
const FAR_FUTURE_MILLIS: i64 = 253_370_764_800_000;
/// The most field errors that one answer names.
const ERRORS_MAX: usize = 20;

/// Whose a memory is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OwnerBody {
    /// The subject of the request.
    #[default]
    Subject,
    /// Everybody in the tenant.
    Tenant,
    /// The present members of a group, by its name.
    Group(String),
}

/// Where something is to be found.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PointerBody {
    /// Where it is.
    #[schema(max_length = 2048, example = "crm://order/17")]
    pub uri: String,
    /// How to get it at use time.
    #[schema(max_length = 512, example = "tool:crm.get_order")]
    pub resolve: String,
}

/// What is stated.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryBody {
    /// The kind; it decides how the memory is delivered.
    #[schema(schema_with = words::kind)]
    pub kind: String,
    /// The words, at most 16 KiB; for a reference the label of what is to be found.
    #[schema(example = "Prefers answers in French")]
    pub text: String,
    /// Whose it is to be; the subject's if absent.
    #[serde(default)]
    pub owner: Option<OwnerBody>,
    /// Who made it.
    #[schema(schema_with = words::origin, required = false)]
    pub origin: Option<String>,
    /// A name such as `eta:order-17` under which a new value supersedes the old one.
    #[schema(max_length = 128)]
    pub slot: Option<String>,
    /// The caller's own data: at most 32 keys and 4,096 bytes.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Needed by, and only allowed for, a `reference`.
    pub pointer: Option<PointerBody>,
    /// From when it holds; RFC 3339.
    #[schema(format = DateTime)]
    pub valid_from: Option<String>,
    /// Until when it holds; RFC 3339. The default lifetime of its kind if absent.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Why it has no end.
    #[schema(schema_with = words::no_expiry_reason, required = false)]
    pub no_expiry_reason: Option<String>,
    /// The conversation it came from.
    pub conversation: Option<String>,
}

/// Memories to keep, all or none.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchBody {
    /// 1 to 500 memories.
    #[schema(min_items = 1, max_items = 500)]
    pub memories: Vec<MemoryBody>,
}

/// The new state of a memory. Its owner stays.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CorrectionBody {
    /// The kind.
    #[schema(schema_with = words::kind)]
    pub kind: String,
    /// The words, at most 16 KiB.
    pub text: String,
    /// Who made it.
    #[schema(schema_with = words::origin, required = false)]
    pub origin: Option<String>,
    /// A name under which a new value supersedes the old one.
    #[schema(max_length = 128)]
    pub slot: Option<String>,
    /// The caller's own data: at most 32 keys and 4,096 bytes.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Needed by, and only allowed for, a `reference`.
    pub pointer: Option<PointerBody>,
    /// From when it holds; RFC 3339.
    #[schema(format = DateTime)]
    pub valid_from: Option<String>,
    /// Until when it holds; RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Why it has no end.
    #[schema(schema_with = words::no_expiry_reason, required = false)]
    pub no_expiry_reason: Option<String>,
    /// The conversation it came from.
    pub conversation: Option<String>,
    /// The revision that is to be replaced; `conflict_revision` if another one is current.
    #[schema(minimum = 1)]
    pub expected_revision: Option<u32>,
}

impl CorrectionBody {
    /// The same statement as a memory of nobody in particular, and the revision it replaces.
    fn split(self) -> (MemoryBody, Option<u32>) {
        let memory = MemoryBody {
            kind: self.kind,
            text: self.text,
            owner: None,
            origin: self.origin,
            slot: self.slot,
            metadata: self.metadata,
            pointer: self.pointer,
            valid_from: self.valid_from,
            expires_at: self.expires_at,
            no_expiry_reason: self.no_expiry_reason,
            conversation: self.conversation,
        };
        (memory, self.expected_revision)
    }
}

impl MemoryBody {
    fn parse(&self, settings: &Settings, now: Timestamp) -> Result<StatementRequest, FieldError> {
        let request = StatementRequest {
            owner: owner(self.owner.as_ref())?,
            kind: field("kind", &self.kind)?,
            text: Content::to_keep(&self.text, Content::STATEMENT_MAX_BYTES)
                .map_err(|reason| FieldError::new("text", reason))?,
            author: optional::<Author>("origin", self.origin.as_deref())?,
            parts: self.particulars()?,
            conversation: optional("conversation", self.conversation.as_deref())?,
        };
        rules(&request, settings, now)?;
        Ok(request)
    }

    fn particulars(&self) -> Result<Particulars, FieldError> {
        let pointer = |p: &PointerBody| {
            Pointer::new(&p.uri, &p.resolve).map_err(|reason| FieldError::new("pointer", reason))
        };
        let metadata = Metadata::new(self.metadata.clone().unwrap_or_default());
        Ok(Particulars {
            slot: optional("slot", self.slot.as_deref())?,
            metadata: metadata.map_err(|reason| FieldError::new("metadata", reason))?,
            pointer: self.pointer.as_ref().map(pointer).transpose()?,
            valid_from: optional("valid_from", self.valid_from.as_deref())?,
            expiry: self.expiry()?,
        })
    }

    fn expiry(&self) -> Result<Option<Expiry>, FieldError> {
        let end = self.expires_at.as_deref().map(words::end).transpose()?;
        let never = optional::<NoExpiryReason>("no_expiry_reason", self.no_expiry_reason.as_deref())?;
        match (end, never) {
            (Some(_), Some(_)) => {
                Err(FieldError::new("no_expiry_reason", "excludes expires_at: give one of the two"))
            }
            (Some(end), None) => Ok(Some(Expiry::At(end))),
            (None, Some(reason)) => Ok(Some(Expiry::Never(reason))),
            (None, None) => Ok(None),
        }
    }
}

fn owner(body: Option<&OwnerBody>) -> Result<NewOwner, FieldError> {
    match body {
        None | Some(OwnerBody::Subject) => Ok(NewOwner::Subject),
        Some(OwnerBody::Tenant) => Ok(NewOwner::Tenant),
        Some(OwnerBody::Group(name)) => Ok(NewOwner::Group(field::<GroupName>("owner.group", name)?)),
    }
}

/// The rules that bind kind, pointer and expiry are the domain's; asked here already, they can name the
/// field, and in a batch the memory.
fn rules(request: &StatementRequest, settings: &Settings, now: Timestamp) -> Result<(), FieldError> {
    let author = request.author.unwrap_or(Author::Application);
    let (text, parts) = (request.text.clone(), request.parts.clone());
    let checked = Statement::new(request.kind, text, author, parts, &settings.lifetimes, now);
    let field = |reason: &MemoryError| match reason {
        MemoryError::Pointer | MemoryError::Resolve => "pointer",
        MemoryError::ProjectStateExpiry | MemoryError::AlreadyExpired => "expires_at",
        MemoryError::Kind => "kind",
        MemoryError::Author => "origin",
        MemoryError::Slot => "slot",
        MemoryError::Metadata => "metadata",
        MemoryError::NoExpiryReason => "no_expiry_reason",
    };
    checked.map(|_| ()).map_err(|reason| FieldError::new(field(&reason), reason))
}

/// Checks one memory as the batch route would, for the import command. The text of a refusal names the field.
///
/// # Errors
/// The first field that is not acceptable, and why.
pub(crate) fn check(memory: Value, settings: &Settings, now: Timestamp) -> Result<(), String> {
    let worded = |error: FieldError| {
        let FieldError { field, detail } = error.or_at("line");
        format!("{field}: {detail}")
    };
    let body: MemoryBody = super::strict::read(memory).map_err(worded)?;
    body.parse(settings, now).map(|_| ()).map_err(worded)
}

impl BatchBody {
    fn parse(&self, settings: &Settings, now: Timestamp) -> Result<Vec<StatementRequest>, Problem> {
        if self.memories.is_empty() {
            return Err(FieldError::new("memories", "must have at least one entry").into());
        }
        at_most("memories", &self.memories, BATCH_MAX)?;
        let mut parsed = Vec::with_capacity(self.memories.len());
        let mut errors = Vec::new();
        for (i, memory) in self.memories.iter().enumerate() {
            match memory.parse(settings, now) {
                Ok(request) => parsed.push(request),
                Err(error) => errors.push(error.within(&format!("memories[{i}]"))),
            }
        }
        errors.truncate(ERRORS_MAX);
        if errors.is_empty() { Ok(parsed) } else { Err(Problem::invalid(errors)) }
    }
}

/// Filters of a listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only these kinds, separated by commas.
    #[param(example = "user_fact,feedback")]
    pub kind: Option<String>,
    /// Only memories that came from this conversation.
    pub conversation: Option<String>,
    /// Only what holds at this time or later; RFC 3339.
    #[param(format = DateTime)]
    pub valid_from: Option<String>,
    /// Only what holds before this time; RFC 3339.
    #[param(format = DateTime)]
    pub valid_until: Option<String>,
    /// How many: 1 to 500, 50 if absent.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    pub limit: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

impl ListQuery {
    fn parse(&self) -> Result<ListRequest, FieldError> {
        let kinds = match self.kind.as_deref() {
            None => KindSet::all(),
            Some(names) => KindSet::of(
                names.split(',').map(|name| field("kind", name)).collect::<Result<Vec<Kind>, _>>()?,
            ),
        };
        let (after, limit) = page(self.cursor.as_deref(), self.limit.as_deref())?;
        Ok(ListRequest {
            kinds,
            conversation: optional("conversation", self.conversation.as_deref())?,
            interval: self.interval()?,
            after,
            limit,
            run: Default::default(),
        })
    }

    fn interval(&self) -> Result<Option<Interval>, FieldError> {
        let from = optional("valid_from", self.valid_from.as_deref())?;
        let until = optional("valid_until", self.valid_until.as_deref())?;
        if from.is_none() && until.is_none() {
            return Ok(None);
        }
        let until = until.unwrap_or(Timestamp::from_millis(FAR_FUTURE_MILLIS));
        let interval = Interval::new(from.unwrap_or(Timestamp::EPOCH), until);
        interval.map(Some).map_err(|reason| FieldError::new("valid_until", reason))
    }
}

/// Parses the place and the size of a page.
///
/// # Errors
/// [`FieldError`].
pub(super) fn page(
    cursor: Option<&str>,
    limit: Option<&str>,
) -> Result<(Option<Cursor>, PageSize), FieldError> {
    let cursor = cursor.map(|text| Cursor::parse(text).map_err(|reason| FieldError::new("cursor", reason)));
    let limit = limit.map(|text| {
        let number = text.parse().map_err(|_| FieldError::new("limit", "must be a whole number"))?;
        PageSize::new(number).map_err(|reason| FieldError::new("limit", reason))
    });
    Ok((cursor.transpose()?, limit.transpose()?.unwrap_or_default()))
}

/// Keep a memory
///
/// A new value under the same `slot` supersedes the old one; the same text is kept once.
#[utoipa::path(
    post, path = "/v1/memories", operation_id = "remember", tag = "memories", request_body = MemoryBody,
    responses(
        (status = 201, description = "It is durable: a new memory, or a new revision of one.", body = WrittenView),
        (status = 200, description = "It stood already, or this is a repeated request.", body = WrittenView),
    )
)]
pub(super) async fn remember(
    State(face): State<Face>,
    asker: Asker,
    body: Json<MemoryBody>,
) -> Result<Response, Problem> {
    let statement = body.value.parse(face.app.settings(), face.env.now())?;
    let receipt = face.app.remember(&asker.request, &[statement], body.idempotent.as_ref()).await?;
    let is_new = !receipt.replayed && !matches!(receipt.outcomes.first(), Some(Outcome::Merged { .. }));
    Ok((answer::created(is_new), written(receipt)?).into_response())
}

fn written(receipt: Receipt) -> Result<Answer<WrittenView>, Problem> {
    answer::written(receipt).map(Answer).ok_or_else(|| Problem::of(Code::UNAVAILABLE))
}

/// Keep up to 500 memories
///
/// All of them are kept or none.
#[utoipa::path(
    post, path = "/v1/memories/batch", operation_id = "remember_many", tag = "memories",
    request_body = BatchBody,
    responses((status = 200, description = "All are durable.", body = BatchView))
)]
pub(super) async fn remember_many(
    State(face): State<Face>,
    asker: Asker,
    BatchJson(body): BatchJson<BatchBody>,
) -> Result<Answer<BatchView>, Problem> {
    let statements = body.value.parse(face.app.settings(), face.env.now())?;
    let receipt = face.app.remember(&asker.request, &statements, body.idempotent.as_ref()).await?;
    Ok(Answer(answer::batch(receipt)))
}

/// List memories
///
/// The current memories in scope, newest first.
#[utoipa::path(
    get, path = "/v1/memories", operation_id = "list_memories", tag = "memories", params(ListQuery),
    responses((status = 200, description = "A page of memories.", body = MemoriesView))
)]
pub(super) async fn list(
    State(face): State<Face>,
    asker: Asker,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Response, Problem> {
    let wanted = ListRequest { run: asker.run, ..query.parse()? };
    Ok(answer::released(face.app.list_memories(&asker.request, &wanted).await?))
}

/// Read a memory
#[utoipa::path(
    get, path = "/v1/memories/{id}", operation_id = "read_memory", tag = "memories",
    params(("id" = String, Path, description = "The memory.")),
    responses((status = 200, description = "A page with this one memory.", body = MemoriesView))
)]
pub(super) async fn read(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<MemoryId>,
) -> Result<Response, Problem> {
    Ok(answer::released(face.app.read_memory(&asker.request, &id, &asker.run).await?))
}

/// Correct a memory
///
/// The new revision takes the place of the current one; its owner stays.
#[utoipa::path(
    put, path = "/v1/memories/{id}", operation_id = "correct_memory", tag = "memories",
    params(("id" = String, Path, description = "The memory.")), request_body = CorrectionBody,
    responses((status = 200, description = "The new revision is durable.", body = WrittenView))
)]
pub(super) async fn correct(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<MemoryId>,
    body: Json<CorrectionBody>,
) -> Result<Answer<WrittenView>, Problem> {
    let (memory, expected) = body.value.split();
    if expected == Some(0) {
        return Err(FieldError::new("expected_revision", "revisions are counted from one").into());
    }
    let statement = memory.parse(face.app.settings(), face.env.now())?;
    let correction = CorrectRequest { id, expected: expected.map(Revision::from_number), statement };
    written(face.app.correct(&asker.request, &correction, body.idempotent.as_ref()).await?)
}

/// Withdraw a memory
#[utoipa::path(
    delete, path = "/v1/memories/{id}", operation_id = "retract_memory", tag = "memories",
    params(("id" = String, Path, description = "The memory.")),
    responses((status = 200, description = "It is not delivered any more.", body = WrittenView))
)]
pub(super) async fn retract(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<MemoryId>,
    body: NoBody,
) -> Result<Answer<WrittenView>, Problem> {
    written(face.app.retract(&asker.request, &id, body.idempotent.as_ref()).await?)
}
