//! Attacks on what a ledger reveals to somebody who holds all of it and no key.

use std::collections::{BTreeMap, BTreeSet};

use merkwelt_ledger::canonical;
use merkwelt_ledger::*;
use ring::{digest, hmac};

use crate::fixture::*;

/// Every 32-byte value and every other string that stands in the leaves.
fn visible(leaves: &[Leaf]) -> (BTreeSet<[u8; 32]>, BTreeSet<String>) {
    let mut values = BTreeSet::new();
    let mut words = BTreeSet::new();
    for leaf in leaves {
        for text in strings(&canonical::parse_strict(&leaf.bytes).unwrap()).into_values() {
            match Hash::from_hex(&text) {
                Ok(value) => values.insert(*value.as_bytes()),
                Err(_) => words.insert(text),
            };
        }
    }
    (values, words)
}

/// Countries, birth dates and amounts, as text and as the JSON an application would store: over 10⁵ guesses.
fn guesses() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for first in 'A'..='Z' {
        for second in 'A'..='Z' {
            all.push(format!("{first}{second}"));
            all.push(format!("{{\"address\":{{\"country\":\"{first}{second}\"}}}}"));
        }
    }
    for year in 1920..2026 {
        for month in 1..=12 {
            for day in 1..=31 {
                all.push(format!("{year}-{month:02}-{day:02}"));
                all.push(format!("{{\"birth_date\":\"{year}-{month:02}-{day:02}\"}}"));
            }
        }
    }
    all.extend((0..30_000).map(|amount| amount.to_string()));
    all.into_iter().map(String::into_bytes).collect()
}

/// Digests everything an attacker can think of without a secret, and hands back the guesses that hit.
fn guessed(leaves: &[Leaf]) -> BTreeSet<Vec<u8>> {
    let (values, words) = visible(leaves);
    let mut keys: Vec<hmac::Key> = [&[0; 32][..], b"", b"merkwelt/v1"]
        .into_iter()
        .chain(words.iter().map(String::as_bytes))
        .map(|key| hmac::Key::new(hmac::HMAC_SHA256, key))
        .collect();
    keys.truncate(12);
    let mut hits = BTreeSet::new();
    for guess in guesses() {
        let framed = [b"merkwelt/v1\0record\0", guess.as_slice()].concat();
        let mut tried =
            vec![digest::digest(&digest::SHA256, &guess), digest::digest(&digest::SHA256, &framed)];
        let leaf = Hash::of_leaf(&guess);
        let tags = keys.iter().map(|key| hmac::sign(key, &framed));
        let hit = values.contains(leaf.as_bytes())
            || tried.drain(..).any(|digest| values.contains(digest.as_ref()))
            || tags.into_iter().any(|tag| values.contains(tag.as_ref()));
        if hit {
            hits.insert(guess);
        }
    }
    hits
}

const SECRETS: [&[u8]; 3] = [b"FR", b"{\"birth_date\":\"1984-02-29\"}", b"1250"];

#[test]
fn l_17_a_low_entropy_value_cannot_be_guessed_from_the_ledger() {
    let mut all = vec![drafts()[0].clone()];
    for (number, secret) in (1..).zip(SECRETS) {
        let subject = SubjectKey::from_bytes([number; 32]);
        all.push(written(number, &subject, "m-1", secret));
        all.extend(read(number, &subject, "m-1", secret).into_drafts(tenant(), actor()).unwrap());
    }
    assert!(guesses().len() > 100_000);
    assert_eq!(guessed(&log_of(&all).1), BTreeSet::new());
}

#[test]
fn l_17_the_same_attack_finds_every_value_behind_an_unkeyed_digest() {
    let mut all = vec![drafts()[0].clone()];
    for (number, secret) in (1..).zip(SECRETS) {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        let mut read = read(number, &SubjectKey::from_bytes([number; 32]), "m-1", secret);
        read.result = Commitment::from_bytes(bytes);
        all.extend(read.into_drafts(tenant(), actor()).unwrap());
    }
    let expected: BTreeSet<Vec<u8>> = SECRETS.map(<[u8]>::to_vec).into();
    assert_eq!(guessed(&log_of(&all).1), expected);
}

#[test]
fn l_18_a_commitment_opens_with_its_own_key_label_and_content_only() {
    let (first, opening) = opening_key(1).commit(&token("result"), b"FR");
    let (second, _) = opening_key(2).commit(&token("result"), b"FR");
    assert_ne!(first, second, "the same content under fresh keys looks different");
    assert!(opening.opens(&first, b"FR"));
    assert!(!opening.opens(&first, b"FI"));
    assert!(!opening.opens(&second, b"FR"));
    let stored = Opening::new(OpeningKey::from_bytes(*opening.key().expose()), opening.label().clone());
    assert!(stored.opens(&first, b"FR"));
    assert!(!Opening::new(opening_key(1), token("request")).opens(&first, b"FR"));
    assert!(!Opening::new(opening_key(2), token("result")).opens(&first, b"FR"));
}

