//! Vectors of texts, made off the thread that serves requests. A text without a vector is found by its words
//! and stays pending: no write and no search fails for want of a model.

use std::sync::{Arc, mpsc};

use merkwelt_authz::Fut;
use merkwelt_domain::Content;
use merkwelt_inference::{Embedder, Embedding, Role};
use merkwelt_store::query::{Fusion, ModelId, Vector};

use crate::App;

/// Texts that go to the engine in one call.
pub const TEXTS_PER_CALL_MAX: usize = 32;

/// How long a write waits for its vectors before the rest stays pending, in milliseconds. Well below the time
/// a request may take, so that a batch of long texts is kept all the same.
const WAIT_MS_MAX: i64 = 8_000;
/// Bytes that go to the engine in one call, if it is more than one text: a question that queues behind the call
/// of an import waits for a second, not for ten.
const BYTES_PER_CALL_MAX: usize = 16 * 1024;

/// Where work that is bound by the processor runs. The future is ready when the work is done or lost.
pub trait Offload: Send + Sync {
    /// Runs `work` once, or drops it if there is no place for it any more.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> Fut<'_, ()>;
}

/// An embedding engine with the place where its work runs.
#[derive(Clone)]
pub struct EmbeddingModel {
    /// The engine.
    pub embedder: Arc<dyn Embedder>,
    /// Where it works.
    pub offload: Arc<dyn Offload>,
}

impl std::fmt::Debug for EmbeddingModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EmbeddingModel").field(&self.embedder.descriptor().id()).finish()
    }
}

/// The name under which a store keeps vectors of `embedder`: the whole space, so that nothing that changes
/// a vector goes unnoticed (I-14).
#[must_use]
pub fn model_id(embedder: &dyn Embedder) -> ModelId {
    ModelId::recorded(&embedder.descriptor().space())
}

/// Embeds texts to keep, in the given order, at most [`TEXTS_PER_CALL_MAX`] in one call of the engine.
/// `None` for a text that the engine cannot embed. Blocks.
#[must_use]
pub fn embed_passages(embedder: &dyn Embedder, texts: &[&str]) -> Vec<Option<Vec<f32>>> {
    texts.chunks(TEXTS_PER_CALL_MAX).flat_map(|chunk| embed_call(embedder, Role::Passage, chunk)).collect()
}

/// One call of the engine; `None` for a text that it cannot embed.
fn embed_call(embedder: &dyn Embedder, role: Role, texts: &[&str]) -> Vec<Option<Vec<f32>>> {
    let made = embedder.embed_each(role, texts).into_iter();
    made.map(|made| made.ok().map(Embedding::into_vec)).collect()
}

/// How many of `texts` go into the next call: at least one of them.
fn call_length(texts: &[&Content]) -> usize {
    let mut bytes = 0_usize;
    let fits = |text: &&&Content| {
        bytes = bytes.saturating_add(text.expose().len());
        bytes <= BYTES_PER_CALL_MAX
    };
    texts.iter().take(TEXTS_PER_CALL_MAX).take_while(fits).count().max(1).min(texts.len())
}

impl App {
    /// The vectors of texts to keep, one for each, in their order.
    pub(crate) async fn passage_vectors(&self, texts: &[&Content]) -> Vec<Option<Vector>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let began_at = self.env.now().millis();
        let mut rest = texts;
        while !rest.is_empty() && self.env.now().millis() - began_at < WAIT_MS_MAX {
            let (call, after) = rest.split_at(call_length(rest));
            vectors.extend(self.embed(Role::Passage, call).await);
            rest = after;
        }
        vectors.resize(texts.len(), None);
        vectors
    }

    /// The vectors of texts, one for each, however long it takes.
    pub(crate) async fn all_vectors(&self, texts: &[Content]) -> Vec<Option<Vector>> {
        let texts: Vec<&Content> = texts.iter().collect();
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts.as_slice();
        while !rest.is_empty() {
            let (call, after) = rest.split_at(call_length(rest));
            vectors.extend(self.embed(Role::Passage, call).await);
            rest = after;
        }
        vectors
    }

    /// The vector of a text to keep.
    pub(crate) async fn passage_vector(&self, text: &Content) -> Option<Vector> {
        self.embed(Role::Passage, &[text]).await.pop().flatten()
    }

    /// The vector of a question, with the constants to weigh it.
    pub(crate) async fn question_vector(&self, question: &Content) -> Option<(Vector, Fusion)> {
        let descriptor = self.model.as_ref()?.embedder.descriptor();
        let fusion = Fusion { floor: descriptor.cosine_floor(), span: descriptor.cosine_span() };
        Some((self.embed(Role::Query, &[question]).await.pop().flatten()?, fusion))
    }

    /// The engine, if it can be asked now.
    pub(crate) fn engine(&self) -> Option<&EmbeddingModel> {
        self.model.as_ref().filter(|model| model.embedder.is_available())
    }

    /// One call of the engine, off this thread. As many results as texts.
    async fn embed(&self, role: Role, texts: &[&Content]) -> Vec<Option<Vector>> {
        let without = || texts.iter().map(|_| None).collect();
        let Some(model) = self.engine() else { return without() };
        let (answer, answered) = mpsc::sync_channel(1);
        let embedder = Arc::clone(&model.embedder);
        let owned: Vec<Content> = texts.iter().map(|text| (*text).clone()).collect();
        let work = move || {
            let texts: Vec<&str> = owned.iter().map(Content::expose).collect();
            // Nobody waits any more if the request was given up.
            drop(answer.send(embed_call(&*embedder, role, &texts)));
        };
        model.offload.run(Box::new(work)).await;
        let Ok(made) = answered.try_recv() else { return without() };
        let id = model_id(&*model.embedder);
        made.into_iter().map(|values| Some(Vector { model: id.clone(), values: values? })).collect()
    }
}
