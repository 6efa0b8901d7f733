//! What must be known about an embedding model before two of its vectors may be compared.
//!
//! Vectors of models with different [`Descriptor::id`] or [`Descriptor::revision`] live in different
//! spaces; the index stores both and refuses to mix them (I-14).

use std::fmt::Write as _;

/// How the vectors of the tokens become one vector of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens, special tokens included (the e5 family).
    Mean,
    /// The vector of the first token (BGE-M3).
    Cls,
}

/// The properties of a model as written in the configuration or built into an engine; input of
/// [`Descriptor::new`].
#[derive(Debug, Clone, PartialEq)]
pub struct Fields {
    /// Name of the model, for example `multilingual-e5-small-q4`: 1 to 128 of `a-z A-Z 0-9 . _ / : -`.
    pub id: String,
    /// Digest of the weights, lower-case hex: 32 to 128 characters, an even number.
    pub revision: String,
    /// Number of components of a vector, 1 to 65,536.
    pub dimension: usize,
    /// Number of tokens read of a text, special tokens included, 8 to 1,048,576.
    pub max_tokens: usize,
    /// How token vectors become a text vector.
    pub pooling: Pooling,
    /// Whether the engine itself delivers vectors of length one. [`crate::Embedding`] always does.
    pub normalize: bool,
    /// Put before a question, for example `"query: "`.
    pub query_prefix: String,
    /// Put before a text that is to be found, for example `"passage: "`.
    pub passage_prefix: String,
    /// Cosine at which similarity counts as none, in [-1, 1); specific to the model.
    pub cosine_floor: f32,
    /// Width over which similarity rises from 0 to 1 above the floor, above 0 and at most 2.
    pub cosine_span: f32,
    /// Generation of the text preparation before tokenising; a change makes old vectors incomparable.
    pub normaliser_version: u32,
}

/// A checked model description; see [`Fields`] for the units.
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor {
    // INVARIANT: passed every check of `Descriptor::new`; never changed afterwards.
    fields: Fields,
}

/// A description no model can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The id is empty, too long or has a character outside the allowed set.
    #[error("the model id must be 1 to 128 letters, digits or . _ / : -")]
    Id,
    /// The revision is not a digest in lower-case hex.
    #[error("the model revision must be a digest of 32 to 128 lower-case hex digits")]
    Revision,
    /// The dimension is outside 1 to 65,536.
    #[error("the dimension must be between 1 and 65536, got {0}")]
    Dimension(usize),
    /// The token limit is outside 8 to 1,048,576.
    #[error("the token limit must be between 8 and 1048576, got {0}")]
    MaxTokens(usize),
    /// A prefix is longer than 256 bytes.
    #[error("a prefix must be at most 256 bytes")]
    Prefix,
    /// Floor or span are not finite or outside their range.
    #[error("the cosine floor must be in [-1, 1) and the span above 0 and at most 2")]
    Cosine,
}

impl Descriptor {
    /// Checks `fields`.
    ///
    /// # Errors
    /// The first field outside the range documented at [`Fields`].
    pub fn new(fields: Fields) -> Result<Self, Error> {
        let id_char = |byte: u8| byte.is_ascii_alphanumeric() || b"._/:-".contains(&byte);
        if fields.id.is_empty() || fields.id.len() > 128 || !fields.id.bytes().all(id_char) {
            return Err(Error::Id);
        }
        let hex_char = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let hex_len = fields.revision.len();
        if !(32..=128).contains(&hex_len)
            || !hex_len.is_multiple_of(2)
            || !fields.revision.bytes().all(hex_char)
        {
            return Err(Error::Revision);
        }
        if !(1..=65_536).contains(&fields.dimension) {
            return Err(Error::Dimension(fields.dimension));
        }
        if !(8..=1_048_576).contains(&fields.max_tokens) {
            return Err(Error::MaxTokens(fields.max_tokens));
        }
        if fields.query_prefix.len() > 256 || fields.passage_prefix.len() > 256 {
            return Err(Error::Prefix);
        }
        let floor_valid = (-1.0..1.0).contains(&fields.cosine_floor);
        let span_valid = fields.cosine_span > 0.0 && fields.cosine_span <= 2.0;
        if !floor_valid || !span_valid {
            return Err(Error::Cosine);
        }
        Ok(Self { fields })
    }

