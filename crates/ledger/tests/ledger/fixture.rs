//! A small log with fixed keys, times and ids, and the way to the published vectors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use merkwelt_ledger::entry::{Change, ChangeType, denial, genesis};
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::read::record_statement;
use merkwelt_ledger::*;

pub(crate) const ORIGIN: &str = "test.example/tenant/t-7f3a";
pub(crate) const START_MS: i64 = 1_790_000_000_000;

pub(crate) fn token(text: &str) -> Token {
    Token::parse(text).unwrap()
}

pub(crate) fn int(value: i64) -> Integer {
    Integer::new(value).unwrap()
}

pub(crate) fn at(ms: i64) -> UtcMillis {
    UtcMillis::from_unix_ms(START_MS + ms).unwrap()
}

pub(crate) fn signer() -> Signer {
    Signer::from_seed(ORIGIN, &[7; 32]).unwrap()
}

pub(crate) fn tenant() -> Token {
    token("t-7f3a")
}

pub(crate) fn actor() -> Actor {
    Actor::Key(token("key-21"))
}

/// Different for every number, and not guessable from the ledger.
pub(crate) fn opening_key(number: u8) -> OpeningKey {
    let mut bytes = [0xa5; 32];
    bytes[0] = number;
    bytes[31] = number.wrapping_mul(31);
    OpeningKey::from_bytes(bytes)
}

pub(crate) fn commit(number: u8, label: &str, content: &[u8]) -> Commitment {
    opening_key(number).commit(&token(label), content).0
}

/// A read of one memory of a subject; `number` makes ids and keys fresh.
pub(crate) fn read(number: u8, subject: &SubjectKey, memory: &str, content: &[u8]) -> ReadEntry {
    let read_id = token(&format!("r-{:016x}", u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let statement = record_statement(&token(memory), int(3), at(-5), content);
    ReadEntry {
        kind: ReadKind::Retrieval,
        system: token("merkwelt"),
        index: Versioned { id: token("shard"), version: token("build-12") },
        request: commit(number, "request", content),
        top_k: 8,
        subject_tag: Some(subject.tag(&read_id)),
        purpose: token("support"),
        boundary: Versioned { id: token("eu"), version: token("4") },
        as_of: None,
        trace: None,
        content_kept: token("cell"),
        redaction: None,
        result: commit(number.wrapping_add(64), "result", content),
        tokens: 12,
        records: vec![
            RecordRef::personal(
                RecordLabel::Memory,
                subject.record_tag(&read_id, &token(memory)),
                commit(number.wrapping_add(128), "record", &statement),
            )
            .with_score_micro(int(i64::from(number) * 1000)),
        ],
        run_id: None,
        call_id: None,
        read_id,
    }
}

pub(crate) fn written(number: u8, subject: &SubjectKey, memory: &str, content: &[u8]) -> Draft {
    let event_id = token(&format!("w-{:016x}", u64::from(number).wrapping_mul(0xd1b5_4a32_d192_ed03)));
    Change {
        kind: ChangeType::MemoryWritten,
        subject_tag: Some(subject.tag(&event_id)),
        record_tag: Some(subject.record_tag(&event_id, &token(memory))),
        commitment: Some(commit(number.wrapping_add(32), "record", content)),
        purpose: Some(token("support")),
        event_id,
    }
    .into_draft(tenant(), actor())
}

/// Five entries: genesis, a memory, two reads of it, a denial.
pub(crate) fn drafts() -> Vec<Draft> {
    let subject = SubjectKey::from_bytes([3; 32]);
    let mut drafts = vec![genesis(tenant(), actor(), signer().verifier_key().clone(), None)];
    drafts.push(written(1, &subject, "m-1", b"prefers tea"));
    drafts.extend(read(2, &subject, "m-1", b"prefers tea").into_drafts(tenant(), actor()).unwrap());
    drafts.extend(read(3, &subject, "m-1", b"prefers tea").into_drafts(tenant(), actor()).unwrap());
    drafts.push(denial(tenant(), actor(), token("recall"), token("not-a-member")));
    drafts
}

/// Appends each draft at its own second.
pub(crate) fn log_of(drafts: &[Draft]) -> (Head, Vec<Leaf>) {
    let mut head = Head::empty();
    let mut leaves = Vec::new();
    for (second, draft) in (0..).zip(drafts) {
        let appended = append(&head, std::slice::from_ref(draft), at(second * 1000)).unwrap();
        head = appended.head;
        leaves.extend(appended.leaves);
    }
    (head, leaves)
}

/// An export of any bytes as entries, properly signed: what a dishonest operator could hand over.
pub(crate) fn export_bytes<L: AsRef<[u8]>>(leaves: &[L], signer: &Signer) -> Vec<u8> {
    let mut frontier = tree::Frontier::empty();
    let header =
        Header { origin: signer.verifier_key().name().to_owned(), key: signer.verifier_key().clone() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for (index, leaf) in (0..).zip(leaves) {
        writer.entry(index, leaf.as_ref()).unwrap();
        frontier.push(Hash::of_leaf(leaf.as_ref())).unwrap();
    }
    writer.finish(&checkpoint(frontier.size(), frontier.root(), signer)).unwrap()
}

pub(crate) fn export(drafts: &[Draft]) -> Vec<u8> {
    let leaves: Vec<_> = log_of(drafts).1.into_iter().map(|leaf| leaf.bytes).collect();
    export_bytes(&leaves, &signer())
}

pub(crate) fn checkpoint(size: u64, root: Hash, signer: &Signer) -> SignedCheckpoint {
    let checkpoint = Checkpoint::new(signer.verifier_key().name(), size, root).unwrap();
    SignedCheckpoint::sign(checkpoint, signer).unwrap()
}

pub(crate) fn verify(export: &[u8]) -> Result<Report, Failure> {
    verify_export(export, Some(signer().verifier_key()), None)
}

/// Every string in a value with the path to it.
pub(crate) fn strings(value: &Value) -> BTreeMap<String, String> {
    fn walk(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
        match value {
            Value::Text(text) => {
                into.insert(path.to_owned(), text.clone());
            }
            Value::Int(number) => {
                into.insert(path.to_owned(), number.get().to_string());
            }
            Value::Bool(_) => {}
            Value::List(items) => {
                items.iter().enumerate().for_each(|(i, item)| walk(&format!("{path}[{i}]"), item, into));
            }
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| walk(&format!("{path}.{name}"), member, into));
            }
        }
    }
    let mut into = BTreeMap::new();
    walk("", value, &mut into);
    into
}

/// A published vector file, or `None` with a note when the vectors are not at hand.
pub(crate) fn vectors(name: &str) -> Option<PathBuf> {
    let from_env = std::env::var_os("MERKWELT_SHARED").map(PathBuf::from);
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("shared"));
    let found = from_env.into_iter().chain(above).map(|root| root.join("data/provenance").join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {name} is not at hand (set MERKWELT_SHARED)");
    }
    found
}

/// The text of a vector file, unpacked if its name ends in `.xz`.
pub(crate) fn vector_text(name: &str) -> Option<String> {
    let path = vectors(name)?;
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Some(std::fs::read_to_string(path).unwrap());
    }
    let Ok(output) = Command::new("xz").arg("-dc").arg(path).output() else {
        println!("skipped: {name} needs the program xz");
        return None;
    };
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}
