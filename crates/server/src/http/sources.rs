//! Sources and their revisions: the register that decides what is current. A revision is sent
//! as the document itself; it is read, divided and indexed here, and refused as a whole where it cannot be
//! read.

use std::collections::BTreeSet;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use merkwelt_app::SourceRequest;
use merkwelt_domain::memory::{Expiry, NoExpiryReason};
use merkwelt_domain::source::{EvidencePolicy, PassageId, Terms};
use merkwelt_domain::{Content, GroupName, RevisionId, SourceId, Timestamp};
use merkwelt_store::source::NewAudience;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Face;
use super::answer;
use super::body::{DocumentBody, Id, Json, NoBody, Pair, Parameters, not_repeatable};
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::source_views::{
    CreatedSourceView, ManifestView, RemovalView, RevisionReceiptView, SourceChangeView, SourceView,
    SourcesView,
};
use super::words::{at_most, field, optional};
use crate::intake;

/// The most groups of one audience.
const GROUPS_MAX: usize = 64;
/// The most sources of one page.
const PAGE_MAX: u16 = 200;
const PAGE_DEFAULT: u16 = 50;

/// A source to register.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceBody {
    /// What people call it; one line.
    #[schema(max_length = 300, example = "Travel expenses policy")]
    pub title: String,
    /// Where it comes from, such as an address or a path. One tenant has one source per origin.
    #[schema(max_length = 2048)]
    pub origin: Option<String>,
    /// The groups whose present members may be shown it; everybody in the tenant if absent.
    #[schema(min_items = 1, max_items = 64)]
    pub groups: Option<Vec<String>>,
    /// When it ends; RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Why it has no end; `company_knowledge` if both are absent.
    #[schema(schema_with = super::words::no_expiry_reason)]
    pub no_expiry_reason: Option<String>,
    /// What is kept for evidence after a deletion: `digest_with_version` (the default) or `digest_with_copy`.
    pub evidence: Option<String>,
    /// What it is processed for, if that is limited. Recorded, not enforced.
    pub purpose: Option<String>,
}

impl SourceBody {
    fn parse(&self) -> Result<SourceRequest, FieldError> {
        let expiry = match (&self.expires_at, &self.no_expiry_reason) {
            (Some(_), Some(_)) => return Err(FieldError::new("no_expiry_reason", "excludes expires_at")),
            (Some(end), None) => Expiry::At(super::words::end(end)?),
            (None, Some(reason)) => Expiry::Never(field("no_expiry_reason", reason)?),
            (None, None) => Expiry::Never(NoExpiryReason::CompanyKnowledge),
        };
        let evidence = optional("evidence", self.evidence.as_deref())?;
        Ok(SourceRequest {
            title: field("title", &self.title)?,
            origin: self.origin.as_deref().map(origin).transpose()?,
            audience: audience(self.groups.as_deref())?,
            terms: Terms {
                expiry,
                evidence: evidence.unwrap_or(EvidencePolicy::DigestWithVersion),
                purpose: optional("purpose", self.purpose.as_deref())?,
            },
        })
    }
}

fn origin(text: &str) -> Result<Content, FieldError> {
    Content::question(text, 2048).map_err(|reason| FieldError::new("origin", reason))
}

fn audience(groups: Option<&[String]>) -> Result<NewAudience, FieldError> {
    let Some(groups) = groups else { return Ok(NewAudience::Tenant) };
    at_most("groups", groups, GROUPS_MAX)?;
    let names = groups.iter().enumerate().map(|(i, name)| field(&format!("groups[{i}]"), name));
    let names = names.collect::<Result<BTreeSet<GroupName>, FieldError>>()?;
    if names.is_empty() {
        return Err(FieldError::new("groups", merkwelt_domain::source::Error::Audience));
    }
    Ok(NewAudience::Groups(names))
}

/// Who may be shown a source from now on.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AudienceBody {
    /// The groups; everybody in the tenant if null.
    #[schema(min_items = 1, max_items = 64)]
    pub groups: Option<Vec<String>>,
}

/// Which revision is meant.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionBody {
    /// Its id.
    pub revision_id: String,
}

/// How a revision is taken in.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevisionParameters {
    /// `true`: it becomes current at once. `false`, the default: it waits as a draft for its approval.
    #[param(value_type = Option<bool>)]
    pub publish: Option<String>,
    /// From when it holds; RFC 3339, now if absent.
    pub valid_from: Option<String>,
}

/// Which sources are listed.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    /// The last source of the page before.
    pub after: Option<String>,
    /// 1 to 200, 50 if absent.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200)]
    pub limit: Option<String>,
    /// Only the source of this origin.
    pub origin: Option<String>,
}

