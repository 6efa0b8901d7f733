//! Another model while the service serves: searches and writes go on, each tenant changes at one moment, and what
//! is gathered beside the vectors that answer is forgotten when they are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use merkwelt_authz::action;
use merkwelt_domain::{Env as _, FaultPoint, TenantId};
use merkwelt_store::query::RecallQuery;
use merkwelt_store::record::Ranking;
use merkwelt_store::source::SourceChange;
use merkwelt_store::{Error, Library as _, Store as _};
use merkwelt_store_sqlite::{FillPlace, OpenError, Options};

use super::lifecycle::another;
use super::sources::{publish, register, stage};
use super::world::{Note, World, model, note, on, options, text_of};

/// A ship for the former model, which has three components, and for the coming one, which has four. Something else
/// points the other way in both.
const FORMER: ([f32; 3], [f32; 3]) = ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]);
const COMING: ([f32; 4], [f32; 4]) = ([0.0, 0.0, 0.6, 0.8], [1.0, 0.0, 0.0, 0.0]);

fn vector(text: &str, dimension: usize) -> Option<Vec<f32>> {
    let is_ship = text.contains("ship");
    match dimension {
        _ if text.contains("unreadable") => None,
        3 => Some(if is_ship { FORMER.0 } else { FORMER.1 }.to_vec()),
        _ => Some(if is_ship { COMING.0 } else { COMING.1 }.to_vec()),
    }
}

fn embed(texts: &[&str]) -> Vec<Option<Vec<f32>>> {
    texts.iter().map(|text| vector(text, 4)).collect()
}

/// Remembers something with a vector of the model that the tenant has then.
fn remember(world: &World, text: &str, dimension: usize) -> Result<(), Error> {
    world.remember("anna", Note { vector: vector(text, dimension), ..note(text) }).map(|_| ())
}

/// Sixty ships and sixty other things with vectors of the former model.
fn world() -> World {
    let world = World::with(Options { model: Some(model(3)), ..options() });
    for number in 0..60 {
        remember(&world, &format!("ship number {number}"), 3).unwrap();
        remember(&world, &format!("tea number {number}"), 3).unwrap();
    }
    world
}

fn begin(world: &World) -> Option<u64> {
    world.store().begin_gathering(&world.keys.tenant, &model(4)).unwrap().map(|begun| begun.missing)
}

/// One pass over a tenant: how many vectors were made, how many rows cannot be embedded.
pub(super) fn gather(world: &World, components: usize) -> (u64, u64) {
    let tenant = &world.keys.tenant;
    let _ = world.store().begin_gathering(tenant, &model(components)).unwrap();
    let (mut done, mut place) = ((0, 0), Some(FillPlace::default()));
    let mut embed = |texts: &[&str]| Some(texts.iter().map(|text| vector(text, components)).collect());
    while let Some(from) = place {
        let step = world.store().gather_some(tenant, &model(components), from, &mut embed).unwrap();
        done = (done.0 + step.filled, done.1 + step.failed);
        place = step.next;
    }
    done
}

/// How many of ten hits are ships by their cosine, asked with the ship of a model.
fn ships(world: &World, asked: &[f32]) -> Result<usize, Error> {
    let recalled = world.recall("anna", &world.ask("Schiff", Some(asked.to_vec())))?;
    assert_eq!(recalled.ranking, Ranking::Hybrid);
    let is_ship = |c: &&merkwelt_store::record::Candidate| {
        c.scores.cosine.is_some_and(|cosine| cosine > 0.99) && text_of(&c.record).contains("ship")
    };
    Ok(recalled.candidates.iter().filter(is_ship).count())
}

fn count(world: &World, sql: &str) -> u64 {
    let file = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
}

