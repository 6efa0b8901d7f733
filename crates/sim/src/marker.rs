//! Unique words. Every text, name and pointer of a run holds one that belongs to one owner, so that a leak is
//! visible as text wherever it comes out: in an answer, an error, a name, a file.

use std::collections::BTreeSet;

/// Which text it was.
pub(crate) type Serial = u32;

const START: &str = "zq";
/// None of them occurs in an id (base 32) and `zq` does not occur in a hash (base 16).
const DIGITS: [char; 4] = ['0', '1', '8', '9'];
const LENGTH: u32 = 8;

/// The word of a text.
pub(crate) fn word(serial: Serial) -> String {
    let digit = |place: u32| {
        let at = usize::try_from((serial >> (2 * place)) & 3).unwrap_or(0);
        DIGITS.get(at).copied().unwrap_or('0')
    };
    std::iter::once(START.to_owned()).chain((0..LENGTH).map(|place| digit(place).to_string())).collect()
}

/// All words in a text.
pub(crate) fn words_in(text: &str) -> BTreeSet<Serial> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(START) {
        let digits: Vec<char> = text.get(at + START.len()..).unwrap_or_default().chars().take(8).collect();
        let values: Option<Vec<u32>> = digits.iter().map(|c| value(*c)).collect();
        if let Some(values) = values.filter(|values| values.len() == 8) {
            found.insert(
                (0_u32..).zip(values).fold(0, |serial, (place, digit)| serial | (digit << (2 * place))),
            );
        }
    }
    found
}

fn value(digit: char) -> Option<u32> {
    (0_u32..).zip(DIGITS).find(|(_, known)| *known == digit).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_text_and_tell_which_text_it_was() {
        for serial in [0, 1, 3, 4, 77, 65_535] {
            let text = format!("{{\"text\":\"a{}b\",\"id\":\"mem_zqabc018\"}}", word(serial));
            assert_eq!(words_in(&text), BTreeSet::from([serial]));
        }
        assert!(words_in("zq0189 zq018901x9 zq").is_empty());
    }
}
