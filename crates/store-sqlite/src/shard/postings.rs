//! Which rows have a term, and how often. What was there when the shard was built lies in one sorted run; what
//! came later lies beside it until it is a quarter as much. A term is known by 64 bits made from it: a shard
//! holds no words, and takes less than half of the memory and of the time to build.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

/// A term as the index knows it. Two terms of one tenant that share a number would share their rows: among a
/// million terms that happens once in 40 million tenants, and who makes it happen on purpose only adds words to
/// their own records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(u64);

impl Term {
    pub(crate) fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        Self(hasher.finish())
    }

    /// The term of a number that [`Term::number`] told.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Rows of a shard are numbered in 24 bits, beside 8 bits for how often a term occurs.
pub(crate) const ROWS_MAX: u32 = 1 << 24;
const COUNT_MAX: u32 = 255;

/// A row and how often the term occurs in it. A count of 255 means "see the table of large counts".
#[derive(Clone, Copy)]
struct Hit(u32);

impl Hit {
    fn new(row: u32, count: u32) -> Self {
        Self((row << 8) | count.min(COUNT_MAX))
    }

    fn row(self) -> u32 {
        self.0 >> 8
    }

    fn count(self) -> u32 {
        self.0 & COUNT_MAX
    }
}

/// Hits that may lie beside the run however short it is.
const LATE_MIN: usize = 4096;

/// The inverted index.
#[derive(Default)]
pub(crate) struct Postings {
    /// The run: distinct terms in order, where the hits of each begin, and the hits.
    terms: Vec<Term>,
    starts: Vec<u32>,
    hits: Vec<Hit>,
    /// What came later.
    late: BTreeMap<Term, Vec<Hit>>,
    late_hits: usize,
    large: BTreeMap<(Term, u32), u32>,
}

impl Postings {
    /// Takes in the terms of a row. Rows come in ascending order.
    pub(crate) fn add(&mut self, row: u32, terms: &mut [Term]) {
        terms.sort_unstable();
        for group in terms.chunk_by(|a, b| a == b) {
            let Some(term) = group.first() else { continue };
            let hit = self.hit(*term, row, group.len());
            self.late.entry(*term).or_default().push(hit);
            self.late_hits += 1;
        }
        if self.late_hits > LATE_MIN + self.hits.len() / 4 {
            self.settle();
        }
    }

    fn hit(&mut self, term: Term, row: u32, times: usize) -> Hit {
        let count = u32::try_from(times).unwrap_or(u32::MAX);
        if count >= COUNT_MAX {
            self.large.insert((term, row), count);
        }
        Hit::new(row, count)
    }

