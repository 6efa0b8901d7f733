//! The change to another model while the service serves: beside the requests every row gets a vector of the coming
//! model, a few at a time and with pauses; then the tenants change, one after another. The present model answers
//! until a tenant changes, and whatever goes wrong here is nothing that a request notices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use merkwelt_app::NextModel;
use merkwelt_app::embedding::{embed_passages, model_id};
use merkwelt_domain::{Env, TenantId};
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use merkwelt_store_sqlite::{FillPlace, OpenError, Sqlite};

use super::probe::Unfit;
use super::progress::{Progress, Stage};
use super::tend::{Engine, LOOK, PAUSE_MAX, for_app, in_steps};

/// Rows that may be without a new vector when all tenants together, or at last one of them, are said to be ready:
/// what is written all the time is never quite ready.
const LEFT_MAX: u64 = 32;
/// How often a tenant is looked through for what was written meanwhile before so many may be left.
const PASSES_MAX: u32 = 4;
/// How often texts that the engine did not take are tried again before it is done without them.
const TRIALS: u32 = 3;
/// How often the log tells how far it is.
const TELL_MS: i64 = 60_000;

/// What the last pass over a tenant found.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The generation of the content that it looked through.
    content: u64,
    left: u64,
    failed: u64,
}

/// A coming model with its engine, and the data that it is for.
pub struct Coming {
    engine: Arc<dyn Engine>,
    id: ModelId,
    store: Arc<Sqlite>,
    env: Arc<dyn Env>,
    in_use: Arc<AtomicBool>,
    progress: Progress,
    stage: Stage,
    /// Tenants of the present round, with the place in the one that is looked through.
    work: VecDeque<(TenantId, Option<FillPlace>)>,
    seen: BTreeMap<TenantId, Seen>,
    /// Vectors that were made in this round, and tenants that did not change in it.
    round: (u64, usize),
    /// Texts that failed in the last round, and since how many rounds they are no fewer.
    failed: (u64, u32),
    passes: u32,
    /// Vectors that were made in the round before.
    made_before: u64,
    made: u64,
    told_at: i64,
    recognised: bool,
    said: String,
}

impl std::fmt::Debug for Coming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coming").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Works on a change until the runtime stops.
pub async fn come(coming: Coming) {
    in_steps(coming, Coming::step).await;
}

