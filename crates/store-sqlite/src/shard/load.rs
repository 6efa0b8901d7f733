//! From records to the shard: decrypt, analyse, pack. Rules are never ranked, so they are not taken in, and
//! nothing of a person is kept but terms, packed vectors and the caller's metadata.

use std::collections::BTreeSet;

use merkwelt_store::Error;
use merkwelt_store::analysis;
use rusqlite::{Connection, OptionalExtension as _, Row};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::{OwnerKeys, Place};
use crate::error::Sql as _;
use crate::library::{PASSAGES_TO_SEARCH, audience_of, passage_place, terms_of};
use crate::rows::{blob_at, kind_code, kind_of, memory_place, open_vector, open_words, text_at, turn_place};
use crate::shard::Touch;
use crate::shard::index::{Entry, PASSAGE, Shard, TURN, memory_key, passage_key, turn_key};
use crate::terms;

const MEMORY_COLUMNS: &str =
    "id, revision, owner, kind, conversation, valid_from, expires_at, written_at, body, vector, terms";
// Kind 0 is `feedback`, the first of `Kind::ALL`.
const RANKED: &str =
    "standing = 0 AND kind <> 0 AND owner NOT IN (SELECT id FROM subjects WHERE erasing = 1)";
const TURN_COLUMNS: &str = "conversation, number, owner, at, expires_at, body, vector, terms";

/// Everything searchable of a cell.
pub(crate) fn build(cell: &Cell, db: &Connection) -> Result<Shard, Error> {
    let mut shard = Shard::default();
    // In the order of owners, so that each key is unwrapped once.
    let sql = format!("SELECT {MEMORY_COLUMNS} FROM memories WHERE {RANKED} ORDER BY owner");
    let mut statement = db.prepare(&sql).sql()?;
    let mut rows = statement.query([]).sql()?;
    while let Some(row) = rows.next().sql()? {
        shard.insert(memory(cell, row)?)?;
    }
    let sql = format!(
        "SELECT {TURN_COLUMNS} FROM turns
         WHERE owner NOT IN (SELECT id FROM subjects WHERE erasing = 1) ORDER BY conversation, number"
    );
    let mut statement = db.prepare(&sql).sql()?;
    let mut rows = statement.query([]).sql()?;
    let mut before: Option<(String, u32, Vec<String>)> = None;
    while let Some(row) = rows.next().sql()? {
        let (conversation, number) = (text_at(row, 0)?.to_owned(), row.get::<_, u32>(1).sql()?);
        let own = turn_terms(cell, row)?;
        let previous = before
            .filter(|(of, last, _)| *of == conversation && last.checked_add(1) == Some(number))
            .map(|(_, _, terms)| terms);
        shard.insert(turn(cell, row, previous, own.clone())?)?;
        before = Some((conversation, number, own));
    }
    for source in crate::library::active_sources(db)? {
        take_source(cell, db, &mut shard, &source)?;
    }
    shard.shrink();
    Ok(shard)
}

/// Reads again what was touched.
pub(crate) fn apply(
    cell: &Cell,
    db: &Connection,
    shard: &mut Shard,
    touched: &BTreeSet<Touch>,
) -> Result<(), Error> {
    for touch in touched {
        match touch {
            Touch::Memory(id) => {
                shard.remove(&memory_key(id)?);
                let sql = format!("SELECT {MEMORY_COLUMNS} FROM memories WHERE id = ?1 AND {RANKED}");
                let mut statement = db.prepare_cached(&sql).sql()?;
                let mut rows = statement.query([id.as_str()]).sql()?;
                if let Some(row) = rows.next().sql()? {
                    shard.insert(memory(cell, row)?)?;
                }
            }
            Touch::Turn(id, number) => {
                shard.remove(&turn_key(id, *number)?);
                if let Some(entry) = one_turn(cell, db, id.as_str(), *number)? {
                    shard.insert(entry)?;
                }
            }
            Touch::Conversation(id) => shard.remove_turns(id),
            Touch::Source(id) => take_source(cell, db, shard, id.as_str())?,
        }
    }
    Ok(())
}

/// The passages of the current revision of a source, if it has one, and who may be shown them.
fn take_source(cell: &Cell, db: &Connection, shard: &mut Shard, source: &str) -> Result<(), Error> {
    shard.renew_source(source, audience_of(db, source)?)?;
    let mut statement = db.prepare_cached(PASSAGES_TO_SEARCH).sql()?;
    let mut rows = statement.query([source]).sql()?;
    while let Some(row) = rows.next().sql()? {
        shard.insert(passage(cell, row, source)?)?;
    }
    Ok(())
}

