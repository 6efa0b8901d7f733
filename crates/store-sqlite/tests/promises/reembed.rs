//! Everything anew with another model: the former answers until the last vector is made, an interruption at any
//! step is gone on from, and no search ever meets vectors of two models.

use merkwelt_domain::FaultPoint;
use merkwelt_store::Error;
use merkwelt_store::query::RecallQuery;
use merkwelt_store::record::Ranking;
use merkwelt_store_sqlite::{OpenError, Options, Reembedded};

use super::sources::{publish, register, stage};
use super::world::{Note, World, holding, model, note, options, text_of};

/// The former model has three components, the new one four.
const FORMER: [f32; 3] = [1.0, 0.0, 0.0];

/// The new model: says of a text whether it is about ships; cannot read a text that says so.
fn anew(texts: &[&str]) -> Vec<Option<Vec<f32>>> {
    let one = |text: &&str| match *text {
        text if text.contains("unreadable") => None,
        text if text.contains("ship") => Some(vec![0.0, 0.0, 0.6, 0.8]),
        _ => Some(vec![1.0, 0.0, 0.0, 0.0]),
    };
    texts.iter().map(one).collect()
}

const N_TEXTS: u64 = 72;

/// Sixty ships, ten other things, a turn and a passage, with vectors of the former model or pending; opened
/// without a model, as for the change.
fn world() -> World {
    let mut world = World::with(Options { model: Some(model(3)), ..options() });
    for number in 0..60 {
        let text = format!("ship number {number}");
        world.remember("anna", Note { vector: Some(FORMER.to_vec()), ..note(&text) }).unwrap();
    }
    for number in 0..10 {
        world.remember("anna", note(&format!("tea number {number}"))).unwrap();
    }
    let opened = world.open_conversation("anna");
    let _ = world.say("anna", &opened, "which ship was it").unwrap();
    let source = register(&world);
    let revision = stage(&world, &source, "Returned goods go by ship.");
    publish(&world, &source, revision).unwrap();
    open_with(&mut world, None).unwrap();
    world
}

fn open_with(world: &mut World, components: Option<usize>) -> Result<(), OpenError> {
    world.options = Options { model: components.map(model), ..options() };
    world.reopen()
}

fn reembed(world: &World) -> Reembedded {
    world.store().reembed(&model(4), &mut |texts| Some(anew(texts)), &mut |_| ()).unwrap()
}

/// How many hits have a cosine near one, or why there are none.
fn near(world: &World, asked: &[f32]) -> Result<usize, Error> {
    let query = RecallQuery { documents: true, ..world.ask("Schiff", Some(asked.to_vec())) };
    let recalled = world.recall("anna", &query)?;
    assert_eq!(recalled.ranking, Ranking::Hybrid);
    Ok(recalled.candidates.iter().filter(|c| c.scores.cosine.is_some_and(|cosine| cosine > 0.99)).count())
}

const NEW_SHIP: [f32; 4] = [0.0, 0.0, 0.6, 0.8];

#[test]
fn i_014_the_former_model_answers_until_the_last_vector_is_made_and_then_every_vector_is_of_the_new_one() {
    let mut world = world();
    let entries = world.entries();
    let mut steps = 0;
    let mut embed = |texts: &[&str]| {
        steps += 1;
        assert_eq!(near(&world, &FORMER), Ok(10), "the former model does not answer any more");
        assert_eq!(near(&world, &NEW_SHIP), Err(Error::ModelMismatch), "two models are mixed");
        Some(anew(texts))
    };
    let done = world.store().reembed(&model(4), &mut embed, &mut |_| ()).unwrap();
    assert_eq!(done, Reembedded { total: N_TEXTS, made: N_TEXTS, ..Reembedded::default() });
    assert!(steps >= 5, "small transactions");
    assert_eq!(near(&world, &FORMER), Err(Error::ModelMismatch));
    assert_eq!(near(&world, &NEW_SHIP), Ok(10));
    assert_eq!(world.entries(), entries, "nothing was said, so nothing is in the ledger");
    assert!(matches!(open_with(&mut world, Some(3)), Err(OpenError::OtherModel { .. })));
    open_with(&mut world, Some(4)).unwrap();
    let ask = RecallQuery { documents: true, ..world.ask("returned goods", Some(NEW_SHIP.to_vec())) };
    let found = world.recall("anna", &ask).unwrap();
    assert_eq!(text_of(&found.candidates[0].record), "Returned goods go by ship.");
    assert!(found.candidates[0].scores.cosine > Some(0.99), "the passage has no vector");
    assert_eq!(world.store().fill_vectors(&model(4), &mut |_| panic!(), &mut |_| ()).unwrap().total, 0);
    // Once more there is nothing to do.
    assert_eq!(reembed(&world), Reembedded::default());
}

