//! From text to the terms by which it is found. One analysis serves questions and records, German and
//! English, without being told which of the two a text is in: each word yields its German and its English
//! stem. Numbers and identifiers stay whole, because `A-4711` is found by nothing else.

use std::collections::BTreeSet;

use merkwelt_domain::Timestamp;
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The most characters of a term's word; what is longer is cut, in questions and records alike.
pub const TERM_MAX_CHARS: usize = 64;

/// German and English words that say nothing about what a text is about, in folded form.
const STOPWORDS: &[&str] = &[
    "a", "aber", "about", "all", "alle", "allem", "allen", "aller", "alles", "als", "also", "am", "an",
    "and", "any", "are", "as", "at", "auch", "auf", "aus", "be", "because", "been", "bei", "beim", "bin",
    "bis", "bist", "but", "by", "can", "could", "da", "damit", "dann", "das", "dass", "dem", "den", "der",
    "des", "did", "die", "dies", "diese", "diesem", "diesen", "dieser", "dieses", "do", "doch", "does",
    "dort", "du", "durch", "ein", "eine", "einem", "einen", "einer", "eines", "er", "es", "for", "from",
    "fur", "had", "has", "hat", "hatte", "have", "he", "her", "him", "his", "how", "i", "ich", "if", "ihm",
    "ihn", "ihr", "ihre", "ihrem", "ihren", "ihrer", "im", "in", "ins", "into", "is", "ist", "it", "its",
    "kann", "kein", "keine", "keinen", "me", "mein", "meine", "meinem", "meinen", "meiner", "mich", "mir",
    "mit", "my", "nach", "nicht", "no", "noch", "nor", "not", "nun", "nur", "ob", "oder", "of", "on", "or",
    "our", "s", "sein", "seine", "seinem", "seinen", "seiner", "she", "sich", "sie", "sind", "so", "t",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "uber",
    "um", "und", "uns", "unser", "unsere", "unserem", "unseren", "us", "vom", "von", "vor", "was", "we",
    "wegen", "welche", "welchem", "welchen", "welcher", "welches", "wenn", "wer", "were", "what", "when",
    "where", "which", "who", "why", "wie", "wir", "wird", "with", "wo", "would", "you", "your", "zu", "zum",
    "zur",
];

/// The terms of a text, in the order of its words, each as often as it occurs. Terms are made to be compared
/// and never to be shown; a text of nothing but stop words has none.
#[must_use]
pub fn analyse(text: &str) -> Vec<String> {
    let plain: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let analyser = Analyser::new();
    let runs = runs_of(&plain);
    let mut terms = Vec::new();
    for run in &runs {
        analyser.run(run, &mut terms);
    }
    account_numbers(&runs, &mut terms);
    terms
}

/// The terms of a turn: those of the turn before it, and its own twice. A turn such as "yes, on Thursday" is
/// found by what it answers, but what it says itself weighs more. The turn before counts as long as it is stored.
#[must_use]
pub fn analyse_turn(previous: Option<&str>, text: &str) -> Vec<String> {
    turn_terms(previous.map(analyse), analyse(text))
}

/// The same from terms that are known already, in whatever form.
#[must_use]
pub fn turn_terms<T: Clone>(previous: Option<Vec<T>>, own: Vec<T>) -> Vec<T> {
    let mut terms = previous.unwrap_or_default();
    terms.extend(own.iter().cloned());
    terms.extend(own);
    terms
}

/// The most milliseconds between two turns of one sitting.
const SITTING_MILLIS: i64 = 2 * 3_600_000;
/// Characters of the turn before that a turn's vector is made with, counted from its end.
const BEFORE_CHARS_MAX: usize = 400;

/// The text that the vector of a turn at time `at` is made of: the end of the turn before it, if that is of the
/// same sitting, and its own. Both then end within hours of each other, so no vector outlives by more than that
/// what it was made of.
#[must_use]
pub fn turn_passage(previous: Option<(&str, Timestamp)>, text: &str, at: Timestamp) -> String {
    let of_sitting =
        previous.filter(|(_, before)| at.millis().saturating_sub(before.millis()) <= SITTING_MILLIS);
    let Some((before, _)) = of_sitting else { return text.to_owned() };
    let skipped = before.chars().count().saturating_sub(BEFORE_CHARS_MAX);
    before.chars().skip(skipped).chain(std::iter::once('\n')).chain(text.chars()).collect()
}

/// Words that stand together: `a-4711`, `2026-03-01`, `zwei-faktor`.
struct Run<'t> {
    words: Vec<&'t str>,
    hyphens_only: bool,
    /// Whether a section sign stands before it, with or without a space.
    section: bool,
}

