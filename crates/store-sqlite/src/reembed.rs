//! Everything anew with another model. The new vectors gather beside the old ones, which answer until the last
//! is made; then they take their place, a tenant in one transaction. It can die at any moment: before the last
//! vector nothing has changed, and a change that was begun is finished when the data are opened next.

use merkwelt_domain::TenantId;
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use rusqlite::OptionalExtension as _;

use crate::cell::Cell;
use crate::error::{OpenError, Sql as _, on_open};
use crate::fill::{Column, FillPlace, Table, count, pending, put, step, with_vectors};
use crate::instance::{Inner, Sqlite};
use crate::pool::lock;
use crate::schema;
use crate::writer::Work;

/// Name under which the model stands whose vectors are being put in place.
const SWAPPING: &str = "swapping";
/// Name under which a model and the vector of its trial sentence stand.
const REFERENCE: &str = "reference";

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reembedded {
    /// Rows that were without a vector of the new model when it began.
    pub total: u64,
    /// Rows that have got one.
    pub made: u64,
    /// Rows whose text cannot be embedded; they are found by their words.
    pub failed: u64,
    /// Tenants that were passed by because their data are damaged.
    pub damaged: u64,
}

/// What makes vectors, as [`crate::EmbedTexts`]; `None` if the engine is away and it is to be stopped.
pub type EmbedOrStop<'e> = dyn FnMut(&[&str]) -> Option<Vec<Option<Vec<f32>>>> + 'e;

impl Sqlite {
    /// Embeds everything anew with `model` and makes it the model of the data. The data must have been opened
    /// without one ([`crate::Options::model`]). What was made by an interrupted call for the same model is not
    /// made again. `progress` is called after every small transaction. Blocks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if `embed` stopped or storage failed; everything answers as before, and what was
    /// made stays for the next call.
    pub fn reembed(
        &self,
        model: &ModelId,
        embed: &mut EmbedOrStop<'_>,
        progress: &mut dyn FnMut(Reembedded),
    ) -> Result<Reembedded, Error> {
        let mut done = Reembedded::default();
        let mut wanted = Vec::new();
        for tenant in self.tenant_ids() {
            let begun = self.inner.cell(&tenant).and_then(|cell| begin(&cell, model));
            match self.inner.noting(&tenant, begun) {
                Err(Error::Damaged) => done.damaged += 1,
                Ok(None) => {}
                Ok(Some(missing)) => {
                    done.total += missing;
                    wanted.push(tenant);
                }
                Err(error) => return Err(error),
            }
        }
        for tenant in &wanted {
            self.prepare(tenant, embed, &mut done, progress)?;
        }
        self.inner.swap(model, &wanted)?;
        Ok(done)
    }

    /// The model of the data, if there is one.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn model(&self) -> Result<Option<ModelId>, OpenError> {
        lock(&self.inner.control).model()
    }

    /// The vector of the trial sentence that was kept for `model`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn reference(&self, model: &ModelId) -> Result<Option<Vec<f32>>, OpenError> {
        let Some(kept) = lock(&self.inner.control).mark(REFERENCE)? else { return Ok(None) };
        let Some(numbers) = kept.strip_prefix(model.as_str().as_bytes()).and_then(|r| r.strip_prefix(b"\n"))
        else {
            return Ok(None);
        };
        let (words, rest) = numbers.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(OpenError::Damaged(schema::CONTROL.name));
        }
        Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
    }

    /// Keeps the vector of the trial sentence of `model`, unless one is kept already. It is made of a fixed
    /// sentence and says nothing of anybody.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn keep_reference(&self, model: &ModelId, vector: &[f32]) -> Result<(), OpenError> {
        if self.reference(model)?.is_some() {
            return Ok(());
        }
        let mut kept = model.as_str().as_bytes().to_vec();
        kept.push(b'\n');
        kept.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
        lock(&self.inner.control).set_mark(REFERENCE, Some(&kept))
    }

    /// Makes the vectors of one tenant, beside those that answer.
    fn prepare(
        &self,
        tenant: &TenantId,
        embed: &mut EmbedOrStop<'_>,
        done: &mut Reembedded,
        progress: &mut dyn FnMut(Reembedded),
    ) -> Result<(), Error> {
        let mut place = Some(FillPlace::default());
        while let Some(from) = place {
            let cell = self.inner.cell(tenant)?;
            let rows = cell.snapshot(|cell, db| pending(cell, db, from, Column::Next))?;
            let made = step(rows, from, |rows| {
                let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
                let made = with_vectors(embed(&texts).ok_or(Error::Unavailable)?, rows);
                cell.write_blocking(move |work| {
                    let mut n_made = 0;
                    for (row, values) in &made {
                        n_made += u64::from(put(work, from.table(), Column::Next, row, values)?);
                    }
                    Ok(n_made)
                })
            })?;
            (done.made, done.failed) = (done.made + made.filled, done.failed + made.failed);
            if made.filled + made.failed > 0 {
                progress(*done);
            }
            place = made.next;
        }
        Ok(())
    }
}

