//! Characters become lines, lines become columns in reading order. A PDF only says where each character stands;
//! programs draw them in any order, so the order here comes from the places alone.

use super::content::Glyph;
use crate::document::BBox;
use crate::limits::Meter;
use crate::refusal::Refusal;

/// A line of text within one column.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) size: f32,
    /// Of the baseline.
    pub(super) y: f32,
    pub(super) bbox: BBox,
    /// Which column of the page, counted in reading order.
    pub(super) column: usize,
}

/// A gap of this many times the size of the letters is a space between words.
const SPACE: f32 = 0.17;
/// A gap of this many times the size of the letters separates columns or cells.
const GAP: f32 = 1.3;
/// Shorter pieces are cells of a table rather than lines of a column.
const PROSE_LETTERS: usize = 12;

/// How a page is turned when it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    Right,
    Around,
    Left,
}

impl Turn {
    /// From the units of the page to the way it is read.
    fn shown(self, (x, y): (f32, f32)) -> (f32, f32) {
        match self {
            Self::None => (x, y),
            Self::Right => (y, -x),
            Self::Around => (-x, -y),
            Self::Left => (-y, x),
        }
    }

    fn back(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Right => Self::Left,
            Self::Around => Self::Around,
            Self::Left => Self::Right,
        }
    }
}

/// A piece of a line without wide gaps.
#[derive(Debug, Clone)]
struct Segment {
    text: String,
    size: f32,
    x0: f32,
    x1: f32,
    y: f32,
}

/// The lines of a page in reading order.
pub(super) fn lines(glyphs: &[Glyph], turn: Turn, meter: &mut Meter<'_>) -> Result<Vec<Line>, Refusal> {
    // Sorting costs more than one look at each.
    meter.steps(glyphs.len().saturating_mul(16))?;
    let shown = glyphs.iter().map(|glyph| {
        let (x, y) = turn.shown((glyph.x, glyph.y));
        Glyph { x, y, along: turn.shown(glyph.along), ..*glyph }
    });
    let (upright, slanted): (Vec<Glyph>, Vec<Glyph>) = shown.partition(|glyph| glyph.along.0 > 0.99);
    let mut columns = Columns { lines: Vec::new(), n_columns: 0, turn };
    let rows = rows(upright);
    columns.read(&rows, 0, meter)?;
    columns.aside(&slanted);
    Ok(columns.lines)
}

/// Characters on one height, from the top, each row divided at wide gaps.
fn rows(mut glyphs: Vec<Glyph>) -> Vec<Vec<Segment>> {
    glyphs.sort_by(|a, b| b.y.total_cmp(&a.y));
    let mut rows: Vec<Vec<Glyph>> = Vec::new();
    let mut height = 0.0;
    for glyph in glyphs {
        // Raised and lowered numbers belong to the line they stand on.
        match rows.last_mut() {
            Some(row) if height - glyph.y <= 0.35 * glyph.size.max(4.0) => row.push(glyph),
            _ => {
                height = glyph.y;
                rows.push(vec![glyph]);
            }
        }
    }
    rows.into_iter().map(segments).filter(|row| !row.is_empty()).collect()
}

fn segments(mut row: Vec<Glyph>) -> Vec<Segment> {
    row.sort_by(|a, b| a.x.total_cmp(&b.x));
    let mut found: Vec<Segment> = Vec::new();
    let mut last: Option<Glyph> = None;
    for glyph in row {
        let size = glyph.size.max(1.0);
        let gap = last.map_or(f32::INFINITY, |last| glyph.x - (last.x + last.width));
        // The same letter drawn again next to itself only looks bolder.
        if last.is_some_and(|last| last.letter == glyph.letter && (glyph.x - last.x).abs() < 0.12 * size) {
            continue;
        }
        if glyph.letter.is_whitespace() {
            // A drawn space says nothing that the gap does not say; keeping none makes justified lines equal.
            if let Some(last) = &mut last
                && gap < GAP * size
            {
                found.last_mut().into_iter().for_each(|open| pad(&mut open.text));
                last.width = last.width.max(glyph.x + glyph.width - last.x);
            }
            continue;
        }
        match found.last_mut() {
            Some(open) if gap < GAP * size => {
                if gap > SPACE * size {
                    pad(&mut open.text);
                }
                open.text.push(glyph.letter);
                open.x1 = open.x1.max(glyph.x + glyph.width);
                open.size = open.size.max(glyph.size);
            }
            _ => found.push(Segment {
                text: glyph.letter.to_string(),
                size: glyph.size,
                x0: glyph.x,
                x1: glyph.x + glyph.width,
                y: glyph.y,
            }),
        }
        last = Some(glyph);
    }
    found
}

fn pad(text: &mut String) {
    if !text.ends_with(' ') {
        text.push(' ');
    }
}

struct Columns {
    lines: Vec<Line>,
    n_columns: usize,
    turn: Turn,
}

