//! multilingual-e5-small in 4 bits, run in the process by a small encoder of our own.
//!
//! Needs nothing but the model file: no runtime, no accelerator, one thread per call. About a hundred
//! languages, 384 dimensions, 512 tokens. Memory: some 30 MB; word vectors stay in the file.

mod encoder;
mod image;
mod kernels;
mod simd;
mod source;
#[cfg(test)]
mod tests;
mod unigram;
mod weights;

use std::io;

use crate::descriptor::{Descriptor, Fields, Pooling};
use crate::embed::{self, Embedder, Embedding, Role};
use crate::models::VerifiedModel;
use encoder::Encoder;
use image::Image;
use kernels::Kernels;
use source::Source;
use unigram::{Tokens, Unigram};

/// Generation of the text preparation: form NFC, then the table of the model file.
const NORMALISER_VERSION: u32 = 1;
/// Texts are encoded together up to this many tokens: enough to fetch weights seldom, little memory.
const BATCH_TOKENS: usize = 512;

/// Dimension and token limit of the pinned file.
const PINNED_SHAPE: (usize, usize) = (384, 512);

/// What the pinned model is, known before its file is there.
///
/// # Errors
/// None; the description of the pinned model is valid.
pub fn pinned() -> Result<Descriptor, crate::descriptor::Error> {
    describe(crate::models::FILE_SHA256.to_owned(), PINNED_SHAPE.0, PINNED_SHAPE.1)
}

fn describe(
    revision: String,
    dimension: usize,
    max_tokens: usize,
) -> Result<Descriptor, crate::descriptor::Error> {
    Descriptor::new(Fields {
        id: "multilingual-e5-small-q4".to_owned(),
        revision,
        dimension,
        max_tokens,
        pooling: Pooling::Mean,
        normalize: true,
        query_prefix: "query: ".to_owned(),
        passage_prefix: "passage: ".to_owned(),
        // Measured: cosines of unrelated texts lie around .75, one in a hundred below .70.
        cosine_floor: 0.70,
        cosine_span: 0.25,
        normaliser_version: NORMALISER_VERSION,
    })
}

/// Why a model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a model of the known format.
    #[error("the model file is malformed: {0}")]
    Malformed(&'static str),
    /// The file could not be read.
    #[error("the model file could not be read: {0}")]
    Read(io::ErrorKind),
    /// The sizes in the file do not make a valid description.
    #[error("the model file is malformed: {0}")]
    Descriptor(#[from] crate::descriptor::Error),
}

/// The built-in embedder. Loading takes some 100 ms, a question some milliseconds on one core.
#[derive(Debug)]
pub struct E5 {
    descriptor: Descriptor,
    tokenizer: Unigram,
    encoder: Encoder,
}

impl E5 {
    /// Loads a model whose digest was checked. Reads the processor's abilities, nothing else.
    ///
    /// # Errors
    /// The file cannot be read or is not of the format "E5S1".
    pub fn open(model: VerifiedModel) -> Result<Self, Error> {
        let revision = model.digest_hex();
        let (file, len) = model.into_file();
        Self::from_source(Source::file(file, len)?, revision, Kernels::detect())
    }

    /// Name of the instructions in use, for reports: `avx512-vnni`, `avx2`, `neon-dotprod`, `neon` or `portable`.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.encoder.kernels().name
    }

    /// Loads a model whose digest nobody checked: in tests and under the fuzzer, where the bytes are hostile
    /// on purpose. `portable` leaves the special instructions of the processor alone.
    ///
    /// # Errors
    /// The bytes are not of the format "E5S1".
    #[cfg(any(test, fuzzing))]
    pub fn unverified(bytes: Vec<u8>, portable: bool) -> Result<Self, Error> {
        let kernels = if portable { kernels::PORTABLE } else { Kernels::detect() };
        Self::from_source(Source::Memory(bytes), "00".repeat(32), kernels)
    }

    /// The token ids that a text is encoded as, and whether its end was left out.
    #[cfg(any(test, fuzzing))]
    #[must_use]
    pub fn token_ids(&self, role: Role, text: &str) -> (Vec<u32>, bool) {
        let tokens = self.tokens(role, text);
        (tokens.ids, tokens.truncated)
    }

    fn from_source(source: Source, revision: String, kernels: Kernels) -> Result<Self, Error> {
        let mut image = Image::read(source)?;
        let shape = image.shape;
        let normaliser = std::mem::take(&mut image.normaliser);
        let tokenizer = Unigram::new(&image.pieces, normaliser, image.specials)?;
        let encoder = Encoder::new(image, kernels)?;
        let descriptor = describe(revision, shape.hidden, shape.positions)?;
        Ok(Self { descriptor, tokenizer, encoder })
    }

    fn tokens(&self, role: Role, text: &str) -> Tokens {
        let prefix = match role {
            Role::Query => self.descriptor.query_prefix(),
            Role::Passage => self.descriptor.passage_prefix(),
        };
        self.tokenizer.encode([prefix, text], self.descriptor.max_tokens())
    }

    fn encode(&self, batch: &[Tokens], into: &mut Vec<Embedding>) -> Result<(), embed::Error> {
        let ids: Vec<&[u32]> = batch.iter().map(|tokens| tokens.ids.as_slice()).collect();
        // Only the file can fail, and it fails for every text.
        let vectors = self.encoder.encode(&ids).map_err(|_| embed::Error::Away(FILE_CHANGED))?;
        for (vector, tokens) in vectors.into_iter().zip(batch) {
            into.push(Embedding::new(self.descriptor.dimension(), vector, tokens.truncated)?);
        }
        Ok(())
    }
}

const FILE_CHANGED: &str = "the model file was changed or cannot be read any more";

impl Embedder for E5 {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn is_available(&self) -> bool {
        self.encoder.file_is_whole()
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, embed::Error> {
        let mut embeddings = Vec::with_capacity(texts.len());
        let mut batch: Vec<Tokens> = Vec::new();
        let mut n_tokens = 0;
        for text in texts {
            let tokens = self.tokens(role, text);
            if n_tokens + tokens.ids.len() > BATCH_TOKENS && !batch.is_empty() {
                self.encode(&batch, &mut embeddings)?;
                batch.clear();
                n_tokens = 0;
            }
            n_tokens += tokens.ids.len();
            batch.push(tokens);
        }
        if !batch.is_empty() {
            self.encode(&batch, &mut embeddings)?;
        }
        Ok(embeddings)
    }
}
