//! Vectors for what was written while no embedding model was there. Small transactions, each of which leaves
//! nothing half done, so it can be stopped and begun again at any time.

use merkwelt_domain::Timestamp;
use merkwelt_store::Error;
use merkwelt_store::analysis::turn_passage;
use merkwelt_store::query::ModelId;
use rusqlite::{Connection, OptionalExtension as _};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::Place;
use crate::error::Sql as _;
use crate::instance::Sqlite;
use crate::pool::lock;
use crate::rows::{blob_at, memory_place, open_words, seal_vector, text_at, turn_place};
use crate::shard::Touch;
use crate::writer::Work;

/// Rows of one transaction, and texts that are embedded together.
const ROWS_MAX: usize = 32;

/// How far the filling of vectors came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filled {
    /// Rows that were without a vector when it began.
    pub total: u64,
    /// Rows that have got one.
    pub filled: u64,
    /// Rows that were tried and are still without.
    pub failed: u64,
}

/// What makes vectors: one result per text, in their order, `None` for a text that cannot be embedded.
pub type EmbedTexts<'e> = dyn FnMut(&[&str]) -> Vec<Option<Vec<f32>>> + 'e;

impl Sqlite {
    /// Gives a vector of `model` to every current row that is ranked and has none, in all tenants: memories
    /// but rules, and kept turns, each by the text as when it is written. `progress` is called after
    /// every transaction, and not at all if nothing is missing. Blocks.
    ///
    /// # Errors
    /// [`Error::ModelMismatch`] if a tenant's vectors are of another model (I-14); else storage failed. What
    /// was filled until then stays filled.
    pub fn fill_vectors(
        &self,
        model: &ModelId,
        embed: &mut EmbedTexts<'_>,
        progress: &mut dyn FnMut(Filled),
    ) -> Result<Filled, Error> {
        let mut done = Filled::default();
        let mut missing = Vec::new();
        let mut tenants = lock(&self.inner.control).tenant_ids();
        tenants.sort();
        for tenant in tenants {
            let counted = self.inner.cell(&tenant).and_then(|cell| cell.snapshot(count));
            let count = match self.inner.noting(&tenant, counted) {
                // Of a damaged tenant nothing is searched; it does not keep the others waiting.
                Err(Error::Damaged) => continue,
                counted => counted?,
            };
            done.total += count;
            if count > 0 {
                missing.push(tenant);
            }
        }
        for tenant in missing {
            let cell = self.inner.cell(&tenant)?;
            for table in [Table::Memories, Table::Turns] {
                fill_table(&cell, table, model, embed, &mut |filled, failed| {
                    done.filled += filled;
                    done.failed += failed;
                    progress(done);
                })?;
            }
        }
        Ok(done)
    }
}

#[derive(Debug, Clone, Copy)]
enum Table {
    Memories,
    Turns,
}

/// A row without a vector.
struct Pending {
    seq: i64,
    id: String,
    number: u32,
    owner: String,
    text: Zeroizing<String>,
}

impl Table {
    /// Rows without a vector behind `?1` that hold at `?2`. Nothing of a subject that is being erased.
    fn rows(self) -> String {
        match self {
            // Kind 0 is `feedback`, the first of `Kind::ALL`: rules are never ranked.
            Self::Memories => {
                "FROM memories WHERE seq > ?1 AND vector IS NULL AND standing = 0 AND kind <> 0
                 AND (expires_at IS NULL OR expires_at > ?2)"
            }
            Self::Turns => "FROM turns WHERE seq > ?1 AND vector IS NULL AND expires_at > ?2",
        }
        .to_owned()
            + " AND owner NOT IN (SELECT id FROM subjects WHERE erasing = 1)"
    }

    fn columns(self) -> &'static str {
        match self {
            Self::Memories => "seq, id, revision, owner, body, written_at",
            Self::Turns => "seq, conversation, number, owner, body, at",
        }
    }

    fn place<'a>(self, cell: &'a Cell, row: (&'a str, u32), column: &'static str) -> Place<'a> {
        match self {
            Self::Memories => memory_place(&cell.tenant, row.0, row.1, column),
            Self::Turns => turn_place(&cell.tenant, row.0, row.1, column),
        }
    }

    fn words(self, plain: &[u8]) -> Result<Zeroizing<String>, Error> {
        match self {
            Self::Memories => open_words(plain).map(|(text, _)| text),
            Self::Turns => {
                let text = std::str::from_utf8(plain).map_err(|_| Error::Damaged)?;
                Ok(Zeroizing::new(text.to_owned()))
            }
        }
    }

    fn touch(self, row: &Pending) -> Result<Touch, Error> {
        match self {
            Self::Memories => row.id.parse().map(Touch::Memory).map_err(|_| Error::Damaged),
            Self::Turns => {
                let conversation = row.id.parse().map_err(|_| Error::Damaged)?;
                Ok(Touch::Turn(conversation, row.number))
            }
        }
    }
}