impl Columns {
    /// Takes rows from the top as long as one gutter runs through them; without one, each row is a line.
    fn read(&mut self, rows: &[Vec<Segment>], depth: usize, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let mut rest = rows;
        let mut in_one = false;
        while let Some(row) = rest.first() {
            let (n_rows, gutter) = if depth < 6 { gutter(rest, meter)? } else { (0, 0.0) };
            let (Some(taken), true) = (rest.get(..n_rows), n_rows > 0) else {
                if !in_one {
                    self.n_columns += 1;
                }
                in_one = true;
                self.line(row);
                rest = rest.get(1..).unwrap_or_default();
                continue;
            };
            in_one = false;
            let side = |is_left: bool| -> Vec<Vec<Segment>> {
                let of_row = |row: &Vec<Segment>| -> Vec<Segment> {
                    row.iter().filter(|piece| (piece.x0 < gutter) == is_left).cloned().collect()
                };
                taken.iter().map(of_row).filter(|row| !row.is_empty()).collect()
            };
            self.read(&side(true), depth + 1, meter)?;
            self.read(&side(false), depth + 1, meter)?;
            rest = rest.get(n_rows..).unwrap_or_default();
        }
        Ok(())
    }

    fn line(&mut self, row: &[Segment]) {
        let (Some(first), Some(last)) = (row.first(), row.last()) else { return };
        let size = row.iter().map(|piece| piece.size).fold(0.0, f32::max);
        // Pieces far apart in one row are cells.
        let text = row.iter().map(|piece| piece.text.trim()).collect::<Vec<_>>().join(" | ");
        let y = row.iter().map(|piece| piece.y).fold(first.y, f32::min);
        let x1 = row.iter().map(|piece| piece.x1).fold(last.x1, f32::max);
        let corners = [(first.x0, y - 0.22 * size), (x1, first.y + 0.78 * size)];
        let bbox = bbox(corners.map(|corner| self.turn.back().shown(corner)));
        self.lines.push(Line { text, size, y: first.y, bbox, column: self.n_columns });
    }

    /// Text at an angle, in the order in which it was drawn: stamps and notes on the margin.
    fn aside(&mut self, glyphs: &[Glyph]) {
        for run in glyphs.chunk_by(|a, b| {
            a.along == b.along && (b.x - a.x).hypot(b.y - a.y) < a.width + GAP * a.size.max(1.0)
        }) {
            let Some(first) = run.first() else { continue };
            let mut text = String::new();
            let mut last: Option<&Glyph> = None;
            for glyph in run {
                let moved = last.map_or(0.0, |last| (glyph.x - last.x).hypot(glyph.y - last.y) - last.width);
                if moved > SPACE * glyph.size {
                    pad(&mut text);
                }
                text.push(glyph.letter);
                last = Some(glyph);
            }
            let corners =
                [first, last.unwrap_or(first)].map(|glyph| self.turn.back().shown((glyph.x, glyph.y)));
            self.n_columns += 1;
            let (size, bbox) = (first.size, bbox(corners));
            let line = Line { text, size, y: first.y, bbox, column: self.n_columns };
            self.lines.push(line);
        }
    }
}

/// How many rows from the top are set in columns, and where the gutter is: a strip that no piece touches, with
/// lines of prose on both sides. Cells of a table are too short for that.
fn gutter(rows: &[Vec<Segment>], meter: &mut Meter<'_>) -> Result<(usize, f32), Refusal> {
    // Only a row with two pieces or more can begin it, but a shorter row may stand above.
    let Some(first) = rows.iter().take(4).find(|row| row.len() > 1) else { return Ok((0, 0.0)) };
    let mut best = (0, 0.0);
    for pair in first.windows(2) {
        let [left, right] = pair else { continue };
        let (mut from, mut to) = (left.x1, right.x0);
        let (mut n_left, mut n_right, mut n_short, mut n_rows) = (0usize, 0usize, 0usize, 0usize);
        for row in rows {
            meter.steps(row.len())?;
            let (mut new_from, mut new_to) = (from, to);
            for piece in row {
                // A shorter line above leaves more room than the column does; what begins left of the strip only
                // narrows it. A piece that begins left and ends right of it, such as a title, ends the columns.
                match (piece.x0 < from, piece.x1 > to) {
                    (true, true) => new_to = f32::NEG_INFINITY,
                    (true, false) => new_from = new_from.max(piece.x1),
                    (false, true) => new_to = new_to.min(piece.x0),
                    (false, false) if piece.x0 + piece.x1 < from + to => new_from = new_from.max(piece.x1),
                    (false, false) => new_to = new_to.min(piece.x0),
                }
            }
            let size = row.iter().map(|piece| piece.size).fold(1.0, f32::max);
            if new_to - new_from < 0.8 * size {
                break;
            }
            (from, to) = (new_from, new_to);
            n_rows += 1;
            n_left += usize::from(row.iter().any(|piece| piece.x1 <= from));
            n_right += usize::from(row.iter().any(|piece| piece.x0 >= to));
            n_short += usize::from(row.iter().any(|piece| piece.text.chars().count() < PROSE_LETTERS));
        }
        let is_prose = n_short * 3 <= n_rows;
        if n_left >= 2 && n_right >= 2 && is_prose && n_rows > best.0 {
            best = (n_rows, (from + to) / 2.0);
        }
    }
    Ok(best)
}

fn bbox(corners: [(f32, f32); 2]) -> BBox {
    let [a, b] = corners;
    BBox {
        x0: hundredths(a.0.min(b.0)),
        y0: hundredths(a.1.min(b.1)),
        x1: hundredths(a.0.max(b.0)),
        y1: hundredths(a.1.max(b.1)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is no number or too large becomes the nearest bound"
)]
pub(super) fn hundredths(points: f32) -> i32 {
    (points * 100.0).round() as i32
}
