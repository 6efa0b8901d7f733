//! Sources under one seed: a backend that publishes, replaces, withdraws, deletes and restores, rights that come and
//! go, faults and deaths at every point, and readers that are interrupted by a whole change. After every change
//! each person finds exactly what is current for them; a change that failed happened completely or not at all.

mod ask;
mod change;
#[cfg(test)]
mod interrupted;
mod paper;
mod settle;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use merkwelt_app::OpenRequest;
use merkwelt_authz::{ApiKey, Role};
use merkwelt_domain::basis::Basis;
use merkwelt_domain::conversation::Retention;
use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::SourceState;
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{ConversationId, FaultPoint, GroupName, PackId, SubjectRef};
use merkwelt_store::change::Outcome;
use merkwelt_store::source::SourceRecord;

use self::ask::{Ask, Heard, Reader};
use self::change::{Change, Made};
use self::paper::{Paper, Sheet, Shelf};
use crate::act::run_of;
use crate::audit::words_in_files;
use crate::draws::Draws;
use crate::env::{Armed, TaskId};
use crate::failure::{Failure, Found, Property, holds};
use crate::journal::Call;
use crate::marker::{Serial, words_in};
use crate::sim::Options;
use crate::stage::Miss;
use crate::world::{Instance, at_once, request};

const PERSONS: usize = 3;
const GROUPS: usize = 2;
const PAPERS: usize = 5;

/// What a run was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShelfReport {
    /// Changes that were made.
    pub changes: u64,
    /// Answers that readers got across a change.
    pub answers: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Times the process died.
    pub deaths: u64,
}

type Running = (Reader, Pin<Box<dyn Future<Output = Heard> + Send>>);

struct Run {
    instance: Instance,
    draws: Draws,
    shelf: Shelf,
    app: ApiKey,
    admin: ApiKey,
    talks: Vec<ConversationId>,
    /// Packs that were delivered, and to whom.
    packs: Vec<(usize, PackId)>,
    /// Whether the instance withholds what rests on a removed source.
    withholds: bool,
    serial: Serial,
    next_task: TaskId,
    report: ShelfReport,
}

/// Runs a seed.
///
/// # Errors
/// The first [`Failure`].
pub fn shelf(seed: u64, options: Options) -> Result<ShelfReport, Failure> {
    let failed = |step: u64, (property, what): Found| Failure { seed, step, property, what };
    let mut run = Run::begin(seed, options).map_err(|found| failed(0, found))?;
    for step in 1..=options.steps {
        run.one_step().map_err(|found| failed(step, found))?;
    }
    run.end().map_err(|found| failed(options.steps, found))?;
    Ok(run.report)
}

fn broken(what: &str) -> Found {
    (Property::Answered, what.to_owned())
}

fn group(place: usize) -> Result<GroupName, Found> {
    format!("group-{place}").parse().map_err(|_| broken("a group has no name"))
}

fn person(place: usize) -> Result<SubjectRef, Found> {
    format!("person-{place}").parse().map_err(|_| broken("a person has no name"))
}

impl Run {
    fn begin(seed: u64, options: Options) -> Result<Self, Found> {
        let (mut instance, instance_admin, _) = Instance::found(options.backend, seed, options.mutant)?;
        let withholds = seed % 2 == 1;
        if withholds {
            instance.withhold()?;
        }
        let (_, keys) = instance.add_tenant(&instance_admin, "tenant")?;
        let key = |role| {
            let found = keys.iter().find(|key| key.role == role).map(|key| key.key.clone());
            found.ok_or_else(|| broken("a role has no key"))
        };
        let (app, admin) = (key(Role::App)?, key(Role::TenantAdmin)?);
        let mut run = Self {
            instance,
            draws: Draws::of(seed),
            shelf: Shelf::default(),
            app,
            admin,
            talks: Vec::new(),
            packs: Vec::new(),
            withholds,
            serial: 0,
            next_task: 1,
            report: ShelfReport::default(),
        };
        run.people()?;
        Ok(run)
    }

