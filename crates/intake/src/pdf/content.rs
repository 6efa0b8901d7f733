//! Runs the drawing instructions of a page as far as they place text. What comes out is one entry per character:
//! what it is, where it stands, how large it is, and whether a reader sees it.

use std::collections::BTreeMap;
use std::rc::Rc;

use hayro_syntax::content::TypedIter;
use hayro_syntax::content::ops::TypedInstruction as Op;
use hayro_syntax::object::{Array, Dict, Name, Number, Object, Stream};
use hayro_syntax::page::{Page, Resources};

use super::font::Font;
use crate::limits::Meter;
use crate::refusal::Refusal;

/// How deep drawings may be nested in drawings.
const FORMS_MAX: usize = 16;
/// How many states may be put aside.
const STATES_MAX: usize = 512;

/// A character on a page, in the units of the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glyph {
    pub(super) letter: char,
    pub(super) x: f32,
    /// Of the baseline.
    pub(super) y: f32,
    pub(super) width: f32,
    pub(super) size: f32,
    /// Direction of reading, (1, 0) for ordinary text on a page that is not turned.
    pub(super) along: (f32, f32),
    pub(super) is_visible: bool,
}

/// What a page draws.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) glyphs: Vec<Glyph>,
    pub(super) n_pictures: u32,
}

/// Fonts that were read, by the place of their dictionary in memory.
pub(super) type Fonts = BTreeMap<usize, Rc<Font>>;

/// An affine transformation, as PDF writes it.
type Matrix = [f32; 6];
const IDENTITY: Matrix = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// First `a`, then `b`.
fn then(a: Matrix, b: Matrix) -> Matrix {
    [
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
        a[4] * b[0] + a[5] * b[2] + b[4],
        a[4] * b[1] + a[5] * b[3] + b[5],
    ]
}

#[derive(Debug, Clone)]
struct State {
    page: Matrix,
    font: Option<Rc<Font>>,
    size: f32,
    letter_space: f32,
    word_space: f32,
    stretch: f32,
    leading: f32,
    rise: f32,
    mode: i64,
}

/// The characters of a page in the order in which they are drawn.
pub(super) fn drawn(page: &Page<'_>, fonts: &mut Fonts, meter: &mut Meter<'_>) -> Result<Drawn, Refusal> {
    let state = State {
        page: IDENTITY,
        font: None,
        size: 0.0,
        letter_space: 0.0,
        word_space: 0.0,
        stretch: 1.0,
        leading: 0.0,
        rise: 0.0,
        mode: 0,
    };
    let mut run = Run {
        drawn: Drawn::default(),
        fonts,
        state,
        text: IDENTITY,
        line: IDENTITY,
        aside: Vec::new(),
        marked: Vec::new(),
    };
    let content = page.page_stream().unwrap_or_default();
    run.content(content, page.resources(), 0, meter)?;
    Ok(run.drawn)
}

struct Run<'f> {
    drawn: Drawn,
    fonts: &'f mut Fonts,
    state: State,
    text: Matrix,
    line: Matrix,
    aside: Vec<State>,
    /// Whether each open marked part is furniture: page numbers, running titles.
    marked: Vec<bool>,
}

