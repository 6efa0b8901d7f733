//! The real model against recorded vectors; skipped where the model file is not at hand.

use std::path::{Path, PathBuf};
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
    let dirs = models::search_path(given.as_deref(), data.as_deref(), home.as_deref(), None);
    let found = models::find(&dirs);
    if found.is_none() {
        println!("skipped: no {} in {dirs:?}", models::FILE_NAME);
    }
    found.map(|path| models::verify_file(&path).unwrap())
}

#[test]
fn what_is_said_of_the_pinned_model_before_its_file_is_there_is_what_the_file_says() {
    let Some(model) = model() else { return };
    assert_eq!(*model.descriptor(), super::super::pinned().unwrap());
}

struct Probe {
    text: String,
    ids: Vec<u32>,
    vector: Embedding,
}

fn probe(text: &Value, ids: &Value, vector: &Value) -> Probe {
    let ids = ids.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap());
    #[expect(clippy::cast_possible_truncation, reason = "recorded with fewer digits than an f32 has")]
    let components = vector.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32);
    Probe {
        text: text.as_str().unwrap().to_owned(),
        ids: ids.collect(),
        vector: Embedding::new(384, components.collect(), false).unwrap(),
    }
}

/// The probes of this repository, and more where the shared data are: their texts are not ours to publish.
fn probes() -> Vec<Probe> {
    let own: Value = serde_json::from_str(include_str!("../../../fixtures/golden.json")).unwrap();
    let own = own["probes"].as_array().unwrap().iter().map(|p| probe(&p["text"], &p["ids"], &p["vector"]));
    let mut probes: Vec<_> = own.collect();
    assert_eq!(probes.len(), 7);
    match std::fs::read_to_string(shared().join("research/embedding_golden.json")) {
        Ok(text) => {
            let more: Value = serde_json::from_str(&text).unwrap();
            let list = |name: &str| more[name].as_array().unwrap().clone();
            let (texts, ids, vectors) = (list("texts"), list("ids"), list("vec"));
            assert_eq!((texts.len(), ids.len(), vectors.len()), (67, 67, 67));
            let all = texts.iter().zip(&ids).zip(&vectors);
            probes.extend(all.map(|((text, ids), vector)| probe(text, ids, vector)));
        }
        Err(error) => println!("skipped: 60 of 67 probes, {}: {error}", shared().display()),
    }
    probes
}

fn shared() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "a test reads where the shared data are")]
    let given = std::env::var("MERKWELT_SHARED").ok().map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    given.unwrap_or_else(|| root.join("../shared"))
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
