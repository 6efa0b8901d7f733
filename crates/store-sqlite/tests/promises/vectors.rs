//! Vectors for what was written while no model was there.

use merkwelt_domain::memory::Kind;
use merkwelt_store::Error;
use merkwelt_store::record::Ranking;
use merkwelt_store_sqlite::{Filled, Options};

use super::world::{Note, World, model, note, options, text_of};

/// Says of a text whether it is about ships; cannot read a text that says so.
fn embed(texts: &[&str]) -> Vec<Option<Vec<f32>>> {
    let one = |text: &&str| match *text {
        text if text.contains("unreadable") => None,
        text if ["ship", "vessel", "harbour"].iter().any(|w| text.contains(w)) => Some(vec![1.0, 0.0, 0.0]),
        _ => Some(vec![0.0, 1.0, 0.0]),
    };
    texts.iter().map(one).collect()
}

fn fill(world: &World) -> Filled {
    world.store().fill_vectors(&model(3), &mut embed, &mut |_| ()).unwrap()
}

/// A world as after the import of a model: rows without vectors, opened with the model.
fn opened_with_a_model(write: impl FnOnce(&World)) -> World {
    let mut world = World::with(options());
    write(&world);
    world.options = Options { model: Some(model(3)), ..options() };
    world.reopen().unwrap();
    world
}

#[test]
fn what_was_written_without_a_model_is_found_by_meaning_after_filling() {
    let mut world = opened_with_a_model(|world| {
        world.remember("anna", note("the vessel is in the harbour")).unwrap();
        world.remember("anna", note("the cat sleeps")).unwrap();
        let opened = world.open_conversation("anna");
        let _ = world.say("anna", &opened, "which ship was it").unwrap();
    });
    let by_meaning = world.ask("Schiff", Some(vec![1.0, 0.0, 0.0]));
    let found = |world: &World| {
        let recalled = world.recall("anna", &by_meaning).unwrap();
        assert_eq!(recalled.ranking, Ranking::Hybrid);
        let near = recalled.candidates.iter().filter(|c| c.scores.cosine.is_some_and(|cosine| cosine > 0.9));
        near.map(|c| text_of(&c.record)).collect::<Vec<_>>()
    };
    // The shard is in memory and without vectors before they come.
    assert_eq!(found(&world), Vec::<String>::new());
    let entries = world.entries();
    assert_eq!(fill(&world), Filled { total: 3, filled: 3, failed: 0 });
    assert_eq!(found(&world).len(), 2);
    assert_eq!(world.entries(), entries, "nothing was said, so nothing is in the ledger");
    world.reopen().unwrap();
    assert_eq!(found(&world).len(), 2);
    assert_eq!(fill(&world), Filled::default(), "there is nothing left to do");
}

#[test]
fn a_text_that_cannot_be_embedded_stays_pending_and_stops_no_other() {
    let world = opened_with_a_model(|world| {
        world.remember("anna", note("an unreadable label")).unwrap();
        for number in 0..100 {
            world.remember("anna", note(&format!("ship number {number}"))).unwrap();
        }
    });
    let mut steps = Vec::new();
    let done = world.store().fill_vectors(&model(3), &mut embed, &mut |done| steps.push(done)).unwrap();
    assert_eq!(done, Filled { total: 101, filled: 100, failed: 1 });
    assert_eq!(steps.len(), 4, "small transactions, each reported");
    assert_eq!(fill(&world), Filled { total: 1, filled: 0, failed: 1 });
}

#[test]
fn filling_that_is_stopped_goes_on_where_it_was() {
    let world = opened_with_a_model(|world| {
        for number in 0..80 {
            world.remember("anna", note(&format!("ship number {number}"))).unwrap();
        }
    });
    let mut n_calls = 0;
    let mut dies = |texts: &[&str]| {
        n_calls += 1;
        if n_calls == 2 { texts.iter().map(|_| None).collect() } else { embed(texts) }
    };
    let first = world.store().fill_vectors(&model(3), &mut dies, &mut |_| ()).unwrap();
    assert_eq!((first.filled, first.failed), (48, 32));
    assert_eq!(fill(&world), Filled { total: 32, filled: 32, failed: 0 });
}

#[test]
fn rules_and_replaced_revisions_are_not_embedded() {
    let slotted = |text| Note { slot: Some("ship:1"), ..note(text) };
    let world = opened_with_a_model(|world| {
        world.remember("anna", Note { kind: Kind::Feedback, ..note("answer in two sentences") }).unwrap();
        world.remember("anna", slotted("the ship is in Kiel")).unwrap();
        world.remember("anna", slotted("the ship is in Rostock")).unwrap();
    });
    let mut seen = Vec::new();
    let mut watch = |texts: &[&str]| {
        seen.extend(texts.iter().map(|text| (*text).to_owned()));
        embed(texts)
    };
    let done = world.store().fill_vectors(&model(3), &mut watch, &mut |_| ()).unwrap();
    assert_eq!((done.filled, seen), (1, vec!["the ship is in Rostock".to_owned()]));
}

#[test]
fn i_014_vectors_of_another_model_are_not_filled_in() {
    let world = opened_with_a_model(|world| {
        world.remember("anna", note("the vessel is in the harbour")).unwrap();
    });
    let other = world.store().fill_vectors(&model(4), &mut embed, &mut |_| ());
    assert_eq!(other, Err(Error::ModelMismatch));
    assert_eq!(fill(&world).filled, 1);
}

#[test]
fn filled_vectors_lie_on_the_disk_as_ciphertext() {
    let world = opened_with_a_model(|world| {
        world.remember("anna", note("the vessel is in the harbour")).unwrap();
    });
    let odd = [0.123_456_7_f32, -0.765_432_1, 0.631_2];
    let mut embed = |texts: &[&str]| texts.iter().map(|_| Some(odd.to_vec())).collect();
    assert_eq!(world.store().fill_vectors(&model(3), &mut embed, &mut |_| ()).unwrap().filled, 1);
    let plain: Vec<u8> = odd.iter().flat_map(|value| value.to_le_bytes()).collect();
    for entry in std::fs::read_dir(world.cell()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(plain.len()).any(|window| window == plain));
    }
}
