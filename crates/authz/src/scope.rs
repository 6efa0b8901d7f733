//! The scope: tenant, subject and groups, resolved by the server and never requested (I-6). It is a
//! parameter of every query; the pure predicates here are the same question for engines without SQL.

use std::collections::BTreeSet;

use merkwelt_domain::memory::Owner;
use merkwelt_domain::{GroupId, SubjectId, TenantId};

/// Where and for whom a capability holds. Only this crate makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    tenant: TenantId,
    subject: Option<SubjectId>,
    groups: BTreeSet<GroupId>,
    shared_writes: bool,
}

impl Scope {
    pub(crate) fn new(
        tenant: TenantId,
        subject: Option<SubjectId>,
        groups: BTreeSet<GroupId>,
        shared_writes: bool,
    ) -> Self {
        Self { tenant, subject, groups, shared_writes }
    }

    /// The isolation domain.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The subject the request acts for, if any.
    #[must_use]
    pub fn subject(&self) -> Option<&SubjectId> {
        self.subject.as_ref()
    }

    /// The subject's groups at the time of minting. A store re-reads them (I-2).
    #[must_use]
    pub fn groups(&self) -> &BTreeSet<GroupId> {
        &self.groups
    }

    /// Whether something of `owner` may be seen.
    #[must_use]
    pub fn sees(&self, owner: &Owner) -> bool {
        match owner {
            Owner::Subject(subject) => self.subject.as_ref() == Some(subject),
            Owner::Group(group) => self.groups.contains(group),
            Owner::Tenant => true,
        }
    }

    /// Whether something of `owner` may be written or changed: one's own always, shared things only with
    /// a role that may share, and a group's only by its member or by a request for nobody in particular.
    #[must_use]
    pub fn writes(&self, owner: &Owner) -> bool {
        match owner {
            Owner::Subject(subject) => self.subject.as_ref() == Some(subject),
            Owner::Group(group) => {
                self.shared_writes && (self.subject.is_none() || self.groups.contains(group))
            }
            Owner::Tenant => self.shared_writes,
        }
    }
}