    /// The rows of a term in ascending order, each with how often it occurs there.
    pub(crate) fn hits(&self, term: Term) -> Hits<'_> {
        let late = self.late.get(&term).map_or(&[][..], Vec::as_slice);
        Hits { term, large: &self.large, run: self.of_run(term).iter(), late: late.iter() }
    }

    fn of_run(&self, term: Term) -> &[Hit] {
        let Ok(at) = self.terms.binary_search(&term) else { return &[] };
        let bound = |at: usize| self.starts.get(at).and_then(|start| usize::try_from(*start).ok());
        let (Some(from), Some(until)) = (bound(at), bound(at + 1)) else { return &[] };
        self.hits.get(from..until).unwrap_or_default()
    }

    /// Every hit with its term, the terms of the run in order before those beside it.
    fn all(&self) -> impl Iterator<Item = (Term, Hit)> + '_ {
        let run = self.terms.iter().flat_map(|term| self.of_run(*term).iter().map(|hit| (*term, *hit)));
        run.chain(self.late.iter().flat_map(|(term, hits)| hits.iter().map(|hit| (*term, *hit))))
    }

    /// Brings everything into the run.
    pub(crate) fn settle(&mut self) {
        if self.late_hits > 0 {
            let all: Vec<(Term, Hit)> = self.all().collect();
            self.lay(all);
        }
    }

    /// Makes a run of hits whose rows are in order for each term.
    fn lay(&mut self, all: Vec<(Term, Hit)>) {
        let all = by_term(all);
        let distinct = all.chunk_by(|(a, _), (b, _)| a == b).count();
        self.terms = Vec::with_capacity(distinct);
        self.starts = Vec::with_capacity(distinct + 1);
        self.hits = Vec::with_capacity(all.len());
        for (term, hit) in all {
            if self.terms.last() != Some(&term) {
                self.terms.push(term);
                // Rows and terms of one row are bounded so that hits are counted in 32 bits; what were beyond
                // is not found by words.
                self.starts.push(u32::try_from(self.hits.len()).unwrap_or(u32::MAX));
            }
            self.hits.push(hit);
        }
        self.starts.push(u32::try_from(self.hits.len()).unwrap_or(u32::MAX));
        self.late = BTreeMap::new();
        self.late_hits = 0;
    }

    /// Gives rows new numbers; those without one are gone. The order of rows stays.
    pub(crate) fn renumber(&mut self, to: impl Fn(u32) -> Option<u32>) {
        let moved = |hit: Hit| Some(Hit((to(hit.row())? << 8) | hit.count()));
        let all: Vec<(Term, Hit)> = self.all().filter_map(|(term, hit)| Some((term, moved(hit)?))).collect();
        self.large = std::mem::take(&mut self.large)
            .into_iter()
            .filter_map(|((term, row), count)| Some(((term, to(row)?), count)))
            .collect();
        self.lay(all);
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.terms.capacity() * size_of::<Term>()
            + self.starts.capacity() * 4
            + self.hits.capacity() * size_of::<Hit>()
            // A key of a B-tree costs about half more than its size, and each list is an allocation.
            + self.late.len() * 64
            + self.late_hits * 8
            + self.large.len() * 32
    }

    /// Every term, for comparisons.
    #[cfg(test)]
    pub(crate) fn terms(&self) -> std::collections::BTreeSet<Term> {
        self.all().map(|(term, _)| term).collect()
    }
}

/// Hits to a pile, if they are dealt out.
const PILE: usize = 2;
const PILES_BITS_MAX: u32 = 16;

/// Sorts by term; the hits of one term stay in their order. The numbers of terms are spread evenly, so dealing
/// hits out by the first bits leaves next to nothing to sort, and takes about half as long as sorting.
fn by_term(mut all: Vec<(Term, Hit)>) -> Vec<(Term, Hit)> {
    let bits = (all.len() / PILE).checked_ilog2().unwrap_or(0).min(PILES_BITS_MAX);
    if bits == 0 {
        all.sort_by_key(|(term, _)| *term);
        return all;
    }
    let pile = |term: Term| usize::try_from(term.0 >> (u64::BITS - bits)).unwrap_or(0);
    let mut next = vec![0_usize; 1 << bits];
    for (term, _) in &all {
        next.get_mut(pile(*term)).into_iter().for_each(|count| *count += 1);
    }
    let mut before = 0;
    for count in &mut next {
        before += std::mem::replace(count, before);
    }
    let mut dealt = vec![(Term(0), Hit(0)); all.len()];
    for hit in all {
        let Some(at) = next.get_mut(pile(hit.0)) else { continue };
        dealt.get_mut(*at).into_iter().for_each(|place| *place = hit);
        *at += 1;
    }
    // Where the next hit of a pile would go, the pile ends.
    let mut rest = dealt.as_mut_slice();
    let mut from = 0;
    for until in next {
        let Some((own, others)) = std::mem::take(&mut rest).split_at_mut_checked(until - from) else { break };
        own.sort_by_key(|(term, _)| *term);
        (rest, from) = (others, until);
    }
    dealt
}

/// The rows of one term.
#[derive(Clone)]
pub(crate) struct Hits<'p> {
    term: Term,
    large: &'p BTreeMap<(Term, u32), u32>,
    run: std::slice::Iter<'p, Hit>,
    late: std::slice::Iter<'p, Hit>,
}

