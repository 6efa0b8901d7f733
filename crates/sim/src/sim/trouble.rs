//! What goes wrong in a run: clocks that jump, faults that wait at their points, and others who change what a
//! request under way rests on.

use merkwelt_authz::Role;
use merkwelt_domain::FaultPoint;

use super::{GROUPS, Run, Task};
use crate::env::{Armed, TaskId};
use crate::failure::Found;
use crate::plan::Op;

impl Run {
    /// Erasures are seldom and take several steps, so they meet more faults than their share.
    pub(super) fn threaten(&mut self, task: TaskId) {
        let erasing = self.tasks.get(&task).is_some_and(|task| matches!(task.plan.op, Op::Erase));
        if erasing && self.draws.chance(15) {
            let point =
                if self.draws.chance(60) { FaultPoint::AfterCommit } else { FaultPoint::BeforeVacuum };
            let skip = u32::try_from(self.draws.below(3)).unwrap_or(0);
            let dies = self.draws.chance(30);
            self.instance.env.arm(Some(Armed { point, skip, dies }));
        }
    }

    /// Changes what a request under way rests on, completely, before it is moved on: somebody else takes its
    /// membership, its key, its person, its memories or its conversation away.
    pub(super) fn meddle(&mut self) -> Result<(), Found> {
        let reading = |(_, task): &(&TaskId, &Task)| {
            let view = &task.view;
            view.considered.is_some() || view.listed.is_some() || view.found.is_some()
        };
        let reading: Vec<TaskId> = self.tasks.iter().filter(reading).map(|(id, _)| *id).collect();
        let Some(victim) = self.draws.pick(&reading).and_then(|id| self.tasks.get(id)) else { return Ok(()) };
        let (tenant, client, role) = (victim.plan.tenant, victim.plan.client, victim.plan.role);
        let Some(found) = self.model.tenants.get(tenant) else { return Ok(()) };
        let Some(life) = victim.plan.asker(found) else { return Ok(()) };
        let groups: Vec<usize> =
            (0..GROUPS).filter(|group| found.is_member(found.group_life(*group), life)).collect();
        let now = self.instance.env.clock();
        let ids: Vec<_> = found.current(Some(life), now).filter_map(|item| item.id.clone()).collect();
        let talks: Vec<_> = found
            .talks
            .iter()
            .enumerate()
            .filter(|(_, talk)| talk.owner == life && !talk.gone)
            .filter_map(|(place, talk)| Some((tenant, place, talk.id.clone()?)))
            .collect();
        let (by, person, op) = match self.draws.below(8) {
            0 => (Role::PrivacyOfficer, Some(life.0), Some(Op::Erase)),
            1 if role == Role::App => (Role::TenantAdmin, None, Some(Op::RevokeKey { client })),
            2..=3 => (Role::App, Some(life.0), self.draws.pick(&ids).cloned().map(|id| Op::Retract { id })),
            4 => {
                let talk = self.draws.pick(&talks).cloned();
                (Role::App, Some(life.0), talk.map(|talk| Op::DeleteTalk { talk }))
            }
            _ => {
                let group = self.draws.pick(&groups).copied();
                (Role::TenantAdmin, None, group.map(|group| Op::Leave { group, person: life.0 }))
            }
        };
        let plan = op.and_then(|op| self.planner().plan(tenant, person, by, op));
        if let Some(task) = plan.and_then(|plan| self.spawn(plan)) {
            self.finish(task)?;
        }
        Ok(())
    }

    pub(crate) fn arm(&mut self, may_die: bool) {
        let point = self.draws.pick(&FaultPoint::ALL).copied().unwrap_or(FaultPoint::BeforeCommit);
        let skip = u32::try_from(self.draws.below(3)).unwrap_or(0);
        let dies = may_die && self.draws.chance(25);
        self.instance.env.arm(Some(Armed { point, skip, dies }));
    }

    /// Moves the clock: a little, a lot, backwards, or to the very end of something.
    pub(crate) fn move_clock(&mut self, tenant: usize) {
        let now = self.instance.env.clock();
        let items = self.model.tenants.get(tenant).map_or(&[][..], |tenant| &tenant.items);
        let end = self.draws.pick(items).map_or(now, |item| item.end);
        let to = match self.draws.below(12) {
            0 => now - self.draws.between(1, 10_000),
            1 => now - self.draws.between(1, 3 * 3_600_000),
            2..=5 if end < now + 30 * 86_400_000 => end + self.draws.between(-1, 1),
            6 => now + self.draws.between(1, 5 * 3_600_000),
            7 => now + self.draws.between(1, 40 * 3_600_000),
            _ => now + self.draws.between(1, 30_000),
        };
        self.instance.env.put_clock(to);
    }
}
