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
    let mut stats = VisibleStats::default();
    let mut passed = vec![NONE; shard.rows.len()];
    let mut rows: Vec<(u32, &Row)> = Vec::new();
    for ((number, row), slot) in (0_u32..).zip(&shard.rows).zip(&mut passed) {
        if filter.passes(shard, number, row) {
            stats.observe(row.length);
            *slot = u32::try_from(rows.len()).map_err(|_| Error::Unavailable)?;
            rows.push((number, row));
        }
    }
    let lexical = lexical(shard, &QueryTerms::of(query.question.expose()), stats, &passed, &rows);
    let fusion = query.vector.as_ref().map(|(_, fusion)| *fusion);
    let (floor, span) = fusion.map_or((1.0, 1.0), |fusion| (fusion.floor, fusion.span.max(f32::EPSILON)));
    let mut scored: Vec<Scored<'_>> = rows
        .iter()
        .zip(lexical)
        .map(|((number, row), lexical)| {
            let at = usize::try_from(*number).unwrap_or(usize::MAX);
            let cosine = probe.and_then(|probe| shard.vectors.cosine(at, probe));
            let total = fuse(lexical, cosine, fusion).total;
            let off = shard.vectors.slack(at);
            // Below the floor a cosine counts nothing, however far off it is.
            let counts = cosine.is_some_and(|cosine| cosine + off > floor);
            let slack = if counts { off / span } else { 0.0 };
            Scored { total, row, lexical, slack, vector: cosine.is_some() }
        })
        .collect();
    let wanted = query.k.get();
    best(&mut scored, if probe.is_some() { RERANK_MAX.max(wanted) } else { wanted });
    keep_possible(&mut scored, wanted);
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
    let mut sure: Vec<f32> = scored.iter().map(|scored| scored.total - scored.slack).collect();
    sure.sort_unstable_by(|a, b| b.total_cmp(a));
    if let Some(least) = wanted.checked_sub(1).and_then(|last| sure.get(last)) {
        scored.retain(|scored| scored.total + scored.slack >= *least);
    }
}

/// The lexical score of every passed row, in their order.
fn lexical(
    shard: &Shard,
    terms: &QueryTerms,
    stats: VisibleStats,
    passed: &[u32],
    rows: &[(u32, &Row)],
) -> Vec<f32> {
    let mut terms = terms.clone();
    let width = terms.len();
    // Row by row the counts of all terms; only for rows that have at least one.
    let mut counts: Vec<u32> = Vec::new();
    let mut place = vec![NONE; rows.len()];
    let mut found = Vec::with_capacity(width);
    for (term_number, term) in terms.iter().enumerate() {
        let mut documents = 0_u64;
        shard.each_hit(term, |row, count| {
            let slot = usize::try_from(row).ok().and_then(|row| passed.get(row)).copied().unwrap_or(NONE);
            let Some(slot) = usize::try_from(slot).ok().and_then(|slot| place.get_mut(slot)) else { return };
            documents += 1;
            if *slot == NONE {
                *slot = u32::try_from(counts.len() / width.max(1)).unwrap_or(NONE);
                counts.resize(counts.len() + width, 0);
            }
            let at = usize::try_from(*slot).unwrap_or(usize::MAX).saturating_mul(width) + term_number;
            if let Some(to) = counts.get_mut(at) {
                *to = count;
            }
        });
        found.push(documents);
    }
    terms.set_document_frequencies(found);
    let scorer = Scorer::new(stats, &terms);
    let score = |(slot, (_, row)): (&u32, &(u32, &Row))| {
        let at = usize::try_from(*slot).unwrap_or(usize::MAX).saturating_mul(width);
        let frequencies = if *slot == NONE { None } else { counts.get(at..at + width) };
        frequencies.map_or(0.0, |frequencies| scorer.lexical(frequencies, row.length))
    };
    place.iter().zip(rows).map(score).collect()
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