fn passage(cell: &Cell, row: &Row<'_>, source: &str) -> Result<Entry, Error> {
    let (revision, number) = (text_at(row, 0)?, row.get::<_, u32>(1).sql()?);
    let keys = cell.owner_keys(source)?;
    let place = |column| passage_place(&cell.tenant, revision, number, column);
    let terms = match row.get_ref(5).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)? {
        Some(sealed) => terms::read(cell.analysis, &keys.sealer.open(place("terms"), sealed)?)?,
        None => None,
    };
    let terms = match terms {
        Some(terms) => terms,
        None => terms_of(cell, row, source)?,
    };
    let vector: Option<&[u8]> = row.get_ref(6).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    Ok(Entry {
        key: passage_key(&revision.parse().map_err(|_| Error::Damaged)?, number)?,
        revision: 1,
        owner: source.to_owned(),
        kind: PASSAGE,
        conversation: None,
        valid_from: row.get(2).sql()?,
        end: row.get::<_, Option<i64>>(3).sql()?.unwrap_or(i64::MAX),
        written_at: row.get(4).sql()?,
        terms,
        metadata: None,
        vector: vector.map(|sealed| open_vector(&keys, place("vector"), sealed)).transpose()?,
    })
}

fn one_turn(cell: &Cell, db: &Connection, id: &str, number: u32) -> Result<Option<Entry>, Error> {
    let sql = format!("SELECT {TURN_COLUMNS} FROM turns WHERE conversation = ?1 AND number = ?2");
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut terms_of = |number: u32| -> Result<Option<Vec<String>>, Error> {
        let read = |row: &Row<'_>| Ok(turn_terms(cell, row));
        statement.query_row((id, number), read).optional().sql()?.transpose()
    };
    let before = if number > 1 { terms_of(number - 1)? } else { None };
    let mut rows = statement.query((id, number)).sql()?;
    let Some(row) = rows.next().sql()? else { return Ok(None) };
    turn(cell, row, before, turn_terms(cell, row)?).map(Some)
}

fn memory(cell: &Cell, row: &Row<'_>) -> Result<Entry, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 2)?);
    let revision: u32 = row.get(1).sql()?;
    let keys = cell.owner_keys(owner)?;
    let place = |column| memory_place(&cell.tenant, id, revision, column);
    let (text, metadata) = open_words(&keys.sealer.open(place("body"), blob_at(row, 8)?)?)?;
    let vector: Option<&[u8]> = row.get_ref(9).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    Ok(Entry {
        key: memory_key(&id.parse().map_err(|_| Error::Damaged)?)?,
        revision,
        owner: owner.to_owned(),
        kind: kind_code(kind_of(row.get(3).sql()?)?),
        conversation: row.get(4).sql()?,
        valid_from: row.get(5).sql()?,
        end: row.get::<_, Option<i64>>(6).sql()?.unwrap_or(i64::MAX),
        written_at: row.get(7).sql()?,
        terms: kept_terms(cell, &keys, place("terms"), blob_at(row, 10)?, || Ok(text))?,
        metadata,
        vector: vector.map(|sealed| open_vector(&keys, place("vector"), sealed)).transpose()?,
    })
}

/// The kept terms, or those of the text if another analysis made them.
fn kept_terms(
    cell: &Cell,
    keys: &OwnerKeys,
    place: Place<'_>,
    sealed: &[u8],
    text: impl FnOnce() -> Result<Zeroizing<String>, Error>,
) -> Result<Vec<String>, Error> {
    match terms::read(cell.analysis, &keys.sealer.open(place, sealed)?)? {
        Some(terms) => Ok(terms),
        None => Ok(analysis::analyse(&text()?)),
    }
}

fn turn_terms(cell: &Cell, row: &Row<'_>) -> Result<Vec<String>, Error> {
    let number: u32 = row.get(1).sql()?;
    let keys = cell.owner_keys(text_at(row, 2)?)?;
    let id = text_at(row, 0)?;
    let place = |column| turn_place(&cell.tenant, id, number, column);
    kept_terms(cell, &keys, place("terms"), blob_at(row, 7)?, || {
        let plain = keys.sealer.open(place("body"), blob_at(row, 5)?)?;
        std::str::from_utf8(&plain).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| Error::Damaged)
    })
}

/// A turn is found by what it answers too (`merkwelt_store::analysis::analyse_turn`).
fn turn(cell: &Cell, row: &Row<'_>, before: Option<Vec<String>>, own: Vec<String>) -> Result<Entry, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 2)?);
    let number: u32 = row.get(1).sql()?;
    let at: i64 = row.get(3).sql()?;
    let keys = cell.owner_keys(owner)?;
    let vector: Option<&[u8]> = row.get_ref(6).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    let place = turn_place(&cell.tenant, id, number, "vector");
    Ok(Entry {
        key: turn_key(&id.parse().map_err(|_| Error::Damaged)?, number)?,
        revision: 1,
        owner: owner.to_owned(),
        kind: TURN,
        conversation: Some(id.to_owned()),
        valid_from: at,
        end: row.get(4).sql()?,
        written_at: at,
        terms: analysis::turn_terms(before, own),
        metadata: None,
        vector: vector.map(|sealed| open_vector(&keys, place, sealed)).transpose()?,
    })
}
