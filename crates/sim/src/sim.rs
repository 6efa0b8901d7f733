//! One run: callers of three tenants at once, moved on one call at a time in an order that the seed draws, over a
//! clock that jumps, on a machine that fails and dies. After every call the oracle knows what took effect.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

mod effect;
mod end;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use merkwelt_authz::Role;
use merkwelt_domain::{Env as _, SubjectId};
use ring::digest::{SHA256, digest};

use crate::act::{Answer, Caller, Names, Outcome};
use crate::apply::Remembered;
use crate::audit::Ledger;
use crate::check;
use crate::draws::Draws;
use crate::env::TaskId;
use crate::failure::{Failure, Found};
use crate::model::{Delivered, Model, Presence, Said};
use crate::mutant::Mutant;
use crate::plan::{Client, Op, Plan, Planner};
use crate::stage::Miss;
use crate::view::View;
use crate::world::{BackendKind, Instance};

/// How a run is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which backend plays.
    pub backend: BackendKind,
    /// How many steps.
    pub steps: u64,
    /// A deliberate defect, to show that it is found.
    pub mutant: Option<Mutant>,
}

impl Options {
    /// A run of the length that the tests use.
    #[must_use]
    pub fn new(backend: BackendKind) -> Self {
        Self { backend, steps: 240, mutant: None }
    }
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Digest of everything that happened, in hexadecimal: equal for equal seeds.
    pub digest: String,
    /// Requests that were answered.
    pub requests: u64,
    /// Answers with content.
    pub released: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Times the process died or was restarted.
    pub starts: u64,
    /// Persons that were erased.
    pub erased: u64,
}

const TENANTS: usize = 3;
const PERSONS: usize = 3;
const GROUPS: usize = 2;
const AT_ONCE_MAX: usize = 5;

/// A request under way.
struct Task {
    plan: Plan,
    view: View,
    future: Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

/// Of which tenant, how many read events, and the records and tokens that were delivered.
type Expected = (usize, usize, Option<(u64, u64)>);

/// A run under way.
pub(crate) struct Run {
    pub(crate) instance: Instance,
    pub(crate) model: Model,
    pub(crate) clients: Vec<Vec<Client>>,
    pub(crate) draws: Draws,
    pub(crate) report: Report,
    pub(crate) step: u64,
    tasks: BTreeMap<TaskId, Task>,
    pub(crate) next_task: TaskId,
    remembered: Remembered,
    sent: BTreeMap<usize, Vec<(Plan, u32)>>,
    /// Read events that each task left, by tenant, and what they count.
    expected: BTreeMap<TaskId, Expected>,
    pub(crate) ledgers: BTreeMap<usize, Ledger>,
    erased: BTreeSet<(usize, SubjectId)>,
    trace: Vec<u8>,
    tell: Option<fn(&str)>,
    /// Whether callers try ids of other tenants.
    pub(crate) curious: bool,
}

/// Runs a seed.
///
/// # Errors
/// The first [`Failure`].
pub fn run(seed: u64, options: Options) -> Result<Report, Failure> {
    replay(seed, options, None)
}

/// Runs a seed and tells every line of its trace.
///
/// # Errors
/// The first [`Failure`].
pub fn replay(seed: u64, options: Options, tell: Option<fn(&str)>) -> Result<Report, Failure> {
    let failed = |step, (property, what): Found| Failure { seed, step, property, what };
    let mut run = Run::begin(seed, options).map_err(|found| failed(0, found))?;
    run.tell = tell;
    for _ in 0..options.steps {
        run.step += 1;
        run.one_step().map_err(|found| failed(run.step, found))?;
    }
    run.end().map_err(|found| failed(run.step, found))?;
    Ok(run.report)
}

impl Run {
    pub(crate) fn begin(seed: u64, options: Options) -> Result<Self, Found> {
        let (instance, admin, _) = Instance::found(options.backend, seed, options.mutant)?;
        let model = Model::new(TENANTS, PERSONS, GROUPS);
        let mut clients = Vec::new();
        for tenant in 0..TENANTS {
            let (_, keys) = instance.add_tenant(&admin, &format!("tenant-{tenant}"))?;
            let client = |of: crate::world::RoleKey| Client {
                role: of.role,
                key: of.key,
                bound: None,
                revoked: false,
                unsure: false,
            };
            clients.push(keys.into_iter().map(client).collect());
        }
        let mut run = Self {
            instance,
            model,
            clients,
            draws: Draws::of(seed),
            report: Report::default(),
            step: 0,
            tasks: BTreeMap::new(),
            next_task: 1,
            remembered: Remembered::default(),
            sent: BTreeMap::new(),
            expected: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            erased: BTreeSet::new(),
            trace: Vec::new(),
            tell: None,
            curious: true,
        };
        run.people()?;
        Ok(run)
    }

