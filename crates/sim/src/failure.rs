//! What a run can find. Every property has a name, so that a finding, a mutant and a test speak of the same
//! thing.

/// A promise that every run checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Nothing of another tenant, person or group is in an answer, an error or a count (I-1 to I-6).
    Apart,
    /// What is expired, superseded, withdrawn, deleted or erased is not served (I-7).
    Current,
    /// Who may see something gets it, and the right number of it.
    Complete,
    /// One read event per read, none missing, none too many, with the counters of what was delivered (I-4).
    Evidence,
    /// The ledger is whole, signed, and only grows.
    Ledger,
    /// An erasure ends and leaves nothing (I-9).
    Forgotten,
    /// What was acknowledged survives, and everything else happened completely or not at all (I-11).
    Durable,
    /// A request without a fault under it is answered as the rules say.
    Answered,
    /// An ended key opens nothing.
    Keys,
    /// Nothing of a person lies readable on disk.
    AtRest,
    /// What one tenant is told does not depend on another.
    Twins,
}

impl Property {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Current => "current",
            Self::Complete => "complete",
            Self::Evidence => "evidence",
            Self::Ledger => "ledger",
            Self::Forgotten => "forgotten",
            Self::Durable => "durable",
            Self::Answered => "answered",
            Self::Keys => "keys",
            Self::AtRest => "at rest",
            Self::Twins => "twins",
        }
    }
}

/// A broken promise and where it happened. Texts may hold simulated content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, step {step}: property `{}` is broken: {what}", .property.name())]
pub struct Failure {
    /// Replays the run.
    pub seed: u64,
    /// The step of the run.
    pub step: u64,
    /// Which promise.
    pub property: Property,
    /// What was seen.
    pub what: String,
}

/// A finding before it is known where it happened.
pub(crate) type Found = (Property, String);

/// Checks a condition of a property.
pub(crate) fn holds(condition: bool, property: Property, what: impl FnOnce() -> String) -> Result<(), Found> {
    if condition { Ok(()) } else { Err((property, what())) }
}
