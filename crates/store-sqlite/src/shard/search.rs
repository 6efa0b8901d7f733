//! The search in a shard: first the predicate of scope, kind and time, then ranking over what passed it. A
//! hit is a key and scores, never content; the record decides (I-3).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use merkwelt_domain::GroupId;
use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::memory::Kind;
use merkwelt_domain::source::Audience;
use merkwelt_store::Error;
use merkwelt_store::query::{RecallQuery, Turns};
use merkwelt_store::ranking::{QueryTerms, Scorer, VisibleStats, fuse};

use crate::rows::kind_code;
use crate::shard::index::{NONE, PASSAGE, Row, Shard, TURN};
use crate::shard::postings::Hits;
use crate::shard::vectors::Probe;

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

/// Who looks, as the snapshot knows it.
pub(crate) struct Eyes<'e> {
    pub(crate) subject: Option<&'e str>,
    pub(crate) groups: &'e BTreeSet<GroupId>,
    pub(crate) tenant: &'e str,
}

impl Eyes<'_> {
    /// Whether they belong to an audience: everybody, or a present member of one of its groups.
    fn are_of(&self, audience: &Audience) -> bool {
        match audience {
            Audience::Tenant => true,
            Audience::Groups(groups) => !groups.is_disjoint(self.groups),
        }
    }
}

/// The predicate, compiled for one shard.
struct Filter<'q> {
    /// By owner number.
    visible: Vec<bool>,
    own: u32,
    kinds: u32,
    turns: Option<u32>,
    all_turns: bool,
    documents: bool,
    origin: Option<u32>,
    metadata: &'q [(String, serde_json::Value)],
    now: i64,
    latest: i64,
    interval: (i64, i64),
}

impl<'q> Filter<'q> {
    fn new(shard: &Shard, eyes: &Eyes<'_>, query: &'q RecallQuery) -> Self {
        let mut visible = vec![false; shard.owners.len()];
        let names =
            eyes.groups.iter().map(GroupId::as_str).chain(eyes.subject).chain(std::iter::once(eyes.tenant));
        for number in names.filter_map(|name| shard.owners.get(name)) {
            if let Some(flag) = usize::try_from(number).ok().and_then(|at| visible.get_mut(at)) {
                *flag = true;
            }
        }
        let documents = query.documents && query.metadata.is_empty() && query.conversation.is_none();
        let shown = shard.audiences.iter().filter(|(_, audience)| documents && eyes.are_of(audience));
        for (number, _) in shown {
            if let Some(flag) = usize::try_from(*number).ok().and_then(|at| visible.get_mut(at)) {
                *flag = true;
            }
        }
        let conversation = |id: &merkwelt_domain::ConversationId| {
            // A conversation that no row came from matches none.
            shard.conversations.get(id.as_str()).unwrap_or(NONE - 1)
        };
        let rankable = query.kinds.clone().rankable();
        let now = query.now.millis();
        Self {
            visible,
            own: eyes.subject.and_then(|subject| shard.owners.get(subject)).unwrap_or(NONE),
            kinds: rankable.iter().fold(0, |mask, kind: Kind| mask | 1 << kind_code(kind)),
            turns: if let Turns::Of(id) = &query.turns { Some(conversation(id)) } else { None },
            all_turns: query.turns == Turns::All,
            documents,
            origin: query.conversation.as_ref().map(conversation),
            metadata: &query.metadata,
            now,
            latest: now.saturating_add(SKEW_MILLIS),
            interval: query
                .interval
                .map_or((i64::MIN, i64::MAX), |asked| (asked.from().millis(), asked.until().millis())),
        }
    }

    fn passes(&self, shard: &Shard, number: u32, row: &Row) -> bool {
        // The same window as `freshness::admit`.
        if row.dead
            || row.end <= self.now
            || self.now < row.valid_from
            || row.written_at > self.latest
            || row.valid_from >= self.interval.1
            || self.interval.0 >= row.end
        {
            return false;
        }
        if row.kind == TURN {
            // Turns are their subject's and nobody else's, and have no metadata.
            return row.owner == self.own
                && (self.all_turns || self.turns == Some(row.conversation))
                && self.metadata.is_empty();
        }
        let visible = usize::try_from(row.owner).ok().and_then(|owner| self.visible.get(owner));
        if row.kind == PASSAGE {
            return self.documents && visible == Some(&true);
        }
        visible == Some(&true)
            && self.kinds & (1 << row.kind) != 0
            && self.origin.is_none_or(|origin| origin == row.conversation)
            && self.matches(shard, number)
    }

    fn matches(&self, shard: &Shard, number: u32) -> bool {
        if self.metadata.is_empty() {
            return true;
        }
        let Some(kept) = shard.metadata.get(&number) else { return false };
        self.metadata.iter().all(|(name, value)| kept.get(name) == Some(value))
    }
}

/// Searches. With a probe more rows than `k` come back, because its cosines are approximate.
pub(crate) fn search(
    shard: &Shard,
    eyes: &Eyes<'_>,
    query: &RecallQuery,
    probe: Option<&Probe>,
) -> Result<Proposals, Error> {
    let filter = Filter::new(shard, eyes, query);
    search_where(shard, query, probe, |number, row| filter.passes(shard, number, row))
}

