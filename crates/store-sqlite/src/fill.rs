//! Vectors for what was written while no embedding model was there. Small transactions, each of which leaves
//! nothing half done, so it can be stopped and begun again at any time.

use std::collections::BTreeSet;

use merkwelt_domain::{TenantId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::analysis::turn_passage;
use merkwelt_store::query::ModelId;
use rusqlite::{Connection, OptionalExtension as _};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::Place;
use crate::error::{OpenError, Sql as _};
use crate::instance::Sqlite;
use crate::library::{passage_place, passage_words};
use crate::pool::lock;
use crate::rows::{blob_at, memory_place, open_text, seal_vector, text_at, turn_place};
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

/// Where in a tenant the filling goes on; the beginning by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillPlace {
    table: Table,
    after: i64,
}

/// What one small transaction of the filling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillStep {
    /// Rows that have got a vector.
    pub filled: u64,
    /// Rows that were tried and are still without.
    pub failed: u64,
    /// Where to go on; none at the end.
    pub next: Option<FillPlace>,
}

/// What makes vectors: one result per text, in their order, `None` for a text that cannot be embedded.
pub type EmbedTexts<'e> = dyn FnMut(&[&str]) -> Vec<Option<Vec<f32>>> + 'e;

impl Sqlite {
    /// Gives a vector of `model` to every current row that is ranked and has none, in all tenants: memories
    /// but rules, kept turns and passages, each by the text as when it is written. `progress` is called after
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
        for tenant in self.tenant_ids() {
            let counted = self.inner.cell(&tenant).and_then(|cell| cell.snapshot(count_missing));
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
            let mut place = Some(FillPlace::default());
            while let Some(from) = place {
                let step = self.fill_some(&tenant, model, from, embed)?;
                (done.filled, done.failed) = (done.filled + step.filled, done.failed + step.failed);
                if step.filled + step.failed > 0 {
                    progress(done);
                }
                place = step.next;
            }
        }
        Ok(done)
    }

    /// One small transaction of the same in one tenant. A row that cannot be embedded is passed by. Blocks.
    ///
    /// # Errors
    /// As of [`Sqlite::fill_vectors`]; [`Error::Damaged`] of a tenant that cannot be read.
    pub fn fill_some(
        &self,
        tenant: &TenantId,
        model: &ModelId,
        from: FillPlace,
        embed: &mut EmbedTexts<'_>,
    ) -> Result<FillStep, Error> {
        let done = self.inner.cell(tenant).and_then(|cell| {
            let found = cell.snapshot(|cell, db| pending(cell, db, from, Column::Vector))?;
            step(found, from, |rows| {
                let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
                let made = with_vectors(embed(&texts), rows);
                let model = model.clone();
                cell.write_blocking(move |work| write(work, from.table, &model, &made))
            })
        });
        self.inner.noting(tenant, done)
    }

    /// All tenants, in order.
    #[must_use]
    pub fn tenant_ids(&self) -> Vec<TenantId> {
        let mut tenants = lock(&self.inner.control).tenant_ids();
        tenants.sort();
        tenants
    }

    /// The tenants in which rows were written without a vector since this was asked last.
    #[must_use]
    pub fn take_unfilled(&self) -> BTreeSet<TenantId> {
        std::mem::take(&mut *lock(&self.inner.unfilled))
    }

    /// Binds the data to a model that came after they were opened, as [`Sqlite::open`] does with
    /// [`crate::Options::model`]. Blocks.
    ///
    /// # Errors
    /// [`OpenError::OtherModel`] if there are vectors of another (I-14).
    pub fn adopt_model(&self, model: &ModelId) -> Result<(), OpenError> {
        self.inner.check_model(model)?;
        self.inner.bind_model(model);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Table {
    #[default]
    Memories,
    Turns,
    Passages,
}

/// Which column a vector is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// The one that is searched.
    Vector,
    /// The one of the model that comes next.
    Next,
}

/// The next rows without a vector.
pub(crate) struct Lacking {
    rows: Vec<Pending>,
    /// Where the last one is that was looked at; none at the end of the table.
    last: Option<i64>,
}

/// A row without a vector.
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) number: u32,
    pub(crate) owner: String,
    pub(crate) text: Zeroizing<String>,
}

