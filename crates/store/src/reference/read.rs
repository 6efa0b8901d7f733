//! Reading by key and in pages: what is visible and current, by full scans.

use merkwelt_domain::conversation::Turn;
use merkwelt_domain::freshness::{Evidence as _, Standing, admit};
use merkwelt_domain::memory::{Expiry, Kind, Memory};
use merkwelt_domain::source::Passage;
use merkwelt_domain::{ConversationId, Interval, MemoryId, SubjectId, TenantId, Timestamp};

use super::rows::{ConversationRow, State};
use super::view::View;
use crate::error::Error;
use crate::query::{Cursor, Key, Listing, ScanQuery};
use crate::record::{FlatCost, Found, Listed, Page};

impl State {
    /// The latest revision of a memory, whatever became of it.
    pub(super) fn latest(&self, tenant: &TenantId, id: &MemoryId) -> Option<&Memory> {
        let revisions = self.memories.iter().filter(|row| row.tenant == *tenant && row.memory.id == *id);
        revisions.map(|row| &row.memory).max_by_key(|memory| memory.revision)
    }

    /// The conversation, if it is the subject's of the request.
    pub(super) fn own_conversation(&self, view: &View, id: &ConversationId) -> Option<&ConversationRow> {
        self.conversations
            .iter()
            .find(|row| row.conversation.id == *id && view.owns(&row.tenant, &row.conversation.owner))
    }

    /// Everything current that may be seen.
    fn current<'s>(
        &'s self,
        view: &'s View,
        now: Timestamp,
        interval: Option<Interval>,
    ) -> impl Iterator<Item = &'s Memory> + 's {
        self.memories
            .iter()
            .filter(|row| view.sees(&row.tenant, &row.memory.owner))
            .map(|row| &row.memory)
            .filter(move |memory| is_current(memory, now, interval))
    }

    fn current_turns<'s>(
        &'s self,
        view: &'s View,
        id: &'s ConversationId,
        now: Timestamp,
        interval: Option<Interval>,
    ) -> impl Iterator<Item = &'s Turn> + 's {
        self.turns
            .iter()
            .filter(move |row| row.turn.conversation == *id && view.owns(&row.tenant, &row.owner))
            .map(|row| &row.turn)
            .filter(move |turn| admit((*turn).clone(), now, interval).is_ok())
    }

    fn n_turns(&self, view: &View, id: &ConversationId, now: Timestamp) -> u32 {
        u32::try_from(self.current_turns(view, id, now, None).count()).unwrap_or(u32::MAX)
    }
}

/// Whether a revision may be served as current.
pub(super) fn is_current(memory: &Memory, now: Timestamp, interval: Option<Interval>) -> bool {
    admit(memory.clone(), now, interval).is_ok()
}

fn has_ended(memory: &Memory, now: Timestamp) -> bool {
    memory.validity().end().is_some_and(|end| end <= now)
}

/// Whether a citation of the passage may be resolved: it is current, or was until another took its place.
fn is_citable(passage: &Passage, now: Timestamp) -> bool {
    let ended = passage.validity().end().is_some_and(|end| end <= now);
    !ended && matches!(passage.standing, Standing::Active | Standing::Superseded { .. })
}

/// What a key finds.
pub(super) fn find(state: &State, view: &View, key: &Key, now: Timestamp) -> Option<Found> {
    match key {
        Key::Memory(id) => {
            state.current(view, now, None).find(|memory| memory.id == *id).cloned().map(Found::Memory)
        }
        Key::MemoryAt(id, revision) => state
            .memories
            .iter()
            .filter(|row| view.sees(&row.tenant, &row.memory.owner))
            .map(|row| &row.memory)
            .find(|memory| memory.id == *id && memory.revision == *revision)
            .filter(|memory| !has_ended(memory, now))
            .filter(|memory| !matches!(memory.standing, Standing::Restricted { .. }))
            .cloned()
            .map(Found::Memory),
        Key::Conversation(id) => state
            .own_conversation(view, id)
            .map(|row| Found::Conversation(row.conversation.clone(), state.n_turns(view, id, now))),
        Key::Turn(id, number) => state
            .current_turns(view, id, now, None)
            .find(|turn| turn.number == *number)
            .cloned()
            .map(Found::Turn),
        Key::Summary { of, approved } => state
            .current_turns(view, of, now, None)
            .filter(|turn| turn.summary.as_ref().is_some_and(|summary| summary.approved() || !approved))
            .max_by_key(|turn| turn.number)
            .cloned()
            .map(Found::Turn),
        Key::Pack(id) => state
            .packs
            .iter()
            .find(|row| row.tenant == view.tenant && row.owner == view.subject && row.pack.id == *id)
            .filter(|row| now < row.pack.expires_at)
            .map(|row| Found::Pack(row.pack.clone())),
        Key::Passage(id) => state
            .current_passages(view, now, None)
            .find(|shown| shown.passage.id == *id)
            .map(|shown| Found::Passage(shown.passage)),
        Key::PassageAt(id) => state
            .passages(view)
            .find(|shown| shown.passage.id == *id)
            .filter(|shown| is_citable(&shown.passage, now))
            .map(|shown| Found::Passage(shown.passage)),
        Key::Source(id) => state.head(view, id, now).map(Found::Source),
    }
}