#[test]
fn i_014_a_tenant_changes_at_one_moment_while_searches_and_writes_go_on() {
    let world = world();
    let (over, n_former, n_coming) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    // What an application does: it asks for the model, embeds, and embeds again if it came too late.
    let until_taken = |act: &dyn Fn(usize) -> Result<(), Error>| {
        for _ in 0..3 {
            let now = world.store().model_of(&world.keys.tenant).unwrap();
            let (dimension, n_done) = if now == Some(model(3)) { (3, &n_former) } else { (4, &n_coming) };
            match act(dimension) {
                Err(Error::ModelMismatch) => {}
                done => {
                    done.unwrap();
                    n_done.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        }
        panic!("the model changed more than once");
    };
    let search = |dimension: usize| {
        let asked = vector("ship", dimension).unwrap();
        ships(&world, &asked).map(|n_ships| assert_eq!(n_ships, 10, "asked with {dimension} components"))
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    until_taken(&search);
                }
            });
        }
        scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::SeqCst) {
                number += 1;
                until_taken(&|dimension| remember(&world, &format!("another ship {number}"), dimension));
            }
        });
        // However busy the machine is, something is asked before the change.
        while n_former.load(Ordering::SeqCst) <= 10 {
            thread::yield_now();
        }
        while gather(&world, 4).0 > 32 {}
        world.store().begin_switching(&model(4)).unwrap();
        while !world.store().switch_tenant(&world.keys.tenant, &model(4), 32).unwrap() {
            let _ = gather(&world, 4);
        }
        world.store().end_switching(&model(4)).unwrap();
        let after = n_coming.load(Ordering::SeqCst);
        while n_coming.load(Ordering::SeqCst) < after + 40 {
            thread::yield_now();
        }
        over.store(true, Ordering::SeqCst);
    });
    // What was written between the last pass and the change has no vector yet, and is filled in.
    assert!(world.store().take_unfilled().contains(&world.keys.tenant));
    let filled = world.store().fill_vectors(&model(4), &mut |texts| embed(texts), &mut |_| ()).unwrap();
    assert!(filled.total <= 32 && filled.failed == 0, "{filled:?}");
    assert_eq!(
        count(&world, "SELECT count(*) FROM memories WHERE vector IS NULL OR vector_next IS NOT NULL"),
        0
    );
    assert_eq!(ships(&world, &FORMER.0), Err(Error::ModelMismatch));
}

#[test]
fn until_the_change_nobody_can_tell_that_vectors_are_gathered() {
    let mut world = world();
    let entries = world.entries();
    let before = world.recall("anna", &world.ask("ship number 7", Some(FORMER.0.to_vec()))).unwrap();
    assert_eq!(gather(&world, 4), (120, 0));
    let after = world.recall("anna", &world.ask("ship number 7", Some(FORMER.0.to_vec()))).unwrap();
    assert_eq!((format!("{before:?}"), world.entries()), (format!("{after:?}"), entries));
    assert_eq!(remember(&world, "too early a ship", 4), Err(Error::ModelMismatch));
    // Whoever opens the data with the former model alone goes on as before; nothing is lost.
    world.reopen().unwrap();
    assert_eq!(ships(&world, &FORMER.0), Ok(10));
    let gathered = world.store().gathered(&world.keys.tenant).unwrap().unwrap();
    assert_eq!((gathered.model, gathered.made, gathered.missing), (model(4), 120, 0));
    assert_eq!(gather(&world, 4), (0, 0), "what was made is made again");
    // The model of the data as the next one: what was gathered for the other is dropped.
    assert_eq!(world.store().begin_gathering(&world.keys.tenant, &model(3)), Ok(None));
    assert_eq!(world.store().gathered(&world.keys.tenant), Ok(None));
    assert_eq!(count(&world, "SELECT count(*) FROM memories WHERE vector_next IS NOT NULL"), 0);
}

