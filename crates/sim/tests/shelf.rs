//! Sources under fixed and fresh seeds, over memory and over files.

#![cfg(test)]

use std::io::Read as _;

use merkwelt_sim::{BackendKind, Options, ShelfReport, shelf};

const IN_MEMORY: u64 = 80;
const ON_FILES: u64 = 6;
const STEPS: u64 = 60;

fn all(seeds: impl Iterator<Item = u64>, backend: BackendKind) -> ShelfReport {
    let options = Options { steps: STEPS, ..Options::new(backend) };
    let again = format!("shelf --backend {} --steps {STEPS}", backend.name());
    seeds.fold(ShelfReport::default(), |sum, seed| {
        let one = shelf(seed, options)
            .unwrap_or_else(|found| panic!("{found}\nagain: merkwelt-sim {again} --seed {seed}"));
        ShelfReport {
            changes: sum.changes + one.changes,
            answers: sum.answers + one.answers,
            faults: sum.faults + one.faults,
            deaths: sum.deaths + one.deaths,
        }
    })
}

fn fresh(count: u64) -> impl Iterator<Item = u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let first = u64::from_le_bytes(bytes) >> 24;
    first..first + count
}

#[test]
fn r_051_fixed_seeds_of_sources_serve_what_is_current_and_nothing_else() {
    for (count, backend) in [(IN_MEMORY, BackendKind::Reference), (ON_FILES, BackendKind::Sqlite)] {
        let sum = all(1..=count, backend);
        // A run that does nothing would keep every promise.
        assert!(sum.changes > 20 * count && sum.answers > 10 * count, "{sum:?}");
        assert!(sum.faults > 2 * count && sum.deaths > count, "{sum:?}");
    }
}

#[test]
fn r_051_fresh_seeds_of_sources_serve_what_is_current_and_nothing_else() {
    all(fresh(IN_MEMORY), BackendKind::Reference);
    all(fresh(ON_FILES), BackendKind::Sqlite);
}
