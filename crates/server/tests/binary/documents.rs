//! Documents over HTTP on the real binary: a sentence is found where a reader of the document would look for it,
//! a citation gives its exact words, and of a changed document only what changed is embedded.

use std::fmt::Write as _;

use merkwelt_server::cli::Client;
use serde_json::{Value, json};

use crate::engines;
use crate::folders::archive;
use crate::running::Running;
use crate::scripted::{Mood, Scripted};

/// A line of a page: left, bottom, size of type, words.
type Line = (u32, u32, u32, String);

/// A PDF with these pages, each of 600 by 800 points.
fn pdf(pages: &[Vec<Line>]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|n| format!("{} 0 R", 10 + 2 * n)).collect();
    let mut out = format!(
        "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n\
         2 0 obj <</Type/Pages/Kids[{}]/Count {}>> endobj\n\
         3 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>> endobj\n",
        kids.join(" "),
        pages.len()
    );
    for (n, lines) in pages.iter().enumerate() {
        let mut content = String::new();
        for (x, y, size, words) in lines {
            let _ = write!(content, "BT /F {size} Tf {x} {y} Td (");
            for c in words.chars() {
                let _ = if c.is_ascii() {
                    write!(content, "{c}")
                } else {
                    write!(content, "\\{:03o}", u32::from(c))
                };
            }
            content += ") Tj ET\n";
        }
        let (page, stream) = (10 + 2 * n, 11 + 2 * n);
        let _ = write!(
            out,
            "{page} 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {stream} 0 R\
             /Resources<</Font<</F 3 0 R>>>>>> endobj\n\
             {stream} 0 obj <</Length {}>> stream\n{content}\nendstream endobj\n",
            content.len()
        );
    }
    out += "trailer <</Root 1 0 R>>\n";
    out.into_bytes()
}

fn lines(x: u32, top: u32, words: &[&str]) -> Vec<Line> {
    words.iter().zip(0_u32..).map(|(words, n)| (x, top - 14 * n, 10, (*words).to_owned())).collect()
}

/// Two pages of two columns; what is looked for stands in the right one of the second.
fn two_columns() -> Vec<u8> {
    let mut first = lines(50, 700, &["Diese Seite sagt, wer Anträge stellt", "und wo man sie einreicht."]);
    first.extend(lines(320, 700, &["Rechts steht die Anschrift", "der Behörde in Köln."]));
    let mut second = vec![(50, 740, 16, "Fristen".to_owned())];
    second.extend(lines(
        50,
        700,
        &["Über kleine Beträge entscheidet", "das Büro innerhalb von vierzehn", "Tagen nach dem Eingang."],
    ));
    second.push((320, 740, 16, "Gebühren".to_owned()));
    second.extend(lines(
        320,
        700,
        &["Größere Beträge über fünfhundert", "Euro prüft die Abteilung Süß", "zusätzlich auf Ermäßigungen."],
    ));
    pdf(&[first, second])
}

const WORD: &str = "<w:document><w:body><w:p><w:r><w:t>Der Urlaub wird schriftlich beantragt.</w:t></w:r></w:p>\
    <w:p><w:r><w:t>Die Vertretung übernimmt während der </w:t></w:r><w:r><w:t>Abwesenheit alle Aufträge.</w:t></w:r></w:p>\
    </w:body></w:document>";
const PAGE: &str = "<!DOCTYPE html><html><head><meta charset=utf-8><title>Reise</title></head><body><h1>Reisen</h1>\
    <p>Fahrten werden gemeldet.</p><p>Für Übernachtungen gelten <b>neunzig&nbsp;Euro</b> als Höchstbetrag.</p></body></html>";

fn publish(client: &Client, title: &str, media: &str, bytes: &[u8]) -> Value {
    let body = json!({ "title": title });
    let made = client.post("/v1/sources", &body, None).unwrap().success().unwrap();
    replace(client, made["id"].as_str().unwrap(), media, bytes)
}

fn replace(client: &Client, source: &str, media: &str, bytes: &[u8]) -> Value {
    let path = format!("/v1/sources/{source}/revisions?publish=true");
    let mut receipt = client.put(&path, media, bytes).unwrap().success().unwrap();
    receipt["source_id"] = json!(source);
    receipt
}

