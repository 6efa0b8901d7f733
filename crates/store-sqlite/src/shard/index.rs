//! What one tenant's shard holds: a row of small numbers per searchable record, packed vectors, and postings
//! of terms. A removed row is dead at once; its place is given back when a quarter of the rows is dead.

use std::collections::BTreeMap;

use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::{Audience, PassageId};
use merkwelt_domain::{ConversationId, MemoryId, RevisionId};
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use merkwelt_store::record::RecordId;

use crate::shard::keys::Keys;
use crate::shard::postings::{Bulk, Hits, Postings, ROWS_MAX, Term};
use crate::shard::spans::Spans;
use crate::shard::vectors::Vectors;

/// The kind code of a turn; memories have those of their kinds.
pub(crate) const TURN: u8 = 200;
/// The kind code of a passage.
pub(crate) const PASSAGE: u8 = 201;
/// "Without": no conversation, or no end.
pub(crate) const NONE: u32 = u32::MAX;

const SYMBOLS: usize = 26;

/// The key of a searchable record: the symbols of a memory's id and zero, those of a conversation's id and
/// the number of a turn, or those of a revision's id and the number of a passage. Symbols sort as the ids do.
pub(crate) type RowKey = ([u8; SYMBOLS], u32);

pub(crate) fn memory_key(id: &MemoryId) -> Result<RowKey, Error> {
    Ok((symbols(id.as_str(), MemoryId::PREFIX)?, 0))
}

pub(crate) fn turn_key(id: &ConversationId, number: u32) -> Result<RowKey, Error> {
    Ok((symbols(id.as_str(), ConversationId::PREFIX)?, number))
}

pub(crate) fn passage_key(revision: &RevisionId, number: u32) -> Result<RowKey, Error> {
    Ok((symbols(revision.as_str(), RevisionId::PREFIX)?, number))
}

fn symbols(id: &str, prefix: &str) -> Result<[u8; SYMBOLS], Error> {
    id.strip_prefix(prefix).and_then(|body| body.as_bytes().try_into().ok()).ok_or(Error::Damaged)
}

/// A record as the shard takes it in.
pub(crate) struct Entry<'v> {
    pub(crate) key: RowKey,
    /// Where its record stands in its table.
    pub(crate) seq: i64,
    /// The revision of a memory.
    pub(crate) revision: u32,
    pub(crate) owner: String,
    /// The code of a kind, [`TURN`] or [`PASSAGE`].
    pub(crate) kind: u8,
    pub(crate) conversation: Option<String>,
    pub(crate) valid_from: i64,
    /// `i64::MAX` where there is no end.
    pub(crate) end: i64,
    pub(crate) written_at: i64,
    pub(crate) terms: Vec<Term>,
    pub(crate) metadata: Option<serde_json::Map<String, serde_json::Value>>,
    pub(crate) vector: Option<&'v [f32]>,
}

/// The numbers of one record.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) symbols: [u8; SYMBOLS],
    /// A kind's code, [`TURN`] or [`PASSAGE`].
    pub(crate) kind: u8,
    pub(crate) dead: bool,
    /// The revision of a memory, the number of a turn or of a passage.
    pub(crate) number: u32,
    pub(crate) owner: u32,
    /// Where its record stands in its table; the record there must be the one of the key.
    pub(crate) seq: i64,
    pub(crate) conversation: u32,
    pub(crate) valid_from: i64,
    pub(crate) end: i64,
    pub(crate) written_at: i64,
    /// Number of terms.
    pub(crate) length: u32,
}

impl Row {
    /// Its id as ranking and records know it.
    pub(crate) fn id(&self) -> Result<RecordId, Error> {
        let symbols = std::str::from_utf8(&self.symbols).map_err(|_| Error::Damaged)?;
        if self.kind == TURN {
            let id = format!("{}{symbols}", ConversationId::PREFIX).parse().map_err(|_| Error::Damaged)?;
            Ok(RecordId::Turn(id, self.number))
        } else if self.kind == PASSAGE {
            let revision = format!("{}{symbols}", RevisionId::PREFIX).parse().map_err(|_| Error::Damaged)?;
            Ok(RecordId::Passage(PassageId { revision, number: self.number }))
        } else {
            let id = format!("{}{symbols}", MemoryId::PREFIX).parse().map_err(|_| Error::Damaged)?;
            Ok(RecordId::Memory(id))
        }
    }

    pub(crate) fn key(&self) -> RowKey {
        (self.symbols, if self.kind >= TURN { self.number } else { 0 })
    }

    /// The revision of a memory; other records have only the first.
    pub(crate) fn revision(&self) -> Revision {
        Revision::from_number(if self.kind >= TURN { 1 } else { self.number })
    }
}

