//! `keys.db` of a tenant: one wrapped key per owner. It is a file of its own so that destroying a key can
//! rewrite it in a moment, and so that backups of content never contain it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use merkwelt_domain::{Env, TenantId};
use merkwelt_store::Error;
use rusqlite::{Connection, OptionalExtension as _};

use crate::crypt::{OwnerKeys, Place, Secret, TenantKeys};
use crate::error::{OpenError, Sql as _};
use crate::pool::lock;
use crate::schema;

/// Unwrapped keys are kept for at most this many owners per tenant.
const CACHED_MAX: usize = 4096;

/// The keyring of one tenant.
pub(crate) struct Keyring {
    tenant: TenantId,
    connection: Mutex<Connection>,
    cache: Mutex<BTreeMap<String, Arc<OwnerKeys>>>,
}

impl Keyring {
    pub(crate) fn create(tenant: &TenantId, path: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(tenant, schema::create(&schema::KEYS, path)?))
    }

    pub(crate) fn open(tenant: &TenantId, path: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(tenant, schema::open(&schema::KEYS, path)?))
    }

    fn over(tenant: &TenantId, connection: Connection) -> Self {
        Self {
            tenant: tenant.clone(),
            connection: Mutex::new(connection),
            cache: Mutex::new(BTreeMap::new()),
        }
    }

    fn place<'a>(&'a self, owner: &'a str) -> Place<'a> {
        Place { tenant: self.tenant.as_str(), table: "keys", row: owner, revision: 0, column: "wrapped" }
    }

    /// Draws a key for a new owner. Durable when it returns, so that no row is ever older than its key.
    pub(crate) fn add(&self, env: &dyn Env, tenant: &TenantKeys, owner: &str) -> Result<(), Error> {
        let key = Secret::random(env);
        let wrapped = tenant.wrapping.seal(env, self.place(owner), key.expose())?;
        lock(&self.connection)
            .execute("INSERT INTO keys (owner, wrapped) VALUES (?1, ?2)", (owner, wrapped))
            .sql()?;
        Ok(())
    }

    /// The keys of an owner if they were used before; does not touch the disk.
    pub(crate) fn cached(&self, owner: &str) -> Option<Arc<OwnerKeys>> {
        lock(&self.cache).get(owner).cloned()
    }

    /// The keys of an owner; [`Error::NotFound`] if they were destroyed or never were.
    pub(crate) fn get(&self, tenant: &TenantKeys, owner: &str) -> Result<Arc<OwnerKeys>, Error> {
        if let Some(keys) = self.cached(owner) {
            return Ok(keys);
        }
        // The connection stays locked until the cache is filled: a key that is destroyed meanwhile must not
        // come back from the cache.
        let connection = lock(&self.connection);
        let wrapped: Vec<u8> = connection
            .prepare_cached("SELECT wrapped FROM keys WHERE owner = ?1")
            .and_then(|mut statement| statement.query_row([owner], |row| row.get(0)).optional())
            .sql()?
            .ok_or(Error::NotFound)?;
        let key = Secret::from_slice(&tenant.wrapping.open(self.place(owner), &wrapped)?)?;
        let keys = Arc::new(OwnerKeys::new(&key)?);
        let mut cache = lock(&self.cache);
        if cache.len() >= CACHED_MAX {
            cache.pop_first();
        }
        cache.insert(owner.to_owned(), Arc::clone(&keys));
        Ok(keys)
    }

    /// Takes back a key that no row uses.
    pub(crate) fn discard(&self, owner: &str) -> Result<(), Error> {
        let connection = lock(&self.connection);
        connection.execute("DELETE FROM keys WHERE owner = ?1", [owner]).sql()?;
        lock(&self.cache).remove(owner);
        Ok(())
    }

    /// Destroys a key beyond recovery: the point of no return of an erasure. Idempotent.
    pub(crate) fn destroy(&self, owner: &str) -> Result<(), Error> {
        self.discard(owner)?;
        schema::compact(&lock(&self.connection))
    }

    /// How many keys an owner has: one or none.
    pub(crate) fn count(&self, owner: &str) -> Result<u64, Error> {
        let cached = u64::from(lock(&self.cache).contains_key(owner));
        let stored: u64 = lock(&self.connection)
            .query_row("SELECT count(*) FROM keys WHERE owner = ?1", [owner], |row| row.get(0))
            .sql()?;
        Ok(stored.max(cached))
    }
}
