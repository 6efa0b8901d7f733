//! One tenant's cell: its files, its keys, its writer, its readers and its search shard. Everything of a
//! tenant stands in one SQLite file, so one transaction covers a change, the permission it rests on and its
//! evidence.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use merkwelt_domain::{Env, TenantId, Timestamp};
use merkwelt_ledger::canonical::{Value, parse_strict};
use merkwelt_ledger::note::Signer;
use merkwelt_store::Error;
use merkwelt_store::evidence::genesis_draft;
use merkwelt_store::query::ModelId;
use rusqlite::Connection;

use crate::control::TenantSecrets;
use crate::crypt::{OwnerKeys, Secret, TenantKeys};
use crate::error::{OpenError, on_open};
use crate::keyring::Keyring;
use crate::layout::Layout;
use crate::log;
use crate::present::Present;
use crate::readers::Readers;
use crate::schema;
use crate::shard::ShardPlace;
use crate::snapshot::{Snapshot, State, Viewer};
use crate::terms::Mark;
use crate::writer::Writer;

/// Tenants in which something was written without a vector, until somebody takes them up.
pub(crate) type Unfilled = Arc<Mutex<BTreeSet<TenantId>>>;

/// The model that tenants without vectors take, the same for all cells; it changes when the model of the instance
/// does.
pub(crate) type Bound = Arc<RwLock<Option<ModelId>>>;

/// What a cell is told of vectors.
#[derive(Clone)]
pub(crate) struct Vectors {
    pub(crate) bound: Bound,
    pub(crate) unfilled: Unfilled,
}

/// An open cell.
pub(crate) struct Cell {
    pub(crate) tenant: TenantId,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) keys: TenantKeys,
    pub(crate) ring: Keyring,
    pub(crate) writer: Writer,
    pub(crate) shard: ShardPlace,
    /// The model the instance is bound to; a tenant without vectors refuses those of another.
    bound: Bound,
    /// The model of the vectors as it was last committed.
    committed: RwLock<Option<ModelId>>,
    /// Where a write notes that a row is without a vector, for after its commit.
    pub(crate) lacking: AtomicBool,
    /// The tenants with such rows, told after the commit.
    pub(crate) unfilled: Unfilled,
    /// The analysis by which kept terms were made, if nothing changed.
    pub(crate) analysis: Mark,
    /// When it was last used, in uses of the instance.
    pub(crate) used: AtomicU64,
    /// The same by the clock, in milliseconds.
    pub(crate) used_at: AtomicI64,
    /// When it was used for the last time before it rested.
    rested_at: AtomicI64,
    pub(crate) readers: Readers,
    pub(crate) present: Present,
    /// Held shared by every reader; held alone while the file is rewritten.
    gate: RwLock<()>,
}

impl Cell {
    /// Makes the files of a new tenant and the genesis of its ledger. Durable when it returns.
    pub(crate) fn create(
        layout: &Layout,
        tenant: &TenantId,
        secrets: &TenantSecrets,
        env: &Arc<dyn Env>,
        vectors: Vectors,
        at: Timestamp,
    ) -> Result<Self, OpenError> {
        layout.make_tenant(tenant)?;
        let ring = Keyring::create(tenant, &layout.keys(tenant))?;
        let path = layout.cell(tenant);
        let writer = Writer::over(schema::create(&schema::CELL, &path)?);
        let cell = Self::assemble(tenant, secrets, env, vectors, (ring, writer, path))?;
        cell.begin(&secrets.seed, at).map_err(|error| on_open(error, schema::CELL.name))?;
        layout.sync(tenant)?;
        Ok(cell)
    }

    /// Opens the files of a tenant.
    pub(crate) fn open(
        layout: &Layout,
        tenant: &TenantId,
        secrets: &TenantSecrets,
        env: &Arc<dyn Env>,
        vectors: Vectors,
    ) -> Result<Self, OpenError> {
        let ring = Keyring::open(tenant, &layout.keys(tenant))?;
        let path = layout.cell(tenant);
        let writer = Writer::over(schema::open(&schema::CELL, &path)?);
        let cell = Self::assemble(tenant, secrets, env, vectors, (ring, writer, path))?;
        cell.recognise(&secrets.seed)?;
        let state = cell.writer.alone(State::read).map_err(|error| on_open(error, schema::CELL.name))?;
        cell.present.settle(state.epochs.grants);
        cell.note_model(state.model);
        Ok(cell)
    }

    /// Refuses whole files of another tenant or another instance: the keyring must hold the tenant's own key,
    /// wrapped by this instance, and the ledger must begin with this tenant and its key.
    fn recognise(&self, seed: &Secret) -> Result<(), OpenError> {
        let cell = schema::CELL.name;
        match self.owner_keys(self.tenant.as_str()) {
            Ok(_) => {}
            // An unreadable wrapping and a missing one look alike: the file is not this tenant's.
            Err(Error::NotFound | Error::Damaged) => return Err(OpenError::Misplaced(schema::KEYS.name)),
            Err(error) => return Err(on_open(error, schema::KEYS.name)),
        }
        let signer = signer(&self.tenant, seed).map_err(|error| on_open(error, cell))?;
        let first = self.writer.alone(|db| log::entries(db, 0, 1)).map_err(|error| on_open(error, cell))?;
        let first = first.first().and_then(|leaf| parse_strict(leaf).ok());
        let first = first.ok_or(OpenError::Damaged(cell))?;
        let says = |name, own: &str| first.get(name).and_then(Value::as_text) == Some(own);
        let own = says("tenant", self.tenant.as_str()) && says("key", &signer.verifier_key().to_string());
        if own { Ok(()) } else { Err(OpenError::Misplaced(cell)) }
    }

