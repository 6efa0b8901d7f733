//! Opening, closing, and everything that must not be opened.

use std::fs;
use std::path::PathBuf;

use merkwelt_authz::{ApiKey, Role, action};
use merkwelt_domain::{Env as _, TenantId};
use merkwelt_store::change::{Batch, Outcome, Write};
use merkwelt_store::{Registry as _, Store as _, Tenant};
use merkwelt_store_sqlite::{MasterKey, OpenError, Options, Sqlite, exists, is_half_made};

use super::world::{
    Folder, Note, TestEnv, World, founding, holding, master, model, new_key, note, on, options, text_of,
};

fn open(world: &World, master: &MasterKey) -> Result<Sqlite, OpenError> {
    Sqlite::open(world.root(), master, world.env.clone(), options())
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let mut world = World::new();
    let conversation = world.open_conversation("anna");
    for number in 0..20 {
        world.remember("anna", note(&format!("fact number {number}"))).unwrap();
    }
    let _ = world.say("anna", &conversation, "hello there").unwrap();
    let (id, entries) = (world.id("anna"), world.entries());
    world.reopen().unwrap();
    world.reopen().unwrap();
    assert_eq!(world.id("anna"), id);
    assert_eq!(world.entries(), entries);
    assert_eq!(world.texts("anna", "fact number 13")[0], "fact number 13");
    assert_eq!(world.texts("anna", "hello")[0], "hello there");
}

#[test]
fn what_was_acknowledged_survives_a_store_that_was_never_closed() {
    let world = World::new();
    world.remember("anna", note("kept without a farewell")).unwrap();
    // A copy of the files as they lie there is what a kill leaves behind.
    let copy = Folder::new();
    copy_all(world.root(), &copy.0);
    let store = Sqlite::open(&copy.0, &master(), world.env.clone(), options()).unwrap();
    drop(store);
    let file =
        rusqlite::Connection::open(copy.0.join("tenants").join(world.keys.tenant.as_str()).join("cell.db"));
    let rows: u32 = file.unwrap().query_row("SELECT count(*) FROM memories", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_all(&path, &target) } else { fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

#[test]
fn a_wrong_instance_key_is_refused() {
    let mut world = World::new();
    world.close();
    assert_eq!(open(&world, &MasterKey::from_bytes([8; 32])).err(), Some(OpenError::WrongKey));
    assert!(open(&world, &master()).is_ok());
}

#[test]
fn a_data_directory_is_open_once() {
    let mut world = World::new();
    assert_eq!(open(&world, &master()).err(), Some(OpenError::Locked));
    world.close();
    let first = open(&world, &master());
    assert!(first.is_ok());
    assert_eq!(open(&world, &master()).err(), Some(OpenError::Locked));
}

#[test]
fn nothing_is_opened_where_nothing_is_and_nothing_is_overwritten() {
    let (folder, env) = (Folder::new(), TestEnv::new());
    let opened = Sqlite::open(&folder.0, &master(), env.clone(), options());
    assert_eq!(opened.err(), Some(OpenError::Missing));
    let world = World::new();
    let (founding, _) = founding(env.as_ref());
    let created = Sqlite::create(world.root(), &master(), founding, env, options());
    assert_eq!(created.err(), Some(OpenError::Exists));
}

fn each_file(world: &World) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("control.db", world.root().join("control.db")),
        ("cell.db", world.cell().join("cell.db")),
        ("keys.db", world.cell().join("keys.db")),
    ]
}

/// What is said of a damaged `control.db` when it is opened, or of a damaged tenant that stops nobody else.
fn said(world: &World, name: &str) -> Option<OpenError> {
    match open(world, &master()) {
        Err(error) => {
            assert_eq!(name, "control.db", "{error}: one tenant stopped the instance");
            Some(error)
        }
        Ok(store) => store.ailing().pop().map(|ailing| {
            assert_eq!(ailing.tenant, world.keys.tenant);
            ailing.reason
        }),
    }
}

#[test]
fn cut_off_files_are_refused_by_name() {
    let mut world = World::new();
    world.remember("anna", note("something")).unwrap();
    world.close();
    for (name, path) in each_file(&world) {
        let whole = fs::read(&path).unwrap();
        for length in [0, 50, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(said(&world, name), Some(OpenError::Damaged(name)), "{name} {length}");
        }
        fs::remove_file(&path).unwrap();
        // Tenants without the file that lists them are no empty directory either.
        assert_eq!(said(&world, name), Some(OpenError::Damaged(name)), "{name} missing");
        fs::write(&path, &whole).unwrap();
    }
    assert!(open(&world, &master()).is_ok_and(|store| store.ailing().is_empty()));
}