impl Run<'_> {
    fn has_digit(&self) -> bool {
        self.words.iter().any(|word| word.chars().any(char::is_numeric))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

fn runs_of(text: &str) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut rest = text;
    loop {
        let (gap, tail) = rest.split_at(rest.find(is_word).unwrap_or(rest.len()));
        if tail.is_empty() {
            return runs;
        }
        let (word, after) = tail.split_at(tail.find(|c| !is_word(c)).unwrap_or(tail.len()));
        match runs.last_mut() {
            Some(run) if joins(run, gap, word) => {
                run.hyphens_only &= gap == "-";
                run.words.push(word);
            }
            _ => runs.push(Run {
                words: vec![word],
                hyphens_only: true,
                section: gap.trim_end().ends_with('§'),
            }),
        }
        rest = after;
    }
}

/// Whether a word belongs to the run before it. A comma and a full stop join digits only, so that a missing
/// space after a sentence glues nothing together.
fn joins(run: &Run<'_>, gap: &str, word: &str) -> bool {
    let digits = |text: &str| text.chars().all(char::is_numeric);
    match gap {
        "-" | "_" | "/" | ":" => true,
        "," | "." => digits(word) && run.words.last().is_some_and(|last| digits(last)),
        _ => false,
    }
}

struct Analyser {
    german: Stemmer,
    english: Stemmer,
}

impl Analyser {
    fn new() -> Self {
        Self { german: Stemmer::create(Algorithm::German), english: Stemmer::create(Algorithm::English) }
    }

    fn run(&self, run: &Run<'_>, terms: &mut Vec<String>) {
        for word in &run.words {
            self.word(word, terms);
        }
        let whole: String = run.words.concat();
        if run.section {
            terms.push(exact(&format!("§{whole}")));
        }
        if run.words.len() < 2 {
            return;
        }
        if run.has_digit() {
            terms.push(exact(&whole));
        } else if run.hyphens_only {
            // `E-Mail` and `Email`, `Zwei-Faktor` and `Zweifaktor` find each other.
            self.word(&whole, terms);
        }
    }

    fn word(&self, word: &str, terms: &mut Vec<String>) {
        let cut: String = word.chars().take(TERM_MAX_CHARS).collect();
        let folded = fold(&cut);
        if folded.chars().any(char::is_numeric) {
            terms.push(exact(&folded));
            return;
        }
        if folded.is_empty() || STOPWORDS.binary_search(&folded.as_str()).is_ok() {
            return;
        }
        let german = self.german.stem(&umlauts(&cut)).into_owned();
        let english = self.english.stem(&folded).into_owned();
        // The stems stand side by side in name spaces of their own: an English stem that happens to be
        // another word's German stem is no match.
        terms.push(format!("d{german}"));
        terms.push(format!("e{english}"));
    }
}

/// A term that is matched as it stands, without stemming.
fn exact(word: &str) -> String {
    let folded = fold(word);
    std::iter::once('=').chain(folded.chars().take(TERM_MAX_CHARS)).collect()
}

/// Without diacritics, and with ß as ss.
fn fold(word: &str) -> String {
    word.nfd().filter(|c| !is_combining_mark(*c)).collect::<String>().replace('ß', "ss")
}

/// With the German umlauts and no other diacritic, however they are spelled: the German stemmer needs them.
/// `ae`, `oe` and `ue` are read as umlauts except after a vowel or `q`, as in `neue` and `quer`.
fn umlauts(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut before = ' ';
    for c in word.nfc() {
        match c {
            'ä' | 'ö' | 'ü' => out.push(c),
            'e' if matches!(before, 'a' | 'o' | 'u') && spells_umlaut(&out) => {
                out.pop();
                out.push(match before {
                    'a' => 'ä',
                    'o' => 'ö',
                    _ => 'ü',
                });
            }
            _ => out.push_str(&fold(c.encode_utf8(&mut [0; 4]))),
        }
        before = c;
    }
    out
}

/// Whether the vowel that ends `written` stands where it can begin the spelling of an umlaut.
fn spells_umlaut(written: &str) -> bool {
    let before = written.chars().rev().nth(1);
    before.is_none_or(|c| !matches!(c, 'a' | 'e' | 'i' | 'o' | 'u' | 'q' | 'ä' | 'ö' | 'ü' | 'y'))
}

