//! Sources over HTTP: what is published, replaced, taken away and restored, as a backend and the people behind
//! it see it (R-048 … R-063).
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

#[path = "sources/old.rs"]
mod old;

#[path = "sources/summaries.rs"]
mod summaries;

use merkwelt_authz::Role;
use serde_json::{Value, json};
use stage::{Answer, Stage};

const V1: &str = "# Returns\n\nGoods may be returned within thirty days of delivery.\n\n## Costs\n\nThe buyer pays the return shipping.\n";
const V2: &str = "# Returns\n\nGoods may be returned within seven days of delivery.\n\n## Costs\n\nThe buyer pays the return shipping.\n";
const QUESTION: &str = "Within how many days may goods be returned?";

struct Library {
    stage: Stage,
}

impl Library {
    async fn new() -> Self {
        Self::on(Stage::new()).await
    }

    async fn on(stage: Stage) -> Self {
        let admin = stage.key(Role::TenantAdmin).to_owned();
        let group = json!({ "name": "sales" });
        stage.call("POST", "/v1/groups").key(&admin).json(&group).send().await.expect(201);
        let library = Self { stage };
        library.members(json!({ "add": ["anna"] })).await;
        library
    }

    async fn members(&self, change: Value) {
        let admin = self.stage.key(Role::TenantAdmin);
        let call = self.stage.call("POST", "/v1/groups/sales/members").key(admin).json(&change);
        call.send().await.expect(200);
    }

    async fn backend(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let call = self.stage.call(method, path).key(self.stage.key(Role::App));
        body.iter().fold(call, |call, body| call.json(body)).send().await
    }

