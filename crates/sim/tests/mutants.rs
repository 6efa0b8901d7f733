//! Each deliberate defect is noticed within a bounded number of seeds, by a property that is named for it. What
//! is not broken passes: that is what the seeds are for.

#![cfg(test)]

use merkwelt_sim::{BackendKind, Mutant, Options, Property, run, shelf, twins};

/// How many seeds a defect may live.
const SEEDS: u64 = 200;

/// The first property that notices a defect, and after how many seeds.
fn noticed(mutant: Mutant) -> Option<(u64, Property, String)> {
    let by_twins = mutant.noticed_by() == [Property::Twins];
    (1..=SEEDS).find_map(|seed| {
        let options = Options { mutant: Some(mutant), ..Options::new(BackendKind::Reference) };
        let failure = if mutant.of_sources() {
            shelf(seed, options).err()
        } else if by_twins {
            twins(seed, BackendKind::Reference, Some(mutant)).err()
        } else {
            run(seed, options).err()
        };
        failure.map(|failure| (seed, failure.property, failure.what))
    })
}

#[test]
fn every_deliberate_defect_is_noticed_by_the_property_named_for_it() {
    let mut lines = Vec::new();
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match noticed(*mutant) {
            Some((seed, property, what)) => {
                lines.push(format!("{}: seed {seed}, `{}`: {what}", mutant.name(), property.name()));
                if !mutant.noticed_by().contains(&property) {
                    missed.push(format!("{} was noticed by `{}`: {what}", mutant.name(), property.name()));
                }
            }
            None => missed.push(format!("{} lived through {SEEDS} seeds", mutant.name())),
        }
    }
    println!("{}", lines.join("\n"));
    assert!(missed.is_empty(), "{missed:#?}\n{}", lines.join("\n"));
    assert!(Mutant::ALL.len() >= 10);
}
