//! What a search costs inside the store, beside a plain exact scan of the same vectors in the same run.

use std::hint::black_box;

use merkwelt_app::embedding::model_id;
use merkwelt_authz::{Refusal, action, authorize};
use merkwelt_store::Store as _;
use merkwelt_store::query::{Fusion, RecallQuery, Vector};

use super::engine::{Clustered, DIMENSION, Engine, cpu_millis, question, text};
use super::{Figure, Options};
use crate::bench::clock;
use crate::bench::dice::Dice;
use crate::bench::isolation::{at, count};

/// Measures searches at one scope of growing size, and the first search after a start.
pub(super) fn measure(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let sizes: &[usize] = match options.rows.as_slice() {
        [] if options.quick => &[1_000, 2_000, 10_000],
        [] => &[1_000, 2_000, 10_000, 100_000, 200_000],
        asked => asked,
    };
    for rows in sizes {
        one_size(*rows, options, keep)?;
    }
    Ok(())
}

fn one_size(rows: usize, options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let started = clock::now();
    let key = engine.key.clone();
    engine.fill(&key, "anna", 0, rows)?;
    let seconds = clock::millis_since(started) / 1e3;
    keep(Figure::new(
        "search",
        format!("rows kept in batches of 500, at {rows}"),
        count(rows) / seconds,
        "rows/s",
    ));
    let mut dice = Dice::seeded(options.seed, 0x5EA);
    let n = if rows > 50_000 { 60 } else { 400 };
    let (cpu, _) = searches(&engine, n / 4, &mut dice)?;
    black_box(cpu);
    let (cpu, times) = searches(&engine, n, &mut dice)?;
    let (exact, packed) = scans(rows, n.min(100), &mut dice);
    let goal = |figure: Figure| match rows {
        1_000 => figure.at_most(0.3),
        10_000 => figure.at_most(0.8),
        100_000 => figure.at_most(5.0),
        _ => figure,
    };
    keep(goal(Figure::new(
        "search",
        format!("processor time per recall in the store, {rows} rows"),
        cpu,
        "ms",
    )));
    keep(Figure::new("search", format!("p50 in the store, {rows} rows"), at(&times, 50), "ms"));
    keep(Figure::new("search", format!("p99 in the store, {rows} rows"), at(&times, 99), "ms"));
    keep(Figure::new("search", format!("plain exact scan of f32, {rows} rows"), exact, "ms"));
    keep(Figure::new("search", format!("plain scan of i8 with i16, {rows} rows"), packed, "ms"));
    let ratio =
        Figure::new("search", format!("recall over plain exact scan, {rows} rows"), cpu / exact, "times");
    keep(ratio.at_most(1.2));
    keep(Figure::new("search", format!("recall over plain packed scan, {rows} rows"), cpu / packed, "times"));
    let usage = engine.store.usage();
    keep(Figure::new(
        "search",
        format!("shard, {rows} rows"),
        count(usage.shard_bytes) / count(rows),
        "bytes/row",
    ));
    let engine = engine.reopened()?;
    let started = clock::now();
    let before = cpu_millis("self");
    searches(&engine, 1, &mut dice)?;
    let figure = Figure::new(
        "search",
        format!("first search after a start, {rows} rows"),
        clock::millis_since(started),
        "ms",
    );
    let cpu = format!("{:.1} ms of processor time", cpu_millis("self") - before);
    keep(if rows == 2_000 { figure.at_most(9.0) } else { figure }.note(cpu));
    engine.remove();
    Ok(())
}

