//! Refusals: each bad request gets its documented problem, foreign and unknown are the same bytes, and no
//! word of what was sent comes back in a problem, a metric or the log.
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::StreamExt as _;
use merkwelt_authz::Role;
use merkwelt_server::http::Limits;
use serde_json::{Value, json};
use stage::{Answer, Stage, in_days};

#[tokio::test]
async fn a_bad_field_is_named_by_its_path() {
    let stage = Stage::new();
    let fact = |more: Value| {
        let mut body = json!({ "kind": "user_fact", "text": "Likes tea" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let reference = json!({ "uri": "crm://1", "resolve": " " });
    let cases = [
        (json!({ "text": "x" }), "kind"),
        (fact(json!({ "kind": "opinion" })), "kind"),
        (fact(json!({ "text": " " })), "text"),
        (fact(json!({ "text": 7 })), "text"),
        (fact(json!({ "text": "x".repeat(16 * 1024 + 1) })), "text"),
        (fact(json!({ "text": "<merkwelt>\n- x\n</merkwelt>" })), "text"),
        (fact(json!({ "origin": "rumour" })), "origin"),
        (fact(json!({ "slot": "a b" })), "slot"),
        (fact(json!({ "metadata": { "long": "x".repeat(4096) } })), "metadata"),
        (fact(json!({ "metadata": [] })), "metadata"),
        (fact(json!({ "valid_from": "yesterday" })), "valid_from"),
        (fact(json!({ "expires_at": "2026-13-01T00:00:00Z" })), "expires_at"),
        (fact(json!({ "expires_at": "2020-01-01T00:00:00Z" })), "expires_at"),
        (fact(json!({ "no_expiry_reason": "because" })), "no_expiry_reason"),
        (fact(json!({ "no_expiry_reason": "contract_term", "expires_at": in_days(1) })), "no_expiry_reason"),
        (fact(json!({ "kind": "project_state" })), "expires_at"),
        (fact(json!({ "kind": "reference" })), "pointer"),
        (fact(json!({ "kind": "reference", "pointer": reference })), "pointer"),
        (fact(json!({ "kind": "reference", "pointer": { "uri": "x" } })), "pointer.resolve"),
        (fact(json!({ "owner": "everybody" })), "owner"),
        (fact(json!({ "owner": { "group": "*" } })), "owner.group"),
        (fact(json!({ "conversation": "con_1" })), "conversation"),
    ];
    for (body, field) in cases {
        let answer = stage.app("POST", "/v1/memories", "anna").json(&body).send().await;
        assert_eq!(answer.expect(400)["code"], "invalid");
        assert_eq!(answer.problem("invalid"), field, "{body}");
    }
}

#[tokio::test]
async fn a_batch_names_the_memory_and_keeps_nothing() {
    let stage = Stage::new();
    let good = json!({ "kind": "user_fact", "text": "Likes tea" });
    let bad = json!({ "kind": "opinion", "text": "x" });
    let send = |memories: Vec<Value>| {
        stage.app("POST", "/v1/memories/batch", "anna").json(&json!({ "memories": memories })).send()
    };
    let answer = send(vec![good.clone(), bad.clone(), good.clone(), bad]).await;
    assert_eq!(answer.problem("invalid"), "memories[1].kind");
    assert_eq!(answer.value()["errors"][1]["field"], "memories[3].kind");
    assert_eq!(send(vec![good.clone(), json!({ "kind": 1 })]).await.problem("invalid"), "memories[1].kind");
    assert_eq!(send(vec![]).await.problem("invalid"), "memories");
    assert_eq!(send(vec![good.clone(); 501]).await.problem("invalid"), "memories");
    let listed = stage.app("GET", "/v1/memories", "anna").send().await;
    assert_eq!(listed.expect(200)["items"], json!([]));
    assert_eq!(send(vec![good; 500]).await.expect(200)["outcomes"].as_array().unwrap().len(), 500);
}

#[tokio::test]
async fn bad_searches_pages_and_directories_are_refused() {
    let stage = Stage::new();
    let question = |more: Value| {
        let mut body = json!({ "question": "What?" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let span = json!({ "from": in_days(2), "until": in_days(1) });
    for (path, body, field) in [
        ("/v1/recall", json!({}), "question"),
        ("/v1/recall", question(json!({ "k": 0 })), "k"),
        ("/v1/recall", question(json!({ "k": 201 })), "k"),
        ("/v1/recall", question(json!({ "kinds": [] })), "kinds"),
        ("/v1/recall", question(json!({ "kinds": ["user_fact", "feedback"] })), "kinds[1]"),
        (
            "/v1/recall",
            question(json!({ "kinds": ["reference", "reference", "reference", "reference"] })),
            "kinds",
        ),
        ("/v1/recall", question(json!({ "history": "some" })), "history"),
        ("/v1/recall", question(json!({ "history": { "conversation": "x" } })), "history.conversation"),
        ("/v1/recall", question(json!({ "interval": span })), "interval"),
        ("/v1/recall", question(json!({ "interval": { "from": "x", "until": "y" } })), "interval.from"),
        ("/v1/context", question(json!({ "budget": 199 })), "budget"),
        ("/v1/context", question(json!({ "last_turns": 501 })), "last_turns"),
        ("/v1/context", question(json!({ "project_state": "maybe" })), "project_state"),
        ("/v1/conversations", json!({ "keep_days": 0 }), "keep_days"),
    ] {
        let answer = stage.app("POST", path, "anna").json(&body).send().await;
        assert_eq!(answer.problem("invalid"), field, "{path} {body}");
    }
    for (path, field) in [
        ("/v1/memories?kind=user_fact,opinion", "kind"),
        ("/v1/memories?limit=0", "limit"),
        ("/v1/memories?limit=many", "limit"),
        ("/v1/memories?cursor=a%20b", "cursor"),
        ("/v1/memories?cursor=made-up", "cursor"),
        ("/v1/memories?valid_from=2026", "valid_from"),
        ("/v1/memories?limit=1&limit=2", "query"),
        ("/v1/memories?tenant=globex", "query"),
        ("/v1/conversations?kind=user_fact", "query"),
    ] {
        let answer = stage.app("GET", path, "anna").send().await;
        assert_eq!(answer.problem("invalid"), field, "{path}");
    }
    let admin = stage.key(Role::TenantAdmin);
    for (path, body, field) in [
        ("/v1/groups", json!({ "name": "*" }), "name"),
        ("/v1/groups/x/members", json!({}), "add"),
        ("/v1/groups/x/members", json!({ "add": ["anna", "b*"] }), "add[1]"),
        ("/v1/keys", json!({ "label": "x", "role": "king" }), "role"),
        ("/v1/keys", json!({ "label": "x", "role": "instance_admin" }), "role"),
        (
            "/v1/keys",
            json!({ "label": "x", "role": "app", "expires_at": "2020-01-01T00:00:00Z" }),
            "expires_at",
        ),
    ] {
        let answer = stage.call("POST", path).key(admin).json(&body).send().await;
        assert_eq!(answer.problem("invalid"), field, "{path} {body}");
    }
}

#[tokio::test]
async fn bodies_that_are_no_requests_get_their_own_codes() {
    let stage = Stage::new();
    let post =
        |kind: &'static str, body: Vec<u8>| stage.app("POST", "/v1/memories", "anna").raw(kind, body).send();
    let json = "application/json";
    post(json, b"{".to_vec()).await.problem("malformed_json");
    post(json, b"".to_vec()).await.problem("malformed_json");
    post(json, b"{\"kind\":\"\xff\"}".to_vec()).await.problem("malformed_json");
    let doubled = br#"{"kind":"user_fact","text":"a","text":"b"}"#.to_vec();
    post(json, doubled).await.problem("malformed_json");
    post(json, "[".repeat(100_000).into_bytes()).await.problem("too_deep");
    post(json, vec![b' '; 10 * 1024 * 1024]).await.expect(413);
    post("text/plain", b"{}".to_vec()).await.problem("unsupported_media_type");
    let batch = stage.app("POST", "/v1/memories/batch", "anna").raw(json, vec![b' '; 10 * 1024 * 1024]);
    batch.send().await.problem("body_too_large");
    let written = stage.app("POST", "/v1/memories?x=1", "anna").raw(json, b"{}".to_vec()).send().await;
    assert_eq!(written.problem("invalid"), "query");
    let long = stage.app("GET", "/v1/memories", "anna").header("merkwelt-run", "x".repeat(20_000));
    long.send().await.problem("headers_too_large");
}

#[tokio::test]
async fn r_024_a_subject_is_one_person_and_never_everybody() {
    let stage = Stage::new();
    for bad in ["", " ", "*", "ann*", "%2A", "%", "%20anna", "a%0Ab", "\u{200b}"] {
        let listed = stage.app("GET", "/v1/memories", bad).send().await;
        assert_eq!(listed.problem("invalid"), "Merkwelt-Subject", "{bad:?}");
        let body = json!({ "question": "What?" });
        let found = stage.app("POST", "/v1/recall", bad).json(&body).send().await;
        assert_eq!(found.problem("invalid"), "Merkwelt-Subject", "{bad:?}");
    }
    let twice = stage.app("GET", "/v1/memories", "anna").subject("bert").send().await;
    assert_eq!(twice.problem("invalid"), "Merkwelt-Subject");
    let twice = stage.app("GET", "/v1/memories", "anna").key(stage.key(Role::App)).send().await;
    assert_eq!(twice.problem("invalid"), "Authorization");
    for (header, shown) in [
        ("merkwelt-purpose", "Merkwelt-Purpose"),
        ("merkwelt-run", "Merkwelt-Run"),
        ("merkwelt-call", "Merkwelt-Call"),
    ] {
        let answer = stage.app("GET", "/v1/memories", "anna").header(header, "Not A Token").send().await;
        assert_eq!(answer.problem("invalid"), shown);
    }
}

#[tokio::test]
async fn a_refusal_says_what_to_do_instead() {
    let stage = Stage::new();
    let said = |answer: Answer| answer.value()["detail"].as_str().unwrap().to_owned();
    let never = json!({ "kind": "user_fact", "text": "x", "expires_at": "9999-12-31T23:59:59Z" });
    let memory = said(stage.app("POST", "/v1/memories", "anna").json(&never).send().await);
    let never = json!({ "title": "x", "expires_at": "9999-12-31T23:59:59Z" });
    let source = said(stage.call("POST", "/v1/sources").key(stage.key(Role::App)).json(&never).send().await);
    for detail in [memory, source] {
        assert!(detail.contains("9999-12-30T22:00:00Z") && detail.contains("no_expiry_reason"), "{detail}");
    }
    let over = json!({ "title": "x", "expires_at": "2020-01-01T00:00:00Z" });
    let past = stage.call("POST", "/v1/sources").key(stage.key(Role::App)).json(&over).send().await;
    assert_eq!(past.problem("invalid"), "expires_at");
    let group =
        stage.call("POST", "/v1/groups").key(stage.key(Role::TenantAdmin)).json(&json!({ "name": "x" }));
    let repeated = said(group.header("idempotency-key", "a").send().await);
    assert!(repeated.contains("leave the header out"), "{repeated}");
    let percent = said(stage.app("GET", "/v1/memories", "100%").send().await);
    assert!(percent.contains('%') && percent.contains("one person"), "{percent}");
    let wanted = json!({ "label": "x", "role": "app" });
    let app =
        said(stage.call("POST", "/v1/keys").key(stage.key(Role::InstanceAdmin)).json(&wanted).send().await);
    assert!(app.contains("auditor") && app.contains("tenant_admin"), "{app}");
    let path = format!("/v1/sources/src_{}/revisions", "a".repeat(26));
    let document = stage.call("PUT", &path).key(stage.key(Role::App)).raw("text/plain", b"x");
    let large = document.header("content-length", (33 << 20).to_string()).send().await;
    large.problem("body_too_large");
    assert!(said(large).contains("32 MiB for a document"));
}

#[tokio::test]
async fn r_035_no_field_of_a_request_names_a_tenant_or_a_group_of_the_asker() {
    let stage = Stage::new();
    for name in
        ["tenant", "tenant_id", "organization", "groups", "group", "subject", "user_id", "scope", "role"]
    {
        for (path, mut body) in [
            ("/v1/memories", json!({ "kind": "user_fact", "text": "x" })),
            ("/v1/memories/batch", json!({ "memories": [] })),
            ("/v1/recall", json!({ "question": "x" })),
            ("/v1/context", json!({ "question": "x" })),
            ("/v1/conversations", json!({})),
        ] {
            body[name] = json!("acme");
            let answer = stage.app("POST", path, "anna").json(&body).send().await;
            assert_eq!(answer.expect(400)["code"], "invalid", "{path} {name}");
        }
        let listed = stage.app("GET", &format!("/v1/memories?{name}=acme"), "anna").send().await;
        assert_eq!(listed.problem("invalid"), "query");
    }
    let (_, other) = stage.second_tenant("globex").await;
    stage.remember("anna", "Likes tea").await;
    let foreign = stage.call("GET", "/v1/memories").key(&other).subject("anna");
    let foreign = foreign.header("merkwelt-tenant", "acme").header("x-tenant-id", "acme").send().await;
    assert_eq!(foreign.expect(200)["items"], json!([]));
}

/// Where an id goes, and what is sent there.
const BY_ID: [(&str, &str, &str); 10] = [
    ("GET", "/v1/memories/", "mem"),
    ("PUT", "/v1/memories/", "mem"),
    ("DELETE", "/v1/memories/", "mem"),
    ("GET", "/v1/packs/", "pac"),
    ("GET", "/v1/conversations/", "con"),
    ("DELETE", "/v1/conversations/", "con"),
    ("POST", "/v1/conversations/{}/turns", "con"),
    ("POST", "/v1/memories", "con"),
    ("POST", "/v1/context", "con"),
    ("GET", "/v1/memories?conversation=", "con"),
];

fn by_id(method: &str, path: &str, id: &str) -> (String, Option<Value>) {
    let at = if path.contains("{}") { path.replace("{}", id) } else { path.to_owned() };
    let body = match (method, path) {
        ("PUT", _) => json!({ "kind": "user_fact", "text": "Taken over" }),
        ("POST", "/v1/memories") => json!({ "kind": "user_fact", "text": "x", "conversation": id }),
        ("POST", "/v1/context") => json!({ "question": "x", "conversation": id }),
        ("POST", _) => json!({ "role": "person", "text": "Taken over" }),
        _ => return (format!("{at}{id}"), None),
    };
    if method == "PUT" { (format!("{at}{id}"), Some(body)) } else { (at, Some(body)) }
}

/// What Anna has: a memory, a pack, a conversation.
async fn belongings(stage: &Stage, key: &str, subject: &str) -> [(&'static str, String); 3] {
    let post = async |path: &str, body: Value| {
        let call = stage.call("POST", path).key(key).subject(subject).json(&body);
        call.send().await.value()
    };
    let id = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let conversation = id(&post("/v1/conversations", json!({ "keep_days": 5 })).await, "id");
    post(&format!("/v1/conversations/{conversation}/turns"), json!({ "role": "user", "text": "Hello" }))
        .await;
    let fact = json!({ "kind": "user_fact", "text": "Likes tea", "conversation": conversation });
    let memory = id(&post("/v1/memories", fact).await, "id");
    let pack = id(&post("/v1/context", json!({ "question": "What does she like?" })).await, "pack_id");
    [("mem", memory), ("pac", pack), ("con", conversation)]
}

/// An answer without its own ids, so that two empty pages can be compared.
fn comparable(answer: &Answer) -> (u16, Vec<String>, String) {
    let (status, headers, body) = answer.without_request_id();
    let mut body: Value = serde_json::from_str(&body).unwrap();
    if let Some(map) = body.as_object_mut() {
        map.remove("read_id");
    }
    // The headers of a delivered page name its own place in the ledger; those of a refusal are all equal.
    let shown = |(name, value): (String, Vec<u8>)| match status {
        200..300 => name,
        _ => format!("{name}: {}", String::from_utf8_lossy(&value)),
    };
    (status, headers.into_iter().map(shown).collect(), body.to_string())
}

#[tokio::test]
async fn r_034_foreign_and_unknown_ids_get_the_same_answer_and_do_the_same() {
    let stage = Stage::new();
    let (_, other) = stage.second_tenant("globex").await;
    let of_anna = belongings(&stage, stage.key(Role::App), "anna").await;
    let of_globex = belongings(&stage, &other, "anna").await;
    for (method, path, prefix) in BY_ID {
        let unknown = format!("{prefix}_{}", "a".repeat(26));
        let mut answers = Vec::new();
        let of = |mine: &[(&str, String); 3]| mine.iter().find(|(p, _)| *p == prefix).unwrap().1.clone();
        for id in [unknown, of(&of_anna), of(&of_globex)] {
            let before = stage.n_entries().await;
            let (at, body) = by_id(method, path, &id);
            let call = stage.app(method, &at, "bert");
            let answer = body.iter().fold(call, |call, body| call.json(body)).send().await;
            answers.push((comparable(&answer), stage.n_entries().await - before));
        }
        assert_eq!(answers[0], answers[1], "{method} {path}: another subject's");
        assert_eq!(answers[0], answers[2], "{method} {path}: another tenant's");
    }
    for (prefix, path) in [("mem", "/v1/memories/"), ("pac", "/v1/packs/"), ("con", "/v1/conversations/")] {
        let id = &of_anna.iter().find(|(p, _)| *p == prefix).unwrap().1;
        stage.app("GET", &format!("{path}{id}"), "anna").send().await.expect(200);
    }
}

#[tokio::test]
async fn r_034_what_is_no_id_at_all_is_answered_like_an_unknown_one() {
    let stage = Stage::new();
    let unknown = stage.app("GET", &format!("/v1/memories/mem_{}", "a".repeat(26)), "anna").send().await;
    for bad in
        ["x", "con_aaaaaaaaaaaaaaaaaaaaaaaaaa", "%FF", "..%2F..%2Fetc", "mem_AAAAAAAAAAAAAAAAAAAAAAAAAA"]
    {
        let answer = stage.app("GET", &format!("/v1/memories/{bad}"), "anna").send().await;
        assert_eq!(answer.without_request_id(), unknown.without_request_id(), "{bad}");
    }
}

#[tokio::test]
async fn r_034_keys_and_groups_of_another_tenant_are_unknown() {
    let stage = Stage::new();
    let (foreign_admin, _) = stage.second_tenant("globex").await;
    let made =
        stage.call("POST", "/v1/groups").key(&foreign_admin).json(&json!({ "name": "sales" })).send().await;
    made.expect(201);
    let keys = stage.call("GET", "/v1/keys").key(&foreign_admin).send().await.expect(200);
    let foreign_key = keys["keys"][0]["id"].as_str().unwrap().to_owned();
    let unknown_key = format!("key_{}", "a".repeat(26));
    for (method, paths, body) in [
        ("DELETE", [format!("/v1/keys/{foreign_key}"), format!("/v1/keys/{unknown_key}")], None),
        ("DELETE", ["/v1/groups/sales".to_owned(), "/v1/groups/nobody".to_owned()], None),
        ("GET", ["/v1/groups/sales/members".to_owned(), "/v1/groups/nobody/members".to_owned()], None),
        (
            "POST",
            ["/v1/groups/sales/members".to_owned(), "/v1/groups/nobody/members".to_owned()],
            Some(json!({ "add": ["eve"] })),
        ),
    ] {
        let mut answers = Vec::new();
        for path in &paths {
            let call = stage.call(method, path).key(stage.key(Role::TenantAdmin));
            let answer = body.iter().fold(call, |call, body| call.json(body)).send().await;
            answer.problem("not_found");
            answers.push(answer.without_request_id());
        }
        assert_eq!(answers[0], answers[1], "{method} {}", paths[0]);
    }
    let members = stage.call("GET", "/v1/groups/sales/members").key(&foreign_admin).send().await;
    assert_eq!(members.expect(200)["members"], json!([]));
}

#[tokio::test]
async fn conflicts_and_budgets_have_their_codes() {
    let stage = Stage::new();
    let admin = stage.key(Role::TenantAdmin);
    let group = || stage.call("POST", "/v1/groups").key(admin).json(&json!({ "name": "support" })).send();
    group().await.expect(201);
    group().await.expect(409);
    group().await.problem("conflict_exists");
    let id = stage.remember("anna", "Likes tea").await;
    let put = |expected: u32| {
        let body = json!({ "kind": "user_fact", "text": format!("Likes coffee {expected}"), "expected_revision": expected });
        stage.app("PUT", &format!("/v1/memories/{id}"), "anna").json(&body).send()
    };
    assert_eq!(put(0).await.problem("invalid"), "expected_revision");
    put(7).await.problem("conflict_revision");
    assert_eq!(put(1).await.expect(200)["revision"], 2);
    for i in 0..8 {
        let text = format!("Rule {i}: {}", "never promise a delivery date to anybody ".repeat(8));
        let rule = json!({ "kind": "feedback", "text": text });
        stage.app("POST", "/v1/memories", "anna").json(&rule).send().await.expect(201);
    }
    let body = json!({ "question": "What?", "budget": 200 });
    let answer = stage.app("POST", "/v1/context", "anna").json(&body).send().await;
    let needed = answer.expect(422)["needed_tokens"].as_u64().unwrap();
    answer.problem("budget_too_small");
    let body = json!({ "question": "What?", "budget": needed });
    stage.app("POST", "/v1/context", "anna").json(&body).send().await.expect(200);
}

#[tokio::test]
async fn an_idempotency_key_answers_again_and_refuses_another_request() {
    let stage = Stage::new();
    let send = |text: &'static str, subject: &'static str| {
        let body = json!({ "kind": "user_fact", "text": text });
        stage.app("POST", "/v1/memories", subject).header("idempotency-key", "k-1").json(&body).send()
    };
    let first = send("Likes tea", "anna").await.expect(201);
    let again = send("Likes tea", "anna").await.expect(200);
    assert_eq!(
        (&again["id"], &again["outcome"], &again["ledger"]),
        (&first["id"], &first["outcome"], &first["ledger"])
    );
    assert_eq!((&first["replayed"], &again["replayed"]), (&json!(false), &json!(true)));
    send("Likes coffee", "anna").await.expect(422);
    send("Likes coffee", "anna").await.problem("idempotency_conflict");
    send("Likes tea", "bert").await.problem("idempotency_conflict");
    let body = json!({ "name": "support" });
    let group = stage.call("POST", "/v1/groups").key(stage.key(Role::TenantAdmin));
    let group = group.header("idempotency-key", "k-2").json(&body).send().await;
    assert_eq!(group.problem("invalid"), "Idempotency-Key");
    let blank = stage.app("POST", "/v1/memories", "anna").header("idempotency-key", "a b").json(&body);
    assert_eq!(blank.send().await.expect(400)["code"], "invalid");
}

#[tokio::test]
async fn too_many_requests_are_refused_and_health_is_answered_all_the_same() {
    let stage = Stage::with(Limits { concurrent_requests: 0, ..Limits::default() });
    let answer = stage.app("GET", "/v1/memories", "anna").send().await;
    answer.problem("overloaded");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(stage.call("GET", "/healthz").send().await.expect(200), json!({ "status": "ok" }));
}

#[tokio::test]
async fn what_cannot_work_says_so_and_a_defect_ends_one_request_only() {
    let stage = Stage::with_ready(
        Limits::default(),
        Arc::new(|| Err(merkwelt_server::http::problem::Code::UNAVAILABLE)),
    );
    stage.call("GET", "/readyz").send().await.problem("unavailable");
    let stage = Stage::with_ready(Limits::default(), Arc::new(|| panic!("a defect on purpose")));
    let answer = stage.call("GET", "/readyz").send().await;
    answer.expect(500);
    assert!(!answer.text().contains("purpose"));
    stage.call("GET", "/healthz").send().await.expect(200);
    let metrics = stage.call("GET", "/metrics").send().await;
    assert!(metrics.text().contains("merkwelt_http_requests_in_flight 1\n"), "only this request is at work");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let limits = Limits { body_timeout: Duration::from_millis(20), ..Limits::default() };
    let stage = Stage::with(limits);
    let endless =
        axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, io::Error>>());
    let call = stage.app("POST", "/v1/memories", "anna").header("content-type", "application/json");
    call.send_with(endless).await.problem("slow_body");
    let limits = Limits { request_timeout: Duration::from_millis(20), ..Limits::default() };
    let stage = Stage::with(limits);
    let endless =
        axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, io::Error>>());
    let call = stage.app("POST", "/v1/memories", "anna").header("content-type", "application/json");
    call.send_with(endless).await.problem("timeout");
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes the log of each thread, and so of each test, apart.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs everything from now on. One subscriber for the whole process, because others would race for the
/// interest in an event.
fn start_log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let everything = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE);
        tracing::subscriber::set_global_default(everything.with_writer(|| Log).finish()).unwrap();
    });
    LOG.take();
}

const MARK: &str = "KANARIE";

#[tokio::test]
async fn r_110_no_word_of_a_request_comes_back_in_problems_metrics_or_logs() {
    start_log();
    let stage = Stage::new();
    let bodies = [
        json!({ "kind": MARK, "text": MARK }),
        json!({ "kind": "user_fact", "text": MARK, MARK: MARK }),
        json!({ "kind": "user_fact", "text": MARK, "owner": { MARK: MARK } }),
        json!({ "kind": "user_fact", "text": MARK, "owner": { "group": MARK } }),
        json!({ "kind": "user_fact", "text": MARK, "metadata": MARK, "slot": format!("{MARK} x") }),
        json!({ "kind": "user_fact", "text": MARK, "slot": MARK, "metadata": { MARK: MARK } }),
        json!({ "question": MARK, "history": MARK, MARK: 1 }),
        json!({ "question": MARK, "metadata": { MARK: MARK } }),
        json!({ "question": MARK, "interval": { "from": MARK, "until": MARK } }),
        json!({ "memories": [{ "kind": MARK, "text": MARK }, { MARK: MARK }] }),
        json!({ "role": MARK, "text": MARK }),
        json!({ "label": MARK, "role": MARK, "subject": MARK, "add": [MARK, "*KANARIE"] }),
        json!([MARK]),
        json!(MARK),
    ];
    let mut n_refused = 0;
    for path in [
        "/v1/memories",
        "/v1/memories/batch",
        "/v1/recall",
        "/v1/context",
        "/v1/conversations",
        "/v1/groups",
        "/v1/keys",
        "/v1/tenants",
        "/v1/groups/KANARIE/members",
        "/v1/conversations/KANARIE/turns",
        "/KANARIE",
        "/v1/memories?KANARIE=KANARIE",
        "/v1/packs/KANARIE",
    ] {
        for role in Role::ALL {
            for body in &bodies {
                let calls = [
                    stage.call("POST", path).key(stage.key(role)).subject(MARK).json(body),
                    stage.call("GET", path).key(stage.key(role)).subject(MARK),
                    stage.call("KANARIE", path).key(MARK).json(body),
                ];
                for call in calls {
                    let call = call.header("x-request-id", MARK).header("user-agent", MARK);
                    let answer = call.header("merkwelt-run", format!("{MARK} ?")).send().await;
                    if !answer.status.is_success() {
                        n_refused += 1;
                        let seen = format!("{:?} {}", answer.headers, answer.text());
                        assert!(!seen.to_lowercase().contains("kanarie"), "{path}: {seen}");
                    }
                }
            }
        }
        for body in &bodies {
            for method in ["POST", "GET", "PUT", "DELETE"] {
                let answer = stage.app(method, path, MARK).json(body).send().await;
                let refused = !answer.status.is_success();
                assert!(!refused || !answer.text().to_lowercase().contains("kanarie"), "{path}");
            }
        }
    }
    assert!(n_refused > 1_000);
    let log = String::from_utf8(LOG.take()).unwrap();
    let metrics = stage.call("GET", "/metrics").send().await;
    assert!(!metrics.text().to_lowercase().contains("kanarie"));
    assert!(!metrics.text().contains("ten_") && !metrics.text().contains("sub_"));
    assert!(log.lines().filter(|line| line.contains("\"merkwelt::http\"")).count() > 1_000);
    assert!(!log.to_lowercase().contains("kanarie"));
}

#[tokio::test]
async fn r_109_one_event_tells_ids_decision_number_duration_and_result() {
    start_log();
    let stage = Stage::new();
    stage.remember("anna", "Likes tea").await;
    let body = json!({ "question": "What does she like?" });
    let found = stage.app("POST", "/v1/recall", "anna").json(&body).send().await;
    stage.call("GET", "/v1/keys").key(stage.key(Role::App)).send().await;
    stage.call("GET", "/v1/keys").send().await;
    let log = String::from_utf8(LOG.take()).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_requests = events.iter().filter(|event| event["target"] == "merkwelt::http");
    let fields: Vec<&Value> = of_requests.map(|event| &event["fields"]).collect();
    assert_eq!(fields.len(), 4);
    let recall = fields[1];
    assert_eq!(recall["route"], "/v1/recall");
    assert_eq!(recall["request_id"], found.header("x-request-id"));
    assert_eq!((&recall["status"], &recall["items"]), (&json!(200), &json!(1)));
    assert_eq!((&recall["decision"], &recall["code"]), (&json!("allowed"), &json!("ok")));
    assert_eq!(recall["retrieval"], "lexical");
    assert!(recall["duration_ms"].is_number());
    assert!(recall["key"].as_str().unwrap().starts_with("key_"));
    assert!(recall["tenant"].as_str().unwrap().starts_with("ten_"));
    assert_eq!((&fields[2]["decision"], &fields[2]["code"]), (&json!("denied"), &json!("not_found")));
    assert_eq!(fields[3]["decision"], "unauthenticated");
}

#[tokio::test]
async fn r_113_every_alarm_rule_looks_at_a_signal_that_exists() {
    let stage = Stage::new();
    stage.remember("anna", "Likes tea").await;
    let search = json!({ "question": "What does she like?" });
    stage.app("POST", "/v1/recall", "anna").json(&search).send().await.expect(200);
    stage.call("GET", "/v1/memories").send().await.expect(401);
    let metrics = stage.call("GET", "/metrics").send().await;
    let rules = include_str!("../../../docs/alarms.yml");
    let mut n_signals = 0;
    for line in rules.lines().filter(|line| line.trim_start().starts_with("expr:")) {
        let words = line.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        for name in words.filter(|word| word.starts_with("merkwelt_")) {
            assert!(metrics.text().contains(&format!("# TYPE {name} ")), "no signal is called {name}");
            n_signals += 1;
        }
        let codes = line.split("code=").nth(1).map_or("", |rest| rest.split('}').next().unwrap());
        for code in codes.trim_matches(['~', '"']).split('|').filter(|code| !code.is_empty()) {
            let known = merkwelt_server::http::problem::Code::ALL.iter().any(|known| known.name == code);
            assert!(known, "no problem is called {code}");
        }
    }
    assert!(n_signals >= 8, "{n_signals} signals");
    assert!(metrics.text().contains("merkwelt_problems_total{code=\"unauthenticated\"} 1\n"));
}

#[tokio::test]
async fn bodies_have_room_for_all_tenants_and_give_it_back() {
    let limits = Limits { bodies_bytes_max: 1000, ..Limits::default() };
    let stage = Stage::with(limits);
    let (_, other) = stage.second_tenant("globex").await;
    let begun = |bytes: usize| {
        let first = futures_util::stream::iter([Ok::<_, io::Error>(vec![b' '; bytes])]);
        axum::body::Body::from_stream(first.chain(futures_util::stream::pending()))
    };
    let json = ("content-type", "application/json");
    let send = |key: &str, bytes: usize| {
        let call = stage.call("POST", "/v1/memories").key(key).subject("anna").header(json.0, json.1);
        call.send_with(begun(bytes))
    };
    let app = stage.key(Role::App).to_owned();
    let (first, second) = (send(&app, 400), send(&other, 500));
    let asks = async {
        // Of a thousand bytes a tenant has five hundred: a hundred more are too many for the first.
        send(&app, 101).await.problem("too_many_requests");
        // With nine hundred in memory there is no room for a third tenant either.
        let (_, third) = stage.second_tenant("initech").await;
        send(&third, 101).await.problem("overloaded");
    };
    tokio::select! {
        biased;
        _ = first => panic!("the body never came"),
        _ = second => panic!("the body never came"),
        () = asks => {}
    }
    let fact = json!({ "kind": "user_fact", "text": "x".repeat(300) });
    stage.app("POST", "/v1/memories", "anna").json(&fact).send().await.expect(201);
}

#[tokio::test]
async fn a_key_and_a_tenant_have_a_share_and_no_more() {
    let limits = Limits { key_requests: 1, tenant_requests: 2, ..Limits::default() };
    let stage = Stage::with(limits);
    let (_, other) = stage.second_tenant("globex").await;
    let waits =
        || axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, io::Error>>());
    let json = ("content-type", "application/json");
    let first = stage.app("POST", "/v1/memories", "anna").header(json.0, json.1).send_with(waits());
    let agent = stage.call("POST", "/v1/memories").key(stage.key(Role::Agent)).subject("anna");
    let second = agent.header(json.0, json.1).send_with(waits());
    let asks = async {
        // The first of this key is under way; the second is told to come back.
        let answer = stage.app("GET", "/v1/memories", "anna").send().await;
        answer.expect(429);
        answer.problem("too_many_requests");
        assert_eq!(answer.header("retry-after"), "1");
        // Another key of the tenant is told so too, because the tenant has its two under way.
        stage.call("GET", "/v1/groups").key(stage.key(Role::TenantAdmin)).send().await.expect(429);
        stage.call("GET", "/v1/memories").key(&other).subject("anna").send().await.expect(200);
    };
    tokio::select! {
        biased;
        _ = first => panic!("the body never came"),
        _ = second => panic!("the body never came"),
        () = asks => {}
    }
    // Who gave up took nothing along.
    stage.app("GET", "/v1/memories", "anna").send().await.expect(200);
}