impl Table {
    pub(crate) const ALL: [Self; 3] = [Self::Memories, Self::Turns, Self::Passages];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memories => "memories",
            Self::Turns => "turns",
            Self::Passages => "passages",
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Memories => Some(Self::Turns),
            Self::Turns => Some(Self::Passages),
            Self::Passages => None,
        }
    }

    /// Rows without a vector behind `?1` that hold at `?2`. Nothing of a subject that is being erased.
    fn rows(self, column: Column) -> String {
        let missing = match column {
            Column::Vector => "vector IS NULL",
            Column::Next => "vector_next IS NULL",
        };
        let rest = match self {
            // Kind 0 is `feedback`, the first of `Kind::ALL`: rules are never ranked.
            Self::Memories => "standing = 0 AND kind <> 0 AND (expires_at IS NULL OR expires_at > ?2)",
            Self::Turns => "expires_at > ?2",
            // A deletion takes the terms away. What was superseded is searched by nobody, but it may be made
            // current again, so its vectors are made anew where it has some.
            Self::Passages => {
                "terms IS NOT NULL AND body IS NOT NULL AND ?2 = ?2 AND (vector IS NOT NULL
                 OR revision IN (SELECT id FROM revisions WHERE superseded_by IS NULL))"
            }
        };
        format!(
            "FROM {} WHERE seq > ?1 AND {missing} AND {rest}
             AND owner NOT IN (SELECT id FROM subjects WHERE erasing = 1)",
            self.source()
        )
    }

    /// The table, with an owner in every one.
    fn source(self) -> &'static str {
        match self {
            Self::Memories => "memories",
            Self::Turns => "turns",
            Self::Passages => "(SELECT *, source AS owner FROM passages)",
        }
    }

    fn columns(self) -> &'static str {
        match self {
            Self::Memories => "seq, id, revision, owner, body, written_at",
            Self::Turns => "seq, conversation, number, owner, body, at",
            Self::Passages => "seq, revision, number, owner, body, 0",
        }
    }

    pub(crate) fn place<'a>(self, cell: &'a Cell, row: (&'a str, u32), column: &'static str) -> Place<'a> {
        match self {
            Self::Memories => memory_place(&cell.tenant, row.0, row.1, column),
            Self::Turns => turn_place(&cell.tenant, row.0, row.1, column),
            Self::Passages => passage_place(&cell.tenant, row.0, row.1, column),
        }
    }

    /// The condition by which one row is met: `?1` and `?2` are its key.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Memories => "id = ?1 AND revision = ?2 AND standing = 0",
            Self::Turns => "conversation = ?1 AND number = ?2",
            Self::Passages => "revision = ?1 AND number = ?2 AND terms IS NOT NULL",
        }
    }

    fn words(self, plain: &[u8]) -> Result<Zeroizing<String>, Error> {
        match self {
            Self::Memories => open_text(plain),
            Self::Passages => passage_words(plain),
            Self::Turns => {
                let text = std::str::from_utf8(plain).map_err(|_| Error::Damaged)?;
                Ok(Zeroizing::new(text.to_owned()))
            }
        }
    }

    fn owner_is_erased(self, db: &Connection, owner: &str) -> Result<bool, Error> {
        if self == Self::Passages {
            return Ok(false);
        }
        let sql = "SELECT erasing FROM subjects WHERE id = ?1";
        let mut statement = db.prepare_cached(sql).sql()?;
        let erasing: Option<bool> = statement.query_row([owner], |row| row.get(0)).optional().sql()?;
        Ok(erasing == Some(true))
    }

    fn touch(self, row: &Pending) -> Result<Touch, Error> {
        match self {
            Self::Memories => row.id.parse().map(Touch::Memory).map_err(|_| Error::Damaged),
            Self::Passages => row.owner.parse().map(Touch::Source).map_err(|_| Error::Damaged),
            Self::Turns => {
                let conversation = row.id.parse().map_err(|_| Error::Damaged)?;
                Ok(Touch::Turn(conversation, row.number))
            }
        }
    }
}

/// How many rows are without a vector.
fn count_missing(cell: &Cell, db: &Connection) -> Result<u64, Error> {
    count(cell, db, Column::Vector)
}

