//! Stable reason codes, and logs that are properly signed but say something wrong.

use merkwelt_ledger::canonical;
use merkwelt_ledger::entry::{self, genesis};
use merkwelt_ledger::export::{Error, Header, Item, Reader, Writer};
use merkwelt_ledger::*;

use crate::fixture::*;

fn leaves() -> Vec<Vec<u8>> {
    log_of(&drafts()).1.into_iter().map(|leaf| leaf.bytes).collect()
}

/// The outcome for a properly signed log with entry 1 replaced.
fn with_entry(entry: &str) -> Result<Report, Failure> {
    let mut all = leaves();
    all[1] = entry.as_bytes().to_vec();
    verify(&export_bytes(&all, &signer()))
}

fn entry_with(tail: &str) -> String {
    format!(
        r#"{{"actor":{{"id":"k","kind":"key"}},"at":"{}","tenant":"t-7f3a","type":"heartbeat","v":1{tail}}}"#,
        at(1000)
    )
}

#[test]
fn l_27_codes_are_stable() {
    let codes: Vec<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(
        codes.join(" "),
        "unreadable header_malformed version_unknown line_malformed truncated trailing index_order entry_json \
         entry_not_canonical entry_envelope entry_version time_reversed key_not_trusted checkpoint_malformed \
         checkpoint_origin checkpoint_signature size_mismatch root_mismatch previous_origin previous_signature \
         behind_previous forked_from_previous"
    );
    let codes: Vec<_> = ExceptionReason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(
        codes.join(" "),
        "unknown_type genesis_place genesis_key foreign_tenant free_text clock_behind read_malformed \
         read_incomplete read_repeated records_stray"
    );
}

