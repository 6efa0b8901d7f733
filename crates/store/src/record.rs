//! What a store returns. None of it can be serialised: a [`Candidate`] is a proposal that the app still
//! has to admit and to record before anything leaves (I-3, I-4).

use merkwelt_domain::conversation::{Conversation, Turn};
use merkwelt_domain::freshness::{Evidence, Standing, Validity};
use merkwelt_domain::memory::Memory;
use merkwelt_domain::source::{Passage, PassageId, SourceHead};
use merkwelt_domain::{
    ContentEpoch, ConversationId, GrantEpoch, KnowledgeEpoch, MemoryId, PackId, PrefixEpoch, ReadId,
    Timestamp,
};

/// A searchable record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A memory.
    Memory(Memory),
    /// A turn of a conversation.
    Turn(Turn),
    /// A passage of a source.
    Passage(Passage),
}

/// Which record, whatever its kind. The order is arbitrary but total: memories, turns, passages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordId {
    /// A memory.
    Memory(MemoryId),
    /// A turn by its conversation and number.
    Turn(ConversationId, u32),
    /// A passage.
    Passage(PassageId),
}

impl Record {
    /// Which record it is.
    #[must_use]
    pub fn id(&self) -> RecordId {
        match self {
            Self::Memory(memory) => RecordId::Memory(memory.id.clone()),
            Self::Turn(turn) => RecordId::Turn(turn.conversation.clone(), turn.number),
            Self::Passage(passage) => RecordId::Passage(passage.id.clone()),
        }
    }
}

impl Evidence for Record {
    fn validity(&self) -> Validity {
        match self {
            Self::Memory(memory) => memory.validity(),
            Self::Turn(turn) => turn.validity(),
            Self::Passage(passage) => passage.validity(),
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Memory(memory) => memory.standing,
            Self::Turn(turn) => turn.standing(),
            Self::Passage(passage) => passage.standing,
        }
    }

    fn written_at(&self) -> Timestamp {
        match self {
            Self::Memory(memory) => memory.written_at,
            Self::Turn(turn) => turn.at,
            Self::Passage(passage) => passage.received_at,
        }
    }
}

/// Why a record was ranked where it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// BM25 as a fraction of the best possible match of the question: 0 to about 1.
    pub lexical: f32,
    /// Cosine to the question's vector, if both have one of the same model.
    pub cosine: Option<f32>,
    /// The score it was ranked by.
    pub total: f32,
}

/// A search hit before the checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The record as the system of record holds it.
    pub record: Record,
    /// Why it is where it is.
    pub scores: Scores,
}

impl Evidence for Candidate {
    fn validity(&self) -> Validity {
        self.record.validity()
    }

    fn standing(&self) -> Standing {
        self.record.standing()
    }

    fn written_at(&self) -> Timestamp {
        self.record.written_at()
    }
}

/// The generations a read rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epochs {
    /// Of permissions.
    pub grants: GrantEpoch,
    /// Of content.
    pub content: ContentEpoch,
    /// Of rules and facts.
    pub prefix: PrefixEpoch,
    /// Of sources and the rights to them.
    pub knowledge: KnowledgeEpoch,
}

/// How a search was ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranking {
    /// By words alone.
    Lexical,
    /// By words and vectors.
    Hybrid,
}

impl Ranking {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lexical => "lexical",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The answer to a search.
#[derive(Debug, Clone)]
pub struct Recalled {
    /// At most k hits, best first.
    pub candidates: Vec<Candidate>,
    /// How many records passed scope, kind and time before ranking.
    pub considered: u64,
    /// The generations it rests on.
    pub epochs: Epochs,
    /// How it was ranked.
    pub ranking: Ranking,
    /// Name of the index and the generation it was built at.
    pub index: IndexVersion,
}

/// Which index answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexVersion {
    /// The index's stable name, letters, digits, `-`, `_`, `.`.
    pub id: String,
    /// The build.
    pub build: u64,
}

/// A record found by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A memory; its standing says whether it may be served.
    Memory(Memory),
    /// A conversation and the number of its kept turns.
    Conversation(Conversation, u32),
    /// A turn.
    Turn(Turn),
    /// A delivered pack.
    Pack(Pack),
    /// A passage; its standing says whether it may be served.
    Passage(Passage),
    /// The current revision of a source.
    Source(SourceHead),
}

/// The composition of a delivered pack: enough to build it again, without its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Pack {
    /// Its id.
    pub id: PackId,
    /// The read event that delivered it.
    pub read_id: ReadId,
    /// When.
    pub at: Timestamp,
    /// The app's own description. It may hold personal data and is kept encrypted.
    pub composition: Vec<u8>,
    /// Until when it can be rebuilt.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pack({}, {} bytes)", self.id, self.composition.len())
    }
}

/// A listed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A memory.
    Memory(Memory),
    /// A turn.
    Turn(Turn),
    /// A conversation and the number of its kept turns.
    Conversation(Conversation, u32),
}

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    /// The records.
    pub records: Vec<Listed>,
    /// Where the next page begins, if there is more.
    pub next: Option<crate::query::Cursor>,
    /// The generations it rests on.
    pub epochs: Epochs,
}

/// What everything in scope would cost if it were delivered as one flat list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlatCost {
    /// Current memories and, if a conversation was named, its kept turns.
    pub items: u64,
    /// Their tokens.
    pub tokens: u64,
    /// How many of them are facts.
    pub facts: u64,
}
