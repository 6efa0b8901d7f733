//! What holds for every document that is read, and for the chunks it is divided into: shared by the tests of the
//! room that reads documents and by the fuzz target.

use merkwelt_domain::Content;
use merkwelt_intake::{Characters, Chunk, ChunkRule, Document, Limits, Media, Region, chunk, read};

/// Every kind of document, with the letter that a fuzzer names it by.
pub(crate) const MEDIA: [(u8, Media); 5] = [
    (b't', Media::Text),
    (b'm', Media::Markdown),
    (b'h', Media::Html),
    (b'd', Media::Docx),
    (b'p', Media::Pdf),
];

/// Small chunks, so that small documents have several.
pub(crate) fn rule() -> ChunkRule<'static> {
    ChunkRule::new(&Characters, 150, 600).unwrap()
}

/// A document is refused or keeps every promise, the same each time. The first byte says which kind it is.
pub(crate) fn document(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Some((_, media)) = MEDIA.iter().find(|(letter, _)| letter == first) else { return };
    // A twentieth of the usual work, so that the fuzzer tries more than a few.
    let limits = Limits { steps_max: 20_000_000, ..Limits::default() };
    let read_once = read(rest, *media, &limits);
    match (&read_once, read(rest, *media, &limits)) {
        (Ok(first), Ok(second)) => assert!(*first == second, "read in two ways"),
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        (first, second) => panic!("read once: {} {}", first.is_ok(), second.is_ok()),
    }
    if let Ok(document) = read_once {
        holds(&document);
    }
}

/// Everything that a reader of the result relies on.
pub(crate) fn holds(document: &Document) {
    let text = document.text();
    assert!(!text.trim().is_empty());
    assert!(text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
    // Spans are ordered, do not overlap, and cover all but white space.
    let mut end = 0;
    for span in document.spans() {
        assert!(span.range.start >= end && span.range.end > span.range.start, "spans overlap");
        assert!(text[end..span.range.start].trim().is_empty(), "words without a region");
        end = span.range.end;
    }
    assert!(text[end..].trim().is_empty());
    // Regions never go back.
    let places: Vec<_> = document
        .spans()
        .iter()
        .map(|span| match span.region {
            Region::Page { page, bbox } => {
                assert!(bbox.x0 <= bbox.x1 && bbox.y0 <= bbox.y1);
                page
            }
            Region::Paragraph { number } => number,
        })
        .collect();
    assert!(places.is_sorted());
    // Blocks are ordered and only line breaks stand between them.
    let mut end = 0;
    for block in document.blocks() {
        assert!(text[end..block.range.start].chars().all(|c| c == '\n'));
        end = block.range.end;
    }
    assert_eq!(end, text.len());
    divides(document, &chunk(document, &rule()));
}

/// Chunks are all of the text, in order, none too large, each with regions, and each can be kept.
fn divides(document: &Document, chunks: &[Chunk]) {
    let text = document.text();
    let mut end = 0;
    for (ordinal, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.ordinal as usize, ordinal);
        assert_eq!(&text[chunk.range.clone()], chunk.text);
        assert!(text[end..chunk.range.start].trim().is_empty(), "words left out or twice");
        assert!(chunk.size <= 600 || chunk.text.chars().count() == 1, "{}", chunk.size);
        assert!(!chunk.spans.is_empty());
        assert!(chunk.spans.iter().all(|span| chunk.text.get(span.range.clone()).is_some()));
        assert_eq!(
            Content::to_keep(&chunk.text, usize::MAX).map(|kept| kept.expose() == chunk.text),
            Ok(true)
        );
        end = chunk.range.end;
    }
    assert!(text[end..].trim().is_empty());
    assert_eq!(chunks, chunk(document, &rule()), "not the same twice");
}