    fn assemble(
        tenant: &TenantId,
        secrets: &TenantSecrets,
        env: &Arc<dyn Env>,
        vectors: Vectors,
        (ring, writer, path): (Keyring, Writer, PathBuf),
    ) -> Result<Self, OpenError> {
        Ok(Self {
            tenant: tenant.clone(),
            env: Arc::clone(env),
            keys: TenantKeys::new(&secrets.key).map_err(|error| on_open(error, schema::CELL.name))?,
            ring,
            writer,
            shard: ShardPlace::default(),
            bound: vectors.bound,
            committed: RwLock::new(None),
            lacking: AtomicBool::new(false),
            unfilled: vectors.unfilled,
            analysis: Mark::present(),
            used: AtomicU64::new(0),
            used_at: AtomicI64::new(env.now().millis()),
            rested_at: AtomicI64::new(i64::MIN),
            readers: Readers::over(path),
            present: Present::default(),
            gate: RwLock::new(()),
        })
    }

    /// The tenant's own key and the first entry of its ledger.
    fn begin(&self, seed: &Secret, at: Timestamp) -> Result<(), Error> {
        self.ring.add(self.env.as_ref(), &self.keys, self.tenant.as_str())?;
        let draft = genesis_draft(&self.tenant, signer(&self.tenant, seed)?.verifier_key().clone())?;
        self.write_blocking(move |work| work.append(&[draft], at).map(|_| ()))
    }

    /// The model whose vectors are compared and taken in a state.
    pub(crate) fn model_of(&self, state: &State) -> Option<ModelId> {
        state.model.clone().or_else(|| self.bound.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The same as of the last commit, without a look at the file. It may be over when it is used.
    pub(crate) fn model_now(&self) -> Option<ModelId> {
        let committed = self.committed.read().unwrap_or_else(PoisonError::into_inner).clone();
        committed.or_else(|| self.bound.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// A commit changed the model. Whoever calls this is the only writer.
    pub(crate) fn note_model(&self, model: Option<ModelId>) {
        *self.committed.write().unwrap_or_else(PoisonError::into_inner) = model;
    }

    /// The keys of an owner, by the id that stands in the `owner` column.
    pub(crate) fn owner_keys(&self, owner: &str) -> Result<Arc<OwnerKeys>, Error> {
        self.ring.get(&self.keys, owner)
    }

    /// Reads in one snapshot, after comparing the grant epoch in it (I-2).
    pub(crate) fn read<T>(
        &self,
        viewer: &Viewer,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.snapshot(|cell, connection| work(&Snapshot::take(cell, connection, viewer)?))
    }

    /// Reads in one snapshot on the service's own behalf.
    pub(crate) fn snapshot<T>(
        &self,
        work: impl FnOnce(&Self, &Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        use crate::error::Sql as _;
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let reader = self.readers.take()?;
        // A connection on which something goes wrong, a panic too, is not kept, and its transaction ends with it.
        schema::run(&reader.connection, "BEGIN").sql()?;
        let result = work(self, &reader.connection);
        schema::run(&reader.connection, "COMMIT").sql()?;
        self.readers.put_back(reader);
        result
    }

    /// Gives back the pages of its connections, once after each time it was used. It waits for nobody who reads
    /// or writes.
    pub(crate) fn rest(&self) {
        let used_at = self.used_at.load(Ordering::Relaxed);
        if self.rested_at.swap(used_at, Ordering::Relaxed) != used_at {
            self.readers.rest();
            self.writer.rest();
        }
    }

    /// Destroys the key of an owner whose tombstone is committed, so that whoever reads from now on does not see
    /// the owner's rows. Idempotent.
    pub(crate) fn destroy_key(&self, owner: &str) -> Result<(), Error> {
        // INVARIANT: who reads in a snapshot from before the tombstone has the keys of all its rows until the end;
        // a row without a key is damage and nothing else.
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.ring.discard(owner)?;
        drop(gate);
        self.ring.destroy(owner)
    }

    /// Rewrites the file without its dead bytes while no reader is inside.
    pub(crate) fn compact(&self) -> Result<(), Error> {
        self.writer.alone(|connection| {
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            // Idle readers hold no snapshot, but their page caches hold pages.
            self.readers.close();
            schema::compact(connection)
        })
    }
}

/// The key of a tenant's ledger. Its name is the log's origin.
pub(crate) fn signer(tenant: &TenantId, seed: &Secret) -> Result<Signer, Error> {
    Signer::from_seed(&origin(tenant), seed.expose()).map_err(|_| Error::Damaged)
}

/// The identity of a tenant's ledger.
pub(crate) fn origin(tenant: &TenantId) -> String {
    format!("merkwelt/tenant/{}", tenant.as_str())
}
