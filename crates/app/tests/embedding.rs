//! Vectors in the use cases: made off the caller's thread, in few calls, and never a reason to fail.

#![cfg(test)]

mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use merkwelt_app::{EmbeddingModel, Offload};
use merkwelt_authz::Fut;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::Kind;
use merkwelt_inference::embed::Error;
use merkwelt_inference::hash::HashEmbedder;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role};
use world::{World, now, statement, texts, turn_of};

/// Runs work where it is asked for and counts it; or loses it, or takes six seconds.
#[derive(Default)]
struct Inline {
    slow: Mutex<Option<Arc<FixedEnv>>>,
    n_runs: AtomicUsize,
    loses: bool,
}

impl Offload for Inline {
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> Fut<'_, ()> {
        self.n_runs.fetch_add(1, Ordering::SeqCst);
        if let Some(env) = &*self.slow.lock().unwrap() {
            env.advance(6_000);
        }
        if !self.loses {
            work();
        }
        Box::pin(std::future::ready(()))
    }
}

/// Notes how many texts each call had, and fails whenever one of them says `unreadable`.
struct Watched {
    inner: HashEmbedder,
    calls: Mutex<Vec<(Role, usize)>>,
}

impl Embedder for Watched {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        self.calls.lock().unwrap().push((role, texts.len()));
        if texts.iter().any(|text| text.contains("unreadable")) {
            return Err(Error::Engine("test"));
        }
        self.inner.embed(role, texts)
    }
}

fn world(loses: bool) -> (World, Arc<Watched>, Arc<Inline>) {
    let inner = HashEmbedder::new(64, 512).unwrap();
    let embedder = Arc::new(Watched { inner, calls: Mutex::default() });
    let offload = Arc::new(Inline { loses, ..Inline::default() });
    let model = EmbeddingModel { embedder: embedder.clone(), offload: offload.clone() };
    (World::with_model(model), embedder, offload)
}

#[test]
fn with_a_model_every_answer_says_hybrid_and_hits_carry_a_similarity() {
    let (world, embedder, offload) = world(false);
    let anna = world.person("anna");
    let _ = world.remember(&anna, statement(Kind::UserFact, "Anna runs the depot in Rostock"));
    let found = world.recall(&anna, "depot in Rostock");
    assert_eq!(found["retrieval"], "hybrid");
    assert!(found["hits"][0]["score"]["cosine"].as_f64().unwrap() > 0.0, "{found}");
    let pack = world.context(&anna, &turn_of("Who runs the depot?", 400));
    assert_eq!(pack["retrieval"], "hybrid");
    assert_eq!(*embedder.calls.lock().unwrap(), [(Role::Passage, 1), (Role::Query, 1), (Role::Query, 1)]);
    assert_eq!(offload.n_runs.load(Ordering::SeqCst), 3, "the engine was called on the caller's thread");
}

#[test]
fn a_batch_goes_to_the_engine_in_calls_of_at_most_32_texts() {
    let (world, embedder, offload) = world(false);
    let statements: Vec<_> =
        (0..70).map(|n| statement(Kind::UserFact, &format!("fact number {n}"))).collect();
    let _ = now(world.app.remember(&world.person("anna"), &statements, None)).unwrap();
    let sizes: Vec<_> = embedder.calls.lock().unwrap().iter().map(|(_, n)| *n).collect();
    assert_eq!(sizes, [32, 32, 6]);
    assert_eq!(offload.n_runs.load(Ordering::SeqCst), 3);
}

#[test]
fn long_texts_go_to_the_engine_in_smaller_calls() {
    let (world, embedder, _) = world(false);
    let statements: Vec<_> =
        (0..9).map(|n| statement(Kind::UserFact, &format!("fact {n} {}", "word ".repeat(1_000)))).collect();
    let _ = now(world.app.remember(&world.person("anna"), &statements, None)).unwrap();
    let sizes: Vec<_> = embedder.calls.lock().unwrap().iter().map(|(_, n)| *n).collect();
    assert_eq!(sizes, [3, 3, 3]);
}

#[test]
fn a_batch_that_takes_too_long_is_kept_with_some_vectors_pending() {
    let (world, embedder, offload) = world(false);
    let anna = world.person("anna");
    *offload.slow.lock().unwrap() = Some(world.env.clone());
    let mut statements: Vec<_> =
        (0..99).map(|n| statement(Kind::UserFact, &format!("fact number {n}"))).collect();
    statements.push(statement(Kind::UserFact, "the crane stands in Rostock"));
    assert_eq!(now(world.app.remember(&anna, &statements, None)).unwrap().outcomes.len(), 100);
    assert_eq!(embedder.calls.lock().unwrap().len(), 2, "after twelve seconds no third call is begun");
    let found = world.recall(&anna, "Where is the crane?");
    assert_eq!(texts(&found)[0], "the crane stands in Rostock");
    assert_eq!(found["hits"][0]["score"].get("cosine"), None, "its vector is pending");
}

