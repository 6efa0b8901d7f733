//! Bytes of a document become text, structure, regions and chunks. This room is pure: it knows no file, no
//! network and no clock, and everything it is given is hostile until read. What cannot be read is refused
//! with a sentence that says what to do; nothing panics, and memory and work are bounded by [`Limits`].
//!
//! [`read`] makes a [`Document`]: normalised text with a Markdown-like structure, and for every part of it
//! the [`Region`] it came from. [`chunk`] divides it so that a change of one paragraph changes few
//! chunks, and each chunk knows its headings and regions.

mod chunk;
mod document;
mod docx;
mod draft;
mod encoding;
mod html;
mod limits;
mod markdown;
mod media;
mod pdf;
mod plain;
mod refusal;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use chunk::{Characters, Chunk, ChunkDigest, ChunkRule, Measure, RuleError, chunk};
pub use document::{BBox, Block, BlockKind, Document, Omitted, Region, Span};
pub use limits::Limits;
pub use media::Media;
pub use refusal::{Bound, Refusal};

use draft::Draft;
use limits::Meter;

/// Reads the bytes of a document that was declared to be `media`.
///
/// # Errors
/// [`Refusal`]: why the document is not read, and what to do about it. It never repeats the content.
pub fn read(bytes: &[u8], media: Media, limits: &Limits) -> Result<Document, Refusal> {
    // INVARIANT: no byte sequence stops the process. Our own code does not panic (lints); a parser that does
    // is contained here, and nothing it left half done is used.
    catch_unwind(AssertUnwindSafe(|| read_inside(bytes, media, limits)))
        .unwrap_or(Err(Refusal::Broken("a part of it cannot be understood")))
}

fn read_inside(bytes: &[u8], media: Media, limits: &Limits) -> Result<Document, Refusal> {
    if bytes.is_empty() {
        return Err(Refusal::Empty);
    }
    let mut meter = Meter::new(limits);
    meter.bytes(bytes.len())?;
    media::agree(bytes, media)?;
    let mut draft = Draft::new(media);
    match media {
        Media::Text => plain::read(&encoding::decode(bytes)?, &mut draft, &mut meter)?,
        Media::Markdown => markdown::read(&encoding::decode(bytes)?, &mut draft, &mut meter)?,
        Media::Html => html::read(&encoding::decode_html(bytes)?, &mut draft, &mut meter)?,
        Media::Docx => docx::read(bytes, &mut draft, &mut meter)?,
        Media::Pdf => pdf::read(bytes, &mut draft, &mut meter)?,
    }
    draft.finish()
}
