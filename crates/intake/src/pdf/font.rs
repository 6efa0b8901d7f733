//! What the codes of a font mean and how far each moves on. A character comes from the font's own table of
//! Unicode values, else from its encoding; where neither names one, it stays unknown and is counted.

use std::collections::BTreeMap;

use hayro_cmap::{BfString, CMap};
use hayro_syntax::object::{Array, Dict, Name, Number, Object, Stream};

use super::glyphs::{Encoding, standard_width, text_of};
use crate::limits::Meter;
use crate::refusal::Refusal;

/// What stands for a character that no table names.
pub(super) const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// One code of a shown string.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) text: String,
    /// In units of the font's size.
    pub(super) width: f32,
    /// Whether the width of words applies.
    pub(super) is_space: bool,
}

#[derive(Debug)]
pub(super) struct Font {
    to_unicode: Option<CMap>,
    widths: BTreeMap<u32, f32>,
    width_default: Option<f32>,
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// One byte per character.
    Simple { letters: BTreeMap<u8, String>, base: Option<Encoding> },
    /// Two bytes per character.
    Composite { cids: Option<Box<CMap>>, is_unicode: bool },
}

impl Font {
    pub(super) fn read(dict: &Dict<'_>, meter: &mut Meter<'_>) -> Result<Self, Refusal> {
        meter.steps(dict.data().len())?;
        let to_unicode = match dict.get::<Stream<'_>>("ToUnicode") {
            Some(stream) => table(&stream, meter)?,
            None => None,
        };
        let name = text(dict.get::<Name<'_>>("BaseFont").as_deref().unwrap_or_default());
        let mut font = Self {
            to_unicode,
            widths: BTreeMap::new(),
            width_default: None,
            name,
            kind: Kind::Composite { cids: None, is_unicode: false },
        };
        if dict.get::<Name<'_>>("Subtype").is_some_and(|kind| kind.as_ref() == b"Type0") {
            font.composite(dict, meter)?;
        } else {
            font.simple(dict, meter)?;
        }
        Ok(font)
    }

    fn simple(&mut self, dict: &Dict<'_>, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let kind = dict.get::<Name<'_>>("Subtype");
        let is_true_type = kind.as_ref().is_some_and(|kind| kind.as_ref() == b"TrueType");
        let is_symbol = ["Symbol", "Dingbats"].iter().any(|name| self.name.contains(name));
        let mut base = if is_true_type { Some(Encoding::WinAnsi) } else { Some(Encoding::Standard) };
        let mut letters = BTreeMap::new();
        match dict.get::<Object<'_>>("Encoding") {
            Some(Object::Name(name)) => base = Encoding::of(&name).or(base),
            Some(Object::Dict(encoding)) => {
                base = encoding.get::<Name<'_>>("BaseEncoding").and_then(|name| Encoding::of(&name)).or(base);
                if let Some(differences) = encoding.get::<Array<'_>>("Differences") {
                    letters = named(&differences, meter)?;
                }
            }
            _ if is_symbol => base = None,
            _ => {}
        }
        // The letters of a drawn font have a size of their own.
        let unit = dict.get::<Array<'_>>("FontMatrix").and_then(|matrix| matrix.iter::<Number>().next());
        let unit = unit.map_or(0.001, |unit| unit.as_f32());
        let first = dict.get::<Number>("FirstChar").and_then(|first| u32::try_from(first.as_i64()).ok());
        if let (Some(first), Some(widths)) = (first, dict.get::<Array<'_>>("Widths")) {
            for (code, width) in (first..256).zip(widths.iter::<Number>()) {
                self.widths.insert(code, width.as_f32() * unit);
            }
        }
        let descriptor = dict.get::<Dict<'_>>("FontDescriptor");
        let missing = descriptor.and_then(|descriptor| descriptor.get::<Number>("MissingWidth"));
        self.width_default = missing.filter(|_| !self.widths.is_empty()).map(|width| width.as_f32() * unit);
        self.kind = Kind::Simple { letters, base };
        Ok(())
    }

    fn composite(&mut self, dict: &Dict<'_>, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let (mut cids, mut is_unicode) = (None, false);
        match dict.get::<Object<'_>>("Encoding") {
            Some(Object::Stream(stream)) => cids = table(&stream, meter)?.map(Box::new),
            // These encodings are Unicode themselves.
            Some(Object::Name(name)) => is_unicode = name.starts_with(b"Uni"),
            _ => {}
        }
        self.kind = Kind::Composite { cids, is_unicode };
        let below =
            dict.get::<Array<'_>>("DescendantFonts").and_then(|fonts| fonts.iter::<Dict<'_>>().next());
        let Some(below) = below else { return Ok(()) };
        let default = below.get::<Number>("DW").map_or(1000.0, |width| width.as_f32());
        self.width_default = Some(default / 1000.0);
        let Some(widths) = below.get::<Array<'_>>("W") else { return Ok(()) };
        let mut open: Vec<u32> = Vec::new();
        for item in widths.iter::<Object<'_>>() {
            meter.steps(1)?;
            match (item, open.as_slice()) {
                (Object::Array(each), [first]) => {
                    for (cid, width) in (*first..=0xffff).zip(each.iter::<Number>()) {
                        meter.steps(1)?;
                        self.widths.insert(cid, width.as_f32() / 1000.0);
                    }
                    open.clear();
                }
                (Object::Number(width), [first, last]) => {
                    for cid in *first..=(*last).min(0xffff) {
                        meter.steps(1)?;
                        self.widths.insert(cid, width.as_f32() / 1000.0);
                    }
                    open.clear();
                }
                (Object::Number(number), _) => open.push(u32::try_from(number.as_i64()).unwrap_or(0)),
                _ => open.clear(),
            }
        }
        Ok(())
    }

    /// The codes of a shown string.
    pub(super) fn codes(&self, shown: &[u8]) -> Vec<Code> {
        match &self.kind {
            Kind::Simple { letters, base } => {
                shown.iter().map(|byte| self.letter(*byte, letters, *base)).collect()
            }
            Kind::Composite { cids, is_unicode } => {
                let (pairs, _) = shown.as_chunks::<2>();
                let codes = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
                codes.map(|code| self.wide(u32::from(code), cids.as_deref(), *is_unicode)).collect()
            }
        }
    }

    fn letter(&self, byte: u8, letters: &BTreeMap<u8, String>, base: Option<Encoding>) -> Code {
        let code = u32::from(byte);
        let text = self.unicode(code).or_else(|| letters.get(&byte).cloned());
        let text = text.or_else(|| base.and_then(|base| base.letter(byte)).map(String::from));
        let text = text.unwrap_or_else(|| UNKNOWN.to_string());
        let width = self.widths.get(&code).copied().or(self.width_default);
        let width = width.unwrap_or_else(|| {
            let letter = text.chars().next().unwrap_or(' ');
            standard_width(&self.name, letter) / 1000.0
        });
        Code { text, width, is_space: byte == b' ' }
    }

    fn wide(&self, code: u32, cids: Option<&CMap>, is_unicode: bool) -> Code {
        let text = self.unicode(code);
        let text = text.or_else(|| char::from_u32(code).filter(|_| is_unicode).map(String::from));
        let cid = cids.and_then(|cids| cids.lookup_cid_code(code, 2)).unwrap_or(code);
        let width = self.widths.get(&cid).copied().or(self.width_default).unwrap_or(1.0);
        Code { text: text.unwrap_or_else(|| UNKNOWN.to_string()), width, is_space: false }
    }

    fn unicode(&self, code: u32) -> Option<String> {
        let text = match self.to_unicode.as_ref()?.lookup_bf_string(code)? {
            BfString::Char(c) => symbol(c).to_string(),
            BfString::String(text) => text,
        };
        Some(text).filter(|text| !text.is_empty() && !text.contains('\0'))
    }
}