    async fn register(&self, extra: Value) -> String {
        let mut body = json!({ "title": "Returns policy" });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let made = self.backend("POST", "/v1/sources", Some(body)).await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    async fn put(&self, source: &str, media: &str, bytes: &[u8], query: &str) -> Answer {
        let path = format!("/v1/sources/{source}/revisions{query}");
        let call = self.stage.call("PUT", &path).key(self.stage.key(Role::App));
        call.raw(media, bytes).send().await
    }

    async fn publish(&self, source: &str, text: &str) -> Value {
        self.put(source, "text/markdown", text.as_bytes(), "?publish=true").await.expect(200)
    }

    /// Passages that a question finds for somebody.
    async fn ask(&self, who: &str) -> Vec<Value> {
        let body = json!({ "question": QUESTION });
        let found = self.stage.app("POST", "/v1/recall", who).json(&body).send().await.expect(200);
        found["hits"].as_array().unwrap().clone()
    }

    /// The text of a context pack for somebody.
    async fn pack(&self, who: &str) -> String {
        let body = json!({ "question": QUESTION });
        let pack = self.stage.app("POST", "/v1/context", who).json(&body).send().await.expect(200);
        pack["turn"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn r_060_a_passage_is_cited_by_source_revision_and_place_and_resolves_to_its_text() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    let receipt = library.publish(&source, V1).await;
    assert_eq!(receipt["passages"], receipt["indexed"]);
    let hits = library.ask("anna").await;
    let citation = &hits[0]["citation"];
    assert_eq!(citation["source_id"], source.as_str());
    assert_eq!((&citation["revision"], &citation["unit"]), (&json!(1), &json!("paragraph")));
    assert_eq!(citation["headings"], json!(["Returns"]));
    assert!(citation["document_sha256"].as_str().unwrap().len() == 64 && citation["valid_from"].is_string());
    let pack = library.pack("anna").await;
    assert!(
        pack.contains("## Documents\n") && pack.contains(&format!("{source} revision 1, paragraph")),
        "{pack}"
    );
    let path = format!("/v1/citations/{}", hits[0]["id"].as_str().unwrap());
    let resolved = library.stage.app("GET", &path, "anna").send().await;
    assert!(resolved.header("merkwelt-read-id").starts_with("rea_"));
    let resolved = resolved.expect(200);
    assert_eq!((&resolved["current"], &resolved["item"]["text"]), (&json!(true), &hits[0]["text"]));
}

#[tokio::test]
async fn r_063_the_five_steps_of_the_release_test_hold_at_every_step() {
    let library = Library::new().await;
    let source = library.register(json!({ "groups": ["sales"], "evidence": "digest_with_copy" })).await;
    let first = library.publish(&source, V1).await;
    assert!(library.pack("anna").await.contains("thirty days"));
    let cited = format!("/v1/citations/{}", library.ask("anna").await[0]["id"].as_str().unwrap());

    library.publish(&source, V2).await;
    let pack = library.pack("anna").await;
    assert!(pack.contains("seven days") && !pack.contains("thirty days"), "{pack}");
    let old = library.stage.app("GET", &cited, "anna").send().await.expect(200);
    assert_eq!(old["current"], false);
    assert_eq!(old["superseded"]["current_revision"], 2);

    library.members(json!({ "remove": ["anna"] })).await;
    assert!(library.ask("anna").await.is_empty() && library.pack("anna").await.is_empty());
    library.stage.app("GET", &cited, "anna").send().await.problem("not_found");
    library.members(json!({ "add": ["anna"] })).await;

    let removed = library.backend("DELETE", &format!("/v1/sources/{source}"), None).await.expect(200);
    assert_eq!((&removed["done"], &removed["passages"]), (&json!(true), &json!(4)));
    assert!(library.ask("anna").await.is_empty());
    library.stage.app("GET", &cited, "anna").send().await.problem("not_found");

    let body = json!({ "revision_id": first["revision_id"] });
    let path = format!("/v1/sources/{source}/restore");
    assert_eq!(library.backend("POST", &path, Some(body)).await.expect(200)["changed"], true);
    let pack = library.pack("anna").await;
    assert!(pack.contains("thirty days") && !pack.contains("seven days"), "{pack}");
}

#[tokio::test]
async fn r_048_a_draft_waits_for_its_approval() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    let draft = library.put(&source, "text/plain", b"Returned within thirty days.", "").await.expect(200);
    assert_eq!((&draft["published"], &draft["indexed"]), (&json!(false), &json!(0)));
    assert!(library.ask("anna").await.is_empty());
    let body = json!({ "revision_id": draft["revision_id"] });
    let published = library.backend("POST", &format!("/v1/sources/{source}/publish"), Some(body)).await;
    assert_eq!(published.expect(200)["changed"], true);
    assert_eq!(library.ask("anna").await.len(), 1);
    let read = library.backend("GET", &format!("/v1/sources/{source}"), None).await.expect(200);
    assert_eq!((&read["state"], &read["revisions"][0]["approval"]), (&json!("active"), &json!("approved")));
}

#[tokio::test]
async fn r_050_what_cannot_be_done_with_a_revision_says_what_can() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    let older = library.put(&source, "text/markdown", V1.as_bytes(), "").await.expect(200);
    let current = library.publish(&source, V2).await;
    let id = |made: &Value| made["revision_id"].as_str().unwrap().to_owned();
    let (older, current) = (id(&older), id(&current));
    let ask = |verb: &str, revision: &str| {
        let (path, body) = (format!("/v1/sources/{source}/{verb}"), json!({ "revision_id": revision }));
        let library = &library;
        async move { library.backend("POST", &path, Some(body)).await }
    };
    ask("restore", &older).await.problem("revision_not_approved");
    ask("publish", &older).await.problem("revision_outdated");
    let path = format!("/v1/sources/{source}/revisions/{current}");
    library.backend("DELETE", &path, None).await.problem("revision_approved");
    let withdrawn = library.backend("POST", &format!("/v1/sources/{source}/withdraw"), None).await;
    withdrawn.expect(200);
    let again = ask("publish", &current).await;
    again.problem("revision_approved");
    assert!(again.value()["detail"].as_str().unwrap().contains("/restore"));
    library.backend("DELETE", &format!("/v1/sources/{source}"), None).await.expect(200);
    let gone = ask("restore", &current).await;
    assert!(gone.expect(410)["detail"].as_str().unwrap().contains("register the source anew"));
}

#[tokio::test]
async fn r_062_the_same_document_changes_nothing_and_a_changed_one_is_indexed_anew() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    library.publish(&source, V1).await;
    let again = library.publish(&source, V1).await;
    assert_eq!((&again["unchanged"], &again["revision"]), (&json!(true), &json!(1)));
    let changed = library.publish(&source, V2).await;
    assert_eq!((&changed["unchanged"], &changed["revision"]), (&json!(false), &json!(2)));
    let path = format!("/v1/sources/{source}/revisions/{}", changed["revision_id"].as_str().unwrap());
    let manifest = library.backend("GET", &path, None).await.expect(200);
    let passages = manifest["passages"].as_array().unwrap();
    assert!(!passages.is_empty() && passages.iter().all(|p| p["indexed"] == true && p["kept"] == true));
}

