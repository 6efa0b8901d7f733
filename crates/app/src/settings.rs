//! Settings of the use cases, as the binary reads them from its configuration.

use merkwelt_domain::Purpose;
use merkwelt_domain::basis::AfterRemoval;
use merkwelt_domain::memory::Lifetimes;

/// Name and version of the data boundary in force: the systems and the region that data may not leave. It
/// is recorded with every read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Its name: letters, digits, `_`, `-`, `.`, `:`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Default for Boundary {
    /// `instance`, version `1`: nothing leaves this machine.
    fn default() -> Self {
        Self { name: "instance".to_owned(), version: "1".to_owned() }
    }
}

/// Limits of the session layer, which lives in memory only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// How long a sitting lasts after its last turn, in milliseconds.
    pub idle_ms_max: i64,
    /// How many turns of one conversation are held.
    pub n_turns_max: usize,
    /// How many sittings of one tenant are held at once.
    pub n_sessions_max: usize,
}

impl Default for SessionLimits {
    /// Two hours, 200 turns, 10,000 sittings of each tenant.
    fn default() -> Self {
        Self { idle_ms_max: 2 * 3_600_000, n_turns_max: 200, n_sessions_max: 10_000 }
    }
}

/// Limits of the answer cache, which lives in memory only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerLimits {
    /// How old a kept answer may be, in milliseconds. It is one condition among others; 0 gives none again.
    pub age_ms_max: i64,
    /// How many answers are kept for one subject, or for everybody of a tenant together.
    pub n_per_scope_max: usize,
    /// How many answers are kept in all.
    pub n_answers_max: usize,
    /// The least cosine at which two questions count as the same; none at all if absent. Two questions about one
    /// document can be nearer to each other than two wordings of one, so an answer to another question may be
    /// given: in a replay of policy histories, 1 of 80 at 0.97.
    pub cosine_min: Option<f32>,
}

impl Default for AnswerLimits {
    /// One day, 200 per scope, 20,000 in all, and only to the same words.
    fn default() -> Self {
        Self { age_ms_max: 86_400_000, n_per_scope_max: 200, n_answers_max: 20_000, cosine_min: None }
    }
}

/// What allows that something from a document becomes a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentMemory {
    /// The only purpose for which it may be kept.
    pub purpose: Purpose,
    /// The most days it may be kept.
    pub keep_days: u32,
}

/// Settings of the use cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Default lifetimes of kinds.
    pub lifetimes: Lifetimes,
    /// The data boundary in force.
    pub boundary: Boundary,
    /// The session layer.
    pub session: SessionLimits,
    /// The answer cache.
    pub answers: AnswerLimits,
    /// Without it nothing from a document becomes a memory.
    pub document_memory: Option<DocumentMemory>,
    /// What is done with turns whose source can no longer be read.
    pub after_removal: AfterRemoval,
    /// How long a delivered pack can be rebuilt and the openings of a read are kept, in days.
    pub evidence_days: u32,
    /// How long an idempotency key is remembered, in days.
    pub idempotency_days: u32,
}

impl Default for Settings {
    /// Evidence for 180 days, the least that logs of high-risk systems must be kept; idempotency one day.
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            boundary: Boundary::default(),
            session: SessionLimits::default(),
            answers: AnswerLimits::default(),
            document_memory: None,
            after_removal: AfterRemoval::default(),
            evidence_days: 180,
            idempotency_days: 1,
        }
    }
}