/// Makes room for so many more, or an eighth of what is there: to double it, as lists do by themselves, would leave
/// half of a shard empty from the first row on that comes late.
pub(crate) fn make_room<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// Numbers for texts that repeat.
#[derive(Default)]
pub(crate) struct Names {
    numbers: BTreeMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> Result<u32, Error> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = u32::try_from(self.numbers.len()).map_err(|_| Error::Unavailable)?;
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

/// One tenant's shard.
#[derive(Default)]
pub(crate) struct Shard {
    /// The content epoch it holds.
    pub(crate) epoch: u64,
    /// The model of its vectors.
    pub(crate) model: Option<ModelId>,
    pub(crate) rows: Vec<Row>,
    pub(crate) spans: Spans,
    pub(crate) vectors: Vectors,
    pub(crate) owners: Names,
    pub(crate) conversations: Names,
    pub(crate) metadata: BTreeMap<u32, serde_json::Map<String, serde_json::Value>>,
    /// Who may be shown a source, by the number of the source among the owners. What is not listed is shown
    /// to nobody.
    pub(crate) audiences: BTreeMap<u32, Audience>,
    /// Complete when the shard is built.
    keys: Keys,
    postings: Postings,
    /// While the shard is built: the terms of its rows.
    bulk: Option<Bulk>,
    dead: usize,
}

impl Shard {
    /// An empty shard that is about to take in about so many rows; [`Shard::built`] ends that.
    pub(crate) fn to_build(rows: usize) -> Self {
        let vectors = Vectors::for_rows(rows);
        Self { bulk: Some(Bulk::default()), rows: Vec::with_capacity(rows), vectors, ..Self::default() }
    }

    pub(crate) fn insert(&mut self, mut entry: Entry<'_>) -> Result<(), Error> {
        let number = u32::try_from(self.rows.len()).map_err(|_| Error::Unavailable)?;
        if number >= ROWS_MAX {
            return Err(Error::Unavailable);
        }
        let conversation =
            entry.conversation.as_deref().map_or(Ok(NONE), |name| self.conversations.number(name))?;
        let row = Row {
            symbols: entry.key.0,
            kind: entry.kind,
            dead: false,
            number: if entry.kind >= TURN { entry.key.1 } else { entry.revision },
            seq: entry.seq,
            owner: self.owners.number(&entry.owner)?,
            conversation,
            valid_from: entry.valid_from,
            end: entry.end,
            written_at: entry.written_at,
            length: u32::try_from(entry.terms.len()).unwrap_or(u32::MAX),
        };
        if self.bulk.is_none() {
            self.remove(&entry.key);
            self.keys.set(&self.rows, &entry.key, number);
        }
        self.vectors.set(self.rows.len(), entry.vector);
        self.spans.push(self.rows.len(), &row);
        make_room(&mut self.rows, 1);
        self.rows.push(row);
        if let Some(metadata) = entry.metadata.filter(|map| !map.is_empty()) {
            self.metadata.insert(number, metadata);
        }
        match &mut self.bulk {
            Some(bulk) => bulk.add(&mut self.postings, number, &mut entry.terms),
            None => self.postings.add(number, &mut entry.terms),
        }
        Ok(())
    }

    /// Makes a row dead.
    pub(crate) fn remove(&mut self, key: &RowKey) {
        if let Some(number) = self.keys.find(&self.rows, key) {
            self.bury(number);
        }
    }

    fn bury(&mut self, number: u32) {
        self.metadata.remove(&number);
        let Some(at) = usize::try_from(number).ok() else { return };
        self.vectors.set(at, None);
        if let Some(row) = self.rows.get_mut(at).filter(|row| !row.dead) {
            row.dead = true;
            self.spans.bury(at, row);
            self.dead += 1;
        }
    }

    /// Makes all turns of a conversation dead.
    pub(crate) fn remove_turns(&mut self, conversation: &ConversationId) {
        let Some(number) = self.conversations.get(conversation.as_str()) else { return };
        let gone = |row: &&Row| row.kind == TURN && row.conversation == number && !row.dead;
        let keys: Vec<RowKey> = self.rows.iter().filter(gone).map(Row::key).collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// Takes a source in anew: its passages die, and its audience is the given one.
    pub(crate) fn renew_source(&mut self, source: &str, audience: Option<Audience>) -> Result<(), Error> {
        let number = self.owners.number(source)?;
        let gone = |row: &&Row| row.kind == PASSAGE && row.owner == number && !row.dead;
        let keys: Vec<RowKey> = self.rows.iter().filter(gone).map(Row::key).collect();
        for key in keys {
            self.remove(&key);
        }
        match audience {
            Some(audience) => self.audiences.insert(number, audience),
            None => self.audiences.remove(&number),
        };
        Ok(())
    }

    /// Whether a passage is held.
    pub(crate) fn holds(&self, key: &RowKey) -> bool {
        self.keys.find(&self.rows, key).is_some()
    }

    /// How many rows are alive.
    pub(crate) fn alive(&self) -> usize {
        self.rows.len() - self.dead
    }

    /// How many living rows belong to an owner.
    pub(crate) fn owned_by(&self, owner: &str) -> u64 {
        let Some(number) = self.owners.get(owner) else { return 0 };
        let owned = self.rows.iter().filter(|row| !row.dead && row.owner == number).count();
        u64::try_from(owned).unwrap_or(u64::MAX)
    }

    /// The rows of a term in ascending order, each with how often it occurs there.
    pub(crate) fn hits(&self, term: &str) -> Hits<'_> {
        self.postings.hits(Term::of(term))
    }

