//! What evidence needs of a capability, without its lifetime: entries are made on the writer's thread, where
//! a capability cannot go. The drafts are the ones of `merkwelt_store::evidence`, field by field; the tests
//! compare the two.

use merkwelt_authz::{Class, Pass};
use merkwelt_domain::{KeyId, Purpose, TenantId};
use merkwelt_ledger::commitment::SubjectKey;
use merkwelt_ledger::entry::{Actor, Change, Draft, EntryType};
use merkwelt_store::Error;
use merkwelt_store::evidence::{Touched, token};

/// Who did it, for what, and whether the key names a person.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    pub(crate) tenant: TenantId,
    pub(crate) key: KeyId,
    personal: bool,
    purpose: Purpose,
}

impl Witness {
    pub(crate) fn of<C: Class>(pass: &Pass<'_, C>) -> Self {
        Self {
            tenant: pass.scope().tenant().clone(),
            key: pass.key().clone(),
            personal: pass.key_is_personal(),
            purpose: pass.purpose().clone(),
        }
    }

    /// The same entry as `evidence::change_draft`.
    pub(crate) fn change(&self, touched: &Touched<'_>) -> Result<Draft, Error> {
        let event_id = token(touched.event_id)?;
        let actor = if touched.personal && self.personal {
            Actor::Person(touched.tags.tag(&event_id))
        } else {
            Actor::Key(token(self.key.as_str())?)
        };
        let change = Change {
            kind: touched.kind,
            subject_tag: touched.personal.then(|| touched.tags.tag(&event_id)),
            record_tag: Some(touched.tags.record_tag(&event_id, &token(touched.record)?)),
            commitment: touched.commitment,
            purpose: Some(token(self.purpose.as_str())?),
            event_id,
        };
        Ok(change.into_draft(token(self.tenant.as_str())?, actor))
    }

    /// The same entry as `evidence::admin_draft`.
    pub(crate) fn admin(
        &self,
        kind: EntryType,
        change: &str,
        id: &str,
        member: Option<(&SubjectKey, &str)>,
    ) -> Result<Draft, Error> {
        let draft = Draft::new(kind, token(self.tenant.as_str())?, Actor::Key(token(self.key.as_str())?))
            .field("change", token(change)?)
            .field("id", token(id)?);
        Ok(match member {
            Some((key, event)) => {
                let event = token(event)?;
                let tag = key.tag(&event);
                draft.field("event_id", event).field("subject_tag", tag)
            }
            None => draft,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use merkwelt_authz::{
        ApiKey, Credential, CredentialSource, Fut, GrantError, GrantSource, Grants, Principal, Request, Role,
        action, authenticate, authorize,
    };
    use merkwelt_domain::env::fixed::FixedEnv;
    use merkwelt_domain::{GrantEpoch, SubjectId, Timestamp};
    use merkwelt_ledger::commitment::Commitment;
    use merkwelt_ledger::entry::ChangeType;
    use merkwelt_store::Erased;
    use merkwelt_store::conformance::block;
    use merkwelt_store::evidence::{admin_draft, change_draft, erasure_receipt_draft};

    use super::*;
    use crate::erase::erasure_receipt;

    struct One(Credential);

    impl CredentialSource for One {
        fn credential<'a>(&'a self, _: &'a KeyId) -> Fut<'a, Option<Credential>> {
            Box::pin(async { Some(self.0.clone()) })
        }
    }

    impl GrantSource for One {
        fn grants<'a>(
            &'a self,
            _: &'a TenantId,
            _: &'a Principal,
        ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
            let subject = self.0.subject.clone();
            Box::pin(async move {
                Ok(Some(Grants { epoch: GrantEpoch::default(), subject, groups: BTreeSet::new() }))
            })
        }
    }

    #[test]
    fn the_entries_are_those_of_the_shared_place() {
        let env = FixedEnv::at(0);
        let tags = SubjectKey::from_bytes([3; 32]);
        for bound in [None, Some(SubjectId::random(&env))] {
            let key = ApiKey::random(&env);
            let source = One(Credential {
                key: key.id().clone(),
                digest: key.digest(),
                tenant: TenantId::random(&env),
                role: Role::App,
                subject: bound,
                act_for: false,
                expires_at: None,
                revoked_at: None,
            });
            let caller = block::on(authenticate(&source, &key, Timestamp::EPOCH)).unwrap();
            let request = Request::new(caller, None, "support".parse().unwrap());
            let pass = block::on(authorize::<action::Correct>(&source, &request)).unwrap();
            let witness = Witness::of(&pass);
            for personal in [false, true] {
                let touched = Touched {
                    kind: ChangeType::MemoryCorrected,
                    event_id: "evt_a",
                    record: "mem_a",
                    commitment: Some(Commitment::from_bytes([9; 32])),
                    tags: &tags,
                    personal,
                };
                assert_eq!(witness.change(&touched), change_draft(&pass, &touched));
            }
            for member in [None, Some((&tags, "evt_b"))] {
                let kind = EntryType::DirectoryChanged;
                assert_eq!(
                    witness.admin(kind, "member_added", "grp_a", member),
                    admin_draft(&pass, kind, "member_added", "grp_a", member)
                );
            }
            let subject = SubjectId::random(&env);
            let erased = Erased { subject, memories: 1, conversations: 2, turns: 3, evidence: 4 };
            assert_eq!(
                erasure_receipt(&witness.tenant, witness.key.as_str(), &erased),
                erasure_receipt_draft(&pass, &erased)
            );
        }
    }
}