#[test]
fn l_26_a_signed_log_with_ambiguous_entries_is_refused_by_reason() {
    assert!(with_entry(&entry_with("")).is_ok());
    let failed = |entry: String| {
        let failure = with_entry(&entry).unwrap_err();
        assert_eq!(failure.line, 3);
        failure.reason
    };
    assert_eq!(failed(entry_with(r#","v":1"#)), Reason::EntryJson);
    assert_eq!(failed(entry_with(r#","w":1.5"#)), Reason::EntryJson);
    assert_eq!(failed(entry_with(" ")), Reason::EntryNotCanonical);
    assert_eq!(failed(entry_with(r#","a":1"#)), Reason::EntryNotCanonical);
    assert_eq!(failed(entry_with("").replace("\"v\":1", "\"v\":2")), Reason::EntryVersion);
    assert_eq!(failed("[]".to_owned()), Reason::EntryEnvelope);
    assert_eq!(failed(entry_with("").replace(".000Z", "Z")), Reason::EntryEnvelope);
    assert_eq!(failed(entry_with("").replace("t-7f3a", "a tenant")), Reason::EntryEnvelope);
    assert_eq!(failed(entry_with("").replace("\"id\":\"k\",", "")), Reason::EntryEnvelope);
    let early = entry_with("").replace(&at(1000).to_string(), &at(-1).to_string());
    assert_eq!(failed(early), Reason::TimeReversed);
}

#[test]
fn damaged_files_are_refused_by_reason() {
    let good = String::from_utf8(export(&drafts())).unwrap();
    let failed = |text: String| verify(text.as_bytes()).unwrap_err().reason;
    assert_eq!(failed(String::new()), Reason::Truncated);
    assert_eq!(failed("{}\n".to_owned()), Reason::HeaderMalformed);
    assert_eq!(failed(good.replacen("{\"format\"", "{ \"format\"", 1)), Reason::HeaderMalformed);
    assert_eq!(failed(good.replacen("\"v\":1}", "\"v\":2}", 1)), Reason::VersionUnknown);
    assert_eq!(failed(good.replacen("-export", "-expert", 1)), Reason::VersionUnknown);
    assert_eq!(failed(good.replacen("\"index\":1", "\"index\":01", 1)), Reason::LineMalformed);
    assert_eq!(failed(good.replacen("\"index\":1", "\"index\":7", 1)), Reason::IndexOrder);
    assert_eq!(failed(good.replacen("{\"index\":1", "{\"Index\":1", 1)), Reason::LineMalformed);
    assert_eq!(failed(format!("{good}\n")), Reason::Trailing);
    assert_eq!(failed(good.trim_end().to_owned()), Reason::Truncated);
    assert_eq!(failed(good.replacen("\\n5\\n", "\\n05\\n", 1)), Reason::CheckpointMalformed);
    assert_eq!(failed(good.replacen("\\n5\\n", "\\n6\\n", 1)), Reason::CheckpointSignature);
    let long = format!("{}\n", "x".repeat(600_000));
    assert_eq!(
        failed(good.replacen("{\"index\":1", &format!("{long}{{\"index\":1"), 1)),
        Reason::LineMalformed
    );
    let oversized = format!("{{{}}}", " ".repeat(entry::LEAF_MAX));
    assert_eq!(with_entry(&oversized).unwrap_err().reason, Reason::LineMalformed);
    let mut bytes = good.into_bytes();
    let tail = bytes.len() - 3;
    bytes[tail] = 0xff;
    assert_eq!(verify(&bytes).unwrap_err().reason, Reason::LineMalformed);
}

#[test]
fn origins_and_keys_that_do_not_belong_together_are_refused() {
    let good = export(&drafts());
    let other = Signer::from_seed("another.example/tenant/t-1", &[7; 32]).unwrap();
    let elsewhere = checkpoint(0, Hash::empty_root(), &other);
    let outcome = |previous| verify_export(good.as_slice(), Some(signer().verifier_key()), Some(previous));
    assert_eq!(outcome(&elsewhere).unwrap_err().reason, Reason::PreviousOrigin);
    let stranger = Signer::from_seed(ORIGIN, &[8; 32]).unwrap();
    let unsigned = checkpoint(0, Hash::empty_root(), &stranger);
    assert_eq!(outcome(&unsigned).unwrap_err().reason, Reason::PreviousSignature);

    // A header that names one log and a checkpoint of another, both of the same operator.
    let header = Header { origin: ORIGIN.to_owned(), key: signer().verifier_key().clone() };
    let mixed = Writer::new(Vec::new(), &header).unwrap().finish(&elsewhere).unwrap();
    assert_eq!(verify(&mixed).unwrap_err().reason, Reason::CheckpointOrigin);
    let header = Header { origin: "another.example/tenant/t-1".to_owned(), ..header };
    let mixed = Writer::new(Vec::new(), &header).unwrap().finish(&elsewhere).unwrap();
    assert_eq!(verify(&mixed).unwrap_err().reason, Reason::CheckpointOrigin);
}

/// A reader that breaks off with an error of the medium.
struct Broken;

impl std::io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("medium"))
    }
}

#[test]
fn an_unreadable_file_is_not_a_verdict_on_the_log() {
    let outcome = verify_export(std::io::BufReader::new(Broken), None, None);
    assert_eq!(outcome.unwrap_err().reason, Reason::Unreadable);
}

#[test]
fn what_a_whole_log_leaves_to_explain_is_counted_and_named() {
    let found = |entry: String| {
        let report = with_entry(&entry).unwrap();
        let reasons: Vec<_> = report.exceptions.iter().filter(|e| e.index == 1).map(|e| e.reason).collect();
        assert_eq!(report.n_exceptions, 1, "{:?}", report.exceptions);
        reasons[0]
    };
    let typed = |kind: &str, fields: &str| {
        let value = entry_with(fields).replace("heartbeat", kind);
        let value = canonical::parse_strict(value.as_bytes()).unwrap();
        String::from_utf8(value.to_canonical()).unwrap()
    };
    assert_eq!(found(typed("telepathy", "")), ExceptionReason::UnknownType);
    assert_eq!(found(typed("heartbeat", r#","note":"prefers tea""#)), ExceptionReason::FreeText);
    assert_eq!(found(typed("heartbeat", r#","prefers tea":1"#)), ExceptionReason::FreeText);
    assert_eq!(found(typed("heartbeat", "").replace("t-7f3a", "t-1")), ExceptionReason::ForeignTenant);
    assert_eq!(found(typed("heartbeat", r#","clock_behind_ms":3"#)), ExceptionReason::ClockBehind);
    assert_eq!(found(typed("read", "")), ExceptionReason::ReadMalformed);
    let records = |part: &str| format!(r#","read_id":"r-9",{part},"records":[{{"label":"memory"}}]"#);
    let one = records(r#""part":1,"parts":1,"records_total":2"#);
    assert_eq!(found(typed("read", &one)), ExceptionReason::ReadIncomplete);
    let half = records(r#""part":1,"parts":2,"records_total":2"#);
    assert_eq!(found(typed("read", &half)), ExceptionReason::ReadIncomplete);
    let unmatched = records(r#""part":1,"parts":2,"records_total":1"#);
    assert_eq!(found(typed("read", &unmatched)), ExceptionReason::ReadIncomplete);
    let stray = records(r#""part":2,"parts":2"#);
    assert_eq!(found(typed("read_records", &stray)), ExceptionReason::RecordsStray);
    let genesis_again = typed("genesis", &format!(r#","key":"{}""#, signer().verifier_key()));
    assert_eq!(found(genesis_again), ExceptionReason::GenesisPlace);
    let twice =
        String::from_utf8(leaves()[2].clone()).unwrap().replace(&at(2000).to_string(), &at(1000).to_string());
    let report = with_entry(&twice).unwrap();
    assert_eq!(
        report.exceptions,
        [Exception { index: 2, reason: ExceptionReason::ReadRepeated, behind_ms: None }]
    );
}

#[test]
fn the_report_says_how_far_it_goes_and_never_just_valid() {
    let report = verify(&export(&drafts())).unwrap();
    let text = report.to_string();
    for part in
        ["first 5 entries", "2 read", "exceptions  0", "not checked: no older checkpoint", "not proven"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.to_lowercase().contains("valid"));
    let json = report.to_value();
    assert_eq!(json.get("integrity_up_to_size").unwrap().as_int(), Some(5));
    assert_eq!(json.get("trust").unwrap().as_text(), Some("pinned_key"));
    assert_eq!(json.get("entries_by_type").unwrap().get("read").unwrap().as_int(), Some(2));
    assert_eq!(json.get("n_exceptions").unwrap().as_int(), Some(0));
}

#[test]
fn l_21_a_new_period_commits_to_the_final_checkpoint_of_the_one_before() {
    let (head, _) = log_of(&drafts());
    let last = Checkpoint::new(ORIGIN, head.size(), head.root()).unwrap();
    let first = genesis(tenant(), actor(), signer().verifier_key().clone(), Some(last.clone()));
    let (_, leaves) = log_of(std::slice::from_ref(&first));
    let entry = canonical::parse_strict(&leaves[0].bytes).unwrap();
    let previous = entry.get("previous").unwrap().as_text().unwrap();
    assert_eq!(Checkpoint::parse(previous), Ok(last));
    assert_eq!(verify(&export(&[first])).unwrap().n_exceptions, 0);
}

#[test]
fn an_export_is_read_back_as_it_was_written_and_in_order_only() {
    let good = export(&drafts());
    let mut reader = Reader::new(good.as_slice()).unwrap();
    assert_eq!(reader.header().origin, ORIGIN);
    for (index, leaf) in (0..).zip(leaves()) {
        assert_eq!(reader.read().unwrap(), Item::Entry { index, leaf });
    }
    assert!(matches!(reader.read().unwrap(), Item::Checkpoint(_)));
    let header = Header { origin: ORIGIN.to_owned(), key: signer().verifier_key().clone() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    assert!(matches!(writer.entry(1, b""), Err(Error::Order { expected: 0 })));
    let early = checkpoint(1, Hash::empty_root(), &signer());
    assert!(matches!(writer.finish(&early), Err(Error::Order { expected: 0 })));
}
