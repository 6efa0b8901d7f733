//! From an answer to its read event: commitments with fresh keys (L-18), references to what was delivered,
//! and the keys that open them. Nothing is released without passing here.

use merkwelt_authz::{Pass, class};
use merkwelt_domain::freshness::Fresh;
use merkwelt_domain::memory::{Author, Memory, Owner};
use merkwelt_domain::source::Passage;
use merkwelt_domain::{KnowledgeEpoch, ReadId};
use merkwelt_ledger::canonical::Integer;
use merkwelt_ledger::commitment::{Commitment, OpeningKey};
use merkwelt_ledger::read::{DocumentPlace, ReadKind, RecordLabel, document_statement, record_statement};
use merkwelt_ledger::token::Token;
use merkwelt_ledger::token::Trace;
use merkwelt_store::change::{Batch, ReadEvent, ReadItem, ReadRecord, Shown};
use merkwelt_store::evidence::{token, utc};
use merkwelt_store::record::{IndexVersion, Pack, Record};

use crate::App;
use crate::error::{Attempt, Error};
use crate::release::Released;

/// What the caller says about its own run, for the evidence; none of it grants anything.
#[derive(Debug, Clone, Default)]
pub struct RunContext {
    /// The agent's run.
    pub run: Option<Token>,
    /// The call inside the run.
    pub call: Option<Token>,
    /// Trace and span of the caller.
    pub trace: Option<Trace>,
}

/// A record on its way out.
#[derive(Debug, Clone)]
pub(crate) enum Delivered {
    /// Admitted as current; the commit of the read event checks that it still is.
    Current(Fresh<Record>),
    /// A turn of the present sitting; the commit checks that its conversation still is the subject's.
    Sitting(Fresh<Record>),
    /// Part of a pack that is rebuilt: delivered once, and never again served as current. The commit checks that
    /// it is still kept.
    Past(Record),
}

impl Delivered {
    pub(crate) fn record(&self) -> &Record {
        match self {
            Self::Current(fresh) | Self::Sitting(fresh) => fresh.get(),
            Self::Past(record) => record,
        }
    }
}

/// A record on its way out, with the score it was ranked by.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) record: Delivered,
    pub(crate) score: Option<f32>,
}

/// Everything about a read but the commitments.
pub(crate) struct Reading<'a> {
    pub(crate) id: ReadId,
    pub(crate) kind: ReadKind,
    pub(crate) run: &'a RunContext,
    pub(crate) index: IndexVersion,
    pub(crate) top_k: u32,
    pub(crate) request: &'a [u8],
    pub(crate) tokens: u32,
    pub(crate) content_kept: &'static str,
    /// The generation of sources and rights that the answer rests on: if that has risen, nothing leaves.
    pub(crate) knowledge: Option<KnowledgeEpoch>,
}

/// Hands out fresh opening keys and remembers them for the evidence store.
pub(crate) struct Openings<'a> {
    app: &'a App,
    keys: Vec<u8>,
}

impl<'a> Openings<'a> {
    pub(crate) fn new(app: &'a App) -> Self {
        Self { app, keys: Vec::new() }
    }

    /// Commits to `content` under a fresh key (L-18).
    pub(crate) fn commit(&mut self, label: &str, content: &[u8]) -> Result<Commitment, Attempt> {
        let (commitment, opening) = self.app.opening_key().commit(&token(label)?, content);
        self.keys.extend_from_slice(opening.key().expose());
        Ok(commitment)
    }
}

impl App {
    /// A fresh key for one commitment.
    pub(crate) fn opening_key(&self) -> OpeningKey {
        let mut bytes = [0u8; 32];
        self.env.fill(&mut bytes);
        OpeningKey::from_bytes(bytes)
    }

    /// Records a read and releases its answer: the event is durable before this returns.
    pub(crate) async fn release(
        &self,
        pass: &Pass<'_, class::Read>,
        reading: Reading<'_>,
        outgoing: &[Outgoing],
        body: Vec<u8>,
        pack: Option<Pack>,
    ) -> Result<Released, Attempt> {
        let now = self.env.now();
        let mut openings = Openings::new(self);
        let request = openings.commit("request", reading.request)?;
        let result = openings.commit("result", &body)?;
        let mut items = Vec::with_capacity(outgoing.len());
        for out in outgoing {
            items.push(read_item(out, &mut openings)?);
        }
        let boundary = &self.settings.boundary;
        let event = ReadEvent {
            id: reading.id.clone(),
            kind: reading.kind,
            run: reading.run.run.as_ref().map(|t| t.as_str().to_owned()),
            call: reading.run.call.as_ref().map(|t| t.as_str().to_owned()),
            index: reading.index,
            request,
            top_k: reading.top_k,
            boundary: (boundary.name.clone(), boundary.version.clone()),
            trace: reading.run.trace.clone(),
            content_kept: reading.content_kept,
            result,
            tokens: reading.tokens,
            items,
        };
        let record = ReadRecord {
            event,
            standing: outgoing.iter().map(shown).collect(),
            knowledge: reading.knowledge,
            openings: openings.keys,
            keep_until: now.plus_days(self.settings.evidence_days),
            pack,
        };
        let receipt = self.backend.commit(Batch::read(pass, record, now)).await?;
        Released::seal(body, reading.id, receipt)
    }
}