/// Searches in the store alone: processor time per search, and sorted times.
pub(super) fn searches(engine: &Engine, n: usize, dice: &mut Dice) -> anyhow::Result<(f64, Vec<f64>)> {
    let request = engine.request(&engine.key, Some("anna"))?;
    let mut queries = Vec::new();
    for _ in 0..n {
        let asked = question(dice)?;
        let values = Clustered::vector(asked.question.expose());
        let vector = Vector { model: model_id(&Clustered::new()?), values };
        queries.push(RecallQuery {
            question: asked.question,
            vector: Some((vector, Fusion { floor: 0.0, span: 1.0 })),
            k: asked.k,
            kinds: asked.kinds,
            turns: asked.turns,
            documents: asked.documents,
            conversation: None,
            metadata: Vec::new(),
            interval: None,
            now: engine.env.now(),
        });
    }
    engine.runtime.block_on(async {
        let pass = match authorize::<action::Recall>(&*engine.store, &request).await {
            Ok(pass) => pass,
            Err(Refusal::Denied(_) | Refusal::Unavailable(_)) => anyhow::bail!("a search was refused"),
        };
        let before = cpu_millis("self");
        let mut times = Vec::new();
        for query in &queries {
            let started = clock::now();
            let found = engine.store.recall(&pass, query).await?;
            times.push(clock::millis_since(started));
            anyhow::ensure!(!found.candidates.is_empty(), "a search found nothing");
        }
        let cpu = (cpu_millis("self") - before) / count(n.max(1));
        times.sort_by(f64::total_cmp);
        Ok((cpu, times))
    })
}

/// The yardsticks: the ten nearest by plain loops over all vectors, exact and packed to eight bits.
fn scans(rows: usize, n: usize, dice: &mut Dice) -> (f64, f64) {
    let vectors: Vec<f32> = (0..rows).flat_map(|row| unit(Clustered::vector(&text(row)))).collect();
    let packed: Vec<i8> = vectors.iter().map(|value| narrow(value * 900.0)).collect();
    let asked: Vec<Vec<f32>> = (0..n).map(|_| unit(Clustered::vector(&dice.letters(20)))).collect();
    let before = cpu_millis("self");
    for probe in &asked {
        black_box(nearest(vectors.chunks_exact(DIMENSION).map(|row| dot(row, probe))));
    }
    let exact = (cpu_millis("self") - before) / count(n);
    let probes: Vec<Vec<i16>> =
        asked.iter().map(|p| p.iter().map(|v| i16::from(narrow(v * 900.0))).collect()).collect();
    let before = cpu_millis("self");
    for probe in &probes {
        black_box(nearest(packed.chunks_exact(DIMENSION).map(|row| packed_dot(row, probe))));
    }
    (exact, (cpu_millis("self") - before) / count(n))
}

fn unit(values: Vec<f32>) -> Vec<f32> {
    let norm = values.iter().map(|v| v * v).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    values.into_iter().map(|v| v / norm).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "clamped into the range first")]
fn narrow(value: f32) -> i8 {
    value.round().clamp(-127.0, 127.0) as i8
}

/// Sixteen sums side by side, which the compiler turns into vector instructions.
fn dot(row: &[f32], probe: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (a, b) in row.chunks_exact(16).zip(probe.chunks_exact(16)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

#[expect(clippy::cast_precision_loss, reason = "a score to compare by")]
fn packed_dot(row: &[i8], probe: &[i16]) -> f32 {
    let products = row.iter().zip(probe).map(|(a, b)| i32::from(i16::from(*a)).wrapping_mul(i32::from(*b)));
    products.fold(0_i32, i32::wrapping_add) as f32
}

/// The ten best of a scan, by their place.
fn nearest(scores: impl Iterator<Item = f32>) -> Vec<(usize, f32)> {
    let mut best: Vec<(usize, f32)> = Vec::with_capacity(11);
    for (place, score) in scores.enumerate() {
        if best.len() == 10 && best.last().is_some_and(|(_, least)| score <= *least) {
            continue;
        }
        let at = best.partition_point(|(_, other)| *other > score);
        best.insert(at, (place, score));
        best.truncate(10);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardstick_finds_the_ten_nearest() {
        let scores = [0.1, 0.9, 0.3, 0.8, 0.2, 0.7, 0.4, 0.6, 0.5, 0.05, 0.95, 0.01];
        let found = nearest(scores.into_iter());
        assert_eq!(found.len(), 10);
        assert_eq!((found.first().unwrap().0, found.last().unwrap().0), (10, 0));
        let (a, b) = (unit(Clustered::vector("a")), unit(Clustered::vector("b")));
        let plain: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        assert!((dot(&a, &b) - plain).abs() < 1e-5 && (dot(&a, &a) - 1.0).abs() < 1e-5);
    }
}