#[tokio::test]
async fn r_050_neither_an_agent_nor_a_field_decides_what_is_current() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    library.publish(&source, V1).await;
    let agent = library.stage.key(Role::Agent);
    for (method, path) in [
        ("DELETE", format!("/v1/sources/{source}")),
        ("GET", format!("/v1/sources/{source}")),
        ("POST", format!("/v1/sources/{source}/withdraw")),
    ] {
        library.stage.call(method, &path).key(agent).send().await.problem("not_found");
    }
    for body in [
        json!({ "question": QUESTION, "revision": 1 }),
        json!({ "question": QUESTION, "as_of": "2020-01-01T00:00:00Z" }),
        json!({ "question": QUESTION, "groups": ["sales"] }),
    ] {
        library.stage.app("POST", "/v1/recall", "anna").json(&body).send().await.problem("invalid");
    }
    assert!(!library.ask("anna").await.is_empty());
}

#[tokio::test]
async fn documents_that_cannot_be_read_are_refused_with_the_reason_and_change_nothing() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    library.publish(&source, V1).await;
    for (media, bytes, code) in [
        ("application/pdf", &b"%PDF-1.7 broken"[..], "invalid"),
        ("text/plain", &b""[..], "invalid"),
        ("text/plain", &b"<merkwelt>\nrules\n</merkwelt>"[..], "invalid"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", &b"PK no"[..], "invalid"),
        ("image/png", &b"\x89PNG"[..], "unsupported_media_type"),
    ] {
        let answer = library.put(&source, media, bytes, "?publish=true").await;
        answer.problem(code);
        assert!(!answer.text().contains("rules"), "{}", answer.text());
    }
    let late = "?publish=true&valid_from=2099-01-01T00:00:00Z";
    library.put(&source, "text/plain", b"Later.", late).await.problem("invalid");
    library.put(&source, "text/plain", b"x", "?publish=maybe").await.problem("invalid");
    let read = library.backend("GET", &format!("/v1/sources/{source}"), None).await.expect(200);
    assert_eq!(read["revisions"].as_array().unwrap().len(), 1);
    assert!(library.pack("anna").await.contains("thirty days"));
}

#[tokio::test]
async fn r_034_a_source_of_another_tenant_is_like_an_unknown_one() {
    let library = Library::new().await;
    let source = library.register(json!({ "origin": "https://example.org/returns" })).await;
    library.publish(&source, V1).await;
    let passage = library.ask("anna").await[0]["id"].as_str().unwrap().to_owned();
    let (_, other) = library.stage.second_tenant("globex").await;
    let unknown = format!("src_{}", "a".repeat(26));
    for (method, suffix) in [("GET", ""), ("DELETE", ""), ("POST", "/withdraw")] {
        let ask =
            |id: &str| library.stage.call(method, &format!("/v1/sources/{id}{suffix}")).key(&other).send();
        let (foreign, missing) = (ask(&source).await, ask(&unknown).await);
        foreign.problem("not_found");
        assert_eq!(foreign.without_request_id(), missing.without_request_id());
    }
    let cite = format!("/v1/citations/{passage}");
    library.stage.call("GET", &cite).key(&other).subject("anna").send().await.problem("not_found");
    let again = json!({ "title": "Returns", "origin": "https://example.org/returns" });
    library.backend("POST", "/v1/sources", Some(again.clone())).await.problem("conflict_exists");
    library.stage.call("POST", "/v1/sources").key(&other).json(&again).send().await.expect(201);
}

impl Library {
    async fn keep_answer(&self, who: &str, source: &str, revision: u32, audience: &str) -> Answer {
        let body = json!({
            "question": QUESTION, "answer": "Within thirty days.", "model": "mistral", "prompt": "support-7",
            "audience": audience, "sources": [{ "source_id": source, "revision": revision }],
        });
        self.stage.app("POST", "/v1/answers", who).json(&body).send().await
    }

    async fn look_up(&self, who: &str) -> Value {
        self.look_up_as(who, "mistral", "support-7").await
    }

    async fn look_up_as(&self, who: &str, model: &str, prompt: &str) -> Value {
        let body = json!({ "question": QUESTION, "model": model, "prompt": prompt });
        self.stage.app("POST", "/v1/answers/lookup", who).json(&body).send().await.expect(200)
    }
}

