//! The formats of the ledger: canonical JSON, signed notes, checkpoints, proofs, policies, exports, and the
//! header that names a trace. All of them are read by auditors from files that anybody could have written.

use merkwelt_ledger::canonical::{self, DEPTH_MAX, Reason, parse_canonical, parse_strict};
use merkwelt_ledger::export::{Header, Item, Reader, Writer};
use merkwelt_ledger::tree::Frontier;
use merkwelt_ledger::{
    Checkpoint, Hash, Policy, Proof, SignedCheckpoint, SignedNote, Signer, Trace, Trust, Value, VerifierKey,
    verify_export,
};

const ORIGIN: &str = "fuzz.example/tenant/1";

fn signer() -> Signer {
    Signer::from_seed(ORIGIN, &[7; 32]).unwrap()
}

/// A strict text has one meaning, one canonical form, and means the same to another reader of JSON.
pub(crate) fn json(bytes: &[u8]) {
    let elsewhere = serde_json::from_slice::<serde_json::Value>(bytes);
    match parse_strict(bytes) {
        Ok(value) => {
            let canonical = value.to_canonical();
            assert!(canonical.len() <= bytes.len(), "the shortest form is longer");
            assert_eq!(
                parse_strict(&canonical).as_ref(),
                Ok(&value),
                "the canonical form means something else"
            );
            assert_eq!(parse_canonical(&canonical), Ok(Some(value.clone())));
            assert_eq!(parse_canonical(bytes).unwrap().is_some(), canonical == bytes);
            assert_eq!(plain(&value, 0), elsewhere.expect("another reader refuses it"));
        }
        Err(canonical::Error { reason, offset }) => {
            assert!(offset <= bytes.len());
            // Whatever is no JSON at all is no JSON for others either; the rest is our own strictness.
            let own = [
                Reason::DuplicateKey,
                Reason::NotInteger,
                Reason::IntegerTooLarge,
                Reason::Noncharacter,
                Reason::Null,
                Reason::TooDeep,
            ];
            assert!(own.contains(&reason) || elsewhere.is_err(), "{reason} is accepted elsewhere");
        }
    }
}

fn plain(value: &Value, depth: usize) -> serde_json::Value {
    assert!(depth <= DEPTH_MAX);
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => value.get().into(),
        Value::List(items) => items.iter().map(|item| plain(item, depth + 1)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), plain(value, depth + 1))).collect()
        }
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A note that is read is written again byte by byte, and is signed by nobody whose key it does not bear.
pub(crate) fn note(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(key) = VerifierKey::parse(text) {
        assert_eq!(key.to_string(), text);
    }
    let signer = signer();
    if let Ok(mut note) = SignedNote::parse(text) {
        assert_eq!(note.to_string(), text);
        assert!(note.text().ends_with('\n'));
        let before = note.verify([signer.verifier_key()]);
        signer.cosign(&mut note);
        // A false signature that bears our name is not healed by a true one beside it.
        let was_false = before == Err(merkwelt_ledger::note::Error::BadSignature);
        assert_eq!(note.verify([signer.verifier_key()]).is_err(), was_false);
    }
    if let Ok(note) = signer.sign(text) {
        let read = SignedNote::parse(&note.to_string()).expect("a signed text is a note");
        assert_eq!(read, note);
        assert!(read.verify([signer.verifier_key()]).is_ok());
    }
}

/// A checkpoint that is read is written again byte by byte.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(signed) = SignedCheckpoint::parse(text) {
        assert_eq!(signed.to_string(), text);
        assert_eq!(signed.note().text(), signed.checkpoint().to_string());
    }
    if let Ok(checkpoint) = Checkpoint::parse(text) {
        assert_eq!(checkpoint.to_string(), text);
        let again = Checkpoint::new(checkpoint.origin(), checkpoint.size(), checkpoint.root());
        assert_eq!(again, Ok(checkpoint));
    }
}

/// A proof that is read is written again byte by byte, and proves nothing to whom trusts another log.
pub(crate) fn proof(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(proof) = Proof::parse(text) else { return };
    assert_eq!(proof.to_string(), text);
    let stranger = VerifierKey::new(ORIGIN, [9; 32]).unwrap();
    assert!(proof.verify(b"leaf", &Policy::of_keys(vec![stranger])).is_err());
    // The path may lead somewhere else, but never to a position outside of the tree.
    let own = Policy::of_keys(vec![signer().verifier_key().clone()]);
    if proof.verify(b"leaf", &own).is_ok() {
        assert!(proof.index() < proof.checkpoint().checkpoint().size());
    }
}

