//! Analysed texts as they are kept, sealed, beside the text itself: analysing costs ten times as much as
//! decrypting, and a cold shard has thousands of texts to take in. The terms begin with a mark of the analysis
//! that made them, so that another one is noticed and the text is analysed again.

use merkwelt_store::Error;
use merkwelt_store::analysis::analyse;
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::shard::Term;

/// Tells one analysis from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark([u8; BYTES]);

const BYTES: usize = 8;

/// A text with something of everything that the analysis treats in its own way.
const SAMPLE: &str = "Die Lieferungen der Häuser in der Strasse: order A-4711, § 17 Abs. 2, running invoices, \
    IBAN DE89 3704 0044 0532 0130 00, E-Mail Mueller, neue Groesse, 1.234,56 am 2026-03-01, Cafe\u{301} generously.";

impl Mark {
    /// The mark of the analysis that this program has: what it makes of the sample.
    pub(crate) fn present() -> Self {
        let made = digest(&SHA256, analyse(SAMPLE).join("\n").as_bytes());
        Self(made.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

/// The mark and the terms of a text.
pub(crate) fn write(mark: Mark, text: &str) -> Zeroizing<Vec<u8>> {
    write_terms(mark, &analyse(text))
}

/// The mark and the terms, line by line; a term has no line breaks.
pub(crate) fn write_terms(mark: Mark, terms: &[String]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(mark.0.to_vec());
    bytes.extend_from_slice(terms.join("\n").as_bytes());
    bytes
}

/// The kept terms; `None` if another analysis made them.
pub(crate) fn read(present: Mark, kept: &[u8]) -> Result<Option<Vec<Term>>, Error> {
    let (mark, terms) = kept.split_first_chunk::<BYTES>().ok_or(Error::Damaged)?;
    if *mark != present.0 {
        return Ok(None);
    }
    let terms = std::str::from_utf8(terms).map_err(|_| Error::Damaged)?;
    let mut known = Vec::with_capacity(terms.len() / 8 + 1);
    known.extend(terms.split('\n').filter(|term| !term.is_empty()).map(Term::of));
    Ok(Some(known))
}

/// The terms of a text as the index knows them.
pub(crate) fn of(text: &str) -> Vec<Term> {
    known(analyse(text))
}

/// Terms as the index knows them.
pub(crate) fn known(terms: Vec<String>) -> Vec<Term> {
    terms.iter().map(|term| Term::of(term)).collect()
}

#[cfg(test)]
mod tests {
    use merkwelt_store::analysis::analyse_turn;

    use super::*;

    #[test]
    fn kept_terms_are_those_of_the_text() {
        let mark = Mark::present();
        for text in [SAMPLE, "was ist das", "late late late"] {
            assert_eq!(read(mark, &write(mark, text)), Ok(Some(of(text))));
        }
        let mut other = write(mark, SAMPLE);
        other[0] ^= 1;
        assert_eq!(read(mark, &other), Ok(None));
        assert_eq!(read(mark, &[1, 2]), Err(Error::Damaged));
    }

    #[test]
    fn the_terms_of_a_turn_are_those_of_the_two_texts() {
        let own = analyse("On Thursday.");
        let both = [analyse("When does it arrive?"), own.clone(), own].concat();
        assert_eq!(analyse_turn(Some("When does it arrive?"), "On Thursday."), both);
    }
}
