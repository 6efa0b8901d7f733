//! Documents made by `fixtures/generate.py`, and where a sentence of them must be found.

#![cfg(test)]

use std::io::Write as _;

use merkwelt_intake::{Characters, ChunkRule, Document, Limits, Media, Refusal, Region, chunk, read};

const WORD: &[u8] = include_bytes!("../fixtures/anweisung.docx");
const PAGE: &[u8] = include_bytes!("../fixtures/hinweise.html");

fn open(bytes: &[u8], media: Media) -> Document {
    read(bytes, media, &Limits::default()).unwrap()
}

/// Headings and region of the sentence, found through its chunk as a citation would.
fn place(document: &Document, sentence: &str) -> (String, Region) {
    let rule = ChunkRule::new(&Characters, 100, 400).unwrap();
    let chunks = chunk(document, &rule);
    let found =
        chunks.iter().find(|chunk| chunk.text.contains(sentence)).expect("the sentence is in a chunk");
    let at = found.text.find(sentence).unwrap();
    let span = found.spans.iter().find(|span| span.range.contains(&at)).unwrap();
    (found.heading_path.join(" / "), span.region)
}

fn paragraph(number: u32) -> Region {
    Region::Paragraph { number }
}

#[test]
fn r_082_a_sentence_of_a_page_is_found_in_its_paragraph() {
    let page = open(PAGE, Media::Html);
    assert_eq!(
        page.text(),
        "# Hinweise zum Widerruf\n\nSie können innerhalb von 14 Tagen widerrufen.\n\n## Form\n\n1. Schriftlich\n\
         2. Per E\u{2011}Mail an post@example.org\n\n## Kosten\n\n| Art | Betrag |\n| Rücksendung | 4,90 € |\n\n\
         Für Größen über 10 kg gilt die Straßentabelle."
    );
    let (path, region) = place(&page, "Für Größen über 10 kg");
    assert_eq!((path.as_str(), region), ("Hinweise zum Widerruf / Kosten", paragraph(9)));
    assert_eq!((page.omitted().n_hidden, page.omitted().n_pictures), (1, 1));
}

#[test]
fn r_082_a_sentence_of_a_word_document_is_found_in_its_paragraph() {
    let word = open(WORD, Media::Docx);
    assert_eq!(
        word.text(),
        "# Dienstanweisung\n\n# Fristen\n\nDer Antrag wird binnen vierzehn Tagen geprüft.\n\nAusnahmen genehmigt die \
         Leitung.\n\n## Unterlagen\n\n- Ausweis\n- Meldebescheinigung\n1. Formular ausfüllen\n2. Unterschreiben\n\n\
         # Gebühren\n\n| Art | Betrag |\n| Regelgebühr | 12,50 € |\n\nDie Gebühr ist vor der Prüfung zu zahlen."
    );
    let (path, region) = place(&word, "2. Unterschreiben");
    assert_eq!((path.as_str(), region), ("Fristen / Unterlagen", paragraph(9)));
    let omitted = word.omitted();
    assert_eq!((omitted.n_deletions, omitted.n_comments, omitted.n_hidden), (1, 1, 1));
}

/// An archive with the given parts, stored or deflated.
fn archive(parts: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content, packed) in parts {
        let body = if *packed { miniz_oxide::deflate::compress_to_vec(content, 9) } else { content.to_vec() };
        let method: u16 = if *packed { 8 } else { 0 };
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut header = Vec::new();
        header.write_all(&[20, 0, 0, 0]).unwrap();
        header.extend(method.to_le_bytes());
        header.extend([0; 8]);
        header.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
        header.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        header.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        header.extend([0, 0]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&header);
        bytes.extend(name.as_bytes());
        bytes.extend(&body);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (len, offset) = (u32::try_from(directory.len()).unwrap(), u32::try_from(bytes.len()).unwrap());
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0\0\0\0\0");
    bytes.extend(len.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

const TYPES: &[u8] = br#"<Types><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;

fn word(body: &[u8]) -> Vec<u8> {
    archive(&[("[Content_Types].xml", TYPES, true), ("word/document.xml", body, true)])
}

fn refused(bytes: &[u8], media: Media) -> Refusal {
    read(bytes, media, &Limits::default()).expect_err("the document is refused")
}

#[test]
fn a_bomb_is_not_unpacked() {
    let zeros = vec![b' '; 3 << 20];
    assert_eq!(refused(&word(&zeros), Media::Docx), Refusal::Bomb);
    // Also if it hides in a part that is not read.
    let hidden = archive(&[("[Content_Types].xml", TYPES, true), ("word/media/a.bin", &zeros, true)]);
    assert_eq!(refused(&hidden, Media::Docx), Refusal::Bomb);
    // Or says that it is small.
    let mut lying = word(&zeros[..4096]);
    let len = 4096u32.to_le_bytes();
    for at in 0..lying.len() - 4 {
        if lying[at..at + 4] == len {
            lying[at..at + 4].copy_from_slice(&64u32.to_le_bytes());
        }
    }
    assert_eq!(refused(&lying, Media::Docx), Refusal::Bomb);
}

#[test]
fn names_that_lead_out_of_an_archive_are_refused() {
    for name in ["../../etc/passwd", "/etc/passwd", "word\\..\\x", "c:/x", "word/../../x"] {
        let bytes = archive(&[("[Content_Types].xml", TYPES, true), (name, b"x", false)]);
        assert!(matches!(refused(&bytes, Media::Docx), Refusal::Broken(_)), "{name}");
    }
}

#[test]
fn encrypted_and_foreign_archives_are_named() {
    let mut locked = word(b"<document/>");
    let at = locked.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    locked[at + 8] |= 1;
    assert_eq!(refused(&locked, Media::Docx), Refusal::Encrypted);
    let sheet = TYPES.to_vec();
    let sheet = String::from_utf8(sheet).unwrap().replace("wordprocessingml.document", "spreadsheetml.sheet");
    let bytes = archive(&[("[Content_Types].xml", sheet.as_bytes(), true)]);
    assert_eq!(refused(&bytes, Media::Docx), Refusal::Unsupported("a spreadsheet"));
    assert_eq!(refused(&archive(&[("a.txt", b"x", false)]), Media::Docx), Refusal::Unsupported("an archive"));
    assert!(matches!(refused(&WORD[..WORD.len() / 2], Media::Docx), Refusal::Broken(_)));
    assert!(matches!(refused(WORD, Media::Text), Refusal::Mismatch { .. }));
}

#[test]
fn entities_are_not_expanded() {
    let body = br#"<!DOCTYPE d [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;">]><d><p><t>&b;</t></p></d>"#;
    assert!(matches!(refused(&word(body), Media::Docx), Refusal::Broken(_)));
    let body = b"<document><p><r><t>a &lt;&#252;&#xDF;&gt; b</t></r></p></document>";
    assert_eq!(open(&word(body), Media::Docx).text(), "a <\u{fc}\u{df}> b");
    assert_eq!(refused(&word(b"<document><p/></document>"), Media::Docx), Refusal::NoText);
}

#[test]
fn no_damage_to_a_word_document_stops_the_reader() {
    for cut in (0..WORD.len()).step_by(499) {
        let _ = read(&WORD[..cut], Media::Docx, &Limits::default());
        let mut damaged = WORD.to_vec();
        damaged[cut] ^= 0x55;
        let _ = read(&damaged, Media::Docx, &Limits::default());
    }
}