    /// Gives back the places of dead rows once they are a quarter of all.
    pub(crate) fn tidy(&mut self) {
        if self.dead * 4 <= self.rows.len() {
            return;
        }
        let keep: Vec<bool> = self.rows.iter().map(|row| !row.dead).collect();
        let mut next = 0_u32;
        let moved: Vec<Option<u32>> = keep
            .iter()
            .map(|alive| {
                let place = alive.then_some(next);
                next += u32::from(*alive);
                place
            })
            .collect();
        let to = |row: u32| usize::try_from(row).ok().and_then(|row| moved.get(row).copied().flatten());
        self.rows.retain(|row| !row.dead);
        self.spans = Spans::of(&self.rows);
        self.vectors.retain(&keep);
        self.metadata = std::mem::take(&mut self.metadata)
            .into_iter()
            .filter_map(|(row, map)| Some((to(row)?, map)))
            .collect();
        self.keys.renumber(to);
        self.postings.renumber(to);
        self.dead = 0;
    }

    /// Ends the building: everything can be found, and what was reserved for growth is given back.
    pub(crate) fn built(&mut self) {
        if let Some(bulk) = self.bulk.take() {
            bulk.into(&mut self.postings);
        }
        let (keys, taken) = Keys::of(&self.rows);
        self.keys = keys;
        taken.into_iter().for_each(|number| self.bury(number));
        self.rows.shrink_to_fit();
        self.spans.shrink();
        self.vectors.shrink();
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.vectors.bytes()
            + self.rows.capacity() * size_of::<Row>()
            + self.keys.bytes()
            + self.spans.bytes()
            + self.postings.bytes()
            + self.metadata.len() * 256
    }

    /// Everything it holds in an order that does not depend on its history.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (number, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.dead) {
            let name = |names: &Names, of: u32| {
                names.numbers.iter().find(|(_, number)| **number == of).map(|(name, _)| name.clone())
            };
            let mut terms = Vec::new();
            for term in self.postings.terms() {
                let here = self.postings.hits(term).filter(|(hit, _)| usize::try_from(*hit) == Ok(number));
                terms.extend(here.map(|(_, count)| format!("{term:?}*{count}")));
            }
            let probe = crate::shard::vectors::Probe::of(&[0.3, -0.2, 0.5, 0.1]).unwrap();
            let cosines = self.vectors.cosine(number, &probe);
            let number = u32::try_from(number).unwrap();
            lines.push(format!(
                "{:?} r{} {:?} {:?} {}..{} at {} kind {} length {} {:?} {terms:?} {:?}",
                row.id().unwrap(),
                row.revision().number(),
                name(&self.owners, row.owner),
                name(&self.conversations, row.conversation),
                row.valid_from,
                row.end,
                row.written_at,
                row.kind,
                row.length,
                self.metadata.get(&number),
                cosines,
            ));
        }
        lines.sort();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(shard: &mut Shard, number: u32) {
        let vector = [1.0; 384];
        let entry = Entry {
            key: ([b'A'; 26], number),
            seq: i64::from(number),
            revision: 1,
            owner: "sub_a".to_owned(),
            kind: TURN,
            conversation: None,
            valid_from: 0,
            end: i64::MAX,
            written_at: 0,
            terms: crate::terms::of("a few words"),
            metadata: None,
            vector: Some(&vector),
        };
        shard.insert(entry).unwrap();
    }

    #[test]
    fn a_built_shard_grows_by_little_when_a_row_comes_late() {
        let mut shard = Shard::to_build(2_000);
        (0..2_000).for_each(|number| insert(&mut shard, number));
        shard.built();
        let built = shard.bytes();
        insert(&mut shard, 2_000);
        assert!(shard.bytes() < built + built / 6, "from {built} to {} bytes", shard.bytes());
    }
}
