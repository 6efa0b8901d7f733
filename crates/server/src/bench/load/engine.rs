//! The application in this process over a directory of its own, so that processor time can be read per call:
//! the real store and use cases, with an embedder that costs almost nothing.

use std::path::PathBuf;
use std::sync::Arc;

use merkwelt_app::embedding::model_id;
use merkwelt_app::{
    App, EmbeddingModel, KeyRequest, Offload, RecallRequest, RunContext, StatementRequest, TenantRequest,
};
use merkwelt_authz::{ApiKey, Fut, Request, Role};
use merkwelt_domain::memory::{Kind, Particulars};
use merkwelt_domain::{Content, Env, KeyId, Purpose};
use merkwelt_inference::descriptor::{Descriptor, Fields, Pooling};
use merkwelt_inference::{Embedder, Embedding};
use merkwelt_store::change::NewOwner;
use merkwelt_store::query::{KindSet, ModelId, TopK, Turns};
use merkwelt_store_sqlite::Sqlite;
use tokio::runtime::Runtime;

use crate::bench::dice::Dice;
use crate::bench::isolation::number;
use crate::config::{Config, Places};
use crate::wiring;

pub(super) const DIMENSION: usize = 384;
const CLUSTERS: u64 = 64;

/// Vectors around 64 centres; equal texts have equal ones.
pub(super) struct Clustered(Descriptor);

impl Clustered {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self(Descriptor::new(Fields {
            id: "bench-clustered".to_owned(),
            revision: "00".repeat(32),
            dimension: DIMENSION,
            max_tokens: 512,
            pooling: Pooling::Mean,
            normalize: true,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            cosine_floor: 0.0,
            cosine_span: 1.0,
            normaliser_version: 1,
        })?))
    }

    pub(super) fn vector(text: &str) -> Vec<f32> {
        let seed = text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        let (mut centre, mut noise) = (Dice::seeded(seed % CLUSTERS, 1), Dice::seeded(seed, 2));
        (0..DIMENSION).map(|_| centre.signed() + 0.6 * noise.signed()).collect()
    }
}

impl Embedder for Clustered {
    fn descriptor(&self) -> &Descriptor {
        &self.0
    }

    fn embed(
        &self,
        _role: merkwelt_inference::Role,
        texts: &[&str],
    ) -> Result<Vec<Embedding>, merkwelt_inference::embed::Error> {
        texts.iter().map(|text| Embedding::new(DIMENSION, Self::vector(text), false)).collect()
    }
}

/// Work is done where it comes up.
struct Here;

impl Offload for Here {
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> Fut<'_, ()> {
        work();
        Box::pin(std::future::ready(()))
    }
}

/// An instance in this process.
pub(super) struct Engine {
    pub(super) dir: PathBuf,
    pub(super) store: Arc<Sqlite>,
    pub(super) app: App,
    pub(super) runtime: Runtime,
    pub(super) env: Arc<dyn Env>,
    pub(super) key: ApiKey,
    admin: ApiKey,
}

impl Engine {
    /// A new instance with one tenant.
    pub(super) fn new() -> anyhow::Result<Self> {
        let dir =
            std::env::temp_dir().join(format!("merkwelt-bench-{}", KeyId::random(&*wiring::system_env())));
        std::fs::create_dir(&dir)?;
        let env = wiring::system_env();
        let (store, founded) = wiring::found(&config(&dir)?, &env, Some(&model()?))?;
        Self::over(dir, store, env, founded.app, founded.admin)
    }

