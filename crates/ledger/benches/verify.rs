//! How many entries a second the offline verifier checks: `cargo bench -p merkwelt-ledger`. Goal: 10⁵ in 10 s.
#![expect(clippy::print_stdout, reason = "a measurement prints its figure")]
#![expect(clippy::disallowed_methods, reason = "a measurement needs the clock")]

use std::error::Error;
use std::time::Instant;

use merkwelt_ledger::entry::genesis;
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::read::record_statement;
use merkwelt_ledger::{
    Actor, Checkpoint, Draft, Head, Integer, OpeningKey, ReadEntry, ReadKind, RecordLabel, RecordRef,
    SignedCheckpoint, Signer, SubjectKey, Token, UtcMillis, Versioned, append, verify_export,
};

const N_ENTRIES: u32 = 100_000;
const ORIGIN: &str = "bench.example/tenant/t-1";

fn main() -> Result<(), Box<dyn Error>> {
    let signer = Signer::from_seed(ORIGIN, &[1; 32])?;
    let started = Instant::now();
    let export = written(&signer)?;
    let writing = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let report = verify_export(export.as_slice(), Some(signer.verifier_key()), None)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{} entries, {} bytes, {} exceptions", report.size, export.len(), report.n_exceptions);
    println!("written in {writing:.2} s: {:.0} entries/s", f64::from(N_ENTRIES) / writing);
    println!("verified in {seconds:.2} s: {:.0} entries/s", f64::from(N_ENTRIES) / seconds);
    Ok(())
}

/// An export of reads with three records each, one batch per read.
fn written(signer: &Signer) -> Result<Vec<u8>, Box<dyn Error>> {
    let tenant = Token::parse("t-1")?;
    let actor = Actor::Key(Token::parse("key-1")?);
    let mut out =
        Writer::new(Vec::new(), &Header { origin: ORIGIN.to_owned(), key: signer.verifier_key().clone() })?;
    let first = genesis(tenant.clone(), actor.clone(), signer.verifier_key().clone(), None);
    let mut head = Head::empty();
    let mut batch = vec![first];
    for number in 1..=N_ENTRIES {
        let appended = append(&head, &batch, UtcMillis::from_unix_ms(i64::from(number))?)?;
        for leaf in &appended.leaves {
            out.entry(leaf.index, &leaf.bytes)?;
        }
        head = appended.head;
        batch = read(number, &tenant, &actor)?;
    }
    let checkpoint = Checkpoint::new(ORIGIN, head.size(), head.root())?;
    Ok(out.finish(&SignedCheckpoint::sign(checkpoint, signer)?)?)
}

fn read(number: u32, tenant: &Token, actor: &Actor) -> Result<Vec<Draft>, Box<dyn Error>> {
    let subject = SubjectKey::from_bytes([2; 32]);
    let read_id = Token::parse(&format!("r-{number:032x}"))?;
    let label = Token::parse("record")?;
    let commit = |content: &[u8]| OpeningKey::from_bytes([3; 32]).commit(&label, content).0;
    let mut records = Vec::new();
    for memory in ["m-1", "m-2", "m-3"] {
        let memory = Token::parse(memory)?;
        let statement = record_statement(&memory, Integer::from(1), UtcMillis::EPOCH, b"prefers tea");
        let tag = subject.record_tag(&read_id, &memory);
        let record = RecordRef::personal(RecordLabel::Memory, tag, commit(&statement));
        records.push(record.with_score_micro(Integer::from(number)));
    }
    let entry = ReadEntry {
        run_id: None,
        call_id: None,
        kind: ReadKind::Retrieval,
        system: Token::parse("merkwelt")?,
        index: Versioned { id: Token::parse("shard")?, version: Token::parse("build-1")? },
        request: commit(b"what does she drink"),
        top_k: 8,
        subject_tag: Some(subject.tag(&read_id)),
        purpose: Token::parse("support")?,
        boundary: Versioned { id: Token::parse("eu")?, version: Token::parse("1")? },
        as_of: None,
        trace: None,
        content_kept: Token::parse("cell")?,
        redaction: None,
        result: commit(b"prefers tea"),
        tokens: 12,
        records,
        read_id,
    };
    Ok(entry.into_drafts(tenant.clone(), actor.clone())?)
}
