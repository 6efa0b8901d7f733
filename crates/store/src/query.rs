//! What may be asked of a store. Nothing here names a tenant or a subject: those come from the capability.
//! Every filter narrows the scope; none can widen it (I-6).

use std::collections::BTreeSet;

use merkwelt_domain::memory::{Kind, Revision};
use merkwelt_domain::source::PassageId;
use merkwelt_domain::{Content, ConversationId, Interval, MemoryId, PackId, SourceId, Timestamp};

/// Why a number is not a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be between 1 and {max}")]
pub struct LimitError {
    /// What was parsed.
    pub what: &'static str,
    /// The largest allowed.
    pub max: u16,
}

macro_rules! limit {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $default:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(u16);

        impl $name {
            /// The largest value.
            pub const MAX: u16 = $max;

            /// A limit from one to the largest value.
            ///
            /// # Errors
            /// [`LimitError`].
            pub fn new(value: u16) -> Result<Self, LimitError> {
                if (1..=$max).contains(&value) { Ok(Self(value)) } else { Err(LimitError { what: $what, max: $max }) }
            }

            /// The number.
            #[must_use]
            pub fn get(self) -> usize {
                usize::from(self.0)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }
    };
}

limit!(
    /// How many hits a search returns.
    TopK, "k", 200, 10
);
limit!(
    /// How many records a page holds.
    PageSize, "limit", 500, 50
);

/// A set of kinds. A search never holds `feedback`: rules are delivered, not ranked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindSet(BTreeSet<Kind>);

impl KindSet {
    /// These kinds.
    #[must_use]
    pub fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(kinds.into_iter().collect())
    }

    /// All four kinds.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Kind::ALL)
    }

    /// Whether `kind` is in the set.
    #[must_use]
    pub fn contains(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// The set without `feedback`.
    #[must_use]
    pub fn rankable(mut self) -> Self {
        self.0.remove(&Kind::Feedback);
        self
    }

    /// The kinds in order.
    pub fn iter(&self) -> impl Iterator<Item = Kind> + '_ {
        self.0.iter().copied()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which turns take part in a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turns {
    /// None.
    None,
    /// Those of one conversation of the subject.
    Of(ConversationId),
    /// Those of all kept conversations of the subject.
    All,
}

/// A vector and the model it came from (I-14).
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// Identifies model, revision and dimension.
    pub model: ModelId,
    /// L2-normalised components.
    pub values: Vec<f32>,
}

/// Identifies an embedding model: id, revision and dimension, as the descriptor of the engine writes them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelId(String);

impl ModelId {
    /// From the parts of a descriptor.
    #[must_use]
    pub fn new(id: &str, revision: &str, dimension: usize) -> Self {
        Self(format!("{id}@{revision}/{dimension}"))
    }

    /// As a store wrote it.
    #[must_use]
    pub fn recorded(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As a store writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a cosine becomes a score: `(cosine - floor) / span`. Constants of the embedding model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fusion {
    /// The cosine of unrelated texts.
    pub floor: f32,
    /// From there to the cosine of equal texts.
    pub span: f32,
}

/// A search. Two stages: the filter by scope, kind and time is part of the query and comes first,
/// ranking comes after.
#[derive(Debug, Clone)]
pub struct RecallQuery {
    /// The question.
    pub question: Content,
    /// The question's vector, if an embedder is at work, with the constants to weigh it.
    pub vector: Option<(Vector, Fusion)>,
    /// How many hits.
    pub k: TopK,
    /// Which kinds of memory; `feedback` is ignored.
    pub kinds: KindSet,
    /// Which turns.
    pub turns: Turns,
    /// Whether passages of current sources take part. They have no metadata and come from no conversation,
    /// so a filter by either leaves none of them.
    pub documents: bool,
    /// Only memories that came from this conversation.
    pub conversation: Option<ConversationId>,
    /// Metadata that must be equal, all of them.
    pub metadata: Vec<(String, serde_json::Value)>,
    /// Only what holds during this interval.
    pub interval: Option<Interval>,
    /// Present server time.
    pub now: Timestamp,
}

/// What is read by key. Keys find nothing outside the scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The current revision of a memory.
    Memory(MemoryId),
    /// One revision of a memory, current or past, as long as its content is kept: for rebuilding what was
    /// once delivered, never for serving as current.
    MemoryAt(MemoryId, Revision),
    /// A conversation.
    Conversation(ConversationId),
    /// One turn.
    Turn(ConversationId, u32),
    /// The newest summary of a conversation, or the newest approved one.
    Summary {
        /// The conversation.
        of: ConversationId,
        /// Whether only approved ones count.
        approved: bool,
    },
    /// A delivered pack.
    Pack(PackId),
    /// A passage of a current revision.
    Passage(PassageId),
    /// A passage of a current or superseded revision of an active source: for citations, never for serving
    /// as current. Its standing says which.
    PassageAt(PassageId),
    /// Which revision of a source is current.
    Source(SourceId),
}

/// What is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Current memories of these kinds, newest first.
    Memories {
        /// The kinds.
        kinds: KindSet,
        /// Only those that came from this conversation.
        conversation: Option<ConversationId>,
    },
    /// Turns of a conversation, oldest first.
    Turns(ConversationId),
    /// Turns of a conversation, newest first.
    TurnsBackwards(ConversationId),
    /// The subject's conversations, newest first.
    Conversations,
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct ScanQuery {
    /// What is listed.
    pub listing: Listing,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// How many records.
    pub limit: PageSize,
    /// Only what holds during this interval.
    pub interval: Option<Interval>,
    /// Present server time.
    pub now: Timestamp,
}

/// Where a page ended. Opaque to callers; a store refuses one that it cannot read. It widens nothing: the
/// next page is read under the scope of its own request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// The most bytes of a cursor.
    pub const MAX_BYTES: usize = 256;

    /// As a store wrote it: any text of at most 256 letters, digits, `_`, `-` and `.`.
    ///
    /// # Errors
    /// [`crate::Error::Cursor`].
    pub fn parse(text: &str) -> Result<Self, crate::Error> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(crate::Error::Cursor)
        }
    }

    /// As it is handed out.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ranking;

    #[test]
    fn r_008_all_kinds_without_rules_are_the_other_three_in_order() {
        let ranked: Vec<Kind> = KindSet::all().rankable().iter().collect();
        assert_eq!(ranked, [Kind::UserFact, Kind::ProjectState, Kind::Reference]);
        assert!(!KindSet::all().is_empty());
        assert!(KindSet::of([Kind::Feedback]).rankable().is_empty());
    }

    #[test]
    fn a_model_is_written_with_its_revision_and_dimension_and_read_as_it_was_written() {
        let model = ModelId::new("e5", "ab12", 384);
        assert_eq!(model.as_str(), "e5@ab12/384");
        assert_eq!(ModelId::recorded(model.as_str()), model);
        assert_ne!(ModelId::new("e5", "ab12", 385), model);
    }

    #[test]
    fn a_ranking_is_named_as_the_interface_says() {
        assert_eq!([Ranking::Lexical, Ranking::Hybrid].map(Ranking::name), ["lexical", "hybrid"]);
    }

    #[test]
    fn a_cursor_is_short_and_plain() {
        let longest = "a".repeat(Cursor::MAX_BYTES);
        for good in ["a", "A-z_0.9", &longest] {
            assert_eq!(Cursor::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &format!("{longest}a"), "'", "%"] {
            assert!(matches!(Cursor::parse(bad), Err(crate::Error::Cursor)), "{bad}");
        }
    }
}
