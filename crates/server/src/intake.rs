//! From the bytes of a document to the passages of a revision, off the threads that serve requests. A
//! document that cannot be read is refused as a whole, with the reason.

use std::collections::BTreeMap;

use merkwelt_app::{PassageRequest, RevisionRequest};
use merkwelt_domain::source::{Region, RegionUnit, Title};
use merkwelt_domain::{Content, Timestamp};
use merkwelt_intake::{
    BBox, Characters, Chunk, ChunkRule, Document, Limits, Media, Refusal, Region as Place, chunk, read,
};

use crate::http::problem::{Code, FieldError, Problem};

/// Characters of a passage: about 120 to 500 tokens.
const CHARACTERS_MIN: usize = 450;
const CHARACTERS_MAX: usize = 1_800;
/// Headings that are kept above a passage.
const HEADINGS_MAX: usize = 6;

/// Reads and divides a document.
///
/// # Errors
/// Problem `unsupported_media_type` or `invalid` with the reason.
pub(crate) async fn revision(
    bytes: Vec<u8>,
    media: &str,
    publish: bool,
    valid_from: Option<Timestamp>,
) -> Result<RevisionRequest, Problem> {
    let Some(media) = Media::of_type(media) else {
        return Err(Problem::detailed(
            Code::UNSUPPORTED_MEDIA_TYPE,
            "send text/plain, text/markdown, text/html, application/pdf or DOCX",
        ));
    };
    let digest = sha256(&bytes);
    let read = tokio::task::spawn_blocking(move || passages(&bytes, media, &Limits::default())).await;
    let passages = read.unwrap_or_else(|_| Err(Unread::Unkept("it cannot be read".to_owned())));
    let passages = passages.map_err(|reason| FieldError::new("document", reason))?;
    Ok(RevisionRequest { digest, media: media.type_name().to_owned(), valid_from, publish, passages })
}

/// Why a document gives no passages: a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// It cannot be read.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What was read cannot be kept.
    #[error("{0}")]
    Unkept(String),
}

impl Unread {
    /// A stable name for machines.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unkept(_) => "unkept",
        }
    }
}

/// The passages of a document, or why there are none.
///
/// # Errors
/// [`Unread`].
pub(crate) fn passages(bytes: &[u8], media: Media, limits: &Limits) -> Result<Vec<PassageRequest>, Unread> {
    let document = read(bytes, media, limits)?;
    let rule = ChunkRule::new(&Characters, CHARACTERS_MIN, CHARACTERS_MAX)
        .map_err(|error| Unread::Unkept(error.to_string()))?;
    let lines = Lines::of(&document);
    chunk(&document, &rule).iter().map(|chunk| passage(chunk, &lines).map_err(Unread::Unkept)).collect()
}

/// The number of each line on its page, counted from one in reading order.
struct Lines(BTreeMap<(u32, BBox), u32>);

impl Lines {
    fn of(document: &Document) -> Self {
        let mut lines = BTreeMap::new();
        let (mut page, mut line) = (0, 0);
        for span in document.spans() {
            if let Place::Page { page: number, bbox } = span.region {
                line = if number == page { line + 1 } else { 1 };
                page = number;
                lines.entry((number, bbox)).or_insert(line);
            }
        }
        Self(lines)
    }
}

fn passage(chunk: &Chunk, lines: &Lines) -> Result<PassageRequest, String> {
    let text = Content::to_keep(&chunk.text, Content::TURN_MAX_BYTES).map_err(|e| e.to_string())?;
    // A heading that cannot stand in a line of a pack is left out; the words of the document are not.
    let headings = chunk.heading_path.iter().filter_map(|heading| short(heading)).take(HEADINGS_MAX);
    Ok(PassageRequest { text, headings: headings.collect(), region: region(chunk, lines)? })
}

fn short(heading: &str) -> Option<Title> {
    heading.chars().take(Title::MAX_CHARS).collect::<String>().parse().ok()
}

/// The region of a passage: its lines on its first page and the rectangle around them, or its paragraphs.
fn region(chunk: &Chunk, lines: &Lines) -> Result<Region, String> {
    let refused = |error: merkwelt_domain::source::Error| error.to_string();
    let mut around: Option<(u32, [i32; 4])> = None;
    let (mut first, mut last) = (u32::MAX, 1);
    for span in &chunk.spans {
        match span.region {
            Place::Page { page, bbox } => {
                let (of, bounds) = around.get_or_insert((page, [bbox.x0, bbox.y0, bbox.x1, bbox.y1]));
                if *of == page {
                    let [x0, y0, x1, y1] = *bounds;
                    *bounds = [x0.min(bbox.x0), y0.min(bbox.y0), x1.max(bbox.x1), y1.max(bbox.y1)];
                    let line = lines.0.get(&(page, bbox)).copied().unwrap_or(1);
                    (first, last) = (first.min(line), last.max(line));
                }
            }
            Place::Paragraph { number } => (first, last) = (first.min(number), last.max(number)),
        }
    }
    let unit = if around.is_some() { RegionUnit::Line } else { RegionUnit::Paragraph };
    let (page, bounds) = around.unzip();
    Region::new(page, unit, (first.min(last), last), bounds).map_err(refused)
}

/// SHA-256 of a document as it was received.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    for (to, from) in out.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    out
}
