//! What the API promises to those who may: each route once through, with the headers and fields that the
//! document names.
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use merkwelt_authz::Role;
use merkwelt_ledger::{Hash, VerifierKey, verify_export};
use serde_json::{Value, json};
use stage::{Stage, in_days};

#[tokio::test]
async fn r_038_each_delivered_item_states_owner_scope_origin_and_validity() {
    let stage = Stage::new();
    let admin = stage.key(Role::TenantAdmin);
    stage.call("POST", "/v1/groups").key(admin).json(&json!({ "name": "support" })).send().await.expect(201);
    let members =
        stage.call("POST", "/v1/groups/support/members").key(admin).json(&json!({ "add": ["anna"] }));
    assert_eq!(members.send().await.expect(200), json!({ "added": 1, "removed": 0 }));
    let opened = stage.app("POST", "/v1/conversations", "anna").json(&json!({ "keep_days": 5 })).send().await;
    let conversation = opened.expect(201)["id"].as_str().unwrap().to_owned();
    for (owner, extra) in [
        (json!("subject"), json!({ "conversation": conversation })),
        (json!({ "group": "support" }), json!({ "no_expiry_reason": "company_knowledge" })),
        (json!("tenant"), json!({ "expires_at": in_days(30) })),
    ] {
        let mut body =
            json!({ "kind": "user_fact", "text": format!("Tea is served at four: {owner}"), "owner": owner });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        stage.app("POST", "/v1/memories", "anna").json(&body).send().await.expect(201);
    }
    let search = json!({ "question": "When is tea served?" });
    let found = stage.app("POST", "/v1/recall", "anna").json(&search).send().await.expect(200);
    let listed = stage.app("GET", "/v1/memories", "anna").send().await.expect(200);
    let packed = stage.app("POST", "/v1/context", "anna").json(&search).send().await.expect(200);
    for items in [&found["hits"], &listed["items"], &packed["items"]] {
        let items = items.as_array().unwrap();
        assert_eq!(items.len(), 3);
        for item in items {
            assert!(item["owner"]["tenant"].as_str().unwrap().starts_with("ten_"), "{item}");
            let prefix = match item["owner"]["scope"].as_str().unwrap() {
                "subject" => "sub_",
                "group" => "grp_",
                _ => "",
            };
            assert!(item["owner"]["id"].as_str().unwrap_or_default().starts_with(prefix), "{item}");
            assert_eq!(item["origin"]["author"], "application");
            assert!(item["origin"]["written_at"].is_string() && item["valid_from"].is_string());
            assert!(item["expires_at"].is_string() != item["no_expiry_reason"].is_string(), "{item}");
        }
    }
    let seen = stage.app("GET", "/v1/memories", "bert").send().await.expect(200);
    assert_eq!(seen["items"].as_array().unwrap().len(), 1, "others see only what is the tenant's");
}

#[tokio::test]
async fn r_012_a_reference_delivers_where_to_look_and_how() {
    let stage = Stage::new();
    let pointer = json!({ "uri": "crm://order/17", "resolve": "tool:crm.get_order" });
    let body = json!({ "kind": "reference", "text": "State of order 17", "pointer": pointer });
    let made = stage.app("POST", "/v1/memories", "anna").json(&body).send().await.expect(201);
    let id = made["id"].as_str().unwrap();
    let read = stage.app("GET", &format!("/v1/memories/{id}"), "anna").send().await.expect(200);
    assert_eq!(read["items"][0]["pointer"], pointer);
    let question = json!({ "question": "What is the state of order 17?" });
    let pack = stage.app("POST", "/v1/context", "anna").json(&question).send().await.expect(200);
    let turn = pack["turn"].as_str().unwrap();
    assert!(turn.contains("crm://order/17 (resolve with tool:crm.get_order)"), "{turn}");
}

