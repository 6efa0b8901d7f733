//! Generations, kept apart by type so that one cannot be compared with another.

use serde::{Deserialize, Serialize};

macro_rules! epoch {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The generation with this number, as a store read it.
            #[must_use]
            pub fn from_number(number: u64) -> Self {
                Self(number)
            }

            /// The number, as a store writes it.
            #[must_use]
            pub fn number(self) -> u64 {
                self.0
            }

            /// The next generation.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }
    };
}

epoch!(
    /// Generation of a tenant's permissions: any change of groups, members, subjects or keys raises it.
    GrantEpoch
);
epoch!(
    /// Generation of a tenant's content: any write, correction, retraction, turn or erasure raises it.
    ContentEpoch
);
epoch!(
    /// Generation of a tenant's rules and facts: only a change of `feedback` or `user_fact` raises it, so
    /// that a stable prefix outlives other writes.
    PrefixEpoch
);
epoch!(
    /// Generation of a tenant's knowledge: any change of sources, their rights or their approval, and any
    /// change of the directory, raises it. An answer that was cached under another one is not given.
    KnowledgeEpoch
);
