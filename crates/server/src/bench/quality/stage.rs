//! A real instance in a temporary directory: the embedded store and the use cases, with a clock that is put
//! where the set says. One store serves several ways of ranking, which differ in the constants of the model's
//! descriptor only.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use merkwelt_app::OpenRequest;
use merkwelt_app::{
    App, ContextRequest, EmbeddingModel, PackView, RecallRequest, RunContext, StatementRequest, TurnRequest,
};
use merkwelt_authz::{ApiKey, Request};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::{Expiry, Kind, Particulars};
use merkwelt_domain::routing::StateChoice;
use merkwelt_domain::{Content, ConversationId, Env, KeyId, MemoryId, Purpose};
use merkwelt_inference::descriptor::Fields;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role, TokenCounter};
use merkwelt_store::Backend;
use merkwelt_store::change::{NewOwner, Outcome};
use merkwelt_store::query::{KindSet, TopK, Turns};
use serde_json::Value;

use super::cache::Cached;
use crate::config::{Config, Places};
use crate::model::BlockingThreads;
use crate::wiring;

/// 2012-01-01T00:00:00Z, before everything in the sets.
const START: i64 = 1_325_376_000_000;
const TEXT_MAX: usize = 64 * 1024;
/// Statements per request, as the use case allows.
const BATCH: usize = 500;

/// A way of ranking.
pub(super) struct Way {
    /// Its name in the tables.
    pub(super) name: &'static str,
    pub(super) app: App,
}

/// The instance. Dropping it removes the directory.
pub(super) struct Stage {
    runtime: tokio::runtime::Runtime,
    env: Arc<FixedEnv>,
    pub(super) lexical: Way,
    pub(super) vector: Option<Way>,
    pub(super) fused: Option<Way>,
    cached: Option<Arc<Cached>>,
    counter: &'static dyn TokenCounter,
    key: ApiKey,
    dir: PathBuf,
}

/// What to keep.
pub(super) struct Note<'t> {
    pub(super) kind: Kind,
    pub(super) text: &'t str,
    pub(super) slot: Option<&'t str>,
}

impl Stage {
    pub(super) fn set(cached: Option<Arc<Cached>>) -> anyhow::Result<Self> {
        let dir =
            std::env::temp_dir().join(format!("merkwelt-quality-{}", KeyId::random(&*wiring::system_env())));
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let places = Places { data_dir: dir.join("data"), instance_key: None, config: None };
        let config = Config::load(&places, None)?;
        let env = Arc::new(FixedEnv::at(START));
        let as_env: Arc<dyn Env> = env.clone();
        let id = cached.as_ref().map(|cached| merkwelt_app::embedding::model_id(&**cached));
        let (store, founded) = wiring::found(&config, &as_env, id.as_ref())?;
        let counter = merkwelt_inference::tokens::counter(&config.tokenizer).context("no such tokeniser")?;
        let backend: Arc<dyn Backend> = Arc::new(store);
        let way = |name, embedder: Option<Arc<dyn Embedder>>| {
            let model = embedder
                .map(|embedder| EmbeddingModel { embedder, offload: Arc::new(BlockingThreads::new()) });
            let settings = config.settings.clone();
            Way { name, app: App::new(Arc::clone(&backend), Arc::clone(&as_env), model, counter, settings) }
        };
        let vector = cached.as_ref().map(VectorsOnly::over).transpose()?;
        Ok(Self {
            runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
            lexical: way("BM25", None),
            vector: vector.map(|embedder| way("vector", Some(Arc::new(embedder)))),
            fused: cached.clone().map(|cached| way("fused", Some(cached))),
            env,
            cached,
            counter,
            key: founded.app,
            dir,
        })
    }

    /// The way that writes: with vectors, if there is a model.
    pub(super) fn best(&self) -> &Way {
        self.fused.as_ref().unwrap_or(&self.lexical)
    }

