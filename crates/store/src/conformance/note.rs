//! Statements, questions and read events as the checks write them.

use merkwelt_domain::memory::{Author, Expiry, Kind, Lifetimes, Metadata, Particulars, Pointer, Statement};
use merkwelt_domain::{Content, ConversationId, Env, Interval, MemoryId, ReadId, Timestamp};
use merkwelt_ledger::commitment::OpeningKey;
use merkwelt_ledger::read::{ReadKind, RecordLabel};

use super::Failure;
use super::subject::Subject;
use crate::change::{NewMemory, NewOwner, ReadEvent, ReadItem, ReadRecord, Shown};
use crate::evidence::token;
use crate::query::{Fusion, KindSet, RecallQuery, TopK, Turns, Vector};
use crate::record::{IndexVersion, Pack, Record};

/// A statement in the making.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) owner: NewOwner,
    pub(super) slot: Option<String>,
    pub(super) from: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) conversation: Option<ConversationId>,
    pub(super) metadata: Vec<(String, serde_json::Value)>,
    pub(super) vector: Option<[f32; 3]>,
    pub(super) tokens: u32,
}

/// A fact of the subject.
pub(super) fn note(text: &str) -> Note {
    Note {
        text: text.to_owned(),
        kind: Kind::UserFact,
        owner: NewOwner::Subject,
        slot: None,
        from: None,
        until: None,
        conversation: None,
        metadata: Vec::new(),
        vector: None,
        tokens: 3,
    }
}

impl Note {
    pub(super) fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub(super) fn owner(self, owner: NewOwner) -> Self {
        Self { owner, ..self }
    }

    pub(super) fn slot(self, slot: &str) -> Self {
        Self { slot: Some(slot.to_owned()), ..self }
    }

    pub(super) fn from(self, millis: i64) -> Self {
        Self { from: Some(Timestamp::from_millis(millis)), ..self }
    }

    pub(super) fn until(self, millis: i64) -> Self {
        Self { until: Some(Timestamp::from_millis(millis)), ..self }
    }

    pub(super) fn said_in(self, conversation: &ConversationId) -> Self {
        Self { conversation: Some(conversation.clone()), ..self }
    }

    pub(super) fn metadata(mut self, name: &str, value: &str) -> Self {
        self.metadata.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn vector(self, vector: [f32; 3]) -> Self {
        Self { vector: Some(vector), ..self }
    }

    /// The statement as the store takes it, with a fresh id.
    pub(super) fn build(self, subject: &dyn Subject) -> Result<NewMemory, Failure> {
        let now = subject.env().now();
        let pointer = (self.kind == Kind::Reference)
            .then(|| Pointer::new("https://example.org/x", "tool:get"))
            .transpose()
            .map_err(|e| Failure::new(e.to_string()))?;
        let slot = self.slot.as_deref().map(str::parse).transpose();
        let particulars = Particulars {
            slot: slot.map_err(|_| Failure::new("bad slot"))?,
            metadata: Metadata::new(self.metadata.into_iter().collect())
                .map_err(|e| Failure::new(e.to_string()))?,
            pointer,
            valid_from: self.from,
            expiry: self.until.map(Expiry::At),
        };
        let text = content(&self.text)?;
        let author = Author::Application;
        let statement = Statement::new(self.kind, text, author, particulars, &Lifetimes::default(), now)
            .map_err(|e| Failure::new(e.to_string()))?;
        Ok(NewMemory {
            id: MemoryId::random(subject.env()),
            owner: self.owner,
            statement,
            at: now,
            conversation: self.conversation,
            tokens: self.tokens,
            vector: self.vector.map(|values| vector(subject, values)),
            opening: opening(subject),
        })
    }
}

pub(super) fn content(text: &str) -> Result<Content, Failure> {
    Content::question(text, Content::QUESTION_MAX_BYTES).map_err(|e| Failure::new(e.to_string()))
}

pub(super) fn opening(subject: &dyn Subject) -> OpeningKey {
    let mut bytes = [0_u8; 32];
    subject.env().fill(&mut bytes);
    OpeningKey::from_bytes(bytes)
}

pub(super) fn vector(subject: &dyn Subject, values: [f32; 3]) -> Vector {
    Vector { model: subject.model(), values: values.to_vec() }
}

/// A question for ten memories of any kind, without turns.
pub(super) fn ask(subject: &dyn Subject, question: &str) -> Result<RecallQuery, Failure> {
    Ok(RecallQuery {
        question: content(question)?,
        vector: None,
        k: TopK::default(),
        kinds: KindSet::all(),
        turns: Turns::None,
        documents: false,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        now: subject.env().now(),
    })
}

pub(super) fn top(k: u16) -> Result<TopK, Failure> {
    TopK::new(k).map_err(|e| Failure::new(e.to_string()))
}

pub(super) fn near(subject: &dyn Subject, values: [f32; 3]) -> (Vector, Fusion) {
    (vector(subject, values), Fusion { floor: 0.5, span: 0.5 })
}

pub(super) fn between(from: i64, until: i64) -> Result<Interval, Failure> {
    Interval::new(Timestamp::from_millis(from), Timestamp::from_millis(until))
        .map_err(|e| Failure::new(e.to_string()))
}

/// A read event that delivers these records as current, and a pack if one is given.
pub(super) fn reading(
    subject: &dyn Subject,
    records: &[Record],
    pack: Option<Pack>,
) -> Result<ReadRecord, Failure> {
    let commit = |label: &str, bytes: &[u8]| -> Result<_, Failure> {
        Ok(opening(subject).commit(&token(label)?, bytes).0)
    };
    let mut items = Vec::new();
    let mut standing = Vec::new();
    for record in records {
        let (id, revision, at, personal) = match record {
            Record::Memory(memory) => {
                standing.push(Shown::Current(memory.id.clone(), memory.revision));
                let personal = matches!(memory.owner, merkwelt_domain::memory::Owner::Subject(_));
                (memory.id.as_str(), memory.revision.number(), memory.written_at, personal)
            }
            Record::Turn(turn) => {
                standing.push(Shown::Turn(turn.conversation.clone(), turn.number));
                (turn.conversation.as_str(), turn.number, turn.at, true)
            }
            Record::Passage(passage) => {
                standing.push(Shown::Passage(passage.id.clone()));
                (passage.id.revision.as_str(), passage.id.number, passage.received_at, false)
            }
        };
        items.push(ReadItem {
            label: RecordLabel::Memory,
            id: id.to_owned(),
            revision,
            written_at: at,
            personal,
            score_micro: Some(1),
            commitment: commit("record", id.as_bytes())?,
        });
    }
    let event = ReadEvent {
        id: ReadId::random(subject.env()),
        kind: ReadKind::Retrieval,
        run: None,
        call: None,
        index: IndexVersion { id: "suite".to_owned(), build: 1 },
        request: commit("request", b"question")?,
        top_k: 10,
        boundary: ("local".to_owned(), "1".to_owned()),
        trace: None,
        content_kept: "source",
        result: commit("result", b"answer")?,
        tokens: 1,
        items,
    };
    let keep_until = subject.env().now().plus_days(30);
    Ok(ReadRecord { event, standing, knowledge: None, openings: vec![7; 32], keep_until, pack })
}
