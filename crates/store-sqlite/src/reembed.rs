//! Everything anew with another model. The new vectors gather beside the old ones, which answer until the last
//! is made; then they take their place, a tenant in one transaction. It can die at any moment: before the last
//! vector nothing has changed, and a change that was begun is finished when the data are opened next.

use std::sync::atomic::Ordering;

use merkwelt_domain::TenantId;
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use rusqlite::Connection;

use crate::cell::Cell;
use crate::error::{OpenError, Sql as _, on_open};
use crate::fill::{Column, FillPlace, FillStep, Table, count, pending, put, step, with_vectors};
use crate::instance::{Inner, Sqlite};
use crate::pool::lock;
use crate::schema;
use crate::shard::Touch;
use crate::snapshot::State;
use crate::writer::Work;

/// Name under which the model stands whose vectors are being put in place.
const SWAPPING: &str = "swapping";
/// Name under which a model and the vector of its trial sentence stand.
const REFERENCE: &str = "reference";

/// The same of the model that comes next.
const NEXT_REFERENCE: &str = "next_reference";

/// The numbers that are kept for `model`, if they are for it.
fn reference_of<'k>(kept: &'k [u8], model: &ModelId) -> Option<&'k [u8]> {
    kept.strip_prefix(model.as_str().as_bytes())?.strip_prefix(b"\n")
}

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
                Ok(Some(begun)) => {
                    done.total += begun.missing;
                    wanted.push(tenant);
                }
                Err(error) => return Err(error),
            }
        }
        for tenant in &wanted {
            self.prepare((tenant, model), embed, &mut done, progress)?;
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
        for name in [REFERENCE, NEXT_REFERENCE] {
            let kept = lock(&self.inner.control).mark(name)?;
            let Some(numbers) = kept.as_deref().and_then(|kept| reference_of(kept, model)) else { continue };
            let (words, rest) = numbers.as_chunks::<4>();
            if !rest.is_empty() {
                return Err(OpenError::Damaged(schema::CONTROL.name));
            }
            return Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()));
        }
        Ok(None)
    }

    /// Keeps the vector of the trial sentence of `model`, unless one is kept already. It is made of a fixed
    /// sentence and says nothing of anybody.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn keep_reference(&self, model: &ModelId, vector: &[f32]) -> Result<(), OpenError> {
        self.keep_reference_as(REFERENCE, model, vector)
    }

    /// The same of the model that comes next: its vectors are gathered over many starts, and all must be of the
    /// same weights.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn keep_next_reference(&self, model: &ModelId, vector: &[f32]) -> Result<(), OpenError> {
        self.keep_reference_as(NEXT_REFERENCE, model, vector)
    }

    fn keep_reference_as(&self, name: &str, model: &ModelId, vector: &[f32]) -> Result<(), OpenError> {
        if self.reference(model)?.is_some() {
            return Ok(());
        }
        let mut kept = model.as_str().as_bytes().to_vec();
        kept.push(b'\n');
        kept.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
        lock(&self.inner.control).set_mark(name, Some(&kept))
    }

    /// Makes the vectors of one tenant, beside those that answer.
    fn prepare(
        &self,
        (tenant, model): (&TenantId, &ModelId),
        embed: &mut EmbedOrStop<'_>,
        done: &mut Reembedded,
        progress: &mut dyn FnMut(Reembedded),
    ) -> Result<(), Error> {
        let mut place = Some(FillPlace::default());
        while let Some(from) = place {
            let made = gather(&*self.inner.cell(tenant)?, model, from, embed)?;
            (done.made, done.failed) = (done.made + made.filled, done.failed + made.failed);
            if made.filled + made.failed > 0 {
                progress(*done);
            }
            place = made.next;
        }
        Ok(())
    }
}

/// How a tenant stands at the beginning of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Rows without a vector of the model that comes next.
    pub missing: u64,
    /// The generation of the content they were counted in.
    pub content: u64,
}

/// Makes a tenant ready to take vectors of `model` beside its own, or `None` if it has taken them in their place
/// already.
pub(crate) fn begin(cell: &Cell, model: &ModelId) -> Result<Option<Begun>, Error> {
    let (state, next) = cell.snapshot(|_, db| Ok((State::read(db)?, next_model(db)?)))?;
    let is_own = cell.model_of(&state).as_ref() == Some(model);
    // A tenant that has both takes what was gathered first.
    let is_begun = next.as_ref() == Some(model);
    let target = (is_begun || !is_own).then(|| model.clone());
    if next != target {
        let target = target.clone();
        // INVARIANT: I-14, what was made for yet another model is never put in place.
        cell.write_blocking(move |work| clear(work, target.as_ref()))?;
    }
    if target.is_none() {
        return Ok(None);
    }
    let missing = cell.snapshot(|cell, db| count(cell, db, Column::Next))?;
    // The generation from before the count: what is written in between is looked at again.
    Ok(Some(Begun { missing, content: state.epochs.content.number() }))
}

/// The model whose vectors are gathered beside those that answer.
pub(crate) fn next_model(db: &Connection) -> Result<Option<ModelId>, Error> {
    let next: Option<String> =
        db.query_row("SELECT next_model FROM state WHERE one = 1", [], |row| row.get(0)).sql()?;
    Ok(next.as_deref().map(ModelId::recorded))
}