/// Account numbers are written in groups of four: `DE89 3704 0044 0532 0130 00`. They are also found whole.
fn account_numbers(runs: &[Run<'_>], terms: &mut Vec<String>) {
    let mut found = BTreeSet::new();
    for (start, run) in runs.iter().enumerate() {
        let Some(head) = run.words.first().filter(|word| run.words.len() == 1 && is_account_head(word))
        else {
            continue;
        };
        let mut whole = (*head).to_owned();
        for next in runs.iter().skip(start + 1) {
            let [group] = next.words.as_slice() else { break };
            if group.len() > 4 || !group.chars().any(|c| c.is_ascii_digit()) {
                break;
            }
            whole.push_str(group);
            if group.len() < 4 {
                break;
            }
        }
        if whole.len() >= 15 {
            found.insert(exact(&whole));
        }
    }
    terms.extend(found);
}

fn is_account_head(word: &str) -> bool {
    let bytes = word.as_bytes();
    matches!(bytes, [a, b, c, d]
        if a.is_ascii_lowercase() && b.is_ascii_lowercase() && c.is_ascii_digit() && d.is_ascii_digit())
}

/// The terms of a passage: it is found by the title of its source and the headings above it too.
#[must_use]
pub fn analyse_passage<'t>(
    title: &'t str,
    headings: impl IntoIterator<Item = &'t str>,
    text: &'t str,
) -> Vec<String> {
    let above = std::iter::once(title).chain(headings).flat_map(analyse);
    above.chain(analyse(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(a: &str, b: &str) -> bool {
        let a: BTreeSet<_> = analyse(a).into_iter().collect();
        analyse(b).iter().any(|term| a.contains(term))
    }

    #[test]
    fn the_stop_words_are_sorted_and_folded() {
        assert!(STOPWORDS.is_sorted_by(|a, b| a < b));
        assert!(STOPWORDS.iter().all(|word| fold(word) == *word));
    }

    #[test]
    fn inflected_words_of_both_languages_meet() {
        for (a, b) in [
            ("Lieferungen", "Lieferung"),
            ("der Häuser", "Haus"),
            ("running", "runs"),
            ("invoices", "invoice"),
            ("Straße", "STRASSE"),
            ("Café", "cafe"),
            ("E-Mail", "Email"),
        ] {
            assert!(meet(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn both_spellings_of_an_umlaut_meet() {
        for (a, b) in
            [("Müller", "Mueller"), ("Größe", "Groesse"), ("schön", "schoen"), ("Mu\u{308}ller", "Müller")]
        {
            assert!(meet(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn numbers_and_identifiers_stay_whole() {
        for (a, b) in [
            ("order A-4711 is late", "a4711"),
            ("order A-4711 is late", "4711"),
            ("nach § 17 Abs. 2", "§17"),
            ("IBAN DE89 3704 0044 0532 0130 00 bitte", "DE89370400440532013000"),
            ("am 2026-03-01", "2026-03-01"),
            ("1.234,56 Euro", "1234,56"),
        ] {
            assert!(meet(a, b), "{a} and {b}");
        }
        assert!(!meet("order A-4711", "A-4712"));
        assert!(!meet("4711", "47110"));
    }

    #[test]
    fn words_without_meaning_yield_no_terms() {
        assert_eq!(analyse("Was ist das und who are you?"), Vec::<String>::new());
        assert_eq!(analyse(""), Vec::<String>::new());
        assert_eq!(analyse("… — !?"), Vec::<String>::new());
    }

    #[test]
    fn an_english_stem_is_not_a_german_one() {
        // `die` apart, the two languages share spellings: a German `Gift` is no English `gifted`.
        let terms = analyse("Gift");
        assert!(terms.iter().all(|term| term.starts_with(['d', 'e'])), "{terms:?}");
    }

    #[test]
    fn long_words_are_cut_alike_on_both_sides() {
        let long = "x".repeat(5000);
        assert!(analyse(&long).iter().all(|term| term.chars().count() <= TERM_MAX_CHARS + 1));
        assert!(meet(&long, &long));
    }

    #[test]
    fn a_turn_is_found_by_what_it_answers() {
        let terms = analyse_turn(Some("When does the delivery arrive?"), "On Thursday.");
        assert!(analyse("delivery").iter().all(|term| terms.contains(term)));
        assert!(analyse("thursday").iter().all(|term| terms.contains(term)));
    }

    #[test]
    fn a_turn_s_own_words_weigh_more_than_those_it_answers() {
        let terms = analyse_turn(Some("delivery"), "Thursday");
        let times = |word: &str| {
            let stem = analyse(word).remove(0);
            terms.iter().filter(|term| **term == stem).count()
        };
        assert_eq!((times("delivery"), times("thursday")), (1, 2));
    }

    #[test]
    fn a_vector_is_made_with_the_turn_before_only_within_a_sitting_and_not_with_all_of_it() {
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        assert_eq!(turn_passage(Some(("When?", at(0))), "On Thursday.", at(1)), "When?\nOn Thursday.");
        assert_eq!(turn_passage(Some(("When?", at(0))), "On Thursday.", at(121)), "On Thursday.");
        assert_eq!(turn_passage(None, "On Thursday.", at(1)), "On Thursday.");
        let long = "ä".repeat(5000) + "end";
        let passage = turn_passage(Some((&long, at(0))), "own", at(1));
        assert!(passage.ends_with("end\nown") && passage.chars().count() == 404, "{}", passage.len());
    }
}