#[tokio::test]
async fn r_055_a_kept_answer_is_given_again_only_while_every_condition_holds() {
    let library = Library::new().await;
    let source = library.register(json!({ "groups": ["sales"] })).await;
    library.publish(&source, V1).await;
    library.keep_answer("anna", &source, 1, "subject").await.expect(201);
    let hit = library.look_up("anna").await;
    assert_eq!((&hit["hit"], &hit["answer"]), (&json!(true), &json!("Within thirty days.")));
    assert_eq!(hit["sources"][0]["source_id"], source.as_str());
    assert_eq!(library.look_up_as("anna", "other", "support-7").await["reason"], "unknown");
    assert_eq!(library.look_up_as("anna", "mistral", "support-8").await["reason"], "unknown");
    library.publish(&source, V2).await;
    assert_eq!(library.look_up("anna").await, json!({ "hit": false, "reason": "stale_revision" }));
    let metrics = library.stage.call("GET", "/metrics").send().await;
    assert!(metrics.text().contains("merkwelt_answer_lookups_total{result=\"stale_revision\"} 1"));
    assert!(metrics.text().contains("merkwelt_answer_lookups_total{result=\"hit\"} 1"));
}

#[tokio::test]
async fn r_055_each_broken_condition_has_its_reason() {
    for (reason, step) in [("group", 0), ("withdrawn", 1), ("withdrawn", 2), ("epoch", 3), ("age", 4)] {
        let library = Library::new().await;
        let source = library.register(json!({ "groups": ["sales"] })).await;
        library.publish(&source, V1).await;
        library.keep_answer("anna", &source, 1, "subject").await.expect(201);
        let path = format!("/v1/sources/{source}");
        match step {
            0 => library.members(json!({ "remove": ["anna"] })).await,
            1 => drop(library.backend("POST", &format!("{path}/withdraw"), None).await.expect(200)),
            2 => drop(library.backend("DELETE", &path, None).await.expect(200)),
            3 => drop(library.register(json!({ "title": "Something else" })).await),
            _ => library.stage.env.advance(86_400_001),
        }
        assert_eq!(library.look_up("anna").await["reason"], reason, "step {step}");
        assert_eq!(library.look_up("anna").await["reason"], "unknown", "what was refused is not kept");
    }
}

#[tokio::test]
async fn r_044_an_answer_is_its_subjects_or_for_whom_its_sources_pass() {
    let library = Library::new().await;
    let source = library.register(json!({ "groups": ["sales"] })).await;
    library.publish(&source, V1).await;
    library.keep_answer("anna", &source, 1, "subject").await.expect(201);
    assert_eq!(library.look_up("bert").await["hit"], false);
    library.keep_answer("anna", &source, 1, "shared").await.expect(201);
    assert_eq!(library.look_up("bert").await["hit"], false, "bert is no member");
    library.members(json!({ "add": ["bert"] })).await;
    library.keep_answer("anna", &source, 1, "shared").await.expect(201);
    assert_eq!(library.look_up("bert").await["hit"], true);
    let (_, other) = library.stage.second_tenant("globex").await;
    let body = json!({ "question": QUESTION, "model": "mistral", "prompt": "support-7" });
    let foreign = library.stage.call("POST", "/v1/answers/lookup").key(&other).subject("anna").json(&body);
    assert_eq!(foreign.send().await.expect(200), json!({ "hit": false, "reason": "unknown" }));
}

#[tokio::test]
async fn r_054_an_answer_without_current_sources_is_not_kept() {
    let library = Library::new().await;
    let source = library.register(json!({ "groups": ["sales"] })).await;
    library.publish(&source, V1).await;
    let foreign = library.keep_answer("bert", &source, 1, "subject").await;
    let unknown = library.keep_answer("bert", &format!("src_{}", "a".repeat(26)), 1, "subject").await;
    assert_eq!(foreign.problem("invalid"), "sources");
    assert_eq!(foreign.without_request_id(), unknown.without_request_id());
    library.keep_answer("anna", &source, 2, "subject").await.problem("invalid");
    let none = json!({ "question": QUESTION, "answer": "x", "model": "m", "prompt": "p", "sources": [] });
    library.stage.app("POST", "/v1/answers", "anna").json(&none).send().await.problem("invalid");
    let shared = json!({ "question": QUESTION, "answer": "x", "model": "m", "prompt": "p", "audience": "shared",
        "sources": [{ "source_id": source, "revision": 1 }] });
    let agent = library.stage.call("POST", "/v1/answers").key(library.stage.key(Role::Agent)).subject("anna");
    assert_eq!(agent.json(&shared).send().await.problem("invalid"), "audience");
}