#[test]
fn a_tenant_is_not_switched_while_too_many_rows_are_without_a_new_vector() {
    let world = world();
    remember(&world, "an unreadable ship", 3).unwrap();
    assert_eq!(gather(&world, 4), (120, 1));
    let switch = |lacking| world.store().switch_tenant(&world.keys.tenant, &model(4), lacking).unwrap();
    assert!(!switch(0));
    assert_eq!((ships(&world, &FORMER.0), ships(&world, &COMING.0)), (Ok(10), Err(Error::ModelMismatch)));
    assert!(switch(1));
    assert_eq!((ships(&world, &COMING.0), ships(&world, &FORMER.0)), (Ok(10), Err(Error::ModelMismatch)));
    assert_eq!(world.texts("anna", "unreadable")[0], "an unreadable ship", "it is found by its words");
    assert!(switch(0), "it was done before");
    assert_eq!(begin(&world), None);
}

#[test]
fn a_change_that_dies_after_the_point_of_no_return_is_finished_at_the_next_start() {
    for point in [None, Some(FaultPoint::BeforeCommit), Some(FaultPoint::AfterCommit)] {
        let mut world = world();
        world.store().keep_reference(&model(3), &[1.0]).unwrap();
        world.store().keep_next_reference(&model(4), &[0.5]).unwrap();
        assert_eq!(world.store().reference(&model(3)), Ok(Some(vec![1.0])), "the present one is kept too");
        gather(&world, 4);
        world.store().begin_switching(&model(4)).unwrap();
        world.env.fail_at(point);
        if point.is_some() {
            let died = world.store().switch_tenant(&world.keys.tenant, &model(4), 0);
            assert_eq!(died, Err(Error::Unavailable), "{point:?}");
        }
        world.env.fail_at(None);
        assert!(matches!(world.reopen(), Err(OpenError::OtherModel { .. })), "the former is refused");
        world.options.model = Some(model(4));
        world.reopen().unwrap();
        assert_eq!((ships(&world, &COMING.0), ships(&world, &FORMER.0)), (Ok(10), Err(Error::ModelMismatch)));
        assert_eq!(world.store().model(), Ok(Some(model(4))));
        assert_eq!(world.store().reference(&model(4)), Ok(Some(vec![0.5])));
    }
}

#[test]
fn a_tenant_without_vectors_takes_those_of_the_new_model_from_the_point_of_no_return_on() {
    let world = World::with(Options { model: Some(model(3)), ..options() });
    world.remember("anna", note("a ship that waits")).unwrap();
    let told = |world: &World| {
        world.act::<action::Recall, _>(&world.keys.app, Some("anna"), |pass| {
            on(world.store().vector_model(pass.scope()))
        })
    };
    assert_eq!(told(&world), Ok(Some(model(3))));
    assert_eq!(gather(&world, 4), (1, 0));
    world.store().begin_switching(&model(4)).unwrap();
    assert_eq!(told(&world), Ok(Some(model(4))));
    assert_eq!(remember(&world, "a late ship", 3), Err(Error::ModelMismatch));
    remember(&world, "a ship of the new model", 4).unwrap();
    // What was gathered is put beside it; nothing of it is made again.
    assert_eq!(begin(&world), Some(1));
    assert_eq!(world.store().switch_tenant(&world.keys.tenant, &model(4), 1), Ok(true));
    assert_eq!(ships(&world, &COMING.0), Ok(2));
}

#[test]
fn i_008_who_is_erased_while_the_engine_is_at_work_gets_no_vector_and_keeps_nobody_waiting() {
    let world = World::with(Options { model: Some(model(3)), ..options() });
    for number in 0..10 {
        world.remember("bert", note(&format!("a ship of bert {number}"))).unwrap();
        world.remember("anna", note(&format!("a ship of anna {number}"))).unwrap();
    }
    let tenant: &TenantId = &world.keys.tenant;
    let erase = |who: &str| {
        world
            .act::<action::Erase, _>(&world.keys.officer, Some(who), |pass| {
                on(world.store().erase(pass, world.env.now()))
            })
            .unwrap()
    };
    let _ = world.store().begin_gathering(tenant, &model(4)).unwrap();
    let mut at_work = |texts: &[&str]| {
        assert_eq!(texts.len(), 20);
        erase("bert");
        Some(embed(texts))
    };
    let step = world.store().gather_some(tenant, &model(4), FillPlace::default(), &mut at_work).unwrap();
    assert_eq!(step.filled, 10, "what is of others is kept");
    world.remember("bert", note("bert is back")).unwrap();
    let mut at_work = |texts: &[&str]| {
        erase("bert");
        texts.iter().map(|text| vector(text, 3)).collect()
    };
    let step = world.store().fill_some(tenant, &model(3), FillPlace::default(), &mut at_work).unwrap();
    assert_eq!(step.filled, 10, "the present vectors are filled in by the same rule");
}

