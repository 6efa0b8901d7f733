//! Whether the time of an answer tells a foreign id from an unknown one. Both are asked in random turns by one
//! client; the difference of the medians is given with a bootstrap interval, and a rank test beside it.

use serde::Serialize;
use serde_json::json;

use super::aim::unknown;
use super::report::{Outcome, at, number};
use super::world::World;
use crate::bench::clock;
use crate::bench::dice::Dice;
use crate::bench::wire::{Ask, Wire};

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Timing {
    pub(super) operation: &'static str,
    /// Whose the foreign ids are.
    pub(super) foreign: &'static str,
    pub(super) n: usize,
    pub(super) unknown_median_us: f64,
    pub(super) foreign_median_us: f64,
    /// Difference of the medians and its 99 % interval.
    pub(super) difference_us: f64,
    pub(super) low_us: f64,
    pub(super) high_us: f64,
    /// The z of the Mann-Whitney test; beyond 2.58 either way the samples differ at 1 %.
    pub(super) rank_z: f64,
}

/// A difference that is shown and larger than this part of the median is a side channel.
const BOUND: f64 = 0.05;

impl Timing {
    pub(super) fn outcome(&self) -> Outcome {
        let shown = self.low_us > 0.0 || self.high_us < 0.0;
        let large = self.difference_us.abs() > self.unknown_median_us * BOUND;
        Outcome {
            name: format!("timing of {}, {}", self.operation, self.foreign),
            verdict: if shown && large { "fail" } else { "pass" },
            note: format!(
                "medians {:.0} and {:.0} µs of {} each, difference {:+.1} µs, 99 % interval {:+.1} to {:+.1}, rank z {:+.2}; bound ±{:.0} %",
                self.unknown_median_us,
                self.foreign_median_us,
                self.n,
                self.difference_us,
                self.low_us,
                self.high_us,
                self.rank_z,
                BOUND * 100.0
            ),
        }
    }
}

/// Measures all operations that take an id, with `n` samples each.
pub(super) fn measure(world: &World, n: usize, seed: u64) -> anyhow::Result<Vec<Timing>> {
    let mut found = Vec::new();
    let cases = [
        ("GET", "GET /v1/memories/{id}", "memories", ""),
        ("DELETE", "DELETE /v1/memories/{id}", "memories", ""),
        ("GET", "GET /v1/conversations/{id}", "conversations", ""),
        ("POST", "POST /v1/conversations/{id}/turns", "conversations", "/turns"),
        ("GET", "GET /v1/packs/{id}", "packs", ""),
    ];
    for (method, operation, kind, after) in cases {
        for (foreign, own_tenant) in [("of another tenant", false), ("of a neighbour", true)] {
            let mut dice = Dice::seeded(seed, 77);
            let (mut unknowns, mut foreigns) = (Vec::new(), Vec::new());
            let mut wire = Wire::to(world.address);
            while unknowns.len() < n || foreigns.len() < n {
                let real = if unknowns.len() >= n { true } else { foreigns.len() < n && dice.chance(50) };
                let id =
                    if real { theirs(world, kind, own_tenant, &mut dice) } else { unknown(kind, &mut dice) };
                let Some(company) = world.companies.first() else { return Ok(found) };
                let ask = Ask::new(method, &format!("/v1/{kind}/{id}{after}"))
                    .key(&company.app)
                    .subject("onlooker");
                let ask = if method == "POST" {
                    ask.json(&json!({"role": "person", "text": "hello"}))
                } else {
                    ask
                };
                let started = clock::now();
                wire.send(&ask)?;
                let micros = clock::millis_since(started) * 1e3;
                if real { foreigns.push(micros) } else { unknowns.push(micros) }
            }
            found.push(compared(operation, foreign, unknowns, foreigns, &mut dice));
        }
    }
    Ok(found)
}

fn theirs(world: &World, kind: &str, own_tenant: bool, dice: &mut Dice) -> String {
    let company = world.companies.get(usize::from(!own_tenant));
    let person = company.and_then(|company| dice.pick(&company.people));
    let id = person.and_then(|person| match kind {
        "memories" => dice.pick(&person.items).map(|item| item.id.clone()),
        "conversations" => Some(person.conversation.clone()),
        _ => Some(person.pack.clone()),
    });
    id.unwrap_or_default()
}

fn compared(
    operation: &'static str,
    foreign: &'static str,
    mut unknowns: Vec<f64>,
    mut foreigns: Vec<f64>,
    dice: &mut Dice,
) -> Timing {
    let rank_z = rank_z(&unknowns, &foreigns);
    let mut differences: Vec<f64> =
        (0..1_000).map(|_| resampled(&foreigns, dice) - resampled(&unknowns, dice)).collect();
    differences.sort_by(f64::total_cmp);
    unknowns.sort_by(f64::total_cmp);
    foreigns.sort_by(f64::total_cmp);
    let (one, other) = (at(&unknowns, 50), at(&foreigns, 50));
    let edge = |place: usize| differences.get(place).copied().unwrap_or_default();
    Timing {
        operation,
        foreign,
        n: unknowns.len(),
        unknown_median_us: one,
        foreign_median_us: other,
        difference_us: other - one,
        low_us: edge(5),
        high_us: edge(994),
        rank_z,
    }
}

fn resampled(samples: &[f64], dice: &mut Dice) -> f64 {
    let mut drawn: Vec<f64> = (0..samples.len()).filter_map(|_| dice.pick(samples).copied()).collect();
    let middle = drawn.len() / 2;
    if drawn.is_empty() {
        return 0.0;
    }
    *drawn.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The normal approximation of Mann-Whitney's U. Ties hardly happen with a clock of nanoseconds.
fn rank_z(one: &[f64], other: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        one.iter().map(|v| (*v, false)).chain(other.iter().map(|v| (*v, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = |n: usize| number(u64::try_from(n).unwrap_or(0));
    let ranks: f64 = (1..).zip(&all).filter(|(_, (_, second))| *second).map(|(rank, _)| count(rank)).sum();
    let (m, n) = (count(one.len()), count(other.len()));
    let u = ranks - n * (n + 1.0) / 2.0;
    (u - m * n / 2.0) / (m * n * (m + n + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(dice: &mut Dice, base: f64) -> Vec<f64> {
        (0..800).map(|_| base + number(dice.roll() % 4_000) / 100.0 - 20.0).collect()
    }

    #[test]
    fn r_034_a_difference_in_time_is_found_and_none_is_not() {
        let mut dice = Dice::seeded(5, 5);
        let (a, b, slow) = (samples(&mut dice, 100.0), samples(&mut dice, 100.0), samples(&mut dice, 112.0));
        let alike = compared("x", "y", a.clone(), b, &mut dice);
        assert_eq!(alike.outcome().verdict, "pass");
        assert!(alike.rank_z.abs() < 2.58);
        let told = compared("x", "y", a, slow, &mut dice);
        assert_eq!(told.outcome().verdict, "fail");
        assert!(told.rank_z > 2.58 && told.low_us > 0.0);
    }
}
