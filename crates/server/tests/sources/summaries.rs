//! Summaries of conversations and a change of the organisation.

use merkwelt_app::{SessionLimits, Settings};
use merkwelt_authz::Role;
use merkwelt_domain::basis::AfterRemoval;
use serde_json::{Value, json};

use super::old::Talk;
use super::stage::{Answer, Stage};
use super::{V1, V2};

const SUMMARY: &str = "The customer asked for the time for returns; thirty days were named.";

impl Talk {
    async fn sum_up(&self, body: Value) -> Answer {
        let path = format!("/v1/conversations/{}/summary", self.id);
        self.library.stage.app("POST", &path, "anna").json(&body).send().await
    }

    async fn hand_over(&self, who: &str) -> Answer {
        let path = format!("/v1/conversations/{}/handover", self.id);
        self.library.stage.app("GET", &path, who).send().await
    }

    async fn rule(&self, key: &str, rule: &str) {
        let call = self.library.stage.call("PUT", "/v1/organisation-switch").key(key);
        call.json(&json!({ "rule": rule })).send().await.expect(200);
    }
}

fn summary(through: u32, approved: bool) -> Value {
    json!({ "text": SUMMARY, "through": through, "rule": "support-7", "approved": approved })
}

fn text(pack: &Value) -> &str {
    pack["turn"].as_str().unwrap()
}

#[tokio::test]
async fn r_018_a_summary_names_its_turns_and_rule_and_is_invalid_once_a_source_of_theirs_changes() {
    for talk in [Talk::kept().await, Talk::of_a_sitting().await] {
        talk.sum_up(summary(9, false)).await.problem("invalid");
        talk.sum_up(summary(2, false)).await.expect(201);
        let pack = talk.pack().await;
        let line = format!("- [stands for turns 1-2, made by support-7, not authoritative] {SUMMARY}\n");
        assert!(text(&pack).contains(&format!("## Summary of this conversation\n{line}")), "{pack}");
        let item = pack["items"].as_array().unwrap().iter().find(|item| item["why"] == "summary").unwrap();
        assert_eq!(item["summary"]["rule"], "support-7");
        assert_eq!(
            item["rests_on"][0]["source_id"],
            talk.source.as_str(),
            "it rests on what its turns rest on"
        );

        talk.library.publish(&talk.source, V2).await;
        let pack = talk.pack().await;
        assert!(!text(&pack).contains(SUMMARY), "{pack}");
        let left_out = pack["left_out"].as_array().unwrap();
        assert!(
            left_out.iter().any(|l| l["section"] == "summary" && l["reason"] == "source_changed"),
            "{pack}"
        );
        let turn = talk.read().await["turns"][2].clone();
        assert_eq!((&turn["role"], &turn["historical"]), (&json!("summary"), &json!(true)));

        // Who does not say that it knew may have made it before the change.
        talk.sum_up(summary(2, false)).await.problem("source_changed");
        let mut knowing = summary(2, false);
        knowing["known_historical"] = json!([{ "source_id": talk.source, "revision": 1 }]);
        talk.sum_up(knowing).await.expect(201);
        assert!(text(&talk.pack().await).contains(SUMMARY));
    }
}

#[tokio::test]
async fn r_019_a_summary_is_labelled_as_not_authoritative_and_is_no_hit_of_a_search() {
    let talk = Talk::kept().await;
    talk.sum_up(summary(2, true)).await.expect(201);
    let turn = talk.read().await["turns"][2].clone();
    assert_eq!((&turn["summary"]["authoritative"], &turn["summary"]["through"]), (&json!(false), &json!(2)));
    let hits = talk.recalled().await;
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit["text"] != SUMMARY), "{hits:?}");
    // Only an application approves.
    let path = format!("/v1/conversations/{}/summary", talk.id);
    let agent = talk.library.stage.key(Role::Agent);
    let call = talk.library.stage.call("POST", &path).key(agent).subject("anna").json(&summary(2, true));
    call.send().await.problem("invalid");
}

