//! What holds for every sequence of bytes, and for every document that is read.

#![cfg(test)]

#[path = "../../../fuzz/src/properties/document.rs"]
mod document;

use std::collections::BTreeSet;

use document::{MEDIA, document, holds, rule};
use merkwelt_intake::{Characters, Chunk, ChunkRule, Limits, Media, Refusal, chunk, read};
use proptest::prelude::*;

#[test]
fn every_document_of_the_corpus_keeps_its_promise() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/document");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().flatten().collect();
    assert!(files.len() >= MEDIA.len(), "there is one of each kind");
    files.iter().for_each(|file| document(&std::fs::read(file.path()).unwrap()));
}

fn try_all(bytes: &[u8]) {
    for (_, media) in MEDIA {
        if let Ok(document) = read(bytes, media, &Limits::default()) {
            holds(&document);
        }
    }
}

/// Pieces of markup, so that random input gets past the first character.
fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[a-zäöüß ]{1,12}",
        1 => Just("\n\n".to_owned()),
        1 => Just("\u{308}".to_owned()),
        1 => Just("# ".to_owned()),
        1 => Just("- ".to_owned()),
        1 => Just("```\n".to_owned()),
        1 => Just("| a | b |\n|---|---|\n".to_owned()),
        4 => "</?(p|div|ul|ol|li|table|tr|td|th|h1|h2|pre|nav|script|title|head|body|svg|br|span hidden|p style=display:none)/?>",
        1 => "[<>&;/='\"!-]{1,4}",
        1 => "\\PC{1,6}",
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_stop_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        try_all(&bytes);
    }

    #[test]
    fn no_markup_stops_the_reader_or_breaks_its_promises(text in markup()) {
        try_all(text.as_bytes());
        try_all(format!("<!doctype html>{text}").as_bytes());
    }

    #[test]
    fn every_limit_ends_in_a_refusal(text in markup(), max in 0usize..200) {
        let limits = Limits { steps_max: max as u64, text_bytes_max: max, entries_max: max, depth_max: 3, ..Limits::default() };
        for media in [Media::Text, Media::Markdown, Media::Html] {
            if let Ok(document) = read(text.as_bytes(), media, &limits) {
                assert!(document.text().len() <= max && document.blocks().len() <= max);
            }
        }
    }
}

/// A long document: sections with paragraphs of different lengths.
fn paragraphs(n: usize) -> Vec<String> {
    let words =
        ["Frist", "Antrag", "Konto", "Bescheid", "gilt", "nicht", "ab", "dem", "Monat", "prüft", "Größe"];
    (0..n)
        .map(|i| {
            let len = 8 + (i * 7919) % 60;
            let body: Vec<_> = (0..len).map(|j| words[(i * 31 + j * j * 17 + j) % words.len()]).collect();
            format!("Absatz {i}: {}.", body.join(" "))
        })
        .collect()
}

fn changed(before: &[Chunk], after: &[Chunk]) -> usize {
    let known: BTreeSet<_> = before.iter().map(|chunk| (chunk.digest, chunk.occurrence)).collect();
    after.iter().filter(|chunk| !known.contains(&(chunk.digest, chunk.occurrence))).count()
}

fn chunks_of(paragraphs: &[String]) -> Vec<Chunk> {
    chunk(&read(paragraphs.join("\n\n").as_bytes(), Media::Text, &Limits::default()).unwrap(), &rule())
}

#[test]
fn r_062_a_changed_paragraph_changes_few_chunks_of_a_long_document() {
    // About 100 pages without a single heading, the hardest case: no section ends anywhere.
    let original = paragraphs(900);
    let before = chunks_of(&original);
    assert!(before.len() > 300, "{}", before.len());
    let (mut most, mut sum, mut n) = (0, 0, 0);
    for at in (0..900).step_by(100) {
        let mut replaced = original.clone();
        replaced[at] = "Hier steht nun etwas ganz anderes, das kürzer ist.".to_owned();
        let mut inserted = original.clone();
        inserted.insert(at, "Ein neuer Absatz, der vorher nirgends stand und alles verschiebt.".to_owned());
        let mut removed = original.clone();
        removed.remove(at);
        for revision in [replaced, inserted, removed] {
            let n_changed = changed(&before, &chunks_of(&revision));
            (most, sum, n) = (most.max(n_changed), sum + n_changed, n + 1);
        }
    }
    println!("{} chunks; {sum} changed in {n} revisions, at most {most}", before.len());
    assert!(most <= 6, "at worst {most} of {} chunks changed", before.len());
    assert!(sum <= 2 * n, "{sum} chunks changed in {n} revisions");
}

#[test]
fn a_heading_always_begins_a_chunk_and_names_it() {
    let text = "Vorwort.\n\n# A\n\n## B\n\nb\n\n## C\n\nc\n\n# D\n\nd";
    let document = read(text.as_bytes(), Media::Markdown, &Limits::default()).unwrap();
    let chunks = chunk(&document, &rule());
    let found: Vec<_> = chunks.iter().map(|c| (c.heading_path.join("/"), c.text.as_str())).collect();
    let expected = [("", "Vorwort."), ("A/B", "# A\n\n## B\n\nb"), ("A/C", "## C\n\nc"), ("D", "# D\n\nd")];
    assert_eq!(found, expected.map(|(path, text)| (path.to_owned(), text)));
}

#[test]
fn equal_chunks_are_told_apart_by_their_occurrence() {
    let text = "# A\n\nsame\n\n# A\n\nsame";
    let document = read(text.as_bytes(), Media::Markdown, &Limits::default()).unwrap();
    let chunks = chunk(&document, &rule());
    assert_eq!(chunks[0].digest, chunks[1].digest);
    assert_eq!((chunks[0].occurrence, chunks[1].occurrence), (0, 1));
}

#[test]
fn another_size_or_unit_is_another_rule() {
    let document = read(b"words", Media::Text, &Limits::default()).unwrap();
    let other = ChunkRule::new(&Characters, 150, 601).unwrap();
    assert_eq!(rule().id(), "merkwelt-chunk-1/chars/150-600");
    assert_ne!(chunk(&document, &rule())[0].digest, chunk(&document, &other)[0].digest);
    assert!(ChunkRule::new(&Characters, 600, 600).is_err());
}

#[test]
fn a_paragraph_of_any_size_is_divided_and_stays_whole() {
    let one = "Ein Satz mit z. B. einer Abkürzung. ".repeat(200) + &"ohnepause".repeat(500);
    holds(&read(one.as_bytes(), Media::Text, &Limits::default()).unwrap());
}

#[test]
fn i_13_a_document_with_a_recalled_block_is_refused() {
    let text = "Notes\n\n<merkwelt>\n- likes tea\n</merkwelt>";
    assert_eq!(read(text.as_bytes(), Media::Text, &Limits::default()), Err(Refusal::Recalled));
}

#[test]
fn r_110_neither_document_nor_chunk_shows_words_in_debug_output() {
    let document = read(b"secret wish", Media::Text, &Limits::default()).unwrap();
    let shown = format!("{document:?} {:?}", chunk(&document, &rule()));
    assert!(!shown.contains("secret"), "{shown}");
}
