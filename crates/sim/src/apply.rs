//! What a change that took effect does to the oracle, and whether it could take effect at all. A change whose
//! receipt got lost is applied too: its ids are learned when somebody lists what there is.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

use std::collections::BTreeMap;

use merkwelt_domain::MemoryId;
use merkwelt_store::change::{Outcome, Receipt};

use crate::failure::{Found, Property, holds};
use crate::model::{Asker, Fate, Item, Life, Model, Said, Talk, Tenant, Whose};
use crate::plan::{For, Note, Op, Plan};

/// Answers that are given again: by tenant, key and number, and for whom. None is forgotten during a run (see
/// `world::settings`): when a store drops an old one is its own affair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembered(BTreeMap<(usize, usize, u32), Asker>);

/// What is known of a repeated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    No,
    Yes,
    Conflict,
}

impl Remembered {
    fn of(&self, plan: &Plan, number: u32, asker: Asker) -> Again {
        match self.0.get(&(plan.tenant, plan.client, number)) {
            None => Again::No,
            Some(whose) if *whose == asker => Again::Yes,
            Some(_) => Again::Conflict,
        }
    }

    fn keep(&mut self, plan: &Plan, number: u32, asker: Asker) {
        self.0.insert((plan.tenant, plan.client, number), asker);
    }

    /// The answers of somebody who was erased.
    pub(crate) fn forget(&mut self, tenant: usize, life: Life) {
        self.0.retain(|(of, ..), whose| *of != tenant || *whose != Some(life));
    }
}

fn whose(note: &Note, tenant: &Tenant, asker: Asker) -> Option<Whose> {
    Some(match note.whose {
        For::Oneself => Whose::Person(asker?),
        For::Group(group) => Whose::Group(tenant.group_life(group)),
        For::Everybody => Whose::Everybody,
    })
}

/// Whether a write can succeed now; `None` if that is left open.
pub(crate) fn writable(plan: &Plan, model: &Model, remembered: &Remembered, at: i64) -> Option<bool> {
    let tenant = model.tenants.get(plan.tenant)?;
    let exists = |group: &usize| tenant.groups.get(*group).is_some_and(|group| group.exists);
    match &plan.op {
        Op::MakeGroup { group } => return Some(!exists(group)),
        Op::DropGroup { group } | Op::Join { group, .. } | Op::Leave { group, .. } => {
            return Some(exists(group));
        }
        _ => {}
    }
    let asker = plan.asker(tenant)?;
    let own = |talk: &(usize, usize, _)| talk.0 == plan.tenant && tenant.own_talk(talk.1, asker).is_some();
    Some(match &plan.op {
        Op::Remember { notes, again } => {
            let known = again.map_or(Again::No, |number| remembered.of(plan, number, Some(asker)));
            match known {
                Again::Yes => return Some(true),
                Again::Conflict => return Some(false),
                Again::No => {}
            }
            notes.iter().all(|note| {
                let owner = whose(note, tenant, Some(asker));
                let talk = note.talk.as_ref().is_none_or(|(talk, _)| tenant.own_talk(*talk, asker).is_some());
                talk && owner.is_some_and(|owner| tenant.writes(asker, owner))
            })
        }
        Op::Correct { id, expected, note } => tenant.latest(id).is_some_and(|item| {
            let other = note.slot.and_then(|slot| tenant.in_slot(item.whose, slot));
            let other =
                other.and_then(|place| tenant.items.get(place)).is_some_and(|found| found.id != item.id);
            let talk = note.talk.as_ref().is_none_or(|(talk, _)| tenant.own_talk(*talk, asker).is_some());
            stands(tenant, asker, item, at) && expected.is_none_or(|e| e == item.revision) && talk && !other
        }),
        Op::Retract { id } => tenant.latest(id).is_some_and(|item| stands(tenant, asker, item, at)),
        Op::Open { .. } => true,
        Op::Say { talk, .. } | Op::DeleteTalk { talk } => own(talk),
        _ => return None,
    })
}

fn stands(tenant: &Tenant, asker: Life, item: &Item, at: i64) -> bool {
    item.fate == Fate::Stands && at < item.end && tenant.writes(asker, item.whose)
}

/// Applies a write that took effect at `at`.
pub(crate) fn write(
    plan: &Plan,
    model: &mut Model,
    remembered: &mut Remembered,
    (at, receipt): (i64, Option<&Receipt>),
) -> Result<(), Found> {
    let asker = model.tenants.get(plan.tenant).and_then(|tenant| plan.asker(tenant));
    let Some(life) = asker else { return Ok(()) };
    if let Op::Remember { again: Some(number), .. } = &plan.op {
        let known = remembered.of(plan, *number, asker);
        let replayed = receipt.map_or(known == Again::Yes, |receipt| receipt.replayed);
        holds(replayed == (known == Again::Yes), Property::Durable, || {
            format!("a repeated request was answered anew or a new one as repeated: {known:?}")
        })?;
        if replayed {
            return Ok(());
        }
        remembered.keep(plan, *number, asker);
    }
    let outcomes = receipt.map(|receipt| receipt.outcomes.as_slice());
    let applied = model.tenant_mut(plan.tenant, |tenant| apply(&plan.op, tenant, life, at, outcomes));
    applied.unwrap_or(Ok(()))
}

