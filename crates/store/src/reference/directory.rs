//! Subjects, groups and members of the reference backend.

use merkwelt_authz::{Fut, GrantError, GrantSource, Grants, Pass, Principal, class};
use merkwelt_domain::ids::base32;
use merkwelt_domain::memory::Owner;
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{Env, GroupId, GroupName, SubjectId, SubjectRef, TenantId, Timestamp};
use merkwelt_ledger::commitment::SubjectKey;
use merkwelt_ledger::entry::{Draft, EntryType};

use super::Reference;
use super::rows::{GroupRow, MemberRow, State, SubjectRow};
use super::view::View;
use crate::change::EntryRef;
use crate::error::Error;
use crate::evidence::admin_draft;
use crate::ports::{Directory, DirectoryChange, Group};

impl State {
    /// The pseudonym of a person, registered if new. It is no change of anybody's grants.
    pub(super) fn register(&mut self, tenant: &TenantId, reference: &SubjectRef, env: &dyn Env) -> SubjectId {
        if let Some(known) = self.subject(tenant, reference) {
            return known;
        }
        let id = SubjectId::random(env);
        let reference = Some(reference.clone());
        self.subjects.push(SubjectRow { tenant: tenant.clone(), id: id.clone(), reference });
        id
    }

    fn subject(&self, tenant: &TenantId, reference: &SubjectRef) -> Option<SubjectId> {
        self.subjects
            .iter()
            .find(|row| row.tenant == *tenant && row.reference.as_ref() == Some(reference))
            .map(|row| row.id.clone())
    }

    /// The key from which an owner's tags are made, drawn on first use.
    pub(super) fn tag_key(&mut self, tenant: &TenantId, owner: &Owner, env: &dyn Env) -> SubjectKey {
        let key = self.tag_keys.entry((tenant.clone(), owner.clone())).or_insert_with(|| {
            let mut key = [0_u8; 32];
            env.fill(&mut key);
            key
        });
        SubjectKey::from_bytes(*key)
    }
}

/// A fresh id of an event, from which its tags are made.
pub(super) fn event_id(env: &dyn Env) -> String {
    let mut bytes = [0_u8; 16];
    env.fill(&mut bytes);
    format!("evt_{}", base32(&bytes))
}

impl GrantSource for Reference {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        Box::pin(async move {
            if let Principal::Named(reference) = principal {
                self.make_known(tenant, reference)?;
            }
            self.read(|state| Ok(grants(state, tenant, principal))).map_err(|_| GrantError::Unavailable)
        })
    }
}

impl Reference {
    /// Registers a person who is named for the first time.
    fn make_known(&self, tenant: &TenantId, reference: &SubjectRef) -> Result<(), GrantError> {
        let is_known = |state: &State| {
            Ok(!state.cells.contains_key(tenant) || state.subject(tenant, reference).is_some())
        };
        if self.read(is_known).map_err(|_| GrantError::Unavailable)? {
            return Ok(());
        }
        let registered = self.write(|state, env| Ok(state.register(tenant, reference, env)));
        registered.map(|_| ()).map_err(|_| GrantError::Unavailable)
    }
}

fn grants(state: &State, tenant: &TenantId, principal: &Principal) -> Option<Grants> {
    let epoch = state.cells.get(tenant)?.epochs.grants;
    let subject = match principal {
        Principal::Bound(subject) if !state.is_active(tenant, subject) => return None,
        Principal::Bound(subject) => Some(subject.clone()),
        Principal::Named(reference) => Some(state.subject(tenant, reference)?),
        Principal::Nobody => None,
    };
    let groups = state.groups_of(tenant, subject.as_ref());
    Some(Grants { epoch, subject, groups })
}