#[tokio::test]
async fn r_100_delivered_content_names_its_read_event_and_verifies_offline() {
    let stage = Stage::new();
    let id = stage.remember("M%C3%BCller", "Likes tea").await;
    let read = stage.app("GET", &format!("/v1/memories/{id}"), "Müller");
    let read = read.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let read = read.header("merkwelt-run", "run-1").header("merkwelt-call", "call-1").send().await;
    assert_eq!(read.expect(200)["read_id"], read.header("merkwelt-read-id"));
    let index: usize = read.header("merkwelt-ledger-index").parse().unwrap();
    let auditor = stage.key(Role::Auditor);
    let export = stage.call("GET", "/v1/ledger/export").key(auditor).send().await;
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let head = stage.call("GET", "/v1/ledger/checkpoint").key(auditor).send().await;
    let key = VerifierKey::parse(head.header("merkwelt-verifier-key")).unwrap();
    let report = verify_export(export.body.as_slice(), Some(&key), None).unwrap();
    assert!(report.size > index as u64);
    let leaf = read.header("merkwelt-ledger-leaf");
    let line = export.text().lines().nth(index + 1).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["index"], index);
    let bytes = STANDARD.decode(line["leaf"].as_str().unwrap()).unwrap();
    assert_eq!(Hash::of_leaf(&bytes).to_hex(), leaf);
    let proof = stage.call("GET", &format!("/v1/ledger/entries/{index}/proof")).key(auditor).send().await;
    assert_eq!(proof.header("content-type"), "text/plain; charset=utf-8");
    assert!(proof.text().starts_with("c2sp.org/tlog-proof"), "{}", proof.text());
    let beyond = stage.call("GET", "/v1/ledger/entries/9999/proof").key(auditor).send().await;
    beyond.problem("not_found");
    assert!(!export.text().contains("Likes tea") && !export.text().contains("ller"));
}

#[tokio::test]
async fn a_pack_is_delivered_again_byte_for_byte() {
    let stage = Stage::new();
    stage.remember("anna", "Likes tea").await;
    let body = json!({ "question": "What does she like?", "budget": 500 });
    let pack = stage.app("POST", "/v1/context", "anna").json(&body).send().await;
    let id = pack.expect(200)["pack_id"].as_str().unwrap().to_owned();
    assert_eq!(pack.value()["budget"], 500);
    let again = stage.app("GET", &format!("/v1/packs/{id}"), "anna").send().await;
    again.expect(200);
    assert_eq!(again.body, pack.body);
    assert_ne!(again.header("merkwelt-read-id"), pack.header("merkwelt-read-id"));
}

#[tokio::test]
async fn a_large_pack_is_made_apart_and_is_the_same_pack() {
    let stage = Stage::new();
    for number in 0..40 {
        stage.remember("anna", &format!("Likes tea number {number}")).await;
    }
    let pack = async |budget: u32| {
        let body = json!({ "question": "What does she like?", "budget": budget });
        let pack = stage.app("POST", "/v1/context", "anna").json(&body).send().await.expect(200);
        (pack["system"]["facts"].clone(), pack["turn"].clone(), pack["tokens"].clone())
    };
    let (here, apart) = (pack(8_000).await, pack(8_001).await);
    assert!(here.0.as_str().unwrap().contains("number 39"), "{}", here.0);
    assert_eq!(here, apart);
    // A refusal comes back the same way.
    let body =
        json!({ "question": "tea", "budget": 128_000, "conversation": "con_aaaaaaaaaaaaaaaaaaaaaaaaaa" });
    stage.app("POST", "/v1/context", "anna").json(&body).send().await.problem("not_found");
}

#[tokio::test]
async fn a_memory_is_merged_superseded_corrected_and_withdrawn() {
    let stage = Stage::new();
    let post = |text: &str| {
        let body = json!({
            "kind": "project_state", "text": text, "slot": "eta:order-17", "expires_at": in_days(7),
        });
        stage.app("POST", "/v1/memories", "anna").json(&body).send()
    };
    let first = post("Arrives on Monday").await.expect(201);
    let id = first["id"].as_str().unwrap().to_owned();
    assert_eq!((&first["outcome"], &first["revision"]), (&json!("created"), &json!(1)));
    let second = post("Arrives on Tuesday").await.expect(201);
    assert_eq!(
        (&second["outcome"], &second["id"], &second["revision"]),
        (&json!("superseded"), &first["id"], &json!(2))
    );
    let merged = post("Arrives on Tuesday").await.expect(200);
    assert_eq!((&merged["outcome"], &merged["revision"]), (&json!("merged"), &json!(2)));
    let path = format!("/v1/memories/{id}");
    let body = json!({
        "kind": "project_state", "text": "Arrives on Friday", "slot": "eta:order-17", "expires_at": in_days(9),
        "expected_revision": 2,
    });
    assert_eq!(stage.app("PUT", &path, "anna").json(&body).send().await.expect(200)["revision"], 3);
    let read = stage.app("GET", &path, "anna").send().await.expect(200);
    assert_eq!(
        (&read["items"][0]["text"], &read["items"][0]["slot"]),
        (&json!("Arrives on Friday"), &json!("eta:order-17"))
    );
    let withdrawn = stage.app("DELETE", &path, "anna").send().await.expect(200);
    assert_eq!((&withdrawn["outcome"], &withdrawn["id"]), (&json!("retracted"), &json!(id)));
    stage.app("GET", &path, "anna").send().await.problem("not_found");
}

