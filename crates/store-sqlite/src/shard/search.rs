//! The search in a shard: first the predicate of scope, kind and time, then ranking over what passed it. A
//! hit is a key and scores, never content; the record decides (I-3). Rows are scored in spans: what is needed of them
//! stays in the nearest cache, and nothing that a search sets aside grows with the number of rows but a bit for each.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use merkwelt_domain::GroupId;
use merkwelt_domain::source::Audience;
use merkwelt_store::Error;
use merkwelt_store::query::RecallQuery;
use merkwelt_store::ranking::{QueryTerms, Scorer, VisibleStats, fuse};

use crate::shard::filter::{Eyes, Filter, Passed};
use crate::shard::index::{PASSAGE, Row, Shard, TURN};
use crate::shard::postings::Hits;
use crate::shard::spans::{SPAN, Span};
use crate::shard::vectors::{Coarse, Probe};

/// Hits that are ranked again by their exact vectors, at most.
const RERANK_MAX: usize = 512;

/// A proposed row.
pub(crate) struct Proposal {
    pub(crate) row: Row,
    /// BM25 as a fraction of the best possible match; exact.
    pub(crate) lexical: f32,
    /// Whether the row has a vector to compare with.
    pub(crate) vector: bool,
}

/// What a search proposes.
pub(crate) struct Proposals {
    /// Best first, more than were asked for where vectors are to be compared exactly.
    pub(crate) rows: Vec<Proposal>,
    /// How many rows passed the predicate.
    pub(crate) considered: u64,
}

/// Searches. With a probe more rows than `k` come back, because its cosines are approximate.
pub(crate) fn search(
    shard: &Shard,
    eyes: &Eyes<'_>,
    query: &RecallQuery,
    probe: Option<&Probe>,
) -> Result<Proposals, Error> {
    let filter = Filter::new(shard, eyes, query);
    let all = |span: &Span| filter.of_all(span);
    search_where(shard, query, probe, all, |number, row| filter.passes(shard, number, row))
}

/// Searches among the rows that pass: `all` says so of a whole span where it can, `passes` of one row.
pub(crate) fn search_where(
    shard: &Shard,
    query: &RecallQuery,
    probe: Option<&Probe>,
    all: impl Fn(&Span) -> Option<bool>,
    passes: impl Fn(u32, &Row) -> bool,
) -> Result<Proposals, Error> {
    let mut stats = VisibleStats::default();
    let passed = Passed::of(shard, &mut stats, all, passes);
    let mut lexical = Lexical::of(shard, QueryTerms::of(query.question.expose()), stats, &passed);
    let fusion = query.vector.as_ref().map(|(_, fusion)| *fusion);
    let (floor, span) = fusion.map_or((1.0, 1.0), |fusion| (fusion.floor, fusion.span.max(f32::EPSILON)));
    let wanted = query.k.get();
    let mut best = Best::of(wanted);
    let (mut numbers, mut coarse) = (Vec::with_capacity(SPAN), Vec::with_capacity(SPAN));
    let (mut near, mut lexicals, mut cosines) = (Vec::new(), Vec::new(), Vec::new());
    for first in (0..shard.rows.len()).step_by(SPAN) {
        numbers.clear();
        passed.list(first, &mut numbers);
        lexical.count(first);
        match probe {
            Some(probe) => shard.vectors.coarse(&numbers, probe, &mut coarse),
            None => {
                coarse.clear();
                coarse.resize(numbers.len(), Coarse::NONE);
            }
        }
        near.clear();
        lexicals.clear();
        for (at, coarse) in numbers.iter().zip(&coarse) {
            let Some(row) = shard.rows.get(*at) else { continue };
            let lexical = lexical.score(at - first, row);
            // INVARIANT: no cosine is higher than the upper plane says, and the total does not fall where the cosine
            // rises, so what is below the least with it will not be wanted.
            let total = fuse(lexical, Some(coarse.at_most), fusion).total;
            if total < best.least {
                continue;
            }
            if coarse.at_most <= floor {
                // Below the floor a cosine counts nothing, however far off it is.
                let vector = probe.is_some_and(|probe| shard.vectors.has(*at, probe));
                best.offer(Scored { total, row, lexical, slack: 0.0, vector });
            } else {
                near.push((*at, *coarse));
                lexicals.push(lexical);
            }
        }
        let Some(probe) = probe else { continue };
        shard.vectors.fine(&near, probe, &mut cosines);
        for (((at, _), lexical), cosine) in near.iter().zip(&lexicals).zip(&cosines) {
            let Some(row) = shard.rows.get(*at) else { continue };
            let total = fuse(*lexical, Some(*cosine), fusion).total;
            let off = shard.vectors.slack(*at, probe);
            let slack = if cosine + off > floor { off / span } else { 0.0 };
            best.offer(Scored { total, row, lexical: *lexical, slack, vector: true });
        }
    }
    let scored = best.end(if probe.is_some() { RERANK_MAX.max(wanted) } else { wanted });
    let rows = scored.into_iter().map(|scored| Proposal {
        row: scored.row.clone(),
        lexical: scored.lexical,
        vector: scored.vector,
    });
    Ok(Proposals { rows: rows.collect(), considered: stats.documents })
}

