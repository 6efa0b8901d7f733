//! A second look at what is delivered anyway: its order may change, what it is never does. It comes after every
//! check of permission and freshness, so a reranker reads nothing that the caller does not get.

use std::sync::{Arc, mpsc};

use merkwelt_domain::{Content, Timestamp};
use merkwelt_inference::rerank::{Reranker, Score, order};
use merkwelt_store::record::Record;

use crate::App;
use crate::embedding::Offload;
use crate::pack::fit::Fitted;

/// A reranker with the place where its calls run.
#[derive(Clone)]
pub struct RerankingModel {
    /// The engine.
    pub reranker: Arc<dyn Reranker>,
    /// Where it works.
    pub offload: Arc<dyn Offload>,
}

impl std::fmt::Debug for RerankingModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RerankingModel").field(&self.reranker.texts_max()).finish()
    }
}

/// What the answer says of its order.
const APPLIED: &str = "applied";
/// The order is that of the search: the reranker failed or had no time.
const NOT_APPLIED: &str = "not_applied";

/// How the order of an answer came about; nothing to say without a reranker.
pub(crate) type Said = Option<String>;

impl App {
    /// The same application with a reranker.
    #[must_use]
    pub fn with_reranker(mut self, model: Option<RerankingModel>) -> Self {
        self.reranking = model;
        self
    }

    /// Puts the first of some hits in the order of the reranker, each with its score.
    pub(crate) async fn rerank_hits<T>(
        &self,
        question: &Content,
        hits: Vec<T>,
        record: impl Fn(&T) -> &Record,
    ) -> (Vec<(T, Option<Score>)>, Said) {
        let (scores, said) = self.scores(question, hits.iter().map(record)).await;
        let moved = order(&scores).into_iter().chain(scores.len()..hits.len());
        let mut places: Vec<Option<T>> = hits.into_iter().map(Some).collect();
        let taken =
            moved.filter_map(|at| Some((places.get_mut(at)?.take()?, scores.get(at).copied().flatten())));
        (taken.collect(), said)
    }

    /// Puts the ranked lines of a pack in the order of the reranker, section by section. The budget is kept.
    pub(crate) async fn rerank_pack(
        &self,
        question: &Content,
        budget: u32,
        fitted: Fitted,
        as_of: Timestamp,
    ) -> (Fitted, Said) {
        let places = fitted.ranked();
        let records =
            places.iter().filter_map(|at| fitted.lines.get(*at)).map(|line| line.out.record.record());
        let (scores, said) = self.scores(question, records).await;
        if said.as_deref() != Some(APPLIED) {
            return (fitted, said);
        }
        match fitted.reordered(&places, &scores, (as_of, self.counter)) {
            Some(moved) if moved.tokens <= budget => (moved, said),
            Some(_) | None => (fitted, Some(NOT_APPLIED.to_owned())),
        }
    }

    /// One call of the reranker, off this thread, over the first records that it takes at once.
    async fn scores<'r>(
        &self,
        question: &Content,
        records: impl Iterator<Item = &'r Record>,
    ) -> (Vec<Option<Score>>, Said) {
        let Some(model) = &self.reranking else { return (Vec::new(), None) };
        let texts: Vec<Content> = records.take(model.reranker.texts_max()).map(text).collect();
        let not_applied = || (Vec::new(), Some(NOT_APPLIED.to_owned()));
        if texts.len() < 2 {
            return not_applied();
        }
        let n_texts = texts.len();
        let (answer, answered) = mpsc::sync_channel(1);
        let (reranker, question) = (Arc::clone(&model.reranker), question.clone());
        let work = move || {
            let texts: Vec<&str> = texts.iter().map(Content::expose).collect();
            // Nobody waits any more if the request was given up.
            drop(answer.send(reranker.score(question.expose(), &texts)));
        };
        model.offload.run(Box::new(work)).await;
        match answered.try_recv() {
            Ok(Ok(scores)) if scores.len() == n_texts && scores.iter().any(Option::is_some) => {
                (scores, Some(APPLIED.to_owned()))
            }
            Ok(Ok(_) | Err(_)) | Err(_) => not_applied(),
        }
    }
}

/// What a record says, as it is delivered.
fn text(record: &Record) -> Content {
    match record {
        Record::Memory(memory) => memory.statement.text().clone(),
        Record::Turn(turn) => turn.text.clone(),
        Record::Passage(passage) => passage.text.clone(),
    }
}