fn apply(
    op: &Op,
    tenant: &mut Tenant,
    life: Life,
    at: i64,
    outcomes: Option<&[Outcome]>,
) -> Result<(), Found> {
    let outcome = |place: usize| outcomes.and_then(|outcomes| outcomes.get(place));
    match op {
        Op::Remember { notes, .. } => {
            for (place, note) in notes.iter().enumerate() {
                let Some(whose) = whose(note, tenant, Some(life)) else { continue };
                remember(tenant, note, whose, at, outcome(place))?;
            }
        }
        Op::Correct { id, note, .. } => {
            let Some(place) = tenant.items.iter().rposition(|item| item.id.as_ref() == Some(id)) else {
                return Ok(());
            };
            let Some(old) = tenant.items.get(place).cloned() else { return Ok(()) };
            supersede(tenant, place);
            let talk = note.talk.as_ref().map(|(talk, _)| *talk).or(old.talk);
            let (whose, revision) = (old.whose, old.revision + 1);
            tenant.items.push(Item { talk, ..item(note, whose, at, Some(id.clone()), revision) });
        }
        Op::Retract { id } => {
            for item in tenant.items.iter_mut().filter(|item| item.id.as_ref() == Some(id)) {
                if item.fate == Fate::Stands {
                    item.fate = Fate::Retracted;
                }
            }
        }
        Op::Open { kept } => {
            let id = match outcome(0) {
                Some(Outcome::Opened { id }) => Some(id.clone()),
                Some(_) | None => None,
            };
            tenant.talks.push(Talk { owner: life, kept_days: *kept, id, gone: false, said: Vec::new() });
        }
        Op::Say { talk, serial } => {
            if let Some(talk) = tenant.talks.get_mut(talk.1) {
                let days = i64::from(talk.kept_days.unwrap_or(0));
                let number = talk.said.last().map_or(1, |said| said.number + 1);
                let number = match outcome(0) {
                    Some(Outcome::Appended { number, .. }) => *number,
                    Some(_) | None => number,
                };
                talk.said.push(Said { serial: *serial, number, at, end: at + days * 86_400_000 });
            }
        }
        Op::DeleteTalk { talk } => tenant.delete_talk(talk.1),
        _ => {}
    }
    Ok(())
}

fn item(note: &Note, whose: Whose, at: i64, id: Option<MemoryId>, revision: u32) -> Item {
    Item {
        serial: note.serial,
        whose,
        kind: note.kind,
        slot: note.slot,
        from: note.from.unwrap_or(at),
        end: note.end,
        written: at,
        talk: note.talk.as_ref().map(|(talk, _)| *talk),
        id,
        revision,
        fate: Fate::Stands,
    }
}

fn supersede(tenant: &mut Tenant, place: usize) {
    if let Some(item) = tenant.items.get_mut(place) {
        item.fate = Fate::Superseded;
    }
}

fn remember(
    tenant: &mut Tenant,
    note: &Note,
    whose: Whose,
    at: i64,
    outcome: Option<&Outcome>,
) -> Result<(), Found> {
    let before = note.slot.and_then(|slot| tenant.in_slot(whose, slot));
    let former = before.and_then(|place| tenant.items.get(place)).cloned();
    let (id, revision) = match (outcome, &former) {
        // The text stands already: a request that was forgotten and came again.
        (Some(Outcome::Merged { .. }), _) => return Ok(()),
        (Some(Outcome::Created { id, revision }), None) => (Some(id.clone()), revision.number()),
        (Some(Outcome::Superseded { id, revision }), Some(former)) => {
            holds(former.id.is_none() || former.id.as_ref() == Some(id), Property::Current, || {
                "another memory than the one in the slot was superseded".to_owned()
            })?;
            (Some(id.clone()), revision.number())
        }
        // The request of somebody who was erased came again; what they shared stands.
        (Some(Outcome::Superseded { id, revision }), None) if restated(tenant, id, note) => {
            (Some(id.clone()), revision.number())
        }
        (None, former) => {
            let known = former.as_ref();
            (known.and_then(|item| item.id.clone()), known.map_or(1, |item| item.revision + 1))
        }
        (Some(outcome), former) => {
            let what = format!("slot {:?} held {former:?}, and the outcome is {outcome:?}", note.slot);
            return Err((Property::Current, what));
        }
    };
    let same = |item: &Item| id.is_some() && item.id == id && item.fate == Fate::Stands;
    if let Some(place) = before.or_else(|| tenant.items.iter().rposition(same)) {
        supersede(tenant, place);
    }
    tenant.items.push(item(note, whose, at, id, revision));
    Ok(())
}

fn restated(tenant: &Tenant, id: &MemoryId, note: &Note) -> bool {
    tenant.latest(id).is_some_and(|item| item.serial == note.serial)
}

/// Applies a change of groups or members.
pub(crate) fn directory(plan: &Plan, model: &mut Model) {
    model.tenant_mut(plan.tenant, |tenant| match &plan.op {
        Op::MakeGroup { group } => {
            if let Some(group) = tenant.groups.get_mut(*group) {
                group.exists = true;
                group.life += 1;
                group.members.clear();
            }
        }
        Op::DropGroup { group } => {
            if let Some(group) = tenant.groups.get_mut(*group) {
                group.exists = false;
                group.members.clear();
            }
        }
        Op::Join { group, person } => {
            let life = tenant.life(*person);
            if let Some(group) = tenant.groups.get_mut(*group) {
                group.members.insert(life);
            }
        }
        Op::Leave { group, person } => {
            let life = tenant.life(*person);
            if let Some(group) = tenant.groups.get_mut(*group) {
                group.members.remove(&life);
            }
        }
        _ => {}
    });
}
