//! PDF: pages become lines with their places, lines become headings, items and paragraphs in reading order. The
//! library `hayro-syntax` reads the file's structure; what it may unpack is bounded before it starts (`guard`).
//! Fonts, drawing instructions and layout are read here, as far as text needs them; nothing is drawn.

mod content;
mod font;
mod glyphs;
mod guard;
mod layout;

use std::collections::BTreeMap;

use hayro_syntax::page::{Page, Rotation};
use hayro_syntax::{LoadPdfError, Pdf};

use crate::document::{BlockKind, Region};
use crate::draft::{Draft, Piece};
use crate::limits::Meter;
use crate::refusal::{Bound, Refusal};
use content::{Drawn, Fonts, Glyph};
use layout::{Line, Turn};

/// A paragraph on a page.
struct Part {
    page: u32,
    size: f32,
    lines: Vec<Line>,
}

/// Adds the text of a PDF.
pub(crate) fn read(bytes: &[u8], draft: &mut Draft, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let prepared = guard::prepared(bytes, meter)?;
    let pdf = Pdf::new(prepared).map_err(|error| match error {
        LoadPdfError::Decryption(_) => Refusal::Encrypted,
        LoadPdfError::Invalid => Refusal::Broken("its pages cannot be found"),
    })?;
    let pages = pdf.pages();
    let max = meter.limits().pages_max;
    if pages.len() > max {
        return Err(Refusal::TooLarge { bound: Bound::Pages, max });
    }
    draft.pages(u32::try_from(pages.len()).unwrap_or(u32::MAX));
    let mut fonts = Fonts::new();
    let mut parts = Vec::new();
    let mut n_letters = 0usize;
    for (page, number) in pages.iter().zip(1u32..) {
        let mut drawn = content::drawn(page, &mut fonts, meter)?;
        keep_seen(&mut drawn, page, draft);
        n_letters += drawn.glyphs.iter().filter(|glyph| !glyph.letter.is_whitespace()).count();
        let lines = layout::lines(&drawn.glyphs, turn(page), meter)?;
        if lines.is_empty() {
            draft.omitted().n_blank_pages += 1;
        }
        let lines = lines.into_iter().filter(|line| !is_page_number(line, page)).collect();
        paragraphs(lines, number, &mut parts);
    }
    let n_unknown = usize::try_from(draft.omitted().n_unknown_characters).unwrap_or(usize::MAX);
    // Fonts that name no characters make a text of question marks: as good as a scan.
    if n_unknown * 2 > n_letters {
        return Err(Refusal::NoText);
    }
    let levels = levels(&parts);
    for part in parts {
        write(&part, &levels, draft, meter)?;
    }
    Ok(())
}

fn turn(page: &Page<'_>) -> Turn {
    match page.rotation() {
        Rotation::None => Turn::None,
        Rotation::Horizontal => Turn::Right,
        Rotation::Flipped => Turn::Around,
        Rotation::FlippedHorizontal => Turn::Left,
    }
}

/// Drops and counts what a reader of the page does not see: beside the page, too small to read, or drawn
/// invisibly. Only under a picture invisible text is what the reader sees: the recognised text of a scan.
fn keep_seen(drawn: &mut Drawn, page: &Page<'_>, draft: &mut Draft) {
    let n_invisible = drawn.glyphs.iter().filter(|glyph| !glyph.is_visible).count();
    let is_scan = drawn.n_pictures > 0 && n_invisible * 2 > drawn.glyphs.len();
    let frame = page.intersected_crop_box();
    let is_seen = |glyph: &Glyph| {
        let (x, y) = (f64::from(glyph.x), f64::from(glyph.y));
        let is_inside =
            x >= frame.x0 - 2.0 && x <= frame.x1 + 2.0 && y >= frame.y0 - 2.0 && y <= frame.y1 + 2.0;
        let is_number = glyph.width.is_finite() && glyph.size.is_finite() && glyph.along.0.is_finite();
        is_inside && is_number && glyph.size >= 1.0 && (glyph.is_visible || is_scan)
    };
    let n_before = drawn.glyphs.len();
    drawn.glyphs.retain(is_seen);
    let omitted = draft.omitted();
    omitted.n_hidden += u32::from(drawn.glyphs.len() < n_before);
    omitted.n_pictures = omitted.n_pictures.saturating_add(drawn.n_pictures);
    let n_unknown = drawn.glyphs.iter().filter(|glyph| glyph.letter == font::UNKNOWN).count();
    omitted.n_unknown_characters =
        omitted.n_unknown_characters.saturating_add(u32::try_from(n_unknown).unwrap_or(u32::MAX));
}

/// A line at the edge of a page that only counts pages would tear a sentence apart.
fn is_page_number(line: &Line, page: &Page<'_>) -> bool {
    let frame = page.intersected_crop_box();
    let height = frame.y1 - frame.y0;
    let y = f64::from(line.bbox.y0) / 100.0 - frame.y0;
    let is_at_edge = y < 0.1 * height || y > 0.9 * height;
    let words: Vec<_> = line.text.split([' ', '/', '-', '–', '|']).filter(|word| !word.is_empty()).collect();
    let is_count = |word: &&str| {
        word.bytes().all(|b| b.is_ascii_digit()) || matches!(*word, "Seite" | "Page" | "S." | "von" | "of")
    };
    is_at_edge && words.len() <= 4 && words.iter().all(is_count)
}

