//! What the use cases promise about memories, conversations, groups and evidence.

#![cfg(test)]

mod world;

use merkwelt_app::{Conflict, CorrectRequest, Error, GroupRequest, PageRequest, RunContext};
use merkwelt_authz::Role;
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::memory::{Author, Kind, Revision};
use merkwelt_domain::{ConversationId, MemoryId};
use merkwelt_store::change::{NewOwner, Outcome};
use merkwelt_store::query::Turns;
use serde_json::Value;
use world::{DAY, World, id_of, json, now, search, slotted, statement, texts, turn_of};

#[test]
fn r_001_three_layers_have_three_lives() {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "long-term fact"));
    let (kept, session) = (world.open(&anna, Retention::KeptDays(1)), world.open(&anna, Retention::Session));
    world.say(&anna, &kept, Speaker::Person, "kept turn");
    world.say(&anna, &session, Speaker::Person, "session turn");
    let turns = |id: &ConversationId| {
        let read = now(world.app.read_conversation(&anna, id, &PageRequest::default())).unwrap();
        json(&read)["turns"].as_array().unwrap().len()
    };
    assert_eq!((turns(&kept), turns(&session)), (1, 1));
    world.advance(3 * 3_600_000);
    assert_eq!((turns(&kept), turns(&session)), (1, 0), "the sitting ends first");
    world.advance(DAY);
    assert_eq!(turns(&kept), 0, "then the kept turns");
    assert_eq!(texts(&world.recall(&anna, "fact")), ["long-term fact"], "the fact lives on");
}

#[test]
fn r_002_turns_reach_the_store_only_when_the_caller_asks() {
    let world = World::new();
    let anna = world.person("anna");
    let session = world.open(&anna, Retention::Session);
    let before = world.ledger().len();
    world.say(&anna, &session, Speaker::Person, "nothing of this is stored");
    assert!(world.entries_of("turn_appended").is_empty());
    assert_eq!(world.ledger().len(), before);
    let mut all = search("stored");
    all.turns = Turns::All;
    assert_eq!(texts(&json(&now(world.app.recall(&anna, &all)).unwrap())), [""; 0]);
}

#[test]
fn r_004_each_item_says_whether_it_is_fact_history_or_document() {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot"));
    let kept = world.open(&anna, Retention::KeptDays(1));
    world.say(&anna, &kept, Speaker::Person, "The depot is full");
    let mut all = search("depot");
    all.turns = Turns::All;
    let found = json(&now(world.app.recall(&anna, &all)).unwrap());
    let layers: Vec<_> = found["hits"].as_array().unwrap().iter().map(|hit| hit["layer"].clone()).collect();
    assert!(layers.contains(&"fact".into()) && layers.contains(&"history".into()), "{layers:?}");
}

#[test]
fn r_007_kind_and_time_are_filtered_before_anything_is_ranked() {
    let world = World::new();
    let anna = world.person("anna");
    for i in 0..20 {
        world.remember(&anna, statement(Kind::ProjectState, &format!("depot depot depot {i}")));
    }
    world.remember(&anna, statement(Kind::UserFact, "Anna once saw a depot"));
    let mut wanted = search("depot");
    wanted.kinds = merkwelt_store::query::KindSet::of([Kind::UserFact]);
    let found = json(&now(world.app.recall(&anna, &wanted)).unwrap());
    assert_eq!(texts(&found), ["Anna once saw a depot"]);
    assert_eq!(found["considered"], 1);
}

#[test]
fn r_017_a_change_back_to_an_old_value_is_not_lost() {
    let world = World::new();
    let anna = world.person("anna");
    for day in ["Monday", "Thursday", "Monday"] {
        world.remember(&anna, slotted(Kind::UserFact, "day", &format!("Pickup is on {day}")));
    }
    let found = world.recall(&anna, "When is pickup?");
    assert_eq!(texts(&found), ["Pickup is on Monday"]);
    assert_eq!(found["hits"][0]["revision"], 3);
}