#[test]
fn an_interruption_before_the_last_vector_leaves_the_former_model_and_what_was_made() {
    for calls in 0..4 {
        let mut world = world();
        let mut left = calls;
        let mut embed = |texts: &[&str]| {
            left -= 1;
            (left >= 0).then(|| anew(texts))
        };
        let stopped = world.store().reembed(&model(4), &mut embed, &mut |_| ());
        assert_eq!(stopped, Err(Error::Unavailable));
        open_with(&mut world, Some(3)).unwrap();
        assert_eq!(near(&world, &FORMER), Ok(10), "the former model does not answer any more");
        // Life goes on with the former model: something is replaced, something is new.
        world.remember("anna", Note { vector: Some(FORMER.to_vec()), ..note("one more ship") }).unwrap();
        open_with(&mut world, None).unwrap();
        let mut n_texts = 0;
        let mut embed = |texts: &[&str]| {
            n_texts += texts.len();
            Some(anew(texts))
        };
        let done = world.store().reembed(&model(4), &mut embed, &mut |_| ()).unwrap();
        assert_eq!((done.made, done.failed), (done.total, 0));
        let made_before = [0, 32, 64, 70][usize::try_from(calls).unwrap()];
        assert_eq!(n_texts, 73 - made_before, "what was made before is made again");
        assert_eq!((near(&world, &NEW_SHIP), near(&world, &FORMER)), (Ok(10), Err(Error::ModelMismatch)));
    }
}

#[test]
fn a_change_that_was_begun_is_finished_when_the_data_are_opened_next() {
    for point in [FaultPoint::BeforeCommit, FaultPoint::AfterCommit] {
        let mut world = world();
        let fails_at_the_swap = |done: Reembedded| {
            if done.made == done.total {
                world.env.fail_at(Some(point));
            }
        };
        let mut progress = fails_at_the_swap;
        let died = world.store().reembed(&model(4), &mut |texts| Some(anew(texts)), &mut progress);
        assert_eq!(died, Err(Error::Unavailable), "{point:?}");
        world.env.fail_at(None);
        assert!(matches!(open_with(&mut world, Some(3)), Err(OpenError::OtherModel { .. })), "{point:?}");
        open_with(&mut world, Some(4)).unwrap();
        assert_eq!((near(&world, &NEW_SHIP), near(&world, &FORMER)), (Ok(10), Err(Error::ModelMismatch)));
    }
}

#[test]
fn what_was_made_for_yet_another_model_is_never_put_in_place() {
    let world = world();
    let mut calls = 0;
    let mut fifth = |texts: &[&str]| {
        calls += 1;
        (calls < 3).then(|| texts.iter().map(|_| Some(vec![1.0; 5])).collect())
    };
    assert_eq!(world.store().reembed(&model(5), &mut fifth, &mut |_| ()), Err(Error::Unavailable));
    assert_eq!(reembed(&world).made, N_TEXTS);
    assert_eq!(near(&world, &NEW_SHIP), Ok(10));
}

#[test]
fn a_text_that_the_new_model_cannot_read_is_left_without_a_vector_and_is_tried_again() {
    let world = world();
    world.remember("anna", Note { vector: Some(FORMER.to_vec()), ..note("an unreadable ship") }).unwrap();
    let done = reembed(&world);
    assert_eq!((done.total, done.made, done.failed), (N_TEXTS + 1, N_TEXTS, 1));
    assert_eq!(near(&world, &FORMER), Err(Error::ModelMismatch));
    assert_eq!(world.texts("anna", "unreadable")[0], "an unreadable ship");
    let filled = world.store().fill_vectors(&model(4), &mut |_| vec![Some(NEW_SHIP.to_vec())], &mut |_| ());
    assert_eq!(filled.unwrap().filled, 1);
}

#[test]
fn vectors_in_the_making_lie_on_the_disk_as_ciphertext() {
    let mut world = world();
    let odd = [0.123_456_7_f32, -0.765_432_1, 0.631_2, 0.1];
    let mut first = true;
    let mut embed = |texts: &[&str]| {
        std::mem::take(&mut first).then(|| texts.iter().map(|_| Some(odd.to_vec())).collect())
    };
    assert!(world.store().reembed(&model(4), &mut embed, &mut |_| ()).is_err());
    world.close();
    let plain: Vec<u8> = odd.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(holding(world.root(), &[plain]), Vec::<String>::new());
}

#[test]
fn the_vector_of_a_trial_sentence_is_kept_for_its_model_only() {
    let mut world = World::with(options());
    assert_eq!(world.store().reference(&model(3)), Ok(None));
    world.store().keep_reference(&model(3), &[1.0, 0.5]).unwrap();
    world.store().keep_reference(&model(3), &[0.0, 0.0]).unwrap();
    world.reopen().unwrap();
    assert_eq!(world.store().reference(&model(3)), Ok(Some(vec![1.0, 0.5])), "the first is kept");
    assert_eq!(world.store().reference(&model(4)), Ok(None));
}

#[test]
fn a_tenant_in_which_something_was_written_without_a_vector_is_told_once() {
    let world = World::with(Options { model: Some(model(3)), ..options() });
    let _ = world.store().take_unfilled();
    world.remember("anna", Note { vector: Some(FORMER.to_vec()), ..note("a ship") }).unwrap();
    assert!(world.store().take_unfilled().is_empty());
    world.remember("anna", note("another ship")).unwrap();
    assert!(world.store().take_unfilled().contains(&world.keys.tenant));
    assert!(world.store().take_unfilled().is_empty());
}