/// Puts lines together: a new paragraph begins after a gap, in another size, in another column, at a bullet.
fn paragraphs(lines: Vec<Line>, page: u32, parts: &mut Vec<Part>) {
    let pitch = pitch(&lines);
    let n_before = parts.len();
    for line in lines {
        let open = parts.get_mut(n_before..).and_then(|parts| parts.last_mut());
        let last = open.and_then(|part| part.lines.last().cloned().map(|last| (part, last)));
        if let Some((part, last)) = last {
            let drop = last.y - line.y;
            let is_near = drop > 0.0 && drop <= pitch * 1.25 && drop <= 3.0 * line.size.max(last.size);
            let is_same = (line.size - last.size).abs() <= 0.1 * last.size && line.column == last.column;
            // Rows of a table stay apart.
            let is_row = line.text.contains(" | ") || last.text.contains(" | ");
            if is_near && is_same && !is_row && bullet(&line.text).is_none() {
                part.lines.push(line);
                continue;
            }
        }
        parts.push(Part { page, size: line.size, lines: vec![line] });
    }
}

/// The usual distance between two lines of a page.
fn pitch(lines: &[Line]) -> f32 {
    let pairs = lines.iter().zip(lines.iter().skip(1));
    let mut drops: Vec<f32> = pairs
        .filter(|(above, below)| above.column == below.column)
        .map(|(above, below)| (above.y - below.y, below.size))
        .filter(|(drop, size)| *drop > 0.5 * size && *drop < 2.2 * size)
        .map(|(drop, _)| drop)
        .collect();
    drops.sort_by(f32::total_cmp);
    // Lower than the middle: where paragraphs are short, gaps between them are as frequent as lines.
    drops.get(drops.len() / 3).copied().unwrap_or(0.0)
}

/// What follows a bullet at the start of a line; many fonts draw bullets under no name.
fn bullet(text: &str) -> Option<&str> {
    text.strip_prefix([font::UNKNOWN, '•', '▪', '◦', '‣', '●', '○', '■', '–'])
        .filter(|rest| rest.starts_with(' '))
        .map(str::trim)
}

/// Sizes in steps of half a point, so that rounding makes no new heading.
fn step(size: f32) -> u32 {
    (u32::try_from(layout::hundredths(size)).unwrap_or(0) + 25) / 50
}

/// The level of each size that is clearly larger than that of most letters: the largest is 1.
fn levels(parts: &[Part]) -> BTreeMap<u32, u8> {
    let mut letters: BTreeMap<u32, usize> = BTreeMap::new();
    for part in parts {
        for line in &part.lines {
            *letters.entry(step(line.size)).or_default() += line.text.len();
        }
    }
    let body = letters.iter().max_by_key(|(_, n)| **n).map_or(0, |(size, _)| *size);
    let larger = letters.keys().rev().filter(|size| **size * 6 >= body * 7 && **size > body);
    larger.zip(1u8..).map(|(size, level)| (*size, level.min(6))).collect()
}

fn write(
    part: &Part,
    levels: &BTreeMap<u32, u8>,
    draft: &mut Draft,
    meter: &mut Meter<'_>,
) -> Result<(), Refusal> {
    let n_bytes: usize = part.lines.iter().map(|line| line.text.len()).sum();
    let first = part.lines.first().map(|line| line.text.as_str()).unwrap_or_default();
    let kind = match levels.get(&step(part.size)) {
        Some(level) if n_bytes <= 200 => BlockKind::Heading { level: *level },
        _ if bullet(first).is_some() => BlockKind::Item { depth: 0 },
        _ if first.contains(" | ") => BlockKind::Row,
        _ => BlockKind::Paragraph,
    };
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, line) in part.lines.iter().enumerate() {
        let text = if index == 0 { bullet(&line.text).unwrap_or(&line.text) } else { line.text.trim() };
        let mut joined = false;
        if let Some(last) = pieces.last_mut() {
            joined = joins(&mut last.text, text);
        }
        let region = Region::Page { page: part.page, bbox: line.bbox };
        pieces.push(Piece { text: text.to_owned(), region, joined });
    }
    draft.block(kind, &pieces, meter)
}

/// Whether the next line continues the last word; a hyphen that only divided it is taken away.
fn joins(last: &mut String, next: &str) -> bool {
    let trimmed = last.trim_end();
    let Some(stem) = trimmed.strip_suffix(['-', '\u{ad}', '\u{2010}']) else { return false };
    if !stem.ends_with(char::is_alphabetic) {
        return false;
    }
    let word = next.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    // "Vor- und Nachteile": the hyphen stands for a word left out.
    if matches!(word, "und" | "oder" | "bzw" | "sowie" | "and" | "or") {
        return false;
    }
    if next.starts_with(char::is_lowercase) {
        *last = stem.to_owned();
        return true;
    }
    next.starts_with(char::is_alphanumeric)
}
