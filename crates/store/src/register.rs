//! What a change of the register of sources does: pure, and shared by all backends, so that they agree on
//! which revision is current.

use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::{Approval, SourceState};
use merkwelt_domain::{RevisionId, Timestamp};

use crate::error::Error;
use crate::source::{RevisionRecord, SourceRecord};

/// What a change amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Its end is reached already.
    Nothing,
    /// It is carried out.
    Happens,
    /// A revision becomes current; another, if there is one, is superseded by it.
    MakesCurrent {
        /// The number of the revision.
        number: Revision,
        /// The revision that is current until then.
        instead_of: Option<RevisionId>,
    },
}

fn revision<'r>(source: &'r SourceRecord, id: &RevisionId) -> Result<&'r RevisionRecord, Error> {
    source.revisions.iter().find(|revision| revision.id == *id).ok_or(Error::NotFound)
}

fn alive(source: &SourceRecord) -> Result<(), Error> {
    if source.state == SourceState::Deleted { Err(Error::NotFound) } else { Ok(()) }
}

/// The number that a revision to be taken in gets.
///
/// # Errors
/// [`Error::NotFound`]: the source is deleted.
pub fn stage(source: &SourceRecord) -> Result<Revision, Error> {
    alive(source)?;
    Ok(source.revisions.last().map_or(Revision::FIRST, |last| last.number.next()))
}

/// Making a draft current.
///
/// # Errors
/// [`Error::NotFound`]: no such revision, or the source is deleted; [`Error::Approved`]: it was approved
/// before, so it is to be restored; [`Error::Outdated`]: it is older than the current one.
pub fn publish(source: &SourceRecord, id: &RevisionId) -> Result<Effect, Error> {
    alive(source)?;
    let wanted = revision(source, id)?;
    if source.current.as_ref() == Some(id) {
        return Ok(Effect::Nothing);
    }
    let current = source.current.as_ref().map(|current| revision(source, current)).transpose()?;
    let older = current.is_some_and(|current| wanted.number < current.number);
    if wanted.approval == Approval::Approved {
        return Err(Error::Approved);
    }
    if older {
        return Err(Error::Outdated);
    }
    Ok(Effect::MakesCurrent { number: wanted.number, instead_of: source.current.clone() })
}

/// Making an approved revision current again, after a withdrawal, after a newer revision, or, if a copy is
/// kept, after a deletion.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::NotApproved`]: it was never approved; [`Error::NotRetained`]: its texts are
/// gone.
pub fn restore(source: &SourceRecord, id: &RevisionId) -> Result<Effect, Error> {
    let wanted = revision(source, id)?;
    if source.current.as_ref() == Some(id) {
        return Ok(Effect::Nothing);
    }
    match (wanted.approval, wanted.kept) {
        (Approval::Draft, _) => Err(Error::NotApproved),
        (Approval::Approved, false) => Err(Error::NotRetained),
        (Approval::Approved, true) => {
            Ok(Effect::MakesCurrent { number: wanted.number, instead_of: source.current.clone() })
        }
    }
}

/// Throwing away a draft.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::Approved`]: evidence may name it.
pub fn discard(source: &SourceRecord, id: &RevisionId) -> Result<Effect, Error> {
    alive(source)?;
    match revision(source, id)?.approval {
        Approval::Draft => Ok(Effect::Happens),
        Approval::Approved => Err(Error::Approved),
    }
}

/// Changing who may be shown a source.
///
/// # Errors
/// [`Error::NotFound`]: the source is deleted.
pub fn admit(source: &SourceRecord, audience: &merkwelt_domain::source::Audience) -> Result<Effect, Error> {
    alive(source)?;
    Ok(if source.audience == *audience { Effect::Nothing } else { Effect::Happens })
}

/// Taking a source back.
///
/// # Errors
/// [`Error::NotFound`]: the source is deleted.
pub fn withdraw(source: &SourceRecord) -> Result<Effect, Error> {
    match source.state {
        SourceState::Active => Ok(Effect::Happens),
        SourceState::Draft | SourceState::Withdrawn => Ok(Effect::Nothing),
        SourceState::Deleted => Err(Error::NotFound),
    }
}

/// Removing every passage.
#[must_use]
pub fn delete(source: &SourceRecord) -> Effect {
    if source.state == SourceState::Deleted { Effect::Nothing } else { Effect::Happens }
}

/// What became of a revision's passages. Drafts are never served.
#[must_use]
pub fn standing(
    source: SourceState,
    is_current: bool,
    superseded: Option<(Revision, Timestamp)>,
    ended_at: Timestamp,
) -> Standing {
    match (source, superseded) {
        (SourceState::Active, _) if is_current => Standing::Active,
        (SourceState::Active, Some((by, at))) => Standing::Superseded { by, at },
        (SourceState::Draft | SourceState::Active | SourceState::Withdrawn | SourceState::Deleted, _) => {
            Standing::Retracted { at: ended_at }
        }
    }
}