fn yes_or_no(name: &str, text: Option<&str>) -> Result<bool, FieldError> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(FieldError::new(name, "must be true or false")),
    }
}

/// Register a source
///
/// It has no revision yet, so nothing of it is served.
#[utoipa::path(
    post, path = "/v1/sources", operation_id = "register_source", tag = "sources", request_body = SourceBody,
    responses((status = 201, description = "It is registered.", body = CreatedSourceView))
)]
pub(super) async fn register(
    State(face): State<Face>,
    asker: Asker,
    body: Json<SourceBody>,
) -> Result<(StatusCode, Answer<CreatedSourceView>), Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let id = face.app.register_source(&asker.request, &body.value.parse()?).await?;
    Ok((StatusCode::CREATED, Answer(CreatedSourceView { id: id.to_string() })))
}

/// List the register of sources
#[utoipa::path(
    get, path = "/v1/sources", operation_id = "list_sources", tag = "sources", params(ListParameters),
    responses((status = 200, description = "A page of the register, by id.", body = SourcesView))
)]
pub(super) async fn list(
    State(face): State<Face>,
    asker: Asker,
    Parameters(wanted): Parameters<ListParameters>,
) -> Result<Answer<SourcesView>, Problem> {
    if let Some(text) = &wanted.origin {
        let found = face.app.source_of_origin(&asker.request, &origin(text)?).await?;
        let mut sources = Vec::new();
        if let Some(id) = found {
            sources.push(SourceView::of(face.app.read_source(&asker.request, &id).await?));
        }
        return Ok(Answer(SourcesView { sources, next: None }));
    }
    let after: Option<SourceId> = optional("after", wanted.after.as_deref())?;
    let limit: u16 = optional("limit", wanted.limit.as_deref())?.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(FieldError::new("limit", format!("must be between 1 and {PAGE_MAX}")).into());
    }
    let limit = usize::from(limit);
    let mut found = face.app.list_sources(&asker.request, after.as_ref(), limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|source| source.id.to_string());
    Ok(Answer(SourcesView { sources: found.into_iter().map(SourceView::of).collect(), next }))
}

/// Read one source of the register
#[utoipa::path(
    get, path = "/v1/sources/{id}", operation_id = "read_source", tag = "sources",
    params(("id" = String, Path, description = "The source.")),
    responses((status = 200, description = "The source and its revisions.", body = SourceView))
)]
pub(super) async fn read(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
) -> Result<Answer<SourceView>, Problem> {
    Ok(Answer(SourceView::of(face.app.read_source(&asker.request, &id).await?)))
}

/// Send a revision of a source
///
/// The body is the document, at most 32 MiB: `text/plain`, `text/markdown`, `text/html`, `application/pdf` or DOCX.
/// It is read and indexed as a whole or not at all. The same document sent again changes nothing.
#[utoipa::path(
    put, path = "/v1/sources/{id}/revisions", operation_id = "put_revision", tag = "sources",
    params(("id" = String, Path, description = "The source."), RevisionParameters),
    request_body(content = String, content_type = "text/plain", description = "The document."),
    responses((status = 200, description = "What became of it.", body = RevisionReceiptView))
)]
pub(super) async fn put_revision(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    Parameters(wanted): Parameters<RevisionParameters>,
    body: DocumentBody,
) -> Result<Answer<RevisionReceiptView>, Problem> {
    let publish = yes_or_no("publish", wanted.publish.as_deref())?;
    let valid_from: Option<Timestamp> = optional("valid_from", wanted.valid_from.as_deref())?;
    // Whether the source is there is asked before a document is read for it.
    face.app.expect_revision(&asker.request, &id).await?;
    let revision = intake::revision(body.bytes, &body.media, publish, valid_from).await?;
    Ok(Answer(face.app.put_revision(&asker.request, &id, &revision).await?.into()))
}

/// Read the manifest of a revision
///
/// Every passage, whether its text is kept and whether the index holds it.
#[utoipa::path(
    get, path = "/v1/sources/{id}/revisions/{revision}", operation_id = "read_manifest", tag = "sources",
    params(
        ("id" = String, Path, description = "The source."),
        ("revision" = String, Path, description = "The revision."),
    ),
    responses((status = 200, description = "The manifest.", body = ManifestView))
)]
pub(super) async fn manifest(
    State(face): State<Face>,
    asker: Asker,
    Pair(id, revision): Pair<SourceId, RevisionId>,
) -> Result<Answer<ManifestView>, Problem> {
    let entries = face.app.read_manifest(&asker.request, &id, &revision).await?;
    Ok(Answer(ManifestView::of(&revision, entries)))
}