    /// Groups, and a conversation of each person.
    fn people(&mut self) -> Result<(), Found> {
        let application = self.instance.app()?;
        let made = at_once(async {
            let admin = request(&application, &self.admin, None).await?;
            for place in 0..GROUPS {
                let wanted = merkwelt_app::GroupRequest::Create(group(place).ok()?);
                application.change_directory(&admin, &wanted).await.ok()?;
            }
            application.set_organisation_switch(&admin, OrganisationSwitch::Continue).await.ok()?;
            let mut talks = Vec::new();
            for place in 0..PERSONS {
                let own = request(&application, &self.app, Some(&person(place).ok()?)).await?;
                let wanted = OpenRequest { retention: Retention::KeptDays(30), carried_over: None };
                let receipt = application.open_conversation(&own, &wanted, None).await.ok()?;
                talks.extend(receipt.outcomes.into_iter().find_map(|outcome| match outcome {
                    Outcome::Opened { id } => Some(id),
                    Outcome::Created { .. }
                    | Outcome::Superseded { .. }
                    | Outcome::Merged { .. }
                    | Outcome::Retracted { .. }
                    | Outcome::Appended { .. }
                    | Outcome::ConversationDeleted { .. } => None,
                }));
            }
            Some(talks)
        });
        self.talks = made.flatten().ok_or_else(|| broken("nobody is there"))?;
        Ok(())
    }

    /// Readers begin, a change is made completely, the readers end.
    fn one_step(&mut self) -> Result<(), Found> {
        let mut readers = Vec::new();
        for _ in 0..1 + self.draws.below(3) {
            if let Some(reader) = self.reader()? {
                let mut running: Running = (reader.clone(), Box::pin(reader.hear()));
                let calls = self.draws.below(9);
                if !(0..calls).any(|_| self.poll(&mut running).is_some()) {
                    readers.push(running);
                }
            }
        }
        let (released, before) = (self.released(), self.shelf.clone());
        let certain = match self.change()? {
            Some(change) => self.make(change)?,
            None => true,
        };
        if self.instance.env.is_dead() || self.draws.chance(4) {
            readers.clear();
            self.report.deaths += 1;
            self.instance.kill(&mut self.draws)?;
        }
        if !certain {
            self.settle()?;
        }
        for mut running in readers {
            let heard = self.finish(&mut running);
            if let Some(heard) = heard {
                self.report.answers += 1;
                // What was released before the change was right before it.
                let shelf = if released.contains(&running.0.task) { &before } else { &self.shelf };
                ask::check(&running.0.ask, running.0.person, &heard, shelf, self.withholds)?;
                let pack = heard.get("pack_id").and_then(|id| id.as_str()?.parse().ok());
                self.packs.extend(pack.map(|id| (running.0.person, id)));
            }
        }
        drop(self.instance.journal.take());
        self.look_around()
    }

    /// Who has their read event already.
    fn released(&self) -> BTreeSet<TaskId> {
        let events = self.instance.journal.take().into_iter();
        let reads = events.filter(|event| event.landed && matches!(event.call, Call::Read(..)));
        reads.map(|event| event.task).collect()
    }

    fn reader(&mut self) -> Result<Option<Reader>, Found> {
        let place = self.draws.below(PERSONS);
        let talk = self.talks.get(place).cloned().ok_or_else(|| broken("a person has no conversation"))?;
        let drawn = self.draws.below(13);
        let packs: Vec<PackId> =
            self.packs.iter().filter(|(of, _)| *of == place).map(|(_, id)| id.clone()).collect();
        let pack = self.draws.pick(&packs).cloned();
        let paper = self.draws.pick(&self.shelf.papers).cloned();
        let sheet = paper.as_ref().and_then(|paper| self.draws.pick(&paper.sheets).cloned());
        let named = paper.zip(sheet).map(|(paper, sheet)| {
            let basis = Basis { source: paper.id, revision: Revision::from_number(sheet.number) };
            (basis, sheet)
        });
        let ask = match (drawn, named) {
            (0..=2, _) => Ask::Recall,
            (3..=4, _) => Ask::Context(talk, drawn == 3),
            (5, _) => Ask::Conversation(talk),
            (12, _) => Ask::HandOver(talk),
            (6, Some((_, sheet))) => Ask::Citation(sheet.id),
            (7, Some((basis, sheet))) => Ask::Keep(basis, sheet.serial),
            (8, Some((basis, _))) => Ask::LookUp(basis),
            (10..=11, _) => match pack {
                Some(id) => Ask::Pack(id),
                None => return Ok(None),
            },
            (9, Some((basis, sheet))) => Ask::Say(talk, basis, sheet.serial),
            _ => return Ok(None),
        };
        self.next_task += 1;
        let (app, key, task) = (self.instance.app()?, self.app.clone(), self.next_task);
        Ok(Some(Reader { app, key, person: place, name: person(place)?, task, ask }))
    }

