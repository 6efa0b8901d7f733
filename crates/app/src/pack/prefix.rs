//! The stable prefix: rules and facts in scope. They are read once and reused until the generation of
//! permissions or of rules and facts moves, or until one of them begins or ends. What is reused is
//! admitted again at every use (I-7), and the commit of the read event checks that it still stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_authz::{Pass, Scope, class};
use merkwelt_domain::memory::{Kind, Memory};
use merkwelt_domain::{GrantEpoch, PrefixEpoch, SubjectId, TenantId, Timestamp};
use merkwelt_store::query::{KindSet, Listing, PageSize, ScanQuery};
use merkwelt_store::record::{Epochs, Listed, Record};

use crate::App;
use crate::error::Attempt;
use crate::pack::fit::{Room, cost_of_fact};

#[derive(Clone)]
struct Kept {
    grants: GrantEpoch,
    prefix: PrefixEpoch,
    /// When it was read: a clock that went back may show what had ended by then.
    since: Timestamp,
    until: Timestamp,
    read: Arc<Prefix>,
}

/// Rules and facts in scope, read at one generation.
pub(crate) struct Prefix {
    /// All of them, oldest first.
    pub(crate) rules: Vec<Memory>,
    /// Newest first.
    pub(crate) facts: Vec<Memory>,
    /// What the newest facts take of a room, one after another, if there are older facts beside; nothing if these are
    /// all.
    costs: Option<Vec<u32>>,
}

impl Prefix {
    /// Whether no fact is missing that could go into so much room.
    fn is_enough_for(&self, room: u32) -> bool {
        // Not by comparing rooms: a fact that is too large for the smaller one takes only a part of it.
        self.costs.as_ref().is_none_or(|costs| Room::of(room).filled_by(costs))
    }
}

/// Memories that are read at once, at least.
const PAGE_MIN: u16 = 50;

/// Most prefixes of one tenant held at once; beyond that its part of the cache starts anew. What others do
/// changes no answer of a tenant, not even whether it was reused.
const KEPT_MAX: usize = 4096;

/// Prefixes by tenant and subject: the key of the cache is the scope.
#[derive(Default)]
pub(crate) struct Prefixes(Mutex<BTreeMap<TenantId, OfTenant>>);

type OfTenant = BTreeMap<Option<SubjectId>, Kept>;

impl Prefixes {
    fn get(&self, scope: &Scope, epochs: Epochs, now: Timestamp, room: u32) -> Option<Arc<Prefix>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get(scope.tenant())?.get(&scope.subject().cloned())?;
        let same = kept.grants == epochs.grants && kept.prefix == epochs.prefix;
        let holds = same && kept.since <= now && now < kept.until && kept.read.is_enough_for(room);
        holds.then(|| Arc::clone(&kept.read))
    }

    fn put(&self, scope: &Scope, kept: Kept) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(scope.tenant().clone()).or_default();
        if own.len() >= KEPT_MAX {
            own.clear();
        }
        own.insert(scope.subject().cloned(), kept);
    }
}

impl App {
    /// The rules in scope and as many of the newest facts as could go into `room` tokens, at the generations of
    /// `epochs`; and whether they were reused.
    pub(crate) async fn prefix(
        &self,
        pass: &Pass<'_, class::Read>,
        epochs: Epochs,
        now: Timestamp,
        room: u32,
    ) -> Result<(Arc<Prefix>, bool), Attempt> {
        if let Some(read) = self.prefixes.get(pass.scope(), epochs, now, room) {
            return Ok((read, true));
        }
        let until = self.backend.prefix_holds_until(pass, now).await?;
        let (mut rules, _) = self.newest(pass, Kind::Feedback, epochs, now, None).await?;
        rules.reverse();
        // What somebody has of facts may be thousands; they are not read for the few that a pack has room for.
        let (facts, costs) = self.newest(pass, Kind::UserFact, epochs, now, Some(room)).await?;
        let read = Arc::new(Prefix { rules, facts, costs });
        let kept =
            Kept { grants: epochs.grants, prefix: epochs.prefix, since: now, until, read: Arc::clone(&read) };
        self.prefixes.put(pass.scope(), kept);
        Ok((read, false))
    }

    /// All of a kind, or the newest until they take more than some room; and what they take, if there are more.
    async fn newest(
        &self,
        pass: &Pass<'_, class::Read>,
        kind: Kind,
        epochs: Epochs,
        now: Timestamp,
        room: Option<u32>,
    ) -> Result<(Vec<Memory>, Option<Vec<u32>>), Attempt> {
        let (mut memories, mut costs, mut after) = (Vec::new(), Vec::new(), None);
        // Each page is a chance that somebody's write comes between.
        let page = room.map_or(PageSize::MAX, |room| u16::try_from(room / 16).unwrap_or(PageSize::MAX));
        let mut room = room.map(Room::of);
        loop {
            let listing = Listing::Memories { kinds: KindSet::of([kind]), conversation: None };
            let limit = PageSize::new(page.clamp(PAGE_MIN, PageSize::MAX)).unwrap_or_default();
            let query = ScanQuery { listing, after, limit, interval: None, now };
            let page = self.backend.scan(pass, &query).await?;
            if page.epochs.prefix != epochs.prefix {
                return Err(Attempt::Moved);
            }
            for listed in page.records {
                let Listed::Memory(memory) = listed else { continue };
                if let Some(room) = room.as_mut().filter(|room| !room.is_full()) {
                    let cost = cost_of_fact(&Record::Memory(memory.clone()), (now, self.counter));
                    room.take(cost);
                    costs.push(cost);
                }
                memories.push(memory);
            }
            match page.next {
                Some(_) if room.is_some_and(Room::is_full) => return Ok((memories, Some(costs))),
                Some(cursor) => after = Some(cursor),
                None => return Ok((memories, None)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_for_a_larger_room_may_be_too_little_for_a_smaller_one() {
        let of = |costs: Option<Vec<u32>>| Prefix { rules: Vec::new(), facts: Vec::new(), costs };
        // Two large facts fill the larger room. They have no place in the smaller, and older ones may have.
        let read = of(Some(vec![400, 30_000, 30_000]));
        assert_eq!(
            [51_200, 29_000, 1_000, 500].map(|room| read.is_enough_for(room)),
            [true, false, false, true]
        );
        assert!(of(None).is_enough_for(u32::MAX), "there are no more");
    }
}