/// How many rows are without a vector in a column.
pub(crate) fn count(cell: &Cell, db: &Connection, column: Column) -> Result<u64, Error> {
    let now = cell.env.now().millis();
    let mut n = 0;
    for table in Table::ALL {
        let sql = format!("SELECT count(*) {}", table.rows(column));
        let found: u64 = db.query_row(&sql, (0_i64, now), |row| row.get(0)).sql()?;
        n += found;
    }
    Ok(n)
}

/// Does one small transaction over the rows that were found at `from`, and says where to go on.
pub(crate) fn step(
    found: Lacking,
    from: FillPlace,
    fill: impl FnOnce(Vec<Pending>) -> Result<u64, Error>,
) -> Result<FillStep, Error> {
    let Some(after) = found.last else {
        let next = from.table.next().map(|table| FillPlace { table, after: 0 });
        return Ok(FillStep { next, ..FillStep::default() });
    };
    let n_rows = found.rows.len() as u64;
    let filled = if n_rows == 0 { 0 } else { fill(found.rows)? };
    let next = Some(FillPlace { table: from.table, after });
    Ok(FillStep { filled, failed: n_rows.saturating_sub(filled), next })
}

impl FillPlace {
    pub(crate) fn table(self) -> Table {
        self.table
    }
}

/// The rows that have got a vector, with it.
pub(crate) fn with_vectors(made: Vec<Option<Vec<f32>>>, rows: Vec<Pending>) -> Vec<(Pending, Vec<f32>)> {
    rows.into_iter().zip(made).filter_map(|(row, made)| Some((row, made?))).collect()
}

/// The next rows without a vector in a column.
pub(crate) fn pending(
    cell: &Cell,
    db: &Connection,
    from: FillPlace,
    column: Column,
) -> Result<Lacking, Error> {
    let table = from.table;
    let sql = format!("SELECT {} {} ORDER BY seq LIMIT {ROWS_MAX}", table.columns(), table.rows(column));
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query((from.after, cell.env.now().millis())).sql()?;
    let mut found = Lacking { rows: Vec::with_capacity(ROWS_MAX), last: None };
    while let Some(row) = rows.next().sql()? {
        found.last = Some(row.get(0).sql()?);
        let (id, owner) = (text_at(row, 1)?, text_at(row, 3)?);
        let number: u32 = row.get(2).sql()?;
        let place = table.place(cell, (id, number), "body");
        let keys = match cell.owner_keys(owner) {
            // Its owner was erased after this snapshot was taken; the others do not wait.
            Err(Error::NotFound) => continue,
            keys => keys?,
        };
        let plain = keys.sealer.open(place, blob_at(row, 4)?)?;
        let words = table.words(&plain)?;
        found.rows.push(Pending {
            id: id.to_owned(),
            number,
            owner: owner.to_owned(),
            text: match table {
                Table::Memories | Table::Passages => words,
                Table::Turns => passage(cell, db, (id, number), &words, row.get(5).sql()?)?,
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
    if work.cell.model_of(&work.state).is_some_and(|known| known != *model) {
        return Err(Error::ModelMismatch);
    }
    let mut filled = 0;
    for (row, values) in made {
        if put(work, table, Column::Vector, row, values)? {
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

/// Puts one vector in its place, if the row is still there. By its number, not by its place in the file: what was
/// deleted or replaced meanwhile is met no more.
pub(crate) fn put(
    work: &Work<'_>,
    table: Table,
    column: Column,
    row: &Pending,
    values: &[f32],
) -> Result<bool, Error> {
    // INVARIANT: I-8, the tombstone is asked for in the transaction that writes what is derived.
    if table.owner_is_erased(work.db, &row.owner)? {
        return Ok(false);
    }
    let keys = match work.cell.owner_keys(&row.owner) {
        Err(Error::NotFound) => return Ok(false),
        keys => keys?,
    };
    let place = table.place(work.cell, (&row.id, row.number), "vector");
    let sealed = seal_vector(work.cell, &keys, place, values)?;
    let column = match column {
        Column::Vector => "vector",
        Column::Next => "vector_next",
    };
    let sql = format!("UPDATE {} SET {column} = ?3 WHERE {} AND {column} IS NULL", table.name(), table.key());
    let mut statement = work.db.prepare_cached(&sql).sql()?;
    Ok(statement.execute((&row.id, row.number, sealed)).sql()? == 1)
}