/// Makes a tenant ready to take vectors of `model` beside its own: how many rows are without, or `None` if its
/// vectors are of that model already.
fn begin(cell: &Cell, model: &ModelId) -> Result<Option<u64>, Error> {
    let wanted = model.clone();
    let is_own = cell.write_blocking(move |work| {
        let is_own = work.state.model.as_ref() == Some(&wanted);
        let next: Option<String> =
            work.db.query_row("SELECT next_model FROM state WHERE one = 1", [], |row| row.get(0)).sql()?;
        let target = (!is_own).then(|| wanted.as_str());
        if next.as_deref() != target {
            // INVARIANT: I-14, what was made for yet another model is never put in place.
            clear(work, target)?;
        }
        Ok(is_own)
    })?;
    if is_own { Ok(None) } else { cell.snapshot(|cell, db| count(cell, db, Column::Next)).map(Some) }
}

fn clear(work: &Work<'_>, next: Option<&str>) -> Result<(), Error> {
    for table in Table::ALL {
        let sql = format!("UPDATE {} SET vector_next = NULL WHERE vector_next IS NOT NULL", table.name());
        work.db.execute(&sql, []).sql()?;
    }
    work.db.execute("UPDATE state SET next_model = ?1 WHERE one = 1", [next]).sql().map(|_| ())
}

impl Inner {
    /// Puts the gathered vectors in place, from the point of no return on.
    fn swap(&self, model: &ModelId, tenants: &[TenantId]) -> Result<(), Error> {
        let mark = |value| lock(&self.control).set_mark(SWAPPING, value).map_err(|error| error.to_store());
        mark(Some(model.as_str().as_bytes()))?;
        for tenant in tenants {
            self.swap_tenant(tenant, model)?;
        }
        self.end_swap(model).map_err(|error| error.to_store())
    }

    fn end_swap(&self, model: &ModelId) -> Result<(), OpenError> {
        let control = lock(&self.control);
        control.set_model(model)?;
        control.set_mark(SWAPPING, None)
    }

    /// One tenant, in one transaction: every vector is of the new model, or there is none.
    fn swap_tenant(&self, tenant: &TenantId, model: &ModelId) -> Result<(), Error> {
        let cell = self.cell(tenant)?;
        let model = model.clone();
        cell.write_blocking(move |work| {
            let next: Option<String> = work
                .db
                .query_row("SELECT next_model FROM state WHERE one = 1", [], |row| row.get(0))
                .optional()
                .sql()?
                .flatten();
            if next.as_deref() != Some(model.as_str()) {
                // It was put in place before.
                return Ok(());
            }
            for table in Table::ALL {
                let sql = format!(
                    "UPDATE {} SET vector = vector_next, vector_next = NULL
                     WHERE vector IS NOT NULL OR vector_next IS NOT NULL",
                    table.name()
                );
                work.db.execute(&sql, []).sql()?;
            }
            work.db.execute("UPDATE state SET next_model = NULL WHERE one = 1", []).sql()?;
            // INVARIANT: I-14, the name changes in the transaction in which the vectors do.
            work.state.model = Some(model);
            work.state.epochs.content = work.state.epochs.content.next();
            Ok(())
        })?;
        // Nothing that was announced says what changed: the next search builds the index anew.
        cell.shard.evict();
        Ok(())
    }

    /// Finishes what was begun before the process ended. A damaged tenant is passed by; its own name of the
    /// model keeps its vectors apart.
    pub(crate) fn resume_swap(&self) -> Result<(), OpenError> {
        let Some(model) = lock(&self.control).model_at(SWAPPING)? else { return Ok(()) };
        let tenants = lock(&self.control).tenant_ids();
        for tenant in tenants {
            let swapped = self.swap_tenant(&tenant, &model);
            match self.noting(&tenant, swapped) {
                Ok(()) | Err(Error::Damaged) => {}
                Err(error) => return Err(on_open(error, schema::CELL.name)),
            }
        }
        self.end_swap(&model)
    }
}
