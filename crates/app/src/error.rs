//! What a use case can refuse. Variants exist only where a face answers differently; denied, foreign and
//! unknown are one variant, because nobody may tell them apart.

/// What stands in the way of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// Another revision is current than the one the caller named.
    Revision,
    /// The revision of a source is a draft: it is to be published, not restored.
    NotApproved,
    /// The revision of a source was approved before: it is to be restored, and cannot be thrown away.
    Approved,
    /// A newer revision of the source is current.
    Outdated,
    /// It is the last key with which keys of its tenant are made.
    LastAdmin,
    /// The idempotency key was used with another request.
    Idempotency,
    /// A thing of that name exists.
    Exists,
    /// The rule for a change of the organisation does not allow it.
    Switch,
    /// There is no approved summary that still holds.
    NoSummary,
    /// What a summary would stand for rests on a source that changed, and the caller does not say that it knows.
    SourceChanged,
}

/// A refusal. Texts hold no content, name or id (I-12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Unknown or of somebody else.
    #[error("not found")]
    NotFound,
    /// Not allowed. It is told apart from [`Error::NotFound`] for signals only; a face answers both with the
    /// same bytes.
    #[error("not found")]
    Denied,
    /// The caller's key ended while its request was under way.
    #[error("no valid key")]
    KeyEnded,
    /// A field of the request is not acceptable.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field as the native API names it.
        field: &'static str,
        /// Why, in words of this program only.
        reason: String,
    },
    /// The change does not fit the present state.
    #[error("conflict with the present state")]
    Conflict(Conflict),
    /// The rules alone need more than the budget. Rules are never dropped, and the budget is never
    /// exceeded, so there is nothing to deliver.
    #[error("the rules in scope need {needed} tokens, more than the budget")]
    BudgetTooSmall {
        /// Tokens the rules need.
        needed: u32,
    },
    /// It was delivered once, but part of its content is no longer kept.
    #[error("content is no longer kept")]
    NotRetained,
    /// Permissions or content kept changing; a later attempt may pass.
    #[error("the state changed repeatedly during the request")]
    Busy,
    /// The stored data of this tenant cannot be read. Nothing was served; others are not touched.
    #[error("stored data cannot be read")]
    Damaged,
    /// There is no room for what must be written first, the evidence of a read included.
    #[error("no room to write")]
    Full,
    /// Storage cannot work now. Nothing was lost and nothing was served.
    #[error("storage is unavailable")]
    Unavailable,
    /// The caller is erased or being erased; nothing of it is written.
    #[error("the subject is being erased")]
    Erasing,
}

impl Error {
    /// A refusal of one field for a reason that this program words.
    pub(crate) fn invalid(field: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Invalid { field, reason: reason.to_string() }
    }
}

/// A refusal of a store, or the wish to try again because something moved.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Final.
    Failed(Error),
    /// Grants, content or the embedding model moved during the request: authorise and read again (I-2, I-14).
    Moved,
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<merkwelt_store::Error> for Attempt {
    fn from(error: merkwelt_store::Error) -> Self {
        use merkwelt_store::Error as Store;
        Self::Failed(match error {
            // A vector of a model that the tenant had until a moment ago is made anew.
            Store::GrantsMoved | Store::ContentMoved | Store::ModelMismatch => return Self::Moved,
            Store::NotFound => Error::NotFound,
            Store::RevisionConflict => Error::Conflict(Conflict::Revision),
            Store::NotApproved => Error::Conflict(Conflict::NotApproved),
            Store::Approved => Error::Conflict(Conflict::Approved),
            Store::Outdated => Error::Conflict(Conflict::Outdated),
            Store::LastAdmin => Error::Conflict(Conflict::LastAdmin),
            Store::IdempotencyConflict => Error::Conflict(Conflict::Idempotency),
            Store::Exists => Error::Conflict(Conflict::Exists),
            Store::NotKept => Error::invalid("conversation", "its turns are not kept"),
            Store::Erasing => Error::Erasing,
            Store::Cursor => Error::invalid("cursor", "does not belong to this listing"),
            Store::NotRetained => Error::NotRetained,
            Store::Damaged => Error::Damaged,
            Store::Full => Error::Full,
            Store::Unavailable => Error::Unavailable,
        })
    }
}

/// How often a request is tried when grants or content move under it.
const ATTEMPTS: u32 = 16;

/// Runs `attempt` again while grants or content move under it. A macro, because the future of each
/// attempt borrows what the attempt made.
macro_rules! until_settled {
    ($attempt:expr) => {{
        let mut left = $crate::error::attempts();
        loop {
            match $attempt.await {
                Ok(value) => break Ok(value),
                Err($crate::error::Attempt::Failed(error)) => break Err(error),
                Err($crate::error::Attempt::Moved) if left > 1 => left -= 1,
                Err($crate::error::Attempt::Moved) => break Err($crate::error::Error::Busy),
            }
        }
    }};
}

pub(crate) use until_settled;

/// See [`until_settled`].
pub(crate) fn attempts() -> u32 {
    ATTEMPTS
}
