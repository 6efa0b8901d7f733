//! Deliberate defects, each a plausible mistake in one place. They show that the simulation notices: a test runs
//! each and names the property that noticed it.

mod ports;
mod reads;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use merkwelt_domain::memory::{Kind, Memory, Revision};
use merkwelt_domain::source::SourceHead;
use merkwelt_domain::{Env, MemoryId, SourceId, SubjectId, TenantId};
use merkwelt_store::Backend;
use merkwelt_store::record::Page;

use crate::env::{Behind, SimEnv};
use crate::failure::Property;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal, [$($property:ident),+];)*) => {
        /// A deliberate defect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What is wrong, in a few words.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The properties that may be the first to notice it.
            #[must_use]
            pub fn noticed_by(self) -> &'static [Property] {
                match self { $(Self::$name => &[$(Property::$property),+],)* }
            }
        }
    };
}

mutants! {
    /// A search also returns a hit of another tenant.
    NoTenantCheck = "no tenant check", [Apart];
    /// What was found under old grants is released under new ones.
    StaleGrants = "stale grant epoch accepted", [Apart, Current, Keys];
    /// The k best of everybody are cut first, and filtered afterwards.
    FilterAfterwards = "filter after the search", [Complete];
    /// Once the rows of an erasure are gone, nobody knows what is left in the index.
    RowsBeforeDerived = "rows before derived", [Forgotten];
    /// The read event is written when the answer has left, if at all.
    LedgerAfterRelease = "ledger after release", [Evidence];
    /// The clock of the use cases is one millisecond behind.
    ExpiryOffByOne = "expiry off by one", [Current];
    /// The former revision is served.
    SupersededServed = "superseded served", [Current];
    /// A late worker indexes somebody who was erased.
    TombstoneIgnored = "tombstone ignored", [Forgotten];
    /// Words are weighed by what all tenants wrote.
    SharedWeights = "shared term weights", [Twins];
    /// Rules and facts are reused for everybody in the tenant.
    PrefixOfAnybody = "prefix not keyed by subject", [Apart, Current];
    /// A write is acknowledged and not made.
    LostWrite = "lost write acknowledged", [Durable, Complete, Current];
    /// One read, two events.
    DoubleEvent = "double read event", [Evidence];
    /// The number of considered records counts what others have.
    CountLeaks = "count leaks", [Apart];
    /// A part of a batch is kept when the rest fails.
    HalfABatch = "half a batch", [Durable, Apart];
    /// The end of a membership is acknowledged and not made.
    RevocationLost = "revocation lost", [Apart];
    /// A key that ended is still taken.
    RevokedKeyTaken = "revoked key taken", [Keys];
    /// The read event counts other tokens than were delivered.
    WrongCounters = "wrong counters", [Evidence];
    /// Passages and generations are not looked at again when an answer is released.
    NotAskedAgain = "release without asking again", [Current, Apart];
    /// Which revision is current is asked once and remembered.
    HeadsRemembered = "current revisions remembered", [Current, Apart];
}

impl Mutant {
    /// Whether it is one of sources, which [`crate::shelf`] plays.
    #[must_use]
    pub fn of_sources(self) -> bool {
        matches!(self, Self::NotAskedAgain | Self::HeadsRemembered)
    }
}

/// What a defective part remembers.
#[derive(Default)]
pub(crate) struct Memo {
    /// Memories as they were found, with their tenant.
    found: Vec<(TenantId, Memory)>,
    /// Texts that were written, with their tenant.
    texts: Vec<(TenantId, String)>,
    /// Ids in an index of its own, by owner.
    index: BTreeMap<(TenantId, SubjectId), Vec<MemoryId>>,
    /// Rules and facts as last listed, by tenant and kind, with the generations they rest on.
    prefixes: BTreeMap<(TenantId, Kind), Page>,
    /// What a defect put into answers; the store would refuse to release it.
    put_in: BTreeSet<(MemoryId, Revision)>,
    /// The first head of each source.
    heads: BTreeMap<SourceId, SourceHead>,
    calls: u64,
}

/// A backend with a defect.
pub(crate) struct Broken {
    mutant: Mutant,
    pub(crate) inner: Arc<dyn Backend>,
    env: Arc<SimEnv>,
    memo: Shared,
}

/// What a defective part remembers over restarts, as a disk of its own would.
pub(crate) type Shared = Arc<Mutex<Memo>>;

impl Broken {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True every `n` calls, so that a defect shows now and then, as defects do.
    fn every(&self, n: u64) -> bool {
        let mut memo = self.memo();
        memo.calls += 1;
        self.env.task() != 0 && memo.calls.is_multiple_of(n)
    }
}

/// Puts a defect between a backend and its callers.
pub(crate) fn broken(
    mutant: Mutant,
    inner: Arc<dyn Backend>,
    env: &Arc<SimEnv>,
    memo: &Shared,
) -> Arc<dyn Backend> {
    Arc::new(Broken { mutant, inner, env: Arc::clone(env), memo: Arc::clone(memo) })
}

/// The clock of the use cases.
pub(crate) fn env_of(mutant: Option<Mutant>, env: &Arc<SimEnv>) -> Arc<dyn Env> {
    if mutant == Some(Mutant::ExpiryOffByOne) {
        Arc::new(Behind { env: Arc::clone(env), millis: 1 })
    } else {
        env.clone()
    }
}
