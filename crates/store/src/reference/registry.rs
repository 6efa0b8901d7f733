//! Tenants and keys of the reference backend.

use std::collections::BTreeMap;

use merkwelt_authz::{Credential, CredentialSource, Fut, Pass, Role, class};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{Env, KeyId, TenantId, Timestamp};
use merkwelt_ledger::entry::EntryType;

use super::Reference;
use super::log::Log;
use super::rows::{Cell, State};
use super::view::View;
use crate::error::Error;
use crate::evidence::{admin_draft, founding_draft};
use crate::keys::may_end;
use crate::ports::{Founding, KeyInfo, NewKey, Registry, Tenant};
use crate::record::Epochs;

/// The state of a new instance.
pub(super) fn found(founding: Founding, env: &dyn Env) -> Result<State, Error> {
    let mut state = State {
        system: founding.system.clone(),
        cells: BTreeMap::new(),
        keys: BTreeMap::new(),
        subjects: Vec::new(),
        groups: Vec::new(),
        members: Vec::new(),
        tag_keys: BTreeMap::new(),
        memories: Vec::new(),
        conversations: Vec::new(),
        turns: Vec::new(),
        packs: Vec::new(),
        openings: Vec::new(),
        answered: Vec::new(),
        sources: Vec::new(),
    };
    let name = "system".parse().map_err(|_| Error::Damaged)?;
    let system = Tenant { id: founding.system.clone(), name, created_at: founding.at };
    state.begin_tenant(system, env)?;
    state.begin_tenant(founding.tenant.clone(), env)?;
    for key in std::iter::once(founding.admin).chain(founding.keys) {
        let tenant = key.credential.tenant.clone();
        if !state.cells.contains_key(&tenant) {
            return Err(Error::NotFound);
        }
        state.found_key(&tenant, key, founding.at, env)?;
    }
    Ok(state)
}

impl State {
    fn begin_tenant(&mut self, tenant: Tenant, env: &dyn Env) -> Result<(), Error> {
        let known = |cell: &Cell| cell.tenant.id == tenant.id || cell.tenant.name == tenant.name;
        if self.cells.values().any(known) {
            return Err(Error::Exists);
        }
        let log = Log::begin(&tenant.id, env, tenant.created_at)?;
        self.cells.insert(
            tenant.id.clone(),
            Cell { tenant, epochs: Epochs::default(), log, switch: OrganisationSwitch::default() },
        );
        Ok(())
    }

    /// Adds a key together with its tenant, when no key of the tenant could have asked for it.
    fn found_key(
        &mut self,
        tenant: &TenantId,
        key: NewKey,
        at: Timestamp,
        env: &dyn Env,
    ) -> Result<(), Error> {
        let draft = founding_draft(tenant, EntryType::KeyChanged, "created", key.credential.key.as_str())?;
        self.insert_key(tenant, key, at, env)?;
        self.append(tenant, &[draft], at)?;
        Ok(())
    }

    fn insert_key(
        &mut self,
        tenant: &TenantId,
        key: NewKey,
        at: Timestamp,
        env: &dyn Env,
    ) -> Result<(), Error> {
        let foreign = key.credential.tenant != *tenant;
        let instance = key.credential.role == Role::InstanceAdmin && *tenant != self.system;
        if foreign || instance {
            return Err(Error::NotFound);
        }
        if self.keys.contains_key(&key.credential.key) {
            return Err(Error::Exists);
        }
        let subject = key.subject.as_ref().map(|reference| self.register(tenant, reference, env));
        let credential = Credential { subject, ..key.credential };
        let info = KeyInfo { credential, label: key.label, created_at: at };
        self.keys.insert(info.credential.key.clone(), info);
        Ok(())
    }

    /// Raises the generation of grants of a tenant.
    pub(super) fn raise_grants(&mut self, tenant: &TenantId) {
        if let Some(cell) = self.cells.get_mut(tenant) {
            cell.epochs.grants = cell.epochs.grants.next();
        }
    }

    /// Raises the generation of knowledge: rights to sources may have changed.
    pub(super) fn raise_knowledge(&mut self, tenant: &TenantId) {
        if let Some(cell) = self.cells.get_mut(tenant) {
            cell.epochs.knowledge = cell.epochs.knowledge.next();
        }
    }
}

impl CredentialSource for Reference {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move {
            let found = self.read(|state| Ok(state.keys.get(key).map(|info| info.credential.clone())));
            found.ok().flatten()
        })
    }
}

impl Registry for Reference {
    fn create_tenant<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Instance>,
        tenant: Tenant,
        first: NewKey,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(async move {
            self.write(|state, env| {
                let system = instance(state, pass)?;
                let (id, at) = (tenant.id.clone(), tenant.created_at);
                state.begin_tenant(tenant, env)?;
                state.found_key(&id, first, at, env)?;
                let draft = admin_draft(pass, EntryType::TenantChanged, "created", id.as_str(), None)?;
                state.append(&system, &[draft], at)?;
                Ok(())
            })
        })
    }

    fn tenants<'a>(&'a self, pass: &'a Pass<'_, class::Instance>) -> Fut<'a, Result<Vec<Tenant>, Error>> {
        Box::pin(async move {
            self.read(|state| {
                let system = instance(state, pass)?;
                let cells = state.cells.values().filter(|cell| cell.tenant.id != system);
                let mut tenants: Vec<Tenant> = cells.map(|cell| cell.tenant.clone()).collect();
                tenants.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(tenants)
            })
        })
    }

    fn add_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: NewKey,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(async move {
            self.write(|state, env| {
                let tenant = View::open(state, pass)?.tenant;
                let (id, bound) = (key.credential.key.clone(), key.subject.is_some());
                state.insert_key(&tenant, key, at, env)?;
                if bound {
                    state.raise_grants(&tenant);
                }
                let draft = admin_draft(pass, EntryType::KeyChanged, "created", id.as_str(), None)?;
                state.append(&tenant, &[draft], at)?;
                Ok(())
            })
        })
    }

    fn revoke_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: &'a KeyId,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(async move {
            self.write(|state, _| {
                let tenant = View::open(state, pass)?.tenant;
                let of_tenant = |info: &&KeyInfo| info.credential.tenant == tenant;
                let ended = state.keys.get(key).filter(of_tenant).ok_or(Error::NotFound)?;
                if ended.credential.revoked_at.is_some() {
                    return Ok(());
                }
                let all = state.keys.values().filter(of_tenant).map(|info| &info.credential);
                may_end(&ended.credential, all, at)?;
                let credential = &mut state.keys.get_mut(key).ok_or(Error::NotFound)?.credential;
                credential.revoked_at = Some(at);
                // A capability that was minted for this key is worth nothing from now on.
                state.raise_grants(&tenant);
                let draft = admin_draft(pass, EntryType::KeyChanged, "revoked", key.as_str(), None)?;
                state.append(&tenant, &[draft], at)?;
                Ok(())
            })
        })
    }

    fn keys<'a>(&'a self, pass: &'a Pass<'_, class::Keys>) -> Fut<'a, Result<Vec<KeyInfo>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let own = state.keys.values().filter(|info| info.credential.tenant == view.tenant);
                Ok(own.cloned().collect())
            })
        })
    }
}

/// The instance's own tenant, if the capability is one of it.
fn instance(state: &State, pass: &Pass<'_, class::Instance>) -> Result<TenantId, Error> {
    let view = View::open(state, pass)?;
    if view.tenant == state.system { Ok(view.tenant) } else { Err(Error::NotFound) }
}
