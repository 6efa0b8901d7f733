//! Looking at every tenant's files: is the database whole, does every leaf have the hash that stands beside
//! it, and does the ledger lead to the stored head? For `merkwelt doctor`.

use merkwelt_domain::TenantId;
use merkwelt_ledger::hash::Hash;
use merkwelt_ledger::log::Head;
use merkwelt_ledger::token::UtcMillis;
use merkwelt_store::Error;
use rusqlite::Connection;

use crate::error::Sql as _;
use crate::instance::Sqlite;
use crate::log::read_head;
use crate::pool::lock;

/// What was found at one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The tenant.
    pub tenant: TenantId,
    /// Entries of its ledger.
    pub entries: u64,
    /// What is wrong, in words that name no content.
    pub problem: Option<&'static str>,
}

impl Sqlite {
    /// Examines every tenant, the instance's own included. Blocks; reads everything once.
    ///
    /// # Errors
    /// [`Error`] if the list of tenants cannot be read; what is wrong with one tenant is in its
    /// [`Examined::problem`].
    pub fn examine(&self) -> Result<Vec<Examined>, Error> {
        let mut tenants = lock(&self.inner.control).tenant_ids();
        tenants.sort();
        Ok(tenants.into_iter().map(|tenant| self.examine_one(tenant)).collect())
    }

    fn examine_one(&self, tenant: TenantId) -> Examined {
        let looked = self.inner.cell(&tenant).and_then(|cell| cell.snapshot(|_, db| look(db)));
        let (entries, problem) = match looked {
            Ok(found) => found,
            Err(_) => (0, Some("its files cannot be read")),
        };
        Examined { tenant, entries, problem }
    }
}

fn look(db: &Connection) -> Result<(u64, Option<&'static str>), Error> {
    let verdict: String = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).sql()?;
    if verdict != "ok" {
        return Ok((0, Some("its database is damaged")));
    }
    let stored = read_head(db)?;
    let Some(rebuilt) = rebuild(db)? else {
        return Ok((stored.size(), Some("an entry of its ledger was changed")));
    };
    let whole = rebuilt.size() == stored.size() && rebuilt.root() == stored.root();
    Ok((stored.size(), (!whole).then_some("its ledger does not lead to its head")))
}

/// The head that the leaves lead to, or `None` if a leaf does not have its hash or its place.
fn rebuild(db: &Connection) -> Result<Option<Head>, Error> {
    let mut statement = db.prepare("SELECT position, at, hash, entry FROM ledger ORDER BY position").sql()?;
    let mut rows = statement.query([]).sql()?;
    let mut leaves = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let (position, at): (u64, i64) = (row.get(0).sql()?, row.get(1).sql()?);
        let (hash, entry): (Vec<u8>, Vec<u8>) = (row.get(2).sql()?, row.get(3).sql()?);
        let hash = Hash::from_slice(&hash).map_err(|_| Error::Damaged)?;
        if Hash::of_leaf(&entry) != hash {
            return Ok(None);
        }
        leaves.push((position, hash, UtcMillis::from_unix_ms(at).map_err(|_| Error::Damaged)?));
    }
    Ok(Head::recover(leaves).ok())
}
