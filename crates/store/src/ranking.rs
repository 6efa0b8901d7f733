//! How search hits are ranked: BM25 over what the query may see, added to the cosine where both sides have a
//! vector. All backends rank through this file, so equal records under equal scopes get equal scores.
//!
//! Document frequency, number and average length are taken from the records that are *visible to the query*:
//! those that pass scope, kind, conversation, metadata and time. A score can therefore not depend on anything
//! the caller may not see, neither of another tenant nor of another subject of the same one.
//!
//! Sums are made in the order of the sorted query terms and in `f64`, so that a naive scan and an index with
//! postings arrive at the same bits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use merkwelt_domain::Timestamp;

use crate::analysis::analyse;
use crate::query::Fusion;
use crate::record::{RecordId, Scores};

/// Saturation of repeated terms.
const K1: f64 = 1.2;
/// Weight of a record's length.
const B: f64 = 0.75;

/// What BM25 needs to know of the visible records as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VisibleStats {
    /// How many records are visible to the query.
    pub documents: u64,
    /// The sum of their lengths in terms, as [`crate::analysis`] counts them.
    pub total_length: u64,
}

impl VisibleStats {
    /// Takes in one visible record of `length` terms.
    pub fn observe(&mut self, length: u32) {
        self.documents = self.documents.saturating_add(1);
        self.total_length = self.total_length.saturating_add(u64::from(length));
    }
}

/// The distinct terms of a question in ascending order, each with the number of visible records that have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryTerms {
    terms: Vec<(String, u64)>,
}

impl QueryTerms {
    /// The terms of a question, none of them found yet.
    #[must_use]
    pub fn of(question: &str) -> Self {
        let mut terms = analyse(question);
        terms.sort_unstable();
        terms.dedup();
        Self { terms: terms.into_iter().map(|term| (term, 0)).collect() }
    }

    /// The terms in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + '_ {
        self.terms.iter().map(|(term, _)| term.as_str())
    }

    /// How many terms there are; the length of what [`QueryTerms::frequencies_in`] returns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// Whether the question has no terms, so that only vectors and recency rank.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// How often each query term occurs among the terms of a record, in the order of the query terms.
    #[must_use]
    pub fn frequencies_in(&self, record: &[String]) -> Vec<u32> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for term in record {
            let count = counts.entry(term).or_default();
            *count = count.saturating_add(1);
        }
        self.iter().map(|term| counts.get(term).copied().unwrap_or(0)).collect()
    }

    /// Takes in one visible record by its frequencies, as a scan does.
    pub fn observe(&mut self, frequencies: &[u32]) {
        for ((_, found), count) in self.terms.iter_mut().zip(frequencies) {
            *found = found.saturating_add(u64::from(*count > 0));
        }
    }

    /// Sets in how many visible records each term occurs, in the order of the terms, as an index with
    /// postings knows it. Missing numbers are zero.
    pub fn set_document_frequencies(&mut self, found: impl IntoIterator<Item = u64>) {
        let mut found = found.into_iter();
        for (_, count) in &mut self.terms {
            *count = found.next().unwrap_or(0);
        }
    }
}

/// Scores visible records for one question.
#[derive(Debug, Clone)]
pub struct Scorer {
    weights: Vec<f64>,
    ideal: f64,
    average_length: f64,
}

impl Scorer {
    /// From what is visible. Terms that no visible record has count in the ideal, so that a question in
    /// another language has a small lexical score instead of a large one by its few common words.
    #[must_use]
    pub fn new(stats: VisibleStats, terms: &QueryTerms) -> Self {
        let documents = count(stats.documents);
        let weights: Vec<f64> =
            terms.terms.iter().map(|(_, found)| inverse_frequency(documents, count(*found))).collect();
        let ideal = weights.iter().map(|weight| weight * (K1 + 1.0)).sum();
        let average_length = if stats.documents == 0 { 0.0 } else { count(stats.total_length) / documents };
        Self { weights, ideal, average_length }
    }

    /// BM25 as a fraction of the best possible match, from 0 to below about 1. `frequencies` are those of
    /// the query terms in their order, `length` is the record's number of terms.
    #[must_use]
    pub fn lexical(&self, frequencies: &[u32], length: u32) -> f32 {
        if self.ideal <= 0.0 || self.average_length <= 0.0 {
            return 0.0;
        }
        let norm = K1 * (1.0 - B + B * f64::from(length) / self.average_length);
        // An empty sum of floats is negative zero, so the sum starts from zero.
        let score = self
            .weights
            .iter()
            .zip(frequencies)
            .filter(|(_, count)| **count > 0)
            .map(|(weight, count)| weight * f64::from(*count) * (K1 + 1.0) / (f64::from(*count) + norm))
            .fold(0.0, |sum, part| sum + part);
        narrow(score / self.ideal)
    }
}

/// The logarithm of how rare a term is; never negative.
fn inverse_frequency(documents: f64, found: f64) -> f64 {
    (1.0 + (documents - found + 0.5).max(0.0) / (found + 0.5)).ln()
}

