//! What an entry is before it has a place in the log: a type, a tenant, an actor and fields out of closed
//! kinds. A draft becomes canonical leaf bytes; no field can hold free text.

use std::collections::BTreeMap;

use crate::canonical::{self, Integer, Value};
use crate::checkpoint::Checkpoint;
use crate::commitment::{Commitment, RecordTag, SubjectTag};
use crate::note::VerifierKey;
use crate::token::{Token, UtcMillis};

/// Largest leaf, in bytes (C2SP `tlog-tiles` counts them in 16 bits).
pub const LEAF_MAX: usize = 65_535;

/// Version of the envelope.
pub const VERSION: u32 = 1;

/// Members every envelope has, and the one the log itself adds.
pub(crate) const RESERVED: [&str; 6] = ["v", "type", "at", "tenant", "actor", "clock_behind_ms"];

/// Why a draft cannot become an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The entry would be longer than [`LEAF_MAX`].
    #[error("the entry exceeds 65535 bytes")]
    TooLong,
    /// A field is named twice or like a member of the envelope.
    #[error("field {0} is reserved or given twice")]
    FieldName(&'static str),
    /// The finished bytes would not pass the verifier.
    #[error("the entry is not canonical: {0}")]
    NotCanonical(canonical::Error),
}

/// Declares the closed list of entry types with their names in the log.
macro_rules! entry_types {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What happened. The list is closed; a verifier counts unknown types as exceptions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EntryType {
            $($(#[$doc])* $variant,)+
        }

        impl EntryType {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

entry_types! {
    /// First entry: the log, its key and, from the second period on, the final checkpoint before it.
    Genesis = "genesis",
    /// Content is about to leave; exactly one per read.
    Read = "read",
    /// More record references of the read before it.
    ReadRecords = "read_records",
    /// A memory was stored.
    MemoryWritten = "memory_written",
    /// A memory was superseded by a corrected revision.
    MemoryCorrected = "memory_corrected",
    /// A memory was taken back.
    MemoryRetracted = "memory_retracted",
    /// A conversation began.
    ConversationOpened = "conversation_opened",
    /// A turn was stored.
    TurnAppended = "turn_appended",
    /// A conversation was deleted.
    ConversationDeleted = "conversation_deleted",
    /// Users, groups or memberships changed.
    DirectoryChanged = "directory_changed",
    /// An API key or a signing key was made, changed or revoked.
    KeyChanged = "key_changed",
    /// The tenant was created, changed or closed.
    TenantChanged = "tenant_changed",
    /// A request was refused (L-28).
    AuthzDenied = "authz_denied",
    /// The configuration changed.
    ConfigChange = "config_change",
    /// An erasure was accepted.
    ErasureRequested = "erasure_requested",
    /// An erasure was carried out and probed (L-20).
    ErasureReceipt = "erasure_receipt",
    /// A source or one of its revisions was registered, published, withdrawn, restored or deleted.
    SourceChanged = "source_changed",
    /// Records were taken over from elsewhere.
    ImportBatch = "import_batch",
    /// Nothing happened: silence is made visible.
    Heartbeat = "heartbeat",
}

impl EntryType {
    /// The type of a name in the log; `None` if unknown.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

/// Who caused the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// An API key that serves many subjects, by its pseudonymous id.
    Key(Token),
    /// A person, or a key bound to one person, by a tag of this event only: a stable id would link all entries
    /// of that person (L-19).
    Person(SubjectTag),
    /// The service itself, by the name of the job.
    System(Token),
}

impl Actor {
    fn to_value(&self) -> Value {
        let (kind, id) = match self {
            Self::Key(id) => ("key", id.to_string()),
            Self::Person(tag) => ("person", tag.to_string()),
            Self::System(job) => ("system", job.to_string()),
        };
        Value::Object(BTreeMap::from([
            ("kind".to_owned(), Value::Text(kind.to_owned())),
            ("id".to_owned(), Value::Text(id)),
        ]))
    }
}

/// A value that may stand in an entry. None of them can hold a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// An id or a word of a closed vocabulary.
    Token(Token),
    /// A whole number.
    Int(Integer),
    /// Yes or no.
    Flag(bool),
    /// A time.
    Time(UtcMillis),
    /// A commitment to content.
    Commitment(Commitment),
    /// A subject, in this event only.
    Subject(SubjectTag),
    /// A subject's record, in this event only.
    Record(RecordTag),
    /// A public log key.
    Key(VerifierKey),
    /// Size and root of a log.
    Checkpoint(Checkpoint),
    /// Several of them.
    List(Vec<Field>),
    /// Named ones; names come from the program text.
    Object(Vec<(&'static str, Field)>),
}

impl Field {
    pub(crate) fn to_value(&self) -> Result<Value, Error> {
        Ok(match self {
            Self::Token(token) => Value::Text(token.to_string()),
            Self::Int(value) => Value::Int(*value),
            Self::Flag(flag) => Value::Bool(*flag),
            Self::Time(time) => Value::Text(time.to_string()),
            Self::Commitment(commitment) => Value::Text(commitment.to_string()),
            Self::Subject(tag) => Value::Text(tag.to_string()),
            Self::Record(tag) => Value::Text(tag.to_string()),
            Self::Key(key) => Value::Text(key.to_string()),
            Self::Checkpoint(checkpoint) => Value::Text(checkpoint.to_string()),
            Self::List(items) => Value::List(items.iter().map(Self::to_value).collect::<Result<_, _>>()?),
            Self::Object(members) => object(members, BTreeMap::new())?,
        })
    }
}

/// Lets a field be given as its plain type.
macro_rules! field_from {
    ($($from:ty => $variant:ident,)+) => {
        $(impl From<$from> for Field {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })+
    };
}

field_from! {
    Token => Token,
    Integer => Int,
    u32 => Int,
    bool => Flag,
    UtcMillis => Time,
    Commitment => Commitment,
    SubjectTag => Subject,
    RecordTag => Record,
    VerifierKey => Key,
    Checkpoint => Checkpoint,
    Vec<Field> => List,
}

/// An entry without its time and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    kind: EntryType,
    tenant: Token,
    actor: Actor,
    fields: Vec<(&'static str, Field)>,
}

impl Draft {
    /// Starts an entry of the tenant's log; the tenant is named by its pseudonym.
    #[must_use]
    pub const fn new(kind: EntryType, tenant: Token, actor: Actor) -> Self {
        Self { kind, tenant, actor, fields: Vec::new() }
    }

    /// Adds a field. Names that are reserved or repeated are refused when the entry is appended.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: impl Into<Field>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Adds a field that may be absent.
    #[must_use]
    pub fn optional(self, name: &'static str, value: Option<impl Into<Field>>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// What happened.
    #[must_use]
    pub const fn kind(&self) -> EntryType {
        self.kind
    }

    /// The exact bytes of the entry at this time. `behind_ms` is how far the clock stood behind the entry
    /// before, when it went backwards.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::FieldName`] or [`Error::NotCanonical`].
    pub(crate) fn to_leaf(&self, at: UtcMillis, behind_ms: Option<Integer>) -> Result<Vec<u8>, Error> {
        if let Some((name, _)) = self.fields.iter().find(|(name, _)| RESERVED.contains(name)) {
            return Err(Error::FieldName(name));
        }
        let mut envelope = BTreeMap::from([
            ("v".to_owned(), Value::Int(VERSION.into())),
            ("type".to_owned(), Value::Text(self.kind.as_str().to_owned())),
            ("at".to_owned(), Value::Text(at.to_string())),
            ("tenant".to_owned(), Value::Text(self.tenant.to_string())),
            ("actor".to_owned(), self.actor.to_value()),
        ]);
        if let Some(behind) = behind_ms {
            envelope.insert("clock_behind_ms".to_owned(), Value::Int(behind));
        }
        let bytes = object(&self.fields, envelope)?.to_canonical();
        if bytes.len() > LEAF_MAX {
            return Err(Error::TooLong);
        }
        // INVARIANT: nothing is appended that the verifier's parser would refuse.
        canonical::parse_strict(&bytes).map_err(Error::NotCanonical)?;
        Ok(bytes)
    }
}

fn object(members: &[(&'static str, Field)], mut into: BTreeMap<String, Value>) -> Result<Value, Error> {
    for (name, field) in members {
        if into.insert((*name).to_owned(), field.to_value()?).is_some() {
            return Err(Error::FieldName(name));
        }
    }
    Ok(Value::Object(into))
}

/// The first entry of a log. The key's name is the log's origin; `previous` closes the period before.
#[must_use]
pub fn genesis(tenant: Token, actor: Actor, key: VerifierKey, previous: Option<Checkpoint>) -> Draft {
    Draft::new(EntryType::Genesis, tenant, actor).field("key", key).optional("previous", previous)
}

/// A refused request: what was asked, by which key, and why not (L-28). It names no resource and no person.
#[must_use]
pub fn denial(tenant: Token, actor: Actor, action: Token, reason: Token) -> Draft {
    Draft::new(EntryType::AuthzDenied, tenant, actor).field("action", action).field("reason", reason)
}

/// What happened to a subject's memory or conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    /// See [`EntryType::MemoryWritten`].
    MemoryWritten,
    /// See [`EntryType::MemoryCorrected`].
    MemoryCorrected,
    /// See [`EntryType::MemoryRetracted`].
    MemoryRetracted,
    /// See [`EntryType::ConversationOpened`].
    ConversationOpened,
    /// See [`EntryType::TurnAppended`].
    TurnAppended,
    /// See [`EntryType::ConversationDeleted`].
    ConversationDeleted,
}

/// A change of something that belongs to a subject. Every value is good for this event only (L-19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeType,
    /// Fresh random id of this event, from which the tags are made.
    pub event_id: Token,
    /// The subject's tag in this event; absent for what belongs to the tenant as a whole.
    pub subject_tag: Option<SubjectTag>,
    /// The record's tag in this event.
    pub record_tag: Option<RecordTag>,
    /// Commitment to the stored statement (see [`crate::read::record_statement`]).
    pub commitment: Option<Commitment>,
    /// Why the data are processed.
    pub purpose: Option<Token>,
}

impl Change {
    /// The entry to append.
    #[must_use]
    pub fn into_draft(self, tenant: Token, actor: Actor) -> Draft {
        let kind = match self.kind {
            ChangeType::MemoryWritten => EntryType::MemoryWritten,
            ChangeType::MemoryCorrected => EntryType::MemoryCorrected,
            ChangeType::MemoryRetracted => EntryType::MemoryRetracted,
            ChangeType::ConversationOpened => EntryType::ConversationOpened,
            ChangeType::TurnAppended => EntryType::TurnAppended,
            ChangeType::ConversationDeleted => EntryType::ConversationDeleted,
        };
        Draft::new(kind, tenant, actor)
            .field("event_id", self.event_id)
            .optional("subject_tag", self.subject_tag)
            .optional("record_tag", self.record_tag)
            .optional("commitment", self.commitment)
            .optional("purpose", self.purpose)
    }
}
