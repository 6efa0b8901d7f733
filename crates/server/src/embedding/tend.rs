//! What goes on beside the requests: an engine that is away is tried out again, and what was written without a
//! vector gets one, a few texts at a time and with pauses, so that questions do not wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use merkwelt_app::EmbeddingModel;
use merkwelt_app::embedding::{embed_passages, model_id};
use merkwelt_domain::{Env, TenantId};
use merkwelt_inference::Embedder;
use merkwelt_store::Error;
use merkwelt_store_sqlite::{FillPlace, Sqlite};

use super::Engines;
use super::probe::Unfit;
use crate::model::BlockingThreads;

/// An engine that may be away for a while. It is asked by nobody before it was tried out and admitted.
pub trait Engine: Embedder + std::fmt::Debug {
    /// Whether enough time passed since it was last found to be away.
    fn is_due(&self) -> bool;

    /// Looks whether it can be used. Blocks.
    ///
    /// # Errors
    /// Why not.
    fn try_out(&self) -> Result<(), Unfit>;

    /// Takes it into use, after it was tried out and its vectors belong to the data.
    fn admit(&self);

    /// Whether the operator described its model: then the data are bound to it even while it is away, and what is
    /// wrong with it is for the operator to mend.
    fn is_described(&self) -> bool {
        false
    }

    /// The vector by which the same model is recognised, if its weights cannot be looked at.
    fn reference(&self) -> Option<Vec<f32>> {
        None
    }

    /// Says what that vector was when the index was made. Blocks.
    ///
    /// # Errors
    /// It is another model.
    fn expect(&self, reference: Vec<f32>) -> Result<(), Unfit> {
        let _ = reference;
        Ok(())
    }

    /// How many calls it takes at once, and how long one waits for a place; none if it is bound by processors.
    fn places(&self) -> Option<(usize, Duration)> {
        None
    }
}

/// The engine for the use cases, its work on the runtime's blocking threads.
#[must_use]
pub fn for_app(engine: &Arc<dyn Engine>) -> EmbeddingModel {
    let offload = match engine.places() {
        Some((places, wait)) => BlockingThreads::waiting(places, wait),
        None => BlockingThreads::new(),
    };
    EmbeddingModel { embedder: engine.clone(), offload: Arc::new(offload) }
}

/// How often it is looked whether there is something to do.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// The longest pause between two small transactions.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// When a text that could not be embedded is tried again: after a minute, then ever later.
const RETRY_MS: (i64, i64) = (60_000, 3_600_000);

/// Engines and the data that they make vectors for.
pub struct Tended {
    /// None if the present model has none; then there is a coming one.
    engine: Option<Arc<dyn Engine>>,
    /// Of the coming model; it is tried out and admitted by who works on the change.
    next: Option<Arc<dyn Engine>>,
    store: Arc<Sqlite>,
    env: Arc<dyn Env>,
    work: VecDeque<(TenantId, FillPlace, bool)>,
    retry: BTreeMap<TenantId, (i64, i64)>,
    /// Tenants over whose texts the engine went away, and nothing of them got a vector since.
    struck: BTreeSet<TenantId>,
    /// Whether the vectors of the data are known to be of this model.
    adopted: bool,
    filled: u64,
    said: String,
}

impl std::fmt::Debug for Tended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tended").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Tends an engine until the runtime stops.
pub async fn tend(tended: Tended) {
    in_steps(tended, Tended::step).await;
}

/// Works in small blocking steps, each of which says how long to rest after it, until the runtime stops.
pub(super) async fn in_steps<W: Send + 'static>(mut worker: W, step: fn(&mut W) -> Duration) {
    loop {
        let done = tokio::task::spawn_blocking(move || {
            let pause = step(&mut worker);
            (worker, pause)
        });
        // A step that dies is a defect; the service goes on as it is.
        let Ok((back, pause)) = done.await else { return };
        worker = back;
        tokio::time::sleep(pause).await;
    }
}

impl Tended {
    /// Everything is looked through once; `adopted` says that the data were opened with the present engine's model.
    #[must_use]
    pub fn new(engines: &Engines, store: Arc<Sqlite>, env: Arc<dyn Env>, adopted: bool) -> Self {
        let work =
            store.tenant_ids().into_iter().map(|tenant| (tenant, FillPlace::default(), false)).collect();
        let (retry, said) = (BTreeMap::new(), String::new());
        let (engine, next) = (engines.present.clone(), engines.next.clone());
        Self { engine, next, store, env, work, retry, struck: BTreeSet::new(), adopted, filled: 0, said }
    }

    /// One small piece of work. How long to rest after it.
    fn step(&mut self) -> Duration {
        let is_there = |engine: &Option<Arc<dyn Engine>>| engine.as_ref().is_some_and(|e| e.is_available());
        if !is_there(&self.engine) && !self.revive() && !is_there(&self.next) {
            return LOOK;
        }
        self.collect();
        let Some((tenant, place, failed)) = self.work.pop_front() else { return LOOK };
        let began_at = self.env.now().millis();
        self.fill(tenant, place, failed);
        let took = u64::try_from(self.env.now().millis() - began_at).unwrap_or(0);
        Duration::from_millis(took).min(PAUSE_MAX)
    }