    fn poll(&self, (reader, future): &mut Running) -> Option<Heard> {
        self.instance.env.enter(reader.task);
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.instance.env.enter(0);
        match polled {
            Poll::Ready(heard) => Some(heard),
            Poll::Pending => None,
        }
    }

    fn finish(&self, running: &mut Running) -> Heard {
        loop {
            if let Some(heard) = self.poll(running) {
                return heard;
            }
        }
    }

    fn change(&mut self) -> Result<Option<Change>, Found> {
        let (place, member) = (self.draws.below(GROUPS), self.draws.below(PERSONS));
        let drawn = self.draws.below(16);
        let some = self.draws.chance(60);
        let (group, person) = (group(place)?, person(member)?);
        let audience = some.then(|| group.clone());
        if drawn < 2 && self.shelf.papers.len() < PAPERS {
            return Ok(Some(Change::Register { group: audience, copied: self.draws.chance(50) }));
        }
        if drawn >= 13 {
            let join = self.draws.chance(60);
            return Ok(Some(if join {
                Change::Join { group, person }
            } else {
                Change::Leave { group, person }
            }));
        }
        let Some(paper) = self.draws.pick(&self.shelf.papers).cloned() else { return Ok(None) };
        let (source, deleted) = (paper.id.clone(), paper.state == SourceState::Deleted);
        Ok(match drawn {
            0..=6 if !deleted => {
                self.serial += 1;
                Some(Change::Publish { source, serial: self.serial })
            }
            7 if paper.state == SourceState::Active => Some(Change::Withdraw { source }),
            8 => Some(Change::Delete { source }),
            9..=10 if !deleted || paper.copied => {
                let sheet = self.draws.pick(&paper.sheets).cloned();
                sheet.map(|sheet| Change::Restore { source, revision: sheet.id })
            }
            11..=12 if !deleted => Some(Change::Admit { source, group: audience }),
            _ => None,
        })
    }

    /// Makes a change, now and then with a fault; whether it is certain what came of it.
    fn make(&mut self, change: Change) -> Result<bool, Found> {
        let missed = self.threaten();
        self.carry_out(change, missed)
    }

    /// Arms a fault, or none; whether a call of a port fails.
    fn threaten(&mut self) -> bool {
        let mut missed = false;
        if self.draws.chance(30) {
            let point = self.draws.pick(&FaultPoint::ALL).copied().unwrap_or(FaultPoint::BeforeCommit);
            let skip = u32::try_from(self.draws.below(3)).unwrap_or(0);
            let dies = self.draws.chance(40);
            self.instance.env.arm(Some(Armed { point, skip, dies }));
        } else if self.draws.chance(10) {
            missed = true;
            let miss = if self.draws.chance(50) { Miss::Before } else { Miss::After };
            self.instance.misses.arm(Some(miss));
        }
        missed
    }

    fn carry_out(&mut self, change: Change, missed: bool) -> Result<bool, Found> {
        let fired = self.instance.env.fired();
        self.next_task += 1;
        let by_admin = matches!(change, Change::Join { .. } | Change::Leave { .. });
        let key = if by_admin { self.admin.clone() } else { self.app.clone() };
        let mut future = Box::pin(change.clone().make(self.instance.app()?, key));
        let made = loop {
            self.instance.env.enter(self.next_task);
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.instance.env.enter(0);
            if let Poll::Ready(made) = polled {
                break made;
            }
        };
        self.instance.env.arm(None);
        self.instance.misses.arm(None);
        let faulted = missed || self.instance.env.fired() > fired;
        self.report.faults += u64::from(faulted);
        self.report.changes += u64::from(made.is_ok());
        match made {
            Ok(made) => {
                holds(!matches!(made, Made::Removed(false)), Property::Forgotten, || {
                    format!("something is left after {change:?}")
                })?;
                self.apply(&change, &made)?;
                Ok(!faulted)
            }
            Err(error) => {
                holds(faulted, Property::Answered, || format!("{change:?} was refused: {error:?}"))?;
                Ok(false)
            }
        }
    }

