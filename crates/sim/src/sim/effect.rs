//! What calls did: the oracle learns of every change at the moment at which it took effect.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

use merkwelt_authz::Role;

use super::Run;
use crate::apply;
use crate::audit;
use crate::failure::{Found, Property, holds};
use crate::journal::{Call, Event};
use crate::model::{Life, Presence};
use crate::plan::{Client, Op, Plan};
use crate::world::BackendKind;

impl Run {
    /// Learns what a call did.
    pub(super) fn hear(&mut self, event: &Event) -> Result<(), Found> {
        self.note(&format!("{} {:?} {} {:?}", event.task, event.call, event.landed, event.told));
        let Some(task) = self.tasks.get_mut(&event.task) else { return Ok(()) };
        let (plan, tenant) = (task.plan.clone(), task.plan.tenant);
        let at = match &event.call {
            Call::Write(at, _) => Some(at.millis()),
            Call::Directory => Some(0),
            _ => None,
        };
        if let Some(at) = at {
            let writable = apply::writable(&plan, &self.model, &self.remembered, at);
            task.view.writable = writable;
            task.view.wrote |= event.landed;
            holds(!event.landed || writable != Some(false), Property::Apart, || {
                format!("{plan:?} was written and must not be")
            })?;
        }
        let clients = self.clients.get(tenant).map_or(&[][..], Vec::as_slice);
        task.view.note(event, &plan, &self.model, clients);
        if event.faulted {
            self.report.faults += 1;
        }
        if event.landed {
            self.take_effect(event, &plan)?;
        }
        let unclear =
            event.faulted && matches!(event.call, Call::Write(..) | Call::Directory | Call::Erase(..));
        if unclear && !self.instance.env.is_dead() {
            self.audit_tenant(tenant)?;
        }
        Ok(())
    }

    pub(super) fn take_effect(&mut self, event: &Event, plan: &Plan) -> Result<(), Found> {
        match &event.call {
            Call::Write(at, receipt) => {
                let receipt = (at.millis(), receipt.as_ref());
                apply::write(plan, &mut self.model, &mut self.remembered, receipt)
            }
            Call::Directory => {
                // Joining may register a person first, in a transaction of its own.
                if !event.silent || self.joined(plan) {
                    apply::directory(plan, &mut self.model);
                }
                Ok(())
            }
            Call::Erase(subject, commits) => {
                // In files an erasure is three transactions: accepted, purged, proven.
                let finished = !event.silent || self.instance.kind == BackendKind::Reference || *commits >= 3;
                let life = self.tasks.get(&event.task).and_then(|task| task.view.life);
                if let (Some(subject), Some(life)) = (subject, life) {
                    self.erased.insert((plan.tenant, subject.clone()));
                    self.erase(plan.tenant, life, finished);
                }
                Ok(())
            }
            Call::RevokeKey(key) => {
                let unsure = event.silent && self.instance.kind == BackendKind::Sqlite;
                let ended = |client: &&mut Client| client.key.id() == key;
                let clients = self.clients.get_mut(plan.tenant).into_iter().flatten();
                clients.filter(ended).for_each(|client| {
                    client.revoked = true;
                    client.unsure |= unsure;
                });
                self.disturb(|other, clients| {
                    clients.get(other.tenant).and_then(|c| c.get(other.client)).is_some_and(|c| c.revoked)
                });
                Ok(())
            }
            Call::Credential
            | Call::Grants
            | Call::Recall(_)
            | Call::Fetch(_)
            | Call::Scan(_)
            | Call::Flat(_)
            | Call::Read(..)
            | Call::AddKey
            | Call::Denial
            | Call::Look => Ok(()),
        }
    }

    /// Whether a membership whose receipt got lost stands; true for what is no membership.
    pub(super) fn joined(&self, plan: &Plan) -> bool {
        let Op::Join { group, person } = plan.op else { return true };
        let tenant = self.model.tenants.get(plan.tenant);
        let group = tenant.and_then(|tenant| tenant.groups.get(group)?.name.parse().ok());
        let name = tenant.and_then(|tenant| Some(tenant.persons.get(person)?.name.clone()));
        let (Some(group), Some(name)) = (group, name) else { return false };
        let (Ok(app), Some(admin)) = (self.instance.app(), self.sure_key(plan.tenant, Role::TenantAdmin))
        else {
            return false;
        };
        audit::members(&app, &admin, &group).is_some_and(|members| members.contains(&name))
    }

    pub(super) fn disturb(&mut self, whose: impl Fn(&Plan, &[Vec<Client>]) -> bool) {
        for task in self.tasks.values_mut() {
            task.view.disturbed |= whose(&task.plan, &self.clients);
        }
    }

    pub(super) fn erase(&mut self, tenant: usize, life: Life, finished: bool) {
        let Some(found) = self.model.tenants.get_mut(tenant) else { return };
        if found.life(life.0) != life {
            return;
        }
        found.erase(life);
        if let Some(person) = found.persons.get_mut(life.0) {
            person.presence = Presence::Erasing;
            if finished {
                person.presence = Presence::Here;
                person.life += 1;
            }
        }
        self.report.erased += 1;
        self.remembered.forget(tenant, life);
        for client in self.clients.get_mut(tenant).into_iter().flatten().filter(|c| c.bound == Some(life)) {
            (client.revoked, client.unsure) = (true, true);
        }
        self.disturb(|plan, _| {
            let named = plan.person == Some(life.0) || plan.bound == Some(life);
            plan.tenant == tenant && (named || matches!(plan.op, Op::Join { person, .. } | Op::Leave { person, .. } if person == life.0) || matches!(plan.op, Op::NewKey { bound: Some(person), .. } if person == life.0))
        });
    }
}