#[test]
fn equal_text_in_the_same_scope_is_merged_and_in_another_is_not() {
    let world = World::new();
    let (anna, ben) = (world.person("anna"), world.person("ben"));
    let first = world.remember(&anna, statement(Kind::UserFact, "The gate  opens at six"));
    let again = world.remember(&anna, statement(Kind::UserFact, "The gate opens at six"));
    assert!(matches!(again.outcomes[0], Outcome::Merged { .. }), "{again:?}");
    assert_eq!(id_of(&first), id_of(&again));
    let other = world.remember(&ben, statement(Kind::UserFact, "The gate opens at six"));
    assert!(matches!(other.outcomes[0], Outcome::Created { .. }), "{other:?}");
}

#[test]
fn l_07_a_correction_makes_a_new_revision_and_refuses_a_stale_one() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "Anna is in hall 3")));
    let correction = |text: &str, expected: u32| CorrectRequest {
        id: id.clone(),
        expected: Some(Revision::from_number(expected)),
        statement: statement(Kind::UserFact, text),
    };
    let receipt = now(world.app.correct(&anna, &correction("Anna is in hall 4", 1), None)).unwrap();
    assert!(matches!(receipt.outcomes[0], Outcome::Superseded { revision, .. } if revision.number() == 2));
    let late = now(world.app.correct(&anna, &correction("Anna is in hall 5", 1), None));
    assert_eq!(late, Err(Error::Conflict(Conflict::Revision)));
    assert_eq!(texts(&world.recall(&anna, "hall")), ["Anna is in hall 4"]);
}

#[test]
fn r_022_what_one_person_or_tenant_keeps_another_does_not_see_in_any_way() {
    let world = World::new();
    let (anna, ben) = (world.person("anna"), world.person("ben"));
    let elsewhere = world.request_of(&world.other_tenant("second"), Some("anna"));
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "marker of anna")));
    let conversation = world.open(&anna, Retention::KeptDays(1));
    world.say(&anna, &conversation, Speaker::Person, "marker turn");
    let run = RunContext::default();
    for stranger in [&ben, &elsewhere] {
        assert!(texts(&world.recall(stranger, "marker")).is_empty());
        assert_eq!(now(world.app.read_memory(stranger, &id, &run)).err(), Some(Error::NotFound));
        assert_eq!(now(world.app.retract(stranger, &id, None)).err(), Some(Error::NotFound));
        let correction = CorrectRequest {
            id: id.clone(),
            expected: None,
            statement: statement(Kind::UserFact, "mine now"),
        };
        assert_eq!(now(world.app.correct(stranger, &correction, None)).err(), Some(Error::NotFound));
        let page = PageRequest::default();
        assert_eq!(
            now(world.app.read_conversation(stranger, &conversation, &page)).err(),
            Some(Error::NotFound)
        );
        assert_eq!(
            now(world.app.delete_conversation(stranger, &conversation, None)).err(),
            Some(Error::NotFound)
        );
        let mut wanted = turn_of("marker?", 500);
        wanted.conversation = Some(conversation.clone());
        assert_eq!(now(world.app.context(stranger, &wanted)).err(), Some(Error::NotFound));
    }
    assert_eq!(texts(&world.recall(&anna, "marker")), ["marker of anna"]);
}

#[test]
fn r_026_deleting_a_conversation_deletes_all_that_came_from_it_and_nothing_else() {
    let world = World::new();
    let anna = world.person("anna");
    let (one, two) = (world.open(&anna, Retention::KeptDays(9)), world.open(&anna, Retention::KeptDays(9)));
    for (conversation, word) in [(&one, "first"), (&two, "second")] {
        world.say(&anna, conversation, Speaker::Person, &format!("turn of the {word}"));
        let mut learnt = statement(Kind::UserFact, &format!("learnt in the {word}"));
        learnt.conversation = Some(conversation.clone());
        world.remember(&anna, learnt);
    }
    let receipt = now(world.app.delete_conversation(&anna, &one, None)).unwrap();
    assert!(matches!(receipt.outcomes[0], Outcome::ConversationDeleted { turns: 1, memories: 1, .. }));
    let mut all = search("turn learnt");
    all.turns = Turns::All;
    let left = texts(&json(&now(world.app.recall(&anna, &all)).unwrap()));
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|text| text.contains("second")), "{left:?}");
}

