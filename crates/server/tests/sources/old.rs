//! Old conversations: what was said from a revision that is no longer current is historical from the next request
//! on, wherever it is read.

use merkwelt_app::{DocumentMemory, Settings};
use merkwelt_authz::Role;
use merkwelt_domain::basis::AfterRemoval;
use serde_json::{Value, json};

use super::stage::{Answer, Stage};
use super::{Library, QUESTION, V1, V2};

const SAID: &str = "You may return the goods within thirty days.";

/// A conversation of anna in which the agent answered from the first revision.
pub(super) struct Talk {
    pub(super) library: Library,
    pub(super) source: String,
    pub(super) id: String,
}

impl Talk {
    pub(super) async fn begin(stage: Stage, opened: Value) -> Self {
        let library = Library::on(stage).await;
        let source = library.register(json!({ "groups": ["sales"] })).await;
        library.publish(&source, V1).await;
        let made = library.stage.app("POST", "/v1/conversations", "anna").json(&opened).send().await;
        let id = made.expect(201)["id"].as_str().unwrap().to_owned();
        let talk = Self { library, source, id };
        talk.say(json!({ "role": "user", "text": QUESTION })).await.expect(201);
        let pack = talk.pack().await;
        let answer = json!({ "role": "assistant", "text": SAID, "pack_id": pack["pack_id"] });
        talk.say(answer).await.expect(201);
        talk
    }

    pub(super) async fn kept() -> Self {
        Self::begin(Stage::new(), json!({ "keep_days": 30 })).await
    }

    pub(super) async fn of_a_sitting() -> Self {
        Self::begin(Stage::new(), json!({})).await
    }

    pub(super) async fn say(&self, turn: Value) -> Answer {
        let path = format!("/v1/conversations/{}/turns", self.id);
        self.library.stage.app("POST", &path, "anna").json(&turn).send().await
    }

    pub(super) async fn pack(&self) -> Value {
        self.ask(QUESTION).await.expect(200)
    }

    async fn ask(&self, question: &str) -> Answer {
        let body = json!({ "question": question, "conversation": self.id });
        self.library.stage.app("POST", "/v1/context", "anna").json(&body).send().await
    }

    pub(super) async fn read(&self) -> Value {
        let path = format!("/v1/conversations/{}", self.id);
        self.library.stage.app("GET", &path, "anna").send().await.expect(200)
    }

    pub(super) async fn recalled(&self) -> Vec<Value> {
        let body = json!({ "question": QUESTION, "history": "all", "documents": false });
        let found = self.library.stage.app("POST", "/v1/recall", "anna").json(&body).send().await.expect(200);
        found["hits"].as_array().unwrap().clone()
    }

    pub(super) async fn remove(&self) {
        let path = format!("/v1/sources/{}", self.source);
        self.library.backend("DELETE", &path, None).await.expect(200);
    }
}

