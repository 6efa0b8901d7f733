//! Sources: what an interruption at any step leaves, and what a deletion leaves in the files.

use merkwelt_authz::action;
use merkwelt_domain::memory::{Expiry, NoExpiryReason};
use merkwelt_domain::source::{EvidencePolicy, Region, RegionUnit, Terms};
use merkwelt_domain::{Content, Env as _, FaultPoint, RevisionId, SourceId};
use merkwelt_ledger::commitment::OpeningKey;
use merkwelt_store::query::{KindSet, RecallQuery};
use merkwelt_store::source::{
    NewAudience, NewPassage, NewRevision, NewSource, SourceChange, SourceProbe, SourceReceipt, SourceResidue,
};
use merkwelt_store::{Error, Library as _};

use super::world::{World, holding, on};

const OLD: &str = "Goods may be returned within thirty days.";
const NEW: &str = "Goods may be returned within seven days.";

fn change(world: &World, change: SourceChange) -> Result<SourceReceipt, Error> {
    world.act::<action::ManageSources, _>(&world.keys.app, None, |pass| {
        on(world.store().change_source(pass, change, world.env.now()))
    })
}

pub(super) fn register(world: &World) -> SourceId {
    let id = SourceId::random(&*world.env);
    let terms = Terms {
        expiry: Expiry::Never(NoExpiryReason::CompanyKnowledge),
        evidence: EvidencePolicy::DigestWithVersion,
        purpose: None,
    };
    let new = NewSource {
        id: id.clone(),
        title: "Returns".parse().unwrap(),
        origin: None,
        audience: NewAudience::Tenant,
        terms,
    };
    change(world, SourceChange::Register(new)).unwrap();
    id
}

pub(super) fn stage(world: &World, source: &SourceId, text: &str) -> RevisionId {
    let id = RevisionId::random(&*world.env);
    let passage = NewPassage {
        text: Content::question(text, 1000).unwrap(),
        headings: Vec::new(),
        region: Region::new(None, RegionUnit::Paragraph, (1, 1), None).unwrap(),
        digest: [7; 32],
        tokens: 9,
        vector: None,
    };
    let new = NewRevision {
        id: id.clone(),
        source: source.clone(),
        digest: [8; 32],
        media: "text/plain".to_owned(),
        valid_from: world.env.now(),
        passages: vec![passage],
        opening: OpeningKey::from_bytes([9; 32]),
    };
    change(world, SourceChange::Stage(new)).unwrap();
    id
}

pub(super) fn publish(
    world: &World,
    source: &SourceId,
    revision: RevisionId,
) -> Result<SourceReceipt, Error> {
    change(world, SourceChange::Publish { source: source.clone(), revision })
}

/// What a person is shown, or nothing.
fn shown(world: &World) -> Vec<String> {
    let query = RecallQuery { documents: true, kinds: KindSet::of([]), ..world.ask("returned days", None) };
    let found = world.recall("anna", &query).unwrap();
    found.candidates.iter().map(|candidate| super::world::text_of(&candidate.record)).collect()
}

fn residue(world: &World, source: &SourceId, probes: &[SourceProbe]) -> SourceResidue {
    world
        .act::<action::ManageSources, _>(&world.keys.app, None, |pass| {
            on(world.store().source_residue(pass, source, probes, world.env.now()))
        })
        .unwrap()
}

#[test]
fn r_051_a_replacement_interrupted_anywhere_leaves_the_old_or_the_new_and_nothing_between() {
    for point in FaultPoint::ALL {
        let mut world = World::new();
        let source = register(&world);
        let old = stage(&world, &source, OLD);
        publish(&world, &source, old).unwrap();
        let new = stage(&world, &source, NEW);
        world.env.fail_at(Some(point));
        let told = publish(&world, &source, new.clone());
        world.env.fail_at(None);
        let before = shown(&world);
        world.reopen().unwrap();
        let after = shown(&world);
        assert_eq!(before, after, "{}: a restart changed what is current", point.name());
        assert!(after == [OLD] || after == [NEW], "{}: {after:?}", point.name());
        if told.is_ok() {
            assert_eq!(after, [NEW], "{}: acknowledged and lost", point.name());
        }
        // Whatever came of it, it can be repeated.
        publish(&world, &source, new).unwrap();
        assert_eq!(shown(&world), [NEW], "{}", point.name());
    }
}

#[test]
fn r_052_a_deletion_interrupted_anywhere_is_undone_or_finished_at_the_next_start() {
    for point in FaultPoint::ALL {
        let mut world = World::new();
        let source = register(&world);
        let revision = stage(&world, &source, OLD);
        publish(&world, &source, revision).unwrap();
        let probes = [SourceProbe { text: Content::question(OLD, 1000).unwrap(), vector: None }];
        world.env.fail_at(Some(point));
        let told = change(&world, SourceChange::Delete { source: source.clone() });
        world.env.fail_at(None);
        world.reopen().unwrap();
        let whole = shown(&world) == [OLD];
        assert_ne!(whole, residue(&world, &source, &probes).is_none(), "{}: half deleted", point.name());
        assert!(told.is_err() || !whole, "{}: acknowledged and not deleted", point.name());
        change(&world, SourceChange::Delete { source: source.clone() }).unwrap();
        assert!(residue(&world, &source, &probes).is_none() && shown(&world).is_empty());
    }
}

#[test]
fn r_052_nothing_of_a_deleted_source_is_left_in_any_file() {
    let mut world = World::new();
    let source = register(&world);
    let revision = stage(&world, &source, OLD);
    publish(&world, &source, revision).unwrap();
    let marks = marks(&world, &source);
    assert!(marks.len() == 5 && holding(world.root(), &marks).len() >= marks.len(), "positive control");
    change(&world, SourceChange::Delete { source: source.clone() }).unwrap();
    assert_eq!(holding(world.root(), &marks), Vec::<String>::new());
    assert_eq!(holding(world.root(), &[b"returned within".to_vec()]), Vec::<String>::new());
    world.reopen().unwrap();
    assert_eq!(holding(world.root(), &marks), Vec::<String>::new());
}

/// The exact bytes that stand for the source in the files.
fn marks(world: &World, source: &SourceId) -> Vec<Vec<u8>> {
    let cell = rusqlite::Connection::open(world.cell().join("cell.db")).unwrap();
    let keys = rusqlite::Connection::open(world.cell().join("keys.db")).unwrap();
    let one = |file: &rusqlite::Connection, sql: &str| -> Vec<u8> {
        file.query_row(sql, [source.as_str()], |row| row.get(0)).unwrap()
    };
    vec![
        one(&cell, "SELECT substr(body, 1, 40) FROM passages WHERE source = ?1"),
        one(&cell, "SELECT substr(terms, 1, 40) FROM passages WHERE source = ?1"),
        one(&cell, "SELECT body FROM sources WHERE id = ?1"),
        one(&cell, "SELECT opening FROM revisions WHERE source = ?1"),
        one(&keys, "SELECT wrapped FROM keys WHERE owner = ?1"),
    ]
}
