//! An open data directory: which cells are open, what they may take of memory, and how tenants and keys of
//! the instance come to be.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use merkwelt_authz::Role;
use merkwelt_domain::{Env, FaultPoint, TenantId, TenantName, Timestamp};
use merkwelt_ledger::entry::EntryType;
use merkwelt_store::evidence::founding_draft;
use merkwelt_store::query::ModelId;
use merkwelt_store::{Error, Founding, KeyInfo, NewKey, Tenant};

use crate::cell::{Bound, Cell, Unfilled, Vectors};
use crate::control::{Control, TenantSecrets};
use crate::crypt::MasterKey;
use crate::error::{Ailing, OpenError, on_open};
use crate::layout::Layout;
use crate::pool::{Pool, Threads, lock};
use crate::schema;
use crate::snapshot::State;

mod cells;

/// How an instance works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The embedding model in use. Vectors of another are refused (I-14); without one, the first model
    /// that a tenant writes vectors of is the tenant's.
    pub model: Option<ModelId>,
    /// Where blocking work runs.
    pub threads: Threads,
    /// The most bytes that search shards may take together; the longest unused go first.
    pub shard_bytes_max: usize,
    /// The most cells that are open at once, with up to four connections each.
    pub cells_max: usize,
    /// For how long a cell may be unused before it is closed and its shard given up, in milliseconds.
    pub idle_ms_max: i64,
}

impl Default for Options {
    /// Four threads, 1 GiB of shards, 512 open cells, ten minutes.
    fn default() -> Self {
        Self {
            model: None,
            threads: Threads::Pool(NonZeroUsize::MIN.saturating_add(3)),
            shard_bytes_max: 1 << 30,
            cells_max: 512,
            idle_ms_max: 600_000,
        }
    }
}

/// What an instance takes at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Open cells.
    pub cells: usize,
    /// About the bytes of their search shards.
    pub shard_bytes: usize,
    /// Transactions that the open cells committed since they were opened.
    pub commits: u64,
}

/// The embedded store. Dropping it finishes what was begun and closes the files.
pub struct Sqlite {
    pub(crate) pool: Pool,
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sqlite({} open cells)", self.usage().cells)
    }
}

/// What the pool's tasks share.
pub(crate) struct Inner {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) control: Mutex<Control>,
    pub(crate) layout: Layout,
    options: Options,
    cells: Mutex<BTreeMap<TenantId, Arc<Cell>>>,
    /// Held while a cell is opened or a tenant is made, so that no cell is ever opened twice.
    opening: Mutex<()>,
    /// Held while a key is revoked.
    pub(crate) revoking: Mutex<()>,
    bound: Bound,
    pub(crate) unfilled: Unfilled,
    uses: AtomicU64,
    /// Tenants that cannot be served, or not fully, as far as it was noticed.
    ailing: Mutex<BTreeMap<TenantId, OpenError>>,
    /// When idle cells were last looked for, in milliseconds.
    rested_at: AtomicI64,
    /// Goes last: the lock is given back when everything is closed.
    _lock: File,
}

/// What the instance's own tenant is called; no other may be.
const SYSTEM_NAME: &str = "system";

impl Sqlite {
    /// Creates a data directory with the first tenants and keys. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]; what was begun is left behind and is no data directory.
    pub fn create(
        root: &Path,
        master: &MasterKey,
        founding: Founding,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let begun = Self::begin(root, master, founding, env, options)?;
        begun.settle()?;
        Ok(begun)
    }

