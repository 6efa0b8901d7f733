//! Strict reading and canonical writing of JSON.

use std::collections::BTreeMap;

use merkwelt_ledger::Value;
use merkwelt_ledger::canonical::{DEPTH_MAX, INTEGER_MAX, Reason, parse_canonical, parse_strict};
use proptest::prelude::*;

use crate::fixture::{int, vector_text};

fn canonical(text: &str) -> Result<String, Reason> {
    parse_strict(text.as_bytes())
        .map(|value| String::from_utf8(value.to_canonical()).unwrap())
        .map_err(|error| error.reason)
}

#[test]
fn l_26_published_canonical_forms_are_reproduced_or_refused_for_their_numbers() {
    let Some(text) = vector_text("jcs/vectors.json") else { return };
    let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let expected = vector["output"].as_str().unwrap().to_owned();
        let outcome = canonical(vector["input"].as_str().unwrap());
        match vector["name"].as_str().unwrap() {
            "arrays" => assert_eq!(outcome, Err(Reason::Null)),
            "structures" | "values" => assert_eq!(outcome, Err(Reason::NotInteger)),
            name => assert_eq!(outcome, Ok(expected), "{name}"),
        }
    }
    // The same with the parts a ledger does not use replaced by ones it does.
    assert_eq!(
        canonical("[\n  56,\n  {\n \"d\": true,\n \"10\": false,\n \"1\": [ ]\n }\n]\n").unwrap(),
        r#"[56,{"1":[],"10":false,"d":true}]"#
    );
    assert_eq!(
        canonical(r#"{"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}"#).unwrap(),
        "{\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
    );
}

#[test]
fn l_26_keys_are_ordered_by_utf_16_units() {
    let Some(input) = vector_text("jcs/rfc_sorting.input.json") else { return };
    let expected = vector_text("jcs/rfc_sorting.expected.json").unwrap();
    assert_eq!(canonical(&input).unwrap(), expected.trim_end());
}

#[test]
fn l_26_texts_with_a_second_meaning_are_refused() {
    let cases: &[(&str, Reason)] = &[
        (r#"{"a":1,"a":2}"#, Reason::DuplicateKey),
        (r#"{"a":1,"\u0061":1}"#, Reason::DuplicateKey),
        ("1.0", Reason::NotInteger),
        ("1e3", Reason::NotInteger),
        ("1E3", Reason::NotInteger),
        ("-0", Reason::NotInteger),
        ("01", Reason::NotInteger),
        ("9007199254740992", Reason::IntegerTooLarge),
        ("-9007199254740992", Reason::IntegerTooLarge),
        ("18446744073709551617", Reason::IntegerTooLarge),
        ("99999999999999999999999999999999999999991", Reason::IntegerTooLarge),
        (r#""\ud800""#, Reason::LoneSurrogate),
        (r#""\ud800\u0041""#, Reason::LoneSurrogate),
        (r#""\udc00\ud800""#, Reason::LoneSurrogate),
        (r#""\ud800x""#, Reason::LoneSurrogate),
        (r#""\uffff""#, Reason::Noncharacter),
        (r#""\ud83f\udffe""#, Reason::Noncharacter),
        ("\"\u{fdd0}\"", Reason::Noncharacter),
        ("\"\u{1}\"", Reason::ControlCharacter),
        ("\"a\nb\"", Reason::ControlCharacter),
        ("null", Reason::Null),
        (r#"{"a":null}"#, Reason::Null),
        ("1 2", Reason::TrailingBytes),
        ("{}\u{0}", Reason::TrailingBytes),
        ("[1]]", Reason::TrailingBytes),
        ("", Reason::EndsEarly),
        ("[1", Reason::EndsEarly),
        ("\"a", Reason::EndsEarly),
        (r#"{"a":"#, Reason::EndsEarly),
        ("[1,]", Reason::Unexpected),
        ("{,}", Reason::Unexpected),
        ("{a:1}", Reason::Unexpected),
        ("'a'", Reason::Unexpected),
        ("NaN", Reason::Unexpected),
        ("Infinity", Reason::Unexpected),
        ("-", Reason::Unexpected),
        ("+1", Reason::Unexpected),
        ("tru", Reason::Unexpected),
        (r#""\x""#, Reason::Unexpected),
        (r#""\u00g0""#, Reason::Unexpected),
        ("\u{feff}{}", Reason::Unexpected),
        ("/*c*/1", Reason::Unexpected),
    ];
    for (text, reason) in cases {
        assert_eq!(canonical(text), Err(*reason), "{text}");
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\x80\""] {
        assert_eq!(parse_strict(bytes).unwrap_err().reason, Reason::NotUtf8);
    }
}

#[test]
fn l_26_the_edges_of_what_is_allowed_are_read() {
    assert_eq!(canonical("9007199254740991").unwrap(), "9007199254740991");
    assert_eq!(canonical("-9007199254740991").unwrap(), "-9007199254740991");
    assert_eq!(canonical(" \t\r\n0 ").unwrap(), "0");
    assert_eq!(canonical(r#""\ud83d\ude02\u0000\/""#).unwrap(), "\"😂\\u0000/\"");
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(canonical(&nested(DEPTH_MAX + 1)), Err(Reason::TooDeep));
    assert_eq!(canonical(&"[".repeat(1_000_000)), Err(Reason::TooDeep));
}

#[test]
fn l_26_a_text_that_is_not_canonical_is_told_apart() {
    assert_eq!(parse_canonical(br#"{"b":1,"a":2}"#), Ok(None));
    assert_eq!(parse_canonical(br#"{"a": 1}"#), Ok(None));
    assert_eq!(parse_canonical(br#""\u0041""#), Ok(None));
    assert!(parse_canonical(br#"{"a":2,"b":1}"#).unwrap().is_some());
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = any::<String>().prop_map(|text| {
        text.chars()
            .filter(|c| u32::from(*c) & 0xfffe != 0xfffe && !matches!(*c, '\u{fdd0}'..='\u{fdef}'))
            .collect()
    });
    let text = text.prop_map(|text: String| text);
    let leaf = prop_oneof![
        text.clone().prop_map(Value::Text),
        any::<bool>().prop_map(Value::Bool),
        (-INTEGER_MAX..=INTEGER_MAX).prop_map(|n| Value::Int(int(n))),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::btree_map(text.clone(), inner, 0..6)
                .prop_map(|members: BTreeMap<String, Value>| Value::Object(members)),
        ]
    })
}

proptest! {
    #[test]
    fn l_26_a_value_survives_its_canonical_form(value in any_value()) {
        let bytes = value.to_canonical();
        prop_assert_eq!(parse_canonical(&bytes), Ok(Some(value)));
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
    }

    #[test]
    fn l_26_what_is_accepted_is_json_with_the_same_meaning(text in "[\\[\\]{},:\"\\\\0-9a-fu\\-+.eE nrtul\u{e9}\u{1f602}]{0,24}") {
        if let Ok(value) = parse_strict(text.as_bytes()) {
            let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
            let ours: serde_json::Value = serde_json::from_slice(&value.to_canonical()).unwrap();
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn l_26_no_bytes_make_the_reader_fail_otherwise_than_by_refusing(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse_strict(&bytes);
    }
}
