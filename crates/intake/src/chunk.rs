//! Text becomes chunks. Boundaries are anchored in the content: a chunk never spans a heading, and a section
//! that is too large is cut where a hash of its own paragraphs is lowest, again and again until the parts fit
//! (`cut`). What was not changed keeps its chunks and digests, wherever it moved. Nothing overlaps and
//! nothing is random.

mod cut;

use std::fmt;
use std::ops::Range;

use ring::digest::{Context, SHA256, digest};
use unicode_segmentation::UnicodeSegmentation;

use crate::document::{Block, BlockKind, Document, Span};

/// How the size of a text is counted: in characters, or in the tokens of a model.
pub trait Measure {
    /// A short name, part of the rule's id: a size in another unit is another rule.
    fn name(&self) -> &str;
    /// The size of a text. Must be the same for the same text.
    fn size(&self, text: &str) -> usize;
}

/// Counts characters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Characters;

impl Measure for Characters {
    fn name(&self) -> &'static str {
        "chars"
    }

    fn size(&self, text: &str) -> usize {
        text.chars().count()
    }
}

/// A rule that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The smallest size is not below the largest, or the largest is too small to hold a sentence.
    #[error("a chunk's largest size must be at least 16 and above its smallest size")]
    Sizes,
}

/// How a text is divided. Two rules with equal ids divide equal texts equally.
#[derive(Clone, Copy)]
pub struct ChunkRule<'m> {
    measure: &'m dyn Measure,
    size_min: usize,
    size_max: usize,
}

impl<'m> ChunkRule<'m> {
    /// The version of the way boundaries are found. It changes whenever the same text would be divided
    /// otherwise.
    pub const VERSION: u32 = 1;

    /// Chunks of at most `size_max`. A section that is larger is not cut into parts smaller than `size_min` if
    /// that can be avoided; a quarter of `size_max` leaves enough room to keep boundaries in place when
    /// something is changed. A short section is a chunk all the same.
    ///
    /// # Errors
    /// [`RuleError::Sizes`].
    pub fn new(measure: &'m dyn Measure, size_min: usize, size_max: usize) -> Result<Self, RuleError> {
        if size_max < 16 || size_min >= size_max {
            return Err(RuleError::Sizes);
        }
        Ok(Self { measure, size_min, size_max })
    }

    /// The name under which the rule is recorded with a revision, such as `merkwelt-chunk-1/chars/600-1200`.
    #[must_use]
    pub fn id(&self) -> String {
        let (version, unit) = (Self::VERSION, self.measure.name());
        format!("merkwelt-chunk-{version}/{unit}/{}-{}", self.size_min, self.size_max)
    }
}

impl fmt::Debug for ChunkRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())
    }
}

/// Says what a chunk contains: SHA-256 over rule, heading path and text. Equal digests mean that nothing needs
/// to be embedded again. It is no commitment: short texts can be guessed from it, so it stays with the content
/// and never goes into the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkDigest(pub [u8; 32]);

impl ChunkDigest {
    /// Lower case, 64 characters.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkDigest(..)")
    }
}

/// A part of a document that is indexed and delivered as one. `Debug` shows sizes only (I-12).
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Position in the document, from zero.
    pub ordinal: u32,
    /// Bytes of the document's text.
    pub range: Range<usize>,
    /// The text, without white space around it. [`merkwelt_domain::Content::to_keep`] takes it as it is.
    pub text: String,
    /// Its size in the unit of the rule; at most the rule's largest size.
    pub size: usize,
    /// The headings it stands under, outermost first.
    pub heading_path: Vec<String>,
    /// Where its parts come from; ranges count from the start of this chunk's text.
    pub spans: Vec<Span>,
    /// What it contains.
    pub digest: ChunkDigest,
    /// How many chunks of the document with the same digest come before it. Digest and occurrence together
    /// name a chunk within a revision, and name it again in the next one.
    pub occurrence: u32,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({}, {} bytes, {} spans)", self.ordinal, self.text.len(), self.spans.len())
    }
}

/// The smallest part that is not divided: a block, or a piece of one that is too large.
struct Atom {
    range: Range<usize>,
    size: usize,
    heading: Option<usize>,
    is_heading: bool,
    /// How readily the text is cut before this atom: the lowest goes first.
    rank: u32,
}

/// Divides a document. The result depends on nothing but the document and the rule.
#[must_use]
pub fn chunk(document: &Document, rule: &ChunkRule<'_>) -> Vec<Chunk> {
    let mut atoms: Vec<Atom> = Vec::new();
    for block in document.blocks() {
        let after_heading = atoms.last().is_some_and(|last| last.is_heading);
        atoms.extend(atoms_of(document, block, after_heading, rule));
    }
    let mut chunks = Vec::new();
    // Headings without words between them open one section.
    for section in atoms.chunk_by(|last, next| last.is_heading || !next.is_heading) {
        for part in cut::parts(section, rule, document.text()) {
            chunks.extend(close(document, part, rule));
        }
    }
    number(&mut chunks);
    chunks
}

