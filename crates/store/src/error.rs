//! What can go wrong in a store, as far as a caller acts differently.

/// A store's refusal or failure. Texts name no row, person or content (I-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The row is unknown, or of somebody else; nobody can tell which.
    #[error("not found")]
    NotFound,
    /// Grants changed after the capability was minted (I-2). Authorise again.
    #[error("grants changed during the request")]
    GrantsMoved,
    /// Something that was read is no longer current (I-7). Read again.
    #[error("content changed during the request")]
    ContentMoved,
    /// The revision that was to be replaced is not the current one any more.
    #[error("another revision is current")]
    RevisionConflict,
    /// The revision of a source was never approved: it is to be published, not restored.
    #[error("the revision is a draft")]
    NotApproved,
    /// The revision of a source was approved before: it is to be restored, and evidence may name it.
    #[error("the revision was approved before")]
    Approved,
    /// A newer revision of the source is current than the draft that was to be published.
    #[error("a newer revision is current")]
    Outdated,
    /// Nobody could make a key for the tenant any more (see [`crate::keys`]).
    #[error("it is the last key of its administrators")]
    LastAdmin,
    /// The idempotency key was used with another request.
    #[error("idempotency key was used with another request")]
    IdempotencyConflict,
    /// A thing of that name exists already.
    #[error("exists already")]
    Exists,
    /// The conversation's turns are not kept, so none can be stored.
    #[error("turns of this conversation are not kept")]
    NotKept,
    /// The subject is being erased; nothing of it is written or served (I-8, I-9).
    #[error("subject is being erased")]
    Erasing,
    /// A vector of another model than the index's (I-14).
    #[error("index was built with another embedding model")]
    ModelMismatch,
    /// A cursor of another query, or damaged.
    #[error("cursor does not belong to this query")]
    Cursor,
    /// The content existed and is no longer kept.
    #[error("content is no longer kept")]
    NotRetained,
    /// The data cannot be read: damaged, or encrypted under another key.
    #[error("stored data cannot be read")]
    Damaged,
    /// There is no room to write. Nothing was written, and nothing is served whose evidence cannot be.
    #[error("no room to write")]
    Full,
    /// The store cannot work now: file unavailable, overloaded.
    #[error("store unavailable")]
    Unavailable,
}
