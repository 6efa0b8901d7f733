//! The door to every embedding engine: text in, vector of length one out.
//!
//! An embedding is personal data like the text it was made of, so it has no `Display` and its `Debug`
//! shows its size only (I-12).

use std::fmt;

use crate::descriptor::Descriptor;

/// What a text is for. Models of the e5 family place questions and texts by different prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The text asks.
    Query,
    /// The text is to be found.
    Passage,
}

/// Turns texts into vectors of one space. Object safe; implementations are shared between threads.
///
/// Calls are synchronous and bound by the processor (milliseconds per text): callers put them on a
/// blocking pool.
pub trait Embedder: Send + Sync {
    /// The model behind this embedder; the same for its whole life.
    fn descriptor(&self) -> &Descriptor;

    /// Embeds every text in `role`, in the given order: one embedding per text, of
    /// `descriptor().dimension()` components. The prefix of the role is put on here, not by the caller.
    ///
    /// # Errors
    /// The engine failed or delivered something that is no embedding; then nothing is returned for the
    /// whole call.
    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error>;

    /// The same text by text, so that one that cannot be embedded spoils no other. As many results as texts, in
    /// their order. An engine that is away is asked once and not for every text.
    fn embed_each(&self, role: Role, texts: &[&str]) -> Vec<Result<Embedding, Error>> {
        match self.embed(role, texts) {
            Ok(made) if made.len() == texts.len() => made.into_iter().map(Ok).collect(),
            Ok(_) if texts.len() == 1 => vec![Err(COUNT)],
            Err(error) if texts.len() == 1 || error.is_away() => {
                texts.iter().map(|_| Err(error.clone())).collect()
            }
            Ok(_) | Err(_) => self.one_by_one(role, texts),
        }
    }

    /// [`Embedder::embed_each`] with a call for each text, until the engine is found to be away.
    fn one_by_one(&self, role: Role, texts: &[&str]) -> Vec<Result<Embedding, Error>> {
        let mut away = None;
        let one = |text: &&str| {
            if let Some(error) = &away {
                return Err(Error::clone(error));
            }
            let made = self.embed(role, &[*text]).and_then(|mut made| made.pop().ok_or(COUNT));
            if let Err(error) = &made
                && error.is_away()
            {
                away = Some(error.clone());
            }
            made
        };
        texts.iter().map(one).collect()
    }

    /// Whether it can be asked now. While it cannot, texts are found by their words.
    fn is_available(&self) -> bool {
        true
    }
}

const COUNT: Error = Error::Engine("another number of vectors than of texts");

/// Why there is no embedding. The text never appears in it (I-12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A vector has not the dimension of the model.
    #[error("the vector has {actual} components, the model has {expected}")]
    Dimension {
        /// Components the model is described with.
        expected: usize,
        /// Components delivered.
        actual: usize,
    },
    /// A component is infinite or not a number.
    #[error("the vector has a component that is not a finite number")]
    NotFinite,
    /// The vector has no direction.
    #[error("the vector has no length")]
    Zero,
    /// The engine failed; the text says where, without content.
    #[error("the embedding engine failed: {0}")]
    Engine(&'static str),
    /// The engine is away and would fail for every text; it says nothing about this one.
    #[error("the embedding engine is away: {0}")]
    Away(&'static str),
}

impl Error {
    /// Whether another text would fail now just the same.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }
}

/// A vector of length one with the dimension of its model.
#[derive(Clone, PartialEq)]
pub struct Embedding {
    // INVARIANT: finite, not empty, Euclidean length 1 within rounding.
    components: Vec<f32>,
    truncated: bool,
}

impl Embedding {
    /// Checks `components` against `dimension` and scales them to length one. `truncated` says that
    /// the end of the text was beyond the token limit of the model and left no trace in the vector.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`], or [`Error::Zero`] if there is no direction.
    pub fn new(dimension: usize, mut components: Vec<f32>, truncated: bool) -> Result<Self, Error> {
        if components.len() != dimension {
            return Err(Error::Dimension { expected: dimension, actual: components.len() });
        }
        if !components.iter().all(|x| x.is_finite()) {
            return Err(Error::NotFinite);
        }
        // In f64 neither the smallest nor the largest f32 loses its square.
        let length = components.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        if length == 0.0 {
            return Err(Error::Zero);
        }
        for x in &mut components {
            *x = narrow(f64::from(*x) / length);
        }
        Ok(Self { components, truncated })
    }

    /// The components; the Euclidean length is one.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.components
    }

    /// The components, given away.
    #[must_use]
    pub fn into_vec(self) -> Vec<f32> {
        self.components
    }

    /// Number of components.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.components.len()
    }

    /// Whether the end of the text was beyond the token limit of the model.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Cosine of the angle to `other` in [-1, 1]; `None` if the dimensions differ.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> Option<f32> {
        (self.dimension() == other.dimension()).then(|| {
            let products = self.components.iter().zip(&other.components);
            products.map(|(a, b)| a * b).sum::<f32>().clamp(-1.0, 1.0)
        })
    }
}

