//! Choosing what goes into the budget. Rules always go in; facts and the last turns have a share; the rest
//! is filled best first. The budget is kept exactly: the finished text is counted, and lines go out again
//! until it fits.

use std::collections::BTreeMap;

use merkwelt_domain::Timestamp;
use merkwelt_domain::basis::{Basis, Footing};
use merkwelt_inference::TokenCounter;
use merkwelt_inference::rerank::{Score, order};
use merkwelt_store::record::{Record, Scores};

use super::render::{Section, Shown, block, note};
use crate::footing::Footings;
use crate::record::{Delivered, Outgoing};

/// Why a line is in. Closed words of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// All rules in scope are delivered.
    Rule,
    /// The newest facts form the stable prefix.
    Fact,
    /// It matches the question.
    Ranked,
    /// It is the newest live state; nothing matched better.
    Recent,
    /// It stands next to a turn that matches.
    Neighbour,
    /// It is one of the last turns.
    LastTurn,
    /// It is the summary of the conversation.
    Summary,
}

impl Why {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Fact => "fact",
            Self::Ranked => "ranked",
            Self::Recent => "recent",
            Self::Neighbour => "neighbour",
            Self::LastTurn => "last_turn",
            Self::Summary => "summary",
        }
    }
}

/// A line that may go in.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) section: Section,
    pub(crate) why: Why,
    pub(crate) out: Outgoing,
    pub(crate) scores: Option<Scores>,
    /// What the reranker gave it.
    pub(crate) given: Option<Score>,
    pub(crate) footings: Vec<(Basis, Footing)>,
    /// What the text says of its footings.
    pub(crate) note: Option<String>,
    pub(crate) tokens: u32,
    /// What it takes of the room.
    pub(crate) cost: u32,
}

/// Bytes that a token stands for at most. A text with more of them, such as one of blanks, takes the room of its
/// bytes: what is written and counted for a pack is bounded by its budget.
const BYTES_PER_TOKEN: usize = 16;

/// What a line takes of the room.
fn cost(line: &str, tokens: u32) -> u32 {
    tokens.max(u32::try_from(line.len() / BYTES_PER_TOKEN).unwrap_or(u32::MAX))
}

/// What a fact would take of the room, as far as is known before a pack is made.
pub(crate) fn cost_of_fact(fact: &Record, (as_of, counter): (Timestamp, &dyn TokenCounter)) -> u32 {
    let line = super::render::line(Section::Facts, Shown { record: fact, note: None }, as_of);
    cost(&line, counter.count(&line))
}

impl Line {
    pub(crate) fn new(
        section: Section,
        why: Why,
        record: Delivered,
        scores: Option<Scores>,
        found: &Footings,
        (as_of, counter): (Timestamp, &dyn TokenCounter),
    ) -> Self {
        let footings = found.of_record(record.record());
        let note = note(&footings);
        let shown = Shown { record: record.record(), note: note.as_deref() };
        let text = super::render::line(section, shown, as_of);
        let tokens = counter.count(&text);
        let cost = cost(&text, tokens);
        let out = Outgoing { record, score: scores.map(|s| s.total) };
        Self { section, why, out, scores, given: None, footings, note, tokens, cost }
    }

    /// Whether the line shows this record.
    pub(crate) fn shows(&self, record: &Record) -> bool {
        same_record(self.out.record.record(), record)
    }
}

/// What may go in, by right of entry.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// All of them go in.
    pub(crate) rules: Vec<Line>,
    /// Newest first; no more than [`Room`] holds, and one.
    pub(crate) facts: Vec<Line>,
    /// How many facts there are beside.
    pub(crate) n_more_facts: usize,
    /// It goes in after the last turns, if there is room.
    pub(crate) summary: Option<Line>,
    /// Newest first.
    pub(crate) last_turns: Vec<Line>,
    /// Best first.
    pub(crate) ranked: Vec<Line>,
}

/// What went in, in the order of the text, and what did not for want of room.
#[derive(Debug, Default)]
pub(crate) struct Fitted {
    pub(crate) lines: Vec<Line>,
    pub(crate) left_out: Vec<Line>,
    /// Facts for which there was no room in their share.
    pub(crate) n_beyond_share: usize,
    pub(crate) rules: String,
    pub(crate) facts: String,
    pub(crate) turn: String,
    /// The tokens of the rules, of the facts, of the turn.
    pub(crate) parts: [u32; 3],
    pub(crate) tokens: u32,
}

impl Fitted {
    /// The places of the lines whose order is that of the ranking, in the order of the text.
    pub(crate) fn ranked(&self) -> Vec<usize> {
        let is_ranked = |line: &Line| line.why == Why::Ranked && line.section != Section::EarlierTurns;
        self.lines.iter().enumerate().filter(|(_, line)| is_ranked(line)).map(|(at, _)| at).collect()
    }

