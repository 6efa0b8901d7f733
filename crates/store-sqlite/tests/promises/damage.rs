//! Single bits changed on the disk: what the examination finds, and that what it does not find changes nothing
//! that anybody relies on.

use std::collections::BTreeSet;
use std::fs;

use merkwelt_store_sqlite::Sqlite;

use super::world::{World, master, note, options};

/// Columns that no checksum covers: times and small numbers. Content, owners, standing, keys and evidence are not
/// among them.
const UNCOVERED: [&str; 14] = [
    "memories.kind",
    "memories.author",
    "memories.valid_from",
    "memories.expires_at",
    "memories.no_expiry",
    "memories.written_at",
    "memories.written_by",
    "memories.tokens",
    "turns.at",
    "turns.expires_at",
    "turns.tokens",
    "turns.speaker",
    "conversations.opened_at",
    "conversations.keep_days",
];

/// Every value of every table, with the name of its column.
fn values(path: &std::path::Path) -> Option<BTreeSet<String>> {
    let db = rusqlite::Connection::open(path).ok()?;
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .and_then(|mut found| found.query_map([], |row| row.get(0))?.collect())
        .ok()?;
    let mut values = BTreeSet::new();
    for table in tables {
        let mut statement = db.prepare(&format!("SELECT * FROM {table}")).ok()?;
        let columns: Vec<String> = statement.column_names().map(ToOwned::to_owned).collect();
        let mut rows = statement.query([]).ok()?;
        let mut number = 0;
        while let Some(row) = rows.next().ok()? {
            number += 1;
            for (at, column) in columns.iter().enumerate() {
                values.insert(format!("{table}.{column} {number} {:?}", row.get_ref(at).ok()?));
            }
        }
    }
    Some(values)
}

#[test]
fn a_changed_bit_is_found_or_changes_nothing_that_counts() {
    let mut world = World::new();
    for number in 0..30 {
        world.remember("anna", note(&format!("fact number {number}"))).unwrap();
    }
    let conversation = world.open_conversation("anna");
    let _ = world.say("anna", &conversation, "hello there").unwrap();
    world.close();
    let path = world.cell().join("cell.db");
    let (whole, original) = (fs::read(&path).unwrap(), values(&path).unwrap());
    let store = Sqlite::open(world.root(), &master(), world.env.clone(), options()).unwrap();
    let problems: Vec<_> = store.examine().unwrap().into_iter().filter_map(|found| found.problem).collect();
    assert!(problems.is_empty(), "{problems:?}");
    drop(store);
    let (mut n_found, mut silent) = (0, BTreeSet::new());
    for number in 0..1500_usize {
        // A stride that meets every part of the pages and every bit.
        let at = (number * 7919 * 31) % whole.len();
        if whole[at] == 0 {
            continue;
        }
        let mut changed = whole.clone();
        changed[at] ^= 1 << (number % 8);
        fs::write(&path, &changed).unwrap();
        let found = Sqlite::open(world.root(), &master(), world.env.clone(), options())
            .map_or(true, |store| store.examine().unwrap().iter().any(|found| found.problem.is_some()));
        if found {
            n_found += 1;
            continue;
        }
        fs::write(&path, &changed).unwrap();
        let now = values(&path).unwrap_or_default();
        let differing = original.symmetric_difference(&now);
        silent.extend(differing.map(|value| value.split(' ').next().unwrap().to_owned()));
    }
    assert!(n_found > 100, "only {n_found} changes were found");
    assert!(silent.iter().all(|column| UNCOVERED.contains(&column.as_str())), "{silent:?}");
}

#[test]
fn damage_met_by_a_write_is_told_as_damage_whatever_page_it_is() {
    let mut world = World::new();
    for number in 0..40 {
        world.remember("anna", note(&format!("fact number {number}"))).unwrap();
    }
    world.close();
    let path = world.cell().join("cell.db");
    let whole = fs::read(&path).unwrap();
    let mut n_refused = 0;
    for page in 1..whole.len() / PAGE {
        let mut changed = whole.clone();
        changed[page * PAGE..page * PAGE + 8].fill(0xA5);
        fs::write(&path, &changed).unwrap();
        world.reopen().unwrap();
        if let Err(error) = world.remember("anna", note("met on the way")) {
            n_refused += 1;
            let noted = world.store().ailing();
            assert!(noted.iter().any(|ailing| ailing.tenant == world.keys.tenant), "page {page}: {error}");
        }
        world.close();
    }
    assert!(n_refused > 5, "only {n_refused} pages matter to a write");
}

const PAGE: usize = 8192;
