//! Vectors of texts, made off the thread that serves requests. A text without a vector is found by its words
//! and stays pending: no write and no search fails for want of a model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use merkwelt_authz::{Fut, Scope};
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

/// A model that is to take the place of the present one while the service serves.
#[derive(Debug, Clone)]
pub struct NextModel {
    /// Its engine. Tenants whose vectors are of it are asked with it.
    pub model: EmbeddingModel,
    /// Whether it is the model of the data as a whole.
    pub in_use: Arc<AtomicBool>,
}

impl App {
    /// The same application with a model beside the present one. Which of them a tenant is asked with is said by the
    /// store.
    #[must_use]
    pub fn with_next_model(self, next: NextModel) -> Self {
        Self { next: Some(next), ..self }
    }

    /// The vectors of texts to keep, one for each, in their order.
    pub(crate) async fn passage_vectors(&self, scope: &Scope, texts: &[&Content]) -> Vec<Option<Vector>> {
        let Some(model) = self.engine_for(scope).await else { return texts.iter().map(|_| None).collect() };
        let mut vectors = Vec::with_capacity(texts.len());
        let began_at = self.env.now().millis();
        let mut rest = texts;
        while !rest.is_empty() && self.env.now().millis() - began_at < WAIT_MS_MAX {
            let (call, after) = rest.split_at(call_length(rest));
            vectors.extend(embed(model, Role::Passage, call).await);
            rest = after;
        }
        vectors.resize(texts.len(), None);
        vectors
    }

    /// The vectors of texts, one for each, however long it takes.
    pub(crate) async fn all_vectors(&self, scope: &Scope, texts: &[Content]) -> Vec<Option<Vector>> {
        let Some(model) = self.engine_for(scope).await else { return texts.iter().map(|_| None).collect() };
        let texts: Vec<&Content> = texts.iter().collect();
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts.as_slice();
        while !rest.is_empty() {
            let (call, after) = rest.split_at(call_length(rest));
            vectors.extend(embed(model, Role::Passage, call).await);
            rest = after;
        }
        vectors
    }

    /// The vector of a text to keep.
    pub(crate) async fn passage_vector(&self, scope: &Scope, text: &Content) -> Option<Vector> {
        embed(self.engine_for(scope).await?, Role::Passage, &[text]).await.pop().flatten()
    }

    /// The vector of a question, with the constants to weigh it.
    pub(crate) async fn question_vector(
        &self,
        scope: &Scope,
        question: &Content,
    ) -> Option<(Vector, Fusion)> {
        let model = self.engine_for(scope).await?;
        let descriptor = model.embedder.descriptor();
        let fusion = Fusion { floor: descriptor.cosine_floor(), span: descriptor.cosine_span() };
        Some((embed(model, Role::Query, &[question]).await.pop().flatten()?, fusion))
    }

    /// The engine of the model whose vectors the tenant of a scope takes, if it can be asked now.
    ///
    /// A tenant whose vectors are of a model without an engine is searched by words, and what is written to it waits
    /// for its vector.
    pub(crate) async fn engine_for(&self, scope: &Scope) -> Option<&EmbeddingModel> {
        let next = self.next.as_ref().map(|next| &next.model);
        if self.model.is_none() && next.is_none() {
            return None;
        }
        // If the store cannot say it now, it will refuse what it is asked next, too.
        let of_tenant = self.backend.vector_model(scope).await.ok()?;
        let model = match of_tenant {
            None => self.model.as_ref(),
            Some(id) => {
                [self.model.as_ref(), next].into_iter().flatten().find(|m| model_id(&*m.embedder) == id)
            }
        };
        model.filter(|model| model.embedder.is_available())
    }

    /// Whether the engine of the model of the data as a whole can be asked now.
    pub(crate) fn has_engine(&self) -> bool {
        let next = self.next.as_ref().filter(|next| next.in_use.load(Ordering::Relaxed));
        let model = next.map(|next| &next.model).or(self.model.as_ref());
        model.is_some_and(|model| model.embedder.is_available())
    }
}

/// One call of the engine, off this thread. As many results as texts.
async fn embed(model: &EmbeddingModel, role: Role, texts: &[&Content]) -> Vec<Option<Vector>> {
    let without = || texts.iter().map(|_| None).collect();
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
    // INVARIANT: I-14, a vector carries the name of the model that made it.
    made.into_iter().map(|values| Some(Vector { model: id.clone(), values: values? })).collect()
}
