//! Replays the corpora of the two fuzz targets that enter by the door for unverified models.

#[path = "../../../../../fuzz/src/properties/model.rs"]
mod properties;

use std::path::Path;

use super::synthetic::file;

fn replay(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut n_inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap().flatten() {
        property(&std::fs::read(entry.path()).unwrap());
        n_inputs += 1;
    }
    assert!(n_inputs >= 1, "{target} has no corpus");
}

#[test]
fn every_model_file_of_the_corpus_keeps_its_promise() {
    replay("model", properties::model);
}

#[test]
fn every_text_of_the_corpus_keeps_its_promise() {
    replay("tokens", properties::tokens);
}

#[test]
fn the_small_model_of_the_corpus_is_the_synthetic_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/model/small.bin");
    assert!(std::fs::read(path).unwrap() == file(), "write the synthetic model to the corpus anew");
}
