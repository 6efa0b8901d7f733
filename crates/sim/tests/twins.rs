//! What one tenant is told does not depend on another: not on its data, not on its volume, not on its faults.

#![cfg(test)]

use merkwelt_sim::{BackendKind, twins};

fn alike(seeds: std::ops::RangeInclusive<u64>, backend: BackendKind) {
    for seed in seeds {
        match twins(seed, backend, None) {
            Ok(lines) => assert!(lines > 10, "seed {seed} compared {lines} lines"),
            Err(failure) => {
                panic!("{failure}\nagain: merkwelt-sim twins --seed {seed} --backend {}", backend.name())
            }
        }
    }
}

#[test]
fn r_023_a_tenant_is_told_the_same_whatever_others_do() {
    alike(1..=480, BackendKind::Reference);
}

#[test]
fn r_023_a_tenant_is_told_the_same_whatever_others_do_on_files() {
    alike(1..=20, BackendKind::Sqlite);
}