impl Run<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "`text` takes the others")]
    fn content(
        &mut self,
        content: &[u8],
        resources: &Resources<'_>,
        depth: usize,
        meter: &mut Meter<'_>,
    ) -> Result<(), Refusal> {
        meter.steps(content.len())?;
        let mut steps = TypedIter::new(content);
        while let Some(op) = steps.next() {
            meter.steps(1)?;
            match op {
                Op::SaveState(_) if self.aside.len() < STATES_MAX => self.aside.push(self.state.clone()),
                Op::RestoreState(_) => self.state = self.aside.pop().unwrap_or_else(|| self.state.clone()),
                Op::Transform(m) => {
                    let matrix = [m.0, m.1, m.2, m.3, m.4, m.5].map(|n| n.as_f32());
                    self.state.page = then(matrix, self.state.page);
                }
                Op::XObject(name) => {
                    if let Some(stream) = resources.get_x_object(name.0) {
                        self.object(&stream, resources, depth, meter)?;
                    }
                }
                Op::InlineImage(_) => self.drawn.n_pictures += 1,
                Op::TextFont(font) => {
                    self.state.size = font.1.as_f32();
                    self.state.font = match resources.get_font(font.0) {
                        Some(dict) => Some(self.font(&dict, meter)?),
                        None => None,
                    };
                }
                Op::BeginMarkedContent(tag) => self.mark(tag.0),
                Op::BeginMarkedContentWithProperties(tag) => self.mark(tag.0),
                Op::EndMarkedContent(_) => {
                    self.marked.pop();
                }
                op => self.text(op, meter)?,
            }
        }
        Ok(())
    }

    fn mark(&mut self, tag: &Name<'_>) {
        if self.marked.len() < STATES_MAX {
            self.marked.push(tag.as_ref() == b"Artifact");
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other sixty instructions place no text")]
    fn text(&mut self, op: Op<'_, '_>, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        match op {
            Op::BeginText(_) => (self.text, self.line) = (IDENTITY, IDENTITY),
            Op::CharacterSpacing(n) => self.state.letter_space = n.0.as_f32(),
            Op::WordSpacing(n) => self.state.word_space = n.0.as_f32(),
            Op::HorizontalScaling(n) => self.state.stretch = n.0.as_f32() / 100.0,
            Op::TextLeading(n) => self.state.leading = n.0.as_f32(),
            Op::TextRenderingMode(n) => self.state.mode = n.0.as_i64(),
            Op::TextRise(n) => self.state.rise = n.0.as_f32(),
            Op::NextLine(n) => self.next_line(n.0.as_f32(), n.1.as_f32()),
            Op::NextLineAndSetLeading(n) => {
                self.state.leading = -n.1.as_f32();
                self.next_line(n.0.as_f32(), n.1.as_f32());
            }
            Op::SetTextMatrix(m) => {
                self.line = [m.0, m.1, m.2, m.3, m.4, m.5].map(|n| n.as_f32());
                self.text = self.line;
            }
            Op::NextLineUsingLeading(_) => self.next_line(0.0, -self.state.leading),
            Op::ShowText(shown) => self.show(shown.0.as_bytes(), meter)?,
            Op::NextLineAndShowText(shown) => {
                self.next_line(0.0, -self.state.leading);
                self.show(shown.0.as_bytes(), meter)?;
            }
            Op::ShowTextWithParameters(shown) => {
                (self.state.word_space, self.state.letter_space) = (shown.0.as_f32(), shown.1.as_f32());
                self.next_line(0.0, -self.state.leading);
                self.show(shown.2.as_bytes(), meter)?;
            }
            Op::ShowTexts(parts) => self.show_all(parts.0, meter)?,
            _ => {}
        }
        Ok(())
    }

    fn show_all(&mut self, parts: &Array<'_>, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        for part in parts.iter::<Object<'_>>() {
            meter.steps(1)?;
            if let Object::String(shown) = part {
                self.show(shown.as_bytes(), meter)?;
            } else if let Object::Number(back) = part {
                self.advance(-back.as_f32() / 1000.0 * self.state.size * self.state.stretch);
            }
        }
        Ok(())
    }

    fn next_line(&mut self, x: f32, y: f32) {
        self.line = then([1.0, 0.0, 0.0, 1.0, x, y], self.line);
        self.text = self.line;
    }

    fn advance(&mut self, x: f32) {
        self.text = then([1.0, 0.0, 0.0, 1.0, x, 0.0], self.text);
    }

    fn show(&mut self, shown: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let Some(font) = self.state.font.clone() else { return Ok(()) };
        meter.steps(shown.len())?;
        for code in font.codes(shown) {
            let State { size, stretch, letter_space, word_space, rise, mode, .. } = self.state;
            let place = then([1.0, 0.0, 0.0, 1.0, 0.0, rise], then(self.text, self.state.page));
            let width = code.width * size * stretch;
            let along = (place[0], place[1]);
            let scale = along.0.hypot(along.1);
            let n_letters = code.text.chars().count();
            let each = width * scale / f32::from(u16::try_from(n_letters.max(1)).unwrap_or(1));
            if !self.marked.contains(&true) {
                let unit = if scale > 0.0 { (along.0 / scale, along.1 / scale) } else { (1.0, 0.0) };
                let (mut x, mut y) = (place[4], place[5]);
                for letter in code.text.chars() {
                    self.drawn.glyphs.push(Glyph {
                        letter,
                        x,
                        y,
                        width: each,
                        size: (size * place[2].hypot(place[3])).abs(),
                        along: unit,
                        // Mode 3 draws nothing, mode 7 only cuts out.
                        is_visible: !matches!(mode, 3 | 7),
                    });
                    x += each * unit.0;
                    y += each * unit.1;
                }
                meter.text(self.drawn.glyphs.len())?;
            }
            let space = if code.is_space { word_space } else { 0.0 };
            self.advance(width + (letter_space + space) * stretch);
        }
        Ok(())
    }

    fn font(&mut self, dict: &Dict<'_>, meter: &mut Meter<'_>) -> Result<Rc<Font>, Refusal> {
        let place = dict.data().as_ptr().addr();
        if let Some(font) = self.fonts.get(&place) {
            return Ok(Rc::clone(font));
        }
        let font = Rc::new(Font::read(dict, meter)?);
        self.fonts.insert(place, Rc::clone(&font));
        Ok(font)
    }

    fn object(
        &mut self,
        stream: &Stream<'_>,
        resources: &Resources<'_>,
        depth: usize,
        meter: &mut Meter<'_>,
    ) -> Result<(), Refusal> {
        let dict = stream.dict();
        let kind = dict.get::<Name<'_>>("Subtype");
        if kind.as_ref().is_some_and(|kind| kind.as_ref() == b"Image") {
            self.drawn.n_pictures += 1;
            return Ok(());
        }
        let is_form = kind.is_some_and(|kind| kind.as_ref() == b"Form");
        if !is_form || depth >= FORMS_MAX {
            return Ok(());
        }
        let Ok(content) = stream.decoded_data() else { return Ok(()) };
        let (state, text, line) = (self.state.clone(), self.text, self.line);
        let n_aside = self.aside.len();
        if let Some(matrix) = dict.get::<Array<'_>>("Matrix") {
            let mut numbers = matrix.iter::<Number>().map(|n| n.as_f32());
            let matrix = IDENTITY.map(|default| numbers.next().unwrap_or(default));
            self.state.page = then(matrix, self.state.page);
        }
        match dict.get::<Dict<'_>>("Resources") {
            Some(own) => self.content(&content, &Resources::new(own), depth + 1, meter)?,
            None => self.content(&content, resources, depth + 1, meter)?,
        }
        self.aside.truncate(n_aside);
        (self.state, self.text, self.line) = (state, text, line);
        Ok(())
    }
}
