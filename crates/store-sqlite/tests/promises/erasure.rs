//! Forgetting: what is left in the files and in memory after an erasure, and after one that was interrupted.

use merkwelt_authz::action;
use merkwelt_domain::{Env as _, FaultPoint, SubjectId};
use merkwelt_store::change::Write;
use merkwelt_store::{Erased, Error, Residue, Store as _};
use serde_json::json;

use super::coming::gather;
use super::world::{Note, World, holding, note, on};

const WHO: &str = "anna.muster@example.org";

fn fill(world: &World, who: &str, facts: usize) {
    let conversation = world.open_conversation(who);
    for number in 0..facts {
        let text = format!("{who} likes marzipan number {number}");
        let metadata = json!({ "who": who });
        let vector = Some(vec![0.25, 0.5, 0.75, 1.0]);
        world.remember(who, Note { vector, metadata, ..note(&text) }).unwrap();
        let turn = world.new_turn(&conversation, &format!("{who} says nougat {number}"), None);
        let _ = world.commit(who, vec![Write::Append(turn)]).unwrap();
    }
    assert!(!world.texts(who, "marzipan").is_empty());
}

fn erase(world: &World, who: &str) -> Result<Erased, Error> {
    world.act::<action::Erase, _>(&world.keys.officer, Some(who), |pass| {
        on(world.store().erase(pass, world.env.now()))
    })
}

fn residue(world: &World, of: &SubjectId) -> Residue {
    world
        .act::<action::Erase, _>(&world.keys.officer, Some("somebody else"), |pass| {
            on(world.store().residue(pass, of))
        })
        .unwrap()
}

/// What would name the person in a row: the pseudonym in any place but the tombstone.
fn rows_of(world: &World, id: &SubjectId) -> Vec<String> {
    let file = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    let tables = ["memories", "turns", "conversations", "openings", "packs", "idempotency"];
    tables
        .into_iter()
        .filter(|table| {
            let sql = format!("SELECT count(*) FROM {table} WHERE owner = ?1");
            file.query_row(&sql, [id.as_str()], |row| row.get::<_, u32>(0)).unwrap() > 0
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn r_064_nothing_of_the_erased_is_left_in_rows_index_keys_or_bytes() {
    let mut world = World::new();
    fill(&world, WHO, 40);
    fill(&world, "bert", 5);
    let id = world.id(WHO);
    // Vectors of a coming model are forgotten like those that answer.
    assert_eq!(gather(&world, 5), (90, 0));
    // Positive control: the ciphertext, the keyed tag and the wrapped key are there before.
    let marks = marks(&world, &id);
    assert!(marks.len() > 280, "{}", marks.len());
    assert!(holding(world.root(), &marks).len() >= marks.len());
    let before = residue(&world, &id);
    assert!(before.rows > 80 && before.indexed == 80 && before.keys == 1, "{before:?}");

    let erased = erase(&world, WHO).unwrap();
    assert_eq!((erased.memories, erased.turns, erased.conversations), (40, 40, 1));
    assert!(residue(&world, &id).is_none(), "{:?}", residue(&world, &id));
    assert_eq!(rows_of(&world, &id), Vec::<String>::new());
    let words = [b"marzipan".to_vec(), WHO.as_bytes().to_vec()];
    assert_eq!(holding(world.root(), &words), Vec::<String>::new());
    assert_eq!(holding(world.root(), &marks), Vec::<String>::new());
    assert_eq!(world.texts("bert", "marzipan").len(), 10);

    assert_ne!(world.id(WHO), id);
    assert_eq!(world.texts(WHO, "marzipan"), Vec::<String>::new());
    world.reopen().unwrap();
    assert!(residue(&world, &id).is_none());
}

/// The exact bytes that stand for the person in the files.
fn marks(world: &World, id: &SubjectId) -> Vec<Vec<u8>> {
    let cell = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    let keys = rusqlite::Connection::open(world.cell().join("keys.db")).unwrap();
    let blobs = |file: &rusqlite::Connection, sql: &str| -> Vec<Vec<u8>> {
        let mut statement = file.prepare(sql).unwrap();
        statement.query_map([id.as_str()], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let mut marks = Vec::new();
    for sql in [
        "SELECT substr(body, 1, 40) FROM memories WHERE owner = ?1",
        "SELECT vector FROM memories WHERE owner = ?1",
        "SELECT vector_next FROM memories WHERE owner = ?1 AND vector_next IS NOT NULL",
        "SELECT vector_next FROM turns WHERE owner = ?1 AND vector_next IS NOT NULL",
        "SELECT text_tag FROM memories WHERE owner = ?1",
        "SELECT opening FROM memories WHERE owner = ?1",
        "SELECT substr(body, 1, 40) FROM turns WHERE owner = ?1",
        "SELECT ref_tag FROM subjects WHERE id = ?1",
        "SELECT reference FROM subjects WHERE id = ?1",
    ] {
        marks.extend(blobs(&cell, sql));
    }
    marks.extend(blobs(&keys, "SELECT wrapped FROM keys WHERE owner = ?1"));
    marks
}

#[test]
fn i_009_an_interrupted_erasure_serves_nothing_and_is_finished_at_the_next_start() {
    let mut world = World::new();
    fill(&world, WHO, 5);
    let id = world.id(WHO);
    world.env.fail_at(Some(FaultPoint::BeforeVacuum));
    assert_eq!(erase(&world, WHO), Err(Error::Unavailable));
    world.env.fail_at(None);
    // Nothing opens for the person, not even under a new pseudonym, until it is over.
    assert_eq!(world.recall(WHO, &world.ask("marzipan", None)).err(), Some(Error::NotFound));
    assert_eq!(residue(&world, &id).keys, 0);
    assert!(!residue(&world, &id).is_none());
    world.reopen().unwrap();
    assert!(residue(&world, &id).is_none());
    assert_ne!(world.id(WHO), id);
    let receipts = world.entries();
    let of = |kind: &str| {
        let name = format!("\"type\":\"{kind}\"");
        receipts.iter().filter(|entry| String::from_utf8_lossy(entry).contains(&name)).count()
    };
    assert_eq!((of("erasure_requested"), of("erasure_receipt")), (1, 1));
}

#[test]
fn an_erasure_ends_while_readers_are_at_work() {
    let world = World::new();
    fill(&world, WHO, 20);
    fill(&world, "bert", 20);
    let id = world.id(WHO);
    let marks = marks(&world, &id);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // A capability minted before the erasure is refused once, and minted anew.
                        match world.recall("bert", &world.ask("marzipan", None)) {
                            Ok(recalled) => assert_eq!(recalled.considered, 40),
                            Err(error) => assert_eq!(error, Error::GrantsMoved),
                        }
                    }
                })
            })
            .collect();
        assert_eq!(erase(&world, WHO).unwrap().memories, 20);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(holding(world.root(), &marks), Vec::<String>::new());
    assert!(residue(&world, &id).is_none());
}