/// Office programs put bullets into the private area where old symbol fonts had them.
fn symbol(c: char) -> char {
    match c {
        '\u{f0b7}' | '\u{f06c}' | '\u{f09f}' => '•',
        '\u{f0a7}' | '\u{f06e}' => '▪',
        '\u{f02d}' => '–',
        c => c,
    }
}

fn table(stream: &Stream<'_>, meter: &mut Meter<'_>) -> Result<Option<CMap>, Refusal> {
    let Ok(data) = stream.decoded_data() else { return Ok(None) };
    meter.steps(data.len().saturating_mul(4))?;
    Ok(CMap::parse(&data, |_| None))
}

/// Names of glyphs by code: a number sets the code, each name counts on.
fn named(differences: &Array<'_>, meter: &mut Meter<'_>) -> Result<BTreeMap<u8, String>, Refusal> {
    let mut letters = BTreeMap::new();
    let mut code = 0u8;
    for item in differences.iter::<Object<'_>>() {
        meter.steps(1)?;
        if let Object::Number(number) = item {
            code = u8::try_from(number.as_i64()).unwrap_or(0);
        } else if let Object::Name(name) = item {
            letters.extend(text_of(&text(&name)).map(|letter| (code, letter)));
            code = code.wrapping_add(1);
        }
    }
    Ok(letters)
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
