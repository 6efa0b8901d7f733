//! Many writers at once: what is acknowledged is stored, and many batches share one commit.

use std::thread;

use merkwelt_authz::{action, authorize};
use merkwelt_domain::{Env as _, FaultPoint};
use merkwelt_store::change::{Batch, Outcome, Write};
use merkwelt_store::{Error, Store as _};

use super::world::{World, note, on};

const THREADS: usize = 64;
const WRITES: usize = 20;

#[test]
fn i_011_what_64_threads_were_told_is_stored_is_stored() {
    let mut world = World::new();
    world.id("anna");
    let before = world.store().usage().commits;
    let mut indices: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let world = &world;
                scope.spawn(move || {
                    let request = world.request(&world.keys.app, Some("anna"));
                    let pass = on(authorize::<action::Remember>(world.store(), &request)).unwrap();
                    (0..WRITES)
                        .map(|number| {
                            let new = world.new_memory(note(&format!("fact {thread} {number}")));
                            let write = vec![Write::Remember(new)];
                            let batch = Batch::writes(&pass, write, None, world.env.now());
                            on(world.store().commit(batch)).unwrap().entry.unwrap().index
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    indices.sort_unstable();
    let first = indices[0];
    let expected: Vec<u64> = (first..first + (THREADS * WRITES) as u64).collect();
    assert_eq!(indices, expected);
    let commits = world.store().usage().commits - before;
    assert!(commits < (THREADS * WRITES) as u64 / 2, "{commits} commits");
    let entries = world.entries().len();
    world.reopen().unwrap();
    assert_eq!(world.entries().len(), entries);
    let recalled = world.recall("anna", &world.ask("fact", None)).unwrap();
    assert_eq!(recalled.considered, (THREADS * WRITES) as u64);
}

#[test]
fn a_refused_batch_spoils_no_other() {
    let world = World::new();
    world.id("anna");
    thread::scope(|scope| {
        for thread in 0..16 {
            let world = &world;
            scope.spawn(move || {
                for number in 0..10 {
                    let good = world.new_memory(note(&format!("good {thread} {number}")));
                    if number % 2 == 0 {
                        let _ = world.commit("anna", vec![Write::Remember(good)]).unwrap();
                        continue;
                    }
                    // The second write refuses what the first one did.
                    let id = merkwelt_domain::MemoryId::random(world.env.as_ref());
                    let bad = Write::Retract { id, at: world.env.now() };
                    let refused = world.commit("anna", vec![Write::Remember(good), bad]);
                    assert_eq!(refused.err(), Some(Error::NotFound));
                }
            });
        }
    });
    assert_eq!(world.recall("anna", &world.ask("good", None)).unwrap().considered, 16 * 5);
}

#[test]
fn a_fault_at_any_point_of_a_write_leaves_a_consistent_store() {
    for point in [FaultPoint::BeforeCommit, FaultPoint::AfterCommit, FaultPoint::BeforeShard] {
        let mut world = World::new();
        world.remember("anna", note("the first fact")).unwrap();
        assert_eq!(world.texts("anna", "fact").len(), 1);
        world.env.fail_at(Some(point));
        let second = world.remember("anna", note("the second fact"));
        world.env.fail_at(None);
        // After the acknowledgement nothing can be taken back any more.
        assert_eq!(second.is_ok(), point == FaultPoint::BeforeShard, "{point:?} {second:?}");
        // Durable or not is what the point says; the index agrees with the records either way.
        let kept = if point == FaultPoint::BeforeCommit { 1 } else { 2 };
        assert_eq!(world.texts("anna", "fact").len(), kept, "{point:?}");
        assert!(matches!(world.remember("anna", note("the third fact")), Ok(Outcome::Created { .. })));
        assert_eq!(world.texts("anna", "fact").len(), kept + 1, "{point:?}");
        world.reopen().unwrap();
        assert_eq!(world.texts("anna", "fact").len(), kept + 1, "{point:?}");
    }
}

#[test]
fn a_fault_after_a_new_key_registers_nobody_and_the_next_try_does() {
    let world = World::new();
    world.env.fail_at(Some(FaultPoint::AfterKey));
    assert_eq!(world.remember("anna", note("a fact")), Err(Error::Unavailable));
    world.env.fail_at(None);
    assert!(world.remember("anna", note("a fact")).is_ok());
    assert_eq!(world.id("anna"), world.id("anna"));
}

/// Five first requests at once once froze the whole instance: every thread of the pool waited for a write that
/// only another thread of the pool could have made.
#[test]
#[expect(clippy::disallowed_methods, reason = "the watchdog must outlive a store that stands still")]
fn r_034_many_first_requests_at_once_do_not_stop_each_other() {
    let (done, finished) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let world = World::new();
        for round in 0..30 {
            thread::scope(|scope| {
                for person in 0..16 {
                    let world = &world;
                    scope.spawn(move || {
                        let name = format!("new-{round}-{person}");
                        let request = world.request(&world.keys.app, Some(&name));
                        let pass = on(authorize::<action::Remember>(world.store(), &request)).unwrap();
                        let new = world.new_memory(note(&format!("first of {name}")));
                        let batch = Batch::writes(&pass, vec![Write::Remember(new)], None, world.env.now());
                        on(world.store().commit(batch)).unwrap();
                    });
                }
            });
        }
        done.send(()).unwrap();
    });
    let waited = finished.recv_timeout(std::time::Duration::from_secs(120));
    assert!(waited.is_ok(), "the store stands still");
}
