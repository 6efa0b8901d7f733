//! Documents made by `fixtures/generate.py`, and where a sentence of them must be found.

#![cfg(test)]

use std::io::Write as _;

use merkwelt_intake::{Characters, ChunkRule, Document, Limits, Media, Refusal, Region, chunk, read};

const WORD: &[u8] = include_bytes!("../fixtures/anweisung.docx");
const PRINT: &[u8] = include_bytes!("../fixtures/zwei-spalten.pdf");
const SCAN: &[u8] = include_bytes!("../fixtures/nur-bild.pdf");
const LOCKED: &[u8] = include_bytes!("../fixtures/geschuetzt.pdf");
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

#[test]
fn r_082_a_sentence_of_a_pdf_is_found_on_its_page_in_its_place() {
    let print = open(PRINT, Media::Pdf);
    assert_eq!(
        print.text(),
        "# Merkblatt für Prüfer\n\nDie Prüfung der Anträge beginnt mit der linken Spalte. Über jeden Antrag wird \
         innerhalb von vierzehn Tagen entschieden.\n\nGrößere Beträge werden doppelt geprüft.\n\nDie rechte Spalte \
         folgt erst, wenn die linke zu Ende ist. Ein Widerruf ist schriftlich möglich.\n\nStraße und Hausnummer sind \
         anzugeben – sonst ruht die Frist.\n\n## Zweite Seite: Gebühren\n\nDie Gebühr beträgt 12,50 € je Antrag; \
         ermäßigt sind es 7 €.\n\nŁódź und Ærø stehen hier als Probe."
    );
    assert_eq!(print.n_pages(), Some(2));
    let (path, region) = place(&print, "Ein Widerruf");
    assert_eq!(path, "Merkblatt für Prüfer");
    let Region::Page { page, bbox } = region else { panic!("a PDF has pages") };
    // The second line of the right column: drawn at 320, 726 in a size of ten points.
    assert_eq!((page, bbox.x0), (1, 32_000));
    assert!((72_300..72_600).contains(&bbox.y0) && (73_200..73_600).contains(&bbox.y1), "{bbox:?}");
    assert!((46_000..48_500).contains(&bbox.x1), "{bbox:?}");
    let (path, region) = place(&print, "ermäßigt sind es 7 €");
    assert_eq!(path, "Merkblatt für Prüfer / Zweite Seite: Gebühren");
    assert!(matches!(region, Region::Page { page: 2, .. }));
}

#[test]
fn pdfs_without_words_and_locked_ones_are_refused_with_the_reason() {
    assert_eq!(refused(SCAN, Media::Pdf), Refusal::NoText);
    assert_eq!(refused(LOCKED, Media::Pdf), Refusal::Encrypted);
    assert!(matches!(refused(&PRINT[..300], Media::Pdf), Refusal::Broken(_)));
    assert!(matches!(refused(b"%PDF-1.7\nnothing", Media::Pdf), Refusal::Broken(_)));
    let one = Limits { pages_max: 1, ..Limits::default() };
    assert!(matches!(read(PRINT, Media::Pdf, &one), Err(Refusal::TooLarge { .. })));
}

/// A PDF of one page with the given content; `extra` goes into the dictionary of its stream.
fn pdf(content: &[u8], extra: &str, more: &str) -> Vec<u8> {
    let mut bytes = format!(
        "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj\n\
         3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>{more}>>>> \
         endobj\n5 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>> endobj\n\
         4 0 obj <</Length {}{extra}>> stream\n",
        content.len()
    )
    .into_bytes();
    bytes.extend(content);
    bytes.extend(b"\nendstream endobj\ntrailer <</Root 1 0 R>>\n");
    bytes
}

#[test]
fn what_a_pdf_draws_where_nobody_sees_it_is_left_out() {
    let content = b"BT /F 10 Tf 50 700 Td (seen) Tj ET BT /F 10 Tf 3 Tr 50 600 Td (invisible) Tj ET \
        BT 0 Tr /F 10 Tf 50 900 Td (outside) Tj ET BT /F 0.1 Tf 50 500 Td (tiny) Tj ET \
        /Artifact BMC BT /F 10 Tf 50 400 Td (furniture) Tj ET EMC";
    let read = open(&pdf(content, "", ""), Media::Pdf);
    assert_eq!(read.text(), "seen");
    assert_eq!(read.omitted().n_hidden, 1);
}

#[test]
fn a_turned_page_is_read_upright_and_its_places_stay_those_of_the_page() {
    let content =
        b"BT /F 10 Tf 0 1 -1 0 100 50 Tm (first line) Tj ET BT /F 10 Tf 0 1 -1 0 114 50 Tm (second) Tj ET";
    let turned = String::from_utf8(pdf(content, "", "")).unwrap().replace("/MediaBox", "/Rotate 90/MediaBox");
    let read = open(turned.as_bytes(), Media::Pdf);
    assert_eq!(read.text(), "first line second");
    let Region::Page { bbox, .. } = read.spans()[0].region else { panic!("a PDF has pages") };
    assert_eq!((bbox.y0, bbox.x1 > 10_000, bbox.x0 < 10_000), (5_000, true, true), "{bbox:?}");
}

