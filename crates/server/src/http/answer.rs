//! Answers. Content leaves only as the unchanged bytes of a [`Released`], with its place in the ledger in
//! the headers (I-4); everything else is a receipt or a directory entry without content.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use merkwelt_app::Released;
use merkwelt_store::change::{EntryRef, Outcome, Receipt};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::observe::Seen;

/// The read event of a delivered answer.
pub(super) const READ_ID: HeaderName = HeaderName::from_static("merkwelt-read-id");
/// Index of the read event in the tenant's ledger.
pub(super) const LEDGER_INDEX: HeaderName = HeaderName::from_static("merkwelt-ledger-index");
/// Leaf hash of the read event in hexadecimal.
pub(super) const LEDGER_LEAF: HeaderName = HeaderName::from_static("merkwelt-ledger-leaf");

/// Content on its way out: these bytes and no others are what the ledger committed to.
pub(super) fn released(released: Released) -> Response {
    let seen = seen(released.body());
    let plain = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("-"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (READ_ID, plain(released.read_id().as_str())),
        (LEDGER_INDEX, HeaderValue::from(released.entry().index)),
        (LEDGER_LEAF, plain(&released.entry().leaf)),
    ];
    let mut response = (headers, released.into_body()).into_response();
    response.extensions_mut().insert(seen);
    response
}

/// Numbers for the signals, counted in the answer without looking at its words.
fn seen(body: &[u8]) -> Seen {
    #[derive(Deserialize)]
    struct Counted<'a> {
        #[serde(borrow)]
        retrieval: Option<Cow<'a, str>>,
        hits: Option<Vec<IgnoredAny>>,
        items: Option<Vec<IgnoredAny>>,
        turns: Option<Vec<IgnoredAny>>,
        conversations: Option<Vec<IgnoredAny>>,
    }
    let Ok(counted) = serde_json::from_slice::<Counted<'_>>(body) else { return Seen::default() };
    let mode = counted.retrieval.as_deref().map(|mode| if mode == "hybrid" { "hybrid" } else { "lexical" });
    let list = counted.hits.or(counted.items).or(counted.turns).or(counted.conversations);
    Seen { items: list.map(|list| list.len()), retrieval: mode }
}

/// Where in the ledger a change stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct LedgerView {
    /// Index of the entry in the tenant's ledger.
    pub index: u64,
    /// Its leaf hash in hexadecimal.
    pub leaf: String,
}

impl From<EntryRef> for LedgerView {
    fn from(entry: EntryRef) -> Self {
        Self { index: entry.index, leaf: entry.leaf }
    }
}

/// What became of one write.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct OutcomeView {
    /// `created`, `superseded`, `merged` (the same text stood already) or `retracted`.
    pub outcome: &'static str,
    /// The memory.
    pub id: String,
    /// Its revision now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
}

/// What became of the write of one memory.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct WrittenView {
    /// `created`, `superseded`, `merged` (the same text stood already) or `retracted`.
    pub outcome: &'static str,
    /// The memory.
    pub id: String,
    /// Its revision now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// Whether this is the remembered answer to an earlier request with the same Idempotency-Key.
    pub replayed: bool,
    /// Its evidence; absent if nothing was written because it merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// What became of a batch, in the order of its memories.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct BatchView {
    /// One for each memory.
    pub outcomes: Vec<OutcomeView>,
    /// Whether this is the remembered answer to an earlier request with the same Idempotency-Key.
    pub replayed: bool,
    /// Its evidence; absent if nothing was written because everything merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// A memory's outcome; other outcomes do not belong to memories and are left out.
fn outcome(outcome: &Outcome) -> Option<OutcomeView> {
    let view = |outcome, id: &merkwelt_domain::MemoryId, revision| OutcomeView {
        outcome,
        id: id.to_string(),
        revision,
    };
    match outcome {
        Outcome::Created { id, revision } => Some(view("created", id, Some(revision.number()))),
        Outcome::Superseded { id, revision } => Some(view("superseded", id, Some(revision.number()))),
        Outcome::Merged { id, revision } => Some(view("merged", id, Some(revision.number()))),
        Outcome::Retracted { id } => Some(view("retracted", id, None)),
        Outcome::Opened { .. } | Outcome::Appended { .. } | Outcome::ConversationDeleted { .. } => None,
    }
}

/// The receipt of a batch.
pub(super) fn batch(receipt: Receipt) -> BatchView {
    BatchView {
        outcomes: receipt.outcomes.iter().filter_map(outcome).collect(),
        replayed: receipt.replayed,
        ledger: receipt.entry.map(Into::into),
    }
}

/// The receipt of the write of one memory; `None` if it is not one.
pub(super) fn written(receipt: Receipt) -> Option<WrittenView> {
    let BatchView { outcomes, replayed, ledger } = batch(receipt);
    let OutcomeView { outcome, id, revision } = outcomes.into_iter().next()?;
    Some(WrittenView { outcome, id, revision, replayed, ledger })
}

/// 201 for something new, 200 for something that stood already.
pub(super) fn created(is_new: bool) -> StatusCode {
    if is_new { StatusCode::CREATED } else { StatusCode::OK }
}
