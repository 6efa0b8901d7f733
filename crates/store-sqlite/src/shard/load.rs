//! From records to the shard: decrypt, analyse, pack. Rules are never ranked, so they are not taken in, and
//! nothing of a person is kept but terms, packed vectors and the caller's metadata.

use std::collections::BTreeSet;
use std::sync::Arc;

use merkwelt_store::Error;
use merkwelt_store::analysis;
use rusqlite::{Connection, OptionalExtension as _, Row};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::{OwnerKeys, Place};
use crate::error::Sql as _;
use crate::library::{PASSAGES_TO_SEARCH, audience_of, passage_place, terms_of};
use crate::rows::{
    blob_at, kind_code, kind_of, memory_place, open_metadata, open_text, text_at, turn_place, vector_of,
};
use crate::shard::index::{Entry, PASSAGE, Shard, TURN, memory_key, passage_key, turn_key};
use crate::shard::{Term, Touch};
use crate::terms::{self, Kept};

const MEMORY_COLUMNS: &str =
    "id, revision, owner, kind, conversation, valid_from, expires_at, written_at, body, vector, terms, seq";
// Kind 0 is `feedback`, the first of `Kind::ALL`.
const RANKED: &str =
    "standing = 0 AND kind <> 0 AND owner NOT IN (SELECT id FROM subjects WHERE erasing = 1)";
const TURN_COLUMNS: &str = "conversation, number, owner, at, expires_at, body, vector, terms, seq";

/// Everything searchable of a cell.
pub(crate) fn build(cell: &Cell, db: &Connection) -> Result<Shard, Error> {
    let count = "SELECT (SELECT count(*) FROM memories) + (SELECT count(*) FROM turns)";
    let rows: usize = db.query_row(count, [], |row| row.get(0)).sql()?;
    let mut shard = Shard::to_build(rows);
    let mut scratch = Scratch::default();
    // In the order of owners, so that each key is unwrapped once. The index is named, because with another one
    // whole rows would be sorted, and read in the order of their ids from all over the file.
    let sql = format!(
        "SELECT {MEMORY_COLUMNS} FROM memories INDEXED BY memories_by_owner WHERE {RANKED}
         ORDER BY owner_kind, owner"
    );
    let mut statement = db.prepare(&sql).sql()?;
    let mut rows = statement.query([]).sql()?;
    while let Some(row) = rows.next().sql()? {
        shard.insert(memory(cell, row, &mut scratch)?)?;
    }
    let sql = format!(
        "SELECT {TURN_COLUMNS} FROM turns
         WHERE owner NOT IN (SELECT id FROM subjects WHERE erasing = 1) ORDER BY conversation, number"
    );
    let mut statement = db.prepare(&sql).sql()?;
    let mut rows = statement.query([]).sql()?;
    let mut before: Option<(String, u32, Vec<Term>)> = None;
    while let Some(row) = rows.next().sql()? {
        let (conversation, number) = (text_at(row, 0)?.to_owned(), row.get::<_, u32>(1).sql()?);
        let own = turn_terms(cell, row, &mut scratch)?;
        let previous = before
            .filter(|(of, last, _)| *of == conversation && last.checked_add(1) == Some(number))
            .map(|(_, _, terms)| terms);
        shard.insert(turn(cell, row, previous, own.clone(), &mut scratch)?)?;
        before = Some((conversation, number, own));
    }
    for source in crate::library::active_sources(db)? {
        take_source(cell, db, &mut shard, &source, &mut scratch)?;
    }
    shard.built();
    Ok(shard)
}

/// What is opened one after the other: a buffer for each value alone would cost more than opening it.
#[derive(Default)]
struct Scratch {
    plain: Zeroizing<Vec<u8>>,
    vector: Vec<f32>,
    /// Whose keys were used last.
    keys: Option<(String, Arc<OwnerKeys>)>,
}

impl Scratch {
    /// The keys of an owner. Rows come in the order of owners.
    fn keys(&mut self, cell: &Cell, owner: &str) -> Result<Arc<OwnerKeys>, Error> {
        // INVARIANT: I-9, a key is destroyed only while nobody reads, and this lives no longer than one read.
        if let Some((_, keys)) = self.keys.as_ref().filter(|(last, _)| last == owner) {
            return Ok(Arc::clone(keys));
        }
        let keys = cell.owner_keys(owner)?;
        self.keys = Some((owner.to_owned(), Arc::clone(&keys)));
        Ok(keys)
    }

