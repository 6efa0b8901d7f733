//! Every operation of the API's document stands in the table of authorisation cases, or this fails: without
//! a key 401, with the key of a role that may not 404 like something unknown, and never an answer that the
//! document does not name. There is no list of exceptions.
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

use std::collections::BTreeSet;

use merkwelt_authz::Role;
use merkwelt_server::http::routes::{PUBLIC, ROUTES};
use serde_json::{Value, json};
use stage::{Answer, Call, Stage};

/// A well-formed request for a route, of things that do not exist.
fn sample(method: &str, route: &str) -> Option<(String, Option<Value>)> {
    let memory = json!({ "kind": "user_fact", "text": "Likes tea" });
    let body = match (method, route) {
        ("POST", "/v1/memories") | ("PUT", "/v1/memories/{id}") => Some(memory),
        ("POST", "/v1/memories/batch") => Some(json!({ "memories": [memory] })),
        ("POST", "/v1/recall" | "/v1/context") => Some(json!({ "question": "What does she like?" })),
        ("POST", "/v1/conversations") => Some(json!({})),
        ("POST", "/v1/conversations/{id}/turns") => Some(json!({ "role": "person", "text": "Hello" })),
        ("POST", "/v1/conversations/{id}/summary") => {
            Some(json!({ "text": "She said hello.", "through": 1, "rule": "support-7" }))
        }
        ("PUT", "/v1/organisation-switch") => Some(json!({ "rule": "start_new" })),
        ("POST", "/v1/groups") => Some(json!({ "name": "support" })),
        ("POST", "/v1/groups/{name}/members") => Some(json!({ "add": ["anna"] })),
        ("POST", "/v1/keys") => Some(json!({ "label": "new", "role": "auditor" })),
        ("POST", "/v1/tenants") => Some(json!({ "name": "globex" })),
        ("POST", "/v1/answers") => Some(json!({
            "question": "How long?", "answer": "Thirty days.", "model": "m", "prompt": "p",
            "sources": [{ "source_id": format!("src_{}", "a".repeat(26)), "revision": 1 }],
        })),
        ("POST", "/v1/answers/lookup") => {
            Some(json!({ "question": "How long?", "model": "m", "prompt": "p" }))
        }
        ("POST", "/v1/authorizations/check") => {
            Some(json!({ "resource": { "memory": format!("mem_{}", "a".repeat(26)) } }))
        }
        ("POST", "/v1/sources") => Some(json!({ "title": "Travel expenses" })),
        ("PUT", "/v1/sources/{id}/revisions") => Some(json!({})),
        ("POST", "/v1/sources/{id}/publish" | "/v1/sources/{id}/restore") => {
            Some(json!({ "revision_id": format!("rev_{}", "a".repeat(26)) }))
        }
        ("PUT", "/v1/sources/{id}/audience") => Some(json!({ "groups": null })),
        ("POST", "/v1/sources/{id}/withdraw") | ("GET" | "DELETE", _) => None,
        _ => return None,
    };
    let id = |prefix: &str| format!("{prefix}_{}", "a".repeat(26));
    if route == "/v1/citations/{id}" {
        return Some((format!("/v1/citations/{}.1", id("rev")), body));
    }
    let prefix = match route.split('/').nth(2)? {
        "memories" => "mem",
        "packs" => "pac",
        "conversations" => "con",
        "keys" => "key",
        "sources" => "src",
        _ => "",
    };
    let path = route.replace("{id}", &id(prefix)).replace("{name}", "nobody").replace("{index}", "999999");
    let path = path.replace("{revision}", &id("rev"));
    Some((path, body))
}

fn call<'a>(stage: &'a Stage, method: &str, path: &str, body: Option<&Value>) -> Call<'a> {
    let call = stage.call(method, path);
    body.iter().fold(call, |call, body| call.json(body))
}

fn document() -> Value {
    serde_json::from_str(&merkwelt_server::http::openapi_json()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation))
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn every_operation_stands_in_the_table_and_the_table_names_no_other() {
    let document = document();
    let documented: BTreeSet<_> = operations(&document).into_iter().map(|(m, p, _)| (m, p)).collect();
    let listed = ROUTES.iter().map(|(method, route, _)| ((*method).to_owned(), (*route).to_owned()));
    let open = PUBLIC.iter().map(|path| ("GET".to_owned(), (*path).to_owned()));
    assert_eq!(documented, listed.chain(open).collect());
    for (method, route, actions) in ROUTES {
        assert!(sample(method, route).is_some(), "{method} {route} has no sample");
        assert!(!actions.is_empty(), "{method} {route} has no action");
    }
}

