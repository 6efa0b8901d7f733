//! Replays the committed corpora of the fuzz targets: every input that ever taught something keeps its promise
//! at each test run, without a fuzzer.
#![cfg(test)]

#[path = "../../../fuzz/src/properties/mod.rs"]
mod properties;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// All corpora together stay small enough to be read by a person who wonders.
const CORPORA_BYTES_MAX: u64 = 1 << 20;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(dir: &str, strip: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(dir)).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| Some(name.strip_suffix(strip)?.to_owned())).collect()
}

#[test]
fn i_015_every_input_of_the_corpora_keeps_the_promise_of_its_target() {
    for (target, property) in properties::TARGETS {
        let mut n_inputs = 0;
        for entry in fs::read_dir(fuzz().join("corpus").join(target)).unwrap().flatten() {
            let bytes = fs::read(entry.path()).unwrap();
            let held = catch_unwind(AssertUnwindSafe(|| property(&bytes)));
            assert!(held.is_ok(), "{} breaks the promise of {target}", entry.path().display());
            n_inputs += 1;
        }
        assert!(n_inputs >= 3, "{target} has no corpus");
    }
}

#[test]
fn every_fuzz_target_has_a_property_and_a_corpus() {
    let mut known: BTreeSet<String> =
        properties::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    // These are replayed in their own rooms.
    known.extend(["document", "model", "tokens"].map(str::to_owned));
    assert_eq!(names("fuzz_targets", ".rs"), known);
    assert_eq!(names("corpus", ""), known);
    let mut bytes = 0;
    for target in &known {
        let files = fs::read_dir(fuzz().join("corpus").join(target)).unwrap().flatten();
        bytes += files.map(|file| file.metadata().unwrap().len()).sum::<u64>();
    }
    assert!(bytes < CORPORA_BYTES_MAX, "the corpora hold {bytes} bytes");
}