#[test]
fn r_027_a_conversation_is_recorded_with_owner_and_life_before_its_first_turn() {
    let world = World::new();
    let anna = world.person("anna");
    let id = world.open(&anna, Retention::KeptDays(30));
    let page = PageRequest::default();
    let read = json(&now(world.app.read_conversation(&anna, &id, &page)).unwrap());
    assert_eq!(read["conversation"]["keep_days"], 30);
    assert_eq!(read["turns"].as_array().unwrap().len(), 0);
    let unknown = ConversationId::random(&*world.env);
    let turn = merkwelt_app::TurnRequest {
        conversation: unknown,
        speaker: Speaker::Person,
        text: world::content("hello"),
        rests_on: RestsOn::default(),
        pack: None,
    };
    assert_eq!(now(world.app.append_turn(&anna, &turn, None)).err(), Some(Error::NotFound));
}

#[test]
fn r_029_a_withdrawn_membership_takes_effect_on_the_next_read() {
    let world = World::new();
    let admin = world.request(Role::TenantAdmin, None);
    let change = |wanted| now(world.app.change_directory(&admin, &wanted)).unwrap();
    let group: merkwelt_domain::GroupName = "dispatch".parse().unwrap();
    change(GroupRequest::Create(group.clone()));
    change(GroupRequest::Add(group.clone(), "ben".parse().unwrap()));
    let mut shared = statement(Kind::UserFact, "The gate code is 4711");
    shared.owner = NewOwner::Group(group.clone());
    world.remember(&world.request(Role::App, None), shared);
    let ben = world.person("ben");
    assert_eq!(texts(&world.recall(&ben, "gate code")), ["The gate code is 4711"]);
    assert!(world::delivered(&world.context(&ben, &turn_of("gate code?", 500))).contains("4711"));
    change(GroupRequest::Remove(group, "ben".parse().unwrap()));
    assert!(texts(&world.recall(&ben, "gate code")).is_empty());
    assert!(!world::delivered(&world.context(&ben, &turn_of("gate code?", 500))).contains("4711"));
}

#[test]
fn r_032_each_kind_of_source_is_authorised_before_they_are_combined() {
    let world = World::new();
    let (anna, ben) = (world.person("anna"), world.person("ben"));
    world.remember(&ben, statement(Kind::Feedback, "foreign rule"));
    world.remember(&ben, statement(Kind::UserFact, "foreign fact"));
    world.remember(&ben, statement(Kind::ProjectState, "foreign state"));
    world.remember(&ben, statement(Kind::Reference, "foreign pointer"));
    let conversation = world.open(&ben, Retention::KeptDays(9));
    world.say(&ben, &conversation, Speaker::Person, "foreign turn");
    let pack = world.context(&anna, &turn_of("foreign rule fact state pointer turn now?", 4000));
    assert_eq!(world::delivered(&pack), "");
    assert_eq!(pack["items"].as_array().unwrap().len(), 0);
    assert_eq!(pack["tokens"]["flat"], 0);
}

#[test]
fn r_071_what_has_expired_is_not_delivered_on_any_path_before_a_sweep_ran() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, statement(Kind::ProjectState, "Ramp 2 is blocked")));
    world.advance(30 * DAY);
    assert!(texts(&world.recall(&anna, "ramp")).is_empty());
    assert_eq!(now(world.app.read_memory(&anna, &id, &RunContext::default())).err(), Some(Error::NotFound));
    let list = merkwelt_app::ListRequest {
        kinds: merkwelt_store::query::KindSet::all(),
        conversation: None,
        interval: None,
        after: None,
        limit: Default::default(),
        run: RunContext::default(),
    };
    assert_eq!(
        json(&now(world.app.list_memories(&anna, &list)).unwrap())["items"].as_array().unwrap().len(),
        0
    );
    assert_eq!(world.context(&anna, &turn_of("ramp?", 500))["tokens"]["flat"], 0);
}

