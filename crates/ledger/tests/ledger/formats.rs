//! The public formats: signed notes, checkpoints, proofs, policies, and the signature underneath.

use merkwelt_ledger::note::{self, SIGNATURES_MAX};
use merkwelt_ledger::*;
use merkwelt_ledger::{checkpoint as checkpoints, policy, proof, tree};

use crate::fixture::{ORIGIN, checkpoint, drafts, log_of, signer, vector_text, vectors};

const EXAMPLE_KEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
const EXAMPLE_NOTE: &str = "This is an example message.\n\n\
    — example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
const TESSERA_KEY: &str = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx";

#[test]
fn l_22_the_example_of_the_note_specification_verifies() {
    let key = VerifierKey::parse(EXAMPLE_KEY).unwrap();
    assert_eq!(key.to_string(), EXAMPLE_KEY);
    let note = SignedNote::parse(EXAMPLE_NOTE).unwrap();
    assert_eq!(note.to_string(), EXAMPLE_NOTE);
    assert_eq!(note.text(), "This is an example message.\n");
    assert_eq!(note.verify([&key]), Ok(vec![&key]));
}

#[test]
fn l_22_unknown_signatures_are_ignored_and_known_ones_must_verify() {
    let (own, other) = (signer(), Signer::from_seed(ORIGIN, &[8; 32]).unwrap());
    let mut note = own.sign("text\n\nwith a blank line\n").unwrap();
    other.cosign(&mut note);
    let note = SignedNote::parse(&note.to_string()).unwrap();
    assert_eq!(note.text(), "text\n\nwith a blank line\n");
    assert_eq!(note.verify([own.verifier_key()]), Ok(vec![own.verifier_key()]));
    assert_eq!(note.verify([own.verifier_key(), other.verifier_key()]).unwrap().len(), 2);
    let stranger = Signer::from_seed("another.example", &[7; 32]).unwrap();
    assert_eq!(note.verify([stranger.verifier_key()]), Err(note::Error::Unsigned));
    // A second line under the same name and id must be a signature too.
    let line = note.to_string().lines().nth(4).unwrap().to_owned();
    let mut doubtful = line.clone().into_bytes();
    let middle = doubtful.len() / 2 + 10;
    doubtful[middle] = if doubtful[middle] == b'A' { b'B' } else { b'A' };
    let doubtful = format!("{note}{}\n", String::from_utf8(doubtful).unwrap());
    let doubtful = SignedNote::parse(&doubtful).unwrap();
    assert_eq!(doubtful.verify([own.verifier_key()]), Err(note::Error::BadSignature));
    assert!(SignedNote::parse(&format!("{note}{line}\n")).unwrap().verify([own.verifier_key()]).is_ok());
    let forged = note.to_string().replacen("text", "test", 1);
    let forged = SignedNote::parse(&forged).unwrap();
    assert_eq!(forged.verify([own.verifier_key()]), Err(note::Error::BadSignature));
}

#[test]
fn l_22_malformed_notes_and_keys_are_refused() {
    for text in [
        "",
        "\n",
        "text\n",
        "text\n\n",
        "text\n\nsignature\n",
        "text\n\n— name\n",
        "text\n\n— name AAAAAA==\n",
        "text\n\n— name AAAAAAE=",
        "text\n\n- name AAAAAAE=\n",
        "text\n\n— na+me AAAAAAE=\n",
        "te\txt\n\n— name AAAAAAE=\n",
        "text\n\n— name AAAAAAF=\n",
        "text\n\n— name AAAAAAE=\n— name AAAAAAE\n",
        "text\n\n— name AAAAAAE=\r\n",
    ] {
        assert!(SignedNote::parse(text).is_err(), "{text:?}");
    }
    assert!(SignedNote::parse("text\n\n— name AAAAAAE=\n").is_ok());
    let line = "— name AAAAAAE=\n";
    assert!(SignedNote::parse(&format!("text\n\n{}", line.repeat(16))).is_ok());
    let many = format!("text\n\n{}", line.repeat(SIGNATURES_MAX + 1));
    assert_eq!(SignedNote::parse(&many), Err(note::Error::TooLarge));
    for key in [
        "",
        "example.com/foo",
        "example.com/foo+530d903a",
        "example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903b+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/bar+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3Q==",
    ] {
        assert!(VerifierKey::parse(key).is_err(), "{key}");
    }
    let other_type = EXAMPLE_KEY.replace("+Aek", "+Bek");
    assert_eq!(VerifierKey::parse(&other_type), Err(note::Error::KeyType));
    assert!(signer().sign("no newline").is_err());
    assert!(Signer::from_seed("a b", &[0; 32]).is_err());
}

