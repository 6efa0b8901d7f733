//! The real world behind [`Env`]: the system clock and the operating system's randomness. The only file of
//! the binary that asks for either.

use merkwelt_domain::{Env, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};

/// System clock and entropy.
#[derive(Debug, Default)]
pub struct SystemEnv {
    #[cfg(all(feature = "fault-injection", debug_assertions))]
    death: Option<death::Death>,
}

impl SystemEnv {
    /// The environment of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(all(feature = "fault-injection", debug_assertions))]
            death: death::Death::wanted(),
        }
    }
}

impl Env for SystemEnv {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one real clock (I-10)")]
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since.map_or(0, |elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX));
        Timestamp::from_millis(millis)
    }

    fn fill(&self, bytes: &mut [u8]) {
        #[expect(clippy::disallowed_methods, reason = "this is the one real source of randomness (I-10)")]
        let random = SystemRandom::new();
        if random.fill(bytes).is_err() {
            // Without randomness no key or id may be made; going on would hand out zeros.
            std::process::abort();
        }
    }

    #[cfg(all(feature = "fault-injection", debug_assertions))]
    fn reach(&self, point: merkwelt_domain::FaultPoint) -> Result<(), merkwelt_domain::env::Injected> {
        if let Some(death) = &self.death {
            death.reach(point);
        }
        Ok(())
    }
}

/// Sudden death at a chosen place, for crash tests of the real program. It is compiled into test builds only,
/// and never into one with optimisations.
#[cfg(all(feature = "fault-injection", debug_assertions))]
mod death {
    use std::sync::atomic::{AtomicU64, Ordering};

    use merkwelt_domain::FaultPoint;

    /// At which arrival where.
    #[derive(Debug)]
    pub(super) struct Death {
        point: String,
        left: AtomicU64,
    }

    impl Death {
        /// `MERKWELT_ABORT_AT=after-commit:3` dies at the third arrival at that point.
        pub(super) fn wanted() -> Option<Self> {
            #[expect(
                clippy::disallowed_methods,
                reason = "crash tests choose the place through the environment"
            )]
            let wanted = std::env::var("MERKWELT_ABORT_AT").ok()?;
            let (point, arrival) = wanted.split_once(':')?;
            Some(Self { point: point.to_owned(), left: AtomicU64::new(arrival.parse().ok()?) })
        }

        pub(super) fn reach(&self, point: FaultPoint) {
            if self.point == point.name() && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                std::process::abort();
            }
        }
    }
}