fn shown(out: &Outgoing) -> Shown {
    match (&out.record, out.record.record()) {
        (Delivered::Sitting(_), Record::Turn(turn)) => Shown::Sitting(turn.conversation.clone()),
        (Delivered::Past(_), Record::Memory(memory)) => Shown::Past(memory.id.clone(), memory.revision),
        (Delivered::Past(_), Record::Passage(passage)) => Shown::Cited(passage.id.clone()),
        (_, Record::Memory(memory)) => Shown::Current(memory.id.clone(), memory.revision),
        (_, Record::Turn(turn)) => Shown::Turn(turn.conversation.clone(), turn.number),
        (_, Record::Passage(passage)) => Shown::Passage(passage.id.clone()),
    }
}

fn read_item(out: &Outgoing, openings: &mut Openings<'_>) -> Result<ReadItem, Attempt> {
    let score_micro = out.score.map(micro);
    match out.record.record() {
        Record::Memory(memory) => {
            let (id, revision) = (memory.id.as_str().to_owned(), memory.revision.number());
            let text = memory.statement.text().expose();
            let statement = statement(&id, revision, memory.written_at, text)?;
            Ok(ReadItem {
                label: memory_label(memory),
                written_at: memory.written_at,
                personal: matches!(memory.owner, Owner::Subject(_)),
                score_micro,
                commitment: openings.commit("record", &statement)?,
                id,
                revision,
            })
        }
        Record::Passage(passage) => passage_item(passage, score_micro, openings),
        Record::Turn(turn) => {
            let (id, revision) = (turn.conversation.as_str().to_owned(), turn.number);
            let statement = statement(&id, revision, turn.at, turn.text.expose())?;
            Ok(ReadItem {
                label: RecordLabel::Conversation,
                written_at: turn.at,
                personal: true,
                score_micro,
                commitment: openings.commit("record", &statement)?,
                id,
                revision,
            })
        }
    }
}

/// A passage names source, checksum, revision, receipt, page and region in its commitment, so an auditor opens exactly what was read
///
fn passage_item(
    passage: &Passage,
    score: Option<i64>,
    openings: &mut Openings<'_>,
) -> Result<ReadItem, Attempt> {
    let id = passage.id.to_string();
    let revision = Integer::from_count(u64::from(passage.revision.number())).ok_or(Error::Unavailable)?;
    let place = DocumentPlace {
        source: &token(passage.source.as_str())?,
        sha256: &passage.document,
        page: passage.region.page(),
        unit: passage.region.unit().name(),
        lines: passage.region.lines(),
        bounds: passage.region.bounds(),
    };
    let text = passage.text.expose().as_bytes();
    let statement = document_statement(&token(&id)?, revision, utc(passage.received_at)?, &place, text);
    Ok(ReadItem {
        label: RecordLabel::Document,
        written_at: passage.received_at,
        personal: false,
        score_micro: score,
        commitment: openings.commit("record", &statement)?,
        id,
        revision: passage.revision.number(),
    })
}

/// A value written by a model stays labelled so.
fn memory_label(memory: &Memory) -> RecordLabel {
    match memory.statement.author() {
        Author::Model => RecordLabel::Model,
        Author::Document => RecordLabel::Document,
        Author::Person | Author::Application | Author::Import => RecordLabel::Memory,
    }
}

fn statement(
    id: &str,
    revision: u32,
    at: merkwelt_domain::Timestamp,
    text: &str,
) -> Result<Vec<u8>, Attempt> {
    let revision = Integer::from_count(u64::from(revision)).ok_or(Error::Unavailable)?;
    Ok(record_statement(&token(id)?, revision, utc(at)?, text.as_bytes()))
}

fn micro(score: f32) -> i64 {
    // Scores lie between 0 and about 3, so millionths fit by far.
    let scaled = (f64::from(score) * 1_000_000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the clamp")]
    let value = scaled.clamp(-1e12, 1e12) as i64;
    value
}