#[test]
fn files_of_other_programs_and_newer_versions_are_refused_by_name() {
    let mut world = World::new();
    world.close();
    for (name, path) in each_file(&world) {
        let own = fs::read(&path).unwrap();
        let change = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        change("PRAGMA application_id = 4711");
        assert_eq!(said(&world, name), Some(OpenError::Foreign(name)));
        fs::write(&path, &own).unwrap();
        change("PRAGMA user_version = 99");
        assert_eq!(said(&world, name), Some(OpenError::Newer(name)));
        fs::write(&path, "This is a letter and no database. ".repeat(20)).unwrap();
        assert_eq!(said(&world, name), Some(OpenError::Foreign(name)));
        fs::write(&path, &own).unwrap();
    }
    assert!(open(&world, &master()).is_ok_and(|store| store.ailing().is_empty()));
}

#[test]
fn i_005_files_of_another_tenant_or_instance_are_refused_by_name() {
    let (mut world, mut other) = (World::new(), World::other());
    for world in [&mut world, &mut other] {
        world.remember("anna", note("something")).unwrap();
        world.close();
    }
    for (name, path) in each_file(&world).into_iter().skip(1) {
        let own = fs::read(&path).unwrap();
        fs::copy(other.cell().join(name), &path).unwrap();
        let store = open(&world, &master()).unwrap();
        let found = store.examine().unwrap().into_iter().find(|found| found.tenant == world.keys.tenant);
        let said = found.unwrap().problem.unwrap();
        assert_eq!(said, OpenError::Misplaced(name).to_string());
        drop(store);
        fs::write(&path, own).unwrap();
    }
    assert!(open(&world, &master()).unwrap().examine().unwrap().iter().all(|found| found.problem.is_none()));
}

#[test]
fn a_first_start_that_was_interrupted_is_begun_anew_and_a_finished_one_never() {
    let (folder, env) = (Folder::new(), TestEnv::new());
    let (first, _) = founding(env.as_ref());
    drop(Sqlite::begin(&folder.0, &master(), first, env.clone(), options()).unwrap());
    assert!(is_half_made(&folder.0) && !exists(&folder.0).unwrap());
    let opened = Sqlite::open(&folder.0, &master(), env.clone(), options());
    assert_eq!(opened.err(), Some(OpenError::Missing));
    let (second, keys) = founding(env.as_ref());
    let store = Sqlite::begin(&folder.0, &master(), second, env.clone(), options()).unwrap();
    store.settle().unwrap();
    drop(store);
    let store = Sqlite::open(&folder.0, &master(), env.clone(), options()).unwrap();
    assert_eq!((store.strays(), store.examine().unwrap().len()), (Vec::new(), 2));
    assert!(store.examine().unwrap().iter().any(|found| found.tenant == keys.tenant));
    drop(store);
    let (third, _) = founding(env.as_ref());
    let again = Sqlite::begin(&folder.0, &master(), third, env.clone(), options());
    assert_eq!(again.err(), Some(OpenError::Exists));
}

#[test]
fn a_changed_history_of_migrations_is_refused() {
    let mut world = World::new();
    world.close();
    let path = world.root().join("control.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE migrations SET checksum = x'00'", []).unwrap();
    drop(file);
    assert_eq!(open(&world, &master()).err(), Some(OpenError::Damaged("control.db")));
}

#[test]
fn i_014_another_embedding_model_is_refused_at_the_start() {
    let configured = |dimension| Options { model: Some(model(dimension)), ..options() };
    let mut world = World::with(configured(4));
    let four = |text| Note { vector: Some(vec![0.5; 4]), ..note(text) };
    assert!(matches!(world.remember("anna", four("with a vector")), Ok(Outcome::Created { .. })));
    let three = Note { vector: Some(vec![0.5; 3]), ..note("of another model") };
    assert_eq!(world.remember("anna", three), Err(merkwelt_store::Error::ModelMismatch));
    world.close();
    world.options = configured(3);
    assert!(matches!(world.reopen(), Err(OpenError::OtherModel { .. })));
    world.options = options();
    world.reopen().unwrap();
    world.options = configured(4);
    world.reopen().unwrap();
}

#[test]
fn i_014_vectors_written_without_a_configured_model_count_at_the_first_start_with_one() {
    let mut world = World::new();
    world.remember("anna", Note { vector: Some(vec![0.5; 4]), ..note("with a vector") }).unwrap();
    world.options = Options { model: Some(model(3)), ..options() };
    assert!(matches!(world.reopen(), Err(OpenError::OtherModel { .. })));
    world.options = Options { model: Some(model(4)), ..options() };
    world.reopen().unwrap();
}

