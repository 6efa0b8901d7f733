//! The read event: what was asked, from what, what was delivered, for which purpose and inside which boundary
//! without a word of it. One read is one `read` entry; references that do not fit
//! follow in `read_records` entries of the same batch.

use std::collections::BTreeMap;

use crate::canonical::{Integer, Value};
use crate::commitment::{Commitment, RecordTag, SubjectTag};
use crate::entry::{Actor, Draft, EntryType, Error, Field, LEAF_MAX};
use crate::token::{Token, Trace, UtcMillis};

/// Room left for the counters whose digits are not known while references are laid out.
const COUNTER_RESERVE: usize = 128;

/// Through what the content was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadKind {
    /// A tool call.
    Tool,
    /// A whole document.
    Document,
    /// A search.
    Retrieval,
    /// A memory by its id.
    Memory,
    /// A model's answer.
    Model,
}

impl ReadKind {
    /// The name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Document => "document",
            Self::Retrieval => "retrieval",
            Self::Memory => "memory",
            Self::Model => "model",
        }
    }
}

/// What a delivered record is: a model's words are never passed off as a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordLabel {
    /// A memory.
    Memory,
    /// A turn or a summary of a conversation.
    Conversation,
    /// A passage of a registered source.
    Document,
    /// A value written by a model.
    Model,
}

impl RecordLabel {
    /// The name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Conversation => "conversation",
            Self::Document => "document",
            Self::Model => "model",
        }
    }
}

/// Something with an id and the version in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Its id.
    pub id: Token,
    /// Its version or build.
    pub version: Token,
}

impl Versioned {
    fn into_field(self) -> Field {
        Field::Object(vec![("id", self.id.into()), ("version", self.version.into())])
    }
}

/// One delivered record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordRef {
    label: RecordLabel,
    key: RecordKey,
    score_micro: Option<Integer>,
    commitment: Commitment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RecordKey {
    Shared { id: Token, revision: Integer, written_at: UtcMillis },
    Personal(RecordTag),
}

impl RecordRef {
    /// A record of the tenant as a whole, such as a passage of a document: it stays resolvable by its id and
    /// revision.
    #[must_use]
    pub const fn shared(
        label: RecordLabel,
        id: Token,
        revision: Integer,
        written_at: UtcMillis,
        commitment: Commitment,
    ) -> Self {
        Self { label, key: RecordKey::Shared { id, revision, written_at }, score_micro: None, commitment }
    }

    /// A record that belongs to a subject. Its id, revision and write time would link every entry it appears
    /// in, so they stand inside the commitment (see [`record_statement`]) and the log holds a tag (L-19).
    #[must_use]
    pub const fn personal(label: RecordLabel, tag: RecordTag, commitment: Commitment) -> Self {
        Self { label, key: RecordKey::Personal(tag), score_micro: None, commitment }
    }

    /// The score in millionths.
    #[must_use]
    pub fn with_score_micro(self, score: Integer) -> Self {
        Self { score_micro: Some(score), ..self }
    }

    fn into_field(self) -> Field {
        let mut members =
            vec![("label", Token::word(self.label.as_str()).into()), ("commitment", self.commitment.into())];
        match self.key {
            RecordKey::Shared { id, revision, written_at } => {
                members.extend([
                    ("id", id.into()),
                    ("revision", revision.into()),
                    ("written_at", written_at.into()),
                ]);
            }
            RecordKey::Personal(tag) => members.push(("tag", tag.into())),
        }
        members.extend(self.score_micro.map(|score| ("score_micro", score.into())));
        Field::Object(members)
    }
}

/// What the commitment of a personal record covers: its id, revision and write time as canonical JSON, a zero
/// byte, and the delivered bytes. The auditor rebuilds it from the opening.
#[must_use]
pub fn record_statement(id: &Token, revision: Integer, written_at: UtcMillis, content: &[u8]) -> Vec<u8> {
    let head = Value::Object(BTreeMap::from([
        ("id".to_owned(), Value::Text(id.to_string())),
        ("revision".to_owned(), Value::Int(revision)),
        ("written_at".to_owned(), Value::Text(written_at.to_string())),
    ]));
    let mut bytes = head.to_canonical();
    bytes.push(0);
    bytes.extend_from_slice(content);
    bytes
}

/// Where a passage of a document stands, as its commitment covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentPlace<'a> {
    /// The source.
    pub source: &'a Token,
    /// SHA-256 of the document as it was received.
    pub sha256: &'a [u8; 32],
    /// The page, counted from one, where there are pages.
    pub page: Option<u32>,
    /// What the next two count: `line` or `paragraph`.
    pub unit: &'a str,
    /// The first line or paragraph, and the last.
    pub lines: (u32, u32),
    /// Left, bottom, right and top in hundredths of a point.
    pub bounds: Option<[i32; 4]>,
}