#[test]
fn r_082_a_document_sent_over_http_is_found_on_its_page_and_cited_by_its_exact_words() {
    const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let (app, anna) = (service.client(&service.keys.app), service.person("anna"));
    let print = publish(&app, "Merkblatt", "application/pdf", &two_columns());
    publish(&app, "Urlaub", DOCX, &archive(WORD.as_bytes()));
    publish(&app, "Reise", "text/html", PAGE.as_bytes());
    let cases = [
        (
            "Welche Abteilung prüft größere Beträge?",
            "Größere Beträge über fünfhundert Euro prüft die Abteilung Süß zusätzlich auf Ermäßigungen.",
            (json!(2), "line"),
        ),
        (
            "Wer übernimmt Aufträge während der Abwesenheit?",
            "Die Vertretung übernimmt während der Abwesenheit alle Aufträge.",
            (Value::Null, "paragraph"),
        ),
        (
            "Welcher Höchstbetrag gilt für Übernachtungen?",
            "Für Übernachtungen gelten neunzig Euro als Höchstbetrag.",
            (Value::Null, "paragraph"),
        ),
    ];
    for (question, sentence, (page, unit)) in cases {
        let found = anna.post("/v1/recall", &json!({ "question": question }), None).unwrap();
        let hit = found.success().unwrap()["hits"][0].clone();
        let said = hit["text"].as_str().unwrap().replace('\u{a0}', " ");
        assert!(said.contains(sentence), "{question}: {hit}");
        let citation = &hit["citation"];
        assert_eq!((&citation["page"], citation["unit"].as_str()), (&page, Some(unit)), "{citation}");
        let cited = anna.get(&format!("/v1/citations/{}", hit["id"].as_str().unwrap())).unwrap();
        assert!(cited.read_id.is_some());
        let cited = cited.success().unwrap();
        assert_eq!((&cited["current"], &cited["item"]["text"]), (&json!(true), &hit["text"]));
        if page == json!(2) {
            assert_eq!(citation["headings"], json!(["Gebühren"]), "{citation}");
            let bounds: Vec<i64> =
                citation["bounds"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
            // In hundredths of a point: the right column alone, from its last line up to its heading.
            assert!(bounds[0] == 32_000 && (66_800..67_500).contains(&bounds[1]), "{bounds:?}");
            assert!(bounds[2] < 60_000 && bounds[3] < 76_000, "{bounds:?}");
            assert_eq!(citation["document_sha256"].as_str().unwrap().len(), 64);
        }
    }
    let ledger = service.verified_ledger();
    let taken_in = |line: &&str| line.contains("revision_staged") && line.contains("\"document\"");
    assert_eq!(ledger.lines().filter(taken_in).count(), 3, "{ledger}");
    assert!(print["published"] == true && !ledger.contains("Süß"));
}

#[test]
fn r_094_each_document_taken_in_is_an_entry_with_a_commitment_and_no_digest_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let app = service.client(&service.keys.app);
    let made = publish(&app, "Reise", "text/html", PAGE.as_bytes());
    let source = made["source_id"].as_str().unwrap();
    replace(&app, source, "text/html", PAGE.replace("neunzig", "hundert").as_bytes());
    replace(&app, source, "text/html", PAGE.replace("neunzig", "hundert").as_bytes());
    let read = app.get(&format!("/v1/sources/{source}")).unwrap().success().unwrap();
    let ledger = service.verified_ledger();
    let entries: Vec<&str> =
        ledger.lines().filter(|line| line.contains("revision_staged") && line.contains(source)).collect();
    assert_eq!(entries.len(), 2, "one for each document, none for the same again: {ledger}");
    assert!(entries.iter().all(|entry| entry.contains("\"document\"")), "{entries:?}");
    for revision in read["revisions"].as_array().unwrap() {
        assert!(!ledger.contains(revision["document_sha256"].as_str().unwrap()));
    }
}

/// A hundred pages of paragraphs, each of six lines of words that follow from its number.
fn hundred_pages(changed: Option<u32>) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "Antrag", "Frist", "Betrag", "Prüfung", "Bescheid", "Gebühr", "Akte", "Stelle", "Nachweis", "Kosten",
        "Anlage", "Eingang", "Zeile", "Regel", "Grenze", "Folge",
    ];
    let mut seed = 7_u32;
    let mut pages = Vec::new();
    for page in 0..100_u32 {
        let mut lines = Vec::new();
        for paragraph in 0..6_u32 {
            let number = page * 6 + paragraph;
            for line in 0..6_u32 {
                let mut words = vec![format!("{number}.{line}")];
                for _ in 0..7 {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    words.push(WORDS[usize::try_from(seed >> 28).unwrap()].to_owned());
                }
                if changed == Some(number) && line == 3 {
                    words[3] = "Widerspruch".to_owned();
                }
                lines.push((50, 750 - 110 * paragraph - 14 * line, 10, words.join(" ")));
            }
        }
        pages.push(lines);
    }
    pdf(&pages)
}

#[test]
fn r_062_one_changed_paragraph_of_a_hundred_pages_is_embedded_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Scripted::start(Mood::Good);
    std::fs::write(dir.path().join("data.toml"), engines::toml("tei", &engine.url, "")).unwrap();
    let service = Running::start_with(&dir.path().join("data"), &[]);
    let app = service.client(&service.keys.app);
    engine.calls();
    let first = publish(&app, "Handbuch", "application/pdf", &hundred_pages(None));
    let n_passages = first["passages"].as_u64().unwrap();
    let texts = |engine: &Scripted| engine.calls().iter().map(|call| call.texts().len() as u64).sum::<u64>();
    assert!(n_passages > 100, "{first}");
    assert_eq!(
        (texts(&engine), &first["embedded"], &first["reused"]),
        (n_passages, &json!(n_passages), &json!(0))
    );
    let second =
        replace(&app, first["source_id"].as_str().unwrap(), "application/pdf", &hundred_pages(Some(301)));
    let n_embedded = second["embedded"].as_u64().unwrap();
    assert!((1..=2).contains(&n_embedded), "{second}");
    assert_eq!(texts(&engine), n_embedded, "what did not change was not sent to the engine");
    assert_eq!(
        second["reused"].as_u64(),
        Some(second["passages"].as_u64().unwrap() - n_embedded),
        "{second}"
    );
    assert_eq!(second["indexed"], second["passages"]);
    println!("{n_passages} passages, {n_embedded} embedded for one changed paragraph");
}
