//! Every small change to an exported log is detected, and so is every rewriting of what somebody has seen.

use merkwelt_ledger::checkpoint::Error as CheckpointError;
use merkwelt_ledger::*;

use crate::fixture::*;

fn lines(export: &[u8]) -> Vec<Vec<u8>> {
    export.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn short_export() -> Vec<u8> {
    let mut all = drafts();
    all.remove(2);
    export(&all)
}

#[test]
fn r_099_an_untouched_log_verifies() {
    let report = verify(&export(&drafts())).unwrap();
    assert_eq!((report.size, report.n_exceptions), (5, 0));
    assert_eq!(report.trust, Trust::PinnedKey);
    assert_eq!(report.span, Some((at(0), at(4000))));
    assert_eq!(report.by_type["read"], 2);
}

#[test]
fn r_099_a_changed_byte_anywhere_is_detected() {
    let export = short_export();
    for position in 0..export.len() {
        for flip in [0x01, 0x04, 0x20, 0x80] {
            let mut changed = export.clone();
            changed[position] ^= flip;
            assert!(verify(&changed).is_err(), "byte {position} flipped by {flip}");
            assert!(verify_export(changed.as_slice(), None, None).is_err(), "byte {position} without a key");
        }
    }
}

#[test]
fn r_099_a_removed_byte_anywhere_is_detected() {
    let export = short_export();
    for position in 0..export.len() {
        let mut changed = export.clone();
        let removed = changed.remove(position);
        assert!(verify(&changed).is_err(), "byte {position} ({removed})");
    }
}

#[test]
fn r_099_an_inserted_byte_anywhere_is_detected() {
    let export = short_export();
    for position in 0..=export.len() {
        for byte in [b' ', b'\n', b'0', b'A', b'='] {
            let mut changed = export.clone();
            changed.insert(position, byte);
            assert!(verify(&changed).is_err(), "byte {byte} at {position}");
        }
    }
}

#[test]
fn r_099_swapped_bytes_are_detected() {
    let export = short_export();
    for position in 1..export.len() {
        let mut changed = export.clone();
        changed.swap(position - 1, position);
        assert!(changed == export || verify(&changed).is_err(), "bytes {position}");
    }
}

#[test]
fn r_099_a_file_cut_off_anywhere_is_detected() {
    let export = short_export();
    for length in 0..export.len() {
        assert!(verify(&export[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn r_099_removed_repeated_and_reordered_entries_are_detected() {
    let lines = lines(&export(&drafts()));
    for a in 0..lines.len() {
        let mut removed = lines.clone();
        removed.remove(a);
        assert!(verify(&removed.concat()).is_err(), "line {a} removed");
        let mut repeated = lines.clone();
        repeated.insert(a, lines[a].clone());
        assert!(verify(&repeated.concat()).is_err(), "line {a} repeated");
        for b in 0..a {
            let mut swapped = lines.clone();
            swapped.swap(a, b);
            assert!(verify(&swapped.concat()).is_err(), "lines {a} and {b} swapped");
        }
    }
}

/// The lines of a forger who renumbers what is left and keeps the true checkpoint.
fn renumbered(leaves: &[Vec<u8>], true_export: &[u8]) -> Vec<u8> {
    let mut forged = lines(&export_bytes(leaves, &signer()));
    let last = forged.len() - 1;
    forged[last] = lines(true_export).pop().unwrap();
    forged.concat()
}

#[test]
fn r_099_renumbering_after_a_removal_insertion_or_swap_is_detected() {
    let true_export = export(&drafts());
    let leaves: Vec<_> = log_of(&drafts()).1.into_iter().map(|leaf| leaf.bytes).collect();
    assert!(verify(&renumbered(&leaves, &true_export)).is_ok(), "the forger's tools work");
    let failed = |leaves: &[Vec<u8>]| verify(&renumbered(leaves, &true_export)).unwrap_err().reason;
    for position in 0..leaves.len() {
        let mut removed = leaves.clone();
        removed.remove(position);
        assert_eq!(failed(&removed), Reason::SizeMismatch);
        let mut inserted = leaves.clone();
        inserted.insert(position, leaves[position].clone());
        assert_eq!(failed(&inserted), Reason::SizeMismatch);
        let mut replaced = leaves.clone();
        replaced[position] =
            String::from_utf8(leaves[position].clone()).unwrap().replace("key-21", "key-22").into();
        assert_eq!(failed(&replaced), Reason::RootMismatch);
    }
    let mut swapped = leaves;
    swapped.swap(2, 3);
    assert!(matches!(failed(&swapped), Reason::RootMismatch | Reason::TimeReversed));
}

#[test]
fn r_099_a_log_signed_anew_by_a_stranger_fails_under_the_pinned_key() {
    let stranger = Signer::from_seed(ORIGIN, &[66; 32]).unwrap();
    let leaves: Vec<_> = log_of(&drafts()).1.into_iter().map(|leaf| leaf.bytes).take(3).collect();
    let forged = export_bytes(&leaves, &stranger);
    assert_eq!(verify(&forged).unwrap_err().reason, Reason::KeyNotTrusted);
    let report = verify_export(forged.as_slice(), None, None).unwrap();
    assert_eq!(report.trust, Trust::FileOnly);
    assert!(report.to_string().contains("NOT ESTABLISHED"));
    assert_eq!(
        report.exceptions,
        [Exception { index: 0, reason: ExceptionReason::GenesisKey, behind_ms: None }]
    );
}

/// Checkpoints of the true log at every size.
fn kept() -> Vec<SignedCheckpoint> {
    let (_, leaves) = log_of(&drafts());
    let mut frontier = tree::Frontier::empty();
    let mut all = vec![checkpoint(0, frontier.root(), &signer())];
    for leaf in leaves {
        frontier.push(leaf.hash).unwrap();
        all.push(checkpoint(frontier.size(), frontier.root(), &signer()));
    }
    all
}

fn verify_behind(export: &[u8], previous: &SignedCheckpoint) -> Result<Report, Failure> {
    verify_export(export, Some(signer().verifier_key()), Some(previous))
}

#[test]
fn l_23_a_log_that_continues_an_older_checkpoint_says_so() {
    for previous in kept() {
        let report = verify_behind(&export(&drafts()), &previous).unwrap();
        assert_eq!(report.continues, Some(previous.checkpoint().size()));
    }
}

#[test]
fn l_23_an_end_cut_off_by_the_operator_is_detected_behind_a_kept_checkpoint() {
    let all = kept();
    for length in 0..5_usize {
        // The operator holds the key, so the shortened log is whole in itself.
        let shortened = export(&drafts()[..length]);
        assert!(verify(&shortened).is_ok());
        for (size, previous) in all.iter().enumerate() {
            let outcome = verify_behind(&shortened, previous);
            if size > length {
                assert_eq!(outcome.unwrap_err().reason, Reason::BehindPrevious);
            } else {
                assert!(outcome.is_ok());
            }
        }
    }
}

#[test]
fn l_23_a_log_rewritten_by_the_operator_is_detected_by_a_kept_checkpoint() {
    for position in 0..5_usize {
        let mut leaves: Vec<_> = log_of(&drafts()).1.into_iter().map(|leaf| leaf.bytes).collect();
        leaves[position] =
            String::from_utf8(leaves[position].clone()).unwrap().replace("key-21", "key-22").into();
        let forked = export_bytes(&leaves, &signer());
        assert!(verify(&forked).is_ok());
        for (size, previous) in kept().iter().enumerate() {
            let outcome = verify_behind(&forked, previous);
            if size > position {
                assert_eq!(outcome.unwrap_err().reason, Reason::ForkedFromPrevious);
            } else {
                assert!(outcome.is_ok());
            }
        }
    }
}

#[test]
fn l_23_a_file_altered_after_its_export_is_not_taken_for_a_log_that_was_rewritten() {
    let true_export = export(&drafts());
    for position in 0..5_usize {
        let mut leaves: Vec<_> = log_of(&drafts()).1.into_iter().map(|leaf| leaf.bytes).collect();
        leaves[position] =
            String::from_utf8(leaves[position].clone()).unwrap().replace("key-21", "key-22").into();
        let altered = renumbered(&leaves, &true_export);
        let without = verify(&altered).unwrap_err();
        assert_eq!(without.reason, Reason::RootMismatch);
        for previous in kept() {
            assert_eq!(verify_behind(&altered, &previous).unwrap_err(), without, "{position}");
        }
    }
}

#[test]
fn l_23_checkpoints_alone_show_a_fork_without_the_log() {
    let (_, leaves) = log_of(&drafts());
    let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf.hash).collect();
    let keys = [signer().verifier_key().clone()];
    let all = kept();
    let proof = tree::consistency_proof(&tree::leaves_of(&hashes), 3, 5).unwrap();
    assert_eq!(all[5].verify_continues(&all[3], &proof, &keys), Ok(()));
    assert!(all[3].verify_continues(&all[5], &proof, &keys).is_err());
    assert_eq!(all[5].verify_continues(&all[0], &[], &keys), Ok(()));
    assert!(all[5].verify_continues(&all[0], &proof, &keys).is_err());
    let forked = checkpoint(5, Hash::of_leaf(b"another history"), &signer());
    assert!(forked.verify_continues(&all[3], &proof, &keys).is_err());
    assert!(forked.verify_continues(&all[3], &[], &keys).is_err());
    // The older one must be signed and of the same log too.
    let stranger = Signer::from_seed(ORIGIN, &[66; 32]).unwrap();
    let root = all[3].checkpoint().root();
    assert!(all[5].verify_continues(&checkpoint(3, root, &stranger), &proof, &keys).is_err());
    let other = Signer::from_seed("another.example/tenant/t-1", &[7; 32]).unwrap();
    let both = [keys[0].clone(), other.verifier_key().clone()];
    let elsewhere = checkpoint(3, root, &other);
    assert_eq!(all[5].verify_continues(&elsewhere, &proof, &both), Err(CheckpointError::Origin));
}
