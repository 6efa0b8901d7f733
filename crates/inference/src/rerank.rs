//! The door to every reranker: a question and some texts in, a score for each text out.
//!
//! A reranker reads question and text together, so it is better and slower than a search. It is given what is
//! delivered anyway and says in which order; it adds nothing and takes nothing away.

/// How well a text answers a question: finite. Scores of one call compare with each other and with nothing else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score(f32);

impl Score {
    /// A score, if it is a finite number.
    #[must_use]
    pub fn new(value: f32) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> f32 {
        self.0
    }
}

/// Scores texts against a question. Object safe; implementations are shared between threads.
///
/// Calls are synchronous and end within the time that the engine was configured with: callers put them on a
/// blocking pool.
pub trait Reranker: Send + Sync {
    /// The most texts of one call.
    fn texts_max(&self) -> usize;

    /// As many results as texts, in their order; `None` for a text that it has no usable score for.
    ///
    /// # Errors
    /// The engine failed for all of them; the order then stays as it was.
    fn score(&self, question: &str, texts: &[&str]) -> Result<Vec<Option<Score>>, Error>;
}

/// Why there are no scores. Neither question nor text ever appears in it (I-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reranker failed: {0}")]
pub struct Error(pub &'static str);

/// The order in which `scores` want the texts that they are of: the place each was at, best first. What has no
/// score keeps its place, and what is equal keeps its order.
#[must_use]
pub fn order(scores: &[Option<Score>]) -> Vec<usize> {
    let mut best: Vec<(usize, Score)> =
        scores.iter().enumerate().filter_map(|(at, score)| Some((at, (*score)?))).collect();
    best.sort_by(|(_, a), (_, b)| b.value().total_cmp(&a.value()));
    let mut best = best.into_iter().map(|(at, _)| at);
    // INVARIANT: a permutation: every place without a score stands for itself, and the others are those of `best`.
    scores.iter().enumerate().map(|(at, score)| score.and_then(|_| best.next()).unwrap_or(at)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scores(values: &[f32]) -> Vec<Option<Score>> {
        values.iter().map(|value| Score::new(*value)).collect()
    }

    #[test]
    fn the_best_comes_first_and_what_is_equal_keeps_its_order() {
        assert_eq!(order(&scores(&[0.1, 0.9, 0.1, -3.0])), [1, 0, 2, 3]);
        assert_eq!(order(&[]), [0; 0]);
    }

    #[test]
    fn what_has_no_score_keeps_its_place() {
        assert_eq!(order(&scores(&[0.1, f32::NAN, 0.9, f32::INFINITY])), [2, 1, 0, 3]);
    }

    proptest! {
        #[test]
        fn nothing_is_added_and_nothing_is_lost(values in prop::collection::vec(any::<f32>(), 0..40)) {
            let mut places = order(&scores(&values));
            places.sort_unstable();
            prop_assert_eq!(places, (0..values.len()).collect::<Vec<_>>());
        }
    }
}