    /// How many lines there was no room for, and in what.
    pub(crate) fn n_left_out(&self) -> BTreeMap<(Section, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for line in &self.left_out {
            *counts.entry((line.section, "budget")).or_insert(0) += 1;
        }
        if self.n_beyond_share > 0 {
            counts.insert((Section::Facts, "share"), self.n_beyond_share);
        }
        counts
    }

    /// The same lines with those at the first `places` in the order of `scores`, section by section; only that is
    /// written anew. `None` if there is nothing to order.
    pub(crate) fn reordered(
        &self,
        places: &[usize],
        scores: &[Option<Score>],
        (as_of, counter): (Timestamp, &dyn TokenCounter),
    ) -> Option<Self> {
        let mut lines = self.lines.clone();
        for (at, score) in places.iter().zip(scores) {
            lines.get_mut(*at)?.given = *score;
        }
        let scored = lines.clone();
        for section in Section::TURN {
            let of_section = |at: &&usize| scored.get(**at).is_some_and(|line| line.section == section);
            let of: Vec<usize> = places.iter().take(scores.len()).filter(of_section).copied().collect();
            let given: Vec<_> = of.iter().map(|at| scored.get(*at).and_then(|line| line.given)).collect();
            for (to, from) in of.iter().zip(order(&given)) {
                *lines.get_mut(*to)? = scored.get(*of.get(from)?)?.clone();
            }
        }
        let turn = block(Section::TURN.map(|section| (section, records(&lines, section))), as_of);
        let [of_rules, of_facts, _] = self.parts;
        let parts = [of_rules, of_facts, counter.count(&turn)];
        let (rules, facts, left_out) = (self.rules.clone(), self.facts.clone(), self.left_out.clone());
        let (n_beyond_share, tokens) = (self.n_beyond_share, parts.iter().sum());
        Some(Self { lines, left_out, n_beyond_share, rules, facts, turn, parts, tokens })
    }
}

/// Marks and headings of a block cost about this much.
const FRAME: u32 = 24;
/// Tenths of what the rules leave that facts may use. It depends on budget and rules only, so that the
/// prefix stays the same from turn to turn.
const FACTS_TENTHS: u32 = 4;
/// Tenths of what the rules leave that the last turns may use at first.
const TURNS_TENTHS: u32 = 3;

/// Marks of days and of gaps between earlier turns cost about this much per turn.
const JOINT: u32 = 2;

/// The most tokens that facts can have in a pack of `budget` tokens, whatever the rules take.
pub(crate) fn facts_room(budget: u32) -> u32 {
    budget.saturating_mul(FACTS_TENTHS) / 10
}

/// How much of a room is taken. A fact that is larger than the room counts for a quarter of it, so that a few of them do not
/// keep the others out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    size: u32,
    taken: u32,
}

impl Room {
    pub(crate) fn of(size: u32) -> Self {
        Self { size, taken: 0 }
    }

    pub(crate) fn take(&mut self, cost: u32) {
        let taken = if cost > self.size { self.size / 4 + 1 } else { cost };
        self.taken = self.taken.saturating_add(taken);
    }

    /// Whether facts that cost so much fill it.
    pub(crate) fn filled_by(mut self, costs: &[u32]) -> bool {
        costs.iter().for_each(|cost| self.take(*cost));
        self.is_full()
    }

    /// Whether older facts need not be looked at.
    pub(crate) fn is_full(self) -> bool {
        self.taken > self.size
    }
}

/// Fits an offer into `budget` tokens, for a pack of time `as_of`.
///
/// # Errors
/// The tokens that the rules alone need, if that is more than the budget.
pub(crate) fn fit(
    budget: u32,
    offer: Offer,
    (as_of, counter): (Timestamp, &dyn TokenCounter),
) -> Result<Fitted, u32> {
    let rules = block([(Section::Rules, records(&offer.rules, Section::Rules))], as_of);
    let rules_tokens = counter.count(&rules);
    let Some(rest) = budget.checked_sub(rules_tokens) else { return Err(rules_tokens) };

    let facts_share = facts_room(rest).saturating_sub(FRAME);
    let (facts, beyond_share) = take_what_fits(offer.facts, facts_share);
    let (mut left_out, n_beyond_share) = (Vec::new(), beyond_share.len() + offer.n_more_facts);
    let facts_cost = facts.iter().map(|l| l.cost).sum::<u32>() + if facts.is_empty() { 0 } else { FRAME };

    let mut room = rest.saturating_sub(facts_cost).saturating_sub(2 * FRAME);
    let turns_share = (rest.saturating_mul(TURNS_TENTHS) / 10).min(room);
    let (turns, older_turns) = take_while_room(offer.last_turns, turns_share);
    room = room.saturating_sub(turns.iter().map(|l| l.cost).sum());
    let mut chosen = turns;

    for line in offer.summary.into_iter().chain(offer.ranked) {
        if contains(&chosen, &line) || contains(&facts, &line) {
            continue;
        }
        let joint = if line.section == Section::EarlierTurns { JOINT } else { 0 };
        if line.cost.saturating_add(joint) <= room {
            room -= line.cost + joint;
            chosen.push(line);
        } else {
            left_out.push(line);
        }
    }
    let (more_turns, dropped_turns) = take_while_room(older_turns, room);
    chosen.extend(more_turns.into_iter().filter(|line| !is_delivered(&left_out, line)));
    left_out.extend(dropped_turns);
    let settled = settle(budget, offer.rules, facts, chosen, left_out, (as_of, counter));
    Ok(Fitted { n_beyond_share, ..settled })
}

