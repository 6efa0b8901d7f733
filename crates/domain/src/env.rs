//! The world as an argument (I-10): time, randomness and the places where a test may inject a fault.
//! The binary has one real implementation, tests and the simulator have their own; nothing below the
//! binary asks the operating system for a clock or for random bytes.

use crate::time::Timestamp;

/// Clock, entropy and fault points. Implementations must be cheap to call and free of locks that are held
/// across calls.
pub trait Env: Send + Sync {
    /// The present server time.
    fn now(&self) -> Timestamp;

    /// Fills `bytes` with random bytes of cryptographic quality.
    fn fill(&self, bytes: &mut [u8]);

    /// Called where a crash or a failing disk would hurt most.
    ///
    /// # Errors
    /// The injected fault. The default never fails.
    fn reach(&self, point: FaultPoint) -> Result<(), Injected> {
        let _ = point;
        Ok(())
    }
}

/// The named places at which a fault can be injected. The list is closed, so that a crash test can
/// enumerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultPoint {
    /// The subject's key is durable, the rows that need it are not yet.
    AfterKey,
    /// Everything of a batch is in the open transaction, nothing is committed.
    BeforeCommit,
    /// The transaction is durable, nobody was told.
    AfterCommit,
    /// The batch is acknowledged, the memory shard does not have it yet.
    BeforeShard,
    /// A subject is marked for erasure and hidden, its key still stands.
    AfterTombstone,
    /// The subject's key is destroyed, its rows still stand.
    AfterDestroy,
    /// The rows of an erasure are gone, the file still holds their bytes.
    BeforeVacuum,
    /// Nothing of the subject is left, the ledger does not say so yet.
    BeforeReceipt,
    /// The ledger says that a key or a tenant changed, the list of them does not have it yet.
    AfterEntry,
}

impl FaultPoint {
    /// Every fault point, in the order in which a write, then an erasure, then a change of keys passes them.
    pub const ALL: [Self; 9] = [
        Self::AfterKey,
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::BeforeShard,
        Self::AfterTombstone,
        Self::AfterDestroy,
        Self::BeforeVacuum,
        Self::BeforeReceipt,
        Self::AfterEntry,
    ];

    /// The stable name, as crash tests spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterKey => "after-key",
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
            Self::BeforeShard => "before-shard",
            Self::AfterTombstone => "after-tombstone",
            Self::AfterDestroy => "after-destroy",
            Self::BeforeVacuum => "before-vacuum",
            Self::BeforeReceipt => "before-receipt",
            Self::AfterEntry => "after-entry",
        }
    }
}

/// A fault that a test injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("injected fault")]
pub struct Injected;

/// A deterministic environment for tests and the simulator.
pub mod fixed {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::Env;
    use crate::time::Timestamp;

    /// A clock that stands where it is put and a counter-based generator (SplitMix64) from a seed. Its
    /// bytes are predictable: it is for tests and simulation.
    #[derive(Debug)]
    pub struct FixedEnv {
        now: AtomicI64,
        state: AtomicU64,
    }

    impl FixedEnv {
        /// A clock at `millis` since 1970 and the seed 1.
        #[must_use]
        pub fn at(millis: i64) -> Self {
            Self::seeded(millis, 1)
        }

        /// A clock at `millis` since 1970 and a seed.
        #[must_use]
        pub fn seeded(millis: i64, seed: u64) -> Self {
            Self { now: AtomicI64::new(millis), state: AtomicU64::new(seed) }
        }

        /// Puts the clock to `millis` since 1970.
        pub fn set(&self, millis: i64) {
            self.now.store(millis, Ordering::SeqCst);
        }

        /// Moves the clock by `millis`, which may be negative.
        pub fn advance(&self, millis: i64) {
            self.now.fetch_add(millis, Ordering::SeqCst);
        }

        fn draw(&self) -> u64 {
            const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
            let mut z = self.state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }
    }

    impl Env for FixedEnv {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.now.load(Ordering::SeqCst))
        }

        fn fill(&self, bytes: &mut [u8]) {
            for chunk in bytes.chunks_mut(8) {
                let word = self.draw().to_le_bytes();
                for (to, from) in chunk.iter_mut().zip(word) {
                    *to = from;
                }
            }
        }
    }
}