#[test]
fn l_18_a_commitment_is_the_documented_hmac() {
    let key = hmac::Key::new(hmac::HMAC_SHA256, opening_key(1).expose());
    let expected = hmac::sign(&key, b"merkwelt/v1\0result\0FR");
    assert_eq!(commit(1, "result", b"FR").as_bytes().as_slice(), expected.as_ref());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[3; 32]);
    let tag = SubjectKey::from_bytes([3; 32]).tag(&token("r-1"));
    assert_eq!(tag.as_bytes().as_slice(), hmac::sign(&key, b"tagr-1").as_ref());
}

#[test]
fn l_18_keys_do_not_show_in_debug_output() {
    let key = OpeningKey::from_bytes([0xab; 32]);
    let subject = SubjectKey::from_bytes([0xab; 32]);
    let (_, opening) = OpeningKey::from_bytes([0xab; 32]).commit(&token("result"), b"");
    for text in
        [format!("{key:?}"), format!("{subject:?}"), format!("{opening:?}"), format!("{:?}", signer())]
    {
        let lower = text.to_lowercase();
        assert!(!lower.contains("abab") && !text.contains("171") && !text.contains("7, 7"), "{text}");
    }
}

/// Values that two entries share at the same place.
fn shared(a: &Leaf, b: &Leaf) -> BTreeMap<String, String> {
    let other = strings(&canonical::parse_strict(&b.bytes).unwrap());
    strings(&canonical::parse_strict(&a.bytes).unwrap())
        .into_iter()
        .filter(|(path, text)| other.get(path) == Some(text))
        .collect()
}

/// Strings that two entries share anywhere.
fn shared_anywhere(a: &Leaf, b: &Leaf) -> BTreeSet<String> {
    let texts = |leaf: &Leaf| -> BTreeSet<String> {
        strings(&canonical::parse_strict(&leaf.bytes).unwrap()).into_values().collect()
    };
    texts(a).intersection(&texts(b)).cloned().collect()
}

#[test]
fn l_19_two_entries_about_one_subject_share_no_more_than_two_about_different_ones() {
    let (anna, ben) = (SubjectKey::from_bytes([1; 32]), SubjectKey::from_bytes([2; 32]));
    let read_by = |number, subject: &SubjectKey, memory| {
        let mut read = read(number, subject, memory, b"prefers tea");
        read.records = vec![read.records[0].clone().with_score_micro(int(5))];
        let actor = Actor::Person(subject.tag(&read.read_id));
        read.into_drafts(tenant(), actor).unwrap().remove(0)
    };
    let all = [
        drafts()[0].clone(),
        read_by(1, &anna, "m-1"),
        read_by(2, &anna, "m-1"),
        read_by(3, &ben, "m-9"),
        written(4, &anna, "m-1", b"prefers tea"),
        written(5, &anna, "m-1", b"prefers tea"),
        written(6, &ben, "m-9", b"prefers coffee"),
    ];
    let (_, leaves) = log_of(&all);
    assert_eq!(shared(&leaves[1], &leaves[2]), shared(&leaves[1], &leaves[3]));
    assert_eq!(shared(&leaves[4], &leaves[5]), shared(&leaves[4], &leaves[6]));
    assert_eq!(shared_anywhere(&leaves[1], &leaves[2]), shared_anywhere(&leaves[1], &leaves[3]));
    assert_eq!(shared_anywhere(&leaves[1], &leaves[4]), shared_anywhere(&leaves[3], &leaves[4]));
}

#[test]
fn l_19_a_plain_record_id_would_have_linked_them() {
    let anna = SubjectKey::from_bytes([1; 32]);
    let naive = |number| {
        let mut read = read(number, &anna, "m-1", b"prefers tea");
        let commitment = commit(number + 100, "record", b"prefers tea");
        read.records = vec![RecordRef::shared(RecordLabel::Memory, token("m-1"), int(3), at(-5), commitment)];
        read.into_drafts(tenant(), actor()).unwrap().remove(0)
    };
    let (_, leaves) = log_of(&[drafts()[0].clone(), naive(1), naive(2)]);
    assert!(shared(&leaves[1], &leaves[2]).contains_key(".records[0].id"));
}

#[test]
fn l_19_with_the_subject_key_every_entry_about_the_person_is_found() {
    let (anna, ben) = (SubjectKey::from_bytes([1; 32]), SubjectKey::from_bytes([2; 32]));
    let mut all = vec![drafts()[0].clone()];
    for number in 1..=6 {
        let subject = if number % 2 == 0 { &anna } else { &ben };
        all.extend(read(number, subject, "m-1", b"x").into_drafts(tenant(), actor()).unwrap());
    }
    let found = |key: &SubjectKey| -> Vec<u64> {
        let (_, leaves) = log_of(&all);
        let about = |leaf: &Leaf| {
            let value = canonical::parse_strict(&leaf.bytes).unwrap();
            let (id, tag) = (value.get("read_id")?.as_text()?, value.get("subject_tag")?.as_text()?);
            Some(key.tag(&token(id)).to_string() == tag)
        };
        leaves.iter().filter(|leaf| about(leaf) == Some(true)).map(|leaf| leaf.index).collect()
    };
    assert_eq!(found(&anna), [2, 4, 6]);
    assert_eq!(found(&ben), [1, 3, 5]);
    assert_eq!(found(&SubjectKey::from_bytes([9; 32])), [0_u64; 0]);
}
