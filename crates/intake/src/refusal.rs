//! Why a document is not read. Each reason is a sentence for the person who handed it in: what is wrong and
//! what to do. It holds nothing of the content.

use std::fmt;

use crate::media::Media;

/// Which of the [`crate::Limits`] was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Bound {
    /// `bytes_max`.
    Bytes,
    /// `text_bytes_max`.
    TextBytes,
    /// `pages_max`.
    Pages,
    /// `entries_max`.
    Entries,
    /// `depth_max`.
    Depth,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::TextBytes => "bytes of text",
            Self::Pages => "pages",
            Self::Entries => "parts",
            Self::Depth => "levels of nesting",
        })
    }
}

/// Why a document was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No bytes at all.
    #[error("the file is empty; send the document again")]
    Empty,
    /// It can be read and holds no words.
    #[error("the document holds no text; if it is a scan, run text recognition on it and send the result")]
    NoText,
    /// It is protected by a password or by rights management.
    #[error("the document is encrypted; remove the protection and send it again")]
    Encrypted,
    /// It is damaged. The text says which part.
    #[error(
        "the document is damaged: {0}; open it in the program it was made with, save it and send it again"
    )]
    Broken(&'static str),
    /// One of the bounds was reached.
    #[error("the document has more than {max} {bound}; divide it into smaller documents")]
    TooLarge {
        /// Which bound.
        bound: Bound,
        /// The bound.
        max: usize,
    },
    /// Unpacked it would be far larger than it looks.
    #[error("the document unpacks to far more than its size; it is not opened, send it in another format")]
    Bomb,
    /// It costs more work than a document of its kind may.
    #[error("the document is too complicated to read; divide it or save it in a simpler format")]
    TooComplex,
    /// Its characters are in an encoding that is not read, or in none.
    #[error("the characters of the document cannot be read; save it as UTF-8 and send it again")]
    WrongEncoding,
    /// A kind of file that is not read.
    #[error("{0} is not read; send the document as PDF, DOCX, HTML, Markdown or plain text")]
    Unsupported(&'static str),
    /// The content is of another kind than declared.
    #[error("the document was declared as {declared} but looks like {found}; declare it as what it is")]
    Mismatch {
        /// What the caller said.
        declared: Media,
        /// What the bytes look like.
        found: Media,
    },
    /// It holds a block that this service delivered (I-13).
    #[error("the document holds a recalled block; remove it, what was recalled is not stored again")]
    Recalled,
}

impl Refusal {
    /// A stable name for machines.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NoText => "no_text",
            Self::Encrypted => "encrypted",
            Self::Broken(_) => "broken",
            Self::TooLarge { .. } => "too_large",
            Self::Bomb => "bomb",
            Self::TooComplex => "too_complex",
            Self::WrongEncoding => "wrong_encoding",
            Self::Unsupported(_) => "unsupported",
            Self::Mismatch { .. } => "mismatch",
            Self::Recalled => "recalled",
        }
    }
}