fn count(cell: &Cell, db: &Connection) -> Result<u64, Error> {
    let now = cell.env.now().millis();
    let mut n = 0;
    for table in [Table::Memories, Table::Turns] {
        let sql = format!("SELECT count(*) {}", table.rows());
        let found: u64 = db.query_row(&sql, (0_i64, now), |row| row.get(0)).sql()?;
        n += found;
    }
    Ok(n)
}

fn fill_table(
    cell: &Cell,
    table: Table,
    model: &ModelId,
    embed: &mut EmbedTexts<'_>,
    report: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut after = 0;
    loop {
        let rows = cell.snapshot(|cell, db| pending(cell, db, table, after))?;
        let Some(last) = rows.last() else { return Ok(()) };
        // A row that cannot be embedded is passed by; the next start tries it again.
        after = last.seq;
        let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        let vectors = embed(&texts);
        let n_rows = rows.len() as u64;
        let made: Vec<_> =
            rows.into_iter().zip(vectors).filter_map(|(row, made)| Some((row, made?))).collect();
        let model = model.clone();
        let filled = cell.write_blocking(move |work| write(work, table, &model, &made))?;
        report(filled, n_rows.saturating_sub(filled));
    }
}

fn pending(cell: &Cell, db: &Connection, table: Table, after: i64) -> Result<Vec<Pending>, Error> {
    let sql = format!("SELECT {} {} ORDER BY seq LIMIT {ROWS_MAX}", table.columns(), table.rows());
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query((after, cell.env.now().millis())).sql()?;
    let mut found = Vec::with_capacity(ROWS_MAX);
    while let Some(row) = rows.next().sql()? {
        let (id, owner) = (text_at(row, 1)?, text_at(row, 3)?);
        let number: u32 = row.get(2).sql()?;
        let place = table.place(cell, (id, number), "body");
        let plain = cell.owner_keys(owner)?.sealer.open(place, blob_at(row, 4)?)?;
        found.push(Pending {
            seq: row.get(0).sql()?,
            id: id.to_owned(),
            number,
            owner: owner.to_owned(),
            text: match table {
                Table::Memories => table.words(&plain)?,
                Table::Turns => passage(cell, db, (id, number), &table.words(&plain)?, row.get(5).sql()?)?,
            },
        });
    }
    Ok(found)
}

/// A turn with the one before it, as when it is written.
fn passage(
    cell: &Cell,
    db: &Connection,
    (id, number): (&str, u32),
    text: &str,
    at: i64,
) -> Result<Zeroizing<String>, Error> {
    let before = number.saturating_sub(1);
    let sql = "SELECT owner, body, at FROM turns WHERE conversation = ?1 AND number = ?2 AND expires_at > ?3";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let mut statement = db.prepare_cached(sql).sql()?;
    let key = (id, before, cell.env.now().millis());
    let found: Option<(String, Vec<u8>, i64)> = statement.query_row(key, read).optional().sql()?;
    let Some((owner, sealed, said_at)) = found else { return Ok(Zeroizing::new(text.to_owned())) };
    let place = Table::Turns.place(cell, (id, before), "body");
    let previous = Table::Turns.words(&cell.owner_keys(&owner)?.sealer.open(place, &sealed)?)?;
    let (said_at, at) = (Timestamp::from_millis(said_at), Timestamp::from_millis(at));
    Ok(Zeroizing::new(turn_passage(Some((&previous, said_at)), text, at)))
}

/// Writes the vectors of one transaction and says how many rows took one.
fn write(
    work: &mut Work<'_>,
    table: Table,
    model: &ModelId,
    made: &[(Pending, Vec<f32>)],
) -> Result<u64, Error> {
    // INVARIANT: I-14, a tenant has vectors of one model.
    if work.state.model.as_ref().or(work.cell.model.as_ref()).is_some_and(|known| known != model) {
        return Err(Error::ModelMismatch);
    }
    // By its number, not by its place in the file: what was deleted or replaced meanwhile is met no more.
    let sql = match table {
        Table::Memories => {
            "UPDATE memories SET vector = ?3 WHERE id = ?1 AND revision = ?2 AND standing = 0 AND vector IS NULL"
        }
        Table::Turns => {
            "UPDATE turns SET vector = ?3 WHERE conversation = ?1 AND number = ?2 AND vector IS NULL"
        }
    };
    let mut filled = 0;
    for (row, values) in made {
        let keys = work.cell.owner_keys(&row.owner)?;
        let place = table.place(work.cell, (&row.id, row.number), "vector");
        let sealed = seal_vector(work.cell, &keys, place, values)?;
        let mut statement = work.db.prepare_cached(sql).sql()?;
        if statement.execute((&row.id, row.number, sealed)).sql()? == 1 {
            work.touched.push(table.touch(row)?);
            filled += 1;
        }
    }
    if filled > 0 {
        work.state.model.get_or_insert_with(|| model.clone());
        // Nothing changed in what is said, but in how it is ranked: another build of the index.
        work.state.epochs.content = work.state.epochs.content.next();
    }
    Ok(filled)
}