/// The line of a pack in which the agent's answer stands.
fn line(pack: &Value) -> String {
    let text = pack["turn"].as_str().unwrap();
    text.lines().find(|line| line.contains(SAID)).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn r_058_what_was_said_from_a_superseded_revision_is_historical_on_every_path() {
    for opened in [json!({ "keep_days": 30 }), json!({})] {
        let talk = Talk::begin(Stage::new(), opened.clone()).await;
        let before = talk.read().await;
        assert_eq!(before["turns"][1]["rests_on"][0]["state"], "current", "{before}");
        assert_eq!(before["turns"][1].get("historical"), None);
        assert_eq!(before["turns"][0].get("rests_on"), None, "a question rests on nothing");
        assert_eq!(line(&talk.pack().await), format!("assistant: {SAID}"));

        talk.library.publish(&talk.source, V2).await;
        let turn = talk.read().await["turns"][1].clone();
        let footing = &turn["rests_on"][0];
        assert_eq!((&turn["historical"], &footing["state"]), (&json!(true), &json!("superseded")));
        assert_eq!((&footing["revision"], &footing["current_revision"]), (&json!(1), &json!(2)));
        assert!(footing["current_valid_from"].is_string());

        let pack = talk.pack().await;
        let source = &talk.source;
        assert_eq!(
            line(&pack),
            format!(
                "assistant: [historical: rests on revision 1 of {source}; revision 2 is current, valid from \
                 2026-06-01] {SAID}"
            )
        );
        // The current revision is fetched anew and named with its validity beside it.
        let text = pack["turn"].as_str().unwrap();
        assert!(text.contains(&format!("{source} revision 2, ")) && text.contains("seven days"), "{text}");
        let items = pack["items"].as_array().unwrap();
        assert!(items.iter().any(|item| item["historical"] == true && item["layer"] == "history"));
        if opened != json!({}) {
            let hits = talk.recalled().await;
            assert!(hits.iter().any(|hit| hit["text"] == SAID && hit["historical"] == true), "{hits:?}");
        }
    }
}

#[tokio::test]
async fn r_059_if_the_current_revision_cannot_be_told_the_pack_says_so_and_mixes_nothing() {
    let talk = Talk::kept().await;
    let unknown = |pack: &Value| {
        let note = "what holds now cannot be determined]";
        let text = pack["turn"].as_str().unwrap();
        assert!(line(pack).contains(note) && !text.contains("## Documents"), "{text}");
    };
    let withdraw = format!("/v1/sources/{}/withdraw", talk.source);
    talk.library.backend("POST", &withdraw, None).await.expect(200);
    unknown(&talk.pack().await);
    let turn = talk.read().await["turns"][1].clone();
    assert_eq!((&turn["historical"], &turn["rests_on"][0]["state"]), (&json!(true), &json!("undetermined")));
    assert_eq!(turn["rests_on"][0].get("current_revision"), None);
}

#[tokio::test]
async fn r_059_a_right_that_was_taken_away_and_a_deletion_look_alike_in_an_old_conversation() {
    let talk = Talk::kept().await;
    talk.library.members(json!({ "remove": ["anna"] })).await;
    let without_right = line(&talk.pack().await);
    talk.library.members(json!({ "add": ["anna"] })).await;
    assert_eq!(line(&talk.pack().await), format!("assistant: {SAID}"), "the right is back");
    talk.remove().await;
    assert_eq!(line(&talk.pack().await), without_right);
    assert!(without_right.contains("cannot be determined"), "{without_right}");
}

#[tokio::test]
async fn r_074_where_the_policy_says_so_what_rests_on_a_removed_source_is_delivered_nowhere() {
    let settings = Settings { after_removal: AfterRemoval::Withhold, ..Settings::default() };
    let talk = Talk::begin(Stage::with_settings(settings), json!({ "keep_days": 30 })).await;
    // No passage is in this pack, only the turn.
    let pack = talk.ask("Thank you!").await.expect(200);
    assert_eq!(line(&pack), format!("assistant: {SAID}"));
    // Superseded is not removed: it stays, marked.
    talk.library.publish(&talk.source, V2).await;
    assert!(line(&talk.pack().await).contains("[historical: "));
    talk.remove().await;
    let after = talk.pack().await;
    assert!(!after.to_string().contains(SAID), "{after}");
    let read = talk.read().await;
    assert_eq!((read["turns"].as_array().unwrap().len(), &read["n_withheld"]), (1, &json!(1)));
    assert!(talk.recalled().await.iter().all(|hit| hit["text"] != SAID));
    let path = format!("/v1/packs/{}", pack["pack_id"].as_str().unwrap());
    talk.library.stage.app("GET", &path, "anna").send().await.problem("content_not_retained");
}

#[tokio::test]
async fn r_096_a_pack_with_a_historical_turn_comes_back_as_it_was() {
    let talk = Talk::kept().await;
    talk.library.publish(&talk.source, V2).await;
    let delivered = talk.ask("Thank you!").await;
    let pack = delivered.clone().expect(200);
    assert!(line(&pack).contains("[historical: "), "{pack}");
    // Another revision later the note of then is still the note of then.
    talk.library.publish(&talk.source, V1).await;
    let path = format!("/v1/packs/{}", pack["pack_id"].as_str().unwrap());
    let again = talk.library.stage.app("GET", &path, "anna").send().await;
    assert_eq!(again.body, delivered.body);
}

#[tokio::test]
async fn r_034_a_turn_may_name_any_source_and_learns_nothing_of_it() {
    let talk = Talk::kept().await;
    let (_, other) = talk.library.stage.second_tenant("globex").await;
    let call = talk.library.stage.call("POST", "/v1/sources").key(&other);
    let foreign = call.json(&json!({ "title": "Secret" })).send().await.expect(201)["id"].clone();
    let unknown = format!("src_{}", "a".repeat(26));
    let mut answers = Vec::new();
    for source in [foreign.as_str().unwrap(), &unknown] {
        let rests_on = json!([{ "source_id": source, "revision": 1 }]);
        let turn = json!({ "role": "assistant", "text": "Because I say so.", "rests_on": rests_on });
        talk.say(turn).await.expect(201);
        let said = talk.read().await["turns"].as_array().unwrap().last().unwrap().to_string();
        answers.push(said.replace(source, "…").replace("\"number\":3", "").replace("\"number\":4", ""));
    }
    assert_eq!(answers[0], answers[1]);
    let turn = json!({ "role": "assistant", "text": "hello", "pack_id": format!("pac_{}", "a".repeat(26)) });
    talk.say(turn).await.problem("not_found");
    let turn =
        json!({ "role": "assistant", "text": "hello", "rests_on": [{ "source_id": "x", "revision": 1 }] });
    talk.say(turn).await.problem("invalid");
}

#[tokio::test]
async fn r_043_an_answer_of_a_conversation_is_given_again_there_only_and_goes_with_it() {
    let talk = Talk::kept().await;
    let maker = json!({ "question": QUESTION, "model": "mistral", "prompt": "support-7" });
    let with = |more: Value| {
        let mut body = maker.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let sources = json!([{ "source_id": talk.source, "revision": 1 }]);
    let kept = json!({ "answer": SAID, "sources": sources, "conversation": talk.id });
    let post = |path: &'static str, who: &'static str, body: Value| {
        talk.library.stage.app("POST", path, who).json(&body).send()
    };
    post("/v1/answers", "anna", with(kept.clone())).await.expect(201);
    let of_it = with(json!({ "conversation": talk.id }));
    assert_eq!(post("/v1/answers/lookup", "anna", of_it.clone()).await.expect(200)["answer"], SAID);
    assert_eq!(post("/v1/answers/lookup", "anna", maker.clone()).await.expect(200)["hit"], false);
    // Whose conversation it is not, learns no more than that it is unknown.
    post("/v1/answers/lookup", "ben", of_it.clone()).await.problem("not_found");
    post("/v1/answers", "ben", with(kept.clone())).await.problem("not_found");
    let mut shared = kept;
    shared["audience"] = json!("shared");
    post("/v1/answers", "anna", with(shared)).await.problem("invalid");
    let path = format!("/v1/conversations/{}", talk.id);
    talk.library.stage.app("DELETE", &path, "anna").send().await.expect(200);
    post("/v1/answers/lookup", "anna", of_it).await.problem("not_found");
}

async fn keep(stage: &Stage, role: Role, purpose: &str, body: &Value) -> Answer {
    let call = stage.call("POST", "/v1/memories").key(stage.key(role)).subject("anna");
    call.header("merkwelt-purpose", purpose).json(body).send().await
}

#[tokio::test]
async fn r_021_what_a_document_says_becomes_a_memory_only_under_a_policy_of_purpose_and_time() {
    let fact = json!({ "kind": "user_fact", "text": "Returns take thirty days", "origin": "document" });
    let without = Stage::new();
    for role in [Role::App, Role::Agent] {
        keep(&without, role, "onboarding", &fact).await.problem("invalid");
    }
    let policy = DocumentMemory { purpose: "onboarding".parse().unwrap(), keep_days: 30 };
    let stage = Stage::with_settings(Settings { document_memory: Some(policy), ..Settings::default() });
    keep(&stage, Role::App, "marketing", &fact).await.problem("invalid");
    let made = keep(&stage, Role::Agent, "onboarding", &fact).await.expect(201);
    let path = format!("/v1/memories/{}", made["id"].as_str().unwrap());
    let read = stage.app("GET", &path, "anna").send().await.expect(200);
    let item = &read["items"][0];
    assert_eq!(
        (&item["origin"]["author"], &item["expires_at"]),
        (&json!("document"), &json!("2026-07-01T00:00:00.000Z"))
    );
    // Corrected in whatever words, it stays under the policy.
    let better = json!({ "kind": "user_fact", "text": "Returns take seven days" });
    let put = |purpose: &'static str| {
        let call = stage.app("PUT", &path, "anna").header("merkwelt-purpose", purpose);
        call.json(&better).send()
    };
    put("assist").await.problem("invalid");
    put("onboarding").await.expect(200);
    let read = stage.app("GET", &path, "anna").send().await.expect(200);
    assert_eq!(read["items"][0]["origin"]["author"], "document");
    let mut rule = fact.clone();
    rule["kind"] = json!("feedback");
    keep(&stage, Role::App, "onboarding", &rule).await.problem("invalid");
    for (field, value) in [("expires_at", "2026-07-02T00:00:00Z"), ("no_expiry_reason", "company_knowledge")]
    {
        let mut long = fact.clone();
        long[field] = json!(value);
        keep(&stage, Role::App, "onboarding", &long).await.problem("invalid");
    }
}

#[tokio::test]
async fn r_087_what_was_read_is_shown_again_only_to_who_may_see_its_source_now() {
    let talk = Talk::kept().await;
    let pack = talk.pack().await;
    assert!(pack["items"].as_array().unwrap().iter().any(|item| item["citation"].is_object()));
    let path = format!("/v1/packs/{}", pack["pack_id"].as_str().unwrap());
    let again = || talk.library.stage.app("GET", &path, "anna").send();
    assert_eq!(again().await.expect(200)["turn"], pack["turn"]);
    // Without the right to the source what was read from it is not shown, and with it it is.
    talk.library.members(json!({ "remove": ["anna"] })).await;
    again().await.problem("content_not_retained");
    talk.library.members(json!({ "add": ["anna"] })).await;
    assert_eq!(again().await.expect(200)["turn"], pack["turn"]);
    // A pack is its subject's alone, also for who may see the source.
    talk.library.members(json!({ "add": ["ben"] })).await;
    talk.library.stage.app("GET", &path, "ben").send().await.problem("not_found");
    talk.remove().await;
    again().await.problem("content_not_retained");
}

#[tokio::test]
async fn r_058_an_answer_to_what_was_said_before_rests_on_what_that_rests_on() {
    let talk = Talk::kept().await;
    // No passage is in this pack, only the turn that rests on one.
    let pack = talk.ask("As you said?").await.expect(200);
    let again = "As I said, thirty days.";
    talk.say(json!({ "role": "assistant", "text": again, "pack_id": pack["pack_id"] })).await.expect(201);
    talk.library.publish(&talk.source, V2).await;
    let turn = talk.read().await["turns"][2].clone();
    assert_eq!((&turn["historical"], &turn["text"]), (&json!(true), &json!(again)));
    // What was marked in a pack was known to be historical, and makes no new answer historical.
    let pack = talk.pack().await;
    talk.say(json!({ "role": "assistant", "text": "Seven days now.", "pack_id": pack["pack_id"] }))
        .await
        .expect(201);
    let turn = talk.read().await["turns"][3].clone();
    assert_eq!((turn.get("historical"), &turn["rests_on"][0]["revision"]), (None, &json!(2)));
}

#[tokio::test]
async fn revisions_are_counted_from_one_and_a_long_mark_is_cut() {
    let talk = Talk::kept().await;
    let basis = |revision: u32| json!({ "source_id": talk.source, "revision": revision });
    talk.say(json!({ "role": "assistant", "text": "x", "rests_on": [basis(0)] })).await.problem("invalid");
    let many: Vec<Value> = (2..=9).map(basis).collect();
    talk.say(json!({ "role": "assistant", "text": "So it is.", "rests_on": many })).await.expect(201);
    let pack = talk.pack().await;
    let text = pack["turn"].as_str().unwrap();
    let line = text.lines().find(|line| line.contains("So it is.")).unwrap();
    assert!(line.contains("rests on 5 more revisions") && line.matches(&talk.source).count() == 3, "{line}");
}

#[tokio::test]
async fn r_055_who_is_refused_a_shared_answer_does_not_take_it_from_others() {
    let talk = Talk::kept().await;
    let maker = json!({ "question": QUESTION, "model": "m", "prompt": "p" });
    let mut kept = maker.clone();
    let more = json!({
        "answer": SAID, "audience": "shared", "sources": [{ "source_id": talk.source, "revision": 1 }],
    });
    kept.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    talk.library.stage.app("POST", "/v1/answers", "anna").json(&kept).send().await.expect(201);
    for (who, hit) in [("anna", true), ("ben", false), ("anna", true)] {
        let call = talk.library.stage.app("POST", "/v1/answers/lookup", who).json(&maker);
        assert_eq!(call.send().await.expect(200)["hit"], hit, "{who}");
    }
}
