//! What codes and glyph names of fonts mean, and how wide the letters of the standard fonts are. The tables are
//! those of the PDF reference, appendix D, and of the standard fonts' published metrics.

use unicode_normalization::UnicodeNormalization;

use crate::encoding;

/// An encoding that a font may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Standard,
    WinAnsi,
    MacRoman,
}

impl Encoding {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"StandardEncoding" => Some(Self::Standard),
            b"WinAnsiEncoding" => Some(Self::WinAnsi),
            b"MacRomanEncoding" => Some(Self::MacRoman),
            _ => None,
        }
    }

    pub(super) fn letter(self, code: u8) -> Option<char> {
        let high = |row: &str, first: u8| {
            let at = usize::from(code.checked_sub(first)?);
            row.chars().nth(at).filter(|c| *c != char::REPLACEMENT_CHARACTER)
        };
        match self {
            Self::WinAnsi => encoding::letter(code).or((code > 0x7f).then_some('•')),
            Self::Standard if code == b'\'' => Some('’'),
            Self::Standard if code == b'`' => Some('‘'),
            _ if code < 0x80 => encoding::letter(code),
            Self::MacRoman => high(MAC_ROMAN, 0x80),
            Self::Standard => high(STANDARD, 0xa0),
        }
    }
}

/// Mac OS Roman from 0x80.
const MAC_ROMAN: &str = "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü†°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø¿¡¬√ƒ≈∆«»… ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄€‹›ﬁﬂ‡·‚„‰ÂÊÁËÈÍÎÏÌÓÔ�ÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ";

/// Adobe's standard encoding from 0xA0.
const STANDARD: &str =
    "�¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ�–†‡·�¶•‚„”»…‰�¿�`´ˆ˜¯˘˙¨�˚¸�˝˛ˇ—����������������Æ�ª����ŁØŒº�����æ���ı��łøœß����";

/// What a glyph of that name looks like.
pub(super) fn text_of(name: &str) -> Option<String> {
    let name = name.split('.').next().filter(|name| !name.is_empty())?;
    if name.contains('_') {
        // A ligature is named by its parts.
        return name.split('_').map(text_of).collect();
    }
    if name.len() == 1 {
        return name.chars().next().filter(char::is_ascii_alphabetic).map(String::from);
    }
    if let Ok(at) = NAMES.binary_search_by(|(known, _)| (*known).cmp(name)) {
        return NAMES.get(at).map(|(_, text)| (*text).to_owned());
    }
    let hex = name.strip_prefix("uni").filter(|hex| hex.len() == 4);
    let hex = hex.or_else(|| name.strip_prefix('u').filter(|hex| (4..=6).contains(&hex.len())));
    if let Some(c) = hex.and_then(|hex| char::from_u32(u32::from_str_radix(hex, 16).ok()?)) {
        return Some(c.to_string());
    }
    // A letter with an accent: `ccaron`, `Adieresis`.
    let base = name.chars().next().filter(char::is_ascii_alphabetic)?;
    let accent = name.get(1..)?;
    let (_, mark) = ACCENTS.iter().find(|(known, _)| *known == accent)?;
    Some([base, *mark].into_iter().nfc().collect())
}

const ACCENTS: [(&str, char); 13] = [
    ("acute", '\u{301}'),
    ("breve", '\u{306}'),
    ("caron", '\u{30c}'),
    ("cedilla", '\u{327}'),
    ("circumflex", '\u{302}'),
    ("commaaccent", '\u{326}'),
    ("dieresis", '\u{308}'),
    ("dotaccent", '\u{307}'),
    ("grave", '\u{300}'),
    ("hungarumlaut", '\u{30b}'),
    ("macron", '\u{304}'),
    ("ogonek", '\u{328}'),
    ("ring", '\u{30a}'),
];