#[test]
fn r_080_every_read_is_exactly_one_read_event_and_so_is_a_read_of_nothing() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot")));
    let run = RunContext::default();
    let count = || world.entries_of("read").len();
    let before = count();
    let released = now(world.app.recall(&anna, &search("depot"))).unwrap();
    assert_eq!(count(), before + 1);
    let _ = now(world.app.read_memory(&anna, &id, &run)).unwrap();
    let _ = world.context(&anna, &turn_of("depot?", 500));
    assert_eq!(count(), before + 3);
    let _ = now(world.app.read_memory(&anna, &MemoryId::random(&*world.env), &run));
    let ben = world.person("ben");
    let _ = now(world.app.read_memory(&ben, &id, &run));
    assert_eq!(count(), before + 5, "unknown and foreign leave the same trace");
    let read = world.ledger().into_iter().nth(usize::try_from(released.entry().index).unwrap()).unwrap();
    assert_eq!(read["read_id"], released.read_id().as_str());
}

fn a_read() -> Value {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot"));
    let mut wanted = search("Who leads the depot?");
    wanted.run.run = Some(merkwelt_ledger::Token::parse("run-7").unwrap());
    wanted.run.call = Some(merkwelt_ledger::Token::parse("call-1").unwrap());
    let _ = now(world.app.recall(&anna, &wanted)).unwrap();
    world.entries_of("read").pop().unwrap()
}

#[test]
fn r_081_a_read_event_is_complete() {
    let read = a_read();
    for field in [
        "read_id",
        "run_id",
        "call_id",
        "kind",
        "system",
        "index",
        "request",
        "result",
        "records",
        "at",
        "boundary",
        "purpose",
        "content_kept",
        "subject_tag",
        "actor",
        "tenant",
    ] {
        assert!(!read[field].is_null(), "{field} is missing in {read}");
    }
    assert_eq!((read["run_id"].as_str(), read["call_id"].as_str()), (Some("run-7"), Some("call-1")));
}

#[test]
fn r_083_a_retrieval_names_index_query_results_and_top_k() {
    let read = a_read();
    assert_eq!(read["kind"], "retrieval");
    assert_eq!(read["top_k"], 10);
    assert!(read["index"]["id"].is_string() && read["index"]["version"].is_string());
    let record = &read["records"][0];
    assert!(record["score_micro"].as_i64().unwrap() > 0);
    assert_eq!(record["commitment"].as_str().unwrap().len(), 64);
    assert_eq!(read["request"].as_str().unwrap().len(), 64);
}

#[test]
fn r_084_memory_reads_are_labelled_memory_and_what_a_model_wrote_is_labelled_model() {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "said by a person"));
    let mut claimed = statement(Kind::UserFact, "noted by an agent");
    claimed.author = Some(Author::Person);
    world.remember(&world.request(Role::Agent, Some("anna")), claimed);
    let found = world.recall(&anna, "said noted person agent");
    let author = |text: &str| {
        let hits = found["hits"].as_array().unwrap();
        hits.iter().find(|hit| hit["text"] == text).unwrap()["origin"]["author"].clone()
    };
    assert_eq!(author("noted by an agent"), "model", "an agent's key cannot claim to be a person");
    let read = world.entries_of("read").pop().unwrap();
    let labels: Vec<_> = read["records"].as_array().unwrap().iter().map(|r| r["label"].clone()).collect();
    assert!(labels.contains(&"memory".into()) && labels.contains(&"model".into()), "{labels:?}");
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "read by its id")));
    let _ = now(world.app.read_memory(&anna, &id, &RunContext::default())).unwrap();
    assert_eq!(world.entries_of("read").pop().unwrap()["kind"], "memory");
}

#[test]
fn r_095_what_was_delivered_and_the_boundary_in_force_are_part_of_every_read() {
    let settings = merkwelt_app::Settings {
        boundary: merkwelt_app::Boundary { name: "eu-only".to_owned(), version: "3".to_owned() },
        ..Default::default()
    };
    let world = World::with(settings, |backend| backend);
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::Feedback, "Answer briefly"));
    world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot"));
    let pack = world.context(&anna, &turn_of("depot?", 500));
    let read = world.entries_of("read").pop().unwrap();
    assert_eq!(read["boundary"], serde_json::json!({"id": "eu-only", "version": "3"}));
    assert_eq!(read["records"].as_array().unwrap().len(), pack["items"].as_array().unwrap().len());
    assert_eq!(read["read_id"], pack["read_id"]);
    assert_eq!(read["tokens"], pack["tokens"]["total"]);
}

