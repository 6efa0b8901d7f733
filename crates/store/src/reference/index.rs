//! Searching in two steps: an engine proposes ids with scores, and records dispose (I-3): what is shown is
//! read again under the scope. [`Engine::Filtering`] proposes from the visible rows only; the other one is
//! deliberately broken, to show that a broken engine costs quality and never isolation.

use std::collections::BTreeSet;

use merkwelt_domain::freshness::admit;
use merkwelt_domain::memory::Memory;
use merkwelt_domain::source::Title;
use merkwelt_domain::{ConversationId, TenantId};

use super::library::Shown;
use super::read::is_current;
use super::rows::{MemoryRow, State, TurnRow};
use super::view::View;
use crate::analysis::{analyse, analyse_passage, analyse_turn};
use crate::error::Error;
use crate::query::{KindSet, ModelId, RecallQuery, Turns, Vector};
use crate::ranking::{Place, QueryTerms, Scorer, VisibleStats, cosine, fuse};
use crate::record::{Candidate, IndexVersion, Ranking, Recalled, Record, RecordId, Scores};

/// How proposals are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// From what passes scope, kind and time.
    Filtering,
    /// From everything of everybody, without a look at any filter.
    Unfiltered,
}

/// A proposal of an engine: no record, only where it would stand.
struct Proposal {
    place: Place,
    scores: Scores,
}

/// A search.
pub(super) fn recall(
    state: &State,
    view: &View,
    engine: Engine,
    query: &RecallQuery,
) -> Result<Recalled, Error> {
    if let Some((vector, _)) = &query.vector {
        state.check_model(view, vector)?;
    }
    let kinds = query.kinds.clone().rankable();
    let rows = state.rows();
    let considered = rows.iter().filter(|row| row.passes(state, view, &kinds, query)).count();
    let proposals = match engine {
        Engine::Filtering => {
            let visible = rows.into_iter().filter(|row| row.passes(state, view, &kinds, query));
            propose(state, visible.collect(), query)
        }
        Engine::Unfiltered => propose(state, rows, query),
    };
    let mut shown = BTreeSet::new();
    let candidates = proposals
        .into_iter()
        // An engine that still holds past revisions of a record proposes it more than once.
        .filter(|proposal| shown.insert(proposal.place.id.clone()))
        .filter_map(|proposal| dispose(state, view, &kinds, query, &proposal))
        .collect();
    Ok(Recalled {
        candidates,
        considered: u64::try_from(considered).unwrap_or(u64::MAX),
        epochs: view.epochs,
        ranking: if query.vector.is_some() { Ranking::Hybrid } else { Ranking::Lexical },
        index: IndexVersion { id: "reference".to_owned(), build: view.epochs.content.number() },
    })
}

/// The best k of these rows.
fn propose(state: &State, rows: Vec<Row<'_>>, query: &RecallQuery) -> Vec<Proposal> {
    let mut terms = QueryTerms::of(query.question.expose());
    let mut stats = VisibleStats::default();
    let mut counted = Vec::with_capacity(rows.len());
    for row in rows {
        let own = row.terms(state);
        let (frequencies, length) =
            (terms.frequencies_in(&own), u32::try_from(own.len()).unwrap_or(u32::MAX));
        terms.observe(&frequencies);
        stats.observe(length);
        counted.push((row, frequencies, length));
    }
    let scorer = Scorer::new(stats, &terms);
    let mut proposals: Vec<Proposal> = counted
        .iter()
        .map(|(row, frequencies, length)| {
            let asked = query.vector.as_ref();
            let near = asked.zip(row.vector()).and_then(|((asked, _), own)| compare(asked, own));
            let scores = fuse(scorer.lexical(frequencies, *length), near, asked.map(|(_, fusion)| *fusion));
            Proposal { place: row.place(scores.total), scores }
        })
        .collect();
    proposals.sort_by(|a, b| a.place.order(&b.place));
    proposals.truncate(query.k.get());
    proposals
}

/// Vectors of different models are never compared (I-14).
fn compare(asked: &Vector, own: &Vector) -> Option<f32> {
    if asked.model == own.model { cosine(&asked.values, &own.values) } else { None }
}

/// What the system of record has under a proposed id, if the scope and the query's filters let it pass.
fn dispose(
    state: &State,
    view: &View,
    kinds: &KindSet,
    query: &RecallQuery,
    proposal: &Proposal,
) -> Option<Candidate> {
    // INVARIANT: I-3, the row is looked up and checked here whatever the engine did.
    let row = state
        .rows()
        .into_iter()
        .find(|row| row.place(0.0).id == proposal.place.id && row.passes(state, view, kinds, query))?;
    Some(Candidate { record: row.record(), scores: proposal.scores })
}

