//! Bytes become characters. UTF-8 and UTF-16 are recognised by their mark or by their form; what is neither is
//! read as Windows-1252 if it can be. Guessing further would put wrong letters into answers, so it is refused.

use crate::refusal::Refusal;

/// Windows-1252, 0x80 to 0x9F. Zero: not a character.
const WINDOWS_1252: [u16; 32] = [
    0x20ac, 0, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,
    0x017d, 0, 0, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a,
    0x0153, 0, 0x017e, 0x0178,
];

/// The text of a file without any statement about its encoding.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, Refusal> {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return utf8(rest);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xff\xfe") {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xfe\xff") {
        return utf16(rest, u16::from_be_bytes);
    }
    match zeros(bytes) {
        Zeros::None => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) if is_damaged_utf8(bytes) => Err(Refusal::WrongEncoding),
            Err(_) => windows_1252(bytes),
        },
        Zeros::Odd => utf16(bytes, u16::from_le_bytes),
        Zeros::Even => utf16(bytes, u16::from_be_bytes),
        Zeros::Mixed => Err(Refusal::WrongEncoding),
    }
}

/// The text of a page, which may name its encoding in its first 1,024 bytes.
pub(crate) fn decode_html(bytes: &[u8]) -> Result<String, Refusal> {
    let head = bytes.get(..1024).unwrap_or(bytes);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let named = head.split("charset=").nth(1).map(|rest| {
        let rest = rest.trim_start_matches(['"', '\'', ' ']);
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
            .next()
            .unwrap_or_default()
    });
    match named {
        // The encoding standard reads Latin-1 and ASCII as Windows-1252 too.
        Some("iso-8859-1" | "latin1" | "windows-1252" | "cp1252" | "us-ascii" | "ascii")
            if !bytes.starts_with(b"\xef\xbb\xbf") =>
        {
            windows_1252(bytes)
        }
        None
        | Some(
            "utf-8" | "utf8" | "utf-16" | "iso-8859-1" | "latin1" | "windows-1252" | "cp1252" | "us-ascii"
            | "ascii" | "",
        ) => decode(bytes),
        Some(_) if bytes.is_ascii() => decode(bytes),
        Some(_) => Err(Refusal::WrongEncoding),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, Refusal> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Refusal::WrongEncoding)
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Refusal> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Refusal::WrongEncoding);
    }
    let units = pairs.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| Refusal::WrongEncoding)
}

fn windows_1252(bytes: &[u8]) -> Result<String, Refusal> {
    bytes.iter().map(|byte| letter(*byte).ok_or(Refusal::WrongEncoding)).collect()
}

/// The character of a byte in Windows-1252. Control bytes other than white space are a sign of binary data.
pub(crate) fn letter(byte: u8) -> Option<char> {
    match byte {
        b'\t' | b'\n' | b'\r' | 0x0c | 0x20..=0x7e | 0xa0..=0xff => Some(char::from(byte)),
        0x80..=0x9f => {
            let code = *WINDOWS_1252.get(usize::from(byte - 0x80))?;
            char::from_u32(u32::from(code)).filter(|c| *c != '\0')
        }
        _ => None,
    }
}

enum Zeros {
    None,
    Odd,
    Even,
    Mixed,
}

/// Where NUL bytes stand. In UTF-16 most letters of European languages have one, always on the same side.
fn zeros(bytes: &[u8]) -> Zeros {
    let (pairs, _) = bytes.as_chunks::<2>();
    let n_even = pairs.iter().filter(|pair| pair[0] == 0).count();
    let n_odd = pairs.iter().filter(|pair| pair[1] == 0).count();
    let many = |n: usize| n * 3 >= pairs.len() && n >= 4;
    match (n_even, n_odd) {
        (0, 0) if bytes.last() != Some(&0) => Zeros::None,
        (even, odd) if many(odd) && even * 50 <= odd => Zeros::Odd,
        (even, odd) if many(even) && odd * 50 <= even => Zeros::Even,
        _ => Zeros::Mixed,
    }
}

/// Whether the bytes were UTF-8 before somebody damaged them: more sequences are right than wrong. Reading
/// them as Windows-1252 would turn every umlaut into two wrong letters.
fn is_damaged_utf8(bytes: &[u8]) -> bool {
    let (mut n_right, mut n_wrong) = (0usize, 0usize);
    for part in bytes.utf8_chunks() {
        n_right += part.valid().chars().filter(|c| !c.is_ascii()).count();
        n_wrong += usize::from(!part.invalid().is_empty());
    }
    n_right > n_wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "Prüfung der Straße – 100 €";

    #[test]
    fn umlauts_survive_every_encoding() {
        let utf16 = |mark: &[u8], f: fn(u16) -> [u8; 2]| {
            [mark, &WORDS.encode_utf16().flat_map(f).collect::<Vec<_>>()].concat()
        };
        let latin: Vec<u8> = b"Pr\xfcfung der Stra\xdfe \x96 100 \x80".to_vec();
        let forms = [
            WORDS.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", WORDS.as_bytes()].concat(),
            utf16(b"\xff\xfe", u16::to_le_bytes),
            utf16(b"\xfe\xff", u16::to_be_bytes),
            utf16(b"", u16::to_le_bytes),
            utf16(b"", u16::to_be_bytes),
            latin.clone(),
        ];
        for form in forms {
            assert_eq!(decode(&form).as_deref(), Ok(WORDS));
        }
        let page = [b"<meta charset=\"ISO-8859-1\">".as_slice(), &latin].concat();
        assert!(decode_html(&page).unwrap().ends_with(WORDS));
    }

    #[test]
    fn wrong_letters_are_refused_rather_than_guessed() {
        let mut cut = "Prüfung ü ö ä ß".as_bytes().to_vec();
        cut.truncate(cut.len() - 1);
        assert_eq!(decode(&cut), Err(Refusal::WrongEncoding));
        assert_eq!(decode(b"a\x00b\x01\x02\xff"), Err(Refusal::WrongEncoding));
        assert_eq!(decode(b"\xff\xfea"), Err(Refusal::WrongEncoding));
        assert_eq!(decode(b"\x81\x8d"), Err(Refusal::WrongEncoding));
        let page = b"<meta charset=koi8-r><p>\xf0\xd2\xc9";
        assert_eq!(decode_html(page), Err(Refusal::WrongEncoding));
    }
}
