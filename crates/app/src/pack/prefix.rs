//! The stable prefix: rules and facts in scope. They are read once and reused until the generation of
//! permissions or of rules and facts moves, or until one of them begins or ends. What is reused is
//! admitted again at every use (I-7), and the commit of the read event checks that it still stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_authz::{Pass, Scope, class};
use merkwelt_domain::memory::{Kind, Memory};
use merkwelt_domain::{GrantEpoch, MemoryId, PrefixEpoch, SubjectId, TenantId, Timestamp};
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
    /// Oldest first.
    pub(crate) rules: Vec<Memory>,
    /// Newest first.
    pub(crate) facts: Vec<Memory>,
    /// The ids of the facts in order.
    fact_ids: Vec<MemoryId>,
}

impl Prefix {
    fn of(memories: Vec<Memory>) -> Self {
        let is_rule = |memory: &Memory| memory.statement.kind() == Kind::Feedback;
        let (mut rules, mut facts): (Vec<Memory>, Vec<Memory>) = memories.into_iter().partition(is_rule);
        let by_age = |a: &Memory, b: &Memory| a.written_at.cmp(&b.written_at).then_with(|| a.id.cmp(&b.id));
        rules.sort_by(by_age);
        facts.sort_by(|a, b| by_age(b, a));
        let mut fact_ids: Vec<MemoryId> = facts.iter().map(|memory| memory.id.clone()).collect();
        fact_ids.sort_unstable();
        Self { rules, facts, fact_ids }
    }

    pub(crate) fn holds_fact(&self, id: &MemoryId) -> bool {
        self.fact_ids.binary_search(id).is_ok()
    }
}

/// Most prefixes of one tenant held at once; beyond that its part of the cache starts anew. What others do
/// changes no answer of a tenant, not even whether it was reused.
const KEPT_MAX: usize = 4096;

/// Prefixes by tenant and subject: the key of the cache is the scope.
#[derive(Default)]
pub(crate) struct Prefixes(Mutex<BTreeMap<TenantId, OfTenant>>);

type OfTenant = BTreeMap<Option<SubjectId>, Kept>;

impl Prefixes {
    fn get(&self, scope: &Scope, epochs: Epochs, now: Timestamp) -> Option<Arc<Prefix>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get(scope.tenant())?.get(&scope.subject().cloned())?;
        let same = kept.grants == epochs.grants && kept.prefix == epochs.prefix;
        (same && kept.since <= now && now < kept.until).then(|| Arc::clone(&kept.read))
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
    /// Rules and facts in scope at the generations of `epochs`, and whether they were reused.
    pub(crate) async fn prefix(
        &self,
        pass: &Pass<'_, class::Read>,
        epochs: Epochs,
        now: Timestamp,
    ) -> Result<(Arc<Prefix>, bool), Attempt> {
        if let Some(read) = self.prefixes.get(pass.scope(), epochs, now) {
            return Ok((read, true));
        }
        let until = self.backend.prefix_holds_until(pass, now).await?;
        let read = Arc::new(Prefix::of(self.read_prefix(pass, epochs, now).await?));
        let kept =
            Kept { grants: epochs.grants, prefix: epochs.prefix, since: now, until, read: Arc::clone(&read) };
        self.prefixes.put(pass.scope(), kept);
        Ok((read, false))
    }

    async fn read_prefix(
        &self,
        pass: &Pass<'_, class::Read>,
        epochs: Epochs,
        now: Timestamp,
    ) -> Result<Vec<Memory>, Attempt> {
        let mut memories = Vec::new();
        let mut after = None;
        loop {
            let query = ScanQuery {
                listing: Listing::Memories {
                    kinds: KindSet::of([Kind::Feedback, Kind::UserFact]),
                    conversation: None,
                },
                after,
                limit: PageSize::new(PageSize::MAX).unwrap_or_default(),
                interval: None,
                now,
            };
            let page = self.backend.scan(pass, &query).await?;
            if page.epochs.prefix != epochs.prefix {
                return Err(Attempt::Moved);
            }
            memories.extend(page.records.into_iter().filter_map(|listed| match listed {
                Listed::Memory(memory) => Some(memory),
                Listed::Turn(_) | Listed::Conversation(..) => None,
            }));
            match page.next {
                Some(cursor) => after = Some(cursor),
                None => return Ok(memories),
            }
        }
    }
}