    fn vector(
        &mut self,
        keys: &OwnerKeys,
        place: Place<'_>,
        sealed: Option<&[u8]>,
    ) -> Result<Option<&[f32]>, Error> {
        let Some(sealed) = sealed else { return Ok(None) };
        keys.sealer.open_into(place, sealed, &mut self.plain)?;
        vector_of(&self.plain, &mut self.vector)?;
        Ok(Some(&self.vector))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A vector is personal data like the text.
        zeroize::Zeroize::zeroize(&mut self.vector);
    }
}

/// Reads again what was touched.
pub(crate) fn apply(
    cell: &Cell,
    db: &Connection,
    shard: &mut Shard,
    touched: &BTreeSet<Touch>,
) -> Result<(), Error> {
    let mut scratch = Scratch::default();
    for touch in touched {
        match touch {
            Touch::Memory(id) => {
                shard.remove(&memory_key(id)?);
                let sql = format!("SELECT {MEMORY_COLUMNS} FROM memories WHERE id = ?1 AND {RANKED}");
                let mut statement = db.prepare_cached(&sql).sql()?;
                let mut rows = statement.query([id.as_str()]).sql()?;
                if let Some(row) = rows.next().sql()? {
                    shard.insert(memory(cell, row, &mut scratch)?)?;
                }
            }
            Touch::Turn(id, number) => {
                shard.remove(&turn_key(id, *number)?);
                one_turn(cell, db, (id.as_str(), *number), shard, &mut scratch)?;
            }
            Touch::Conversation(id) => shard.remove_turns(id),
            Touch::Source(id) => take_source(cell, db, shard, id.as_str(), &mut scratch)?,
            // A shard that this was announced to is built anew and does not come here.
            Touch::Everything => return Err(Error::Unavailable),
        }
    }
    Ok(())
}

/// The passages of the current revision of a source, if it has one, and who may be shown them.
fn take_source(
    cell: &Cell,
    db: &Connection,
    shard: &mut Shard,
    source: &str,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    shard.renew_source(source, audience_of(db, source)?)?;
    let mut statement = db.prepare_cached(PASSAGES_TO_SEARCH).sql()?;
    let mut rows = statement.query([source]).sql()?;
    while let Some(row) = rows.next().sql()? {
        shard.insert(passage(cell, row, source, scratch)?)?;
    }
    Ok(())
}

fn passage<'s>(
    cell: &Cell,
    row: &Row<'_>,
    source: &str,
    scratch: &'s mut Scratch,
) -> Result<Entry<'s>, Error> {
    let (revision, number) = (text_at(row, 0)?, row.get::<_, u32>(1).sql()?);
    let keys = scratch.keys(cell, source)?;
    let place = |column| passage_place(&cell.tenant, revision, number, column);
    let terms = match row.get_ref(5).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)? {
        Some(sealed) => {
            keys.sealer.open_into(place("terms"), sealed, &mut scratch.plain)?;
            terms::read(cell.analysis, &scratch.plain)?
        }
        None => None,
    };
    let terms = match terms {
        Some(kept) => kept.terms,
        None => terms::known(&terms_of(cell, row, source)?),
    };
    let vector: Option<&[u8]> = row.get_ref(6).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    Ok(Entry {
        key: passage_key(&revision.parse().map_err(|_| Error::Damaged)?, number)?,
        seq: row.get(9).sql()?,
        revision: 1,
        owner: source.to_owned(),
        kind: PASSAGE,
        conversation: None,
        valid_from: row.get(2).sql()?,
        end: row.get::<_, Option<i64>>(3).sql()?.unwrap_or(i64::MAX),
        written_at: row.get(4).sql()?,
        terms,
        metadata: None,
        vector: scratch.vector(&keys, place("vector"), vector)?,
    })
}

