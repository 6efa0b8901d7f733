//! The real world behind [`Env`]: the system clock and the operating system's randomness. The only file of
//! the binary that asks for either.

use merkwelt_domain::{Env, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};

/// System clock and entropy.
#[derive(Debug, Default)]
pub struct SystemEnv(());

impl SystemEnv {
    /// The environment of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self(())
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
}