/// Names of glyphs that say more than a letter and an accent. Sorted.
const NAMES: &[(&str, &str)] = &[
    ("AE", "Æ"),
    ("Eth", "Ð"),
    ("Euro", "€"),
    ("Lslash", "Ł"),
    ("OE", "Œ"),
    ("Oslash", "Ø"),
    ("Thorn", "Þ"),
    ("acute", "´"),
    ("ae", "æ"),
    ("ampersand", "&"),
    ("anoteleia", "·"),
    ("asciicircum", "^"),
    ("asciitilde", "~"),
    ("asterisk", "*"),
    ("at", "@"),
    ("backslash", "\\"),
    ("bar", "|"),
    ("braceleft", "{"),
    ("braceright", "}"),
    ("bracketleft", "["),
    ("bracketright", "]"),
    ("breve", "˘"),
    ("brokenbar", "¦"),
    ("bullet", "•"),
    ("caron", "ˇ"),
    ("cedilla", "¸"),
    ("cent", "¢"),
    ("circumflex", "ˆ"),
    ("colon", ":"),
    ("comma", ","),
    ("copyright", "©"),
    ("currency", "¤"),
    ("dagger", "†"),
    ("daggerdbl", "‡"),
    ("degree", "°"),
    ("dieresis", "¨"),
    ("divide", "÷"),
    ("dollar", "$"),
    ("dotaccent", "˙"),
    ("dotlessi", "ı"),
    ("eight", "8"),
    ("ell", "ℓ"),
    ("ellipsis", "…"),
    ("emdash", "—"),
    ("endash", "–"),
    ("equal", "="),
    ("eth", "ð"),
    ("exclam", "!"),
    ("exclamdown", "¡"),
    ("ff", "ff"),
    ("ffi", "ffi"),
    ("ffl", "ffl"),
    ("fi", "fi"),
    ("five", "5"),
    ("fl", "fl"),
    ("florin", "ƒ"),
    ("four", "4"),
    ("fraction", "⁄"),
    ("germandbls", "ß"),
    ("grave", "`"),
    ("greater", ">"),
    ("guillemotleft", "«"),
    ("guillemotright", "»"),
    ("guilsinglleft", "‹"),
    ("guilsinglright", "›"),
    ("hungarumlaut", "˝"),
    ("hyphen", "-"),
    ("less", "<"),
    ("logicalnot", "¬"),
    ("lslash", "ł"),
    ("macron", "¯"),
    ("middot", "·"),
    ("minus", "−"),
    ("mu", "µ"),
    ("multiply", "×"),
    ("nbspace", " "),
    ("nine", "9"),
    ("numbersign", "#"),
    ("oe", "œ"),
    ("ogonek", "˛"),
    ("one", "1"),
    ("onehalf", "½"),
    ("onequarter", "¼"),
    ("onesuperior", "¹"),
    ("ordfeminine", "ª"),
    ("ordmasculine", "º"),
    ("oslash", "ø"),
    ("paragraph", "¶"),
    ("parenleft", "("),
    ("parenright", ")"),
    ("percent", "%"),
    ("period", "."),
    ("periodcentered", "·"),
    ("perthousand", "‰"),
    ("plus", "+"),
    ("plusminus", "±"),
    ("question", "?"),
    ("questiondown", "¿"),
    ("quotedbl", "\""),
    ("quotedblbase", "„"),
    ("quotedblleft", "“"),
    ("quotedblright", "”"),
    ("quoteleft", "‘"),
    ("quoteright", "’"),
    ("quotesinglbase", "‚"),
    ("quotesingle", "'"),
    ("registered", "®"),
    ("ring", "˚"),
    ("section", "§"),
    ("semicolon", ";"),
    ("seven", "7"),
    ("sfthyphen", "-"),
    ("six", "6"),
    ("slash", "/"),
    ("space", " "),
    ("sterling", "£"),
    ("thorn", "þ"),
    ("three", "3"),
    ("threequarters", "¾"),
    ("threesuperior", "³"),
    ("tilde", "˜"),
    ("trademark", "™"),
    ("two", "2"),
    ("twosuperior", "²"),
    ("underscore", "_"),
    ("yen", "¥"),
    ("zero", "0"),
];