#[tokio::test]
async fn r_026_a_conversation_is_opened_continued_read_and_deleted() {
    let stage = Stage::new();
    for (body, kept) in [(json!({ "keep_days": 30 }), true), (json!({}), false)] {
        let opened = stage.app("POST", "/v1/conversations", "anna").json(&body).send().await.expect(201);
        assert_eq!(opened["retention"], if kept { "kept" } else { "session" });
        let path = format!("/v1/conversations/{}", opened["id"].as_str().unwrap());
        for (i, role) in ["user", "assistant", "tool"].into_iter().enumerate() {
            let turn = json!({ "role": role, "text": format!("Turn {i}") });
            let said =
                stage.app("POST", &format!("{path}/turns"), "anna").json(&turn).send().await.expect(201);
            assert_eq!((&said["number"], &said["kept"]), (&json!(i + 1), &json!(kept)));
            assert_eq!(said["ledger"].is_object(), kept, "a turn of the sitting leaves no trace on disk");
        }
        let read = stage.app("GET", &format!("{path}?limit=2"), "anna").send().await.expect(200);
        assert_eq!(read["turns"][0]["role"], "person");
        if kept {
            let cursor = read["next"].as_str().unwrap();
            let rest = stage.app("GET", &format!("{path}?limit=2&cursor={cursor}"), "anna").send().await;
            assert_eq!(rest.expect(200)["turns"].as_array().unwrap().len(), 1);
        }
        let listed = stage.app("GET", "/v1/conversations", "anna").send().await.expect(200);
        assert_eq!(listed["conversations"][0]["id"], opened["id"]);
        let counted = [&listed["conversations"][0]["n_turns"], &read["conversation"]["n_turns"]];
        assert_eq!(counted, [&json!(3), &json!(3)], "kept: {kept}");
        let gone = stage.app("DELETE", &path, "anna").send().await.expect(200);
        assert_eq!((&gone["turns"], &gone["memories"]), (&json!(if kept { 3 } else { 0 }), &json!(0)));
        stage.app("GET", &path, "anna").send().await.problem("not_found");
    }
}

#[tokio::test]
async fn a_key_is_shown_once_lists_without_secret_and_ends_with_the_next_request() {
    let stage = Stage::new();
    let admin = stage.key(Role::TenantAdmin);
    let wanted = json!({ "label": "chat", "role": "app", "subject": "anna", "expires_at": in_days(30) });
    let made = stage.call("POST", "/v1/keys").key(admin).json(&wanted).send().await.expect(201);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert_eq!((&made["bound"], &made["act_for"]), (&json!(true), &json!(false)));
    let own = stage.call("GET", "/v1/memories").header("x-api-key", key).send().await;
    own.expect(200);
    stage.call("GET", "/v1/memories").key(key).subject("bert").send().await.problem("not_found");
    let listed = stage.call("GET", "/v1/keys").key(admin).send().await;
    assert!(!listed.text().contains(key));
    let listed = listed.expect(200)["keys"].as_array().unwrap().clone();
    let listed = listed.iter().find(|key| key["id"] == id).unwrap().clone();
    assert!(listed["subject"].as_str().unwrap().starts_with("sub_"));
    let revoked = stage.call("DELETE", &format!("/v1/keys/{id}")).key(admin).send().await;
    revoked.expect(204);
    stage.call("GET", "/v1/memories").key(key).send().await.problem("unauthenticated");
}