/// What the commitment of a passage covers: as [`record_statement`], and which document it is from and where it
/// stands in it. `received_at` is when the document was received.
#[must_use]
pub fn document_statement(
    id: &Token,
    revision: Integer,
    received_at: UtcMillis,
    place: &DocumentPlace<'_>,
    content: &[u8],
) -> Vec<u8> {
    let hex: String = place.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    let number = |number: u32| Value::Int(Integer::from(number));
    let mut document = BTreeMap::from([
        ("source".to_owned(), Value::Text(place.source.to_string())),
        ("sha256".to_owned(), Value::Text(hex)),
        ("unit".to_owned(), Value::Text(place.unit.to_owned())),
        ("first".to_owned(), number(place.lines.0)),
        ("last".to_owned(), number(place.lines.1)),
    ]);
    document.extend(place.page.map(|page| ("page".to_owned(), number(page))));
    let bounds = place.bounds.map(|bounds| bounds.map(|edge| Value::Int(Integer::from(edge))).to_vec());
    document.extend(bounds.map(|bounds| ("bounds".to_owned(), Value::List(bounds))));
    let head = Value::Object(BTreeMap::from([
        ("document".to_owned(), Value::Object(document)),
        ("id".to_owned(), Value::Text(id.to_string())),
        ("received_at".to_owned(), Value::Text(received_at.to_string())),
        ("revision".to_owned(), Value::Int(revision)),
    ]));
    let mut bytes = head.to_canonical();
    bytes.push(0);
    bytes.extend_from_slice(content);
    bytes
}

/// Everything a read event names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEntry {
    /// Fresh random id of this read.
    pub read_id: Token,
    /// The agent run, if the caller named one. It links the reads of one run, so it is never a conversation id.
    pub run_id: Option<Token>,
    /// The call inside the run.
    pub call_id: Option<Token>,
    /// Through what the content was read.
    pub kind: ReadKind,
    /// The source system, `merkwelt` for this service's own store.
    pub system: Token,
    /// The tool or index and its version or build.
    pub index: Versioned,
    /// Commitment to the request as received.
    pub request: Commitment,
    /// How many records were asked for at most.
    pub top_k: u32,
    /// The subject's tag in this read, if it was about one.
    pub subject_tag: Option<SubjectTag>,
    /// Why the data are processed.
    pub purpose: Token,
    /// The data boundary in force and its version.
    pub boundary: Versioned,
    /// As of when the source was read, if it was not the present.
    pub as_of: Option<UtcMillis>,
    /// The span that timed the read.
    pub trace: Option<Trace>,
    /// Where the content is kept, such as `cell`.
    pub content_kept: Token,
    /// The redaction profile applied, if any.
    pub redaction: Option<Token>,
    /// Commitment to the delivered bytes.
    pub result: Commitment,
    /// Delivered tokens.
    pub tokens: u32,
    /// The delivered records in their order.
    pub records: Vec<RecordRef>,
}

impl ReadEntry {
    /// The `read` entry and its continuations, to be appended in one batch.
    ///
    /// # Errors
    /// [`Error`] never for a [`ReadEntry`] as it can be built: its fields are short and its names fixed.
    pub fn into_drafts(mut self, tenant: Token, actor: Actor) -> Result<Vec<Draft>, Error> {
        let fields: Vec<Field> =
            std::mem::take(&mut self.records).into_iter().map(RecordRef::into_field).collect();
        let total = count(fields.len());
        let follow = Draft::new(EntryType::ReadRecords, tenant.clone(), actor.clone())
            .field("read_id", self.read_id.clone());
        let first = self.into_draft(tenant, actor);
        let parts = lay_out(fields, [overhead(&first)?, overhead(&follow)?])?;
        let n_parts = count(parts.len());
        let mut drafts = Vec::with_capacity(parts.len());
        for (number, records) in (1_u32..).zip(parts) {
            let draft =
                if number == 1 { first.clone().field("records_total", total) } else { follow.clone() };
            drafts.push(draft.field("part", number).field("parts", n_parts).field("records", records));
        }
        Ok(drafts)
    }

    fn into_draft(self, tenant: Token, actor: Actor) -> Draft {
        let (trace_id, span_id) = match self.trace {
            Some(trace) => (Some(trace.trace_id().clone()), Some(trace.span_id().clone())),
            None => (None, None),
        };
        Draft::new(EntryType::Read, tenant, actor)
            .field("read_id", self.read_id)
            .optional("run_id", self.run_id)
            .optional("call_id", self.call_id)
            .field("kind", Token::word(self.kind.as_str()))
            .field("system", self.system)
            .field("index", self.index.into_field())
            .field("request", self.request)
            .field("top_k", self.top_k)
            .optional("subject_tag", self.subject_tag)
            .field("purpose", self.purpose)
            .field("boundary", self.boundary.into_field())
            .optional("as_of", self.as_of)
            .optional("trace_id", trace_id)
            .optional("span_id", span_id)
            .field("content_kept", self.content_kept)
            .optional("redaction", self.redaction)
            .field("result", self.result)
            .field("tokens", self.tokens)
    }
}

/// Bytes an entry takes without its references and counters.
fn overhead(draft: &Draft) -> Result<usize, Error> {
    // The time has a fixed width, so any will do; the clock note is covered by the reserve.
    let epoch = UtcMillis::EPOCH;
    Ok(draft.to_leaf(epoch, None)?.len() + COUNTER_RESERVE)
}

/// Deals references out to entries in their order; the first entry always exists. A reference is shorter than
/// a tenth of an entry, so each fits into an empty one.
fn lay_out(fields: Vec<Field>, [first, follow]: [usize; 2]) -> Result<Vec<Vec<Field>>, Error> {
    let mut full = Vec::new();
    let mut part = Vec::new();
    let mut used = first;
    for field in fields {
        let length = field.to_value()?.to_canonical().len() + 1;
        if used + length > LEAF_MAX {
            full.push(std::mem::take(&mut part));
            used = follow;
        }
        used += length;
        part.push(field);
    }
    full.push(part);
    Ok(full)
}

/// More than 2³² references never fit into memory; the saturated count would be refused by the verifier.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
