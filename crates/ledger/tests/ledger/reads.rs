//! Read events: what they name, and how many records they can name.

use merkwelt_ledger::canonical;
use merkwelt_ledger::entry::LEAF_MAX;
use merkwelt_ledger::read::{DocumentPlace, document_statement, record_statement};
use merkwelt_ledger::*;

use crate::fixture::*;

fn logged(read: ReadEntry) -> Vec<Leaf> {
    let mut all = vec![drafts()[0].clone()];
    all.extend(read.into_drafts(tenant(), actor()).unwrap());
    let leaves = append(&Head::empty(), &all, at(0)).unwrap().leaves;
    let bytes: Vec<_> = leaves.iter().map(|leaf| leaf.bytes.clone()).collect();
    assert_eq!(verify(&export_bytes(&bytes, &signer())).unwrap().n_exceptions, 0);
    leaves
}

#[test]
fn r_081_a_read_names_everything_it_must() {
    let subject = SubjectKey::from_bytes([3; 32]);
    let mut read = read(1, &subject, "m-1", b"prefers tea");
    read.run_id = Some(token("run-1"));
    read.call_id = Some(token("call-1"));
    read.as_of = Some(at(-60_000));
    read.redaction = Some(token("pii-2"));
    read.trace = Some(Trace::new("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7").unwrap());
    let passage = commit(200, "record", b"passage");
    read.records.push(RecordRef::shared(RecordLabel::Document, token("doc-4:c7"), int(2), at(-9), passage));
    let leaf = canonical::parse_strict(&logged(read)[1].bytes).unwrap();
    let paths: Vec<_> = strings(&leaf).into_keys().collect();
    let expected = [
        ".actor.id",
        ".actor.kind",
        ".as_of",
        ".at",
        ".boundary.id",
        ".boundary.version",
        ".call_id",
        ".content_kept",
        ".index.id",
        ".index.version",
        ".kind",
        ".part",
        ".parts",
        ".purpose",
        ".read_id",
        ".records[0].commitment",
        ".records[0].label",
        ".records[0].score_micro",
        ".records[0].tag",
        ".records[1].commitment",
        ".records[1].id",
        ".records[1].label",
        ".records[1].revision",
        ".records[1].written_at",
        ".records_total",
        ".redaction",
        ".request",
        ".result",
        ".run_id",
        ".span_id",
        ".subject_tag",
        ".system",
        ".tenant",
        ".tokens",
        ".top_k",
        ".trace_id",
        ".type",
        ".v",
    ];
    assert_eq!(paths, expected);
    assert_eq!(strings(&leaf)[".records[0].label"], "memory");
    assert_eq!(strings(&leaf)[".records[1].label"], "document");
}

#[test]
fn r_084_an_auditor_opens_id_and_write_time_of_a_memory() {
    let statement = record_statement(&token("m-1"), int(3), at(-5), b"prefers tea");
    let (commitment, opening) = opening_key(1).commit(&token("record"), &statement);
    assert!(opening.opens(&commitment, &statement));
    for other in [
        record_statement(&token("m-2"), int(3), at(-5), b"prefers tea"),
        record_statement(&token("m-1"), int(4), at(-5), b"prefers tea"),
        record_statement(&token("m-1"), int(3), at(-4), b"prefers tea"),
        record_statement(&token("m-1"), int(3), at(-5), b"prefers te"),
    ] {
        assert!(!opening.opens(&commitment, &other));
    }
}

#[test]
fn r_082_an_auditor_opens_document_checksum_version_receipt_page_and_region_of_a_passage() {
    let source = token("src-1");
    let place = DocumentPlace {
        source: &source,
        sha256: &[0xab; 32],
        page: Some(7),
        unit: "line",
        lines: (3, 5),
        bounds: Some([100, 200, 300, -4]),
    };
    let statement = document_statement(&token("rev-1.2"), int(3), at(-5), &place, b"thirty days");
    let (head, text) = statement.split_at(statement.iter().position(|byte| *byte == 0).unwrap());
    let head = String::from_utf8(head.to_vec()).unwrap();
    assert_eq!(
        head,
        format!(
            r#"{{"document":{{"bounds":[100,200,300,-4],"first":3,"last":5,"page":7,"sha256":"{}","source":"src-1","unit":"line"}},"id":"rev-1.2","received_at":"{}","revision":3}}"#,
            "ab".repeat(32),
            at(-5),
        )
    );
    assert_eq!(&text[1..], b"thirty days");
    let (commitment, opening) = opening_key(1).commit(&token("record"), &statement);
    assert!(opening.opens(&commitment, &statement));
    let elsewhere = DocumentPlace { page: Some(8), ..place };
    let edited = DocumentPlace { sha256: &[0xac; 32], ..place };
    for other in [elsewhere, edited, DocumentPlace { lines: (3, 6), ..place }] {
        let other = document_statement(&token("rev-1.2"), int(3), at(-5), &other, b"thirty days");
        assert!(!opening.opens(&commitment, &other));
    }
}

#[test]
fn r_080_a_read_of_many_records_is_one_read_entry_and_its_continuations() {
    let subject = SubjectKey::from_bytes([3; 32]);
    for (n_records, n_entries) in [(0, 1), (1, 1), (2000, 6)] {
        let mut read = read(1, &subject, "m-1", b"");
        read.records = (0..n_records)
            .map(|n| {
                let memory = token(&format!("m-{n}"));
                let tag = subject.record_tag(&read.read_id, &memory);
                let commitment = Commitment::from_bytes(*tag.as_bytes());
                RecordRef::personal(RecordLabel::Memory, tag, commitment).with_score_micro(int(-n))
            })
            .collect();
        let leaves = logged(read);
        assert_eq!(leaves.len(), 1 + n_entries, "{n_records}");
        assert!(leaves.iter().all(|leaf| leaf.bytes.len() <= LEAF_MAX));
        assert_eq!(leaves.iter().filter(|leaf| leaf.kind == EntryType::Read).count(), 1);
        let mut scores = Vec::new();
        for leaf in &leaves[1..] {
            let value = canonical::parse_strict(&leaf.bytes).unwrap();
            for record in value.get("records").unwrap().as_list().unwrap() {
                scores.push(record.get("score_micro").unwrap().as_int().unwrap());
            }
        }
        assert_eq!(scores, (0..n_records).map(|n| -n).collect::<Vec<_>>());
    }
}
