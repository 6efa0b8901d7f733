//! The stable prefix: rules and facts in scope. They are read once and reused until the generation of
//! permissions or of rules and facts moves, or until one of them begins or ends. What is reused is
//! admitted again at every use (I-7), and the commit of the read event checks that it still stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_authz::{Pass, Scope, class};
use merkwelt_domain::memory::{Kind, Memory};
use merkwelt_domain::{GrantEpoch, PrefixEpoch, SubjectId, TenantId, Timestamp};
use merkwelt_store::query::{KindSet, Listing, PageSize, ScanQuery};
use merkwelt_store::record::{Epochs, Listed};

use crate::App;
use crate::error::Attempt;

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
    /// So many tokens the facts have at least, if there are older ones beside.
    enough_for: Option<u32>,
}

impl Prefix {
    /// Whether no fact is missing that could go into so much room.
    fn is_enough_for(&self, room: u32) -> bool {
        self.enough_for.is_none_or(|enough| room <= enough)
    }
}

/// Memories that are read at once.
const PAGE: u16 = 100;

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
        let (mut rules, _) = self.newest(pass, Kind::Feedback, epochs, now, u64::MAX).await?;
        rules.reverse();
        // What somebody has of facts may be thousands; they are not read for the few that a pack has room for.
        let (facts, has_more) = self.newest(pass, Kind::UserFact, epochs, now, u64::from(room)).await?;
        let read = Arc::new(Prefix { rules, facts, enough_for: has_more.then_some(room) });
        let kept =
            Kept { grants: epochs.grants, prefix: epochs.prefix, since: now, until, read: Arc::clone(&read) };
        self.prefixes.put(pass.scope(), kept);
        Ok((read, false))
    }

    /// The newest of a kind until they have more tokens than that, and whether there are more.
    async fn newest(
        &self,
        pass: &Pass<'_, class::Read>,
        kind: Kind,
        epochs: Epochs,
        now: Timestamp,
        tokens: u64,
    ) -> Result<(Vec<Memory>, bool), Attempt> {
        let (mut memories, mut read, mut after) = (Vec::new(), 0, None);
        loop {
            let listing = Listing::Memories { kinds: KindSet::of([kind]), conversation: None };
            let limit = PageSize::new(PAGE).unwrap_or_default();
            let query = ScanQuery { listing, after, limit, interval: None, now };
            let page = self.backend.scan(pass, &query).await?;
            if page.epochs.prefix != epochs.prefix {
                return Err(Attempt::Moved);
            }
            for listed in page.records {
                let Listed::Memory(memory) = listed else { continue };
                read += u64::from(memory.tokens);
                memories.push(memory);
            }
            match page.next {
                Some(_) if read > tokens => return Ok((memories, true)),
                Some(cursor) => after = Some(cursor),
                None => return Ok((memories, false)),
            }
        }
    }
}