/// The width of a letter in a standard font, in thousandths of its size; accents make no letter wider.
pub(super) fn standard_width(font: &str, letter: char) -> f32 {
    let font = font.to_ascii_lowercase();
    if font.contains("courier") || font.contains("mono") {
        return 600.0;
    }
    let is_bold = font.contains("bold");
    let is_serif = ["times", "serif", "roman", "georgia", "garamond"].iter().any(|name| font.contains(name))
        && !font.contains("sans");
    let widths = match (is_serif, is_bold) {
        (false, false) => &SANS,
        (false, true) => &SANS_BOLD,
        (true, false) => &SERIF,
        (true, true) => &SERIF_BOLD,
    };
    let base = letter.nfd().next().unwrap_or(letter);
    let at = usize::try_from(u32::from(base).wrapping_sub(32)).ok();
    at.and_then(|at| widths.get(at)).map_or(556.0, |width| f32::from(*width))
}

/// Helvetica and its slanted form.
const SANS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];
/// Helvetica Bold.
const SANS_BOLD: [u16; 95] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
];
/// Times, and near enough its italics.
const SERIF: [u16; 95] = [
    250, 333, 408, 500, 500, 833, 778, 180, 333, 333, 500, 564, 250, 333, 250, 278, 500, 500, 500, 500, 500,
    500, 500, 500, 500, 500, 278, 278, 564, 564, 564, 444, 921, 722, 667, 667, 722, 611, 556, 722, 722, 333,
    389, 722, 611, 889, 722, 722, 556, 722, 667, 556, 611, 722, 722, 944, 722, 722, 611, 333, 278, 333, 469,
    500, 333, 444, 500, 444, 500, 444, 333, 500, 500, 278, 278, 500, 278, 778, 500, 500, 500, 500, 333, 389,
    278, 500, 500, 722, 500, 500, 444, 480, 200, 480, 541,
];
/// Times Bold.
const SERIF_BOLD: [u16; 95] = [
    250, 333, 555, 500, 500, 1000, 833, 278, 333, 333, 500, 570, 250, 333, 250, 278, 500, 500, 500, 500, 500,
    500, 500, 500, 500, 500, 333, 333, 570, 570, 570, 500, 930, 722, 667, 722, 722, 667, 611, 778, 778, 389,
    500, 778, 667, 944, 722, 778, 611, 778, 722, 556, 667, 722, 722, 1000, 722, 722, 667, 333, 278, 333, 581,
    500, 333, 500, 556, 444, 556, 444, 333, 500, 556, 278, 333, 556, 278, 833, 556, 500, 556, 556, 444, 389,
    333, 556, 500, 722, 500, 500, 444, 394, 220, 394, 520,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_glyphs_become_letters() {
        assert!(NAMES.is_sorted());
        let read =
            ["adieresis", "germandbls", "Euro", "ccaron", "uni00FC", "u20AC", "f_f_i", "a.sc", "endash", "x"];
        let letters: Vec<_> = read.iter().map(|name| text_of(name).unwrap()).collect();
        assert_eq!(letters, ["ä", "ß", "€", "č", "ü", "€", "ffi", "a", "–", "x"]);
        assert_eq!([text_of("g123"), text_of(".notdef"), text_of("")], [None, None, None]);
    }

    #[test]
    fn encodings_know_umlauts() {
        assert_eq!(Encoding::WinAnsi.letter(0xfc), Some('ü'));
        assert_eq!(Encoding::WinAnsi.letter(0x96), Some('–'));
        assert_eq!(Encoding::MacRoman.letter(0x9f), Some('ü'));
        assert_eq!(Encoding::Standard.letter(0xfb), Some('ß'));
        assert_eq!(Encoding::Standard.letter(0xa0), None);
    }
}