    /// Groups and first members.
    fn people(&mut self) -> Result<(), Found> {
        for tenant in 0..TENANTS {
            let mut ops: Vec<Op> = (0..GROUPS).map(|group| Op::MakeGroup { group }).collect();
            for person in 0..PERSONS {
                ops.push(Op::Join { group: self.draws.below(GROUPS), person });
            }
            for op in ops {
                let plan = self.planner().plan(tenant, None, Role::TenantAdmin, op);
                if let Some(task) = plan.and_then(|plan| self.spawn(plan)) {
                    self.finish(task)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn planner(&mut self) -> Planner<'_> {
        let now = self.instance.env.clock();
        let (draws, model, sent) = (&mut self.draws, &mut self.model, &mut self.sent);
        Planner { draws, model, clients: &self.clients, now, sent, curious: self.curious }
    }

    fn one_step(&mut self) -> Result<(), Found> {
        match self.draws.below(200) {
            0..=3 => self.arm(true),
            4..=6 => {
                let miss = if self.draws.chance(50) { Miss::Before } else { Miss::After };
                self.instance.misses.arm(Some(miss));
            }
            7..=19 => {
                let tenant = self.draws.below(TENANTS);
                self.move_clock(tenant);
                self.note("the clock moves");
            }
            20 => self.die()?,
            21..=27 => self.meddle()?,
            28..=81 if self.tasks.len() < AT_ONCE_MAX => {
                let tenant = self.draws.below(TENANTS);
                if let Some(plan) = self.planner().draw(tenant) {
                    self.spawn(plan);
                }
            }
            _ => {
                let running: Vec<TaskId> = self.tasks.keys().copied().collect();
                if let Some(task) = self.draws.pick(&running).copied() {
                    self.threaten(task);
                    let calls = if self.draws.chance(30) { 40 } else { 1 + self.draws.below(6) };
                    self.poll_some(task, calls)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a request on by some calls; whether it is done.
    pub(crate) fn poll_some(&mut self, task: TaskId, calls: usize) -> Result<bool, Found> {
        for _ in 0..calls {
            if self.poll(task)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Starts a request.
    pub(crate) fn spawn(&mut self, plan: Plan) -> Option<TaskId> {
        let task = self.next_task;
        let key_of = |client: usize| Some(self.clients.get(plan.tenant)?.get(client)?.key.clone());
        let caller = Caller {
            app: self.instance.app().ok()?,
            backend: self.instance.backend().ok()?,
            env: self.instance.env.clone(),
            task,
            key: key_of(plan.client)?,
            names: Names::of(&self.model, &plan)?,
            plan: plan.clone(),
        };
        let future: Pin<Box<dyn Future<Output = Outcome> + Send>> = match plan.op {
            Op::RevokeKey { client } => Box::pin(caller.revoke(key_of(client)?)),
            _ => Box::pin(caller.act()),
        };
        let tenant = self.model.tenants.get(plan.tenant)?;
        let named = match plan.op {
            Op::Join { person, .. } | Op::Leave { person, .. } => Some(person),
            Op::NewKey { bound, .. } => bound,
            _ => plan.person,
        };
        let erasing = named.and_then(|person| tenant.persons.get(person));
        let bound_ended = plan.bound.is_some_and(|life| tenant.life(life.0) != life);
        let disturbed = bound_ended || erasing.is_some_and(|person| person.presence == Presence::Erasing);
        self.note(&format!("spawn {task} {plan:?}"));
        self.tasks.insert(task, Task { plan, view: View { disturbed, ..View::default() }, future });
        self.next_task += 1;
        Some(task)
    }

    /// Moves a request on by one call; its outcome if it is done.
    pub(crate) fn poll(&mut self, id: TaskId) -> Result<Option<Outcome>, Found> {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(None) };
        self.instance.env.enter(id);
        let polled = task.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.instance.env.enter(0);
        for event in self.instance.journal.take() {
            self.hear(&event)?;
        }
        if self.instance.env.is_dead() {
            self.die()?;
            return Ok(None);
        }
        let Poll::Ready(outcome) = polled else { return Ok(None) };
        let Some(task) = self.tasks.remove(&id) else { return Ok(None) };
        self.done(id, &task, &outcome)?;
        Ok(Some(outcome))
    }

    /// Moves a request on until it is done.
    pub(crate) fn finish(&mut self, id: TaskId) -> Result<Option<Outcome>, Found> {
        while self.tasks.contains_key(&id) {
            if let Some(outcome) = self.poll(id)? {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Compares an outcome with what could be seen, and keeps what later requests refer to.
    fn done(&mut self, id: TaskId, task: &Task, outcome: &Outcome) -> Result<(), Found> {
        self.report.requests += 1;
        self.note(&format!("done {id} {}", told(outcome)));
        let counted = match (outcome, task.view.landed.first()) {
            (Ok(Answer::Released(_)), Some(landed)) => {
                let records = u64::try_from(landed.recorded.items).unwrap_or(u64::MAX);
                Some((records, u64::from(landed.recorded.tokens)))
            }
            _ => None,
        };
        self.expected.insert(id, (task.plan.tenant, task.view.landed.len(), counted));
        check::outcome(outcome, &task.plan, &task.view, &self.model)?;
        let plan = &task.plan;
        match (outcome, &plan.op) {
            (Ok(Answer::Released(released)), Op::Context { .. }) => {
                let answer: Option<serde_json::Value> = serde_json::from_slice(released.body()).ok();
                let pack = answer.as_ref().and_then(|answer| answer.get("pack_id")?.as_str()?.parse().ok());
                let owner = task.view.landed.first().and_then(|landed| landed.asker);
                if let Some(id) = pack {
                    let delivered = Delivered { owner, id, body: released.body().to_vec() };
                    self.model.tenant_mut(plan.tenant, |tenant| tenant.packs.push(delivered));
                }
            }
            (Ok(Answer::Said(number)), Op::Say { talk, serial }) => {
                let (now, number) = (self.instance.env.clock(), *number);
                self.model.tenant_mut(plan.tenant, |tenant| {
                    let found = tenant.talks.get_mut(talk.1).filter(|t| t.kept_days.is_none() && !t.gone);
                    if let Some(talk) = found {
                        talk.said.push(Said { serial: *serial, number, at: now, end: i64::MAX });
                    }
                });
            }
            (Ok(Answer::Key(key)), Op::NewKey { role, bound }) => {
                let tenant = self.model.tenants.get(plan.tenant);
                let bound = bound.and_then(|person| tenant.map(|tenant| tenant.life(person)));
                let (key, unsure) = (key.clone(), task.view.disturbed);
                if let Some(clients) = self.clients.get_mut(plan.tenant) {
                    clients.push(Client { role: *role, key, bound, revoked: false, unsure });
                }
            }
            _ => {}
        }
        if matches!(outcome, Ok(Answer::Released(_))) {
            self.report.released += 1;
        }
        Ok(())
    }

    fn note(&mut self, line: &str) {
        if let Some(tell) = self.tell {
            tell(&format!("{} @{} {line}", self.step, self.instance.env.clock()));
        }
        let mut text = std::mem::take(&mut self.trace);
        text.extend_from_slice(line.as_bytes());
        text.extend_from_slice(&self.instance.env.now().millis().to_le_bytes());
        self.trace = digest(&SHA256, &text).as_ref().to_vec();
    }
}

pub(crate) fn told(outcome: &Outcome) -> String {
    match outcome {
        Ok(Answer::Released(released)) => {
            format!("{:?} {}", released.entry(), String::from_utf8_lossy(released.body()))
        }
        Ok(answer) => format!("{answer:?}"),
        Err(refused) => format!("{refused:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
