//! What a new statement does to one that stands: nothing, a new revision, or it has nothing to do with it.
//! Pure, and shared by all backends, so that they agree on what "the same text" is.

use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Expiry, Memory, Statement};
use merkwelt_domain::{ConversationId, Timestamp};

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

/// Whether a new statement from `origin` may meet `memory` at all. By text it meets only what came from the same
/// conversation or from none: else deleting one conversation would delete what another one said. A slot
/// is met from everywhere.
#[must_use]
pub fn may_meet(memory: &Memory, new: &Statement, origin: Option<&ConversationId>) -> bool {
    new.slot().is_some() || memory.conversation.is_none() || memory.conversation.as_ref() == origin
}

#[cfg(test)]
mod tests {
    use merkwelt_domain::env::fixed::FixedEnv;
    use merkwelt_domain::memory::{Author, Kind, Lifetimes, NoExpiryReason, Owner, Particulars, Revision};
    use merkwelt_domain::{Content, KeyId, MemoryId};

    use super::*;

    const DAY: i64 = Timestamp::DAY_MILLIS;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn said(text: &str, slot: Option<&str>, expiry: Option<Expiry>, now: Timestamp) -> Statement {
        let slot = slot.map(|slot| slot.parse().unwrap());
        let parts = Particulars { slot, expiry, ..Particulars::default() };
        let text = Content::to_keep(text, 100).unwrap();
        Statement::new(Kind::UserFact, text, Author::Person, parts, &Lifetimes::default(), now).unwrap()
    }

    fn kept(statement: Statement, standing: Standing) -> Memory {
        let env = FixedEnv::at(0);
        Memory {
            id: MemoryId::random(&env),
            revision: Revision::FIRST,
            owner: Owner::Tenant,
            written_at: at(0),
            statement,
            written_by: KeyId::random(&env),
            conversation: None,
            tokens: 1,
            standing,
        }
    }

    fn outcome(old: Statement, new: impl Fn(Timestamp) -> Statement, now: i64) -> Meeting {
        meet(&kept(old, Standing::Active), &new(at(now)), at(now))
    }

    #[test]
    fn the_same_text_with_the_default_lifetime_is_the_same_whenever_it_is_said() {
        let old = || said("likes tea", None, None, at(0));
        for now in [0, 1, DAY, 700 * DAY] {
            assert_eq!(outcome(old(), |now| said("likes  tea", None, None, now), now), Meeting::Same);
        }
        // 730 days after it was said it is over, and what is over is not continued.
        assert_eq!(outcome(old(), |now| said("likes tea", None, None, now), 730 * DAY), Meeting::Apart);
    }

    #[test]
    fn another_end_is_a_new_revision_and_the_same_end_is_not() {
        let end = Some(Expiry::At(at(9 * DAY)));
        let never = Some(Expiry::Never(NoExpiryReason::ContractTerm));
        let old = || said("likes tea", None, end, at(0));
        assert_eq!(outcome(old(), |now| said("likes tea", None, end, now), DAY), Meeting::Same);
        assert_eq!(outcome(old(), |now| said("likes tea", None, None, now), DAY), Meeting::Succeeds);
        assert_eq!(outcome(old(), |now| said("likes tea", None, never, now), DAY), Meeting::Succeeds);
    }

    #[test]
    fn r_017_a_slot_is_succeeded_by_any_other_text_even_after_its_end() {
        let old = || said("on Monday", Some("eta"), Some(Expiry::At(at(DAY))), at(0));
        let new =
            |text: &'static str, slot: &'static str| move |now: Timestamp| said(text, Some(slot), None, now);
        assert_eq!(outcome(old(), new("on Thursday", "eta"), 1), Meeting::Succeeds);
        assert_eq!(outcome(old(), new("on Thursday", "eta"), 2 * DAY), Meeting::Succeeds);
        assert_eq!(outcome(old(), new("on Monday", "other"), 1), Meeting::Apart);
        assert_eq!(outcome(old(), |now| said("on Monday", None, None, now), 1), Meeting::Apart);
    }

    #[test]
    fn what_does_not_stand_meets_nothing() {
        let new = said("on Thursday", Some("eta"), None, at(1));
        for standing in [
            Standing::Retracted { at: at(1) },
            Standing::Restricted { at: at(1) },
            Standing::Superseded { by: Revision::from_number(2), at: at(1) },
        ] {
            let old = kept(said("on Monday", Some("eta"), None, at(0)), standing);
            assert_eq!(meet(&old, &new, at(1)), Meeting::Apart);
        }
    }
}
