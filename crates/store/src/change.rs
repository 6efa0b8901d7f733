//! What may be changed, as one atomic batch. A batch is made from a capability and borrows it; the tenant,
//! the subject and the permission to write come from there.

use merkwelt_authz::{Pass, class};
use merkwelt_domain::conversation::{Conversation, Turn};
use merkwelt_domain::memory::{Revision, Statement};
use merkwelt_domain::source::PassageId;
use merkwelt_domain::{ConversationId, GroupName, KnowledgeEpoch, MemoryId, ReadId, Timestamp};
use merkwelt_ledger::commitment::{Commitment, OpeningKey};
use merkwelt_ledger::read::{ReadKind, RecordLabel};
use merkwelt_ledger::token::Trace;
use serde::{Deserialize, Serialize};

use crate::query::Vector;
use crate::record::{Epochs, IndexVersion, Pack};

/// Whose a new memory is to be. A group is named; the store resolves it under the scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewOwner {
    /// The subject of the scope.
    Subject,
    /// A group.
    Group(GroupName),
    /// Everybody in the tenant.
    Tenant,
}

/// A statement to keep.
#[derive(Debug)]
pub struct NewMemory {
    /// The id it gets unless it supersedes or merges with a memory.
    pub id: MemoryId,
    /// Whose it is.
    pub owner: NewOwner,
    /// What was stated.
    pub statement: Statement,
    /// When.
    pub at: Timestamp,
    /// The conversation it came from; must be one of the subject's.
    pub conversation: Option<ConversationId>,
    /// Tokens of its text.
    pub tokens: u32,
    /// Its vector; without one it is found by words and stays pending.
    pub vector: Option<Vector>,
    /// Opens the commitment to its content in the ledger (L-18).
    pub opening: OpeningKey,
}

/// One change of content.
#[derive(Debug)]
pub enum Write {
    /// Keep a statement: a new memory, a new revision of the memory in its slot, or, if the same text
    /// stands already, nothing.
    Remember(NewMemory),
    /// Replace the current revision. The owner stays, and so does the conversation it came from unless
    /// another is named. A slot that another memory of the owner holds is [`crate::Error::Exists`].
    Correct {
        /// Which memory.
        id: MemoryId,
        /// The revision the caller believes to be current.
        expected: Option<Revision>,
        /// The new state; its owner is ignored.
        new: NewMemory,
    },
    /// Withdraw a memory.
    Retract {
        /// Which memory.
        id: MemoryId,
        /// When.
        at: Timestamp,
    },
    /// Record a conversation of the subject.
    Open(Conversation),
    /// Append a turn to a kept conversation; the store gives it its number.
    Append(NewTurn),
    /// Delete a conversation, its turns and the memories that came from it, and nothing else.
    DeleteConversation {
        /// Which conversation.
        id: ConversationId,
        /// When.
        at: Timestamp,
    },
}

/// A turn to keep.
#[derive(Debug)]
pub struct NewTurn {
    /// The turn; its number is ignored.
    pub turn: Turn,
    /// Its vector.
    pub vector: Option<Vector>,
    /// Opens the commitment to its text in the ledger.
    pub opening: OpeningKey,
}

/// One read as the app saw it. The store adds what only it can know: the tags of the
/// subject, made with the subject's key.
#[derive(Debug)]
pub struct ReadEvent {
    /// Its id.
    pub id: ReadId,
    /// Kind of the read.
    pub kind: ReadKind,
    /// The caller's run and call, as tokens, if it named them.
    pub run: Option<String>,
    /// The caller's call id.
    pub call: Option<String>,
    /// The index that answered, and its build.
    pub index: IndexVersion,
    /// Commitment to the request.
    pub request: Commitment,
    /// How many hits were asked for; 0 where that has no meaning.
    pub top_k: u32,
    /// Name and version of the data boundary in force.
    pub boundary: (String, String),
    /// Trace and span the caller supplied.
    pub trace: Option<Trace>,
    /// Where the content is kept: `source` (in the records read), `pack` or `none`.
    pub content_kept: &'static str,
    /// Commitment to exactly the bytes delivered.
    pub result: Commitment,
    /// Tokens delivered.
    pub tokens: u32,
    /// What was delivered, in order.
    pub items: Vec<ReadItem>,
}

/// One delivered record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadItem {
    /// What it is.
    pub label: RecordLabel,
    /// Its id.
    pub id: String,
    /// Its revision, or a turn's number.
    pub revision: u32,
    /// When it was written.
    pub written_at: Timestamp,
    /// Whether it belongs to one subject, so that its id must not show in the ledger (L-19).
    pub personal: bool,
    /// Its score in millionths, where it was ranked.
    pub score_micro: Option<i64>,
    /// Commitment to `merkwelt_ledger::read::record_statement` of it.
    pub commitment: Commitment,
}

