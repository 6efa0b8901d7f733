//! What of a search's hits is worth its tokens. A hit far below the best ones is left out even where there is
//! room, because a pack is to be short, not full. Turns support the turns around them: what was said before and
//! after a good hit goes in as far as the hit is good, so windows grow with the score.
//!
//! The constants do not depend on the embedding model; `docs/quality.md` says on what they were chosen.

use std::collections::BTreeMap;

use merkwelt_domain::ConversationId;
use merkwelt_domain::memory::Kind;
use merkwelt_store::query::Key;
use merkwelt_store::record::{Candidate, Record};

/// How much of its lead over the weakest hit a turn gives to the turns next to it, and to those one further.
const SUPPORT: [f32; 2] = [0.4, 0.2];
/// So many of the best hits say what a good hit is.
const BEST: usize = 5;
/// The share of the mean of the best hits that a turn must reach.
const TURN_SHARE: f32 = 0.6;
/// The same for memories, which are single statements and more precise than talk.
const MEMORY_SHARE: f32 = 0.75;
/// The same for passages of documents. Not tuned: as for turns, which are as loose.
const PASSAGE_SHARE: f32 = 0.6;

type TurnKey = (ConversationId, u32);

/// What is wanted of the hits of one search.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Turns with the score they are wanted by, best first. Some were not hits themselves.
    turns: Vec<(TurnKey, f32)>,
    /// The least score of a memory that matches well, by kind: a state is measured by states, not by facts.
    memory_least: BTreeMap<Kind, f32>,
    /// The same of passages.
    passage_least: f32,
}

impl Selection {
    /// Weighs the hits of a search; at most `n_turns_max` turns are wanted.
    pub(crate) fn of(candidates: &[Candidate], n_turns_max: usize) -> Self {
        let mut turns: BTreeMap<TurnKey, f32> = BTreeMap::new();
        let mut memories: BTreeMap<Kind, Vec<f32>> = BTreeMap::new();
        let mut passages = Vec::new();
        for candidate in candidates {
            match &candidate.record {
                Record::Turn(turn) => {
                    turns.insert((turn.conversation.clone(), turn.number), candidate.scores.total);
                }
                Record::Memory(memory) => {
                    memories.entry(memory.statement.kind()).or_default().push(candidate.scores.total);
                }
                Record::Passage(_) => passages.push(candidate.scores.total),
            }
        }
        let least = turns.values().copied().fold(f32::INFINITY, f32::min).max(0.0);
        let matching = turns.iter().filter(|(_, total)| **total > 0.0);
        let mut supported: BTreeMap<TurnKey, f32> = BTreeMap::new();
        for ((conversation, number), total) in matching {
            let lead = total - least;
            let mut give = |number: Option<u32>, share: f32| {
                if let Some(number) = number.filter(|number| *number > 0) {
                    *supported.entry((conversation.clone(), number)).or_insert(least) += share * lead;
                }
            };
            give(Some(*number), 1.0);
            for (step, share) in (1..).zip(SUPPORT) {
                give(number.checked_sub(step), share);
                give(number.checked_add(step), share);
            }
        }
        let mut turns: Vec<_> = supported.into_iter().collect();
        // Best first, then newest.
        turns.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| b.cmp(a)));
        let good = TURN_SHARE * mean_of_best(turns.iter().map(|(_, total)| *total));
        turns.retain(|(_, total)| *total >= good && *total > 0.0);
        turns.truncate(n_turns_max);
        let least = |(kind, totals)| (kind, MEMORY_SHARE * mean_of_best(totals));
        let memory_least = memories.into_iter().map(least).collect();
        Self { turns, memory_least, passage_least: PASSAGE_SHARE * mean_of_best(passages) }
    }

    /// The keys of wanted turns that are not among the hits.
    pub(crate) fn missing(&self, candidates: &[Candidate]) -> Vec<Key> {
        self.turns
            .iter()
            .filter(|((conversation, number), _)| !is_among(candidates, conversation, *number))
            .map(|((conversation, number), _)| Key::Turn(conversation.clone(), *number))
            .collect()
    }

    /// The score a record is wanted by; `None` if it is not worth its tokens.
    pub(crate) fn wants(&self, record: &Record, total: f32) -> Option<f32> {
        match record {
            Record::Memory(memory) => {
                let least = self.memory_least.get(&memory.statement.kind()).copied().unwrap_or(0.0);
                (total > 0.0 && total >= least).then_some(total)
            }
            Record::Passage(_) => (total > 0.0 && total >= self.passage_least).then_some(total),
            Record::Turn(turn) => self
                .turns
                .iter()
                .find(|((conversation, number), _)| {
                    *conversation == turn.conversation && *number == turn.number
                })
                .map(|(_, wanted)| *wanted),
        }
    }
}

fn is_among(candidates: &[Candidate], conversation: &ConversationId, number: u32) -> bool {
    candidates.iter().any(|candidate| match &candidate.record {
        Record::Turn(turn) => turn.number == number && turn.conversation == *conversation,
        Record::Memory(_) | Record::Passage(_) => false,
    })
}

/// The mean of the best scores of a list that is sorted, best first.
fn mean_of_best(totals: impl IntoIterator<Item = f32>) -> f32 {
    let (sum, n) = totals.into_iter().take(BEST).fold((0.0, 0.0), |(sum, n), total| (sum + total, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}
