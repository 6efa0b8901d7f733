//! Reads the driver's own statements: each that fetches content binds the scope inside the query.

#![cfg(test)]

use std::path::Path;

const CONTENT: [&str; 5] =
    ["FROM memories", "FROM turns", "FROM conversations", "FROM packs", "FROM passages"];
/// Rooms that answer callers. Writers, the shard's loader and the erasure work on the tenant's own behalf and
/// hand nothing to a caller.
const ANSWERING: [&str; 2] = ["read.rs", "recall.rs"];

#[test]
fn r_030_every_statement_that_fetches_content_for_a_caller_binds_the_scope() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut n_statements = 0;
    for room in ANSWERING {
        let text = std::fs::read_to_string(src.join(room)).unwrap();
        for table in CONTENT {
            for (at, _) in text.match_indices(table) {
                n_statements += 1;
                let statement: String = text[at..].chars().take(420).collect();
                let end = statement
                    .find("named_params")
                    .or_else(|| statement.find(".query"))
                    .unwrap_or(420.min(statement.len()));
                let bound = ["visible!()", "shown!()", ":subject", "owner = ?2", "WHERE {way} AND"]
                    .iter()
                    .any(|b| statement[..end].contains(b));
                assert!(bound, "{room}: `{table}` without a bound scope:\n{statement}");
            }
        }
    }
    assert!(n_statements >= 10, "only {n_statements} statements were found; the rooms were renamed");
}

#[test]
fn r_056_every_statement_that_fetches_a_passage_for_a_caller_asks_for_its_audience() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/library.rs")).unwrap();
    let uses: Vec<String> = text
        .match_indices("passage_rows!(),")
        .map(|(at, _)| text[at..].chars().take(420).collect())
        .collect();
    assert!(uses.len() >= 3, "only {} statements were found; the room was rewritten", uses.len());
    for statement in uses {
        assert!(statement.contains("shown!()"), "a passage without an audience:\n{statement}");
    }
}

#[test]
fn r_030_no_statement_is_put_together_from_values() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in std::fs::read_dir(&src).unwrap().flatten().filter(|e| e.path().is_file()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let found = text.find("= '{").map(|at| text[at..].chars().take(40).collect::<String>());
        assert_eq!(found, None, "{}: a value inside a statement", entry.path().display());
    }
}
