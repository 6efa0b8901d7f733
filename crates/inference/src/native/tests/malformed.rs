//! A damaged model file is refused or harmless, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::kernels::{Kernels, PORTABLE};
use super::super::{E5, Error, Source};
use super::synthetic::{Random, file, open};
use crate::embed::{Embedder as _, Role};

const TEXTS: [&str; 3] = ["", "ab abc\tüu\u{308} ﬁ \u{200b}日本 zz", "x y z a b c x y z a b c x y z a b c"];

/// Opens the file and, if that is possible, embeds some texts. Whatever comes out is fine.
fn exercise(bytes: Vec<u8>) -> bool {
    let Ok(model) = open(bytes, Kernels::detect()) else { return false };
    let _ = model.embed(Role::Query, &TEXTS);
    true
}

#[test]
fn the_untouched_file_is_accepted() {
    let model = open(file(), PORTABLE).unwrap();
    let embeddings = model.embed(Role::Passage, &TEXTS).unwrap();
    let truncated: Vec<bool> = embeddings.iter().map(crate::Embedding::truncated).collect();
    assert_eq!(truncated, [false, false, true]);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let whole = file();
    for len in (0..whole.len()).filter(|len| *len < 2_000 || len % 97 == 0 || whole.len() - len < 70) {
        assert!(open(whole[..len].to_vec(), PORTABLE).is_err(), "cut at {len}");
    }
}

#[test]
fn thousands_of_random_changes_never_panic() {
    let whole = file();
    // Half of the changes hit the tables, where every byte means something.
    let tables = whole.windows(8).position(|window| window == b"emb.word").unwrap() + 1_500;
    let mut random = Random(42);
    let mut n_accepted = 0;
    let rounds = if cfg!(debug_assertions) { 3_000 } else { 30_000 };
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let end = if round % 2 == 0 { tables } else { bytes.len() };
        for _ in 0..=random.below(4) {
            let at = random.below(end);
            bytes[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << random.below(8),
                _ => random.next().to_le_bytes()[0],
            };
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| exercise(bytes)));
        n_accepted += usize::from(outcome.unwrap_or_else(|_| panic!("round {round} panicked")));
    }
    // Both sides of the door were tried: most changes of weights are harmless.
    assert!(n_accepted > rounds / 10 && n_accepted < rounds / 10 * 9, "{n_accepted} accepted");
}

#[test]
fn every_number_of_the_tables_may_be_extreme() {
    let whole = file();
    let tables = whole.windows(8).position(|window| window == b"emb.word").unwrap() + 1_500;
    for at in 0..tables {
        for extreme in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x7f80_0000_u32] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&extreme.to_le_bytes());
            let outcome = catch_unwind(AssertUnwindSafe(|| open(bytes, PORTABLE).is_ok()));
            assert!(outcome.is_ok(), "{extreme:#x} at {at} panicked");
        }
    }
}

#[test]
fn a_weight_that_is_no_number_is_refused() {
    let mut bytes = file();
    // The last tensor is a plain one.
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert_eq!(open(bytes, PORTABLE).err(), Some(Error::Malformed("a weight is not a finite number")));
}

#[test]
fn another_file_is_named_as_such() {
    let error = open(b"PK\x03\x04 something else entirely".to_vec(), PORTABLE).err().unwrap();
    assert_eq!(error.to_string(), "the model file is malformed: it does not begin with E5S1, version 1");
}

#[test]
fn reading_beyond_the_end_is_refused_before_memory_is_taken() {
    let source = Source::Memory(vec![0; 10]);
    assert!(source.read(0, usize::MAX).is_err());
    assert!(source.read(u64::MAX, 1).is_err());
    assert!(source.read(5, 6).is_err());
    assert_eq!(source.read(5, 5).unwrap(), [0; 5]);
}

#[cfg(unix)]
#[test]
fn i_014_a_model_file_that_is_changed_while_it_is_in_use_gives_no_vector_any_more() {
    let path = std::env::temp_dir().join(format!("merkwelt-inference-{}-changed", std::process::id()));
    let bytes = file();
    std::fs::write(&path, &bytes).unwrap();
    let opened = std::fs::File::open(&path).unwrap();
    let source = Source::file(opened, bytes.len() as u64).unwrap();
    let model = E5::from_source(source, "00".repeat(32), PORTABLE).unwrap();
    assert!(model.is_available() && model.embed(Role::Query, &["ab"]).is_ok());
    // As `cp` does: the same file with another content, here of another length.
    std::fs::write(&path, [bytes.as_slice(), b"more"].concat()).unwrap();
    assert!(!model.is_available());
    assert!(model.embed(Role::Query, &["ab"]).unwrap_err().is_away());
    // A name that is taken away hurts nobody who has the file open.
    std::fs::write(&path, &bytes).unwrap();
    let opened = std::fs::File::open(&path).unwrap();
    let source = Source::file(opened, bytes.len() as u64).unwrap();
    let model = E5::from_source(source, "00".repeat(32), PORTABLE).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(model.is_available() && model.embed(Role::Query, &["ab"]).is_ok());
}
