//! What a paragraph is, as far as its style and its numbering say it: heading, list item, hidden. Numbers are
//! counted here, because Word writes none into the text.

use std::collections::BTreeMap;

use super::markup::{Step, attribute, is_on, local, walk};
use crate::limits::Meter;
use crate::refusal::Refusal;

/// A list and the level in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbering {
    pub(super) list: Option<u32>,
    pub(super) level: Option<u8>,
}

#[derive(Debug, Clone, Default)]
struct Style {
    parent: Option<String>,
    heading: Option<u8>,
    is_hidden: bool,
    numbering: Numbering,
}

/// The styles of a document.
#[derive(Debug, Default)]
pub(super) struct Styles(BTreeMap<String, Style>);

impl Styles {
    pub(super) fn read(xml: &str, meter: &mut Meter<'_>) -> Result<Self, Refusal> {
        let mut styles = BTreeMap::new();
        let mut open: Option<(String, Style)> = None;
        walk(xml, meter, |step, _| {
            match step {
                Step::Start(tag) => {
                    let name = local(&tag);
                    if name == "style" {
                        open = attribute(&tag, "styleId").map(|id| (id, Style::default()));
                    } else if let (Some((_, style)), value) = (&mut open, attribute(&tag, "val")) {
                        match (name.as_str(), value) {
                            ("basedOn", value) => style.parent = value,
                            ("name", Some(value)) => style.heading = style.heading.or(heading_of(&value)),
                            ("outlineLvl", Some(value)) => style.heading = outline(&value),
                            ("vanish", _) => style.is_hidden = is_on(&tag),
                            ("numId", Some(value)) => style.numbering.list = value.parse().ok(),
                            ("ilvl", Some(value)) => style.numbering.level = value.parse().ok(),
                            _ => {}
                        }
                    }
                }
                Step::End(name) if name == "style" => styles.extend(open.take()),
                Step::End(_) | Step::Text(_) => {}
            }
            Ok(())
        })?;
        Ok(Self(styles))
    }

    /// A style and what it is based on; the chain of a damaged file may be a ring.
    fn chain(&self, id: Option<&str>) -> impl Iterator<Item = &Style> {
        let first = id.and_then(|id| self.0.get(id));
        std::iter::successors(first, |style| style.parent.as_ref().and_then(|id| self.0.get(id))).take(16)
    }

    pub(super) fn heading(&self, id: Option<&str>) -> Option<u8> {
        self.chain(id).find_map(|style| style.heading).filter(|level| *level > 0)
    }

    pub(super) fn is_hidden(&self, id: Option<&str>) -> bool {
        self.chain(id).any(|style| style.is_hidden)
    }

    pub(super) fn numbering(&self, id: Option<&str>) -> Numbering {
        let list = self.chain(id).find_map(|style| style.numbering.list);
        Numbering { list, level: self.chain(id).find_map(|style| style.numbering.level) }
    }
}

/// The level that a built-in style's name says; the names are English in every language of Word.
fn heading_of(name: &str) -> Option<u8> {
    let name = name.to_ascii_lowercase();
    if name == "title" {
        return Some(1);
    }
    name.strip_prefix("heading ")?.parse().ok().map(|level: u8| level.clamp(1, 6))
}

/// An outline level is counted from zero; nine means none.
pub(super) fn outline(value: &str) -> Option<u8> {
    value.parse::<u8>().ok().map(|level| if level < 9 { (level + 1).min(6) } else { 0 })
}

#[derive(Debug, Clone, Default)]
struct Level {
    format: String,
    text: String,
    start: u32,
}

/// The lists of a document, and how far each has been counted.
#[derive(Debug, Default)]
pub(super) struct Lists {
    levels: BTreeMap<(u32, u8), Level>,
    lists: BTreeMap<u32, u32>,
    counts: BTreeMap<(u32, u8), u32>,
}

impl Lists {
    pub(super) fn read(xml: &str, meter: &mut Meter<'_>) -> Result<Self, Refusal> {
        let mut lists = Self::default();
        let (mut kind, mut level, mut list) = (0u32, 0u8, 0u32);
        walk(xml, meter, |step, _| {
            let Step::Start(tag) = step else { return Ok(()) };
            let number = |name: &str| attribute(&tag, name).and_then(|value| value.parse::<u32>().ok());
            let open = lists.levels.get_mut(&(kind, level));
            match (local(&tag).as_str(), open) {
                ("abstractNum", _) => kind = number("abstractNumId").unwrap_or(0),
                ("num", _) => list = number("numId").unwrap_or(0),
                ("abstractNumId", _) => {
                    lists.lists.insert(list, number("val").unwrap_or(0));
                }
                ("lvl", _) => {
                    level = number("ilvl").and_then(|level| u8::try_from(level).ok()).unwrap_or(0);
                    lists.levels.insert((kind, level), Level { start: 1, ..Level::default() });
                }
                ("start", Some(open)) => open.start = number("val").unwrap_or(1),
                ("numFmt", Some(open)) => open.format = attribute(&tag, "val").unwrap_or_default(),
                ("lvlText", Some(open)) => open.text = attribute(&tag, "val").unwrap_or_default(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(lists)
    }

    /// The number in front of the next paragraph of a list, as Word shows it; empty for a bullet.
    pub(super) fn next(&mut self, numbering: Numbering) -> String {
        let level = numbering.level.unwrap_or(0);
        let Some(kind) = numbering.list.and_then(|list| self.lists.get(&list)).copied() else {
            return String::new();
        };
        let start = |lists: &Self, level: u8| lists.levels.get(&(kind, level)).map_or(1, |level| level.start);
        let count =
            self.counts.get(&(kind, level)).map_or(start(self, level), |count| count.saturating_add(1));
        self.counts.insert((kind, level), count);
        // Counting starts again below.
        self.counts.retain(|(of, at), _| *of != kind || *at <= level);
        let Some(Level { format, text, .. }) = self.levels.get(&(kind, level)) else {
            return String::new();
        };
        if format == "bullet" || format == "none" {
            return String::new();
        }
        let mut label = text.clone();
        for at in 0..=level.min(8) {
            let count = self.counts.get(&(kind, at)).copied().unwrap_or(start(self, at));
            let format = self.levels.get(&(kind, at)).map_or("", |level| level.format.as_str());
            label = label.replace(&format!("%{}", at + 1), &counted(count, format));
        }
        label
    }
}

fn counted(count: u32, format: &str) -> String {
    let letter = |first: u8| {
        let at = u8::try_from(count.saturating_sub(1) % 26).unwrap_or(0);
        char::from(first + at).to_string()
    };
    match format {
        "lowerLetter" => letter(b'a'),
        "upperLetter" => letter(b'A'),
        "lowerRoman" => roman(count).to_lowercase(),
        "upperRoman" => roman(count),
        _ => count.to_string(),
    }
}

fn roman(count: u32) -> String {
    let signs = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if count > 3999 {
        return count.to_string();
    }
    let (mut rest, mut text) = (count, String::new());
    for (value, sign) in signs {
        while rest >= value {
            text.push_str(sign);
            rest -= value;
        }
    }
    text
}
