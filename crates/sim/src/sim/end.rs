//! How a process ends, and how a run does: everybody is looked at, and so is every ledger and every file.

use merkwelt_authz::{ApiKey, Role};

use super::{PERSONS, Run, TENANTS, hex};
use crate::audit;
use crate::failure::{Found, Property, holds};
use crate::model::Presence;
use crate::plan::Client;

impl Run {
    /// The process ends, whoever is being served goes with it, and starts again.
    pub(super) fn die(&mut self) -> Result<(), Found> {
        for (id, task) in std::mem::take(&mut self.tasks) {
            self.expected.insert(id, (task.plan.tenant, task.view.landed.len(), None));
        }
        self.instance.misses.arm(None);
        self.note("a new process");
        if self.instance.env.is_dead() || self.draws.chance(70) {
            self.instance.kill(&mut self.draws)?;
        } else {
            self.instance.restart()?;
        }
        self.report.starts += 1;
        for tenant in &mut self.model.tenants {
            tenant.end_sittings();
            for person in tenant.persons.iter_mut().filter(|person| person.presence == Presence::Erasing) {
                person.presence = Presence::Here;
                person.life += 1;
            }
        }
        self.audit()
    }

    /// A key of a role that surely works.
    pub(crate) fn sure_key(&self, tenant: usize, role: Role) -> Option<ApiKey> {
        let sure = |client: &&Client| {
            client.role == role && client.bound.is_none() && !client.revoked && !client.unsure
        };
        self.clients.get(tenant)?.iter().find(sure).map(|client| client.key.clone())
    }

    pub(crate) fn audit(&mut self) -> Result<(), Found> {
        (0..TENANTS).try_for_each(|tenant| self.audit_tenant(tenant))
    }

    pub(super) fn audit_tenant(&mut self, tenant: usize) -> Result<(), Found> {
        let (app, now) = (self.instance.app()?, self.instance.env.clock());
        let Some(key) = self.sure_key(tenant, Role::App) else { return Ok(()) };
        let Some(found) = self.model.tenants.get_mut(tenant) else { return Ok(()) };
        for person in 0..PERSONS {
            let here = found.persons.get(person).filter(|person| person.presence == Presence::Here);
            let Some(subject) = here.and_then(|person| person.name.parse().ok()) else { continue };
            let life = found.life(person);
            audit::person(&app, &key, &subject, found, (life, now))?;
        }
        Ok(())
    }

    /// Everybody is served, the faults stop, the process dies once more, and everything is looked at.
    pub(super) fn end(&mut self) -> Result<(), Found> {
        self.instance.env.arm(None);
        self.instance.misses.arm(None);
        while let Some(task) = self.tasks.keys().next().copied() {
            self.finish(task)?;
        }
        self.audit()?;
        self.die()?;
        self.ledgers()?;
        self.forgotten()?;
        self.at_rest()?;
        self.report.digest = hex(&self.trace);
        Ok(())
    }

    /// Every erasure that was accepted ended, and nothing is left of anybody.
    pub(super) fn forgotten(&mut self) -> Result<(), Found> {
        for (tenant, subject) in std::mem::take(&mut self.erased) {
            let Some(officer) = self.sure_key(tenant, Role::PrivacyOfficer) else { continue };
            let app = self.instance.app()?;
            let backend = self.instance.backend()?;
            let person = self.model.tenants.get(tenant).and_then(|tenant| tenant.persons.first());
            let Some(name) = person.and_then(|person| person.name.parse().ok()) else { continue };
            let left = audit::residue(&app, &*backend, &officer, &name, &subject);
            let left = left.ok_or_else(|| (Property::Forgotten, "residue cannot be asked for".to_owned()))?;
            holds(left.is_none(), Property::Forgotten, || format!("{left:?} is left of somebody"))?;
        }
        for ledger in self.ledgers.values() {
            let count = |name| audit::count(ledger, name);
            let (asked, proven) = (count("erasure_requested"), count("erasure_receipt"));
            holds(asked == proven, Property::Forgotten, || format!("{proven} of {asked} erasures ended"))?;
        }
        Ok(())
    }

    /// Every ledger verifies, continues the former one, and holds exactly the reads that were made.
    pub(crate) fn ledgers(&mut self) -> Result<(), Found> {
        let app = self.instance.app()?;
        for tenant in 0..TENANTS {
            let Some(auditor) = self.sure_key(tenant, Role::Auditor) else { continue };
            let ledger = audit::ledger(&app, &auditor)?;
            audit::verified(&ledger, self.ledgers.get(&tenant))?;
            let reads = audit::reads(&ledger);
            for (task, (of, count, counted)) in &self.expected {
                let found = reads.get(task).cloned().unwrap_or_default();
                let wanted = if *of == tenant { *count } else { 0 };
                holds(found.count == wanted, Property::Evidence, || {
                    format!("request {task} left {} read events instead of {wanted}", found.count)
                })?;
                let (records, tokens) =
                    counted.filter(|_| *of == tenant).unwrap_or((found.records, found.tokens));
                holds((records, tokens) == (found.records, found.tokens), Property::Evidence, || {
                    format!(
                        "request {task} delivered {records} records and the ledger counts {}",
                        found.records
                    )
                })?;
            }
            self.ledgers.insert(tenant, ledger);
        }
        Ok(())
    }

    /// No word of anybody can be read in the files.
    pub(super) fn at_rest(&self) -> Result<(), Found> {
        let Some(root) = self.instance.root() else { return Ok(()) };
        let mut readable = audit::words_in_files(&root);
        // Names of groups are open by design (SECURITY.md).
        for group in self.model.tenants.iter().flat_map(|tenant| &tenant.groups) {
            readable.remove(&group.serial);
        }
        holds(readable.is_empty(), Property::AtRest, || format!("words {readable:?} lie open on disk"))
    }
}
