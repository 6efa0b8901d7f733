//! The append as a store uses it: batches, times, recovery, and what is refused.

use merkwelt_ledger::entry::{Error as EntryError, denial, genesis};
use merkwelt_ledger::log::Error;
use merkwelt_ledger::*;
use merkwelt_ledger::{canonical, tree};

use crate::fixture::*;

fn parsed(leaf: &Leaf) -> Value {
    canonical::parse_canonical(&leaf.bytes).unwrap().expect("leaves are canonical")
}

#[test]
fn r_100_recovery_from_stored_leaves_gives_the_head_that_was_appended() {
    let (head, leaves) = log_of(&drafts());
    let rows = || leaves.iter().map(|leaf| (leaf.index, leaf.hash, leaf.at));
    assert_eq!(Head::recover(rows()), Ok(head.clone()));
    assert_eq!(Head::from_parts(head.frontier().clone(), head.last_at()), Ok(head));
    // After a crash any durable prefix is a log, and the rest is appended to it as if nothing had happened.
    for cut in 0..=leaves.len() {
        let mut head = Head::recover(rows().take(cut)).unwrap();
        for (leaf, draft) in leaves.iter().zip(drafts()).skip(cut) {
            let again = append(&head, &[draft], leaf.at).unwrap();
            assert_eq!(again.leaves, std::slice::from_ref(leaf));
            head = again.head;
        }
    }
    assert_eq!(Head::recover(rows().skip(1)), Err(Error::Gap { expected: 0 }));
    assert_eq!(Head::recover(rows().filter(|row| row.0 != 2)), Err(Error::Gap { expected: 2 }));
    let reversed = rows().map(|(index, hash, time)| (index, hash, if index == 3 { at(0) } else { time }));
    assert_eq!(Head::recover(reversed), Err(Error::TimeReversed { index: 3 }));
    assert!(Head::from_parts(tree::Frontier::empty(), Some(at(0))).is_err());
}

#[test]
fn a_batch_equals_its_entries_one_by_one_at_the_same_time() {
    let batch = append(&Head::empty(), &drafts(), at(0)).unwrap();
    let mut head = Head::empty();
    for (index, draft) in (0..).zip(drafts()) {
        let one = append(&head, &[draft], at(0)).unwrap();
        assert_eq!(one.leaves[0].index, index);
        assert_eq!(one.root, one.head.root());
        head = one.head;
    }
    assert_eq!(batch.head, head);
    assert_eq!(batch.root, head.root());
    assert_eq!(append(&head, &[], at(9)).unwrap().head, head);
}