#[test]
fn l_22_checkpoints_of_another_log_verify_and_its_entries_lead_to_them() {
    let Some(folder) = vectors("tlog_tessera") else { return };
    let key = VerifierKey::parse(TESSERA_KEY).unwrap();
    let bundle = std::fs::read(folder.join("tile/entries/000.p/15")).unwrap();
    let mut rest = bundle.as_slice();
    let mut leaves = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let (leaf, tail) = tail.split_at(usize::from(u16::from_be_bytes(*length)));
        leaves.push(Hash::of_leaf(leaf));
        rest = tail;
    }
    assert_eq!(leaves.len(), 15);
    let mut signed: Vec<SignedCheckpoint> = Vec::new();
    let mut frontier = tree::Frontier::empty();
    for size in 0..=15_u64 {
        let text = std::fs::read_to_string(folder.join(format!("checkpoint.{size}"))).unwrap();
        let note = SignedCheckpoint::parse(&text).unwrap();
        assert_eq!(note.to_string(), text);
        let checkpoint = note.verify([&key]).unwrap();
        assert_eq!((checkpoint.size(), checkpoint.root()), (size, frontier.root()));
        for older in &signed {
            let old = older.checkpoint().size();
            let proof = match old {
                0 => Vec::new(),
                _ => tree::consistency_proof(&tree::leaves_of(&leaves), old, size).unwrap(),
            };
            note.verify_continues(older, &proof, std::slice::from_ref(&key)).unwrap();
        }
        signed.push(note);
        if let Some(leaf) = leaves.get(usize::try_from(size).unwrap()) {
            frontier.push(*leaf).unwrap();
        }
    }
}

#[test]
fn l_22_malformed_checkpoints_are_refused() {
    let root = Hash::empty_root().to_base64();
    let parse = |text: String| Checkpoint::parse(&text);
    assert!(parse(format!("o\n0\n{root}\n")).is_ok());
    assert_eq!(parse(format!("o\n0\n{root}\nmore\n")), Err(checkpoints::Error::Extension));
    for text in [
        format!("o\n0\n{root}"),
        format!("\n0\n{root}\n"),
        format!("o\n00\n{root}\n"),
        format!("o\n01\n{root}\n"),
        format!("o\n+1\n{root}\n"),
        format!("o\n-1\n{root}\n"),
        format!("o\n\n{root}\n"),
        format!("o\n18446744073709551616\n{root}\n"),
        "o\n0\nAAAA\n".to_owned(),
        "o\n0\n".to_owned(),
    ] {
        assert_eq!(parse(text.clone()), Err(checkpoints::Error::Malformed), "{text:?}");
    }
}

#[test]
fn l_22_a_checkpoint_counts_only_under_a_key_of_its_origin() {
    let other = Signer::from_seed("another.example/tenant/t-1", &[7; 32]).unwrap();
    let statement = Checkpoint::new(ORIGIN, 0, Hash::empty_root()).unwrap();
    assert_eq!(SignedCheckpoint::sign(statement, &other), Err(checkpoints::Error::Origin));
    let signed = checkpoint(0, Hash::empty_root(), &signer());
    assert_eq!(signed.verify([other.verifier_key()]), Err(checkpoints::Error::Origin));
    let rotated = Signer::from_seed(ORIGIN, &[8; 32]).unwrap();
    assert!(signed.verify([rotated.verifier_key()]).is_err());
    let mut both = signed;
    both.cosign(&rotated).unwrap();
    assert!(both.verify([rotated.verifier_key()]).is_ok());
    assert!(both.verify([signer().verifier_key()]).is_ok());
}