#[test]
fn r_052_what_was_gathered_of_a_source_goes_with_its_deletion_and_is_made_anew_when_it_comes_back() {
    let world = world();
    let source = register(&world);
    let revision = stage(&world, &source, "Returned goods go by ship.");
    publish(&world, &source, revision).unwrap();
    assert_eq!(gather(&world, 4), (121, 0));
    let gathered = "SELECT count(*) FROM passages WHERE vector_next IS NOT NULL";
    assert_eq!(count(&world, gathered), 1);
    world
        .act::<action::ManageSources, _>(&world.keys.app, None, |pass| {
            let deletion = SourceChange::Delete { source: source.clone() };
            on(world.store().change_source(pass, deletion, world.env.now()))
        })
        .unwrap();
    assert_eq!(count(&world, gathered), 0);
    assert_eq!(gather(&world, 4), (0, 0), "what is deleted is embedded again");
    assert_eq!(world.store().switch_tenant(&world.keys.tenant, &model(4), 0), Ok(true));
    let ask = RecallQuery { documents: true, ..world.ask("Schiff", Some(COMING.0.to_vec())) };
    let found = world.recall("anna", &ask).unwrap();
    assert!(found.candidates.iter().all(|c| text_of(&c.record) != "Returned goods go by ship."));
}

#[test]
fn i_014_a_tenant_in_which_nothing_was_gathered_is_not_left_behind_with_vectors_of_the_former_model() {
    let ends: [fn(&mut World); 4] = [
        // A tenant that was made when the others were ready, and the process ended.
        |world| world.reopen().unwrap(),
        // What was gathered long ago was for yet another model.
        |world| {
            assert_eq!(gather(world, 5), (120, 0));
            world.reopen().unwrap();
        },
        // Its first vectors were written when the change was about to end.
        |world| world.store().end_switching(&model(4)).unwrap(),
        // It was made after the point of no return, and nothing was written yet.
        |world| {
            world.reopen().unwrap();
            let (late, _) = another(world, 1);
            assert_eq!(world.store().model_of(&late), Ok(Some(model(4))));
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut world = world();
        let (late, _) = another(&world, 0);
        world.store().begin_switching(&model(4)).unwrap();
        assert_eq!(world.store().model_of(&late), Ok(Some(model(4))), "{number}");
        assert_eq!(world.store().switch_tenant(&world.keys.tenant, &model(4), 119), Ok(false), "{number}");
        world.options.model = Some(model(4));
        end(&mut world);
        assert_eq!(world.store().model(), Ok(Some(model(4))), "{number}");
        for tenant in world.store().tenant_ids() {
            assert_eq!(world.store().model_of(&tenant), Ok(Some(model(4))), "{number}");
        }
        let vectors = "SELECT count(*) FROM memories WHERE vector IS NOT NULL OR vector_next IS NOT NULL";
        assert_eq!(count(&world, vectors), 0, "{number}: vectors of the former model are left");
        assert_eq!((ships(&world, &COMING.0), ships(&world, &FORMER.0)), (Ok(0), Err(Error::ModelMismatch)));
        assert_eq!(world.texts("anna", "ship").len(), 10, "{number}: it is not found by its words");
        assert!(world.store().take_unfilled().contains(&world.keys.tenant), "{number}: nobody fills it");
        let filled = world.store().fill_vectors(&model(4), &mut |texts| embed(texts), &mut |_| ()).unwrap();
        assert_eq!((filled.filled, filled.failed), (120, 0), "{number}");
        assert_eq!(ships(&world, &COMING.0), Ok(10), "{number}");
    }
}