/// Whether a search with the eyes of every audience at once finds a row of this source: what is asked after a
/// removal.
pub(crate) fn of_source(
    shard: &Shard,
    query: &RecallQuery,
    probe: Option<&Probe>,
    source: &str,
    tenant: &str,
) -> Result<bool, Error> {
    let of_all = |audience: &Audience| match audience {
        Audience::Tenant => BTreeSet::new(),
        Audience::Groups(groups) => groups.clone(),
    };
    let groups: BTreeSet<GroupId> = shard.audiences.values().flat_map(of_all).collect();
    let eyes = Eyes { subject: None, groups: &groups, tenant };
    let owner = shard.owners.get(source);
    let found = search(shard, &eyes, query, probe)?;
    Ok(found.rows.iter().any(|proposal| proposal.row.kind == PASSAGE && Some(proposal.row.owner) == owner))
}

struct Scored<'s> {
    total: f32,
    row: &'s Row,
    lexical: f32,
    /// By how much the total may be off.
    slack: f32,
    vector: bool,
}

/// What may be among the wanted, though every cosine be off as far as it may be.
struct Best<'s> {
    scored: Vec<Scored<'s>>,
    wanted: usize,
    /// What so many as are wanted reach for sure.
    least: f32,
    /// How many there may be before those are dropped that have fallen behind.
    full: usize,
}

impl<'s> Best<'s> {
    fn of(wanted: usize) -> Self {
        let full = wanted.saturating_mul(4).max(SPAN / 4);
        Self { scored: Vec::with_capacity(full), wanted, least: f32::NEG_INFINITY, full }
    }

    fn offer(&mut self, scored: Scored<'s>) {
        // INVARIANT: the least only rises, so what is below it now will not be wanted later.
        if scored.total + scored.slack < self.least {
            return;
        }
        self.scored.push(scored);
        if self.scored.len() >= self.full {
            self.drop_impossible();
            self.full = self.full.max(self.scored.len() * 2);
        }
    }

    fn drop_impossible(&mut self) {
        let Some(last) = self.wanted.checked_sub(1).filter(|last| *last < self.scored.len()) else { return };
        let mut sure: Vec<f32> = self.scored.iter().map(|scored| scored.total - scored.slack).collect();
        let (_, least, _) = sure.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
        self.least = *least;
        self.scored.retain(|scored| scored.total + scored.slack >= *least);
    }

    /// At most so many, the best first.
    fn end(mut self, at_most: usize) -> Vec<Scored<'s>> {
        self.drop_impossible();
        if self.scored.len() > at_most {
            self.scored.select_nth_unstable_by(at_most, order);
            self.scored.truncate(at_most);
        }
        self.scored.sort_unstable_by(order);
        self.scored
    }
}