impl Iterator for Hits<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        // INVARIANT: rows beside the run came later, so their numbers are higher than those of the run.
        let hit = self.run.next().or_else(|| self.late.next())?;
        let mut count = hit.count();
        if count == COUNT_MAX {
            count = self.large.get(&(self.term, hit.row())).copied().unwrap_or(count);
        }
        Some((hit.row(), count))
    }
}

/// The terms of rows that are taken in at once: sorted once instead of one by one.
#[derive(Default)]
pub(crate) struct Bulk {
    all: Vec<(Term, Hit)>,
}

impl Bulk {
    /// Takes in the terms of a row. Rows come in ascending order.
    pub(crate) fn add(&mut self, postings: &mut Postings, row: u32, terms: &mut [Term]) {
        terms.sort_unstable();
        for group in terms.chunk_by(|a, b| a == b) {
            let Some(term) = group.first() else { continue };
            self.all.push((*term, postings.hit(*term, row, group.len())));
        }
    }

    /// Lays everything out in postings that hold nothing else.
    pub(crate) fn into(self, postings: &mut Postings) {
        postings.lay(self.all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(postings: &Postings, term: &str) -> Vec<(u32, u32)> {
        postings.hits(Term::of(term)).collect()
    }

    fn terms(words: &[&str]) -> Vec<Term> {
        words.iter().map(|word| Term::of(word)).collect()
    }

    #[test]
    fn a_term_is_found_in_the_run_and_beside_it() {
        let mut postings = Postings::default();
        let mut bulk = Bulk::default();
        bulk.add(&mut postings, 0, &mut terms(&["tea", "late", "tea"]));
        bulk.add(&mut postings, 1, &mut terms(&["tea"]));
        bulk.into(&mut postings);
        postings.add(2, &mut terms(&["late", "tea"]));
        let both = [vec![(0, 2), (1, 1), (2, 1)], vec![(0, 1), (2, 1)], vec![]];
        assert_eq!(["tea", "late", "coffee"].map(|term| found(&postings, term)), both);
        postings.settle();
        assert!(postings.late.is_empty());
        assert_eq!(["tea", "late", "coffee"].map(|term| found(&postings, term)), both);
        postings.renumber(|row| row.checked_sub(1));
        assert_eq!(found(&postings, "tea"), [(0, 1), (1, 1)]);
        assert_eq!(found(&postings, "late"), [(1, 1)]);
    }

    #[test]
    fn dealing_out_sorts_and_keeps_the_order_of_rows() {
        for rows in [0, 3, 15, 16, 17, 1000, 5000] {
            let words = |row: u32| [row % 7, row % 97, row].map(|word| Term::of(&word.to_string()));
            let all: Vec<(Term, Hit)> =
                (0..rows).flat_map(|row| words(row).map(|term| (term, Hit::new(row, 1)))).collect();
            let mut sorted = all.clone();
            sorted.sort_by_key(|(term, _)| *term);
            let plain = |hits: Vec<(Term, Hit)>| hits.into_iter().map(|(t, h)| (t, h.0)).collect::<Vec<_>>();
            assert_eq!(plain(by_term(all)), plain(sorted));
        }
    }

    #[test]
    fn large_counts_are_kept_exactly() {
        let mut postings = Postings::default();
        for (row, times) in [(0, 254), (1, 255), (2, 3000)] {
            postings.add(row, &mut vec![Term::of("tea"); times]);
        }
        assert_eq!(found(&postings, "tea"), [(0, 254), (1, 255), (2, 3000)]);
        postings.renumber(Some);
        assert_eq!(found(&postings, "tea"), [(0, 254), (1, 255), (2, 3000)]);
    }

    #[test]
    fn what_came_later_joins_the_run_before_it_is_much() {
        let mut postings = Postings::default();
        for row in 0..20_000 {
            postings.add(row, &mut terms(&["tea", &row.to_string()]));
            assert!(postings.late_hits <= LATE_MIN + postings.hits.len() / 4);
        }
        assert_eq!(found(&postings, "tea").len(), 20_000);
        assert_eq!(found(&postings, "19999"), [(19_999, 1)]);
        assert!(found(&postings, "tea").is_sorted());
    }
}