#[tokio::test]
async fn without_a_valid_key_every_operation_answers_401() {
    let stage = Stage::new();
    let unknown = format!("mk_{}_{}", "a".repeat(26), "a".repeat(52));
    // Whether the connection ends says only whether a body was left unread.
    let told = |answer: &Answer| {
        let (status, mut headers, body) = answer.without_request_id();
        headers.retain(|(name, _)| name != "connection");
        (status, headers, body)
    };
    let reference = told(&stage.call("GET", "/v1/memories").send().await);
    for (method, route, _) in ROUTES {
        let (path, body) = sample(method, route).unwrap();
        for key in [None, Some(unknown.as_str()), Some("nonsense")] {
            let call = call(&stage, method, &path, body.as_ref());
            let answer = key.into_iter().fold(call, Call::key).send().await;
            answer.expect(401);
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"merkwelt\"");
            assert_eq!(told(&answer), reference, "{method} {route}");
        }
    }
}

#[tokio::test]
async fn r_034_a_role_that_may_not_gets_the_answer_for_something_unknown() {
    let stage = Stage::new();
    let missing = format!("/v1/memories/mem_{}", "a".repeat(26));
    let unknown = stage.app("GET", &missing, "anna").send().await;
    unknown.problem("not_found");
    let unknown = unknown.without_request_id();
    let mut n_denied = 0;
    for (method, route, actions) in ROUTES {
        let (path, body) = sample(method, route).unwrap();
        for role in Role::ALL {
            let call = call(&stage, method, &path, body.as_ref()).key(stage.key(role));
            let acts_for = matches!(role, Role::App | Role::Agent | Role::PrivacyOfficer);
            let call = if acts_for { call.subject("anna") } else { call };
            let answer = call.send().await;
            if actions.iter().any(|action| role.may(*action)) {
                assert_ne!(answer.status.as_u16(), 401, "{method} {route} as {}", role.name());
                assert!(!answer.status.is_server_error(), "{method} {route} as {}", role.name());
            } else {
                assert_eq!(answer.without_request_id(), unknown, "{method} {route} as {}", role.name());
                n_denied += 1;
            }
        }
    }
    let metrics = stage.call("GET", "/metrics").send().await;
    let told =
        metrics.text().lines().find_map(|l| l.strip_prefix("merkwelt_denials_total ")?.parse::<u32>().ok());
    // Beside the roles, a key that needs a subject and names none is denied too.
    assert!(told.is_some_and(|told| told >= n_denied), "{told:?} of at least {n_denied}");
}

#[tokio::test]
async fn l_28_a_denial_is_an_entry_of_the_ledger() {
    let stage = Stage::new();
    let before = stage.n_entries().await;
    stage.call("GET", "/v1/keys").key(stage.key(Role::Auditor)).send().await.expect(404);
    assert_eq!(stage.n_entries().await, before + 1);
}

#[tokio::test]
async fn every_answer_is_one_that_the_document_names() {
    let stage = Stage::new();
    let document = document();
    for (method, route, operation) in operations(&document) {
        if PUBLIC.contains(&route.as_str()) {
            stage.call(&method, &route).send().await.expect(200);
            continue;
        }
        let (path, body) = sample(&method, &route).unwrap();
        let responses = operation["responses"].as_object().unwrap();
        for role in Role::ALL {
            let well = call(&stage, &method, &path, body.as_ref()).key(stage.key(role));
            let bad = call(&stage, &method, &path, Some(&json!({ "unknown": 1 }))).key(stage.key(role));
            for answer in [well.subject("anna").send().await, bad.send().await] {
                let status = answer.status.as_u16().to_string();
                assert!(responses.contains_key(&status), "{method} {route} answers {status}");
            }
        }
    }
}

#[tokio::test]
async fn an_address_with_another_method_names_the_methods_there_are() {
    let stage = Stage::new();
    let answer = stage.call("PATCH", "/v1/memories/x").send().await;
    answer.problem("method_not_allowed");
    for method in ["GET", "PUT", "DELETE"] {
        assert!(answer.header("allow").contains(method), "{:?}", answer.headers);
    }
    stage.call("GET", "/nothing").send().await.problem("not_found");
    stage.call("GET", "/v1/memories/").send().await.problem("not_found");
}