/// The lexical scores of the rows that passed, block by block.
struct Lexical<'s> {
    scorer: Scorer,
    /// For each term the hits that no block has taken yet.
    left: Vec<std::iter::Peekable<Hits<'s>>>,
    /// How often the rows of the block have each term, and which of them has any.
    counts: Vec<u32>,
    hit: [bool; SPAN],
}

impl<'s> Lexical<'s> {
    fn of(shard: &'s Shard, mut terms: QueryTerms, stats: VisibleStats, passed: &Passed) -> Self {
        let hits: Vec<Hits<'s>> = terms.iter().map(|term| shard.hits(term)).collect();
        let found = |hits: &Hits<'s>| hits.clone().filter(|(row, _)| passed.holds(*row)).count();
        // INVARIANT: R-023, a term weighs what it weighs among the rows that passed.
        let found: Vec<u64> =
            hits.iter().map(|hits| u64::try_from(found(hits)).unwrap_or(u64::MAX)).collect();
        terms.set_document_frequencies(found);
        Self {
            scorer: Scorer::new(stats, &terms),
            counts: vec![0; hits.len() * SPAN],
            left: hits.into_iter().map(Iterator::peekable).collect(),
            hit: [false; SPAN],
        }
    }

    /// Goes on to the block that begins with `first`.
    fn count(&mut self, first: usize) {
        if self.hit.contains(&true) {
            self.counts.fill(0);
            self.hit.fill(false);
        }
        let width = self.left.len();
        for (term, hits) in self.left.iter_mut().enumerate() {
            let of_block =
                |row: u32| usize::try_from(row).ok().and_then(|row| row.checked_sub(first)).unwrap_or(SPAN);
            while let Some((row, count)) = hits.next_if(|(row, _)| of_block(*row) < SPAN) {
                let at = of_block(row);
                if let (Some(to), Some(hit)) = (self.counts.get_mut(at * width + term), self.hit.get_mut(at))
                {
                    *to = count;
                    *hit = true;
                }
            }
        }
    }

    /// The score of a row, by its place in the block. Most rows have no term, and are not fetched from memory then.
    fn score(&self, at: usize, row: &Row) -> f32 {
        if !self.hit.get(at).copied().unwrap_or(false) {
            return 0.0;
        }
        let from = at * self.left.len();
        let frequencies = self.counts.get(from..from + self.left.len());
        frequencies.map_or(0.0, |frequencies| self.scorer.lexical(frequencies, row.length))
    }
}

/// Memories, turns, passages: the order of `RecordId`.
fn class(kind: u8) -> u8 {
    if kind >= TURN { kind } else { 0 }
}