impl fmt::Debug for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Embedding");
        shown.field("dimension", &self.components.len()).field("truncated", &self.truncated);
        shown.finish_non_exhaustive()
    }
}

/// Rounds to the nearest f32; the argument lies in [-1, 1].
#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is meant")]
fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_vector_of_the_wrong_dimension_is_refused() {
        let error = Embedding::new(3, vec![1.0; 2], false).unwrap_err();
        assert_eq!(error, Error::Dimension { expected: 3, actual: 2 });
    }

    #[test]
    fn a_vector_that_is_not_finite_or_has_no_direction_is_refused() {
        assert_eq!(Embedding::new(2, vec![f32::NAN, 1.0], false), Err(Error::NotFinite));
        assert_eq!(Embedding::new(2, vec![f32::INFINITY, 1.0], false), Err(Error::NotFinite));
        assert_eq!(Embedding::new(2, vec![0.0, -0.0], false), Err(Error::Zero));
        assert_eq!(Embedding::new(0, vec![], false), Err(Error::Zero));
    }

    /// Refuses texts that say so, alone or among others; away once it met such a text.
    struct Moody(std::sync::atomic::AtomicUsize, Descriptor);

    impl Embedder for Moody {
        fn descriptor(&self) -> &Descriptor {
            &self.1
        }

        fn embed(&self, _: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if texts.contains(&"gone") {
                return Err(Error::Away("asleep"));
            }
            if texts.contains(&"bad") {
                return Err(Error::NotFinite);
            }
            texts.iter().map(|_| Embedding::new(2, vec![1.0, 0.0], false)).collect()
        }
    }

    #[test]
    fn one_text_that_cannot_be_embedded_spoils_no_other_and_an_engine_that_is_away_is_asked_once() {
        let descriptor = crate::hash::HashEmbedder::new(2, 8).unwrap().descriptor().clone();
        let moody = Moody(std::sync::atomic::AtomicUsize::new(0), descriptor);
        let calls = || moody.0.swap(0, std::sync::atomic::Ordering::Relaxed);
        let ok = |texts: &[&str]| {
            moody.embed_each(Role::Passage, texts).iter().map(Result::is_ok).collect::<Vec<_>>()
        };
        assert_eq!((ok(&["a", "b"]), calls()), (vec![true, true], 1));
        assert_eq!((ok(&["a", "bad", "c"]), calls()), (vec![true, false, true], 4));
        assert_eq!((ok(&["gone", "b", "c"]), calls()), (vec![false; 3], 1));
        // It goes away while texts are tried one by one.
        assert_eq!(
            moody.one_by_one(Role::Query, &["a", "gone", "c"]).iter().filter(|r| r.is_ok()).count(),
            1
        );
        assert_eq!(calls(), 2);
    }

    #[test]
    fn debug_output_shows_no_component() {
        let embedding = Embedding::new(2, vec![3.0, 4.0], true).unwrap();
        assert_eq!(format!("{embedding:?}"), "Embedding { dimension: 2, truncated: true, .. }");
    }

    #[test]
    fn cosine_of_different_spaces_does_not_exist() {
        let two = Embedding::new(2, vec![3.0, 4.0], false).unwrap();
        let three = Embedding::new(3, vec![3.0, 4.0, 0.0], false).unwrap();
        assert_eq!(two.cosine(&three), None);
        assert_eq!(two.cosine(&two), Some(1.0));
    }

    proptest! {
        #[test]
        fn every_accepted_vector_has_length_one(values in prop::collection::vec(any::<f32>(), 1..64)) {
            let n = values.len();
            if let Ok(embedding) = Embedding::new(n, values, false) {
                let squares = embedding.as_slice().iter().map(|&x| f64::from(x) * f64::from(x));
                prop_assert!((squares.sum::<f64>() - 1.0).abs() < 1e-5);
            }
        }
    }
}