/// Something that is about to be shown, and as what (I-7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A memory as current.
    Current(MemoryId, Revision),
    /// A memory in a pack that is made again: it must still be kept, see [`crate::query::Key::MemoryAt`].
    Past(MemoryId, Revision),
    /// A kept turn.
    Turn(ConversationId, u32),
    /// Turns of the present sitting of a conversation, which the store does not hold.
    Sitting(ConversationId),
    /// A passage as current.
    Passage(PassageId),
    /// A passage of the past: cited, or part of a pack that is shown again.
    Cited(PassageId),
}

/// A read to record before anything of it leaves.
#[derive(Debug)]
pub struct ReadRecord {
    /// The event; the store appends it.
    pub event: ReadEvent,
    /// What is about to be released: the store refuses with [`crate::Error::ContentMoved`] if one of them may no
    /// longer be shown as it is.
    pub standing: Vec<Shown>,
    /// The generation of sources and rights that what is released rests on as a whole, where it does: refused in
    /// the same way if it has risen since.
    pub knowledge: Option<KnowledgeEpoch>,
    /// Keys that open the event's commitments, encoded by the app; kept encrypted under the subject's key.
    pub openings: Vec<u8>,
    /// Until when the openings are kept.
    pub keep_until: Timestamp,
    /// The pack to keep, if the read assembled one.
    pub pack: Option<Pack>,
}

/// Makes a repeated request harmless: the first answer is given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key; it is unique per API key.
    pub key: IdempotencyKey,
    /// Digest of the request.
    pub request: [u8; 32],
    /// Until when it is remembered.
    pub keep_until: Timestamp,
}

/// The text of an `Idempotency-Key`: 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// Why a text is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("idempotency key must be 1 to 128 visible ASCII characters")]
pub struct IdempotencyKeyError;

impl std::str::FromStr for IdempotencyKey {
    type Err = IdempotencyKeyError;

    fn from_str(text: &str) -> Result<Self, IdempotencyKeyError> {
        if (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdempotencyKeyError)
        }
    }
}

impl IdempotencyKey {
    /// The key as sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a batch consists of. The parts cannot be mixed: each needs its own class of capability.
#[derive(Debug)]
pub enum Part<'a> {
    /// Changes of content, all or none.
    Writes(&'a Pass<'a, class::Write>, Vec<Write>),
    /// A read event.
    Read(&'a Pass<'a, class::Read>, Box<ReadRecord>),
}

/// An atomic change: every part of it and its evidence become durable together, or nothing does (I-11).
#[derive(Debug)]
pub struct Batch<'a> {
    part: Part<'a>,
    idempotency: Option<Idempotency>,
    at: Timestamp,
}

impl<'a> Batch<'a> {
    /// Changes of content at server time `at`.
    #[must_use]
    pub fn writes(
        pass: &'a Pass<'a, class::Write>,
        writes: Vec<Write>,
        idempotency: Option<Idempotency>,
        at: Timestamp,
    ) -> Self {
        Self { part: Part::Writes(pass, writes), idempotency, at }
    }

    /// A read event at server time `at`.
    #[must_use]
    pub fn read(pass: &'a Pass<'a, class::Read>, record: ReadRecord, at: Timestamp) -> Self {
        Self { part: Part::Read(pass, Box::new(record)), idempotency: None, at }
    }

    /// The part, the idempotency key and the time, for a backend.
    #[must_use]
    pub fn into_parts(self) -> (Part<'a>, Option<Idempotency>, Timestamp) {
        (self.part, self.idempotency, self.at)
    }
}

/// What became of one [`Write`], in order. It holds ids and numbers only, so it may be kept for
/// idempotency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// A new memory.
    Created {
        /// Its id.
        id: MemoryId,
        /// Its first revision.
        revision: Revision,
    },
    /// A new revision took the place of the former one, through a slot or a correction.
    Superseded {
        /// The memory.
        id: MemoryId,
        /// The new revision.
        revision: Revision,
    },
    /// The same text stands already; nothing was written.
    Merged {
        /// The memory that stands.
        id: MemoryId,
        /// Its revision.
        revision: Revision,
    },
    /// Withdrawn.
    Retracted {
        /// The memory.
        id: MemoryId,
    },
    /// A conversation is recorded.
    Opened {
        /// The conversation.
        id: ConversationId,
    },
    /// A turn is kept.
    Appended {
        /// The conversation.
        id: ConversationId,
        /// The turn's number.
        number: u32,
    },
    /// A conversation is gone.
    ConversationDeleted {
        /// The conversation.
        id: ConversationId,
        /// How many turns went.
        turns: u32,
        /// How many memories went.
        memories: u32,
    },
}

/// Where in the ledger a change or a read stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRef {
    /// Index of the first entry of the batch.
    pub index: u64,
    /// Leaf hash of that entry in hexadecimal.
    pub leaf: String,
}

/// The proof that a batch is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What became of each write.
    pub outcomes: Vec<Outcome>,
    /// Its evidence; `None` only if nothing was written because everything merged.
    pub entry: Option<EntryRef>,
    /// The generations after it.
    pub epochs: Epochs,
    /// Whether this is the remembered answer to an earlier request.
    pub replayed: bool,
}