#[test]
fn r_099_the_database_itself_refuses_to_change_the_ledger() {
    let mut world = World::new();
    for number in 0..70 {
        world.remember("anna", note(&format!("fact {number}"))).unwrap();
    }
    world.close();
    let file = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    for sql in [
        "UPDATE ledger SET entry = x'00' WHERE position = 1",
        "DELETE FROM ledger WHERE position = 1",
        "DELETE FROM ledger",
        "UPDATE ledger_nodes SET hash = hash",
        "DELETE FROM ledger_nodes",
        "DELETE FROM ledger_head",
        "REPLACE INTO ledger (position, at, hash, entry) VALUES (1, 0, zeroblob(32), x'00')",
    ] {
        let refused = file.execute_batch(&format!("PRAGMA recursive_triggers = ON; {sql}"));
        assert!(refused.unwrap_err().to_string().contains("append-only"), "{sql}");
    }
}

#[test]
fn an_idle_tenant_is_closed_and_gives_its_index_back_and_is_found_again() {
    let world = World::with(Options { idle_ms_max: 1_000, ..options() });
    world.remember("anna", note("the blue crate")).unwrap();
    assert_eq!(world.texts("anna", "crate").len(), 1);
    assert!(world.store().usage().shard_bytes > 0);
    world.env.fixed.advance(5_000);
    // The threads of the store look for idle tenants about once a second.
    for _ in 0..200 {
        if world.store().usage().cells == 0 {
            break;
        }
        // Somebody may have held the cell when it was looked at: it is looked at again when time passes.
        world.env.fixed.advance(1_000);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!((world.store().usage().cells, world.store().usage().shard_bytes), (0, 0));
    assert_eq!(world.texts("anna", "crate").len(), 1);
    assert_eq!(world.store().usage().cells, 1, "a tenant in use stays open");
}

/// A further tenant with a key for its application.
pub(super) fn another(world: &World, number: usize) -> (TenantId, ApiKey) {
    let (id, key) = (TenantId::random(world.env.as_ref()), ApiKey::random(world.env.as_ref()));
    let name = format!("tenant-{number}").parse().unwrap();
    let tenant = Tenant { id: id.clone(), name, created_at: world.env.now() };
    let first = new_key(&key, &id, Role::App);
    let made = world.act::<action::ManageTenants, _>(&world.keys.admin, None, |pass| {
        on(world.store().create_tenant(pass, tenant, first))
    });
    made.unwrap();
    (id, key)
}

#[test]
fn r_025_many_tenants_of_one_instance_stay_apart_each_in_a_file_of_its_own() {
    let mut world = World::with(Options { cells_max: 5, ..options() });
    let tenants: Vec<(TenantId, ApiKey)> = (0..40).map(|number| another(&world, number)).collect();
    let texts = |world: &World, key: &ApiKey| -> Vec<String> {
        let found = world.act::<action::Recall, _>(key, Some("anna"), |pass| {
            on(world.store().recall(pass, &world.ask("the shared word", None)))
        });
        found.unwrap().candidates.iter().map(|candidate| text_of(&candidate.record)).collect()
    };
    for (number, (_, key)) in tenants.iter().enumerate() {
        let text = format!("the shared word of number {number}");
        let write = Write::Remember(world.new_memory(note(&text)));
        let receipt = world.act::<action::Correct, _>(key, Some("anna"), |pass| {
            on(world.store().commit(Batch::writes(pass, vec![write], None, world.env.now())))
        });
        let _ = receipt.unwrap();
    }
    for round in 0..2 {
        for (number, (_, key)) in tenants.iter().enumerate() {
            assert_eq!(texts(&world, key), [format!("the shared word of number {number}")], "round {round}");
            assert!(world.store().usage().cells <= 6, "{:?}", world.store().usage());
        }
        world.reopen().unwrap();
    }
    world.close();
    for (id, _) in &tenants {
        let file = rusqlite::Connection::open(world.root().join("tenants").join(id.as_str()).join("cell.db"));
        let rows: u32 =
            file.unwrap().query_row("SELECT count(*) FROM memories", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
        let others: Vec<Vec<u8>> =
            tenants.iter().filter(|(other, _)| other != id).map(|(other, _)| other.as_str().into()).collect();
        let found = holding(&world.root().join("tenants").join(id.as_str()), &others);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn few_cells_may_be_open_and_all_are_served() {
    let world = World::with(Options { cells_max: 1, shard_bytes_max: 1, ..options() });
    for number in 0..5 {
        world.remember("anna", note(&format!("fact {number}"))).unwrap();
        assert!(!world.texts("anna", "fact").is_empty());
    }
    assert!(world.store().usage().cells <= 2, "{:?}", world.store().usage());
}