#[test]
fn l_22_every_entry_has_a_proof_file_that_survives_writing_and_reading() {
    let (head, leaves) = log_of(&drafts());
    let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf.hash).collect();
    let policy = Policy::of_keys(vec![signer().verifier_key().clone()]);
    for leaf in &leaves {
        let signed = checkpoint(head.size(), head.root(), &signer());
        let proof = Proof::new(&tree::leaves_of(&hashes), leaf.index, signed).unwrap();
        for proof in [proof.clone(), proof.with_extra(b"context".to_vec())] {
            let text = proof.to_string();
            let read = Proof::parse(&text).unwrap();
            assert_eq!(read, proof);
            assert_eq!(read.to_string(), text);
            assert_eq!(read.verify(&leaf.bytes, &policy), Ok(()));
            let other = &leaves[usize::try_from((leaf.index + 1) % head.size()).unwrap()];
            assert!(matches!(read.verify(&other.bytes, &policy), Err(proof::Error::Inclusion(_))));
        }
    }
}

#[test]
fn l_22_a_proof_file_with_any_byte_changed_is_refused() {
    let (head, leaves) = log_of(&drafts());
    let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf.hash).collect();
    let policy = Policy::of_keys(vec![signer().verifier_key().clone()]);
    let signed = checkpoint(head.size(), head.root(), &signer());
    let text = Proof::new(&tree::leaves_of(&hashes), 2, signed).unwrap().to_string().into_bytes();
    for position in 0..text.len() {
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = text.clone();
            changed[position] ^= flip;
            let accepted = std::str::from_utf8(&changed)
                .ok()
                .and_then(|text| Proof::parse(text).ok())
                .is_some_and(|proof| proof.verify(&leaves[2].bytes, &policy).is_ok());
            assert!(!accepted, "byte {position}");
        }
    }
}

#[test]
fn l_22_a_policy_names_log_keys_and_what_is_not_understood_is_refused() {
    let key = signer().verifier_key().to_string();
    let text = format!("# trust\n\n \tlog {key} https://log.example/\nquorum none\n");
    let policy = Policy::parse(text.as_bytes()).unwrap();
    assert_eq!(policy.logs(), [signer().verifier_key().clone()]);
    assert_eq!(Policy::parse(policy.to_string().as_bytes()), Ok(policy));
    let cases = [
        (format!("log {key}\n"), policy::Error::Quorum),
        (format!("log {key}\nquorum none\nquorum none\n"), policy::Error::Quorum),
        (format!("log {key}\nlog {key}\nquorum none\n"), policy::Error::DuplicateLog(2)),
        (format!("witness W {key}\nquorum W\n"), policy::Error::Witness(1)),
        (format!("log {key}\nquorum W\n"), policy::Error::Witness(2)),
        ("group g any a\nquorum none\n".to_owned(), policy::Error::Witness(1)),
        ("log nonsense\nquorum none\n".to_owned(), policy::Error::Malformed(1)),
        ("logs\nquorum none\n".to_owned(), policy::Error::Malformed(1)),
        ("quorum none\r\n".to_owned(), policy::Error::Malformed(1)),
        ("quorum none".to_owned(), policy::Error::Malformed(1)),
        (String::new(), policy::Error::Malformed(1)),
    ];
    for (text, error) in cases {
        assert_eq!(Policy::parse(text.as_bytes()), Err(error), "{text:?}");
    }
    assert!(Policy::parse(b"# caf\xe9\nquorum none\n").is_ok(), "octets of a comment are opaque");
}

#[test]
fn l_22_signatures_are_judged_as_the_published_vectors_say() {
    let Some(text) = vector_text("wycheproof/ed25519_test.json.xz") else { return };
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hex = |value: &serde_json::Value| -> Vec<u8> {
        let digits = value.as_str().unwrap().as_bytes();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    let mut judged = 0;
    for group in vectors["testGroups"].as_array().unwrap() {
        let public = hex(&group["publicKey"]["pk"]).try_into().unwrap();
        let key = VerifierKey::new("wycheproof", public).unwrap();
        for test in group["tests"].as_array().unwrap() {
            let accepted = key.verifies(&hex(&test["msg"]), &hex(&test["sig"]));
            assert_eq!(accepted, test["result"] == "valid", "{test}");
            judged += 1;
        }
    }
    assert_eq!(judged, 151);
}