impl Directory for Reference {
    fn change<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Directory>,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Fut<'a, Result<Option<EntryRef>, Error>> {
        Box::pin(async move {
            self.write(|state, env| {
                let tenant = View::open(state, pass)?.tenant;
                match apply(state, env, pass, &tenant, change)? {
                    None => Ok(None),
                    Some(draft) => {
                        state.raise_grants(&tenant);
                        state.raise_knowledge(&tenant);
                        state.append(&tenant, &[draft], at)
                    }
                }
            })
        })
    }

    fn groups<'a>(&'a self, pass: &'a Pass<'_, class::DirectoryRead>) -> Fut<'a, Result<Vec<Group>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let own = state.groups.iter().filter(|row| row.tenant == view.tenant);
                let mut groups: Vec<Group> = own.map(|row| state.counted(row)).collect();
                groups.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(groups)
            })
        })
    }

    fn members<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
        group: &'a GroupName,
    ) -> Fut<'a, Result<Vec<SubjectRef>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let group = state.group(&view.tenant, group).ok_or(Error::NotFound)?;
                let is_member = |row: &&SubjectRow| state.is_member(&row.tenant, &group, &row.id);
                let own = state.subjects.iter().filter(|row| row.tenant == view.tenant);
                let mut members: Vec<SubjectRef> =
                    own.filter(is_member).filter_map(|row| row.reference.clone()).collect();
                members.sort();
                Ok(members)
            })
        })
    }

    fn organisation_switch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
    ) -> Fut<'a, Result<OrganisationSwitch, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                state.cells.get(&view.tenant).map(|cell| cell.switch).ok_or(Error::NotFound)
            })
        })
    }
}

impl State {
    fn is_member(&self, tenant: &TenantId, group: &GroupId, subject: &SubjectId) -> bool {
        self.members.iter().any(|row| row.tenant == *tenant && row.group == *group && row.subject == *subject)
    }

    fn counted(&self, group: &GroupRow) -> Group {
        let members =
            self.members.iter().filter(|row| row.tenant == group.tenant && row.group == group.id).count();
        Group {
            id: group.id.clone(),
            name: group.name.clone(),
            members: u64::try_from(members).unwrap_or(u64::MAX),
        }
    }
}

/// Changes the directory; the entry of the change, or `None` if there was nothing to change.
fn apply(
    state: &mut State,
    env: &dyn Env,
    pass: &Pass<'_, class::Directory>,
    tenant: &TenantId,
    change: DirectoryChange,
) -> Result<Option<Draft>, Error> {
    let entry = |word: &str, id: &GroupId| {
        admin_draft(pass, EntryType::DirectoryChanged, word, id.as_str(), None).map(Some)
    };
    match change {
        DirectoryChange::CreateGroup { id, name } => {
            if state.group(tenant, &name).is_some() || state.groups.iter().any(|row| row.id == id) {
                return Err(Error::Exists);
            }
            state.groups.push(GroupRow { tenant: tenant.clone(), id: id.clone(), name });
            entry("group_created", &id)
        }
        DirectoryChange::DeleteGroup { name } => {
            let id = state.group(tenant, &name).ok_or(Error::NotFound)?;
            state.groups.retain(|row| !(row.tenant == *tenant && row.id == id));
            state.members.retain(|row| !(row.tenant == *tenant && row.group == id));
            state.forget_group(tenant, &id);
            entry("group_deleted", &id)
        }
        DirectoryChange::AddMember { group, subject } => {
            let group = state.group(tenant, &group).ok_or(Error::NotFound)?;
            let subject = state.register(tenant, &subject, env);
            if state.is_member(tenant, &group, &subject) {
                return Ok(None);
            }
            let row = MemberRow { tenant: tenant.clone(), group: group.clone(), subject: subject.clone() };
            state.members.push(row);
            member_entry(state, env, pass, "member_added", &group, subject).map(Some)
        }
        DirectoryChange::RemoveMember { group, subject } => {
            let group = state.group(tenant, &group).ok_or(Error::NotFound)?;
            let known = state.subject(tenant, &subject);
            let Some(subject) = known.filter(|subject| state.is_member(tenant, &group, subject)) else {
                return Ok(None);
            };
            state
                .members
                .retain(|row| !(row.tenant == *tenant && row.group == group && row.subject == subject));
            member_entry(state, env, pass, "member_removed", &group, subject).map(Some)
        }
        DirectoryChange::SetSwitch(switch) => {
            let cell = state.cells.get_mut(tenant).ok_or(Error::NotFound)?;
            if std::mem::replace(&mut cell.switch, switch) == switch {
                return Ok(None);
            }
            let (kind, word) = (EntryType::DirectoryChanged, format!("switch_{}", switch.name()));
            admin_draft(pass, kind, &word, tenant.as_str(), None).map(Some)
        }
    }
}

fn member_entry(
    state: &mut State,
    env: &dyn Env,
    pass: &Pass<'_, class::Directory>,
    word: &str,
    group: &GroupId,
    subject: SubjectId,
) -> Result<Draft, Error> {
    let event = event_id(env);
    let key = state.tag_key(pass.scope().tenant(), &Owner::Subject(subject), env);
    admin_draft(pass, EntryType::DirectoryChanged, word, group.as_str(), Some((&key, &event)))
}