#[cfg(test)]
mod tests {
    use merkwelt_domain::env::fixed::FixedEnv;
    use merkwelt_domain::memory::{Expiry, NoExpiryReason};
    use merkwelt_domain::source::{Audience, EvidencePolicy, Terms};
    use merkwelt_domain::{Env, SourceId};

    use super::*;

    fn source(state: SourceState, approvals: &[(Approval, bool)], current: Option<usize>) -> SourceRecord {
        let env = FixedEnv::at(0);
        let record = |(at, (approval, kept)): (usize, &(Approval, bool))| RevisionRecord {
            id: RevisionId::random(&env),
            number: Revision::from_number(u32::try_from(at).unwrap() + 1),
            digest: [0; 32],
            media: "text/plain".to_owned(),
            received_at: env.now(),
            valid_from: env.now(),
            approval: *approval,
            published_at: None,
            passages: 1,
            kept: *kept,
        };
        let revisions: Vec<RevisionRecord> = approvals.iter().enumerate().map(record).collect();
        SourceRecord {
            id: SourceId::random(&env),
            title: Some("Reisekosten".parse().unwrap()),
            origin: None,
            audience: Audience::Tenant,
            terms: Terms {
                expiry: Expiry::Never(NoExpiryReason::CompanyKnowledge),
                evidence: EvidencePolicy::DigestWithVersion,
                purpose: None,
            },
            state,
            registered_at: env.now(),
            current: current.map(|at| revisions[at].id.clone()),
            revisions,
        }
    }

    const APPROVED: (Approval, bool) = (Approval::Approved, true);
    const DRAFT: (Approval, bool) = (Approval::Draft, true);

    #[test]
    fn r_051_publishing_supersedes_what_was_current() {
        let source = source(SourceState::Active, &[APPROVED, DRAFT], Some(0));
        let (old, new) = (source.revisions[0].id.clone(), source.revisions[1].id.clone());
        let number = Revision::from_number(2);
        assert_eq!(
            publish(&source, &new),
            Ok(Effect::MakesCurrent { number, instead_of: Some(old.clone()) })
        );
        assert_eq!(publish(&source, &old), Ok(Effect::Nothing));
    }

    #[test]
    fn r_050_an_older_draft_and_an_approved_revision_cannot_be_published() {
        let late = source(SourceState::Active, &[DRAFT, APPROVED], Some(1));
        assert_eq!(publish(&late, &late.revisions[0].id), Err(Error::Outdated));
        assert_eq!(discard(&late, &late.revisions[1].id), Err(Error::Approved));
        let back = source(SourceState::Active, &[APPROVED, APPROVED], Some(1));
        assert_eq!(publish(&back, &back.revisions[0].id), Err(Error::Approved));
        assert!(matches!(restore(&back, &back.revisions[0].id), Ok(Effect::MakesCurrent { .. })));
    }

    #[test]
    fn what_was_never_approved_or_is_gone_is_not_restored() {
        let drafts = source(SourceState::Active, &[APPROVED, DRAFT], Some(0));
        assert_eq!(restore(&drafts, &drafts.revisions[1].id), Err(Error::NotApproved));
        let gone = source(SourceState::Deleted, &[(Approval::Approved, false)], None);
        assert_eq!(restore(&gone, &gone.revisions[0].id), Err(Error::NotRetained));
    }

    #[test]
    fn nothing_is_done_to_a_deleted_source_but_restoring_it() {
        let gone = source(SourceState::Deleted, &[APPROVED], None);
        let id = &gone.revisions[0].id;
        assert_eq!(stage(&gone), Err(Error::NotFound));
        assert_eq!(publish(&gone, id), Err(Error::NotFound));
        assert_eq!(withdraw(&gone), Err(Error::NotFound));
        assert_eq!(admit(&gone, &Audience::Groups(std::collections::BTreeSet::new())), Err(Error::NotFound));
        assert_eq!(delete(&gone), Effect::Nothing);
        assert!(matches!(restore(&gone, id), Ok(Effect::MakesCurrent { .. })));
    }

    #[test]
    fn r_051_only_the_current_revision_of_an_active_source_stands() {
        let (by, at) = (Revision::from_number(2), Timestamp::from_millis(5));
        for state in SourceState::ALL {
            for current in [false, true] {
                for superseded in [None, Some((by, at))] {
                    let stands = standing(state, current, superseded, at) == Standing::Active;
                    assert_eq!(stands, state == SourceState::Active && current);
                }
            }
        }
    }
}