#[tokio::test]
async fn r_036_the_last_administrators_key_is_not_revoked_and_the_answer_says_what_to_do_first() {
    let stage = Stage::new();
    for (role, name) in [(Role::TenantAdmin, "tenant_admin"), (Role::InstanceAdmin, "instance_admin")] {
        let admin = stage.key(role);
        let listed = stage.call("GET", "/v1/keys").key(admin).send().await.expect(200);
        let own = listed["keys"].as_array().unwrap().iter().find(|key| key["role"] == name).unwrap().clone();
        let path = format!("/v1/keys/{}", own["id"].as_str().unwrap());
        let refused = stage.call("DELETE", &path).key(admin).send().await;
        assert!(refused.expect(409)["detail"].as_str().unwrap().contains("Create another of the same role"));
        refused.problem("last_admin_key");
        let wanted = json!({ "label": "second", "role": name });
        stage.call("POST", "/v1/keys").key(admin).json(&wanted).send().await.expect(201);
        stage.call("DELETE", &path).key(admin).send().await.expect(204);
        stage.call("GET", "/v1/keys").key(admin).send().await.problem("unauthenticated");
    }
}

#[tokio::test]
async fn r_029_a_group_is_filled_emptied_and_deleted_from_the_next_read_on() {
    let stage = Stage::new();
    let admin = |method: &str, path: &str| stage.call(method, path).key(stage.key(Role::TenantAdmin));
    admin("POST", "/v1/groups").json(&json!({ "name": "support" })).send().await.expect(201);
    let change = |body: Value| admin("POST", "/v1/groups/support/members").json(&body).send();
    change(json!({ "add": ["anna", "Müller"] })).await.expect(200);
    let members = admin("GET", "/v1/groups/support/members").send().await.expect(200);
    assert_eq!(members["members"].as_array().unwrap().len(), 2);
    let groups = admin("GET", "/v1/groups").send().await.expect(200);
    assert_eq!(
        (&groups["groups"][0]["name"], &groups["groups"][0]["members"]),
        (&json!("support"), &json!(2))
    );
    let body = json!({ "kind": "user_fact", "text": "Tea at four", "owner": { "group": "support" } });
    stage.app("POST", "/v1/memories", "anna").json(&body).send().await.expect(201);
    let n_seen = async || {
        let listed = stage.app("GET", "/v1/memories", "anna").send().await.expect(200);
        listed["items"].as_array().unwrap().len()
    };
    assert_eq!(n_seen().await, 1);
    change(json!({ "remove": ["anna"] })).await.expect(200);
    assert_eq!(n_seen().await, 0);
    admin("DELETE", "/v1/groups/support").send().await.expect(204);
    admin("GET", "/v1/groups/support/members").send().await.problem("not_found");
}

#[tokio::test]
async fn pages_filters_and_kinds_narrow_a_listing() {
    let stage = Stage::new();
    for i in 0..5 {
        stage.remember("anna", &format!("Fact {i}")).await;
    }
    let state = json!({ "kind": "project_state", "text": "On leave", "expires_at": in_days(2) });
    stage.app("POST", "/v1/memories", "anna").json(&state).send().await.expect(201);
    let list = async |query: &str| {
        stage.app("GET", &format!("/v1/memories?{query}"), "anna").send().await.expect(200)
    };
    let (mut n, mut cursor) = (0, String::new());
    loop {
        let page = list(&format!("limit=2&kind=user_fact{cursor}")).await;
        n += page["items"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(n, 5);
    assert_eq!(list("kind=feedback").await["items"], json!([]));
    let n_at = async |days: u32| {
        let query = format!("kind=project_state,feedback&valid_from={}", in_days(days));
        list(&query).await["items"].as_array().unwrap().len()
    };
    assert_eq!((n_at(1).await, n_at(3).await), (1, 0), "it ends after two days");
}

#[tokio::test]
async fn tenants_are_created_and_listed_by_the_instance_only() {
    let stage = Stage::new();
    let (admin, _) = stage.second_tenant("globex").await;
    let listed =
        stage.call("GET", "/v1/tenants").key(stage.key(Role::InstanceAdmin)).send().await.expect(200);
    let names: Vec<_> = listed["tenants"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, ["acme", "globex"]);
    stage.call("GET", "/v1/tenants").key(&admin).send().await.problem("not_found");
}

#[tokio::test]
async fn health_and_readiness_need_no_key() {
    let stage = Stage::new();
    assert_eq!(stage.call("GET", "/healthz").send().await.expect(200), json!({ "status": "ok" }));
    let ready = stage.call("GET", "/readyz").send().await.expect(200);
    assert_eq!((&ready["status"], &ready["retrieval"]), (&json!("ready"), &json!("lexical")));
    let metrics = stage.call("GET", "/metrics").send().await;
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    let own = "merkwelt_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"2xx\"} 1\n";
    assert!(metrics.text().contains(own), "{}", metrics.text());
}
