//! A document in the making. All readers write through here, so that text is normalised, regions are complete
//! and bounds are kept in one place.

use merkwelt_domain::text::holds_mark;
use unicode_normalization::UnicodeNormalization;

use crate::document::{Block, BlockKind, Document, Heading, Omitted, Region, Span};
use crate::limits::Meter;
use crate::media::Media;
use crate::refusal::Refusal;

/// A part of a block and where it stands.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) region: Region,
    /// Whether it continues the last piece without a space, as after a hyphen at the end of a line.
    pub(crate) joined: bool,
}

#[derive(Debug)]
pub(crate) struct Draft {
    document: Document,
    n_paragraphs: u32,
}

impl Draft {
    pub(crate) fn new(media: Media) -> Self {
        let document = Document {
            media,
            text: String::new(),
            blocks: Vec::new(),
            spans: Vec::new(),
            headings: Vec::new(),
            title: None,
            n_pages: None,
            omitted: Omitted::default(),
        };
        Self { document, n_paragraphs: 0 }
    }

    pub(crate) fn omitted(&mut self) -> &mut Omitted {
        &mut self.document.omitted
    }

    pub(crate) fn pages(&mut self, n: u32) {
        self.document.n_pages = Some(n);
    }

    pub(crate) fn title(&mut self, title: &str) {
        let title = one_line(title);
        if !title.is_empty() {
            self.document.title = Some(title);
        }
    }

    /// Adds a block of a document without pages. Blank text adds nothing and has no number.
    pub(crate) fn paragraph(
        &mut self,
        kind: BlockKind,
        text: &str,
        meter: &mut Meter<'_>,
    ) -> Result<(), Refusal> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.n_paragraphs = self.n_paragraphs.saturating_add(1);
        let region = Region::Paragraph { number: self.n_paragraphs };
        self.block(kind, &[Piece { text: text.to_owned(), region, joined: false }], meter)
    }

    /// Adds a block made of pieces with regions of their own.
    pub(crate) fn block(
        &mut self,
        kind: BlockKind,
        pieces: &[Piece],
        meter: &mut Meter<'_>,
    ) -> Result<(), Refusal> {
        let mut body = String::new();
        let mut spans: Vec<Span> = Vec::new();
        for piece in pieces {
            meter.steps(piece.text.len())?;
            let text = match kind {
                BlockKind::Heading { .. } | BlockKind::Row => one_line(&piece.text),
                BlockKind::Code => cleaned(&piece.text).trim_matches('\n').to_owned(),
                BlockKind::Paragraph | BlockKind::Item { .. } => tidied(&piece.text),
            };
            if text.trim().is_empty() {
                continue;
            }
            if !body.is_empty() && !piece.joined {
                body.push(' ');
            }
            let start = body.len();
            body.push_str(&text);
            spans.push(Span { range: start..body.len(), region: piece.region });
        }
        if spans.is_empty() {
            return Ok(());
        }
        meter.entry()?;
        self.document.text.push_str(self.separator(kind));
        let start = self.document.text.len();
        let (before, after) = marks(kind, &body);
        // INVARIANT: the text as a whole is NFC. Each piece is, and none is joined to another but at a letter.
        self.document.text.push_str(&before);
        self.document.text.push_str(&body);
        self.document.text.push_str(after);
        let end = self.document.text.len();
        meter.text(end)?;
        let n_spans = spans.len();
        for (index, span) in spans.into_iter().enumerate() {
            let from = if index == 0 { start } else { start + before.len() + span.range.start };
            let to = if index + 1 == n_spans { end } else { start + before.len() + span.range.end };
            self.document.spans.push(Span { range: from..to, region: span.region });
        }
        if let BlockKind::Heading { level } = kind {
            self.open(level, body);
        }
        let heading = self.document.headings.len().checked_sub(1);
        self.document.blocks.push(Block { range: start..end, kind, heading });
        Ok(())
    }

    /// Opens a heading under the last one of a higher level.
    fn open(&mut self, level: u8, title: String) {
        let mut parent = self.document.headings.len().checked_sub(1);
        while let Some(above) = parent.and_then(|index| self.document.headings.get(index)) {
            if above.level < level {
                break;
            }
            parent = above.parent;
        }
        self.document.headings.push(Heading { title, level, parent });
    }

    fn separator(&self, kind: BlockKind) -> &'static str {
        match (self.document.blocks.last().map(|block| block.kind), kind) {
            (None, _) => "",
            (Some(BlockKind::Item { .. }), BlockKind::Item { .. })
            | (Some(BlockKind::Row), BlockKind::Row) => "\n",
            _ => "\n\n",
        }
    }

    pub(crate) fn finish(self) -> Result<Document, Refusal> {
        let document = self.document;
        if document.text.trim().is_empty() {
            return Err(Refusal::NoText);
        }
        // INVARIANT: I-13, what was recalled and shown to a model is never taken in again.
        let titles = document.title.iter().chain(document.headings.iter().map(|heading| &heading.title));
        if holds_mark(&document.text) || titles.into_iter().any(|title| holds_mark(title)) {
            return Err(Refusal::Recalled);
        }
        Ok(document)
    }
}

/// What stands before and after the words of a block.
fn marks(kind: BlockKind, body: &str) -> (String, &'static str) {
    match kind {
        BlockKind::Heading { level } => (format!("{} ", "#".repeat(usize::from(level.clamp(1, 6)))), ""),
        BlockKind::Paragraph => (String::new(), ""),
        BlockKind::Item { depth } => {
            // A numbered item brings its number along.
            let numbered = body.split_once(['.', ')']).is_some_and(|(number, rest)| {
                !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with(' ')
            });
            (format!("{}{}", "  ".repeat(usize::from(depth)), if numbered { "" } else { "- " }), "")
        }
        BlockKind::Row => ("| ".to_owned(), " |"),
        BlockKind::Code => ("```\n".to_owned(), "\n```"),
    }
}

/// Unicode NFC without characters that are invisible or steer the display: they hide words from a reader, not
/// from a model.
pub(crate) fn cleaned(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let shown = text.chars().filter_map(|c| match c {
        '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' => Some('\n'),
        '\n' | '\t' => Some(c),
        // No-break spaces and their kin would keep equal words from being equal.
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Some(' '),
        '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' => None,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => None,
        '\u{e0000}'..='\u{e007f}' => None,
        c if c.is_control() => None,
        c => Some(c),
    });
    shown.nfc().collect()
}

/// A paragraph: lines trimmed, runs of spaces folded, no blank lines.
fn tidied(text: &str) -> String {
    let cleaned = cleaned(text);
    let lines = cleaned.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn one_line(text: &str) -> String {
    cleaned(text).split_whitespace().collect::<Vec<_>>().join(" ")
}