/// Where a listed record stands: listings are sorted by this, smallest first.
type Position = (i64, String);

/// One page.
pub(super) fn scan(state: &State, view: &View, query: &ScanQuery) -> Result<Page, Error> {
    let mut rows = listed(state, view, query)?;
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let tag = listing_tag(view.subject.as_ref(), query);
    if let Some(cursor) = &query.after {
        let after = parse_cursor(cursor, &tag)?;
        rows.retain(|(position, _)| *position > after);
    }
    let more = rows.len() > query.limit.get();
    rows.truncate(query.limit.get());
    let next = match rows.last() {
        Some((position, _)) if more => Some(write_cursor(&tag, position)?),
        Some(_) | None => None,
    };
    Ok(Page { records: rows.into_iter().map(|(_, row)| row).collect(), next, epochs: view.epochs })
}

fn listed(state: &State, view: &View, query: &ScanQuery) -> Result<Vec<(Position, Listed)>, Error> {
    let (now, interval) = (query.now, query.interval);
    let newest_first = |at: Timestamp, id: &str| (-at.millis(), id.to_owned());
    Ok(match &query.listing {
        Listing::Memories { kinds, conversation } => state
            .current(view, now, interval)
            .filter(|memory| kinds.contains(memory.statement.kind()))
            .filter(|memory| conversation.is_none() || memory.conversation == *conversation)
            .map(|memory| {
                (newest_first(memory.written_at, memory.id.as_str()), Listed::Memory(memory.clone()))
            })
            .collect(),
        Listing::Turns(id) | Listing::TurnsBackwards(id) => {
            state.own_conversation(view, id).ok_or(Error::NotFound)?;
            let sign = if matches!(query.listing, Listing::Turns(_)) { 1 } else { -1 };
            state
                .current_turns(view, id, now, interval)
                .map(|turn| ((sign * i64::from(turn.number), String::new()), Listed::Turn(turn.clone())))
                .collect()
        }
        Listing::Conversations => state
            .conversations
            .iter()
            .filter(|row| view.owns(&row.tenant, &row.conversation.owner))
            .map(|row| {
                let conversation = &row.conversation;
                let n_turns = state.n_turns(view, &conversation.id, now);
                let position = newest_first(conversation.opened_at, conversation.id.as_str());
                (position, Listed::Conversation(conversation.clone(), n_turns))
            })
            .collect(),
    })
}

/// Names a listing of a subject, so that a cursor of another one is noticed.
fn listing_tag(subject: Option<&SubjectId>, query: &ScanQuery) -> String {
    let text = format!("{subject:?} {:?} {:?}", query.listing, query.interval);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn write_cursor(tag: &str, (number, id): &Position) -> Result<Cursor, Error> {
    Cursor::parse(&format!("{tag}.{number}.{id}"))
}

fn parse_cursor(cursor: &Cursor, tag: &str) -> Result<Position, Error> {
    let mut parts = cursor.as_str().splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(found), Some(number), Some(id)) if found == tag => {
            Ok((number.parse().map_err(|_| Error::Cursor)?, id.to_owned()))
        }
        _ => Err(Error::Cursor),
    }
}

/// What everything current would cost as one flat list.
pub(super) fn flat_cost(
    state: &State,
    view: &View,
    conversation: Option<&ConversationId>,
    now: Timestamp,
) -> FlatCost {
    let is_fact = |memory: &Memory| memory.statement.kind() == Kind::UserFact;
    let memories = state.current(view, now, None).map(|memory| (memory.tokens, u64::from(is_fact(memory))));
    let turns = conversation
        .into_iter()
        .flat_map(|id| state.current_turns(view, id, now, None).map(|turn| (turn.tokens, 0)));
    memories.chain(turns).fold(FlatCost::default(), |cost, (tokens, fact)| FlatCost {
        items: cost.items.saturating_add(1),
        tokens: cost.tokens.saturating_add(u64::from(tokens)),
        facts: cost.facts.saturating_add(fact),
    })
}

/// The next time at which a rule or fact begins or ends, or the end of time.
pub(super) fn prefix_holds_until(state: &State, view: &View, now: Timestamp) -> Timestamp {
    state
        .memories
        .iter()
        .filter(|row| view.sees(&row.tenant, &row.memory.owner))
        .map(|row| &row.memory)
        .filter(|memory| memory.standing == Standing::Active && memory.statement.kind().is_prefix())
        .flat_map(|memory| {
            let end = match memory.statement.expiry() {
                Expiry::At(end) => Some(end),
                Expiry::Never(_) => None,
            };
            std::iter::once(memory.statement.valid_from()).chain(end)
        })
        .filter(|time| now < *time)
        .min()
        .unwrap_or(Timestamp::from_millis(i64::MAX))
}
