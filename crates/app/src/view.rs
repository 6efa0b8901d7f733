//! The shapes of answers on the wire. They are filled only inside this crate and leave it only as the bytes
//! of a [`crate::Released`]; they are public so that a face can describe them.

use merkwelt_authz::Scope;
use merkwelt_domain::basis::{Basis, Footing};
use merkwelt_domain::conversation::{Retention, Turn};
use merkwelt_domain::memory::{Expiry, Layer, Memory, Owner};
use merkwelt_inference::rerank::Score;
use merkwelt_store::record::{Record, Scores};
use serde::Serialize;
use utoipa::ToSchema;

mod basis;
mod source;

pub use basis::{BasisView, FootingView, SummaryView};
pub use source::{
    AnswerSourceView, AnswerView, AuthorizationView, CitationView, SourceRefView, SupersededView, hex,
};
pub(crate) use source::{passage_item, superseded};

/// Whose a fragment is and where it holds.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct OwnerView {
    /// `subject`, `group` or `tenant`.
    pub scope: String,
    /// The subject's pseudonym or the group's id; absent for the tenant as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The isolation domain.
    pub tenant: String,
}

/// Where a fragment comes from.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct OriginView {
    /// `person`, `application`, `model`, `import`, or the speaker of a turn.
    pub author: String,
    /// RFC 3339.
    pub written_at: String,
    /// The conversation it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

/// Where something is to be found, and how to get it at use time.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PointerView {
    /// Where it is.
    pub uri: String,
    /// How to get it.
    pub resolve: String,
}

/// Why a hit is where it is. Numbers are rounded to six decimals.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct ScoreView {
    /// The score it was ranked by.
    pub total: f64,
    /// BM25 as a fraction of the best possible match.
    pub lexical: f64,
    /// Cosine to the question, if both have a vector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// What the reranker gave it, if one was asked. Compare it within this answer only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerank: Option<f64>,
}

/// A delivered fragment.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ItemView {
    /// The memory's id, or the conversation's for a turn.
    pub id: String,
    /// The revision, or the turn's number.
    pub revision: u32,
    /// `fact`, `history` or `document`.
    pub layer: String,
    /// The kind; absent for turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The words; for a reference the label of what is to be found.
    pub text: String,
    /// Only for references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<PointerView>,
    /// The name under which a new value supersedes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The caller's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whose it is.
    pub owner: OwnerView,
    /// Where it comes from.
    pub origin: OriginView,
    /// From when it holds; RFC 3339.
    pub valid_from: String,
    /// Until when; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Why it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_expiry_reason: Option<String>,
    /// Only for ranked hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// Only for passages: what to cite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citation: Option<SourceRefView>,
    /// Only for turns that named sources.
    #[serde(flatten)]
    pub basis: BasisView,
}

/// For whom an answer was made.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct ScopeView {
    /// The isolation domain.
    pub tenant: String,
    /// The subject's pseudonym.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Ids of the subject's groups.
    pub groups: Vec<String>,
}

/// The answer to a search.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RecallView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// `lexical` or `hybrid`.
    pub retrieval: String,
    /// Only where a reranker is configured: `applied`, or `not_applied` if the order is that of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reranking: Option<String>,
    /// For whom.
    pub scope: ScopeView,
    /// Records that passed scope, kind and time before ranking.
    pub considered: u64,
    /// Best first.
    pub hits: Vec<ItemView>,
}

/// One memory, or a page of them.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MemoriesView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// The memories.
    pub items: Vec<ItemView>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ConversationView {
    /// Its id.
    pub id: String,
    /// RFC 3339.
    pub opened_at: String,
    /// `session` (in memory only) or `kept`.
    pub retention: String,
    /// For kept ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_days: Option<u32>,
    /// Turns held now.
    pub n_turns: u32,
}

/// A page of conversations.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ConversationsView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// Newest first.
    pub conversations: Vec<ConversationView>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TurnView {
    /// Its place, counted from one.
    pub number: u32,
    /// `person`, `assistant`, `tool` or `summary`.
    pub role: String,
    /// What was said.
    pub text: String,
    /// RFC 3339.
    pub at: String,
    /// Until when it is kept; RFC 3339.
    pub expires_at: String,
    /// What it rests on, if it named sources.
    #[serde(flatten)]
    pub basis: BasisView,
    /// Only for summaries: where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryView>,
}

/// What of a conversation may be carried to another organisation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HandOverView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// `approved_summary` or `continue`.
    pub rule: String,
    /// The conversation.
    pub conversation: ConversationView,
    /// The approved summary alone, or the turns, oldest first.
    pub turns: Vec<TurnView>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A conversation with a page of its turns.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TurnsView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// The conversation.
    pub conversation: ConversationView,
    /// Oldest first.
    pub turns: Vec<TurnView>,
    /// How many turns of this page are withheld, because a source they rest on can no longer be read.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_withheld: u32,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