/// A row that can be searched for.
enum Row<'s> {
    Memory(&'s MemoryRow),
    Turn(&'s TurnRow),
    Passage(Box<Shown<'s>>),
}

impl State {
    fn rows(&self) -> Vec<Row<'_>> {
        let passages = self.all_passages().map(|shown| Row::Passage(Box::new(shown)));
        self.memories
            .iter()
            .map(Row::Memory)
            .chain(self.turns.iter().map(Row::Turn))
            .chain(passages)
            .collect()
    }

    /// Refuses a vector of another model than the tenant's.
    pub(super) fn check_model(&self, view: &View, vector: &Vector) -> Result<(), Error> {
        if self.vectors_of(&view.tenant).any(|kept| kept.model != vector.model) {
            Err(Error::ModelMismatch)
        } else {
            Ok(())
        }
    }

    /// The model of a tenant's vectors.
    pub(super) fn model_of(&self, tenant: &TenantId) -> Option<ModelId> {
        self.vectors_of(tenant).next().map(|kept| kept.model.clone())
    }

    fn vectors_of<'s>(&'s self, tenant: &'s TenantId) -> impl Iterator<Item = &'s Vector> {
        let memories = self.memories.iter().map(|row| (&row.tenant, &row.vector));
        let turns = self.turns.iter().map(|row| (&row.tenant, &row.vector));
        let rows = memories.chain(turns).filter(move |(owner, _)| *owner == tenant);
        rows.filter_map(|(_, vector)| vector.as_ref()).chain(self.passage_vectors(tenant))
    }

    fn previous_turn(&self, row: &TurnRow) -> Option<&str> {
        let number = row.turn.number.checked_sub(1)?;
        let is_previous = |other: &&TurnRow| {
            other.tenant == row.tenant
                && other.turn.conversation == row.turn.conversation
                && other.turn.number == number
        };
        self.turns.iter().find(is_previous).map(|other| other.turn.text.expose())
    }
}

impl Row<'_> {
    /// Whether the row may be seen, is current, and passes the filters of the query.
    fn passes(&self, state: &State, view: &View, kinds: &KindSet, query: &RecallQuery) -> bool {
        match self {
            Row::Memory(row) => {
                view.sees(&row.tenant, &row.memory.owner)
                    && is_current(&row.memory, query.now, query.interval)
                    && kinds.contains(row.memory.statement.kind())
                    && (query.conversation.is_none() || row.memory.conversation == query.conversation)
                    && has_metadata(&row.memory, query)
            }
            Row::Turn(row) => {
                view.owns(&row.tenant, &row.owner)
                    && admit(row.turn.clone(), query.now, query.interval).is_ok()
                    && wants_turns(state, view, &row.turn.conversation, query)
            }
            Row::Passage(shown) => {
                let mut visible = state.current_passages(view, query.now, query.interval);
                query.documents
                    && query.metadata.is_empty()
                    && query.conversation.is_none()
                    && visible.any(|other| other.passage.id == shown.passage.id)
            }
        }
    }

    fn terms(&self, state: &State) -> Vec<String> {
        match self {
            Row::Memory(row) => analyse(row.memory.statement.text().expose()),
            Row::Turn(row) => analyse_turn(state.previous_turn(row), row.turn.text.expose()),
            Row::Passage(shown) => {
                let passage = &shown.passage;
                let headings = passage.headings.iter().map(Title::expose);
                analyse_passage(passage.title.expose(), headings, passage.text.expose())
            }
        }
    }

    fn vector(&self) -> Option<&Vector> {
        match self {
            Row::Memory(row) => row.vector.as_ref(),
            Row::Turn(row) => row.vector.as_ref(),
            Row::Passage(shown) => shown.vector,
        }
    }

    fn record(&self) -> Record {
        match self {
            Row::Memory(row) => Record::Memory(row.memory.clone()),
            Row::Turn(row) => Record::Turn(row.turn.clone()),
            Row::Passage(shown) => Record::Passage(shown.passage.clone()),
        }
    }

    fn place(&self, total: f32) -> Place {
        match self {
            Row::Memory(row) => Place {
                total,
                written_at: row.memory.written_at,
                id: RecordId::Memory(row.memory.id.clone()),
            },
            Row::Turn(row) => Place {
                total,
                written_at: row.turn.at,
                id: RecordId::Turn(row.turn.conversation.clone(), row.turn.number),
            },
            Row::Passage(shown) => Place {
                total,
                written_at: shown.passage.received_at,
                id: RecordId::Passage(shown.passage.id.clone()),
            },
        }
    }
}

fn has_metadata(memory: &Memory, query: &RecallQuery) -> bool {
    let kept = memory.statement.metadata().expose();
    query.metadata.iter().all(|(name, value)| kept.get(name) == Some(value))
}

/// Turns have no metadata, so a filter by metadata leaves none of them.
fn wants_turns(state: &State, view: &View, id: &ConversationId, query: &RecallQuery) -> bool {
    let chosen = match &query.turns {
        Turns::None => false,
        Turns::Of(wanted) => wanted == id,
        Turns::All => true,
    };
    chosen && query.metadata.is_empty() && state.own_conversation(view, id).is_some()
}