impl Coming {
    /// Nothing is looked at yet.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, store: Arc<Sqlite>, env: Arc<dyn Env>) -> Self {
        let id = model_id(&*engine);
        let progress = Progress::to(engine.descriptor().id(), Stage::Gathering);
        let work = store.tenant_ids().into_iter().map(|tenant| (tenant, None)).collect();
        let told_at = env.now().millis();
        Self {
            engine,
            id,
            store,
            env,
            in_use: Arc::default(),
            progress,
            stage: Stage::Gathering,
            work,
            seen: BTreeMap::new(),
            round: (0, 0),
            failed: (0, 0),
            passes: 0,
            made_before: u64::MAX,
            made: 0,
            told_at,
            recognised: false,
            said: String::new(),
        }
    }

    /// The coming model for the use cases.
    #[must_use]
    pub fn for_app(&self) -> NextModel {
        NextModel { model: for_app(&self.engine), in_use: Arc::clone(&self.in_use) }
    }

    /// How far it is, now and later.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// One small piece of work. How long to rest after it.
    fn step(&mut self) -> Duration {
        if !self.engine.is_available() && !self.revive() {
            self.tell(true);
            return LOOK;
        }
        if self.stage == Stage::Complete {
            return LOOK;
        }
        let began_at = self.env.now().millis();
        let Some((tenant, place)) = self.work.pop_front() else {
            self.end_round();
            return LOOK;
        };
        let done = match place {
            None => self.begin(tenant.clone()),
            Some(from) => self.gather(tenant.clone(), from),
        };
        self.tell(false);
        match done {
            Ok(()) => {
                let took = u64::try_from(self.env.now().millis() - began_at).unwrap_or(0);
                Duration::from_millis(took).min(PAUSE_MAX)
            }
            // Of a damaged tenant nothing is searched; the others do not wait for it.
            Err(Error::Damaged | Error::NotFound) => {
                self.round.1 = self.round.1.saturating_sub(usize::from(place.is_some()));
                self.seen.remove(&tenant);
                Duration::ZERO
            }
            Err(error) => {
                self.work.push_front((tenant, place));
                if self.engine.is_available() {
                    self.warn(format!("vectors of the coming model cannot be kept: {error}"));
                }
                LOOK
            }
        }
    }

    /// Whether the engine can be asked: it was tried out, and its vectors are those that were gathered before.
    fn revive(&mut self) -> bool {
        if !self.engine.is_due() {
            return false;
        }
        match self.engine.try_out().and_then(|()| self.recognise()) {
            Ok(()) => {
                self.engine.admit();
                self.said.clear();
                tracing::info!(
                    model = self.engine.descriptor().id(),
                    "the engine of the coming model is there"
                );
                true
            }
            Err(why) => {
                self.warn(format!("the coming model waits for its engine: {why}"));
                false
            }
        }
    }

    /// INVARIANT: I-14, what is gathered over many starts comes from the same weights.
    fn recognise(&mut self) -> Result<(), Unfit> {
        if self.recognised {
            return Ok(());
        }
        let wrong = |error: OpenError| Unfit::Wrong(error.to_string());
        if let Some(kept) = self.store.reference(&self.id).map_err(wrong)? {
            self.engine.expect(kept)?;
        } else if let Some(reference) = self.engine.reference() {
            self.store.keep_next_reference(&self.id, &reference).map_err(wrong)?;
        }
        self.recognised = true;
        Ok(())
    }

    /// Takes up a tenant in this round, unless nothing was written to it since the last one.
    fn begin(&mut self, tenant: TenantId) -> Result<(), Error> {
        let Some(begun) = self.store.begin_gathering(&tenant, &self.id)? else {
            self.seen.remove(&tenant);
            self.passes = 0;
            return Ok(());
        };
        self.round.1 += 1;
        let known = self.seen.get(&tenant);
        let is_ready = known.is_some_and(|seen| seen.content == begun.content && seen.failed == 0);
        if is_ready && self.stage == Stage::Gathering {
            return Ok(());
        }
        self.seen.insert(tenant.clone(), Seen { content: begun.content, left: begun.missing, failed: 0 });
        self.work.push_front((tenant, Some(FillPlace::default())));
        Ok(())
    }

    /// Some rows of a tenant; at its end it changes, if it is time.
    fn gather(&mut self, tenant: TenantId, from: FillPlace) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        // Without the engine a failure says nothing about the texts.
        let mut embed = |texts: &[&str]| {
            let made = embed_passages(&*engine, texts);
            engine.is_available().then_some(made)
        };
        let step = self.store.gather_some(&tenant, &self.id, from, &mut embed)?;
        let seen = self.seen.entry(tenant.clone()).or_default();
        seen.left = seen.left.saturating_sub(step.filled);
        seen.failed += step.failed;
        let failed = seen.failed;
        (self.made, self.round.0) = (self.made + step.filled, self.round.0 + step.filled);
        if let Some(next) = step.next {
            self.work.push_front((tenant, Some(next)));
            return Ok(());
        }
        if self.stage == Stage::Switching {
            let late = if self.passes < PASSES_MAX { 0 } else { LEFT_MAX };
            if !self.store.switch_tenant(&tenant, &self.id, failed + late)? {
                self.passes += 1;
                self.work.push_front((tenant, None));
                return Ok(());
            }
            self.passes = 0;
            self.seen.remove(&tenant);
            tracing::info!(%tenant, "its questions are embedded with the new model from now on");
        }
        Ok(())
    }

    /// Every tenant was looked at. What comes next?
    fn end_round(&mut self) {
        let failed = self.seen.values().map(|seen| seen.failed).sum();
        let trials = if failed == self.failed.0 { self.failed.1 + 1 } else { 1 };
        self.failed = (failed, trials);
        let (made, n_unchanged) = std::mem::take(&mut self.round);
        // Where writing never rests, each round finds what was written during the one before, and no less.
        let is_steady = made <= LEFT_MAX || made.saturating_mul(2) > self.made_before;
        self.made_before = made;
        let is_gathered = self.stage == Stage::Gathering && is_steady && (failed == 0 || trials >= TRIALS);
        let is_ready = is_gathered && self.is_still_the_same();
        let moved = match self.stage {
            Stage::Gathering if is_ready => self.store.begin_switching(&self.id).map(|()| Stage::Switching),
            Stage::Switching if n_unchanged == 0 => {
                self.store.end_switching(&self.id).map(|()| Stage::Complete)
            }
            stage @ (Stage::Gathering | Stage::Waiting | Stage::Switching | Stage::Complete) => Ok(stage),
        };
        match moved {
            Ok(Stage::Complete) => {
                self.in_use.store(true, Ordering::Relaxed);
                self.stage = Stage::Complete;
                tracing::info!(
                    "the change of the embedding model is complete: make [next_embedding] the new [embedding] of the \
                     configuration; the former engine is not needed any more"
                );
                return self.tell(false);
            }
            Ok(stage) => self.stage = stage,
            Err(error) => self.warn(format!("the coming model cannot be put in place yet: {error}")),
        }
        self.work = self.store.tenant_ids().into_iter().map(|tenant| (tenant, None)).collect();
        self.tell(false);
    }

    /// INVARIANT: I-14, before the point of no return the engine is tried against the vector that was kept when the
    /// gathering began: its weights may have changed since without its going away.
    fn is_still_the_same(&mut self) -> bool {
        let tried = self.engine.try_out();
        if let Err(why) = &tried {
            self.warn(format!("no tenant changes to the coming model: {why}"));
        }
        tried.is_ok()
    }

    fn tell(&mut self, waits: bool) {
        let stage = if waits && self.stage != Stage::Complete { Stage::Waiting } else { self.stage };
        let (left, failed) =
            self.seen.values().fold((0, 0), |sum, seen| (sum.0 + seen.left, sum.1 + seen.failed));
        self.progress.tell(stage, (self.made, left, failed));
        let now = self.env.now().millis();
        if now - self.told_at >= TELL_MS && stage != Stage::Complete {
            self.told_at = now;
            let made = self.made;
            tracing::info!(made, left, "vectors of the coming model: {}", stage.name());
        }
    }

    /// Says something once.
    fn warn(&mut self, why: String) {
        if why != self.said {
            tracing::warn!("{why}");
            self.said = why;
        }
    }
}