    /// The same, but nothing counts before [`Sqlite::settle`]: after a crash until then the path is no data
    /// directory, and the next call begins anew. So keys can be shown in between. Blocks.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn begin(
        root: &Path,
        master: &MasterKey,
        founding: Founding,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let (layout, lock) = Layout::create(root)?;
        let control = Control::create(&layout.control(), master)?;
        if let Some(model) = &options.model {
            control.set_model(model)?;
        }
        let inner = Inner::over(layout, lock, control, env, options);
        inner.found(founding)?;
        Ok(Self::over(Arc::new(inner)))
    }

    /// Ends what [`Sqlite::begin`] began. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing may be acknowledged.
    pub fn settle(&self) -> Result<(), OpenError> {
        self.inner.layout.settle()
    }

    /// Opens a data directory and resumes what was interrupted. A tenant whose files are damaged does not
    /// stop the others; [`Sqlite::ailing`] names it. Blocks.
    ///
    /// # Errors
    /// [`OpenError`], each with a text that says what to do.
    pub fn open(
        root: &Path,
        master: &MasterKey,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let layout = Layout::open(root)?;
        let lock = layout.lock()?;
        let control = Control::open(&layout.control(), master)?;
        let inner = Inner::over(layout, lock, control, env, options);
        inner.probe_tenants()?;
        inner.resume_swap()?;
        if let Some(configured) = &inner.options.model {
            inner.check_model(configured)?;
        }
        inner.resume().map_err(|error| on_open(error, schema::CONTROL.name))?;
        Ok(Self::over(Arc::new(inner)))
    }

    fn over(inner: Arc<Inner>) -> Self {
        let resting = Arc::downgrade(&inner);
        let rest = Box::new(move || {
            if let Some(inner) = resting.upgrade() {
                inner.rest();
            }
        });
        Self { pool: Pool::new(inner.options.threads, rest), inner }
    }

    /// The tenants that cannot be served, or not fully, as far as it was noticed since the start.
    #[must_use]
    pub fn ailing(&self) -> Vec<Ailing> {
        let ailing = lock(&self.inner.ailing);
        let one = |(tenant, reason): (&TenantId, &OpenError)| Ailing {
            tenant: tenant.clone(),
            reason: reason.clone(),
        };
        ailing.iter().map(one).collect()
    }

    /// Tries to open the tenants again that could not be opened for a reason that may have passed, such as a full
    /// disk or a missing right. Nothing is tried while nothing is wrong. Blocks.
    pub fn look_again(&self) {
        self.inner.look_again();
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant_named(&self, name: &TenantName) -> Option<TenantId> {
        let tenants = lock(&self.inner.control).tenants();
        tenants.into_iter().find(|tenant| tenant.name == *name).map(|tenant| tenant.id)
    }

    /// Whether the data directory can be written and read now. Leaves nothing behind. Blocks.
    ///
    /// # Errors
    /// [`OpenError`] with what stands in the way.
    pub fn try_out(&self) -> Result<(), OpenError> {
        self.inner.layout.try_out()
    }

    /// What is in use now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let cells = lock(&self.inner.cells);
        Usage {
            cells: cells.len(),
            shard_bytes: cells.values().map(|cell| cell.shard.bytes()).sum(),
            commits: cells.values().map(|cell| cell.writer.commits()).sum(),
        }
    }
}

impl Inner {
    fn over(layout: Layout, lock: File, control: Control, env: Arc<dyn Env>, options: Options) -> Self {
        Self {
            env,
            control: Mutex::new(control),
            layout,
            bound: Arc::new(RwLock::new(options.model.clone())),
            options,
            cells: Mutex::new(BTreeMap::new()),
            opening: Mutex::new(()),
            revoking: Mutex::new(()),
            unfilled: Unfilled::default(),
            uses: AtomicU64::new(0),
            ailing: Mutex::new(BTreeMap::new()),
            rested_at: AtomicI64::new(0),
            _lock: lock,
        }
    }

    /// Notes what is wrong with a tenant. A first finding stays: what follows is often its consequence.
    pub(crate) fn note_ailing(&self, tenant: &TenantId, reason: OpenError) {
        let mut ailing = lock(&self.ailing);
        match ailing.get(tenant) {
            Some(known) if !known.may_pass() => {}
            Some(_) | None => drop(ailing.insert(tenant.clone(), reason)),
        }
    }

    /// Passes a result on, noting that a tenant's data could not be read.
    pub(crate) fn noting<T>(&self, tenant: &TenantId, result: Result<T, Error>) -> Result<T, Error> {
        if matches!(result, Err(Error::Damaged)) {
            self.note_ailing(tenant, OpenError::Damaged(schema::CELL.name));
        }
        result
    }

    /// Looks at the heads of all files. A damaged tenant, and one whose files may not be used, is noted and does not
    /// stop the others.
    fn probe_tenants(&self) -> Result<(), OpenError> {
        for tenant in lock(&self.control).tenant_ids() {
            let (cell, keys) = (self.layout.cell(&tenant), self.layout.keys(&tenant));
            let probed =
                schema::probe(&schema::CELL, &cell).and_then(|()| schema::probe(&schema::KEYS, &keys));
            match probed {
                Ok(()) => {}
                Err(reason @ OpenError::NoRight(_)) => self.note_ailing(&tenant, reason),
                // What is wrong with the machine is wrong for all.
                Err(reason) if reason.may_pass() => return Err(reason),
                Err(reason) => self.note_ailing(&tenant, reason),
            }
        }
        Ok(())
    }

    fn found(&self, founding: Founding) -> Result<(), OpenError> {
        let Founding { system, admin, tenant, keys, at } = founding;
        let name = SYSTEM_NAME.parse().map_err(|_| OpenError::Damaged(schema::CONTROL.name))?;
        if tenant.name == name || tenant.id == system {
            return Err(OpenError::Exists);
        }
        let own = Tenant { id: system, name, created_at: at };
        self.make_tenant(&own, vec![admin], true, at)?;
        self.make_tenant(&tenant, keys, false, at)
    }

