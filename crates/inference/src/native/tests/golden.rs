//! The real model against recorded vectors; skipped where the model file is not at hand.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::Value;

use super::super::E5;
use super::super::kernels::PORTABLE;
use super::super::simd::available;
use super::super::source::Source;
use crate::embed::{Embedder as _, Embedding, Role};
use crate::models;

/// The model, loaded once, or `None` with a line that says so.
fn model() -> Option<&'static E5> {
    static MODEL: OnceLock<Option<E5>> = OnceLock::new();
    MODEL.get_or_init(|| verified().map(|model| E5::open(model).unwrap())).as_ref()
}

fn verified() -> Option<models::VerifiedModel> {
    #[expect(clippy::disallowed_methods, reason = "a test reads where the machine keeps its models")]
    let path = |name: &str| std::env::var(name).ok().map(PathBuf::from);
    let (given, data, home) = (path("MERKWELT_MODEL_DIR"), path("XDG_DATA_HOME"), path("HOME"));
    let mut dirs = models::search_path(given.as_deref(), data.as_deref(), home.as_deref(), None);
    dirs.push(PathBuf::from("/tmp/e5"));
    let found = models::find(&dirs);
    if found.is_none() {
        println!("skipped: no {} in {dirs:?}", models::FILE_NAME);
    }
    found.map(|path| models::verify_file(&path).unwrap())
}

struct Probe {
    text: String,
    ids: Vec<u32>,
    vector: Embedding,
}

fn probes() -> Vec<Probe> {
    let golden: Value = serde_json::from_str(include_str!("../../../fixtures/golden.json")).unwrap();
    let probes = golden["probes"].as_array().unwrap();
    let integers =
        |list: &Value| list.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect::<Vec<_>>();
    let probe = |probe: &Value| Probe {
        text: probe["text"].as_str().unwrap().to_owned(),
        ids: integers(&probe["ids"]).into_iter().map(|id| u32::try_from(id).unwrap()).collect(),
        vector: {
            let components = integers(&probe["vector"]).into_iter();
            let components = components.map(|x| f32::from(i16::try_from(x).unwrap())).collect();
            Embedding::new(384, components, false).unwrap()
        },
    };
    assert_eq!(probes.len(), 67);
    probes.iter().map(probe).collect()
}

#[test]
fn tokens_are_those_of_the_reference_tokenizer() {
    let Some(model) = model() else { return };
    for probe in probes() {
        let tokens = model.tokens(Role::Query, &probe.text);
        assert_eq!(tokens.ids, probe.ids, "{:?}", probe.text);
        assert!(!tokens.truncated);
    }
}

#[test]
fn vectors_are_those_of_the_exact_model() {
    let Some(model) = model() else { return };
    // Without optimisation a text takes a second.
    let step = if cfg!(debug_assertions) { 6 } else { 1 };
    let probes: Vec<_> = probes().into_iter().rev().step_by(step).collect();
    let texts: Vec<&str> = probes.iter().map(|probe| probe.text.as_str()).collect();
    let (mut least, mut sum) = (1.0_f32, 0.0);
    for (probe, embedding) in probes.iter().zip(model.embed(Role::Query, &texts).unwrap()) {
        let cosine = embedding.cosine(&probe.vector).unwrap();
        assert!(cosine >= 0.998, "{:?}: cosine {cosine}", probe.text);
        (least, sum) = (least.min(cosine), sum + cosine);
    }
    println!("{}: cosine least {least}, mean {}", model.instructions(), sum / probes.len() as f32);
}

#[test]
fn the_same_vector_comes_out_of_every_form_of_the_kernels() {
    let Some(_) = verified() else { return };
    let text = "Größe: ½ Meter, 机器学习";
    let forms =
        available().into_iter().filter(|form| !(cfg!(debug_assertions) && form.name == PORTABLE.name));
    let vectors: Vec<_> = forms
        .map(|form| {
            let (file, len) = verified().unwrap().into_file();
            let model = E5::from_source(Source::file(file, len).unwrap(), "00".repeat(32), form).unwrap();
            model.embed(Role::Passage, &[text]).unwrap().remove(0)
        })
        .collect();
    assert!(vectors.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_german_question_finds_the_answer_in_either_language() {
    let Some(model) = model() else { return };
    let question = model.embed(Role::Query, &["Wann läuft mein Vertrag ab?"]).unwrap().remove(0);
    let passages =
        ["Der Vertrag endet am 31. Dezember.", "The contract ends on 31 December.", "Die Katze schläft."];
    let found = model.embed(Role::Passage, &passages).unwrap();
    let cosine = |n: usize| question.cosine(&found[n]).unwrap();
    assert!(cosine(0) > cosine(2) + 0.02 && cosine(1) > cosine(2) + 0.02);
}

#[test]
fn a_text_beyond_512_tokens_is_truncated_and_says_so() {
    let Some(model) = model() else { return };
    let tokens = model.tokens(Role::Passage, &"Vertrag ".repeat(1_000));
    assert_eq!((tokens.ids.len(), tokens.truncated), (512, true));
}