pub(crate) fn scope(scope: &Scope) -> ScopeView {
    ScopeView {
        tenant: scope.tenant().to_string(),
        subject: scope.subject().map(ToString::to_string),
        groups: scope.groups().iter().map(ToString::to_string).collect(),
    }
}

pub(crate) fn owner(owner: &Owner, scope: &Scope) -> OwnerView {
    let (kind, id) = match owner {
        Owner::Subject(id) => ("subject", Some(id.to_string())),
        Owner::Group(id) => ("group", Some(id.to_string())),
        Owner::Tenant => ("tenant", None),
    };
    OwnerView { scope: kind.to_owned(), id, tenant: scope.tenant().to_string() }
}

pub(crate) fn score(scores: &Scores) -> ScoreView {
    ScoreView {
        total: rounded(scores.total),
        lexical: rounded(scores.lexical),
        cosine: scores.cosine.map(rounded),
        rerank: None,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The scores of a hit, with that of the reranker.
pub(crate) fn reranked(scores: Option<ScoreView>, given: Option<Score>) -> Option<ScoreView> {
    scores.map(|scores| ScoreView { rerank: given.map(|score| rounded(score.value())), ..scores })
}

fn rounded(value: f32) -> f64 {
    (f64::from(value) * 1e6).round() / 1e6
}

pub(crate) fn item(record: &Record, scores: Option<&Scores>, scope: &Scope) -> ItemView {
    match record {
        Record::Memory(found) => memory(found, scores, scope),
        Record::Turn(found) => turn_item(found, scores, scope),
        Record::Passage(found) => passage_item(found, scores, scope),
    }
}

pub(crate) fn memory(memory: &Memory, scores: Option<&Scores>, scope: &Scope) -> ItemView {
    let statement = &memory.statement;
    let (expires_at, no_expiry_reason) = match statement.expiry() {
        Expiry::At(end) => (Some(end.to_string()), None),
        Expiry::Never(reason) => (None, Some(reason.name().to_owned())),
    };
    let metadata = statement.metadata().expose();
    ItemView {
        id: memory.id.to_string(),
        revision: memory.revision.number(),
        layer: Layer::Fact.name().to_owned(),
        kind: Some(statement.kind().name().to_owned()),
        text: statement.text().expose().to_owned(),
        pointer: statement
            .pointer()
            .map(|p| PointerView { uri: p.uri().to_owned(), resolve: p.resolve().to_owned() }),
        slot: statement.slot().map(|slot| slot.expose().to_owned()),
        metadata: (!metadata.is_empty()).then(|| metadata.clone()),
        owner: owner(&memory.owner, scope),
        origin: OriginView {
            author: statement.author().name().to_owned(),
            written_at: memory.written_at.to_string(),
            conversation: memory.conversation.as_ref().map(ToString::to_string),
        },
        valid_from: statement.valid_from().to_string(),
        expires_at,
        no_expiry_reason,
        score: scores.map(score),
        citation: None,
        basis: BasisView::default(),
    }
}

fn turn_item(turn: &Turn, scores: Option<&Scores>, scope: &Scope) -> ItemView {
    ItemView {
        id: turn.conversation.to_string(),
        revision: turn.number,
        layer: Layer::History.name().to_owned(),
        kind: None,
        text: turn.text.expose().to_owned(),
        pointer: None,
        slot: None,
        metadata: None,
        owner: turn_owner(scope),
        origin: OriginView {
            author: turn.speaker.name().to_owned(),
            written_at: turn.at.to_string(),
            conversation: Some(turn.conversation.to_string()),
        },
        valid_from: turn.at.to_string(),
        expires_at: Some(turn.expires_at.to_string()),
        no_expiry_reason: None,
        score: scores.map(score),
        citation: None,
        basis: BasisView::default(),
    }
}

/// Turns are read by their owner only, so the owner is the scope's subject.
pub(crate) fn turn_owner(scope: &Scope) -> OwnerView {
    OwnerView {
        scope: "subject".to_owned(),
        id: scope.subject().map(ToString::to_string),
        tenant: scope.tenant().to_string(),
    }
}

pub(crate) fn conversation(
    found: &merkwelt_domain::conversation::Conversation,
    n_turns: u32,
) -> ConversationView {
    let (retention, keep_days) = match found.retention {
        Retention::Session => ("session", None),
        Retention::KeptDays(days) => ("kept", Some(days)),
    };
    ConversationView {
        id: found.id.to_string(),
        opened_at: found.opened_at.to_string(),
        retention: retention.to_owned(),
        keep_days,
        n_turns,
    }
}

pub(crate) fn turn(turn: &Turn, footings: &[(Basis, Footing)]) -> TurnView {
    TurnView {
        number: turn.number,
        role: turn.summary.as_ref().map_or(turn.speaker.name(), |_| "summary").to_owned(),
        text: turn.text.expose().to_owned(),
        at: turn.at.to_string(),
        expires_at: turn.expires_at.to_string(),
        basis: BasisView::of(footings),
        summary: turn.summary.as_ref().map(SummaryView::of),
    }
}
