//! What a capability opens right now. Every verb passes here first, so a capability minted before a change of
//! grants opens nothing (I-2), and memberships are those of the directory and not those of the capability.

use std::collections::BTreeSet;

use merkwelt_authz::{Class, Pass};
use merkwelt_domain::memory::Owner;
use merkwelt_domain::source::Audience;
use merkwelt_domain::{GroupId, GroupName, SubjectId, TenantId};

use super::rows::State;
use crate::change::NewOwner;
use crate::error::Error;
use crate::record::Epochs;

/// Tenant, subject and present groups of a request.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) tenant: TenantId,
    pub(super) subject: Option<SubjectId>,
    pub(super) epochs: Epochs,
    groups: BTreeSet<GroupId>,
    shares: bool,
}

impl View {
    /// Opens a view, if nothing about grants changed since the capability was minted.
    pub(super) fn open<C: Class>(state: &State, pass: &Pass<'_, C>) -> Result<Self, Error> {
        let scope = pass.scope();
        let cell = state.cells.get(scope.tenant()).ok_or(Error::NotFound)?;
        // INVARIANT: I-2, compared under the same lock under which rows are read and written.
        if cell.epochs.grants != pass.epoch() {
            return Err(Error::GrantsMoved);
        }
        if let Some(subject) = scope.subject()
            && !state.is_active(scope.tenant(), subject)
        {
            return Err(Error::Erasing);
        }
        Ok(Self {
            tenant: scope.tenant().clone(),
            subject: scope.subject().cloned(),
            epochs: cell.epochs,
            groups: state.groups_of(scope.tenant(), scope.subject()),
            shares: scope.writes(&Owner::Tenant),
        })
    }

    /// Whether something of `owner` in `tenant` may be seen. This predicate is the isolation.
    pub(super) fn sees(&self, tenant: &TenantId, owner: &Owner) -> bool {
        *tenant == self.tenant
            && match owner {
                Owner::Subject(subject) => self.subject.as_ref() == Some(subject),
                Owner::Group(group) => self.groups.contains(group),
                Owner::Tenant => true,
            }
    }

    /// Whether something for `audience` in `tenant` may be shown, by present membership.
    pub(super) fn is_shown(&self, tenant: &TenantId, audience: &Audience) -> bool {
        *tenant == self.tenant
            && match audience {
                Audience::Tenant => true,
                Audience::Groups(groups) => !groups.is_disjoint(&self.groups),
            }
    }

    /// Whether something of `owner` in `tenant` may be written, as `Scope::writes` says it, but by present
    /// membership.
    pub(super) fn writes(&self, tenant: &TenantId, owner: &Owner) -> bool {
        *tenant == self.tenant
            && match owner {
                Owner::Subject(subject) => self.subject.as_ref() == Some(subject),
                Owner::Group(group) => self.shares && (self.subject.is_none() || self.groups.contains(group)),
                Owner::Tenant => self.shares,
            }
    }

    /// Whether something belongs to the subject of the request itself.
    pub(super) fn owns(&self, tenant: &TenantId, owner: &SubjectId) -> bool {
        *tenant == self.tenant && self.subject.as_ref() == Some(owner)
    }

    /// Whose a new memory is to be. A group that does not exist and one the subject is no member of are
    /// alike.
    pub(super) fn resolve(&self, state: &State, owner: &NewOwner) -> Result<Owner, Error> {
        let owner = match owner {
            NewOwner::Subject => Owner::Subject(self.subject.clone().ok_or(Error::NotFound)?),
            NewOwner::Group(name) => Owner::Group(state.group(&self.tenant, name).ok_or(Error::NotFound)?),
            NewOwner::Tenant => Owner::Tenant,
        };
        if self.writes(&self.tenant, &owner) { Ok(owner) } else { Err(Error::NotFound) }
    }
}

impl State {
    /// Whether the subject is known and was not erased.
    pub(super) fn is_active(&self, tenant: &TenantId, subject: &SubjectId) -> bool {
        self.subjects.iter().any(|row| row.tenant == *tenant && row.id == *subject && row.reference.is_some())
    }

    /// Whether the subject was erased.
    pub(super) fn is_erased(&self, tenant: &TenantId, subject: &SubjectId) -> bool {
        self.subjects.iter().any(|row| row.tenant == *tenant && row.id == *subject && row.reference.is_none())
    }

    /// Present memberships.
    pub(super) fn groups_of(&self, tenant: &TenantId, subject: Option<&SubjectId>) -> BTreeSet<GroupId> {
        self.members
            .iter()
            .filter(|row| row.tenant == *tenant && Some(&row.subject) == subject)
            .map(|row| row.group.clone())
            .collect()
    }

    /// The group of that name.
    pub(super) fn group(&self, tenant: &TenantId, name: &GroupName) -> Option<GroupId> {
        self.groups.iter().find(|row| row.tenant == *tenant && row.name == *name).map(|row| row.id.clone())
    }
}
