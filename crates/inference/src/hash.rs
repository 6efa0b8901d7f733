//! A deterministic embedder without a model, for tests only.
//!
//! Equal words give equal directions, so tests can arrange what is near and what is far. It knows no
//! meaning and is never part of a default build: a service without a model says "lexical" instead.

use ring::digest::{SHA256, digest};

use crate::descriptor::{Descriptor, Fields, Pooling};
use crate::embed::{Embedder, Embedding, Error, Role};

/// Adds up one pseudo-random direction per word, lower-cased; word order and role do not matter.
#[derive(Debug)]
pub struct HashEmbedder {
    descriptor: Descriptor,
}

impl HashEmbedder {
    /// An embedder of `dimension` components that reads `max_words` words of a text; prefixes are empty.
    ///
    /// # Errors
    /// Dimension or limit are outside the range of a [`Descriptor`].
    pub fn new(dimension: usize, max_words: usize) -> Result<Self, crate::descriptor::Error> {
        let descriptor = Descriptor::new(Fields {
            id: "test-hash".to_owned(),
            revision: "00".repeat(32),
            dimension,
            max_tokens: max_words,
            pooling: Pooling::Mean,
            normalize: true,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            cosine_floor: 0.0,
            cosine_span: 1.0,
            normaliser_version: 1,
        })?;
        Ok(Self { descriptor })
    }

    fn one(&self, text: &str) -> Result<Embedding, Error> {
        let dimension = self.descriptor.dimension();
        let mut sum = vec![0.0_f32; dimension];
        let lower = text.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let mut n_words = 0_usize;
        for word in words.by_ref().take(self.descriptor.max_tokens()) {
            n_words += 1;
            add_direction(&mut sum, word);
        }
        if n_words == 0 {
            add_direction(&mut sum, "");
        }
        Embedding::new(dimension, sum, words.next().is_some())
    }
}

impl Embedder for HashEmbedder {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn embed(&self, _role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        texts.iter().map(|text| self.one(text)).collect()
    }
}

/// Adds the direction of `word`: bytes of SHA-256 over word and block number, centred on zero.
fn add_direction(sum: &mut [f32], word: &str) {
    for (block, components) in sum.chunks_mut(32).enumerate() {
        let mut input = word.as_bytes().to_vec();
        input.push(0);
        input.extend_from_slice(&block.to_le_bytes());
        for (x, byte) in components.iter_mut().zip(digest(&SHA256, &input).as_ref()) {
            *x += f32::from(*byte) - 127.5;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_equal_and_shared_words_are_near() {
        let embedder = HashEmbedder::new(64, 512).unwrap();
        let texts = ["Die Lieferung kommt Montag", "lieferung am Montag", "quarterly tax report"];
        let vectors = embedder.embed(Role::Passage, &texts).unwrap();
        let again = embedder.embed(Role::Query, &texts).unwrap();
        assert_eq!(vectors, again);
        let near = vectors[0].cosine(&vectors[1]).unwrap();
        let far = vectors[0].cosine(&vectors[2]).unwrap();
        assert!(near > far + 0.2, "near {near}, far {far}");
    }

    #[test]
    fn words_beyond_the_limit_are_reported_and_leave_no_trace() {
        let embedder = HashEmbedder::new(8, 8).unwrap();
        let vectors = embedder.embed(Role::Query, &["a b c d e f g h", "a b c d e f g h i"]).unwrap();
        assert!(!vectors[0].truncated());
        assert!(vectors[1].truncated());
        assert_eq!(vectors[0].as_slice(), vectors[1].as_slice());
    }

    #[test]
    fn a_text_without_words_still_has_a_direction() {
        let embedder = HashEmbedder::new(8, 8).unwrap();
        assert_eq!(embedder.embed(Role::Query, &["", "…"]).unwrap().len(), 2);
    }
}
