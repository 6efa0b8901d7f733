//! What lies on the disk: ciphertext, ids, times and small numbers.

use std::os::unix::fs::PermissionsExt as _;

use merkwelt_authz::action;
use merkwelt_store::change::{NewOwner, Write};
use merkwelt_store::{Directory as _, DirectoryChange};
use serde_json::json;

use super::world::{Note, World, files, holding, note, on};

const WHO: &str = "anna.muster@example.org";
const VECTOR: [f32; 4] = [0.123_456, -0.654_321, 0.777_777, 0.111_111];

fn bytes_of(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn needles() -> Vec<Vec<u8>> {
    let texts =
        ["marzipan-statement", WHO, "eta:order-4711", "metadata-marker", "nougat-turn", "praline-group"];
    texts.iter().map(|text| text.as_bytes().to_vec()).chain([bytes_of(&VECTOR)]).collect()
}

fn filled() -> World {
    let world = World::new();
    world
        .act::<action::ManageDirectory, _>(&world.keys.tenant_admin, None, |pass| {
            let id = merkwelt_domain::GroupId::random(world.env.as_ref());
            let name = "circle".parse().unwrap();
            on(world.store().change(pass, DirectoryChange::CreateGroup { id, name }, pass_time(&world)))
        })
        .unwrap();
    world
        .act::<action::ManageDirectory, _>(&world.keys.tenant_admin, None, |pass| {
            let (group, subject) = ("circle".parse().unwrap(), WHO.parse().unwrap());
            on(world.store().change(pass, DirectoryChange::AddMember { group, subject }, pass_time(&world)))
        })
        .unwrap();
    let conversation = world.open_conversation(WHO);
    world
        .remember(
            WHO,
            Note {
                slot: Some("eta:order-4711"),
                metadata: json!({ "customer": "metadata-marker" }),
                vector: Some(VECTOR.to_vec()),
                conversation: Some(conversation.clone()),
                ..note("the marzipan-statement stands")
            },
        )
        .unwrap();
    let group = NewOwner::Group("circle".parse().unwrap());
    world.remember(WHO, Note { owner: group, ..note("the praline-group knows") }).unwrap();
    let turn = world.new_turn(&conversation, "a nougat-turn was said", Some(VECTOR.to_vec()));
    let _ = world.commit(WHO, vec![Write::Append(turn)]).unwrap();
    world
}

fn pass_time(world: &World) -> merkwelt_domain::Timestamp {
    merkwelt_domain::Env::now(world.env.as_ref())
}

#[test]
fn r_097_no_word_lies_in_any_file_while_it_is_open_or_after() {
    let mut world = filled();
    assert_eq!(world.texts(WHO, "marzipan-statement")[0], "the marzipan-statement stands");
    assert!(
        files(world.root()).iter().any(|(path, bytes)| path.ends_with("cell.db-wal") && !bytes.is_empty())
    );
    assert_eq!(holding(world.root(), &needles()), Vec::<String>::new());
    world.close();
    assert_eq!(holding(world.root(), &needles()), Vec::<String>::new());
}

#[test]
fn the_byte_scan_finds_what_is_there() {
    let world = filled();
    // Positive control: group names are in the clear, and so is what a stray file holds.
    assert!(!holding(world.root(), &[b"circle".to_vec()]).is_empty());
    let mut stray = b"xx".to_vec();
    stray.extend(bytes_of(&VECTOR));
    std::fs::write(world.root().join("stray"), stray).unwrap();
    assert_eq!(holding(world.root(), &needles()).len(), 1);
}

#[test]
fn folders_and_files_are_for_their_owner_only() {
    let world = filled();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in [world.root(), &world.root().join("tenants"), &world.cell()] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    let files = files(world.root());
    assert!(files.len() >= 8, "{}", files.len());
    for (path, _) in files {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn i_005_a_ciphertext_moved_to_another_row_is_refused() {
    let mut world = filled();
    world.remember(WHO, note("a second statement")).unwrap();
    world.close();
    let file = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    let swapped = file.execute(
        "UPDATE memories SET body = (SELECT body FROM memories AS other WHERE other.seq <> memories.seq
           AND other.owner = memories.owner LIMIT 1) WHERE owner_kind = 0",
        [],
    );
    assert_eq!(swapped, Ok(2));
    drop(file);
    world.reopen().unwrap();
    let query = world.ask("statement", None);
    assert_eq!(world.recall(WHO, &query).unwrap_err(), merkwelt_store::Error::Damaged);
}