#[test]
fn no_pdf_unpacks_to_more_than_it_may() {
    let limits = Limits { expanded_bytes_max: 1 << 20, ..Limits::default() };
    let bomb = |content: &[u8], extra: &str| read(&pdf(content, extra, ""), Media::Pdf, &limits);
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b' '; 2 << 20], 9);
    assert_eq!(bomb(&packed, "/Filter/FlateDecode"), Err(Refusal::Bomb));
    assert_eq!(bomb(&packed, "/Filter/#46lateDecode"), Err(Refusal::Bomb));
    assert_eq!(bomb(&packed, "/Filter 9 0 R"), Err(Refusal::Bomb));
    // Packed twice, and damaged so that one reader stops where another goes on.
    let twice = miniz_oxide::deflate::compress_to_vec_zlib(&packed, 9);
    assert_eq!(bomb(&twice, "/Filter[/FlateDecode/FlateDecode]"), Err(Refusal::Bomb));
    let mut damaged = packed.clone();
    damaged[40] ^= 0x10;
    assert_eq!(bomb(&damaged, "/Filter/FlateDecode"), Err(Refusal::Bomb));
    let wide = "/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 999999999>>";
    assert!(matches!(bomb(&packed[..20], wide), Err(Refusal::Broken(_))));
    // A form that draws itself ends.
    let form = "/XObject<</X 4 0 R>>";
    let own = pdf(b"/X Do /X Do BT /F 10 Tf 50 700 Td (a) Tj ET", "/Subtype/Form/BBox[0 0 9 9]", form);
    let few = Limits { steps_max: 3_000_000, ..Limits::default() };
    assert_eq!(read(&own, Media::Pdf, &few), Err(Refusal::TooComplex));
}

#[test]
fn streams_without_an_end_are_not_searched_again_and_again() {
    let mut endless = b"%PDF-1.4\n".to_vec();
    endless.extend(b"1 0 obj <</Length 9>> stream\n".repeat(20_000));
    assert!(matches!(refused(&endless, Media::Pdf), Refusal::Broken(_)));
    endless.extend(b"endstream");
    assert!(matches!(refused(&endless, Media::Pdf), Refusal::TooComplex | Refusal::Bomb));
}

#[test]
fn every_refusal_says_what_to_do_and_has_a_name_for_machines() {
    let refusals = [
        refused(b"", Media::Text),
        refused(b" \n", Media::Text),
        refused(SCAN, Media::Pdf),
        refused(LOCKED, Media::Pdf),
        refused(WORD, Media::Pdf),
        refused(b"{\\rtf1", Media::Text),
        refused(b"\xff\xfea", Media::Text),
    ];
    let names = ["empty", "no_text", "no_text", "encrypted", "mismatch", "unsupported", "wrong_encoding"];
    assert_eq!(refusals.map(Refusal::code), names);
    for refusal in refusals {
        let sentence = refusal.to_string();
        assert!(sentence.contains("send") || sentence.contains("declare"), "{sentence}");
    }
}

#[test]
fn no_damage_to_a_pdf_stops_the_reader() {
    for cut in (0..PRINT.len()).step_by(307) {
        let _ = read(&PRINT[..cut], Media::Pdf, &Limits::default());
        let mut damaged = PRINT.to_vec();
        damaged[cut] ^= 0x15;
        let _ = read(&damaged, Media::Pdf, &Limits::default());
    }
}

#[test]
fn a_heading_beside_the_other_column_does_not_hide_the_gutter() {
    let mut content = String::from("BT /F 14 Tf 50 700 Td (Kurze Zeile) Tj ET ");
    for (i, y) in (0..5).map(|i| (i, 680 - 14 * i)) {
        content += &format!("BT /F 10 Tf 50 {y} Td (links steht eine lange Zeile Nummer {i} im Satz) Tj ET ");
    }
    for (i, y) in (0..6).map(|i| (i, 700 - 14 * i)) {
        content += &format!("BT /F 10 Tf 290 {y} Td (rechts steht die Zeile Nummer {i}) Tj ET ");
    }
    let read = open(&pdf(content.as_bytes(), "", ""), Media::Pdf);
    let at = |words: &str| read.text().find(words).unwrap();
    assert!(read.text().starts_with("# Kurze Zeile\n\nlinks steht"), "{}", read.text());
    assert!(at("Nummer 4 im Satz") < at("rechts steht die Zeile Nummer 0"));
}
