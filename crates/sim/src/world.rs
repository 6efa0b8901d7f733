//! A simulated instance: a backend on its stage, the application over it, three tenants with a key per role,
//! and what the operator of a machine can do to it: stop it, kill it, start it again.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use merkwelt_app::{App, KeyRequest, SessionLimits, Settings, TenantRequest};
use merkwelt_authz::{ApiKey, Credential, Request, Role};
use merkwelt_domain::basis::AfterRemoval;
use merkwelt_domain::{Env, Purpose, SubjectRef, TenantId};
use merkwelt_store::reference::Reference;
use merkwelt_store::{Backend, Founding, NewKey, Tenant};
use merkwelt_store_sqlite::{MasterKey, Options, Sqlite, Threads};

use crate::draws::Draws;
use crate::env::{SimEnv, copy};
use crate::failure::{Found, Property};
use crate::journal::Journal;
use crate::mutant::{Mutant, Shared, broken, env_of};
use crate::stage::{Misses, Stage};
use crate::words;

/// Which backend plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    /// Everything in memory.
    Reference,
    /// Files in a folder of their own.
    Sqlite,
}

impl BackendKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Sqlite => "sqlite",
        }
    }
}

/// 2026-03-02T08:00:00Z.
pub(crate) const START: i64 = 1_772_438_400_000;

/// A key with its use.
#[derive(Debug, Clone)]
pub(crate) struct RoleKey {
    pub(crate) role: Role,
    pub(crate) key: ApiKey,
}

/// A running process.
struct Running {
    app: Arc<App>,
    stage: Arc<Stage>,
}

/// A simulated instance.
pub(crate) struct Instance {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) journal: Journal,
    pub(crate) misses: Misses,
    pub(crate) kind: BackendKind,
    mutant: Option<Mutant>,
    memo: Shared,
    running: Option<Running>,
    /// The memory that outlives a process of the reference backend, as a disk would.
    reference: Option<Arc<Reference>>,
    folder: Option<tempfile::TempDir>,
    generation: u32,
    after_removal: AfterRemoval,
}

/// What cannot be set up: the machine is at fault, not the product.
fn setup(what: &str) -> Found {
    (Property::Answered, format!("the simulation could not {what}"))
}

fn settings(after_removal: AfterRemoval) -> Settings {
    let session = SessionLimits { idle_ms_max: 2 * 3_600_000, n_turns_max: 6, n_sessions_max: 5 };
    // Longer than a run, so that a repeated request is always recognised.
    Settings { session, idempotency_days: 3_650, after_removal, ..Settings::default() }
}

/// Small caches, so that eviction happens all the time.
fn options() -> Options {
    Options {
        model: None,
        threads: Threads::Inline,
        shard_bytes_max: 24 * 1024,
        cells_max: 3,
        idle_ms_max: 60_000,
    }
}

fn master() -> MasterKey {
    MasterKey::from_bytes([7; 32])
}