#[test]
fn r_097_the_ledger_holds_no_text_no_name_and_no_slot() {
    let world = World::new();
    let anna = world.person("anna.secret@example.org");
    world.remember(&anna, slotted(Kind::UserFact, "slot-secret", "text-secret stays out"));
    let conversation = world.open(&anna, Retention::KeptDays(3));
    world.say(&anna, &conversation, Speaker::Person, "turn-secret");
    let _ = world.recall(&anna, "question-secret");
    let _ = world.context(&anna, &turn_of("question-secret", 500));
    let ledger = serde_json::to_string(&world.ledger()).unwrap();
    assert!(!ledger.contains("secret"), "{ledger}");
}

#[test]
fn l_19_entries_about_one_person_share_nothing_that_links_them() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot")));
    let (first, second) = (world.recall(&anna, "depot"), world.recall(&anna, "depot"));
    let subject = first["scope"]["subject"].as_str().unwrap();
    assert_eq!(second["scope"]["subject"], subject);
    let reads = world.entries_of("read");
    let text = serde_json::to_string(&reads).unwrap();
    assert!(!text.contains(id.as_str()) && !text.contains(subject));
    assert_ne!(reads[0]["subject_tag"], reads[1]["subject_tag"]);
    assert_ne!(reads[0]["records"][0]["tag"], reads[1]["records"][0]["tag"]);
    assert_ne!(reads[0]["request"], reads[1]["request"], "the same question commits differently");
}

#[test]
fn r_029_a_key_that_ends_during_a_request_gets_no_second_attempt() {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot"));
    let admin = world.request(Role::TenantAdmin, None);
    now(world.app.revoke_key(&admin, anna.caller().key())).unwrap();
    // The holder was proven before the key ended.
    assert_eq!(now(world.app.recall(&anna, &search("depot"))).err(), Some(Error::KeyEnded));
    assert_eq!(
        now(world.app.remember(&anna, &[statement(Kind::UserFact, "x")], None)).err(),
        Some(Error::KeyEnded)
    );
}

#[test]
fn l_28_denials_are_entries_and_the_answer_is_that_of_something_unknown() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot")));
    let auditor = world.request(Role::Auditor, Some("anna"));
    assert_eq!(now(world.app.recall(&auditor, &search("depot"))).err(), Some(Error::Denied));
    assert_eq!(now(world.app.retract(&auditor, &id, None)).err(), Some(Error::Denied));
    let denials = world.entries_of("authz_denied");
    let actions: Vec<_> = denials.iter().map(|d| (d["action"].clone(), d["reason"].clone())).collect();
    assert_eq!(actions, [("recall".into(), "role".into()), ("retract".into(), "role".into())]);
}

#[test]
fn i_13_what_was_recalled_is_not_stored_again() {
    let world = World::new();
    let anna = world.person("anna");
    world.remember(&anna, statement(Kind::UserFact, "Anna leads the depot"));
    let pack = world.context(&anna, &turn_of("depot?", 500));
    let echoed = format!("The context was: {}", world::delivered(&pack));
    assert!(merkwelt_domain::Content::to_keep(&echoed, 10_000).is_err());
}

#[test]
fn r_005_groups_are_exact_relations_that_can_be_asked_changed_and_deleted_with_their_members() {
    let world = World::new();
    let admin = world.request(Role::TenantAdmin, None);
    let group: merkwelt_domain::GroupName = "dispatch".parse().unwrap();
    let change = |wanted| now(world.app.change_directory(&admin, &wanted));
    change(GroupRequest::Create(group.clone())).unwrap();
    assert_eq!(change(GroupRequest::Create(group.clone())), Err(Error::Conflict(Conflict::Exists)));
    change(GroupRequest::Add(group.clone(), "anna".parse().unwrap())).unwrap();
    change(GroupRequest::Add(group.clone(), "ben".parse().unwrap())).unwrap();
    assert_eq!(now(world.app.list_members(&admin, &group)).unwrap().len(), 2);
    change(GroupRequest::Delete(group.clone())).unwrap();
    assert_eq!(now(world.app.list_members(&admin, &group)).err(), Some(Error::NotFound));
    assert!(now(world.app.list_groups(&admin)).unwrap().is_empty());
    change(GroupRequest::Create(group.clone())).unwrap();
    assert!(now(world.app.list_members(&admin, &group)).unwrap().is_empty(), "members went with the group");
}