/// Throw a draft away
#[utoipa::path(
    delete, path = "/v1/sources/{id}/revisions/{revision}", operation_id = "discard_revision", tag = "sources",
    params(
        ("id" = String, Path, description = "The source."),
        ("revision" = String, Path, description = "The revision."),
    ),
    responses((status = 200, description = "It is gone.", body = SourceChangeView))
)]
pub(super) async fn discard(
    State(face): State<Face>,
    asker: Asker,
    Pair(id, revision): Pair<SourceId, RevisionId>,
    body: NoBody,
) -> Result<Answer<SourceChangeView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    Ok(Answer(face.app.discard_revision(&asker.request, &id, &revision).await?.into()))
}

/// Make a draft the current revision
///
/// The former revision is superseded in the same transaction.
#[utoipa::path(
    post, path = "/v1/sources/{id}/publish", operation_id = "publish_revision", tag = "sources",
    params(("id" = String, Path, description = "The source.")), request_body = RevisionBody,
    responses((status = 200, description = "It is current.", body = SourceChangeView))
)]
pub(super) async fn publish(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    body: Json<RevisionBody>,
) -> Result<Answer<SourceChangeView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let revision = field("revision_id", &body.value.revision_id)?;
    Ok(Answer(face.app.publish_revision(&asker.request, &id, &revision).await?.into()))
}

/// Make an approved revision current again
///
/// After a deletion only if the source was registered with `digest_with_copy`; else register it anew.
#[utoipa::path(
    post, path = "/v1/sources/{id}/restore", operation_id = "restore_revision", tag = "sources",
    params(("id" = String, Path, description = "The source.")), request_body = RevisionBody,
    responses((status = 200, description = "It is current.", body = SourceChangeView))
)]
pub(super) async fn restore(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    body: Json<RevisionBody>,
) -> Result<Answer<SourceChangeView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let revision = field("revision_id", &body.value.revision_id)?;
    Ok(Answer(face.app.restore_revision(&asker.request, &id, &revision).await?.into()))
}

/// Change who may be shown a source
///
/// It takes effect on the next read.
#[utoipa::path(
    put, path = "/v1/sources/{id}/audience", operation_id = "change_audience", tag = "sources",
    params(("id" = String, Path, description = "The source.")), request_body = AudienceBody,
    responses((status = 200, description = "It is in force.", body = SourceChangeView))
)]
pub(super) async fn admit(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    body: Json<AudienceBody>,
) -> Result<Answer<SourceChangeView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let audience = audience(body.value.groups.as_deref())?;
    Ok(Answer(face.app.admit_to_source(&asker.request, &id, &audience).await?.into()))
}

/// Take a source back
///
/// Nothing of it is served from the next read on. It can be restored.
#[utoipa::path(
    post, path = "/v1/sources/{id}/withdraw", operation_id = "withdraw_source", tag = "sources",
    params(("id" = String, Path, description = "The source.")),
    responses((status = 200, description = "What is still found of it.", body = RemovalView))
)]
pub(super) async fn withdraw(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    body: NoBody,
) -> Result<Answer<RemovalView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    Ok(Answer(face.app.withdraw_source(&asker.request, &id).await?.into()))
}

/// Delete a source
///
/// Every passage of every revision goes; afterwards it is looked for by id, by filter and by similarity. Ids,
/// digests and times of its revisions stay for evidence.
#[utoipa::path(
    delete, path = "/v1/sources/{id}", operation_id = "delete_source", tag = "sources",
    params(("id" = String, Path, description = "The source.")),
    responses((status = 200, description = "What is still found of it.", body = RemovalView))
)]
pub(super) async fn delete(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<SourceId>,
    body: NoBody,
) -> Result<Answer<RemovalView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    Ok(Answer(face.app.delete_source(&asker.request, &id).await?.into()))
}

/// Resolve a citation
///
/// The exact text of a passage, and whether its revision is still the current one. What was withdrawn or
/// deleted, or is not for this subject any more, is not found.
#[utoipa::path(
    get, path = "/v1/citations/{id}", operation_id = "resolve_citation", tag = "sources",
    params(("id" = String, Path, description = "The passage, as answers name it.")),
    responses((status = 200, description = "The passage.", body = merkwelt_app::view::CitationView))
)]
pub(super) async fn cite(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<PassageId>,
) -> Result<Response, Problem> {
    Ok(answer::released(face.app.resolve_citation(&asker.request, &id, &asker.run).await?))
}