#[test]
fn a_text_that_cannot_be_embedded_is_kept_and_spoils_no_other() {
    let (world, ..) = world(false);
    let anna = world.person("anna");
    let batch = [
        statement(Kind::UserFact, "the depot is in Rostock"),
        statement(Kind::UserFact, "an unreadable label on pallet nine"),
    ];
    let _ = now(world.app.remember(&anna, &batch, None)).unwrap();
    let found = world.recall(&anna, "depot label pallet");
    assert_eq!(texts(&found).len(), 2);
    for hit in found["hits"].as_array().unwrap() {
        let readable = !hit["text"].as_str().unwrap().contains("unreadable");
        assert_eq!(hit["score"].get("cosine").is_some(), readable, "{hit}");
    }
    let asked = world.recall(&anna, "unreadable pallet");
    assert_eq!(asked["retrieval"], "lexical", "an answer says how it was ranked");
    assert!(texts(&asked)[0].contains("pallet nine"));
}

#[test]
fn lost_work_costs_the_vector_and_nothing_else() {
    let (world, ..) = world(true);
    let anna = world.person("anna");
    let conversation = world.open(&anna, Retention::KeptDays(30));
    assert_eq!(world.say(&anna, &conversation, Speaker::Person, "The depot is in Rostock"), 1);
    let _ = world.remember(&anna, statement(Kind::UserFact, "Anna runs the depot"));
    let found = world.recall(&anna, "depot");
    assert_eq!((&found["retrieval"], texts(&found).len()), (&"lexical".into(), 1));
}

#[test]
fn a_refused_statement_is_not_embedded() {
    let (world, embedder, _) = world(false);
    let mut wrong = statement(Kind::ProjectState, "without an end");
    wrong.parts.expiry = None;
    let batch = [statement(Kind::UserFact, "the depot is in Rostock"), wrong];
    assert!(now(world.app.remember(&world.person("anna"), &batch, None)).is_err());
    assert_eq!(embedder.calls.lock().unwrap().len(), 0);
}

#[test]
fn i_014_a_tenant_whose_vectors_are_of_another_model_is_searched_by_words_and_not_refused() {
    let (mut world, _, offload) = world(false);
    let anna = world.person("anna");
    let _ = world.remember(&anna, statement(Kind::UserFact, "Anna runs the depot in Rostock"));
    // As after a file was brought back from before the model changed.
    let embedder = Arc::new(HashEmbedder::new(32, 512).unwrap());
    let counter = merkwelt_inference::tokens::counter("o200k_base").unwrap();
    world.app = merkwelt_app::App::new(
        world.backend.clone(),
        world.env.clone(),
        Some(EmbeddingModel { embedder, offload }),
        counter,
        merkwelt_app::Settings::default(),
    );
    let anna = world.person("anna");
    let found = world.recall(&anna, "depot in Rostock");
    assert_eq!(found["retrieval"], "lexical");
    assert_eq!(found["hits"][0]["text"], "Anna runs the depot in Rostock");
    assert_eq!(world.context(&anna, &turn_of("Who runs the depot?", 400))["retrieval"], "lexical");
}

/// An engine that is not there.
struct Gone(Watched);

impl Embedder for Gone {
    fn descriptor(&self) -> &Descriptor {
        self.0.descriptor()
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        self.0.embed(role, texts)
    }

    fn is_available(&self) -> bool {
        false
    }
}

#[test]
fn an_engine_that_is_away_is_not_asked_and_searches_say_lexical() {
    let inner = HashEmbedder::new(64, 512).unwrap();
    let gone = Arc::new(Gone(Watched { inner, calls: Mutex::default() }));
    let offload = Arc::new(Inline::default());
    let world = World::with_model(EmbeddingModel { embedder: gone.clone(), offload: offload.clone() });
    let anna = world.person("anna");
    let _ = world.remember(&anna, statement(Kind::UserFact, "Anna runs the depot in Rostock"));
    assert_eq!(
        (world.recall(&anna, "depot")["retrieval"].as_str(), world.app.retrieval()),
        (Some("lexical"), "lexical")
    );
    assert!(gone.0.calls.lock().unwrap().is_empty());
    assert_eq!(offload.n_runs.load(Ordering::SeqCst), 0);
}