    fn make_tenant(
        &self,
        tenant: &Tenant,
        keys: Vec<NewKey>,
        system: bool,
        at: Timestamp,
    ) -> Result<(), OpenError> {
        let secrets = TenantSecrets::random(self.env.as_ref());
        let cell = Cell::create(&self.layout, &tenant.id, &secrets, &self.env, self.vectors(), at)?;
        let file = schema::CONTROL.name;
        if system {
            lock(&self.control).set_system(&tenant.id);
        }
        let keys = keys
            .into_iter()
            .map(|key| self.found_key(&cell, key, at))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| on_open(error, file))?;
        lock(&self.control)
            .add_tenant(self.env.as_ref(), tenant, &secrets, system, &keys)
            .map_err(|error| on_open(error, file))?;
        self.keep(cell);
        Ok(())
    }

    /// Makes the cell of a further tenant; `witness` writes the evidence between the files and the row that
    /// makes them count.
    pub(crate) fn add_tenant(
        &self,
        tenant: &Tenant,
        first: NewKey,
        witness: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _opening = lock(&self.opening);
        let at = tenant.created_at;
        if lock(&self.control).has_tenant(&tenant.id, &tenant.name)
            || lock(&self.control).key(&first.credential.key).is_some()
        {
            return Err(Error::Exists);
        }
        if first.credential.tenant != tenant.id {
            return Err(Error::NotFound);
        }
        let secrets = TenantSecrets::random(self.env.as_ref());
        let cell = Cell::create(&self.layout, &tenant.id, &secrets, &self.env, self.vectors(), at);
        let cell = cell.map_err(|error| {
            let _ = self.layout.remove_tenant(&tenant.id);
            error.to_store()
        })?;
        let key = self.found_key(&cell, first, at)?;
        witness()?;
        self.env.reach(FaultPoint::AfterEntry).map_err(|_| Error::Unavailable)?;
        lock(&self.control).add_tenant(self.env.as_ref(), tenant, &secrets, false, &[key])?;
        self.keep(cell);
        Ok(())
    }

    /// Binds a key that comes into being with its tenant, when no key of the tenant could ask for it.
    fn found_key(&self, cell: &Cell, key: NewKey, at: Timestamp) -> Result<KeyInfo, Error> {
        let info = self.bind(cell, key, at)?;
        let id = info.credential.key.as_str();
        let draft = founding_draft(&cell.tenant, EntryType::KeyChanged, "created", id)?;
        cell.write_blocking(move |work| work.append(&[draft], at).map(|_| ()))?;
        Ok(info)
    }

    /// Binds a new key to the subject it names.
    pub(crate) fn bind(&self, cell: &Cell, key: NewKey, at: Timestamp) -> Result<KeyInfo, Error> {
        let NewKey { mut credential, subject, label } = key;
        let system = lock(&self.control).system()?;
        let instance = credential.role == Role::InstanceAdmin && cell.tenant != system;
        if credential.tenant != cell.tenant || instance {
            return Err(Error::NotFound);
        }
        credential.subject = subject.map(|reference| cell.subject(&reference)).transpose()?;
        Ok(KeyInfo { credential, label, created_at: at })
    }

    pub(crate) fn vectors(&self) -> Vectors {
        Vectors { bound: Arc::clone(&self.bound), unfilled: Arc::clone(&self.unfilled) }
    }

    /// Tenants without vectors take those of `model` from now on.
    pub(crate) fn bind_model(&self, model: &ModelId) {
        *self.bound.write().unwrap_or_else(PoisonError::into_inner) = Some(model.clone());
    }

    /// Refuses a model if the data have vectors of another, and binds the data to it if they have none (I-14).
    pub(crate) fn check_model(&self, configured: &ModelId) -> Result<(), OpenError> {
        let recorded = lock(&self.control).model()?;
        let other = |recorded: &ModelId| OpenError::OtherModel {
            recorded: recorded.as_str().to_owned(),
            configured: configured.as_str().to_owned(),
        };
        if let Some(recorded) = recorded {
            return if recorded == *configured { Ok(()) } else { Err(other(&recorded)) };
        }
        // The first start with a model: whatever was written without one configured must be of it.
        let tenants = lock(&self.control).tenant_ids();
        for tenant in tenants {
            let state = self.cell(&tenant).and_then(|cell| cell.snapshot(|_, db| State::read(db)));
            // Of a damaged tenant nothing is searched either.
            let Ok(state) = self.noting(&tenant, state) else { continue };
            if let Some(kept) = state.model.filter(|kept| kept != configured) {
                return Err(other(&kept));
            }
        }
        lock(&self.control).set_model(configured)
    }

    fn resume(&self) -> Result<(), Error> {
        let marked = lock(&self.control).erasing()?;
        for tenant in marked {
            // The mark stays, so that the next start tries again; the tombstone keeps the subject hidden.
            if self.resume_tenant(&tenant).is_err() {
                self.note_ailing(&tenant, OpenError::Unfinished);
            }
        }
        Ok(())
    }

    fn resume_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        let cell = self.cell(tenant)?;
        for subject in cell.pending_erasures()? {
            let id = subject.parse().map_err(|_| Error::Damaged)?;
            lock(&self.control).unbind(tenant, &id, self.env.now())?;
            cell.finish_erasure(&subject, self.env.now())?;
        }
        for source in cell.unfinished_deletions()? {
            cell.finish_deletion(&source)?;
        }
        lock(&self.control).mark_erasing(tenant, false)
    }
}