/// A policy that is read says the same after it was written, and trusts each key once.
pub(crate) fn policy(bytes: &[u8]) {
    let Ok(policy) = Policy::parse(bytes) else { return };
    let written = policy.to_string();
    assert_eq!(Policy::parse(written.as_bytes()), Ok(policy.clone()));
    let mut keys: Vec<_> = policy.logs().iter().map(VerifierKey::public).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), policy.logs().len());
}

/// A log that verifies is written again byte by byte, and no byte of it can change. Files that begin with `+`
/// stand for the entries of a log that is signed here, so that the checks of entries are reached.
pub(crate) fn export(bytes: &[u8]) {
    let own = signer();
    let file = match bytes.split_first() {
        Some((b'+', entries)) => signed(entries, &own),
        _ => bytes.to_vec(),
    };
    let outcome = verify_export(file.as_slice(), None, None);
    assert_eq!(outcome, verify_export(file.as_slice(), None, None), "two verifications differ");
    let Ok(report) = outcome else { return };
    assert_eq!(rewritten(&file), file);
    assert_eq!(report.by_type.values().sum::<u64>(), report.size);
    assert!(report.exceptions.len() as u64 <= report.n_exceptions);
    assert!(report.span.is_none_or(|(first, last)| first <= last));
    let pinned = verify_export(file.as_slice(), Some(&report.key), None).expect("its own key is no stranger");
    assert_eq!(pinned.trust, Trust::PinnedKey);
    assert_eq!((pinned.root, pinned.size), (report.root, report.size));
    let at = file.iter().map(|byte| usize::from(*byte)).sum::<usize>() % file.len();
    let mut changed = file.clone();
    changed[at] ^= 1;
    assert!(verify_export(changed.as_slice(), Some(&report.key), None).is_err(), "byte {at} may change");
}

/// A log whose entries are these lines, signed properly whatever they hold.
fn signed(entries: &[u8], signer: &Signer) -> Vec<u8> {
    let header = Header { origin: ORIGIN.to_owned(), key: signer.verifier_key().clone() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let mut frontier = Frontier::empty();
    for (index, leaf) in (0..).zip(entries.split(|byte| *byte == b'\n')) {
        writer.entry(index, leaf).unwrap();
        frontier.push(Hash::of_leaf(leaf)).unwrap();
    }
    let checkpoint = Checkpoint::new(ORIGIN, frontier.size(), frontier.root()).unwrap();
    writer.finish(&SignedCheckpoint::sign(checkpoint, signer).unwrap()).unwrap()
}

fn rewritten(file: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(file).unwrap();
    let mut writer = Writer::new(Vec::new(), reader.header()).unwrap();
    loop {
        match reader.read().unwrap() {
            Item::Entry { index, leaf } => writer.entry(index, &leaf).unwrap(),
            Item::Checkpoint(signed) => return writer.finish(&signed).unwrap(),
        }
    }
}

/// The header `traceparent` is read as the W3C recommendation says and not otherwise.
pub(crate) fn trace(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let read = Trace::from_traceparent(text);
    assert_eq!(read.is_some(), is_traceparent(text), "{text:?}");
    if let Some(trace) = read {
        let (id, span) = (trace.trace_id().to_string(), trace.span_id().to_string());
        assert_eq!(text.get(3..35), Some(id.as_str()));
        assert_eq!(Trace::from_traceparent(&format!("00-{id}-{span}-01")), Some(trace));
    }
}

/// The recommendation's own words, position by position.
fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |from: usize, to: usize| {
        bytes.get(from..to).is_some_and(|part| part.iter().all(|b| b"0123456789abcdef".contains(b)))
    };
    let dash = |at: usize| bytes.get(at) == Some(&b'-');
    let not_zero = |from: usize, to: usize| bytes[from..to].iter().any(|b| *b != b'0');
    let shape = hex(0, 2) && dash(2) && hex(3, 35) && dash(35) && hex(36, 52) && dash(52) && hex(53, 55);
    let end = match bytes.get(55) {
        None => true,
        Some(next) => *next == b'-' && !text.starts_with("00"),
    };
    shape && end && !text.starts_with("ff") && not_zero(3, 35) && not_zero(36, 52)
}