/// Runs a future that never waits: the simulation itself passes the stage without a pause.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl Instance {
    /// A new instance with its first tenant, and the keys of the instance and of that tenant.
    pub(crate) fn found(
        kind: BackendKind,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> Result<(Self, ApiKey, Vec<RoleKey>), Found> {
        let env = SimEnv::new(seed, START);
        let (founding, admin, keys) = founding(&env)?;
        let mut instance = Self {
            env,
            journal: Journal::default(),
            misses: Misses::default(),
            kind,
            mutant,
            memo: Shared::default(),
            running: None,
            reference: None,
            folder: None,
            generation: 0,
            after_removal: AfterRemoval::Mark,
        };
        let as_env: Arc<dyn Env> = instance.env.clone();
        let backend: Arc<dyn Backend> = match kind {
            BackendKind::Reference => {
                let made = Reference::found(founding, as_env).map_err(|_| setup("found the reference"))?;
                let made = Arc::new(made);
                instance.reference = Some(Arc::clone(&made));
                made
            }
            BackendKind::Sqlite => {
                instance.folder = Some(folder()?);
                let root = instance.root().ok_or_else(|| setup("make a folder"))?;
                let made = Sqlite::create(&root, &master(), founding, as_env, options());
                Arc::new(made.map_err(|_| setup("create a data directory"))?)
            }
        };
        instance.start(backend);
        Ok((instance, admin, keys))
    }

    fn start(&mut self, backend: Arc<dyn Backend>) {
        let inner = match self.mutant {
            Some(mutant) => broken(mutant, backend, &self.env, &self.memo),
            None => backend,
        };
        let (env, journal) = (Arc::clone(&self.env), self.journal.clone());
        let stage = Arc::new(Stage { inner, env, journal, misses: self.misses.clone() });
        let env = env_of(self.mutant, &self.env);
        let as_backend: Arc<dyn Backend> = stage.clone();
        let app = Arc::new(App::new(as_backend, env, None, words::counter(), settings(self.after_removal)));
        self.running = Some(Running { app, stage });
        self.env.watch(self.root().zip(self.next_root()));
    }

    fn place(&self, generation: u32) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.path().join(generation.to_string()))
    }

    /// The present data directory.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        self.place(self.generation)
    }

    fn next_root(&self) -> Option<PathBuf> {
        self.place(self.generation + 1)
    }

    pub(crate) fn app(&self) -> Result<Arc<App>, Found> {
        Ok(Arc::clone(&self.running.as_ref().ok_or_else(|| setup("run"))?.app))
    }

    pub(crate) fn backend(&self) -> Result<Arc<dyn Backend>, Found> {
        let backend: Arc<dyn Backend> = self.running.as_ref().ok_or_else(|| setup("run"))?.stage.clone();
        Ok(backend)
    }

    /// What rests on a removed source is delivered nowhere from now on.
    pub(crate) fn withhold(&mut self) -> Result<(), Found> {
        self.after_removal = AfterRemoval::Withhold;
        self.restart()
    }

    /// Stops the process in an orderly way and starts it again.
    pub(crate) fn restart(&mut self) -> Result<(), Found> {
        self.running = None;
        let root = self.root();
        self.resume(root)
    }

    /// Kills the process and starts it again over what is on disk. The end of each log is torn, as an unfinished
    /// write may leave it. Whoever was being served must be gone already.
    pub(crate) fn kill(&mut self, draws: &mut Draws) -> Result<(), Found> {
        if let (Some(from), Some(to)) = (self.root(), self.next_root()) {
            if !self.env.is_dead() {
                copy(&from, &to).map_err(|_| setup("copy a data directory"))?;
            }
            self.running = None;
            tear(&to, draws).map_err(|_| setup("tear a log"))?;
            std::fs::remove_dir_all(&from).map_err(|_| setup("remove a data directory"))?;
            self.generation += 1;
        }
        self.running = None;
        let root = self.root();
        self.resume(root)
    }

    fn resume(&mut self, root: Option<PathBuf>) -> Result<(), Found> {
        self.env.revive();
        self.env.enter(0);
        let backend: Arc<dyn Backend> = match (&self.reference, root) {
            (Some(reference), _) => Arc::clone(reference) as Arc<dyn Backend>,
            (None, Some(root)) => {
                let opened = Sqlite::open(&root, &master(), self.env.clone(), options());
                Arc::new(opened.map_err(|e| (Property::Durable, format!("it does not start again: {e}")))?)
            }
            (None, None) => return Err(setup("find its data directory")),
        };
        self.start(backend);
        Ok(())
    }

    /// Creates a tenant and its keys.
    pub(crate) fn add_tenant(&self, admin: &ApiKey, name: &str) -> Result<(TenantId, Vec<RoleKey>), Found> {
        let app = self.app()?;
        let name = name.parse().map_err(|_| setup("name a tenant"))?;
        let made = at_once(async {
            let request = request(&app, admin, None).await?;
            app.create_tenant(&request, &TenantRequest { name }).await.ok()
        });
        let (tenant, first) = made.flatten().ok_or_else(|| setup("create a tenant"))?;
        let mut keys = vec![RoleKey { role: Role::TenantAdmin, key: first.clone() }];
        for role in [Role::App, Role::App, Role::Agent, Role::PrivacyOfficer, Role::Auditor] {
            keys.push(RoleKey { role, key: self.add_key(&first, role)? });
        }
        Ok((tenant.id, keys))
    }

    fn add_key(&self, admin: &ApiKey, role: Role) -> Result<ApiKey, Found> {
        let app = self.app()?;
        let label = "key".parse().map_err(|_| setup("name a key"))?;
        let wanted = KeyRequest { label, role, subject: None, act_for: acts_for(role), expires_at: None };
        let made = at_once(async {
            let request = request(&app, admin, None).await?;
            app.create_key(&request, &wanted).await.ok()
        });
        made.flatten().map(|(_, key)| key).ok_or_else(|| setup("create a key"))
    }
}

pub(crate) fn acts_for(role: Role) -> bool {
    matches!(role, Role::App | Role::Agent | Role::PrivacyOfficer)
}

/// A request of the holder of a key.
pub(crate) async fn request(app: &App, key: &ApiKey, subject: Option<&SubjectRef>) -> Option<Request> {
    let caller = app.authenticate(key).await.ok()?;
    Some(Request::new(caller, subject.cloned(), Purpose::default()))
}

fn founding(env: &SimEnv) -> Result<(Founding, ApiKey, Vec<RoleKey>), Found> {
    let (system, tenant) = (TenantId::random(env), TenantId::random(env));
    let (admin, auditor) = (ApiKey::random(env), ApiKey::random(env));
    let name = "first".parse().map_err(|_| setup("name a tenant"))?;
    let at = env.now();
    let founding = Founding {
        admin: new_key(&admin, &system, Role::InstanceAdmin)?,
        keys: vec![new_key(&auditor, &tenant, Role::Auditor)?],
        system,
        tenant: Tenant { id: tenant, name, created_at: at },
        at,
    };
    Ok((founding, admin, vec![RoleKey { role: Role::Auditor, key: auditor }]))
}

fn new_key(key: &ApiKey, tenant: &TenantId, role: Role) -> Result<NewKey, Found> {
    let credential = Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for: acts_for(role),
        expires_at: None,
        revoked_at: None,
    };
    Ok(NewKey { credential, subject: None, label: "key".parse().map_err(|_| setup("name a key"))? })
}

/// A folder in memory if the machine has one: a run loses no power, so it needs no disk.
fn folder() -> Result<tempfile::TempDir, Found> {
    let in_memory = tempfile::Builder::new().prefix("merkwelt-sim-").tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).map_err(|_| setup("make a folder"))
}

/// Appends what no transaction wrote to the end of each log.
fn tear(root: &Path, draws: &mut Draws) -> std::io::Result<()> {
    use std::io::Write as _;
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            tear(&path, draws)?;
        } else if path.extension().is_some_and(|end| end == "db-wal") {
            let torn: Vec<u8> = (0..draws.below(6000)).map(|at| draw_byte(draws, at)).collect();
            std::fs::OpenOptions::new().append(true).open(&path)?.write_all(&torn)?;
        }
    }
    Ok(())
}

fn draw_byte(draws: &mut Draws, at: usize) -> u8 {
    // Runs of zeros and of noise: both are what unfinished writes look like.
    if (at / 700).is_multiple_of(2) { 0 } else { u8::try_from(draws.below(256)).unwrap_or(0) }
}