#[test]
fn a_clock_that_goes_back_is_held_and_recorded() {
    let first = append(&Head::empty(), &drafts()[..1], at(5000)).unwrap();
    let second = append(&first.head, &drafts()[1..2], at(3500)).unwrap();
    let leaf = parsed(&second.leaves[0]);
    assert_eq!(second.leaves[0].at, at(5000));
    assert_eq!(leaf.get("at").unwrap().as_text(), Some(at(5000).to_string().as_str()));
    assert_eq!(leaf.get("clock_behind_ms").unwrap().as_int(), Some(1500));
    let third = append(&second.head, &drafts()[2..3], at(5000)).unwrap();
    assert!(parsed(&third.leaves[0]).get("clock_behind_ms").is_none());
    let leaves = [first, second, third].map(|appended| appended.leaves[0].bytes.clone());
    let report = verify(&export_bytes(&leaves, &signer())).unwrap();
    assert_eq!(
        report.exceptions,
        [Exception { index: 1, reason: ExceptionReason::ClockBehind, behind_ms: Some(1500) }]
    );
    // The figure tells entries that passed each other from a clock that is wrong.
    assert!(report.to_string().contains("clock_behind at entry 1, by 1500 ms"), "{report}");
    let json = String::from_utf8(report.to_value().to_canonical()).unwrap();
    assert!(json.contains(r#"{"behind_ms":1500,"index":1,"reason":"clock_behind"}"#), "{json}");
}

#[test]
fn a_log_begins_with_its_only_genesis() {
    let drafts = drafts();
    assert_eq!(append(&Head::empty(), &drafts[1..], at(0)), Err(Error::GenesisMissing));
    let head = append(&Head::empty(), &drafts[..1], at(0)).unwrap().head;
    assert_eq!(append(&head, &drafts[..1], at(1)), Err(Error::GenesisRepeated));
}

#[test]
fn every_type_has_an_envelope_that_the_verifier_accepts() {
    let mut all = vec![genesis(tenant(), actor(), signer().verifier_key().clone(), None)];
    for kind in EntryType::ALL {
        assert_eq!(EntryType::parse(kind.as_str()), Some(*kind));
        if !matches!(kind, EntryType::Genesis | EntryType::Read | EntryType::ReadRecords) {
            all.push(
                Draft::new(*kind, tenant(), Actor::System(token("sweep")))
                    .field("request_id", token("q-1"))
                    .field("done", true)
                    .field(
                        "removed",
                        Field::Object(vec![("memories", 3_u32.into()), ("chunks", 0_u32.into())]),
                    ),
            );
        }
    }
    let report = verify(&export(&all)).unwrap();
    assert_eq!((report.n_exceptions, report.size), (0, 17));
    assert!(report.by_type.values().all(|count| *count == 1));
    assert_eq!(EntryType::parse("telepathy"), None);
}

#[test]
fn r_097_a_leaf_is_the_canonical_envelope_with_its_fields() {
    let (_, leaves) = log_of(&drafts());
    let expected = format!(
        r#"{{"action":"recall","actor":{{"id":"key-21","kind":"key"}},"at":"{}","reason":"not-a-member","tenant":"t-7f3a","type":"authz_denied","v":1}}"#,
        at(4000)
    );
    assert_eq!(String::from_utf8(leaves[4].bytes.clone()).unwrap(), expected);
}

#[test]
fn r_097_strings_with_room_for_content_are_not_tokens() {
    for text in ["", "prefers tea", "naïve", "a/b", "anna@example.org", "a\nb", &"x".repeat(129)] {
        assert!(Token::parse(text).is_err(), "{text:?}");
    }
    assert!(Token::parse(&"x".repeat(128)).is_ok());
    assert!(Token::parse("doc:2024-05.v3_final").is_ok());
}

#[test]
fn l_28_a_denial_is_an_entry_without_resource_or_person() {
    let person = Actor::Person(SubjectKey::from_bytes([9; 32]).tag(&token("d-1")));
    let all = [drafts()[0].clone(), denial(tenant(), person, token("recall"), token("grant-revoked"))];
    let (_, leaves) = log_of(&all);
    let denial = parsed(&leaves[1]);
    assert_eq!(denial.get("type").unwrap().as_text(), Some("authz_denied"));
    let paths: Vec<_> = strings(&denial).into_keys().collect();
    assert_eq!(paths, [".action", ".actor.id", ".actor.kind", ".at", ".reason", ".tenant", ".type", ".v"]);
    assert_eq!(verify(&export(&all)).unwrap().by_type["authz_denied"], 1);
}

#[test]
fn drafts_that_would_break_the_envelope_are_refused() {
    let head = append(&Head::empty(), &drafts()[..1], at(0)).unwrap().head;
    let refused = |draft: Draft| match append(&head, &[draft], at(1)) {
        Err(Error::Entry(error)) => error,
        other => panic!("{other:?}"),
    };
    let draft = || Draft::new(EntryType::Heartbeat, tenant(), actor());
    assert_eq!(refused(draft().field("at", 1_u32)), EntryError::FieldName("at"));
    assert_eq!(refused(draft().field("clock_behind_ms", 1_u32)), EntryError::FieldName("clock_behind_ms"));
    assert_eq!(refused(draft().field("a", 1_u32).field("a", 2_u32)), EntryError::FieldName("a"));
    let many = vec![Field::from(token(&"x".repeat(128))); 600];
    assert_eq!(refused(draft().field("many", many)), EntryError::TooLong);
    let mut deep = Field::from(1_u32);
    for _ in 0..40 {
        deep = vec![deep].into();
    }
    assert!(matches!(refused(draft().field("deep", deep)), EntryError::NotCanonical(_)));
}

#[test]
fn times_have_one_spelling_and_real_dates() {
    for (text, ms) in [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2000-02-29T23:59:59.999Z", 951_868_799_999),
        ("2026-11-30T06:59:49.123Z", 1_796_021_989_123),
        ("2100-03-01T00:00:00.000Z", 4_107_542_400_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ] {
        let time = UtcMillis::parse(text).unwrap();
        assert_eq!((time.unix_ms(), time.to_string().as_str()), (ms, text));
    }
    for text in [
        "2026-02-29T00:00:00.000Z",
        "2100-02-29T00:00:00.000Z",
        "2026-04-31T00:00:00.000Z",
        "2026-13-01T00:00:00.000Z",
        "2026-00-01T00:00:00.000Z",
        "2026-01-00T00:00:00.000Z",
        "2026-01-01T24:00:00.000Z",
        "2026-01-01T23:59:60.000Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000z",
        "2026-01-01 00:00:00.000Z",
        "2026-01-01T00:00:00.000+00:00",
        "2026-01-01T00:00:00.000Z ",
        "1969-12-31T23:59:59.999Z",
        "0000-01-01T00:00:00.000Z",
    ] {
        assert!(UtcMillis::parse(text).is_err(), "{text}");
    }
    assert!(UtcMillis::from_unix_ms(-1).is_err());
    for day in 0..60_000 {
        let time = UtcMillis::from_unix_ms(day * 86_400_000).unwrap();
        assert_eq!(UtcMillis::parse(&time.to_string()), Ok(time));
    }
}

#[test]
fn l_31_malformed_trace_ids_are_refused() {
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    assert!(Trace::new(trace, span).is_ok());
    assert!(Trace::new(&trace.to_uppercase(), span).is_err());
    assert!(Trace::new(&"0".repeat(32), span).is_err());
    assert!(Trace::new(trace, &"0".repeat(16)).is_err());
    assert!(Trace::new(span, trace).is_err());
}