#[tokio::test]
async fn r_057_the_check_at_execution_follows_present_permissions() {
    let library = Library::new().await;
    let source = library.register(json!({ "groups": ["sales"] })).await;
    library.publish(&source, V1).await;
    let memory = library.stage.remember("anna", "Likes tea").await;
    let check = async |who: &str, resource: Value| {
        let body = json!({ "resource": resource });
        let answer = library.stage.app("POST", "/v1/authorizations/check", who).json(&body).send().await;
        assert!(answer.header("merkwelt-read-id").starts_with("rea_"));
        answer.expect(200)["allowed"].as_bool().unwrap()
    };
    assert!(check("anna", json!({ "source": source })).await);
    assert!(check("anna", json!({ "memory": memory })).await);
    assert!(!check("bert", json!({ "source": source })).await);
    assert!(!check("bert", json!({ "memory": memory })).await);
    library.members(json!({ "remove": ["anna"] })).await;
    assert!(!check("anna", json!({ "source": source })).await);
    let agent = library.stage.call("POST", "/v1/authorizations/check").key(library.stage.key(Role::Agent));
    let body = json!({ "resource": { "memory": memory } });
    agent.subject("anna").json(&body).send().await.problem("not_found");
}

#[tokio::test]
async fn r_061_a_citation_keeps_its_revision_after_another_took_its_place() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    library.publish(&source, V1).await;
    let cited = format!("/v1/citations/{}", library.ask("anna").await[0]["id"].as_str().unwrap());
    let before = library.stage.app("GET", &cited, "anna").send().await.expect(200);
    library.publish(&source, V2).await;
    let after = library.stage.app("GET", &cited, "anna").send().await.expect(200);
    assert_eq!(after["item"]["text"], before["item"]["text"]);
    assert_eq!(after["item"]["citation"]["revision"], 1);
    assert_eq!((&before["current"], &after["current"]), (&json!(true), &json!(false)));
    assert_eq!(after["superseded"]["current_revision"], 2);
}

#[tokio::test]
async fn r_085_ids_and_digests_of_a_deleted_source_stay() {
    let library = Library::new().await;
    let source = library.register(json!({})).await;
    let made = library.publish(&source, V1).await;
    let path = format!("/v1/sources/{source}/revisions/{}", made["revision_id"].as_str().unwrap());
    let before = library.backend("GET", &path, None).await.expect(200);
    library.backend("DELETE", &format!("/v1/sources/{source}"), None).await.expect(200);
    let after = library.backend("GET", &path, None).await.expect(200);
    for (old, new) in before["passages"].as_array().unwrap().iter().zip(after["passages"].as_array().unwrap())
    {
        assert_eq!((&old["id"], &old["sha256"]), (&new["id"], &new["sha256"]));
        assert_eq!((&new["kept"], &new["indexed"]), (&json!(false), &json!(false)));
    }
    let read = library.backend("GET", &format!("/v1/sources/{source}"), None).await.expect(200);
    assert_eq!((&read["state"], read["title"].as_str()), (&json!("deleted"), None));
    assert_eq!(read["revisions"][0]["document_sha256"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn r_086_the_evidence_policy_decides_what_a_deletion_leaves() {
    for (policy, kept) in [("digest_with_version", false), ("digest_with_copy", true)] {
        let library = Library::new().await;
        let source = library.register(json!({ "evidence": policy })).await;
        let made = library.publish(&source, V1).await;
        library.backend("DELETE", &format!("/v1/sources/{source}"), None).await.expect(200);
        let read = library.backend("GET", &format!("/v1/sources/{source}"), None).await.expect(200);
        assert_eq!((&read["evidence"], &read["revisions"][0]["kept"]), (&json!(policy), &json!(kept)));
        let path = format!("/v1/sources/{source}/restore");
        let again = library.backend("POST", &path, Some(json!({ "revision_id": made["revision_id"] }))).await;
        assert_eq!(again.status.as_u16(), if kept { 200 } else { 410 }, "{policy}");
    }
}
