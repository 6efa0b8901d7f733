//! What turns rest on, looked at for the present caller: still current, superseded, or not to be told (R-058,
//! One look asks for all sources at once, so that no two turns of one answer speak of two generations.

use std::collections::{BTreeMap, BTreeSet};

use merkwelt_authz::{Pass, class};
use merkwelt_domain::basis::{AfterRemoval, Basis, Footing};
use merkwelt_domain::conversation::Turn;
use merkwelt_domain::source::SourceHead;
use merkwelt_domain::{KnowledgeEpoch, SourceId, Timestamp};
use merkwelt_store::query::Key;
use merkwelt_store::record::{Found, Record};

use crate::App;
use crate::error::Attempt;

/// What the caller may know of the sources that some turns rest on.
#[derive(Debug, Default)]
pub(crate) struct Footings {
    heads: BTreeMap<SourceId, SourceHead>,
    after_removal: AfterRemoval,
}

impl Footings {
    /// What became of each basis of a turn.
    pub(crate) fn of(&self, turn: &Turn) -> Vec<(Basis, Footing)> {
        let footing = |basis: &Basis| (basis.clone(), Footing::of(basis, self.heads.get(&basis.source)));
        turn.rests_on.bases().iter().map(footing).collect()
    }

    /// What became of what a record rests on; memories and passages name nothing.
    pub(crate) fn of_record(&self, record: &Record) -> Vec<(Basis, Footing)> {
        match record {
            Record::Turn(turn) => self.of(turn),
            Record::Memory(_) | Record::Passage(_) => Vec::new(),
        }
    }

    /// Whether a turn is withheld, because what it rests on can no longer be read.
    pub(crate) fn withhold(&self, turn: &Turn) -> bool {
        self.after_removal == AfterRemoval::Withhold
            && turn.rests_on.bases().iter().any(|basis| !self.heads.contains_key(&basis.source))
    }

    /// As [`Footings::withhold`], of any record.
    pub(crate) fn withhold_record(&self, record: &Record) -> bool {
        match record {
            Record::Turn(turn) => self.withhold(turn),
            Record::Memory(_) | Record::Passage(_) => false,
        }
    }

    /// Whether any of these is withheld.
    pub(crate) fn withhold_any(&self, records: &[Record]) -> bool {
        records.iter().any(|record| self.withhold_record(record))
    }

    /// The generation in which what is not withheld now is not; none where nothing is ever withheld.
    pub(crate) fn withheld_unless(&self) -> Option<KnowledgeEpoch> {
        self.knowledge().filter(|_| self.after_removal == AfterRemoval::Withhold)
    }

    /// The generation that the answer must still be in when it is released, if it says of anything that it is
    /// current or what took its place.
    pub(crate) fn knowledge(&self) -> Option<KnowledgeEpoch> {
        self.heads.values().map(|head| head.knowledge).next()
    }
}

/// Whether a record is a summary.
pub(crate) fn is_summary(record: &Record) -> bool {
    matches!(record, Record::Turn(turn) if turn.summary.is_some())
}

/// The turns among records.
pub(crate) fn turns<'a>(records: impl IntoIterator<Item = &'a Record>) -> impl Iterator<Item = &'a Turn> {
    records.into_iter().filter_map(|record| match record {
        Record::Turn(turn) => Some(turn),
        Record::Memory(_) | Record::Passage(_) => None,
    })
}

/// The sources that turns rest on.
pub(crate) fn rested_on<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> BTreeSet<SourceId> {
    let bases = turns.into_iter().flat_map(|turn| turn.rests_on.bases());
    bases.map(|basis| basis.source.clone()).collect()
}

impl App {
    /// Looks at these sources, see [`rested_on`].
    pub(crate) async fn footings(
        &self,
        pass: &Pass<'_, class::Read>,
        sources: BTreeSet<SourceId>,
        now: Timestamp,
    ) -> Result<Footings, Attempt> {
        let after_removal = self.settings.after_removal;
        if sources.is_empty() {
            return Ok(Footings { after_removal, ..Footings::default() });
        }
        let keys: Vec<Key> = sources.into_iter().map(Key::Source).collect();
        let found = self.backend.fetch(pass, &keys, now).await?;
        let heads = found.into_iter().filter_map(head).map(|head| (head.id.clone(), head)).collect();
        Ok(Footings { heads, after_removal })
    }
}

fn head(found: Option<Found>) -> Option<SourceHead> {
    match found? {
        Found::Source(head) => Some(head),
        Found::Memory(_) | Found::Conversation(..) | Found::Turn(_) | Found::Pack(_) | Found::Passage(_) => {
            None
        }
    }
}
