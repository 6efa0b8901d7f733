//! A shard that was moved on by announced changes holds what one built anew from the records holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use merkwelt_authz::{Pass, Request, action, authenticate, authorize, class};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::{
    Author, Expiry, Kind, Lifetimes, Metadata, NoExpiryReason, Particulars, Statement,
};
use merkwelt_domain::source::{EvidencePolicy, PassageId, Region, RegionUnit, Terms};
use merkwelt_domain::{
    Content, ConversationId, Env as _, MemoryId, Purpose, RevisionId, SourceId, SubjectId, Timestamp,
};
use merkwelt_ledger::commitment::OpeningKey;
use merkwelt_store::change::{Batch, NewMemory, NewOwner, NewTurn, Outcome, Write};
use merkwelt_store::conformance::{START, block, founding};
use merkwelt_store::query::{Fusion, KindSet, ModelId, RecallQuery, TopK, Turns, Vector};
use merkwelt_store::source::{NewAudience, NewPassage, NewRevision, NewSource, SourceChange};
use merkwelt_store::{Library as _, Store as _};
use proptest::prelude::*;

use super::search::search_where;
use super::{Probe, Shard, advance, load, passage_key};
use crate::recall::{dispose, recall};
use crate::snapshot::{Snapshot, State, Viewer};
use crate::{MasterKey, Options, Sqlite, Threads};

#[derive(Debug, Clone)]
enum Op {
    Remember {
        text: u8,
        slot: Option<u8>,
        shared: bool,
        vector: Option<[i8; 4]>,
        origin: bool,
    },
    Retract(u8),
    Open,
    Say(u8),
    DeleteConversation(u8),
    /// Forget what was announced, as a shard that is too far behind does.
    Gap,
}

fn op() -> impl Strategy<Value = Op> {
    let vector = proptest::option::of(any::<[i8; 4]>());
    prop_oneof![
        6 => (0..6u8, proptest::option::of(0..3u8), any::<bool>(), vector, any::<bool>()).prop_map(
            |(text, slot, shared, vector, origin)| Op::Remember { text, slot, shared, vector, origin }
        ),
        2 => any::<u8>().prop_map(Op::Retract),
        1 => Just(Op::Open),
        4 => any::<u8>().prop_map(Op::Say),
        1 => any::<u8>().prop_map(Op::DeleteConversation),
        1 => Just(Op::Gap),
    ]
}

