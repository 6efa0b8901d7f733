//! Another model while the service serves: its vectors gather beside those that answer, small piece by small piece,
//! until a tenant has nearly all of them; then they take their place in one transaction. Nothing is in memory
//! that a sudden end would lose, and until the switch nobody can tell that it goes on.

use merkwelt_domain::TenantId;
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use rusqlite::Connection;

use crate::cell::Cell;
use crate::error::{OpenError, Sql as _};
use crate::fill::{Column, FillPlace, FillStep, Table, count};
use crate::instance::Sqlite;
use crate::reembed::{Begun, EmbedOrStop, begin, gather, next_model};

/// What was gathered in a tenant and is not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// Of which model.
    pub model: ModelId,
    /// Rows that have a vector of it.
    pub made: u64,
    /// Rows that are without.
    pub missing: u64,
}

impl Sqlite {
    /// The model whose vectors a tenant takes now. Blocks if the tenant is not open.
    ///
    /// # Errors
    /// [`Error`] of a tenant that cannot be opened.
    pub fn model_of(&self, tenant: &TenantId) -> Result<Option<ModelId>, Error> {
        self.inner.cell(tenant).map(|cell| cell.model_now())
    }

    /// Makes a tenant ready to gather vectors of `model`. `None` if its vectors are of it already. What was
    /// gathered for it before stays; what was gathered for another is dropped. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn begin_gathering(&self, tenant: &TenantId, model: &ModelId) -> Result<Option<Begun>, Error> {
        let begun = self.inner.cell(tenant).and_then(|cell| begin(&cell, model));
        self.inner.noting(tenant, begun)
    }

    /// Gathers vectors for some rows, in one small transaction. A row that cannot be embedded is passed by; if
    /// `embed` stops nothing is done. Blocks.
    ///
    /// # Errors
    /// [`Error::ModelMismatch`] if the tenant gathers for another model, [`Error::Unavailable`] if `embed`
    /// stopped, and those of storage.
    pub fn gather_some(
        &self,
        tenant: &TenantId,
        model: &ModelId,
        from: FillPlace,
        embed: &mut EmbedOrStop<'_>,
    ) -> Result<FillStep, Error> {
        let done = self.inner.cell(tenant).and_then(|cell| gather(&cell, model, from, embed));
        self.inner.noting(tenant, done)
    }

    /// The point of no return: from here on a start of the data finishes the change whatever is configured, and
    /// tenants without vectors take those of `model`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn begin_switching(&self, model: &ModelId) -> Result<(), OpenError> {
        self.inner.begin_swap(model)?;
        self.inner.bind_model(model);
        Ok(())
    }

    /// Puts the gathered vectors of a tenant in their place, unless more than `lacking` rows are without one.
    /// Whether it was done. From the commit on the tenant takes vectors of `model` and no other. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn switch_tenant(&self, tenant: &TenantId, model: &ModelId, lacking: u64) -> Result<bool, Error> {
        let done = self.inner.swap_tenant(tenant, model, Some(lacking));
        self.inner.noting(tenant, done)
    }

    /// Every tenant was switched: `model` is the model of the data. One that got vectors of the former model
    /// at the last moment gives them up. Blocks.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn end_switching(&self, model: &ModelId) -> Result<(), OpenError> {
        self.inner.finish_swap(model)
    }

    /// What was gathered in a tenant and is not in use. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn gathered(&self, tenant: &TenantId) -> Result<Option<Gathered>, Error> {
        self.inner.cell(tenant)?.snapshot(look)
    }
}

fn look(cell: &Cell, db: &Connection) -> Result<Option<Gathered>, Error> {
    let Some(model) = next_model(db)? else { return Ok(None) };
    let mut made = 0;
    for table in Table::ALL {
        let sql = format!("SELECT count(*) FROM {} WHERE vector_next IS NOT NULL", table.name());
        made += db.query_row(&sql, [], |row| row.get::<_, u64>(0)).sql()?;
    }
    Ok(Some(Gathered { model, made, missing: count(cell, db, Column::Next)? }))
}
