//! Analysed texts as they are kept, sealed, beside the text itself: analysing costs ten times as much as
//! decrypting, and a cold shard has thousands of texts to take in. They begin with a mark of how they were made, so
//! that another way is noticed and the text is analysed again. Terms are kept as the index knows them; texts of
//! former versions of the program have them as words.

use merkwelt_store::Error;
use merkwelt_store::analysis::analyse;
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::shard::Term;

/// Tells one analysis from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Of terms kept as words, line by line, and nothing else.
    words: [u8; BYTES],
    /// Of terms kept as numbers.
    numbers: [u8; BYTES],
}

const BYTES: usize = 8;

/// Behind the mark: what a record has beside its text.
const PLAIN: u8 = 0;
const METADATA: u8 = 1;

/// What is kept of a record's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) terms: Vec<Term>,
    /// Whether its body must be opened for metadata.
    pub(crate) metadata: bool,
}

/// A text with something of everything that the analysis treats in its own way.
const SAMPLE: &str = "Die Lieferungen der Häuser in der Strasse: order A-4711, § 17 Abs. 2, running invoices, \
    IBAN DE89 3704 0044 0532 0130 00, E-Mail Mueller, neue Groesse, 1.234,56 am 2026-03-01, Cafe\u{301} generously.";

impl Mark {
    /// The marks of the analysis that this program has: what it makes of the sample.
    pub(crate) fn present() -> Self {
        let words = analyse(SAMPLE);
        let numbers: Vec<u8> = known(&words).iter().flat_map(|term| term.number().to_le_bytes()).collect();
        Self { words: first(words.join("\n").as_bytes()), numbers: first(&numbers) }
    }
}

fn first(made: &[u8]) -> [u8; BYTES] {
    digest(&SHA256, made).as_ref().first_chunk().copied().unwrap_or_default()
}

/// What is kept of a text, beside which there is metadata or not.
pub(crate) fn write(mark: Mark, text: &str, metadata: bool) -> Zeroizing<Vec<u8>> {
    write_terms(mark, &analyse(text), metadata)
}

/// The mark, what there is beside the text, and the terms in order.
pub(crate) fn write_terms(mark: Mark, terms: &[String], metadata: bool) -> Zeroizing<Vec<u8>> {
    let mut terms = known(terms);
    terms.sort_unstable();
    // Whole at once: growing could leave a copy behind that nobody overwrites.
    let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES + 1 + terms.len() * 8));
    bytes.extend_from_slice(&mark.numbers);
    bytes.push(if metadata { METADATA } else { PLAIN });
    for term in terms {
        bytes.extend_from_slice(&term.number().to_le_bytes());
    }
    bytes
}

/// What was kept; `None` if another analysis made it.
pub(crate) fn read(present: Mark, kept: &[u8]) -> Result<Option<Kept>, Error> {
    let (mark, rest) = kept.split_first_chunk::<BYTES>().ok_or(Error::Damaged)?;
    if *mark == present.numbers {
        let (beside, numbers) = rest.split_first().ok_or(Error::Damaged)?;
        let (numbers, []) = numbers.as_chunks::<8>() else { return Err(Error::Damaged) };
        let terms = numbers.iter().map(|number| Term::numbered(u64::from_le_bytes(*number))).collect();
        return Ok(Some(Kept { terms, metadata: *beside != PLAIN }));
    }
    if *mark != present.words {
        return Ok(None);
    }
    let words = std::str::from_utf8(rest).map_err(|_| Error::Damaged)?;
    let terms = words.split('\n').filter(|word| !word.is_empty()).map(Term::of).collect();
    Ok(Some(Kept { terms, metadata: true }))
}

/// The terms of a text as the index knows them.
pub(crate) fn of(text: &str) -> Vec<Term> {
    known(&analyse(text))
}

/// Terms as the index knows them.
pub(crate) fn known(terms: &[String]) -> Vec<Term> {
    terms.iter().map(|term| Term::of(term)).collect()
}

#[cfg(test)]
mod tests {
    use merkwelt_store::analysis::analyse_turn;

    use super::*;

    /// As programs before this one kept them.
    fn in_words(mark: Mark, text: &str) -> Vec<u8> {
        [&mark.words, analyse(text).join("\n").as_bytes()].concat()
    }

    #[test]
    fn kept_terms_are_those_of_the_text() {
        let mark = Mark::present();
        for text in [SAMPLE, "was ist das", "late late late"] {
            let mut terms = of(text);
            assert_eq!(
                read(mark, &in_words(mark, text)),
                Ok(Some(Kept { terms: terms.clone(), metadata: true }))
            );
            terms.sort_unstable();
            for metadata in [false, true] {
                let kept = Kept { terms: terms.clone(), metadata };
                assert_eq!(read(mark, &write(mark, text, metadata)), Ok(Some(kept)));
            }
        }
        for mut other in [write(mark, SAMPLE, false).to_vec(), in_words(mark, SAMPLE)] {
            other[0] ^= 1;
            assert_eq!(read(mark, &other), Ok(None));
        }
        let mut cut = write(mark, SAMPLE, false);
        cut.pop();
        for damaged in [&cut[..], &cut[..BYTES], &[1, 2]] {
            assert_eq!(read(mark, damaged), Err(Error::Damaged));
        }
    }

    #[test]
    fn the_terms_of_a_turn_are_those_of_the_two_texts() {
        let own = analyse("On Thursday.");
        let both = [analyse("When does it arrive?"), own.clone(), own].concat();
        assert_eq!(analyse_turn(Some("When does it arrive?"), "On Thursday."), both);
    }
}