struct Stage {
    env: Arc<FixedEnv>,
    store: Sqlite,
    folder: PathBuf,
    memories: Vec<MemoryId>,
    conversations: Vec<ConversationId>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Stage {
    fn statement(&self, text: u8, slot: Option<u8>) -> Statement {
        let words = ["the delivery is late", "order A-4711", "likes green tea", "Müller prefers mail"];
        let text = words.get(usize::from(text)).copied().unwrap_or("late late late tea");
        let map = serde_json::from_str(r#"{"area":"sales"}"#).unwrap();
        let parts = Particulars {
            slot: slot.map(|slot| format!("slot:{slot}").parse().unwrap()),
            metadata: if slot.is_some() { Metadata::new(map).unwrap() } else { Metadata::default() },
            ..Particulars::default()
        };
        let text = Content::to_keep(text, 1000).unwrap();
        let (lifetimes, now) = (Lifetimes::default(), self.env.now());
        Statement::new(Kind::UserFact, text, Author::Person, parts, &lifetimes, now).unwrap()
    }

    fn write(&self, op: &Op, subject: &SubjectId) -> Option<Write> {
        let now = self.env.now();
        let opening = OpeningKey::from_bytes([1; 32]);
        let pick = |number: u8| self.conversations.get(usize::from(number) % self.conversations.len().max(1));
        Some(match op {
            Op::Remember { text, slot, shared, vector, origin } => Write::Remember(NewMemory {
                id: MemoryId::random(self.env.as_ref()),
                owner: if *shared { NewOwner::Tenant } else { NewOwner::Subject },
                statement: self.statement(*text, *slot),
                at: now,
                conversation: if *origin { self.conversations.last().cloned() } else { None },
                tokens: 4,
                vector: vector.map(|values| Vector {
                    model: ModelId::new("test", "1", 4),
                    values: values.map(f32::from).to_vec(),
                }),
                opening,
            }),
            Op::Retract(number) => {
                let id = self.memories.get(usize::from(*number) % self.memories.len().max(1))?;
                Write::Retract { id: id.clone(), at: now }
            }
            Op::Open => Write::Open(Conversation {
                id: ConversationId::random(self.env.as_ref()),
                owner: subject.clone(),
                retention: Retention::KeptDays(3),
                opened_at: now,
            }),
            Op::Say(number) => Write::Append(NewTurn {
                turn: Turn {
                    conversation: pick(*number)?.clone(),
                    number: 0,
                    speaker: Speaker::Person,
                    text: Content::to_keep(&format!("turn {number} about tea"), 1000).unwrap(),
                    at: now,
                    tokens: 3,
                    expires_at: now.plus_days(3),
                    rests_on: RestsOn::default(),
                    summary: None,
                },
                vector: None,
                opening,
            }),
            Op::DeleteConversation(number) => {
                Write::DeleteConversation { id: pick(*number)?.clone(), at: now }
            }
            Op::Gap => return None,
        })
    }

    fn apply(&mut self, op: &Op, pass: &Pass<'_, class::Write>) {
        self.env.advance(1000);
        let subject = pass.scope().subject().unwrap();
        let Some(write) = self.write(op, subject) else { return };
        let batch = Batch::writes(pass, vec![write], None, self.env.now());
        // A memory that is gone already is refused; that is no matter here.
        let Ok(receipt) = block::on(self.store.commit(batch)) else { return };
        match &receipt.outcomes[0] {
            Outcome::Created { id, .. } => self.memories.push(id.clone()),
            Outcome::Opened { id } => self.conversations.push(id.clone()),
            Outcome::ConversationDeleted { id, .. } => self.conversations.retain(|known| known != id),
            Outcome::Superseded { .. }
            | Outcome::Merged { .. }
            | Outcome::Retracted { .. }
            | Outcome::Appended { .. } => {}
        }
    }
}

fn stage() -> (Stage, Request) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let folder = std::env::temp_dir().join(format!("merkwelt-shard-{}-{number}", std::process::id()));
    let env = Arc::new(FixedEnv::at(START));
    let (founding, keys) = founding(&env);
    let options = Options { threads: Threads::Inline, ..Options::default() };
    let master = MasterKey::from_bytes([7; 32]);
    let store = Sqlite::create(&folder, &master, founding, env.clone(), options).unwrap();
    let caller = block::on(authenticate(&store, &keys.app, env.now())).unwrap();
    let request = Request::new(caller, Some("anna".parse().unwrap()), Purpose::default());
    (Stage { env, store, folder, memories: Vec::new(), conversations: Vec::new() }, request)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i_003_a_shard_moved_by_changes_equals_one_built_anew(ops in proptest::collection::vec(op(), 1..60)) {
        let (mut stage, request) = stage();
        let pass = block::on(authorize::<action::Correct>(&stage.store, &request)).unwrap();
        let cell = stage.store.inner.cell(pass.scope().tenant()).unwrap();
        let compare = || {
            cell.shard.alone(|place| {
                cell.snapshot(|cell, db| {
                    let moved = advance(cell, db, &State::read(db)?, place)?.dump();
                    Ok((moved, load::build(cell, db)?.dump()))
                })
            })
        };
        for (number, op) in ops.iter().enumerate() {
            stage.apply(op, &pass);
            if matches!(op, Op::Gap) {
                cell.shard.forget(u64::MAX);
            }
            if number % 5 == 0 {
                let (moved, built) = compare().unwrap();
                prop_assert_eq!(moved, built);
            }
        }
        let (moved, built) = compare().unwrap();
        prop_assert_eq!(moved, built);
    }
}

#[test]
fn an_unknown_change_makes_a_shard_start_anew() {
    let place = super::ShardPlace::default();
    place.announce(0, 1, Vec::new());
    place.announce(1, 2, Vec::new());
    assert!(place.between(0, 2).is_some());
    assert!(place.between(0, 3).is_none());
    place.withdraw(2);
    assert!(place.between(0, 2).is_none());
    place.announce(1, 2, Vec::new());
    place.forget(1);
    assert!(place.between(1, 2).is_some());
    assert!(place.between(0, 2).is_none());
    assert!(Shard::default().dump().is_empty());
}

/// Makes one change of the register.
fn change(store: &Sqlite, request: &Request, change: SourceChange) {
    let pass = block::on(authorize::<action::ManageSources>(store, request)).unwrap();
    block::on(store.change_source(&pass, change, Timestamp::from_millis(START))).unwrap();
}

/// A source with one passage that is searched.
fn published(stage: &Stage, request: &Request) -> (SourceId, PassageId) {
    let (id, revision) = (SourceId::random(stage.env.as_ref()), RevisionId::random(stage.env.as_ref()));
    let terms = Terms {
        expiry: Expiry::Never(NoExpiryReason::CompanyKnowledge),
        evidence: EvidencePolicy::DigestWithVersion,
        purpose: None,
    };
    let title = "Returns".parse().unwrap();
    let new = NewSource { id: id.clone(), title, origin: None, audience: NewAudience::Tenant, terms };
    change(&stage.store, request, SourceChange::Register(new));
    let passage = NewPassage {
        text: Content::question("Goods may be returned.", 1000).unwrap(),
        headings: Vec::new(),
        region: Region::new(None, RegionUnit::Paragraph, (1, 1), None).unwrap(),
        digest: [7; 32],
        tokens: 9,
        vector: None,
    };
    let new = NewRevision {
        id: revision.clone(),
        source: id.clone(),
        digest: [8; 32],
        media: "text/plain".to_owned(),
        valid_from: stage.env.now(),
        passages: vec![passage],
        opening: OpeningKey::from_bytes([9; 32]),
    };
    change(&stage.store, request, SourceChange::Stage(new));
    let publish = SourceChange::Publish { source: id.clone(), revision: revision.clone() };
    change(&stage.store, request, publish);
    (id, PassageId { revision, number: 1 })
}

#[test]
fn an_index_is_built_and_read_in_a_snapshot_whose_source_is_deleted_meanwhile() {
    let (stage, request) = stage();
    let (source, passage) = published(&stage, &request);
    let pass = block::on(authorize::<action::Recall>(&stage.store, &request)).unwrap();
    let viewer = Viewer::of(&pass);
    let cell = stage.store.inner.cell(pass.scope().tenant()).unwrap();
    let n_before = cell.writer.commits();
    std::thread::scope(|scope| {
        cell.read(&viewer, |snapshot| {
            let delete = SourceChange::Delete { source: source.clone() };
            let (store, request) = (&stage.store, &request);
            scope.spawn(move || change(store, request, delete));
            while cell.writer.commits() == n_before {
                std::thread::yield_now();
            }
            // Time enough for the key to go, if it could.
            for _ in 0..50 {
                if cell.ring.count(source.as_str())? == 0 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let shard = load::build(&cell, snapshot.db)?;
            assert!(shard.holds(&passage_key(&passage.revision, 1)?));
            snapshot.current_passage(&passage).map(|found| assert!(found.is_some()))
        })
        .unwrap();
    });
    assert_eq!(cell.ring.count(source.as_str()), Ok(0), "the key is still there");
    let shard = cell.snapshot(load::build).unwrap();
    assert!(!shard.holds(&passage_key(&passage.revision, 1).unwrap()));
}

/// Stores 2,000 facts with vectors and asks for one of them.
fn filled(stage: &Stage, pass: &Pass<'_, class::Write>) -> RecallQuery {
    let numbers = |seed: u32| {
        (0..384_u32)
            .map(move |at| f32::from(u16::try_from((seed * 7919 + at * 104_729) % 2003).unwrap()) - 1001.0)
    };
    let vector = |seed| Vector { model: ModelId::new("test", "1", 384), values: numbers(seed).collect() };
    for first in (0..2000_u32).step_by(500) {
        let write = |number: u32| {
            let words: Vec<String> = numbers(number).take(12).map(|n| format!("word{n}")).collect();
            let text = Content::to_keep(&format!("{} {number}", words.join(" ")), 1000).unwrap();
            let (lifetimes, now) = (Lifetimes::default(), stage.env.now());
            let parts = Particulars::default();
            Write::Remember(NewMemory {
                id: MemoryId::random(stage.env.as_ref()),
                owner: NewOwner::Subject,
                statement: Statement::new(Kind::UserFact, text, Author::Person, parts, &lifetimes, now)
                    .unwrap(),
                at: now,
                conversation: None,
                tokens: 20,
                vector: Some(vector(number)),
                opening: OpeningKey::from_bytes([1; 32]),
            })
        };
        let writes = (first..first + 500).map(write).collect();
        let _ = block::on(stage.store.commit(Batch::writes(pass, writes, None, stage.env.now()))).unwrap();
    }
    RecallQuery {
        question: Content::question("word17 word-400 word3", 1000).unwrap(),
        vector: Some((vector(77), Fusion { floor: 0.0, span: 1.0 })),
        k: TopK::new(10).unwrap(),
        kinds: KindSet::all().rankable(),
        turns: Turns::All,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        now: stage.env.now(),
    }
}

/// The same search with and without its checks: generation of grants, subject, groups, and per row scope, kind,
/// validity and standing. Without them exists only here. Figures stand in `docs/benchmarks.md`:
/// `cargo test --release -p merkwelt-store-sqlite --lib -- --ignored --nocapture cost_a_search`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "a measurement needs the clock")]
fn what_freshness_and_scope_cost_a_search() {
    let (stage, request) = stage();
    let pass = block::on(authorize::<action::Correct>(&stage.store, &request)).unwrap();
    let query = filled(&stage, &pass);
    let cell = stage.store.inner.cell(pass.scope().tenant()).unwrap();
    let viewer = Viewer::of(&pass);
    let probe = query.vector.as_ref().and_then(|(vector, _)| Probe::of(&vector.values));
    let state = cell.snapshot(|_, db| State::read(db)).unwrap();
    let with = || recall(&cell, &viewer, &query).unwrap();
    let without = || {
        let found = cell.shard.ask(|shard| {
            cell.snapshot(|cell, db| {
                let snapshot = Snapshot { cell, db, viewer: &viewer, state: state.clone() };
                let found = search_where(shard, &query, probe.as_ref(), |_| Some(true), |_, _| true)?;
                dispose(&snapshot, found, &query).map(Some)
            })
        });
        found.unwrap().unwrap()
    };
    assert_eq!(with().candidates.len(), 10);
    assert_eq!(with().considered, without().considered);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..4000 {
        let started = std::time::Instant::now();
        let found = if round % 2 == 0 { with() } else { without() };
        times[round % 2].push(started.elapsed());
        assert_eq!(found.candidates.len(), 10);
    }
    let [with, without] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    println!("p50 with {with:.1} us, without {without:.1} us: {:.1} % more", (with / without - 1.0) * 100.0);
}
