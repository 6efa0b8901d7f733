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
    let mut place = vec![HIDDEN; shard.rows.len()];
    let mut numbers = Vec::new();
    for ((number, row), place) in (0_u32..).zip(&shard.rows).zip(&mut place) {
        if passes(number, row) {
            stats.observe(row.length);
            *place = UNHIT;
            numbers.push(number);
        }
    }
    let lexical = Lexical::of(shard, &QueryTerms::of(query.question.expose()), stats, place);
    let cosines = probe.map(|probe| shard.vectors.cosines(&numbers, probe));
    let fusion = query.vector.as_ref().map(|(_, fusion)| *fusion);
    let (floor, span) = fusion.map_or((1.0, 1.0), |fusion| (fusion.floor, fusion.span.max(f32::EPSILON)));
    let cosines = cosines.into_iter().flatten().chain(std::iter::repeat(None));
    let scored = numbers.iter().zip(cosines).filter_map(|(number, cosine)| {
        let at = usize::try_from(*number).ok()?;
        let row = shard.rows.get(at)?;
        let lexical = lexical.score(at, row.length);
        let total = fuse(lexical, cosine, fusion).total;
        let off = shard.vectors.slack(at);
        // Below the floor a cosine counts nothing, however far off it is.
        let counts = cosine.is_some_and(|cosine| cosine + off > floor);
        let slack = if counts { off / span } else { 0.0 };
        Some(Scored { total, row, lexical, slack, vector: cosine.is_some() })
    });
    let mut scored: Vec<Scored<'_>> = scored.collect();
    let wanted = query.k.get();
    keep_possible(&mut scored, wanted);
    best(&mut scored, if probe.is_some() { RERANK_MAX.max(wanted) } else { wanted });
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

/// Drops what cannot be among the wanted even if every cosine is off as far as it may be.
fn keep_possible(scored: &mut Vec<Scored<'_>>, wanted: usize) {
    let Some(last) = wanted.checked_sub(1).filter(|last| *last < scored.len()) else { return };
    let mut sure: Vec<f32> = scored.iter().map(|scored| scored.total - scored.slack).collect();
    let (_, least, _) = sure.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    scored.retain(|scored| scored.total + scored.slack >= *least);
}

/// A row that did not pass the predicate, and one that passed and has none of the terms.
const HIDDEN: u32 = u32::MAX;
const UNHIT: u32 = u32::MAX - 1;

/// The lexical scores of the rows that passed.
struct Lexical {
    /// By row: [`HIDDEN`], [`UNHIT`], or where its counts stand.
    place: Vec<u32>,
    /// The counts of all terms, for each row that has at least one.
    counts: Vec<u32>,
    width: usize,
    scorer: Scorer,
}

impl Lexical {
    fn of(shard: &Shard, terms: &QueryTerms, stats: VisibleStats, mut place: Vec<u32>) -> Self {
        let mut terms = terms.clone();
        let width = terms.len();
        let mut counts: Vec<u32> = Vec::new();
        let mut found = Vec::with_capacity(width);
        for (term_number, term) in terms.iter().enumerate() {
            let mut documents = 0_u64;
            shard.each_hit(term, |row, count| {
                let place = usize::try_from(row).ok().and_then(|row| place.get_mut(row));
                let Some(place) = place.filter(|place| **place != HIDDEN) else { return };
                documents += 1;
                if *place == UNHIT {
                    // Fewer than 2²⁴ rows have a place.
                    *place = u32::try_from(counts.len() / width.max(1)).unwrap_or(UNHIT);
                    counts.resize(counts.len() + width, 0);
                }
                let at = usize::try_from(*place).unwrap_or(usize::MAX).saturating_mul(width) + term_number;
                if let Some(to) = counts.get_mut(at) {
                    *to = count;
                }
            });
            found.push(documents);
        }
        terms.set_document_frequencies(found);
        let scorer = Scorer::new(stats, &terms);
        Self { place, counts, width, scorer }
    }

    /// The score of a row of `length` terms.
    fn score(&self, row: usize, length: u32) -> f32 {
        let place = self.place.get(row).copied().unwrap_or(HIDDEN);
        if place >= UNHIT {
            return 0.0;
        }
        let at = usize::try_from(place).unwrap_or(usize::MAX).saturating_mul(self.width);
        let frequencies = self.counts.get(at..at.saturating_add(self.width));
        frequencies.map_or(0.0, |frequencies| self.scorer.lexical(frequencies, length))
    }
}

/// Keeps the best in order.
fn best(scored: &mut Vec<Scored<'_>>, wanted: usize) {
    if scored.len() > wanted {
        scored.select_nth_unstable_by(wanted, order);
        scored.truncate(wanted);
    }
    scored.sort_unstable_by(order);
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