    fn over(
        dir: PathBuf,
        store: Sqlite,
        env: Arc<dyn Env>,
        key: ApiKey,
        admin: ApiKey,
    ) -> anyhow::Result<Self> {
        let store = Arc::new(store);
        let counter = merkwelt_inference::tokens::counter("o200k_base")?;
        let model = EmbeddingModel { embedder: Arc::new(Clustered::new()?), offload: Arc::new(Here) };
        let app = App::new(store.clone(), env.clone(), Some(model), counter, config(&dir)?.settings);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { dir, store, app, runtime, env, key, admin })
    }

    /// Closes everything and opens it again, with nothing in memory.
    pub(super) fn reopened(self) -> anyhow::Result<Self> {
        let Self { dir, store, app, runtime, env, key, admin } = self;
        drop((app, runtime));
        drop(store);
        let store = wiring::open(&config(&dir)?, &env, Some(&model()?))?;
        Self::over(dir, store, env, key, admin)
    }

    /// Closes everything; the directory stays for a service.
    pub(super) fn closed(self) -> (PathBuf, String) {
        (self.dir.clone(), self.admin.reveal())
    }

    /// A request with a key, authenticated as a face does it.
    pub(super) fn request(&self, key: &ApiKey, subject: Option<&str>) -> anyhow::Result<Request> {
        let caller = self.runtime.block_on(self.app.authenticate(key))?;
        Ok(Request::new(caller, subject.map(str::parse).transpose()?, Purpose::default()))
    }

    /// Another tenant; tells its application's key.
    pub(super) fn tenant(&self, name: &str) -> anyhow::Result<ApiKey> {
        let wanted = TenantRequest { name: name.parse()? };
        let request = self.request(&self.admin, None)?;
        let (_, admin) = self.runtime.block_on(self.app.create_tenant(&request, &wanted))?;
        let wanted = KeyRequest {
            label: "app".parse()?,
            role: Role::App,
            subject: None,
            act_for: true,
            expires_at: None,
        };
        let request = self.request(&admin, None)?;
        Ok(self.runtime.block_on(self.app.create_key(&request, &wanted))?.1)
    }

    /// Keeps `rows` facts of a person, numbered from `first`.
    pub(super) fn fill(&self, key: &ApiKey, person: &str, first: usize, rows: usize) -> anyhow::Result<()> {
        let request = self.request(key, Some(person))?;
        let mut from = first;
        while from < first + rows {
            let until = (from + 500).min(first + rows);
            let batch: Vec<StatementRequest> = (from..until).map(fact).collect::<anyhow::Result<_>>()?;
            self.runtime.block_on(self.app.remember(&request, &batch, None))?;
            from = until;
        }
        Ok(())
    }

    /// Takes the directory away.
    pub(super) fn remove(self) {
        let dir = self.dir.clone();
        drop(self);
        // It is in the system's temporary place; what cannot be removed is removed there.
        let _ = std::fs::remove_dir_all(dir);
    }
}

pub(super) fn model() -> anyhow::Result<ModelId> {
    Ok(model_id(&Clustered::new()?))
}

fn config(dir: &std::path::Path) -> anyhow::Result<Config> {
    let places = Places { data_dir: dir.join("data"), instance_key: None, config: None };
    Config::load(&places, None)
}

/// A fact of twelve words of which some are frequent, and a number.
pub(super) fn fact(row: usize) -> anyhow::Result<StatementRequest> {
    Ok(StatementRequest {
        owner: NewOwner::Subject,
        kind: Kind::UserFact,
        text: Content::to_keep(&text(row), Content::STATEMENT_MAX_BYTES)?,
        author: None,
        parts: Particulars::default(),
        conversation: None,
    })
}

/// The words of a row.
pub(super) fn text(row: usize) -> String {
    let mut dice = Dice::seeded(u64::try_from(row).unwrap_or(0), 3);
    let words: Vec<String> = (0..12).map(|_| word(&mut dice)).collect();
    format!("{} {row}", words.join(" "))
}

fn word(dice: &mut Dice) -> String {
    let rank = dice.below(80) * dice.below(80);
    let ending = dice.word(&["a", "ung", "heit", "en"]);
    format!("wort{ending}{rank:x}")
}

/// A question of three words.
pub(super) fn question(dice: &mut Dice) -> anyhow::Result<RecallRequest> {
    let words = [word(dice), word(dice), word(dice)].join(" ");
    Ok(RecallRequest {
        question: Content::question(&words, 1_000)?,
        k: TopK::default(),
        kinds: KindSet::all().rankable(),
        turns: Turns::None,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        run: RunContext::default(),
    })
}

/// Processor time of all threads of a process, in milliseconds.
pub(super) fn cpu_millis(pid: &str) -> f64 {
    let mut nanos = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0);
    }
    number(nanos / 1_000) / 1_000.0
}

/// Resident memory of a process in MiB.
pub(super) fn resident_mib(pid: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1_024.0
}