/// Writes the text, counts it, and takes lines out until it fits: the turn's own lines from the least
/// wanted on, then the oldest facts.
fn settle(
    budget: u32,
    rules: Vec<Line>,
    mut facts: Vec<Line>,
    mut chosen: Vec<Line>,
    mut left_out: Vec<Line>,
    (as_of, counter): (Timestamp, &dyn TokenCounter),
) -> Fitted {
    let rules_text = block([(Section::Rules, records(&rules, Section::Rules))], as_of);
    let of_rules = counter.count(&rules_text);
    let written_facts = |facts: &[Line]| {
        let ordered = in_order(facts);
        let text = block([(Section::Facts, records(&ordered, Section::Facts))], as_of);
        let tokens = counter.count(&text);
        (ordered, text, tokens)
    };
    let (mut ordered_facts, mut facts_text, mut of_facts) = written_facts(&facts);
    loop {
        let ordered = in_order(&chosen);
        let turn = block(Section::TURN.map(|s| (s, records(&ordered, s))), as_of);
        let parts = [of_rules, of_facts, counter.count(&turn)];
        let tokens = parts.iter().sum();
        if tokens <= budget {
            let lines = rules.into_iter().chain(ordered_facts).chain(ordered).collect();
            let (rules, facts) = (rules_text, facts_text);
            return Fitted { lines, left_out, rules, facts, turn, parts, tokens, ..Fitted::default() };
        }
        if let Some(line) = chosen.pop() {
            left_out.push(line);
        } else if let Some(line) = facts.pop() {
            left_out.push(line);
            (ordered_facts, facts_text, of_facts) = written_facts(&facts);
        } else {
            // Only the rules are left, and they fit: they were counted before.
            return Fitted { lines: rules, left_out, rules: rules_text, parts, tokens, ..Fitted::default() };
        }
    }
}

fn take_while_room(lines: Vec<Line>, room: u32) -> (Vec<Line>, Vec<Line>) {
    let mut used = 0u32;
    let mut full = false;
    lines.into_iter().partition(|line| {
        full = full || used.saturating_add(line.cost) > room;
        if !full {
            used += line.cost;
        }
        !full
    })
}

/// The lines for which there is room, one after the other: a large one does not keep out those behind it.
fn take_what_fits(lines: Vec<Line>, mut room: u32) -> (Vec<Line>, Vec<Line>) {
    lines.into_iter().partition(|line| match room.checked_sub(line.cost) {
        Some(rest) => {
            room = rest;
            true
        }
        None => false,
    })
}

fn contains(lines: &[Line], line: &Line) -> bool {
    lines.iter().any(|other| other.shows(line.out.record.record()))
}

fn is_delivered(lines: &[Line], line: &Line) -> bool {
    lines.iter().any(|other| other.section == line.section && other.shows(line.out.record.record()))
}

fn same_record(a: &Record, b: &Record) -> bool {
    use merkwelt_store::record::Record::{Memory, Passage, Turn};
    match (a, b) {
        (Memory(a), Memory(b)) => a.id == b.id,
        (Turn(a), Turn(b)) => a.conversation == b.conversation && a.number == b.number,
        (Passage(a), Passage(b)) => a.id == b.id,
        (Memory(_), Turn(_) | Passage(_))
        | (Turn(_), Memory(_) | Passage(_))
        | (Passage(_), Memory(_) | Turn(_)) => false,
    }
}

fn records(lines: &[Line], section: Section) -> Vec<Shown<'_>> {
    let of_section = lines.iter().filter(|line| line.section == section);
    of_section.map(|line| Shown { record: line.out.record.record(), note: line.note.as_deref() }).collect()
}

/// By section; inside a section ranked lines keep their order, and what has a place in time (facts of the
/// prefix, turns) stands in that order.
fn in_order(lines: &[Line]) -> Vec<Line> {
    let mut ordered = lines.to_vec();
    ordered.sort_by(|a, b| a.section.cmp(&b.section).then_with(|| time_order(a, b)));
    ordered
}

fn time_order(a: &Line, b: &Line) -> std::cmp::Ordering {
    use merkwelt_store::record::Record::{Memory, Turn};
    match (a.out.record.record(), b.out.record.record()) {
        (Turn(a), Turn(b)) => a.number.cmp(&b.number),
        (Memory(x), Memory(y)) if a.section == Section::Facts => {
            x.written_at.cmp(&y.written_at).then_with(|| x.id.cmp(&y.id))
        }
        _ => std::cmp::Ordering::Equal,
    }
}