fn one_turn(
    cell: &Cell,
    db: &Connection,
    (id, number): (&str, u32),
    shard: &mut Shard,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let sql = format!("SELECT {TURN_COLUMNS} FROM turns WHERE conversation = ?1 AND number = ?2");
    let mut statement = db.prepare_cached(&sql).sql()?;
    let before = if number > 1 {
        let read = |row: &Row<'_>| Ok(turn_terms(cell, row, scratch));
        statement.query_row((id, number - 1), read).optional().sql()?.transpose()?
    } else {
        None
    };
    let mut rows = statement.query((id, number)).sql()?;
    let Some(row) = rows.next().sql()? else { return Ok(()) };
    let own = turn_terms(cell, row, scratch)?;
    shard.insert(turn(cell, row, before, own, scratch)?)
}

fn memory<'s>(cell: &Cell, row: &Row<'_>, scratch: &'s mut Scratch) -> Result<Entry<'s>, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 2)?);
    let revision: u32 = row.get(1).sql()?;
    let keys = scratch.keys(cell, owner)?;
    let place = |column| memory_place(&cell.tenant, id, revision, column);
    let kept = kept(cell, &keys, (place("terms"), blob_at(row, 10)?), &mut scratch.plain)?;
    let mut metadata = None;
    if kept.as_ref().is_none_or(|kept| kept.metadata) {
        keys.sealer.open_into(place("body"), blob_at(row, 8)?, &mut scratch.plain)?;
        metadata = open_metadata(&scratch.plain)?;
    }
    let terms = match kept {
        Some(kept) => kept.terms,
        None => terms::of(&open_text(&scratch.plain)?),
    };
    let vector: Option<&[u8]> = row.get_ref(9).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    Ok(Entry {
        key: memory_key(&id.parse().map_err(|_| Error::Damaged)?)?,
        seq: row.get(11).sql()?,
        revision,
        owner: owner.to_owned(),
        kind: kind_code(kind_of(row.get(3).sql()?)?),
        conversation: row.get(4).sql()?,
        valid_from: row.get(5).sql()?,
        end: row.get::<_, Option<i64>>(6).sql()?.unwrap_or(i64::MAX),
        written_at: row.get(7).sql()?,
        terms,
        metadata,
        vector: scratch.vector(&keys, place("vector"), vector)?,
    })
}

/// What was kept of a text, if this analysis made it.
fn kept(
    cell: &Cell,
    keys: &OwnerKeys,
    (place, sealed): (Place<'_>, &[u8]),
    plain: &mut Zeroizing<Vec<u8>>,
) -> Result<Option<Kept>, Error> {
    keys.sealer.open_into(place, sealed, plain)?;
    terms::read(cell.analysis, plain)
}

fn turn_terms(cell: &Cell, row: &Row<'_>, scratch: &mut Scratch) -> Result<Vec<Term>, Error> {
    let number: u32 = row.get(1).sql()?;
    let keys = scratch.keys(cell, text_at(row, 2)?)?;
    let id = text_at(row, 0)?;
    let place = |column| turn_place(&cell.tenant, id, number, column);
    if let Some(kept) = kept(cell, &keys, (place("terms"), blob_at(row, 7)?), &mut scratch.plain)? {
        return Ok(kept.terms);
    }
    keys.sealer.open_into(place("body"), blob_at(row, 5)?, &mut scratch.plain)?;
    std::str::from_utf8(&scratch.plain).map(terms::of).map_err(|_| Error::Damaged)
}

/// A turn is found by what it answers too (`merkwelt_store::analysis::analyse_turn`).
fn turn<'s>(
    cell: &Cell,
    row: &Row<'_>,
    before: Option<Vec<Term>>,
    own: Vec<Term>,
    scratch: &'s mut Scratch,
) -> Result<Entry<'s>, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 2)?);
    let number: u32 = row.get(1).sql()?;
    let at: i64 = row.get(3).sql()?;
    let keys = scratch.keys(cell, owner)?;
    let vector: Option<&[u8]> = row.get_ref(6).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    let place = turn_place(&cell.tenant, id, number, "vector");
    Ok(Entry {
        key: turn_key(&id.parse().map_err(|_| Error::Damaged)?, number)?,
        seq: row.get(8).sql()?,
        revision: 1,
        owner: owner.to_owned(),
        kind: TURN,
        conversation: Some(id.to_owned()),
        valid_from: at,
        end: row.get(4).sql()?,
        written_at: at,
        terms: analysis::turn_terms(before, own),
        metadata: None,
        vector: scratch.vector(&keys, place, vector)?,
    })
}
