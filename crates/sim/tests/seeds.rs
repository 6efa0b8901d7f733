//! Five hundred fixed and five hundred fresh seeds, most over the reference backend, some over files. A failure
//! prints its seed; `merkwelt-sim --seed N --backend B` shows it again.

#![cfg(test)]

use std::io::Read as _;

use merkwelt_sim::{BackendKind, Options, Report, run};

/// Runs over files cost four times as much.
const ON_FILES: u64 = 30;
const IN_MEMORY: u64 = 470;
/// Short runs, and many of them: the nightly ones are longer.
const STEPS: u64 = 64;

fn all(seeds: impl Iterator<Item = u64>, backend: BackendKind) -> Vec<Report> {
    let options = Options { steps: STEPS, ..Options::new(backend) };
    let again = format!("--backend {} --steps {STEPS}", backend.name());
    seeds
        .map(|seed| {
            run(seed, options)
                .unwrap_or_else(|found| panic!("{found}\nagain: merkwelt-sim --seed {seed} {again}"))
        })
        .collect()
}

/// Seeds that nobody chose.
fn fresh(count: u64) -> impl Iterator<Item = u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let first = u64::from_le_bytes(bytes) >> 24;
    first..first + count
}

/// A run that does nothing would keep every promise. Asked of the fixed seeds only: they always do the same.
fn had_something_to_do(reports: &[Report]) {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let n = u64::try_from(reports.len()).unwrap();
    assert!(sum(|r| r.requests) > 8 * n, "{} requests", sum(|r| r.requests));
    assert!(sum(|r| r.released) > n, "{} answers", sum(|r| r.released));
    assert!(sum(|r| r.faults) > n / 2, "{} faults", sum(|r| r.faults));
    assert!(sum(|r| r.starts) > n / 2, "{} starts", sum(|r| r.starts));
    assert!(sum(|r| r.erased) > n / 20, "{} erasures", sum(|r| r.erased));
}

#[test]
fn fixed_seeds_keep_every_promise() {
    had_something_to_do(&all(1..=IN_MEMORY, BackendKind::Reference));
}

#[test]
fn fixed_seeds_keep_every_promise_on_files() {
    had_something_to_do(&all(1..=ON_FILES, BackendKind::Sqlite));
}

#[test]
fn fresh_seeds_keep_every_promise() {
    let ran = all(fresh(IN_MEMORY), BackendKind::Reference).len();
    assert_eq!(u64::try_from(ran), Ok(IN_MEMORY));
}

#[test]
fn fresh_seeds_keep_every_promise_on_files() {
    let ran = all(fresh(ON_FILES), BackendKind::Sqlite).len();
    assert_eq!(u64::try_from(ran), Ok(ON_FILES));
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    for backend in [BackendKind::Reference, BackendKind::Sqlite] {
        let digest = |seed| run(seed, Options::new(backend)).unwrap().digest;
        assert_eq!(digest(7), digest(7), "{}", backend.name());
        assert_ne!(digest(7), digest(8), "{}", backend.name());
    }
}