#[tokio::test]
async fn r_033_what_goes_along_is_what_the_rule_says() {
    let talk = Talk::kept().await;
    let admin = talk.library.stage.key(Role::TenantAdmin).to_owned();
    talk.hand_over("anna").await.problem("switch_refused");
    talk.rule(&admin, "approved_summary").await;
    talk.hand_over("anna").await.problem("no_approved_summary");
    talk.sum_up(summary(2, false)).await.expect(201);
    talk.hand_over("anna").await.problem("no_approved_summary");
    talk.sum_up(summary(2, true)).await.expect(201);
    let handed = talk.hand_over("anna").await;
    assert!(handed.header("merkwelt-read-id").starts_with("rea_"), "it is a read like any other");
    let handed = handed.expect(200);
    assert_eq!(
        (&handed["turns"][0]["text"], &handed["turns"].as_array().unwrap().len()),
        (&json!(SUMMARY), &1)
    );
    talk.hand_over("ben").await.problem("not_found");
    // A draft of an agent does not stand in the way of what was approved.
    talk.sum_up(summary(2, false)).await.expect(201);
    assert_eq!(talk.hand_over("anna").await.expect(200)["turns"][0]["summary"]["approved"], true);
    // An approved summary of what changed since is none.
    talk.library.publish(&talk.source, V2).await;
    talk.hand_over("anna").await.problem("no_approved_summary");
    talk.library.publish(&talk.source, V1).await;
    talk.rule(&admin, "continue").await;
    let handed = talk.hand_over("anna").await.expect(200);
    assert_eq!(handed["turns"].as_array().unwrap().len(), 5);
    let agent = talk.library.stage.key(Role::Agent);
    let path = format!("/v1/conversations/{}/handover", talk.id);
    talk.library.stage.call("GET", &path).key(agent).subject("anna").send().await.problem("not_found");
}

#[tokio::test]
async fn r_033_the_other_organisation_takes_in_only_what_its_own_rule_allows() {
    let talk = Talk::kept().await;
    let (admin, other) = talk.library.stage.second_tenant("globex").await;
    let stage = &talk.library.stage;
    // The old id is unknown there, whatever the rules say.
    talk.rule(stage.key(Role::TenantAdmin), "continue").await;
    let old = format!("/v1/conversations/{}", talk.id);
    stage.call("GET", &old).key(&other).subject("anna").send().await.problem("not_found");
    let carried = json!({ "text": SUMMARY, "rule": "support-7" });
    for opened in [json!({ "carried_over": carried, "keep_days": 7 }), json!({ "carried_over": carried })] {
        talk.rule(&admin, "start_new").await;
        let open =
            || stage.call("POST", "/v1/conversations").key(&other).subject("anna").json(&opened).send();
        open().await.problem("switch_refused");
        talk.rule(&admin, "approved_summary").await;
        let id = open().await.expect(201)["id"].as_str().unwrap().to_owned();
        let body = json!({ "question": "And now?", "conversation": id });
        let call = stage.call("POST", "/v1/context").key(&other).subject("anna").json(&body);
        let pack = call.send().await.expect(200);
        let line =
            format!("- [carried over from elsewhere, made by support-7, not authoritative] {SUMMARY}\n");
        assert!(text(&pack).contains(&line), "{pack}");
        // That it came here approved does not approve that it goes on.
        let path = format!("/v1/conversations/{id}/handover");
        let call = stage.call("GET", &path).key(&other).subject("anna");
        call.send().await.problem("no_approved_summary");
    }
    let agent = stage.key(Role::Agent);
    let body = json!({ "carried_over": carried });
    stage
        .call("POST", "/v1/conversations")
        .key(agent)
        .subject("anna")
        .json(&body)
        .send()
        .await
        .problem("invalid");
}

#[tokio::test]
async fn r_018_a_summary_of_what_is_withheld_is_refused() {
    let settings = Settings { after_removal: AfterRemoval::Withhold, ..Settings::default() };
    let talk = Talk::begin(Stage::with_settings(settings), json!({ "keep_days": 30 })).await;
    talk.remove().await;
    let mut knowing = summary(2, true);
    knowing["known_historical"] = json!([{ "source_id": talk.source, "revision": 1 }]);
    talk.sum_up(knowing).await.problem("source_changed");
}

#[tokio::test]
async fn r_018_a_summary_stands_for_lost_turns_only_through_a_former_one() {
    let session = SessionLimits { n_turns_max: 4, ..SessionLimits::default() };
    let settings = Settings { session, ..Settings::default() };
    let talk = Talk::begin(Stage::with_settings(settings), json!({})).await;
    talk.sum_up(summary(2, false)).await.expect(201);
    for _ in 0..2 {
        talk.say(json!({ "role": "user", "text": "And further?" })).await.expect(201);
    }
    // Turn 1 is gone, and a summary stands for it: the new one rests on what that rests on.
    talk.sum_up(summary(5, false)).await.expect(201);
    talk.library.publish(&talk.source, V2).await;
    assert!(!text(&talk.pack().await).contains(SUMMARY));
    for _ in 0..4 {
        talk.say(json!({ "role": "user", "text": "And further?" })).await.expect(201);
    }
    // Nothing stands for the first turns any more.
    talk.sum_up(summary(10, false)).await.problem("invalid");
}

#[tokio::test]
async fn r_018_a_summary_of_a_long_sitting_is_refused_rather_than_kept_and_never_shown() {
    let talk = Talk::of_a_sitting().await;
    // A turn every hour and a half: the sitting goes on, and its first turns are over.
    for _ in 0..2 {
        talk.library.stage.env.advance(90 * 60_000);
        talk.say(json!({ "role": "user", "text": "And further?" })).await.expect(201);
    }
    talk.sum_up(summary(4, false)).await.problem("invalid");
}
