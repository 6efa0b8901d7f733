//! Twin worlds: one tenant does the same in two worlds that differ only in what the others do. Whatever the tenant
//! is told, and its ledger, must be the same to the byte: answers, scores, order, errors and evidence.

use crate::draws::Draws;
use crate::env::TaskId;
use crate::failure::{Failure, Found, Property};
use crate::mutant::Mutant;
use crate::sim::{Options, Run, told};
use crate::stage::Miss;
use crate::world::BackendKind;

/// The tenant that is looked at.
const SEEN: usize = 0;
/// Tasks of the others are numbered from here on, so that those of the tenant have the same numbers.
const OTHERS: TaskId = 1 << 40;
const AT_ONCE_MAX: usize = 3;
/// Steps of the tenant in each world.
const STEPS: usize = 26;

/// What the tenant was told, line by line.
type Told = Vec<String>;

/// Compares two worlds of a seed.
///
/// # Errors
/// [`Failure`] with [`Property::Twins`], or of any property that is broken in one of the worlds.
pub fn twins(seed: u64, backend: BackendKind, mutant: Option<Mutant>) -> Result<usize, Failure> {
    let failed = |(property, what): Found| Failure { seed, step: 0, property, what };
    let alone = world(seed, backend, mutant, None).map_err(failed)?;
    let among = world(seed, backend, mutant, Some(seed)).map_err(failed)?;
    let differs = alone.iter().zip(&among).position(|(one, other)| one != other);
    let differs = differs.or_else(|| (alone.len() != among.len()).then_some(alone.len().min(among.len())));
    let Some(place) = differs else { return Ok(alone.len()) };
    let line = |told: &Told| told.get(place).cloned().unwrap_or_default();
    let what = format!("alone: {}\namong others: {}", line(&alone), line(&among));
    Err(Failure { seed, step: u64::try_from(place).unwrap_or(0), property: Property::Twins, what })
}

/// One world; without a seed for them the others do nothing.
fn world(
    seed: u64,
    backend: BackendKind,
    mutant: Option<Mutant>,
    others: Option<u64>,
) -> Result<Told, Found> {
    let mut run = Run::begin(seed, Options { backend, steps: 0, mutant })?;
    run.curious = false;
    let mut scene = Scene {
        own: Draws::apart(seed, 1),
        others: others.map(|seed| Draws::apart(seed, 2)),
        next_own: run.next_task,
        next_other: OTHERS,
        own_tasks: Vec::new(),
        other_tasks: Vec::new(),
        told: Vec::new(),
    };
    for _ in 0..STEPS {
        scene.others(&mut run)?;
        scene.own(&mut run)?;
    }
    while let Some(task) = scene.own_tasks.pop() {
        scene.others(&mut run)?;
        scene.finish(&mut run, task)?;
    }
    while let Some(task) = scene.other_tasks.pop() {
        run.finish(task)?;
    }
    run.ledgers()?;
    if let Some(ledger) = run.ledgers.get(&SEEN) {
        scene.told.push(ledger.note.clone());
        scene.told.extend(ledger.entries.iter().map(|entry| String::from_utf8_lossy(entry).into_owned()));
    }
    Ok(scene.told)
}

struct Scene {
    own: Draws,
    others: Option<Draws>,
    next_own: TaskId,
    next_other: TaskId,
    own_tasks: Vec<TaskId>,
    other_tasks: Vec<TaskId>,
    told: Told,
}

impl Scene {
    /// One step of the tenant: its own draws alone decide what it does and what time it is.
    fn own(&mut self, run: &mut Run) -> Result<(), Found> {
        std::mem::swap(&mut run.draws, &mut self.own);
        run.next_task = self.next_own;
        match run.draws.below(10) {
            0 => run.move_clock(SEEN),
            1..=4 if self.own_tasks.len() < AT_ONCE_MAX => {
                let plan = run.planner().draw(SEEN);
                self.own_tasks.extend(plan.and_then(|plan| run.spawn(plan)));
                self.next_own = run.next_task;
            }
            _ => {
                if let Some(task) = run.draws.pick(&self.own_tasks).copied() {
                    for _ in 0..=run.draws.below(8) {
                        if self.poll(run, task)? {
                            break;
                        }
                    }
                }
            }
        }
        std::mem::swap(&mut run.draws, &mut self.own);
        Ok(())
    }

    /// Moves a request of the tenant on; whether it is done.
    fn poll(&mut self, run: &mut Run, task: TaskId) -> Result<bool, Found> {
        let Some(outcome) = run.poll(task)? else { return Ok(false) };
        self.own_tasks.retain(|other| *other != task);
        self.told.push(format!("{task} {}", told(&outcome)));
        Ok(true)
    }

    fn finish(&mut self, run: &mut Run, task: TaskId) -> Result<(), Found> {
        while !self.poll(run, task)? {}
        Ok(())
    }

    /// Some steps of the others, with faults under them.
    fn others(&mut self, run: &mut Run) -> Result<(), Found> {
        let Some(draws) = &mut self.others else { return Ok(()) };
        std::mem::swap(&mut run.draws, draws);
        run.next_task = self.next_other;
        for _ in 0..run.draws.below(4) {
            let tenant = 1 + run.draws.below(2);
            if self.other_tasks.len() < AT_ONCE_MAX
                && let Some(plan) = run.planner().draw(tenant)
            {
                self.other_tasks.extend(run.spawn(plan));
            }
            if run.draws.chance(10) {
                run.arm(false);
            }
            if run.draws.chance(5) {
                run.instance.misses.arm(Some(Miss::Before));
            }
            if let Some(task) = run.draws.pick(&self.other_tasks).copied() {
                let calls = 1 + run.draws.below(30);
                if run.poll_some(task, calls)? {
                    self.other_tasks.retain(|other| *other != task);
                }
            }
        }
        self.next_other = run.next_task;
        run.instance.env.arm(None);
        run.instance.misses.arm(None);
        if let Some(draws) = &mut self.others {
            std::mem::swap(&mut run.draws, draws);
        }
        Ok(())
    }
}
