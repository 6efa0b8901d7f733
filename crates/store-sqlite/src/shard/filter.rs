//! The predicate of a search: scope, kind and time, compiled for one shard, and which rows pass it. Where a whole span
//! of rows can be decided at once, none of its rows is read.

use std::collections::BTreeSet;

use merkwelt_domain::GroupId;
use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::memory::Kind;
use merkwelt_domain::source::Audience;
use merkwelt_store::query::{RecallQuery, Turns};
use merkwelt_store::ranking::VisibleStats;

use crate::rows::kind_code;
use crate::shard::index::{NONE, PASSAGE, Row, Shard, TURN};
use crate::shard::spans::{SPAN, Span, WORD};

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
pub(crate) struct Filter<'q> {
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
    pub(crate) fn new(shard: &Shard, eyes: &Eyes<'_>, query: &'q RecallQuery) -> Self {
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

    pub(crate) fn passes(&self, shard: &Shard, number: u32, row: &Row) -> bool {
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

    /// Whether all living rows of a span pass, or none does; `None` if each has to be asked.
    pub(crate) fn of_all(&self, span: &Span) -> Option<bool> {
        if span.end.highest <= self.now || self.now < span.valid_from.lowest {
            return Some(false);
        }
        let owner = span.owner.only()?;
        let visible = usize::try_from(owner).ok().and_then(|owner| self.visible.get(owner));
        if visible != Some(&true) {
            // INVARIANT: whoever has turns is visible to themselves, so these are no turns of theirs either.
            return Some(false);
        }
        let in_time = span.end.lowest > self.now
            && span.valid_from.highest <= self.now
            && span.written_at.highest <= self.latest
            && span.valid_from.highest < self.interval.1
            && self.interval.0 < span.end.lowest;
        let of_kinds = span.memories() & !self.kinds == 0
            && (!span.has(TURN) || (owner == self.own && self.all_turns))
            && (!span.has(PASSAGE) || self.documents);
        (in_time && of_kinds && self.origin.is_none() && self.metadata.is_empty()).then_some(true)
    }

    fn matches(&self, shard: &Shard, number: u32) -> bool {
        if self.metadata.is_empty() {
            return true;
        }
        let Some(kept) = shard.metadata.get(&number) else { return false };
        self.metadata.iter().all(|(name, value)| kept.get(name) == Some(value))
    }
}

/// Which rows passed the predicate: a bit for each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed(Vec<u64>);

impl Passed {
    pub(crate) fn of(
        shard: &Shard,
        stats: &mut VisibleStats,
        all: impl Fn(&Span) -> Option<bool>,
        passes: impl Fn(u32, &Row) -> bool,
    ) -> Self {
        let mut words = Vec::with_capacity(shard.rows.len() / WORD + 1);
        // Fewer than 2²⁴ rows have a number.
        let firsts = (0_u32..).step_by(SPAN);
        for ((rows, span), first) in shard.rows.chunks(SPAN).zip(shard.spans.iter()).zip(firsts) {
            let of_span = span.alive.iter().take(rows.len().div_ceil(WORD));
            match all(span) {
                Some(true) => {
                    words.extend(of_span);
                    stats.documents = stats.documents.saturating_add(span.living());
                    stats.total_length = stats.total_length.saturating_add(span.length);
                }
                Some(false) => words.extend(of_span.map(|_| 0)),
                None => {
                    for (rows, first) in rows.chunks(WORD).zip((first..).step_by(WORD)) {
                        words.push(Self::word(rows, first, stats, &passes));
                    }
                }
            }
        }
        Self(words)
    }

    fn word(rows: &[Row], first: u32, stats: &mut VisibleStats, passes: &impl Fn(u32, &Row) -> bool) -> u64 {
        let mut word = 0;
        for (bit, (row, number)) in rows.iter().zip(first..).enumerate() {
            if passes(number, row) {
                stats.observe(row.length);
                word |= 1 << bit;
            }
        }
        word
    }

    pub(crate) fn holds(&self, row: u32) -> bool {
        let word = usize::try_from(row).ok().and_then(|row| self.0.get(row / WORD));
        word.is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// The rows of the span that begins with `first`.
    pub(crate) fn list(&self, first: usize, numbers: &mut Vec<usize>) {
        let words = self.0.iter().enumerate().skip(first / WORD).take(SPAN / WORD);
        for (at, word) in words {
            let mut left = *word;
            while left != 0 {
                numbers.push(at * WORD + usize::try_from(left.trailing_zeros()).unwrap_or(0));
                left &= left - 1;
            }
        }
    }
}