    /// Every way of ranking there is.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Way> {
        std::iter::once(&self.lexical).chain(&self.vector).chain(&self.fused)
    }

    pub(super) fn tokenizer(&self) -> &str {
        self.counter.id()
    }

    pub(super) fn count(&self, text: &str) -> u32 {
        self.counter.count(text)
    }

    /// Embeds texts ahead, so that no write waits for the engine.
    pub(super) fn warm(&self, role: Role, texts: &[&str], say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        self.cached.as_ref().map_or(Ok(()), |cached| cached.warm(role, texts, say))
    }

    /// Puts the clock; it never goes back.
    pub(super) fn clock(&self, millis: i64) {
        if millis > self.env.now().millis() {
            self.env.set(millis);
        }
    }

    /// The application acting for a person.
    pub(super) fn person(&self, name: &str) -> anyhow::Result<Request> {
        let caller = self.runtime.block_on(self.best().app.authenticate(&self.key))?;
        Ok(Request::new(caller, Some(name.parse()?), Purpose::default()))
    }

    /// Keeps statements; their ids in the same order.
    pub(super) fn remember(&self, who: &Request, notes: &[Note<'_>]) -> anyhow::Result<Vec<MemoryId>> {
        let mut ids = Vec::with_capacity(notes.len());
        for part in notes.chunks(BATCH) {
            let statements =
                part.iter().map(|note| self.statement(note)).collect::<anyhow::Result<Vec<_>>>()?;
            let receipt = self.runtime.block_on(self.best().app.remember(who, &statements, None))?;
            for outcome in receipt.outcomes {
                let (Outcome::Created { id, .. }
                | Outcome::Superseded { id, .. }
                | Outcome::Merged { id, .. }) = outcome
                else {
                    bail!("a statement was not kept");
                };
                ids.push(id);
            }
        }
        Ok(ids)
    }

    fn statement(&self, note: &Note<'_>) -> anyhow::Result<StatementRequest> {
        let mut parts =
            Particulars { slot: note.slot.map(str::parse).transpose()?, ..Particulars::default() };
        if note.kind == Kind::ProjectState {
            parts.expiry = Some(Expiry::At(self.env.now().plus_days(365)));
        }
        Ok(StatementRequest {
            owner: NewOwner::Subject,
            kind: note.kind,
            text: Content::to_keep(note.text, TEXT_MAX)?,
            author: None,
            parts,
            conversation: None,
        })
    }

    pub(super) fn retract(&self, who: &Request, id: &MemoryId) -> anyhow::Result<()> {
        self.runtime.block_on(self.best().app.retract(who, id, None))?;
        Ok(())
    }

    /// A conversation whose turns are kept.
    pub(super) fn open(&self, who: &Request) -> anyhow::Result<ConversationId> {
        let wanted = OpenRequest { retention: Retention::kept(3650)?, carried_over: None };
        let opened = self.best().app.open_conversation(who, &wanted, None);
        match self.runtime.block_on(opened)?.outcomes.pop() {
            Some(Outcome::Opened { id }) => Ok(id),
            _ => bail!("no conversation was opened"),
        }
    }

    /// Appends a turn; its number.
    pub(super) fn say(
        &self,
        who: &Request,
        conversation: &ConversationId,
        speaker: Speaker,
        text: &str,
    ) -> anyhow::Result<u32> {
        let text = Content::to_keep(text, TEXT_MAX)?;
        let turn = TurnRequest {
            conversation: conversation.clone(),
            speaker,
            text,
            rests_on: RestsOn::default(),
            pack: None,
        };
        Ok(self.runtime.block_on(self.best().app.append_turn(who, &turn, None))?.number)
    }

    /// The keys of hits, best first: an id and a revision or number.
    pub(super) fn recall(
        &self,
        way: &Way,
        who: &Request,
        question: &str,
        turns: Turns,
        k: u16,
    ) -> anyhow::Result<Vec<(String, u32)>> {
        let search = RecallRequest {
            question: Content::question(question, TEXT_MAX)?,
            k: TopK::new(k)?,
            kinds: if turns == Turns::None { KindSet::all() } else { KindSet::of([]) },
            turns,
            documents: false,
            conversation: None,
            metadata: Vec::new(),
            interval: None,
            run: RunContext::default(),
        };
        let released = self.runtime.block_on(way.app.recall(who, &search))?;
        let answer: Value = serde_json::from_slice(released.body())?;
        let hits = answer.get("hits").and_then(Value::as_array).context("an answer without hits")?;
        hits.iter()
            .map(|hit| {
                let id = hit.get("id").and_then(Value::as_str).context("a hit without an id")?;
                let revision =
                    hit.get("revision").and_then(Value::as_u64).context("a hit without a revision")?;
                Ok((id.to_owned(), u32::try_from(revision)?))
            })
            .collect()
    }

    /// A context pack; nothing if the rules alone need more than the budget.
    pub(super) fn pack(
        &self,
        way: &Way,
        who: &Request,
        question: &str,
        conversation: Option<&ConversationId>,
        budget: u32,
        state: StateChoice,
    ) -> anyhow::Result<Option<PackView>> {
        let wanted = ContextRequest {
            question: Content::question(question, TEXT_MAX)?,
            conversation: conversation.cloned(),
            budget: TokenBudget::new(budget)?,
            n_turns_max: 0,
            state,
            interval: None,
            run: RunContext::default(),
        };
        match self.runtime.block_on(way.app.context(who, &wanted)) {
            Ok(released) => Ok(Some(serde_json::from_slice(released.body())?)),
            Err(merkwelt_app::Error::BudgetTooSmall { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What cannot be removed lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The same vectors, read so that the cosine outweighs every word: ranking by vectors alone, through the
/// product's own fusion.
struct VectorsOnly {
    inner: Arc<Cached>,
    descriptor: Descriptor,
}

impl VectorsOnly {
    fn over(inner: &Arc<Cached>) -> anyhow::Result<Self> {
        let of = inner.descriptor();
        let descriptor = Descriptor::new(Fields {
            id: of.id().to_owned(),
            revision: of.revision().to_owned(),
            dimension: of.dimension(),
            max_tokens: of.max_tokens(),
            pooling: of.pooling(),
            normalize: of.normalize(),
            query_prefix: of.query_prefix().to_owned(),
            passage_prefix: of.passage_prefix().to_owned(),
            cosine_floor: -1.0,
            cosine_span: 1e-6,
            normaliser_version: of.normaliser_version(),
        })?;
        Ok(Self { inner: Arc::clone(inner), descriptor })
    }
}

impl Embedder for VectorsOnly {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, merkwelt_inference::embed::Error> {
        self.inner.embed(role, texts)
    }
}

/// Reciprocal rank fusion with the customary constant: what the product would do if it fused ranks.
pub(super) fn fuse_ranks(lists: &[&[(String, u32)]]) -> Vec<(String, u32)> {
    let mut scores: std::collections::BTreeMap<&(String, u32), f64> = std::collections::BTreeMap::new();
    for list in lists {
        for (rank, key) in list.iter().enumerate() {
            *scores.entry(key).or_default() += 1.0 / (61.0 + rank as f64);
        }
    }
    let mut ranked: Vec<_> = scores.into_iter().collect();
    ranked.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
    ranked.into_iter().map(|(key, _)| key.clone()).collect()
}
