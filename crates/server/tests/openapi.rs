//! The committed document is the one the code makes, it is fit for generators of clients, and its examples
//! are real answers. `MERKWELT_UPDATE=1` writes both anew.
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stage::{Stage, in_days};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A committed file, after it was written anew if that is wanted.
#[expect(clippy::disallowed_methods, reason = "the variable asks a developer's run to write files")]
fn committed(path: &str, made: &str) -> String {
    let path = here(path);
    if std::env::var("MERKWELT_UPDATE").is_ok() {
        fs::write(&path, made).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default()
}

const STALE: &str = "a committed file is not up to date: run this test with MERKWELT_UPDATE=1";

/// An answer without what is drawn at random or depends on it.
fn masked(value: Value) -> Value {
    match value {
        Value::String(text) => match text.split_once('_') {
            Some((prefix, random)) if prefix.len() == 3 && random.len() == 26 => prefix.into(),
            Some(_) | None => text.into(),
        },
        Value::Array(list) => list.into_iter().map(masked).collect(),
        Value::Object(map) => {
            let random = ["leaf", "index", "etag"];
            let entry = |(key, value)| {
                let value = if random.contains(&String::as_str(&key)) { Value::Null } else { masked(value) };
                (key, value)
            };
            map.into_iter().map(entry).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[test]
fn the_committed_document_is_the_generated_one() {
    let made = merkwelt_server::http::openapi_json();
    assert!(committed("../../openapi.json", &made) == made, "{STALE}");
}

#[tokio::test]
async fn the_served_document_is_the_generated_one() {
    let served = Stage::new().call("GET", "/openapi.json").send().await;
    assert_eq!(served.text(), merkwelt_server::http::openapi_json());
}

#[tokio::test]
async fn the_examples_are_real_answers() {
    let stage = Stage::new();
    let post = |path: String, body: Value| stage.app("POST", &path, "anna").json(&body).send();
    let example = |name: &str, value: &Value| {
        let pretty = serde_json::to_string_pretty(value).unwrap() + "\n";
        let committed = committed(&format!("src/http/examples/{name}.json"), &pretty);
        let committed = serde_json::from_str(&committed).unwrap_or_default();
        assert_eq!(masked(committed), masked(value.clone()), "{name}: {STALE}");
    };
    let fact = json!({ "kind": "user_fact", "text": "Prefers answers in French", "origin": "person" });
    example("remember", &post("/v1/memories".into(), fact).await.expect(201));
    let rule = json!({ "kind": "feedback", "text": "Never promise a delivery date" });
    post("/v1/memories".into(), rule).await.expect(201);
    let state = json!({
        "kind": "project_state", "text": "Order 17 arrives on Monday", "slot": "eta:order-17",
        "expires_at": in_days(7),
    });
    post("/v1/memories".into(), state).await.expect(201);
    let opened = post("/v1/conversations".into(), json!({ "keep_days": 30 })).await.expect(201);
    example("open_conversation", &opened);
    let conversation = opened["id"].as_str().unwrap();
    let turn = json!({ "role": "person", "text": "My order 17 has not come yet" });
    example("append_turn", &post(format!("/v1/conversations/{conversation}/turns"), turn).await.expect(201));
    let search = json!({ "question": "Which language does she prefer?", "k": 1 });
    example("recall", &post("/v1/recall".into(), search).await.expect(200));
    let turn = json!({ "question": "When does my order arrive?", "conversation": conversation });
    example("assemble_context", &post("/v1/context".into(), turn).await.expect(200));
}

fn document() -> Value {
    serde_json::from_str(&merkwelt_server::http::openapi_json()).unwrap()
}

/// Every value under a key, wherever it stands.
fn values<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(key));
            map.values().for_each(|value| values(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| values(value, key, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut references = Vec::new();
    values(&document, "$ref", &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn the_document_is_fit_for_generators() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["license"]["identifier"], "Apache-2.0");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let described = response["$ref"].is_string() || response["description"].is_string();
                assert!(described, "{method} {path} {status}");
            }
            let security = operation["security"].as_array().unwrap();
            let needs_key = path.starts_with("/v1/");
            assert_eq!(security.contains(&json!({ "bearer": [] })), needs_key, "{method} {path}");
        }
    }
    for response in document["components"]["responses"].as_object().unwrap().values() {
        assert!(!response["description"].as_str().unwrap().is_empty());
    }
}

#[test]
fn every_code_of_a_problem_is_documented() {
    let document = document();
    let description = document["info"]["description"].as_str().unwrap();
    for code in merkwelt_server::http::problem::Code::ALL {
        assert!(description.contains(&format!("| `{}` | {} |", code.name, code.status)), "{}", code.name);
    }
}