/// The order of `ranking::Place`, without building ids.
fn order(a: &Scored<'_>, b: &Scored<'_>) -> Ordering {
    b.total
        .total_cmp(&a.total)
        .then_with(|| b.row.written_at.cmp(&a.row.written_at))
        .then_with(|| class(a.row.kind).cmp(&class(b.row.kind)))
        .then_with(|| a.row.key().cmp(&b.row.key()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    use merkwelt_domain::freshness::SKEW_MILLIS;
    use merkwelt_domain::memory::Kind;
    use merkwelt_domain::{Content, Interval, Timestamp};
    use merkwelt_store::query::{Fusion, KindSet, ModelId, TopK, Turns, Vector};
    use merkwelt_store::ranking::cosine;
    use proptest::prelude::*;

    use super::*;
    use crate::rows::kind_code;
    use crate::shard::Term;
    use crate::shard::index::{Entry, RowKey};
    use crate::shard::spans::Spans;
    use crate::terms;

    const ROWS: u32 = 1_500;
    static SHARD: LazyLock<Shard> = LazyLock::new(shard);

    fn key(number: u32) -> RowKey {
        (format!("{number:026}").into_bytes().try_into().unwrap(), 0)
    }

    fn number(proposal: &Proposal) -> u32 {
        u32::try_from(proposal.row.seq).unwrap()
    }

    /// A text with frequent and rare words, and a vector; every seventh row has none.
    fn row(number: u32) -> (Vec<Term>, Option<[f32; 16]>) {
        let mut text = format!("tea {} row{number}", "delivery ".repeat((number % 5) as usize));
        if number.is_multiple_of(97) {
            text.push_str(&"late ".repeat(300));
        }
        let component =
            |at: u32| f32::from(u16::try_from((number * 7919 + at * 104_729) % 2003).unwrap()) - 1001.0;
        let vector = std::array::from_fn(|at| component(u32::try_from(at).unwrap()));
        (terms::of(&text), (!number.is_multiple_of(7)).then_some(vector))
    }

    /// Half of the rows were there when the shard was built, the others came later.
    fn shard() -> Shard {
        let mut shard = Shard::to_build(ROWS as usize / 2);
        for number in 0..ROWS {
            let (terms, vector) = row(number);
            let entry = Entry { terms, ..plain(number, vector.as_ref().map(<[f32; 16]>::as_slice)) };
            shard.insert(entry).unwrap();
            if number == ROWS / 2 {
                shard.built();
            }
        }
        shard
    }

    fn query(values: Option<[f32; 16]>) -> RecallQuery {
        let vector = |values: [f32; 16]| {
            let vector = Vector { model: ModelId::new("test", "1", 16), values: values.to_vec() };
            (vector, Fusion { floor: 0.1, span: 0.5 })
        };
        RecallQuery {
            question: Content::question("late tea delivery row1203", 1000).unwrap(),
            vector: values.map(vector),
            k: TopK::new(10).unwrap(),
            kinds: KindSet::all().rankable(),
            turns: Turns::All,
            documents: true,
            conversation: None,
            metadata: Vec::new(),
            interval: None,
            now: Timestamp::from_millis(1),
        }
    }

    /// What a plain scan over exact vectors says: of every row that passes its lexical score and the total.
    fn scanned(query: &RecallQuery, passes: impl Fn(u32) -> bool) -> BTreeMap<u32, (f32, f32)> {
        let mut terms = QueryTerms::of(query.question.expose());
        let known: Vec<Term> = terms.iter().map(Term::of).collect();
        let (mut stats, mut counted) = (VisibleStats::default(), Vec::new());
        for number in (0..ROWS).filter(|number| passes(*number)) {
            let (own, vector) = row(number);
            let times = |term| u32::try_from(own.iter().filter(|other| *other == term).count()).unwrap();
            let frequencies: Vec<u32> = known.iter().map(times).collect();
            let length = u32::try_from(own.len()).unwrap();
            stats.observe(length);
            terms.observe(&frequencies);
            counted.push((number, frequencies, length, vector));
        }
        let scorer = Scorer::new(stats, &terms);
        let scored = counted.into_iter().map(|(number, frequencies, length, vector)| {
            let lexical = scorer.lexical(&frequencies, length);
            let asked = query.vector.as_ref();
            let exact = asked.zip(vector).and_then(|((asked, _), kept)| cosine(&asked.values, &kept));
            (number, (lexical, fuse(lexical, exact, asked.map(|(_, fusion)| *fusion)).total))
        });
        scored.collect()
    }

    #[test]
    fn a_search_in_many_blocks_proposes_what_a_plain_scan_finds() {
        for asked in [None, Some(8), Some(1_301)] {
            let query = query(asked.and_then(|number| row(number).1));
            let probe = query.vector.as_ref().and_then(|(vector, _)| Probe::of(&vector.values));
            for step in [1, 3, 400] {
                let passes = |number: u32| number.is_multiple_of(step);
                let found =
                    search_where(&SHARD, &query, probe.as_ref(), |_| None, |number, _| passes(number))
                        .unwrap();
                let all = scanned(&query, passes);
                assert_eq!(found.considered, all.len() as u64);
                for proposal in &found.rows {
                    assert_eq!(proposal.lexical, all[&number(proposal)].0);
                }
                let mut ranked: Vec<(f32, u32)> =
                    all.iter().map(|(row, (_, total))| (*total, *row)).collect();
                ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
                let proposed: Vec<u32> = found.rows.iter().map(number).collect();
                for (_, wanted) in ranked.iter().take(10) {
                    assert!(proposed.contains(wanted), "{wanted} of {step} for {asked:?}: {proposed:?}");
                }
                if asked.is_none() {
                    let best: Vec<u32> = ranked.iter().take(10).map(|(_, row)| *row).collect();
                    assert_eq!(proposed, best);
                }
            }
        }
    }

    /// A memory of few words.
    fn plain(number: u32, vector: Option<&[f32]>) -> Entry<'_> {
        Entry {
            key: key(number),
            seq: i64::from(number),
            revision: 1,
            owner: "sub_a".to_owned(),
            kind: kind_code(Kind::UserFact),
            conversation: None,
            valid_from: 0,
            end: i64::MAX,
            written_at: i64::from(number),
            terms: terms::of(if number.is_multiple_of(11) { "tea delivery" } else { "other" }),
            metadata: None,
            vector,
        }
    }

    /// Sixteen sums side by side, which the compiler turns into vector instructions.
    fn plain_dot(row: &[f32], probe: &[f32]) -> f32 {
        let mut sums = [0.0_f32; 16];
        for (a, b) in row.chunks_exact(16).zip(probe.chunks_exact(16)) {
            sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * b);
        }
        sums.iter().sum()
    }

    /// A row as `merkwelt bench` makes it: twelve words of which some are frequent, a vector around one of 64 centres.
    fn benched(number: u32) -> (Vec<Term>, Vec<f32>) {
        let chance = |seed: u32, at: u32| {
            let mixed = (u64::from(seed) << 32 | u64::from(at)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            f32::from(u16::try_from(mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48).unwrap()) / 32_768.0
                - 1.0
        };
        let word = |at: u32| {
            format!("word{}", (chance(number, at).abs() * chance(number, at + 50).abs() * 6_400.0).floor())
        };
        let text: Vec<String> = (0..12).map(word).collect();
        let vector = (0..384).map(|at| chance(number % 64, at) + 0.6 * chance(number + 64, at + 400));
        (terms::of(&text.join(" ")), vector.collect())
    }

    /// The search in the index with all its conditions and words, beside a plain scan of the same vectors that only
    /// keeps the best. Figures stand in `docs/benchmarks.md`:
    /// `cargo test --release -p merkwelt-store-sqlite --lib -- --ignored --nocapture what_the_scan_costs`.
    #[test]
    #[ignore = "a measurement"]
    #[expect(clippy::disallowed_methods, reason = "a measurement needs the clock")]
    fn what_the_scan_costs_beside_a_plain_one() {
        let groups = BTreeSet::new();
        let eyes = Eyes { subject: Some("sub_a"), groups: &groups, tenant: "ten_a" };
        for rows in [1_000_u32, 2_000, 10_000, 100_000] {
            let mut shard = Shard::to_build(rows as usize);
            let mut exact = Vec::new();
            for number in 0..rows {
                let (terms, vector) = benched(number);
                shard.insert(Entry { terms, ..plain(number, Some(&vector)) }).unwrap();
                let norm = plain_dot(&vector, &vector).sqrt();
                exact.extend(vector.iter().map(|value| value / norm));
            }
            shard.built();
            let mut times = [Vec::new(), Vec::new()];
            let (mut found, mut plain_best) = (0, 0.0_f32);
            for round in 0..(4_000_000 / rows).min(2_000) {
                let asked = benched(1_000_000 + round).1;
                let vector = Vector { model: ModelId::new("test", "1", 384), values: asked.clone() };
                let question = Content::question(&format!("word{} word{} late", round % 50, round % 7), 1000);
                let vector = Some((vector, Fusion { floor: 0.0, span: 1.0 }));
                let now = Timestamp::from_millis(i64::from(rows));
                let query = RecallQuery { question: question.unwrap(), vector, now, ..query(None) };
                let started = std::time::Instant::now();
                let probe = Probe::of(&asked);
                found += search(&shard, &eyes, &query, probe.as_ref()).unwrap().rows.len();
                times[0].push(started.elapsed());
                let started = std::time::Instant::now();
                let mut best = [0.0_f32; 10];
                for row in exact.chunks_exact(384) {
                    let score = plain_dot(row, &asked);
                    if score > best[9] {
                        best[9] = score;
                        best.sort_unstable_by(|a, b| b.total_cmp(a));
                    }
                }
                times[1].push(started.elapsed());
                plain_best += best[0];
            }
            let [ours, plain] = times.each_mut().map(|times| {
                times.sort_unstable();
                times[times.len() / 2].as_secs_f64() * 1e6
            });
            let proposed = found / times[0].len();
            println!(
                "{rows} rows: {ours:.1} us, plain {plain:.1} us: {:.2} times; {proposed} proposed",
                ours / plain
            );
            assert!(proposed >= 10 && plain_best > 0.0);
        }
    }

    /// Vectors that come in the shapes of [`strange`].
    const SHAPES: u32 = 7;

    /// Equal, empty, huge, tiny, of one component, all but equal, at the floor.
    fn strange(shape: u32, number: u32, asked: &[f32; 16]) -> [f32; 16] {
        let plain = row(number).1.unwrap_or([1.0; 16]);
        match shape {
            0 => row(8).1.unwrap(),
            1 => [0.0; 16],
            2 => plain.map(|value| value * 1e30),
            3 => plain.map(|value| value * 1e-25),
            4 => std::array::from_fn(|at| if at == (number % 16) as usize { 1.0 } else { 0.003 }),
            5 => std::array::from_fn(|at| asked[at] + plain[at] * 0.01),
            // The cosine is the floor: the question and three times as much across it.
            _ => std::array::from_fn(|at| {
                asked[at] * 0.100_5 + if at % 2 == 0 { asked[at + 1] } else { -asked[at - 1] }
            }),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_best_after_the_exact_ranking_are_those_of_a_plain_scan_however_strange_the_vectors(
            shapes in proptest::collection::vec(0..=SHAPES, 1..4),
            count in 1..1_200_u32,
            k in prop_oneof![Just(1_u16), Just(10), Just(50)],
            floor in prop_oneof![Just(0.1_f32), Just(0.0), -1.0f32..0.9],
            span in prop_oneof![Just(0.0_f32), Just(1.0), 0.01f32..2.0],
        ) {
            let asked = row(1_301).1.unwrap();
            let vector_of = |number: u32| match shapes[number as usize % shapes.len()] {
                SHAPES => row(number).1,
                shape => Some(strange(shape, number, &asked)),
            };
            let mut query = query(Some(asked));
            query.k = TopK::new(k).unwrap();
            let fusion = Fusion { floor, span };
            query.vector.as_mut().unwrap().1 = fusion;
            let mut shard = Shard::default();
            for number in 0..count {
                let vector = vector_of(number);
                shard.insert(plain(number, vector.as_ref().map(<[f32; 16]>::as_slice))).unwrap();
            }
            let probe = Probe::of(&asked);
            let found = search_where(&shard, &query, probe.as_ref(), |_| Some(true), |_, _| true).unwrap();
            // The lexical score is exact, and proposed rows have it; it is the same of all rows with equal words.
            let without = RecallQuery { vector: None, k: TopK::new(50).unwrap(), ..query.clone() };
            let by_words = search_where(&shard, &without, None, |_| None, |_, _| true).unwrap();
            let with_words = by_words.rows.iter().map(|proposal| proposal.lexical).fold(0.0, f32::max);
            let place = |number: u32| {
                let lexical = if number.is_multiple_of(11) { with_words } else { 0.0 };
                let cosine = vector_of(number).and_then(|kept| cosine(&asked, &kept));
                (fuse(lexical, cosine, Some(fusion)).total, number)
            };
            let best = |numbers: Vec<u32>| {
                let mut places: Vec<(f32, u32)> = numbers.into_iter().map(place).collect();
                places.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
                places.truncate(k.into());
                places
            };
            prop_assert_eq!(best(found.rows.iter().map(number).collect()), best((0..count).collect()));
        }

        #[test]
        fn what_is_decided_for_many_rows_at_once_is_what_each_of_them_would_be_told(
            runs in proptest::collection::vec((1..700_u32, 0..3_u8, 0..4_u8, 0..4_u8, 0..4_usize), 1..6),
            buried in proptest::collection::vec(0..2_000_u32, 0..20),
            (documents, all_turns, all_kinds, subject) in any::<(bool, bool, bool, bool)>(),
        ) {
            let mut shard = Shard::default();
            shard.renew_source("src_a", Some(Audience::Tenant)).unwrap();
            let mut numbers = 0..;
            for (count, owner, kind, mixed, time) in runs {
                for (nth, number) in (0..count).zip(&mut numbers) {
                    let other = u8::from(mixed == 0 && nth % 3 == 0);
                    let mut entry = plain(number, None);
                    entry.kind = [kind_code(Kind::UserFact), kind_code(Kind::Reference), TURN, PASSAGE]
                        [usize::from((kind + other) % 4)];
                    entry.owner = ["sub_a", "sub_b", "src_a"][usize::from((owner + other) % 3)].to_owned();
                    (entry.valid_from, entry.end) = [(0, i64::MAX), (0, 50), (200, 300), (100, 101)][time];
                    shard.insert(entry).unwrap();
                }
            }
            for number in buried {
                shard.remove(&key(number));
            }
            let mut query = query(None);
            query.documents = documents;
            query.now = Timestamp::from_millis(100);
            query.turns = if all_turns { Turns::All } else { Turns::None };
            if !all_kinds {
                query.kinds = KindSet::of([Kind::UserFact]);
            }
            let groups = BTreeSet::new();
            let eyes = Eyes { subject: subject.then_some("sub_a"), groups: &groups, tenant: "ten_a" };
            let filter = Filter::new(&shard, &eyes, &query);
            let (mut at_once, mut each) = (VisibleStats::default(), VisibleStats::default());
            let passes = |number: u32, row: &Row| filter.passes(&shard, number, row);
            let decided = Passed::of(&shard, &mut at_once, |span| filter.of_all(span), passes);
            let asked = Passed::of(&shard, &mut each, |_| None, passes);
            prop_assert_eq!(decided, asked);
            prop_assert_eq!(at_once, each);
        }
    }

    /// Times around each bound of the predicate of [`bounded`].
    fn times() -> Vec<(i64, i64, i64)> {
        let mut times = Vec::new();
        for valid_from in [99, 100, 101, 119, 120, 121] {
            for end in [79, 80, 81, 99, 100, 101, i64::MAX] {
                for written_at in [0, 100 + SKEW_MILLIS, 101 + SKEW_MILLIS] {
                    times.push((valid_from, end, written_at));
                }
            }
        }
        times
    }

    /// A question at 100, also for what holds between 80 and 120 only.
    fn bounded(interval: Option<(i64, i64)>, kinds: KindSet) -> RecallQuery {
        let bounds = interval.map(|(from, until)| {
            Interval::new(Timestamp::from_millis(from), Timestamp::from_millis(until)).unwrap()
        });
        let now = Timestamp::from_millis(100);
        RecallQuery { now, kinds, interval: bounds, documents: true, turns: Turns::All, ..query(None) }
    }

    /// What two neighbours of one owner are told together and each by itself.
    fn told(shard: &Shard, query: &RecallQuery, rows: &[Row]) -> (Option<bool>, Vec<bool>) {
        let groups = BTreeSet::new();
        let eyes = Eyes { subject: Some("sub_a"), groups: &groups, tenant: "ten_a" };
        let filter = Filter::new(shard, &eyes, query);
        let spans = Spans::of(rows);
        let together = filter.of_all(spans.iter().next().unwrap());
        (together, rows.iter().map(|row| filter.passes(shard, 0, row)).collect())
    }

    #[test]
    fn i_007_neighbours_are_decided_together_as_each_of_them_up_to_every_bound_of_time() {
        let mut shard = Shard::default();
        shard.insert(plain(0, None)).unwrap();
        let row = shard.rows[0].clone();
        let at = |(valid_from, end, written_at)| Row { valid_from, end, written_at, ..row.clone() };
        for interval in
            [None, Some((80, 100)), Some((80, 120)), Some((99, 101)), Some((100, 120)), Some((101, 130))]
        {
            let query = bounded(interval, KindSet::all());
            for (first, second) in
                times().into_iter().flat_map(|one| times().into_iter().map(move |two| (one, two)))
            {
                let (together, each) = told(&shard, &query, &[at(first), at(second)]);
                let expected =
                    if each.iter().all(|passes| *passes) { Some(true) } else { together.filter(|all| !all) };
                assert_eq!(together, expected, "{interval:?} {first:?} {second:?} {each:?}");
                assert!(together != Some(false) || !each.contains(&true), "{first:?} {second:?} {each:?}");
            }
        }
    }

    #[test]
    fn r_028_neighbours_are_decided_together_as_each_of_them_for_every_owner_and_kind() {
        let mut shard = Shard::default();
        shard.renew_source("src_a", Some(Audience::Tenant)).unwrap();
        shard.renew_source("src_b", None).unwrap();
        for (number, owner) in (0..).zip(["sub_a", "sub_b", "ten_a"]) {
            shard.insert(Entry { owner: owner.to_owned(), ..plain(number, None) }).unwrap();
        }
        let facts = kind_code(Kind::UserFact);
        let kinds = [facts, kind_code(Kind::Reference), TURN, PASSAGE];
        let asked = [KindSet::all(), KindSet::of([Kind::UserFact]), KindSet::of([Kind::Reference])];
        let (mut n_all, mut n_none) = (0, 0);
        for kind_set in asked {
            for (turns, documents) in [(Turns::All, true), (Turns::None, true), (Turns::All, false)] {
                let query = RecallQuery { turns, documents, ..bounded(None, kind_set.clone()) };
                for owner in ["sub_a", "sub_b", "ten_a", "src_a", "src_b"] {
                    for (first, second) in kinds.into_iter().flat_map(|one| kinds.map(|two| (one, two))) {
                        let of = |kind| Row {
                            kind,
                            owner: shard.owners.get(owner).unwrap(),
                            valid_from: 0,
                            ..shard.rows[0].clone()
                        };
                        let (together, each) = told(&shard, &query, &[of(first), of(second)]);
                        let is_each = |wanted| each.iter().all(|passes| *passes == wanted);
                        assert!(together.is_none_or(is_each), "{owner} {first} {second} {each:?}");
                        (n_all, n_none) = (
                            n_all + usize::from(together == Some(true)),
                            n_none + usize::from(together == Some(false)),
                        );
                    }
                }
            }
        }
        assert!(n_all > 50 && n_none > 100, "{n_all} and {n_none} were decided at once");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_that_may_be_wanted_is_dropped_however_many_are_offered(
            offered in proptest::collection::vec((0.0f32..1.0, 0.0f32..0.1), 0..2_000),
            wanted in 1usize..40,
        ) {
            let kept = &SHARD.rows[0];
            let mut best = Best::of(wanted);
            for (total, slack) in &offered {
                best.offer(Scored { total: *total, row: kept, lexical: 0.0, slack: *slack, vector: true });
            }
            let mut sure: Vec<f32> = offered.iter().map(|(total, slack)| total - slack).collect();
            sure.sort_by(|a, b| b.total_cmp(a));
            let least = sure.get(wanted - 1).copied().unwrap_or(f32::NEG_INFINITY);
            let mut possible: Vec<f32> =
                offered.iter().filter(|(total, slack)| total + slack >= least).map(|(total, _)| *total).collect();
            possible.sort_by(|a, b| b.total_cmp(a));
            let found: Vec<f32> = best.end(usize::MAX).iter().map(|scored| scored.total).collect();
            prop_assert_eq!(found, possible);
        }
    }
}