#[expect(clippy::cast_precision_loss, reason = "a statistic of more than 2^53 records needs no last digit")]
fn count(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a score is compared and shown, its last digits mean nothing"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// The cosine of two vectors of one model: the sum of products in `f64` over the product of the norms.
/// `None` if their lengths differ or one has no direction.
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f32> {
    if a.len() != b.len() {
        return None;
    }
    // Eight sums side by side, which the compiler turns into vector instructions. The order of adding is fixed, so
    // every backend arrives at the same bits.
    let mut sums = [[0.0_f64; 8]; 3];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        add_products(&mut sums, a, b);
    }
    add_products(&mut sums, rest_a, rest_b);
    let [product, square_a, square_b] = sums.map(|sums| sums.iter().sum::<f64>());
    let norm = (square_a * square_b).sqrt();
    (norm > 0.0 && norm.is_finite()).then(|| narrow(product / norm))
}

/// Adds the products of eight components, or fewer, to the sums of products and squares.
#[inline]
fn add_products([products, squares_a, squares_b]: &mut [[f64; 8]; 3], a: &[f32], b: &[f32]) {
    let sums = products.iter_mut().zip(squares_a).zip(squares_b);
    for (((product, square_a), square_b), (a, b)) in sums.zip(a.iter().zip(b)) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        *product += a * b;
        *square_a += a * a;
        *square_b += b * b;
    }
}

/// The score a record is ranked by: the lexical score plus `(cosine - floor) / span` where that is positive.
#[must_use]
pub fn fuse(lexical: f32, cosine: Option<f32>, fusion: Option<Fusion>) -> Scores {
    let semantic = match (cosine, fusion) {
        (Some(cosine), Some(Fusion { floor, span })) if span > 0.0 => ((cosine - floor) / span).max(0.0),
        _ => 0.0,
    };
    Scores { lexical, cosine, total: lexical + semantic }
}

/// Where a record stands among the hits.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The score it is ranked by.
    pub total: f32,
    /// When it was written.
    pub written_at: Timestamp,
    /// Its id.
    pub id: RecordId,
}

impl Place {
    /// The order of hits: higher score first, then newer, then the smaller id. It is total, so equal
    /// searches give equal answers.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        other
            .total
            .total_cmp(&self.total)
            .then_with(|| other.written_at.cmp(&self.written_at))
            .then_with(|| self.id.cmp(&other.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(question: &str, records: &[&str]) -> Vec<f32> {
        let mut terms = QueryTerms::of(question);
        let mut stats = VisibleStats::default();
        let mut rows = Vec::new();
        for record in records {
            let record = analyse(record);
            let length = u32::try_from(record.len()).unwrap();
            let frequencies = terms.frequencies_in(&record);
            terms.observe(&frequencies);
            stats.observe(length);
            rows.push((frequencies, length));
        }
        let scorer = Scorer::new(stats, &terms);
        rows.iter().map(|(frequencies, length)| scorer.lexical(frequencies, *length)).collect()
    }

    #[test]
    fn the_record_with_the_rarer_word_is_first() {
        let scores =
            score("delivery of the violin", &["the delivery is late", "a delivery", "violin strings"]);
        assert!(scores[2] > scores[0], "{scores:?}");
    }

    #[test]
    fn words_that_nobody_has_lower_the_score() {
        let plain = score("violin", &["violin", "piano"]);
        let foreign = score("violin zzyzx qwxyz", &["violin", "piano"]);
        assert!(foreign[0] < plain[0] / 2.0, "{foreign:?} {plain:?}");
    }

    #[test]
    fn a_question_without_terms_scores_nothing() {
        assert_eq!(score("was ist das", &["violin"]), [0.0]);
        assert_eq!(score("violin", &["und"]), [0.0]);
    }

    #[test]
    fn known_value_of_bm25() {
        // Two records of length 2, one has the one term once: idf = ln(1 + 1.5/1.5), twice (two stems), and
        // the fraction of the ideal is 1 / (1 + 1.2) = 0.4545.
        let scores = score("violin", &["violin", "piano"]);
        assert!((scores[0] - 1.0 / 2.2).abs() < 1e-6, "{scores:?}");
    }

    #[test]
    fn the_cosine_needs_equal_dimensions_and_a_direction() {
        assert_eq!(cosine(&[1.0, 0.0], &[1.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), Some(0.0));
        assert_eq!(cosine(&[1.0], &[1.0, 0.0]), None);
        assert_eq!(cosine(&[0.0], &[1.0]), None);
    }

    #[test]
    fn a_cosine_below_the_floor_takes_nothing_away() {
        let fusion = Some(Fusion { floor: 0.7, span: 0.25 });
        assert_eq!(fuse(0.5, Some(0.1), fusion).total, 0.5);
        assert!((fuse(0.5, Some(0.95), fusion).total - 1.5).abs() < 1e-5);
        assert_eq!(fuse(0.5, Some(0.95), None).total, 0.5);
    }
}
