//! A pack on the wire. The two texts of `system` form the stable prefix for the system prompt; `turn` is
//! placed next to the question. Everything else says what is in them, why, and what it saved.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::render::Section;
use crate::view::{BasisView, OriginView, OwnerView, ScopeView, ScoreView, SourceRefView, SummaryView};

/// The stable prefix: the same bytes, and the same `etag`, until a rule or a fact in scope changes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SystemView {
    /// Changes exactly when one of the two texts changes.
    pub etag: String,
    /// Whether the rules and facts were reused from an earlier turn instead of being read again.
    pub reused: bool,
    /// The rules, as a block of their own.
    pub rules: String,
    /// The facts about the subject.
    pub facts: String,
}

/// Tokens of the delivered texts, in the named tokeniser.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokensView {
    /// Of all three texts together; never more than the budget.
    pub total: u32,
    /// Of `system.rules`.
    pub rules: u32,
    /// Of `system.facts`.
    pub facts: u32,
    /// Of `turn`.
    pub turn: u32,
    /// Of every current memory in scope and the whole conversation as one flat list.
    pub flat: u64,
    /// How many tokens fewer than the flat list; 0 if the pack is not smaller.
    pub saved: u64,
    /// The same in per cent of the flat list.
    pub saved_percent: u32,
}

/// What was decided about `project_state`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RoutingView {
    /// `needed_by_question`, `included_by_caller`, `skipped_conceptual` or `excluded_by_caller`.
    pub project_state: String,
    /// The same as a sentence.
    pub reason: String,
}

/// One record in the texts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PackItemView {
    /// Where it stands.
    pub section: String,
    /// The memory's id, or the conversation's for a turn.
    pub id: String,
    /// The revision, or the turn's number.
    pub revision: u32,
    /// `fact`, `history` or `document`.
    pub layer: String,
    /// The kind; absent for turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Why it is in: `rule`, `fact`, `ranked`, `recent`, `neighbour`, `last_turn` or `summary`.
    pub why: String,
    /// Whose it is.
    pub owner: OwnerView,
    /// Where it comes from.
    pub origin: OriginView,
    /// From when it holds.
    pub valid_from: String,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Why it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_expiry_reason: Option<String>,
    /// Why it was ranked where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// Only for passages: what to cite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citation: Option<SourceRefView>,
    /// Only for turns that named sources.
    #[serde(flatten)]
    pub basis: BasisView,
    /// Only for the summary of the conversation: where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryView>,
    /// Tokens of its line.
    pub tokens: u32,
}

/// What was left out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeftOutView {
    /// Where it would have stood.
    pub section: String,
    /// `budget`; `share` (facts have at most four tenths of what the rules leave of the budget, so that the beginning
    /// of a pack stays the same from turn to turn; those that match the question stand in the turn all the same);
    /// `weak_match` (far below the best matches), `no_match`; `source_changed` (a summary that rests on what is not
    /// current any more), or `source_gone` (a turn whose source can no longer be read, where the instance withholds
    /// such turns).
    pub reason: String,
    /// How many records.
    pub count: u32,
}

impl LeftOutView {
    pub(crate) fn of(section: Section, reason: &str, n: usize) -> Self {
        let count = u32::try_from(n).unwrap_or(u32::MAX);
        Self { section: section.name().to_owned(), reason: reason.to_owned(), count }
    }
}

/// A context pack.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PackView {
    /// Its id: `GET /v1/packs/{id}` gives these bytes again.
    pub pack_id: String,
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// `lexical` or `hybrid`.
    pub retrieval: String,
    /// Only where a reranker is configured: `applied` inside the sections, or `not_applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranking: Option<String>,
    /// The budget of the call.
    pub budget: u32,
    /// The tokeniser that counted.
    pub tokenizer: String,
    /// For whom.
    pub scope: ScopeView,
    /// The stable prefix.
    pub system: SystemView,
    /// The text for this turn.
    pub turn: String,
    /// What it cost and what it saved.
    pub tokens: TokensView,
    /// What was decided about `project_state`.
    pub routing: RoutingView,
    /// What is in the texts, in their order.
    pub items: Vec<PackItemView>,
    /// What is not.
    pub left_out: Vec<LeftOutView>,
}