fn atoms_of(document: &Document, block: &Block, after_heading: bool, rule: &ChunkRule<'_>) -> Vec<Atom> {
    let is_heading = matches!(block.kind, BlockKind::Heading { .. });
    let pieces = divided(document.text(), block.range.clone(), rule, Cut::Sentences);
    let atoms = pieces.into_iter().enumerate().map(|(index, (range, size))| {
        let text = document.text().get(range.clone()).unwrap_or_default();
        // What follows a heading is torn from it only if nothing else can be cut.
        let rank = if after_heading && index == 0 { u32::MAX } else { rank(text) };
        Atom { size, heading: block.heading, is_heading, rank, range }
    });
    atoms.collect()
}

/// Depends on nothing but the text of the atom, so it is the same in every revision.
fn rank(text: &str) -> u32 {
    let hash = digest(&SHA256, text.trim().as_bytes());
    hash.as_ref().first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// At what a text that is too large is cut next.
#[derive(Clone, Copy)]
enum Cut {
    Sentences,
    Words,
    Letters,
}

/// A range of the text, divided until each part fits. White space stays with the part before it.
fn divided(text: &str, range: Range<usize>, rule: &ChunkRule<'_>, cut: Cut) -> Vec<(Range<usize>, usize)> {
    let part = text.get(range.clone()).unwrap_or_default();
    let size = rule.measure.size(part);
    if size <= rule.size_max {
        return vec![(range, size)];
    }
    let (starts, next): (Vec<usize>, _) = match cut {
        Cut::Sentences => (part.split_sentence_bound_indices().map(|(at, _)| at).collect(), Some(Cut::Words)),
        Cut::Words => (part.split_word_bound_indices().map(|(at, _)| at).collect(), Some(Cut::Letters)),
        Cut::Letters => (part.grapheme_indices(true).map(|(at, _)| at).collect(), None),
    };
    let ends = starts.iter().skip(1).copied().chain([part.len()]);
    let pieces = starts.iter().zip(ends).map(|(from, to)| range.start + from..range.start + to);
    match next {
        Some(next) => gathered(text, pieces.flat_map(|piece| divided(text, piece, rule, next)), rule, cut),
        // A single character of a larger size than a chunk is left whole.
        None => gathered(text, pieces.map(|piece| (piece.clone(), 1)), rule, cut),
    }
}

/// Words and letters are put together again as far as they fit; sentences stay as they are, so that each may
/// be an anchor.
fn gathered(
    text: &str,
    pieces: impl Iterator<Item = (Range<usize>, usize)>,
    rule: &ChunkRule<'_>,
    cut: Cut,
) -> Vec<(Range<usize>, usize)> {
    if matches!(cut, Cut::Sentences) {
        return pieces.collect();
    }
    let mut parts: Vec<(Range<usize>, usize)> = Vec::new();
    for (piece, size) in pieces {
        match parts.last_mut() {
            Some((last, sum)) if *sum + size <= rule.size_max => {
                last.end = piece.end;
                *sum += size;
            }
            _ => parts.push((piece, size)),
        }
    }
    for (range, size) in &mut parts {
        *size = rule.measure.size(text.get(range.clone()).unwrap_or_default());
    }
    parts
}

fn close(document: &Document, open: &[Atom], rule: &ChunkRule<'_>) -> Option<Chunk> {
    let (first, last) = (open.first()?, open.last()?);
    let whole = document.text().get(first.range.start..last.range.end)?;
    let text = whole.trim();
    if text.is_empty() {
        return None;
    }
    let start = first.range.start + (whole.len() - whole.trim_start().len());
    let range = start..start + text.len();
    let heading_path = path(document, last.heading);
    let mut spans = document.spans_in(range.clone());
    for span in &mut spans {
        span.range = span.range.start - start..span.range.end - start;
    }
    let digest = content_digest(rule, &heading_path, text);
    let size = rule.measure.size(text);
    let text = text.to_owned();
    Some(Chunk { ordinal: 0, range, text, size, heading_path, spans, digest, occurrence: 0 })
}

fn path(document: &Document, heading: Option<usize>) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = heading;
    while let Some(heading) = at.and_then(|index| document.headings.get(index)) {
        path.push(heading.title.clone());
        at = heading.parent;
    }
    path.reverse();
    path
}

fn content_digest(rule: &ChunkRule<'_>, heading_path: &[String], text: &str) -> ChunkDigest {
    let mut context = Context::new(&SHA256);
    // Each part is preceded by its length, so that no two lists of parts are the same bytes.
    let id = rule.id();
    for part in [id.as_str()].into_iter().chain(heading_path.iter().map(String::as_str)).chain([text]) {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    ChunkDigest(bytes)
}

/// Gives each chunk its place, and equal ones their occurrence.
fn number(chunks: &mut [Chunk]) {
    let mut seen = std::collections::BTreeMap::new();
    for (ordinal, chunk) in chunks.iter_mut().enumerate() {
        let n_before = seen.entry(chunk.digest).or_insert(0u32);
        chunk.ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
        chunk.occurrence = *n_before;
        *n_before += 1;
    }
}
