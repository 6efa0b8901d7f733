//! What was read: text with structure, and where each part of it stands in the original. Regions are what a
//! citation names, so every word of the text has one.

use std::fmt;
use std::ops::Range;

use crate::media::Media;

/// A rectangle on a page, in hundredths of a point (1/7200 inch), origin at the lower left corner of the page
/// as PDF has it. Integers, because evidence holds no fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BBox {
    /// Left.
    pub x0: i32,
    /// Bottom.
    pub y0: i32,
    /// Right.
    pub x1: i32,
    /// Top.
    pub y1: i32,
}

/// Where a part of the text stands in the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// A line on a page of a PDF.
    Page {
        /// Counted from one, as a reader does.
        page: u32,
        /// The line's rectangle.
        bbox: BBox,
    },
    /// A paragraph of a document without pages, in reading order. Headings, list items, table rows and blocks
    /// of code count as paragraphs.
    Paragraph {
        /// Counted from one.
        number: u32,
    },
}

/// A part of the text and its region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// Where they come from.
    pub region: Region,
}

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// A heading; written `# ` to `###### `.
    Heading {
        /// 1 to 6.
        level: u8,
    },
    /// A paragraph.
    Paragraph,
    /// An item of a list; written `- `, indented by two spaces per level.
    Item {
        /// 0 for the outermost list.
        depth: u8,
    },
    /// A row of a table; written `| a | b |`.
    Row,
    /// A block of code; fenced.
    Code,
}

/// A heading, paragraph, item, row or block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Bytes of the text, marks included.
    pub range: Range<usize>,
    /// What it is.
    pub kind: BlockKind,
    /// Index of the heading it stands under.
    pub(crate) heading: Option<usize>,
}

/// A heading and the one above it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) title: String,
    pub(crate) level: u8,
    pub(crate) parent: Option<usize>,
}

/// What was seen in the original and deliberately left out. A person who publishes the document should be told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Elements or runs that a reader does not see: hidden by markup or style, or drawn invisibly.
    pub n_hidden: u32,
    /// Tracked deletions.
    pub n_deletions: u32,
    /// Comments and notes in the margin.
    pub n_comments: u32,
    /// Pictures. Text in them is not read.
    pub n_pictures: u32,
    /// Pages that hold no text, such as scans.
    pub n_blank_pages: u32,
    /// Characters of a PDF that its fonts do not name; each stands in the text as U+FFFD.
    pub n_unknown_characters: u32,
}

/// A document that was read. `Debug` shows sizes only (I-12).
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    pub(crate) media: Media,
    pub(crate) text: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) spans: Vec<Span>,
    pub(crate) headings: Vec<Heading>,
    pub(crate) title: Option<String>,
    pub(crate) n_pages: Option<u32>,
    pub(crate) omitted: Omitted,
}

impl Document {
    /// What it was read as.
    #[must_use]
    pub fn media(&self) -> Media {
        self.media
    }

    /// The whole text: Unicode NFC, no control characters but line breaks and tabs, never blank.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The blocks in reading order. Between two blocks there are only line breaks.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Where each part comes from, in the order of the text.
    // INVARIANT: R-082, spans do not overlap, are ordered, and cover all of the text but white space.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The title that the document gives itself: a page's `<title>`, else its first heading.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref().or_else(|| self.headings.first().map(|heading| heading.title.as_str()))
    }

    /// Pages, if the kind of document has any.
    #[must_use]
    pub fn n_pages(&self) -> Option<u32> {
        self.n_pages
    }

    /// What was left out.
    #[must_use]
    pub fn omitted(&self) -> Omitted {
        self.omitted
    }

    /// The headings that a block stands under, outermost first. A heading stands under itself.
    #[must_use]
    pub fn heading_path(&self, block: &Block) -> Vec<&str> {
        let mut path = Vec::new();
        let mut at = block.heading;
        while let Some(heading) = at.and_then(|index| self.headings.get(index)) {
            path.push(heading.title.as_str());
            at = heading.parent;
        }
        path.reverse();
        path
    }

    /// The spans that a range of the text touches, cut to it.
    #[must_use]
    pub fn spans_in(&self, range: Range<usize>) -> Vec<Span> {
        let first = self.spans.partition_point(|span| span.range.end <= range.start);
        let rest = self.spans.get(first..).unwrap_or_default().iter();
        rest.take_while(|span| span.range.start < range.end)
            .map(|span| Span {
                range: span.range.start.max(range.start)..span.range.end.min(range.end),
                region: span.region,
            })
            .collect()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, blocks) = (self.text.len(), self.blocks.len());
        write!(f, "Document({}, {n} bytes, {blocks} blocks)", self.media)
    }
}