    /// Whether an engine that was away is there again.
    fn revive(&mut self) -> bool {
        let Some(engine) = self.engine.clone().filter(|engine| engine.is_due()) else { return false };
        let tried = engine.try_out().and_then(|()| self.adopt(&*engine));
        match tried {
            Ok(()) => {
                engine.admit();
                self.said.clear();
                // What waited for it waits no longer, unless its texts may be what takes it away.
                for (_, due) in self.retry.iter_mut().filter(|(tenant, _)| !self.struck.contains(tenant)) {
                    *due = (i64::MIN, RETRY_MS.0);
                }
                tracing::info!("the embedding engine is there: retrieval is hybrid");
                true
            }
            Err(why) => {
                let why = why.to_string();
                if why != self.said {
                    tracing::warn!("retrieval is lexical: {why}");
                    self.said = why;
                }
                false
            }
        }
    }

    /// Binds the data to the engine's model before the first vector of it (I-14).
    fn adopt(&mut self, engine: &dyn Engine) -> Result<(), Unfit> {
        let wrong = |error: merkwelt_store_sqlite::OpenError| Unfit::Wrong(error.to_string());
        let id = model_id(engine);
        if !self.adopted {
            self.store.adopt_model(&id).map_err(wrong)?;
            self.adopted = true;
        }
        match engine.reference() {
            Some(reference) => self.store.keep_reference(&id, &reference).map_err(wrong),
            None => Ok(()),
        }
    }

    /// Takes up what was written without a vector since, and what is to be tried again.
    fn collect(&mut self) {
        for tenant in self.store.take_unfilled() {
            self.want(tenant);
        }
        let now = self.env.now().millis();
        let due: Vec<TenantId> =
            self.retry.iter().filter(|(_, (at, _))| *at <= now).map(|(tenant, _)| tenant.clone()).collect();
        for tenant in due {
            if let Some((at, wait)) = self.retry.get_mut(&tenant) {
                // Until it is done it is not due again.
                (*at, *wait) = (i64::MAX, *wait);
            }
            self.want(tenant);
        }
    }

    fn want(&mut self, tenant: TenantId) {
        if !self.work.iter().any(|(known, place, _)| *known == tenant && *place == FillPlace::default()) {
            self.work.push_back((tenant, FillPlace::default(), false));
        }
    }

    /// The engine of the model whose vectors a tenant takes.
    fn engine_of(&self, tenant: &TenantId) -> Result<Arc<dyn Engine>, Error> {
        let Some(id) = self.store.model_of(tenant)? else {
            return self.engine.clone().ok_or(Error::NotFound);
        };
        let of_tenant = [&self.engine, &self.next].into_iter().flatten().find(|e| model_id(&***e) == id);
        of_tenant.cloned().ok_or(Error::ModelMismatch)
    }

    fn fill(&mut self, tenant: TenantId, place: FillPlace, failed_before: bool) {
        let filled = self.engine_of(&tenant).and_then(|engine| {
            if !engine.is_available() {
                return Ok(None);
            }
            let mut embed = |texts: &[&str]| embed_passages(&*engine, texts);
            let done = self.store.fill_some(&tenant, &model_id(&*engine), place, &mut embed)?;
            Ok(Some((done, engine.is_available())))
        });
        match filled {
            // Another engine is there, so the round goes on; this tenant waits for its own.
            Ok(None) => self.again_later(tenant),
            Ok(Some((done, is_there))) => {
                self.filled += done.filled;
                if !is_there {
                    return self.went_away_over(tenant);
                }
                if done.filled > 0 || done.next.is_none() {
                    self.struck.remove(&tenant);
                }
                let failed = failed_before || done.failed > 0;
                match done.next {
                    Some(next) => self.work.push_front((tenant, next, failed)),
                    None if failed => self.again_later(tenant),
                    None => drop(self.retry.remove(&tenant)),
                }
            }
            // Of a damaged tenant nothing is searched, and one of another model is named at every search.
            Err(Error::Damaged | Error::NotFound) => {}
            // It changed while the engine was at work.
            Err(Error::ModelMismatch) if self.engine_of(&tenant).is_ok() => self.want(tenant),
            Err(Error::ModelMismatch) => {
                tracing::error!(%tenant, "its vectors are of another model: run `merkwelt reembed`");
            }
            Err(error) => {
                tracing::warn!(%tenant, "what was written without a vector could not be embedded: {error}");
                self.again_later(tenant);
            }
        }
        if self.work.is_empty() && self.filled > 0 {
            tracing::info!("embedded {} entries that were written without a vector", self.filled);
            self.filled = 0;
        }
    }

    /// Once says nothing about the texts: the whole tenant is looked through again when the engine is back. Twice
    /// in a row may be no chance, and then the others go first.
    fn went_away_over(&mut self, tenant: TenantId) {
        if self.struck.insert(tenant.clone()) {
            self.work.push_back((tenant, FillPlace::default(), false));
        } else {
            self.again_later(tenant);
        }
    }

    fn again_later(&mut self, tenant: TenantId) {
        let now = self.env.now().millis();
        let wait = self.retry.get(&tenant).map_or(RETRY_MS.0, |(_, wait)| (wait * 2).min(RETRY_MS.1));
        self.retry.insert(tenant, (now.saturating_add(wait), wait));
    }
}
