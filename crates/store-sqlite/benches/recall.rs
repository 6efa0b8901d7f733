//! Measures the embedded store: search by words and with vectors, cold start, durable writes. Run with
//! `cargo bench -p merkwelt-store-sqlite`. Numbers as arguments are sizes of tenants of which only the searches with
//! vectors are measured, to compare two builds that run in turn.

#![expect(dead_code, reason = "the benchmark uses a part of the tests' world")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark asks for the time, prints, and may stop at the first surprise"
)]

#[path = "../tests/promises/world.rs"]
mod world;

use std::thread;
use std::time::{Duration, Instant};

use merkwelt_authz::{action, authorize};
use merkwelt_domain::Env as _;
use merkwelt_store::Store as _;
use merkwelt_store::change::{Batch, Write};
use world::{Note, World, note, on};

const DIMENSION: usize = 384;

/// A small generator, so that runs are alike.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 >> 33) ^ self.0;
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
    }

    /// Frequent words are frequent: the product of two rolls.
    fn word(&mut self) -> String {
        let rank = (self.roll() % 80) * (self.roll() % 80);
        format!("wort{}", ["a", "ung", "heit", "en"][(rank % 4) as usize]) + &to_letters(rank)
    }

    fn text(&mut self) -> String {
        (0..12).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }

    fn vector(&mut self) -> Vec<f32> {
        let raw: Vec<f32> = (0..DIMENSION).map(|_| (self.roll() % 2001) as f32 / 1000.0 - 1.0).collect();
        let norm = raw.iter().map(|v| v * v).sum::<f32>().sqrt();
        raw.iter().map(|v| v / norm).collect()
    }
}

fn to_letters(mut number: u64) -> String {
    let mut letters = String::new();
    while number > 0 {
        letters.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    letters
}

fn fill(world: &World, rows: usize, vectors: bool) {
    let mut dice = Dice(7);
    for first in (0..rows).step_by(500) {
        let batch = (first..rows.min(first + 500)).map(|number| {
            let text = format!("{} {number}", dice.text());
            let vector = vectors.then(|| dice.vector());
            Write::Remember(world.new_memory(Note { vector, ..note(&text) }))
        });
        let _ = world.commit("anna", batch.collect()).unwrap();
    }
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.3} ms, p99 {:.3} ms", at(50), at(99))
}

fn searches(world: &World, vectors: bool, count: usize) -> String {
    let mut dice = Dice(99);
    let request = world.request(&world.keys.app, Some("anna"));
    let pass = on(authorize::<action::Recall>(world.store(), &request)).unwrap();
    let times = (0..count).map(|_| {
        let question = format!("{} {} {}", dice.word(), dice.word(), dice.word());
        let query = world.ask(&question, vectors.then(|| dice.vector()));
        let start = Instant::now();
        let found = on(world.store().recall(&pass, &query)).unwrap();
        assert_eq!(found.candidates.len(), 10);
        start.elapsed()
    });
    percentiles(times.collect())
}

fn searching(rows: usize, vectors: bool) {
    let mut world = World::new();
    fill(&world, rows, vectors);
    let mode = if vectors { "words and vectors" } else { "words" };
    let count = if rows > 10_000 { 300 } else { 2000 };
    let _ = world.texts("anna", "worta");
    println!("recall, {rows} rows, {mode}: {}", searches(&world, vectors, count));
    let bytes = world.store().usage().shard_bytes;
    println!("  shard {:.2} MB, {} bytes a row", bytes as f64 / 1e6, bytes / rows);
    let mut opens = Vec::new();
    for _ in 0..(40_000 / rows).clamp(3, 20) {
        world.close();
        world.reopen().unwrap();
        let start = Instant::now();
        assert!(!world.texts("anna", "worta").is_empty());
        opens.push(start.elapsed());
    }
    println!("  first search after a start: {}", percentiles(opens));
    let mut mixed = Vec::new();
    for number in 0..100 {
        let text = format!("a late fact {number}");
        let vector = vectors.then(|| Dice(number).vector());
        world.remember("anna", Note { vector, ..note(&text) }).unwrap();
        let start = Instant::now();
        assert!(!world.texts("anna", "late").is_empty());
        mixed.push(start.elapsed());
    }
    println!("  search right after a write (authorisation included): {}", percentiles(mixed));
}

fn writing(threads: usize) {
    const EACH: usize = 200;
    let world = World::new();
    world.id("anna");
    let before = world.store().usage().commits;
    let start = Instant::now();
    let times: Vec<Duration> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let world = &world;
                scope.spawn(move || {
                    let request = world.request(&world.keys.app, Some("anna"));
                    let pass = on(authorize::<action::Correct>(world.store(), &request)).unwrap();
                    (0..EACH)
                        .map(|number| {
                            let text = format!("a fact of thread {thread} with number {number}");
                            let write = Write::Remember(world.new_memory(note(&text)));
                            let batch = Batch::writes(&pass, vec![write], None, world.env.now());
                            let start = Instant::now();
                            let _ = on(world.store().commit(batch)).unwrap();
                            start.elapsed()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let rate = (threads * EACH) as f64 / start.elapsed().as_secs_f64();
    let commits = world.store().usage().commits - before;
    println!(
        "durable writes, {threads} threads: {rate:.0} a second, {commits} commits, {}",
        percentiles(times)
    );
}

/// Resident memory in MB, from the kernel.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Searches alone, at one size.
fn only_searches(rows: usize) {
    let world = World::new();
    fill(&world, rows, true);
    let _ = world.texts("anna", "worta");
    let count = (3_000_000 / rows).clamp(60, 1000);
    let _ = searches(&world, true, count / 4);
    println!("{rows} rows: {}", searches(&world, true, count));
}

fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if !sizes.is_empty() {
        sizes.into_iter().for_each(only_searches);
        return;
    }
    for threads in [1, 16, 64] {
        writing(threads);
    }
    let before = resident();
    for rows in [2000, 100_000] {
        for vectors in [false, true] {
            searching(rows, vectors);
        }
    }
    println!("resident memory: {before:.0} MB before the searches, {:.0} MB after", resident());
}