    /// What an acknowledged change means.
    fn apply(&mut self, change: &Change, made: &Made) -> Result<(), Found> {
        let place_of = |name: &GroupName| (0..GROUPS).find(|place| group(*place).as_ref() == Ok(name));
        let person_of = |name: &SubjectRef| (0..PERSONS).find(|place| person(*place).as_ref() == Ok(name));
        match (change, made) {
            (Change::Register { group, copied }, Made::Source(id)) => self.shelf.papers.push(Paper {
                id: id.clone(),
                group: group.as_ref().and_then(place_of),
                copied: *copied,
                state: SourceState::Draft,
                sheets: Vec::new(),
                current: None,
            }),
            (Change::Publish { serial, .. }, Made::Revision(id)) => {
                let record = self.record(change)?;
                let number = record.revisions.iter().find(|revision| revision.id == *id);
                let number = number.map(|revision| revision.number.number());
                let number =
                    number.ok_or((Property::Durable, "a published revision is not listed".to_owned()))?;
                let sheet = Sheet { id: id.clone(), serial: *serial, number };
                self.paper(change, |paper| {
                    paper.sheets.push(sheet);
                    paper.current = paper.sheets.len().checked_sub(1);
                    paper.state = SourceState::Active;
                });
            }
            (Change::Withdraw { .. }, _) => self.paper(change, |paper| {
                paper.state = SourceState::Withdrawn;
                paper.current = None;
            }),
            (Change::Delete { .. }, _) => self.paper(change, |paper| {
                paper.state = SourceState::Deleted;
                paper.current = None;
            }),
            (Change::Restore { revision, .. }, _) => self.paper(change, |paper| {
                paper.state = SourceState::Active;
                paper.current = paper.sheets.iter().position(|sheet| sheet.id == *revision);
            }),
            (Change::Admit { group, .. }, _) => {
                let place = group.as_ref().and_then(place_of);
                self.paper(change, |paper| paper.group = place);
            }
            (Change::Join { group, person }, _) => {
                let members = place_of(group).map(|place| self.shelf.members.entry(place).or_default());
                members.zip(person_of(person)).map(|(members, person)| members.insert(person));
            }
            (Change::Leave { group, person }, _) => {
                let members = place_of(group).map(|place| self.shelf.members.entry(place).or_default());
                members.zip(person_of(person)).map(|(members, person)| members.remove(&person));
            }
            (Change::Register { .. } | Change::Publish { .. }, _) => {
                return Err(broken("a change gave what it does not give"));
            }
        }
        Ok(())
    }
}

impl Run {
    fn paper(&mut self, change: &Change, act: impl FnOnce(&mut Paper)) {
        let found = change.source().and_then(|id| self.shelf.papers.iter_mut().find(|paper| paper.id == *id));
        if let Some(paper) = found {
            act(paper);
        }
    }

    fn record(&self, change: &Change) -> Result<SourceRecord, Found> {
        let (records, _) = self.register()?;
        let found = change.source().and_then(|id| records.into_iter().find(|record| record.id == *id));
        found.ok_or((Property::Durable, "a source is not listed".to_owned()))
    }

    /// Every person finds exactly what is current for them.
    fn look_around(&self) -> Result<(), Found> {
        let app = self.instance.app()?;
        for place in 0..PERSONS {
            let name = person(place)?;
            let found = at_once(async {
                let own = request(&app, &self.app, Some(&name)).await?;
                let found = app.recall(&own, &ask::everything(run_of(0))?).await.ok()?;
                Some(words_in(&String::from_utf8_lossy(found.body())))
            });
            let found = found.flatten().ok_or_else(|| broken("a search was refused without a fault"))?;
            let expected: BTreeSet<Serial> = self.shelf.current(place);
            ask::only(&found, &expected, place, &self.shelf)?;
            holds(found == expected, Property::Complete, || {
                format!("person {place} finds {found:?} of {expected:?}")
            })?;
        }
        Ok(())
    }

    /// After the last restart nothing is found that should not be, and no word lies readable on disk.
    fn end(&mut self) -> Result<(), Found> {
        self.instance.restart()?;
        self.settle()?;
        self.look_around()?;
        let readable = self.instance.root().map(|root| words_in_files(&root)).unwrap_or_default();
        holds(readable.is_empty(), Property::AtRest, || format!("words {readable:?} are readable on disk"))
    }
}