/// Searches among the rows that pass.
pub(crate) fn search_where(
    shard: &Shard,
    query: &RecallQuery,
    probe: Option<&Probe>,
    passes: impl Fn(u32, &Row) -> bool,
) -> Result<Proposals, Error> {
    let mut stats = VisibleStats::default();
    let passed = Passed::of(&shard.rows, &mut stats, passes);
    let mut lexical = Lexical::of(shard, QueryTerms::of(query.question.expose()), stats, &passed);
    let fusion = query.vector.as_ref().map(|(_, fusion)| *fusion);
    let (floor, span) = fusion.map_or((1.0, 1.0), |fusion| (fusion.floor, fusion.span.max(f32::EPSILON)));
    let wanted = query.k.get();
    let mut best = Best::of(wanted);
    let (mut numbers, mut cosines) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    for first in (0..shard.rows.len()).step_by(BLOCK) {
        numbers.clear();
        passed.list(first, &mut numbers);
        lexical.count(first);
        cosines.clear();
        match probe {
            Some(probe) => shard.vectors.cosines(&numbers, probe, &mut cosines),
            None => cosines.resize(numbers.len(), None),
        }
        for (at, cosine) in numbers.iter().zip(&cosines) {
            let Some(row) = shard.rows.get(*at) else { continue };
            let lexical = lexical.score(at - first, row);
            let total = fuse(lexical, *cosine, fusion).total;
            let off = shard.vectors.slack(*at);
            // Below the floor a cosine counts nothing, however far off it is.
            let counts = cosine.is_some_and(|cosine| cosine + off > floor);
            let slack = if counts { off / span } else { 0.0 };
            best.offer(Scored { total, row, lexical, slack, vector: cosine.is_some() });
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

/// Rows that are scored together. What is needed of them stays in the nearest cache, and nothing that a search
/// sets aside grows with the number of rows but a bit for each.
const BLOCK: usize = 512;
/// Rows that share a word of [`Passed`].
const WORD: usize = 64;

/// Which rows passed the predicate: a bit for each.
struct Passed(Vec<u64>);

impl Passed {
    fn of(rows: &[Row], stats: &mut VisibleStats, passes: impl Fn(u32, &Row) -> bool) -> Self {
        let mut words = Vec::with_capacity(rows.len() / WORD + 1);
        // Fewer than 2²⁴ rows have a number.
        let mut numbers = 0_u32..;
        for rows in rows.chunks(WORD) {
            let mut word = 0_u64;
            for (bit, (row, number)) in rows.iter().zip(&mut numbers).enumerate() {
                if passes(number, row) {
                    stats.observe(row.length);
                    word |= 1 << bit;
                }
            }
            words.push(word);
        }
        Self(words)
    }

    fn holds(&self, row: u32) -> bool {
        let word = usize::try_from(row).ok().and_then(|row| self.0.get(row / WORD));
        word.is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// The rows of the block that begins with `first`.
    fn list(&self, first: usize, numbers: &mut Vec<usize>) {
        let words = self.0.iter().enumerate().skip(first / WORD).take(BLOCK / WORD);
        for (at, word) in words {
            let mut left = *word;
            while left != 0 {
                numbers.push(at * WORD + usize::try_from(left.trailing_zeros()).unwrap_or(0));
                left &= left - 1;
            }
        }
    }
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
        let full = wanted.saturating_mul(4).max(BLOCK / 4);
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
    hit: [bool; BLOCK],
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
            counts: vec![0; hits.len() * BLOCK],
            left: hits.into_iter().map(Iterator::peekable).collect(),
            hit: [false; BLOCK],
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
                |row: u32| usize::try_from(row).ok().and_then(|row| row.checked_sub(first)).unwrap_or(BLOCK);
            while let Some((row, count)) = hits.next_if(|(row, _)| of_block(*row) < BLOCK) {
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
        .then_with(|| a.row.key.cmp(&b.row.key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    use merkwelt_domain::memory::Kind;
    use merkwelt_domain::{Content, Timestamp};
    use merkwelt_store::query::{Fusion, KindSet, ModelId, TopK, Vector};
    use merkwelt_store::ranking::cosine;
    use proptest::prelude::*;

    use super::*;
    use crate::shard::Term;
    use crate::shard::index::{Entry, RowKey};
    use crate::terms;

    const ROWS: u32 = 1_500;
    static SHARD: LazyLock<Shard> = LazyLock::new(shard);

    fn key(number: u32) -> RowKey {
        (*b"aaaaaaaaaaaaaaaaaaaaaaaaaa", number)
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
            let entry = Entry {
                key: key(number),
                seq: i64::from(number),
                revision: 1,
                owner: "sub_a".to_owned(),
                kind: kind_code(Kind::UserFact),
                conversation: None,
                valid_from: 0,
                end: i64::MAX,
                written_at: i64::from(number),
                terms,
                metadata: None,
                vector: vector.as_ref().map(<[f32; 16]>::as_slice),
            };
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
                let found = search_where(&SHARD, &query, probe.as_ref(), |number, _| passes(number)).unwrap();
                let all = scanned(&query, passes);
                assert_eq!(found.considered, all.len() as u64);
                for proposal in &found.rows {
                    assert_eq!(proposal.lexical, all[&proposal.row.key.1].0);
                }
                let mut ranked: Vec<(f32, u32)> =
                    all.iter().map(|(row, (_, total))| (*total, *row)).collect();
                ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
                let proposed: Vec<u32> = found.rows.iter().map(|proposal| proposal.row.key.1).collect();
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
