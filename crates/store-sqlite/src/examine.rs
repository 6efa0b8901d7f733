//! Looking at every tenant's files: is the database whole, does every leaf have the hash that stands beside
//! it, does the ledger lead to the stored head, has every owner a key, and does every record open? For
//! `merkwelt doctor`.

use merkwelt_domain::TenantId;
use merkwelt_ledger::hash::Hash;
use merkwelt_ledger::log::Head;
use merkwelt_ledger::token::UtcMillis;
use merkwelt_store::Error;
use rusqlite::{Connection, Row};

use crate::cell::Cell;
use crate::crypt::Place;
use crate::error::Sql as _;
use crate::instance::Sqlite;
use crate::library::{passage_place, source_place};
use crate::log::read_head;
use crate::pool::lock;
use crate::rows::{memory_place, plain_place, text_at, turn_place};
use crate::schema;

/// What was found at one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The tenant.
    pub tenant: TenantId,
    /// Entries of its ledger.
    pub entries: u64,
    /// What is wrong and what to do, in words that name no content.
    pub problem: Option<String>,
}

const RESTORE: &str = "restore cell.db from a backup";

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

    /// Folders below `tenants` that belong to no tenant: of tenants whose creation was interrupted before it
    /// was acknowledged, or of another instance.
    #[must_use]
    pub fn strays(&self) -> Vec<String> {
        let tenants = lock(&self.inner.control).tenant_ids();
        let mut folders = self.inner.layout.tenants().unwrap_or_default();
        folders.retain(|folder| !tenants.iter().any(|tenant| tenant.as_str() == folder));
        folders.sort();
        folders
    }

    fn examine_one(&self, tenant: TenantId) -> Examined {
        let looked = self.inner.cell(&tenant).and_then(|cell| cell.snapshot(look));
        let known = self.ailing().into_iter().find(|ailing| ailing.tenant == tenant);
        let (entries, problem) = match (looked, known) {
            (Ok((entries, Some(problem))), _) => (entries, Some(problem)),
            (Ok((entries, None)), known) => (entries, known.map(|known| known.reason.to_string())),
            (Err(_), Some(known)) => (0, Some(known.reason.to_string())),
            (Err(_), None) => (0, Some(format!("its files cannot be read; {RESTORE}"))),
        };
        Examined { tenant, entries, problem }
    }
}

fn look(cell: &Cell, db: &Connection) -> Result<(u64, Option<String>), Error> {
    let verdict = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    if verdict.as_deref() != Ok("ok") {
        return Ok((0, Some(format!("its database is damaged; {RESTORE}"))));
    }
    if !schema::is_own(&schema::CELL, db)? {
        return Ok((0, Some(format!("its tables are not described as they should be; {RESTORE}"))));
    }
    let stored = read_head(db)?;
    let size = stored.size();
    let Some(rebuilt) = rebuild(db)? else {
        return Ok((size, Some(format!("an entry of its ledger was changed; {RESTORE}"))));
    };
    if rebuilt.size() != size || rebuilt.root() != stored.root() {
        return Ok((size, Some(format!("its ledger does not lead to its head; {RESTORE}"))));
    }
    let mut seen = Seen::default();
    let subjects = "SELECT id, 0, id, reference FROM subjects WHERE erasing = 0";
    seen.table(cell, db, subjects, |tenant, id, _, _| plain_place(tenant, "subjects", id))?;
    let memories =
        "SELECT id, revision, owner, body, terms, opening, vector, vector_next FROM memories ORDER BY owner";
    seen.table(cell, db, memories, memory_place)?;
    let turns = "SELECT conversation, number, owner, body, terms, opening, vector, vector_next FROM turns ORDER BY owner";
    seen.table(cell, db, turns, turn_place)?;
    let sources = "SELECT id, 0, id, body FROM sources WHERE body IS NOT NULL";
    seen.table(cell, db, sources, |tenant, id, _, _| source_place(tenant, id))?;
    let passages = "SELECT revision, number, source, body, terms, NULL, vector, vector_next FROM passages
                    WHERE body IS NOT NULL ORDER BY source";
    seen.table(cell, db, passages, passage_place)?;
    Ok((size, seen.problem()))
}

/// Where a column of a row stands.
type MakePlace = for<'a> fn(&'a TenantId, &'a str, u32, &'static str) -> Place<'a>;

/// Records that cannot be opened.
#[derive(Debug, Default)]
struct Seen {
    without_key: u64,
    changed: u64,
}

impl Seen {
    fn table(&mut self, cell: &Cell, db: &Connection, sql: &str, place: MakePlace) -> Result<(), Error> {
        let mut statement = db.prepare(sql).sql()?;
        let mut rows = statement.query([]).sql()?;
        while let Some(row) = rows.next().sql()? {
            match opens(cell, row, place) {
                Ok(()) => {}
                Err(Error::NotFound) => self.without_key += 1,
                Err(_) => self.changed += 1,
            }
        }
        Ok(())
    }

    fn problem(&self) -> Option<String> {
        let (lost, changed) = (self.without_key, self.changed);
        if lost > 0 {
            return Some(format!(
                "{lost} records have no key: keys.db is older than cell.db; restore the newest keys.db"
            ));
        }
        (changed > 0).then(|| format!("{changed} records were changed on the disk; {RESTORE}"))
    }
}

fn opens(cell: &Cell, row: &Row<'_>, place: MakePlace) -> Result<(), Error> {
    let (id, number) = (text_at(row, 0)?, row.get(1).sql()?);
    let keys = cell.owner_keys(text_at(row, 2)?)?;
    let columns = row.as_ref().column_count();
    for (at, column) in (3..columns).zip(["body", "terms", "opening", "vector", "vector"]) {
        let sealed = row.get_ref(at).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
        if let Some(sealed) = sealed {
            keys.sealer.open(place(&cell.tenant, id, number, column), sealed)?;
        }
    }
    Ok(())
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