    /// Name of the model.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.fields.id
    }

    /// Digest of the weights in lower-case hex.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.fields.revision
    }

    /// Number of components of a vector.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.fields.dimension
    }

    /// Number of tokens read of a text, special tokens included.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.fields.max_tokens
    }

    /// How token vectors become a text vector.
    #[must_use]
    pub fn pooling(&self) -> Pooling {
        self.fields.pooling
    }

    /// Whether the engine itself delivers vectors of length one.
    #[must_use]
    pub fn normalize(&self) -> bool {
        self.fields.normalize
    }

    /// Put before a question.
    #[must_use]
    pub fn query_prefix(&self) -> &str {
        &self.fields.query_prefix
    }

    /// Put before a text that is to be found.
    #[must_use]
    pub fn passage_prefix(&self) -> &str {
        &self.fields.passage_prefix
    }

    /// Cosine at which similarity counts as none.
    #[must_use]
    pub fn cosine_floor(&self) -> f32 {
        self.fields.cosine_floor
    }

    /// Width over which similarity rises from 0 to 1 above the floor.
    #[must_use]
    pub fn cosine_span(&self) -> f32 {
        self.fields.cosine_span
    }

    /// Generation of the text preparation before tokenising.
    #[must_use]
    pub fn normaliser_version(&self) -> u32 {
        self.fields.normaliser_version
    }

    /// Name of the vector space: two vectors may be compared if and only if these are equal (I-14).
    ///
    /// Floor and span are left out: they read a cosine, they do not change it.
    #[must_use]
    pub fn space(&self) -> String {
        let fields = &self.fields;
        let mut name = format!("{}@{}/{}", fields.id, fields.revision, fields.dimension);
        let pooling = match fields.pooling {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
        };
        // Writing to a String cannot fail.
        let _ = write!(name, "/{pooling}/{}/n{}", fields.max_tokens, fields.normaliser_version);
        let _ = write!(name, "/{:?}/{:?}", fields.query_prefix, fields.passage_prefix);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            id: "multilingual-e5-small-q4".into(),
            revision: "ab".repeat(32),
            dimension: 384,
            max_tokens: 512,
            pooling: Pooling::Mean,
            normalize: true,
            query_prefix: "query: ".into(),
            passage_prefix: "passage: ".into(),
            cosine_floor: 0.70,
            cosine_span: 0.25,
            normaliser_version: 1,
        }
    }

    #[test]
    fn a_complete_description_is_kept_as_given() {
        let descriptor = Descriptor::new(fields()).unwrap();
        assert_eq!(descriptor.id(), "multilingual-e5-small-q4");
        assert_eq!(descriptor.dimension(), 384);
        assert_eq!(descriptor.query_prefix(), "query: ");
        assert_eq!(descriptor.passage_prefix(), "passage: ");
        assert_eq!((descriptor.cosine_floor(), descriptor.cosine_span()), (0.70, 0.25));
    }

    #[test]
    fn every_field_outside_its_range_is_refused_by_name() {
        let refused = |change: fn(&mut Fields)| {
            let mut wrong = fields();
            change(&mut wrong);
            Descriptor::new(wrong).unwrap_err()
        };
        assert_eq!(refused(|f| f.id = String::new()), Error::Id);
        assert_eq!(refused(|f| f.id = "e5 small".into()), Error::Id);
        assert_eq!(refused(|f| f.id = "x".repeat(129)), Error::Id);
        assert_eq!(refused(|f| f.revision = "AB".repeat(32)), Error::Revision);
        assert_eq!(refused(|f| f.revision = "a".repeat(33)), Error::Revision);
        assert_eq!(refused(|f| f.revision = "main".into()), Error::Revision);
        assert_eq!(refused(|f| f.dimension = 0), Error::Dimension(0));
        assert_eq!(refused(|f| f.max_tokens = 7), Error::MaxTokens(7));
        assert_eq!(refused(|f| f.query_prefix = "q".repeat(257)), Error::Prefix);
        assert_eq!(refused(|f| f.cosine_floor = f32::NAN), Error::Cosine);
        assert_eq!(refused(|f| f.cosine_floor = 1.0), Error::Cosine);
        assert_eq!(refused(|f| f.cosine_span = 0.0), Error::Cosine);
        assert_eq!(refused(|f| f.cosine_span = f32::INFINITY), Error::Cosine);
    }

    #[test]
    fn whatever_changes_a_vector_changes_the_name_of_its_space() {
        let space = |change: fn(&mut Fields)| {
            let mut other = fields();
            change(&mut other);
            Descriptor::new(other).unwrap().space()
        };
        let own = space(|_| {});
        assert_ne!(space(|f| f.revision = "cd".repeat(32)), own);
        assert_ne!(space(|f| f.normaliser_version = 2), own);
        assert_ne!(space(|f| f.pooling = Pooling::Cls), own);
        assert_ne!(space(|f| f.passage_prefix = String::new()), own);
        assert_eq!(space(|f| f.cosine_floor = 0.5), own);
    }
}