fn clear(work: &Work<'_>, next: Option<&ModelId>) -> Result<(), Error> {
    for table in Table::ALL {
        let sql = format!("UPDATE {} SET vector_next = NULL WHERE vector_next IS NOT NULL", table.name());
        work.db.execute(&sql, []).sql()?;
    }
    let next = next.map(ModelId::as_str);
    work.db.execute("UPDATE state SET next_model = ?1 WHERE one = 1", [next]).sql().map(|_| ())
}

/// Makes vectors for some rows beside those that answer, in one small transaction.
pub(crate) fn gather(
    cell: &Cell,
    model: &ModelId,
    from: FillPlace,
    embed: &mut EmbedOrStop<'_>,
) -> Result<FillStep, Error> {
    let found = cell.snapshot(|cell, db| pending(cell, db, from, Column::Next))?;
    step(found, from, |rows| {
        let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        let made = with_vectors(embed(&texts).ok_or(Error::Unavailable)?, rows);
        let model = model.clone();
        cell.write_blocking(move |work| {
            // INVARIANT: I-14, what is gathered is of one model.
            if next_model(work.db)?.as_ref() != Some(&model) {
                return Err(Error::ModelMismatch);
            }
            let mut n_made = 0;
            for (row, values) in &made {
                n_made += u64::from(put(work, from.table(), Column::Next, row, values)?);
            }
            Ok(n_made)
        })
    })
}

impl Inner {
    /// Puts the gathered vectors in place, from the point of no return on.
    fn swap(&self, model: &ModelId, tenants: &[TenantId]) -> Result<(), Error> {
        self.begin_swap(model).map_err(|error| error.to_store())?;
        for tenant in tenants {
            self.swap_tenant(tenant, model, None)?;
        }
        self.end_swap(model).map_err(|error| error.to_store())
    }

    /// The point of no return: from here on the next start puts in place what was gathered.
    pub(crate) fn begin_swap(&self, model: &ModelId) -> Result<(), OpenError> {
        lock(&self.control).set_mark(SWAPPING, Some(model.as_str().as_bytes()))
    }

    /// Every tenant took the vectors of `model`: it is the model of the data.
    fn end_swap(&self, model: &ModelId) -> Result<(), OpenError> {
        let control = lock(&self.control);
        if let Some(kept) = control.mark(NEXT_REFERENCE)? {
            if reference_of(&kept, model).is_some() {
                control.set_mark(REFERENCE, Some(&kept))?;
            }
            control.set_mark(NEXT_REFERENCE, None)?;
        }
        control.set_model(model)?;
        control.set_mark(SWAPPING, None)
    }

    /// One tenant, in one transaction: every vector is of the new model, or there is none. With `lacking`, not
    /// before no more rows than these are without a new vector; without it, it is never refused. Whether its
    /// vectors are of the new model now.
    pub(crate) fn swap_tenant(
        &self,
        tenant: &TenantId,
        model: &ModelId,
        lacking: Option<u64>,
    ) -> Result<bool, Error> {
        let cell = self.cell(tenant)?;
        let model = model.clone();
        cell.write_blocking(move |work| {
            let is_own = work.state.model.as_ref() == Some(&model);
            let next = next_model(work.db)?;
            let is_begun = next.as_ref() == Some(&model);
            if is_own && !is_begun {
                // It was put in place before.
                return Ok(true);
            }
            // What was gathered for yet another model counts for nothing.
            let is_other = next.is_some() && !is_begun;
            if let Some(most) = lacking
                && (is_other || count(work.cell, work.db, Column::Next)? > most)
            {
                return Ok(false);
            }
            let vector = match (is_begun, is_own) {
                (true, false) => "vector_next",
                // A tenant without vectors may have got its first ones of the new model.
                (true, true) => "coalesce(vector, vector_next)",
                // INVARIANT: I-14, a tenant for which nothing was gathered, as one that was made when the others
                // were ready, gives up its vectors with the name of their model. They are made anew.
                (false, _) => "NULL",
            };
            for table in Table::ALL {
                let sql = format!(
                    "UPDATE {} SET vector = {vector}, vector_next = NULL
                     WHERE vector IS NOT NULL OR vector_next IS NOT NULL",
                    table.name()
                );
                work.db.execute(&sql, []).sql()?;
            }
            work.db.execute("UPDATE state SET next_model = NULL WHERE one = 1", []).sql()?;
            // INVARIANT: I-14, the name changes in the transaction in which the vectors do.
            work.state.model = Some(model);
            work.state.epochs.content = work.state.epochs.content.next();
            // What was written since the last row was gathered gets its vector now.
            work.cell.lacking.store(true, Ordering::Relaxed);
            work.touched.push(Touch::Everything);
            Ok(true)
        })
    }

    /// Finishes what was begun before the process ended.
    pub(crate) fn resume_swap(&self) -> Result<(), OpenError> {
        let Some(model) = lock(&self.control).model_at(SWAPPING)? else { return Ok(()) };
        self.finish_swap(&model)
    }

    /// Ends a change of every tenant there is, those too in which nothing was gathered. A damaged tenant is passed
    /// by; its own name of the model keeps its vectors apart.
    pub(crate) fn finish_swap(&self, model: &ModelId) -> Result<(), OpenError> {
        let tenants = lock(&self.control).tenant_ids();
        for tenant in tenants {
            let swapped = self.swap_tenant(&tenant, model, None);
            match self.noting(&tenant, swapped) {
                Ok(_) | Err(Error::Damaged) => {}
                Err(error) => return Err(on_open(error, schema::CELL.name)),
            }
        }
        self.end_swap(model)
    }
}