#[test]
fn l_19_a_denied_key_that_is_bound_to_a_person_is_not_named_in_the_ledger() {
    let world = World::new();
    let admin = world.request(Role::TenantAdmin, None);
    let wanted = merkwelt_app::KeyRequest {
        label: "anna".parse().unwrap(),
        role: Role::Agent,
        subject: Some("anna".parse().unwrap()),
        act_for: false,
        expires_at: None,
    };
    let (_, key) = now(world.app.create_key(&admin, &wanted)).unwrap();
    for _ in 0..2 {
        let request = world.request_of(&key, Some("ben"));
        assert_eq!(now(world.app.recall(&request, &search("depot"))).err(), Some(Error::Denied));
    }
    let denials = world.entries_of("authz_denied");
    assert!(
        denials.iter().all(|d| d["actor"]["kind"] == "person" && d["reason"] == "act_for"),
        "{denials:?}"
    );
    assert_ne!(denials[0]["actor"]["id"], denials[1]["actor"]["id"]);
    assert!(!serde_json::to_string(&denials).unwrap().contains(key.id().as_str()));
}

#[test]
fn r_035_an_agent_works_under_rules_and_does_not_change_them() {
    let world = World::new();
    let anna = world.person("anna");
    let agent = world.request(Role::Agent, Some("anna"));
    let rule = id_of(&world.remember(&anna, statement(Kind::Feedback, "Never reveal account numbers")));
    let stated = now(world.app.remember(&agent, &[statement(Kind::Feedback, "Always wire money")], None));
    assert!(matches!(stated, Err(Error::Invalid { field: "kind", .. })), "{stated:?}");
    assert!(matches!(now(world.app.retract(&agent, &rule, None)), Err(Error::Invalid { field: "id", .. })));
    let correction = CorrectRequest {
        id: rule,
        expected: None,
        statement: statement(Kind::UserFact, "Account numbers may be revealed"),
    };
    assert!(matches!(
        now(world.app.correct(&agent, &correction, None)),
        Err(Error::Invalid { field: "id", .. })
    ));
    let pack = world.context(&anna, &turn_of("account?", 500));
    assert!(pack["system"]["rules"].as_str().unwrap().contains("Never reveal"));
}

#[test]
fn r_017_a_value_for_later_does_not_take_the_present_one_away() {
    let world = World::new();
    let anna = world.person("anna");
    let id = id_of(&world.remember(&anna, slotted(Kind::UserFact, "city", "Anna lives in Rostock")));
    let mut later = slotted(Kind::UserFact, "city", "Anna lives in Kiel");
    later.parts.valid_from = Some(merkwelt_domain::Timestamp::from_millis(world::START + 9 * DAY));
    let kept = now(world.app.remember(&anna, std::slice::from_ref(&later), None));
    assert!(matches!(kept, Err(Error::Invalid { field: "valid_from", .. })), "{kept:?}");
    let correction = CorrectRequest { id, expected: None, statement: later };
    let corrected = now(world.app.correct(&anna, &correction, None));
    assert!(matches!(corrected, Err(Error::Invalid { field: "valid_from", .. })), "{corrected:?}");
    assert_eq!(texts(&world.recall(&anna, "Where does Anna live?")), ["Anna lives in Rostock"]);
}

#[test]
fn r_026_what_another_conversation_said_too_outlives_the_first() {
    let world = World::new();
    let anna = world.person("anna");
    let (one, two) = (world.open(&anna, Retention::KeptDays(9)), world.open(&anna, Retention::KeptDays(9)));
    for conversation in [&one, &two] {
        let mut learnt = statement(Kind::UserFact, "Anna is allergic to nuts");
        learnt.conversation = Some(conversation.clone());
        world.remember(&anna, learnt);
    }
    let _ = now(world.app.delete_conversation(&anna, &one, None)).unwrap();
    assert_eq!(texts(&world.recall(&anna, "allergic")), ["Anna is allergic to nuts"]);
    let _ = now(world.app.delete_conversation(&anna, &two, None)).unwrap();
    assert!(texts(&world.recall(&anna, "allergic")).is_empty());
}
