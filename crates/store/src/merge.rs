//! What a new statement does to one that stands: nothing, a new revision, or it has nothing to do with it.
//! Pure, and shared by all backends, so that they agree on what "the same text" is.

use merkwelt_domain::Timestamp;
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Expiry, Memory, Statement};

/// How a new statement relates to a current memory of the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// They are about different things.
    Apart,
    /// The same stands already; nothing is to be written.
    Same,
    /// The new one takes the other's place as its next revision.
    Succeeds,
}

/// Compares a statement written at `at` with the latest revision of a memory of the same owner.
///
/// - With a slot, the memory in the same slot is succeeded, or left alone if it says the same; this holds for
///   a memory that is expired too, but not for one that was retracted.
/// - Without a slot, a memory without a slot, of the same kind and with an equal folded text that has not
///   expired, is left alone if its particulars are equal too, and succeeded if they are not.
///
/// Particulars are pointer, metadata and validity. Two ends are equal if they are the same time or lie the
/// same distance after the writing, as default lifetimes do.
#[must_use]
pub fn meet(current: &Memory, new: &Statement, at: Timestamp) -> Meeting {
    let old = &current.statement;
    if current.standing != Standing::Active || old.slot() != new.slot() {
        return Meeting::Apart;
    }
    let expired = current.validity().end().is_some_and(|end| end <= at);
    let same_text = old.kind() == new.kind() && old.text().folded() == new.text().folded();
    if same_text && !expired && equal_particulars(current, new, at) {
        return Meeting::Same;
    }
    if new.slot().is_some() || (same_text && !expired) { Meeting::Succeeds } else { Meeting::Apart }
}

fn equal_particulars(current: &Memory, new: &Statement, at: Timestamp) -> bool {
    let old = &current.statement;
    let begun = old.valid_from() <= at && new.valid_from() <= at;
    old.pointer() == new.pointer()
        && old.metadata() == new.metadata()
        && (begun || old.valid_from() == new.valid_from())
        && equal_ends((old.expiry(), current.written_at), (new.expiry(), at))
}

fn equal_ends(old: (Expiry, Timestamp), new: (Expiry, Timestamp)) -> bool {
    match (old, new) {
        ((Expiry::At(a), from_a), (Expiry::At(b), from_b)) => {
            a == b || a.millis() - from_a.millis() == b.millis() - from_b.millis()
        }
        ((Expiry::Never(a), _), (Expiry::Never(b), _)) => a == b,
        ((Expiry::At(_), _), (Expiry::Never(_), _)) | ((Expiry::Never(_), _), (Expiry::At(_), _)) => false,
    }
}
