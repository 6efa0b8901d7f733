//! Servers as rerankers: the order of an answer may change, what is in it never does, and nothing that such a
//! server does wrong is an error or a long wait.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use merkwelt_domain::Env;
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_inference::rerank::{Reranker as _, Score};
use merkwelt_server::config::{Config, Places};
use merkwelt_server::reranking::Remote;
use serde_json::{Value, json};

use crate::engines::{configured, soon};
use crate::running::{Running, binary, doctor, text};
use crate::scripted::{Mood, Scripted};

const PROTOCOLS: [&str; 2] = ["tei", "jina"];

fn toml(engine: &str, url: &str, more: &str) -> String {
    format!("[reranker]\nengine = '{engine}'\nurl = '{url}'\nmodel = 'm'\ntimeout_milliseconds = 800\n{more}")
}

/// A reranker that was tried out, over a server that then is in a mood.
fn ready(engine: &str, mood: Mood, more: &str) -> (Scripted, Remote, Arc<FixedEnv>) {
    let server = Scripted::start(Mood::Good);
    let places = Places { data_dir: "data".into(), instance_key: None, config: None };
    let config = Config::parse(&toml(engine, &server.url, more), &places, None).unwrap();
    let env = Arc::new(FixedEnv::at(0));
    let remote = Remote::to(config.reranker.unwrap(), env.clone() as Arc<dyn Env>).unwrap();
    remote.try_out().unwrap();
    server.calls();
    server.be(mood);
    (server, remote, env)
}

const TEXTS: [&str; 3] = ["a ship", "the contract", "tea"];

fn values(remote: &Remote) -> Option<Vec<Option<f32>>> {
    let scores = remote.score("Welche Vereinbarung?", &TEXTS).ok()?;
    Some(scores.into_iter().map(|score| score.map(Score::value)).collect())
}

#[test]
fn each_protocol_is_spoken_as_its_document_says() {
    for engine in PROTOCOLS {
        let (server, remote, _) = ready(engine, Mood::Good, "");
        let [Some(ship), Some(contract), Some(tea)] = values(&remote).unwrap()[..] else { panic!() };
        assert!(contract > ship && contract > tea, "{engine}");
        let [call] = server.calls().try_into().unwrap();
        let query = "Welche Vereinbarung?";
        let expected = match engine {
            "tei" => {
                ("/rerank", json!({"query": query, "texts": TEXTS, "raw_scores": false, "truncate": true}))
            }
            _ => (
                "/v1/rerank",
                json!({"model": "m", "query": query, "documents": TEXTS, "top_n": 3, "return_documents": false}),
            ),
        };
        assert_eq!((call.path.as_str(), &call.body, call.authorization), (expected.0, &expected.1, None));
    }
}

#[test]
fn a_text_without_a_usable_score_spoils_no_other() {
    for engine in PROTOCOLS {
        for number in ["null", "1e39"] {
            let (_server, remote, _) = ready(engine, Mood::Component("tea", number), "");
            let some: Vec<bool> = values(&remote).unwrap().iter().map(Option::is_some).collect();
            assert_eq!(some, [true, true, false], "{engine} {number}");
        }
        let (_server, remote, _) = ready(engine, Mood::OneMissing, "");
        assert_eq!(values(&remote).unwrap().iter().filter(|score| score.is_some()).count(), 2);
    }
}

#[test]
fn whatever_takes_a_reranker_away_is_no_score_and_it_is_tried_out_before_it_is_asked_again() {
    let moods = [
        // Three questions, and the trial that says that the server is to blame.
        (Mood::Doubled, 4),
        (Mood::Body("no JSON"), 4),
        (Mood::Status(500, None), 4),
        (Mood::Slow(Duration::from_secs(1)), 4),
        (Mood::Status(429, Some(5)), 1),
        // Texts could be to blame: the trial says that they are not.
        (Mood::Status(401, None), 2),
        (Mood::Status(404, None), 2),
        (Mood::Endless, 2),
        (Mood::Cut, 2),
        (Mood::Closes, 2),
    ];
    for engine in PROTOCOLS {
        for (mood, calls) in moods.clone() {
            let (server, remote, env) = ready(engine, mood.clone(), "");
            for _ in 0..5 {
                assert_eq!(values(&remote), None, "{engine} {mood:?}");
            }
            assert_eq!(server.calls().len(), calls, "{engine} {mood:?}: it is not left alone");
            server.be(Mood::Good);
            assert_eq!(values(&remote), None, "it is asked before its time");
            env.advance(60_000);
            assert!(values(&remote).is_some(), "{engine} {mood:?}");
            assert_eq!(server.calls().len(), 2, "one trial and one question");
        }
    }
}

#[test]
fn r_117_texts_that_a_reranker_cannot_take_take_it_away_from_nobody_else() {
    for engine in PROTOCOLS {
        for mood in [Mood::FailsOver("tea"), Mood::RefusesOver("tea"), Mood::Component("tea", "\"high\"")] {
            let (server, remote, _) = ready(engine, mood.clone(), "");
            for _ in 0..12 {
                assert_eq!(values(&remote), None, "{engine} {mood:?}");
            }
            assert!(
                remote.score("Welche Vereinbarung?", &["a ship", "the contract"]).is_ok(),
                "{engine} {mood:?}"
            );
            assert_eq!(server.calls().len(), 12 + 1 + 1, "one trial in a moment");
        }
        for mood in [Mood::ClosesOver("tea"), Mood::StatusOver("tea", 403), Mood::StatusOver("tea", 503)] {
            let (_server, remote, _) = ready(engine, mood.clone(), "");
            for _ in 0..3 {
                assert_eq!(values(&remote), None, "{engine} {mood:?}");
                let others = remote.score("Welche Vereinbarung?", &["a ship", "the contract"]);
                assert!(others.is_ok(), "{engine} {mood:?}");
            }
        }
    }
}

#[test]
fn what_is_sent_is_bounded() {
    let (server, remote, _) = ready("tei", Mood::Good, "max_tokens = 32\n");
    let long = "ä".repeat(1_000);
    remote.score(&long, &[&long, "tea"]).unwrap();
    let call = server.calls().remove(0);
    assert_eq!((call.body["query"].as_str().unwrap().len(), call.texts()[0].len()), (128, 128));
}

// From here on with the real binary.

fn started(server: &Scripted, data: &Path, more: &str) -> Running {
    configured(data, &toml("tei", &server.url, more));
    Running::start(data)
}

fn keep(service: &Running, who: &str, words: &str) {
    let body = json!({
        "kind": "project_state", "text": words, "expires_at": "2099-01-01T00:00:00Z",
    });
    service.person(who).post("/v1/memories", &body, None).unwrap().success().unwrap();
}

/// All match the question by the same words; what else they are about only the reranker knows.
const KEPT: [&str; 3] =
    ["The tea order has an open end", "The agreement has an open end", "The roses have an open end"];
const OF_CONTRACT: &str = "Vertrag: open end?";
const OF_GARDEN: &str = "Garten: open end?";

fn ask(service: &Running, question: &str) -> Value {
    let body = json!({"question": question, "k": 10});
    service.person("anna").post("/v1/recall", &body, None).unwrap().success().unwrap()
}

fn texts(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect()
}

#[test]
fn a_reranker_changes_the_order_of_results_and_never_what_is_among_them() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = started(&server, &data, "");
    KEPT.iter().for_each(|words| keep(&service, "anna", words));
    let (contract, garden) = (ask(&service, OF_CONTRACT), ask(&service, OF_GARDEN));
    assert_eq!((texts(&contract)[0], texts(&garden)[0]), (KEPT[1], KEPT[2]));
    server.be(Mood::Status(503, None));
    let plain = ask(&service, OF_CONTRACT);
    assert_eq!((&contract["reranking"], &plain["reranking"]), (&json!("applied"), &json!("not_applied")));
    let by_text = |found: &Value| {
        let mut hits: Vec<(String, Value, Value)> = Vec::new();
        for hit in found["hits"].as_array().unwrap() {
            let (id, scores) = (hit["id"].to_string(), &hit["score"]);
            hits.push((id, scores["total"].clone(), scores["lexical"].clone()));
        }
        hits.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        hits
    };
    assert_eq!(by_text(&contract), by_text(&plain), "the same hits, each with the scores of the search");
    let given = |found: &Value| -> Vec<Option<f64>> {
        found["hits"].as_array().unwrap().iter().map(|hit| hit["score"]["rerank"].as_f64()).collect()
    };
    assert!(given(&contract).is_sorted_by(|a, b| a >= b) && given(&contract)[0].is_some());
    assert_eq!(given(&plain), [None; 3]);
    // A read event of each answer, and all of them hold.
    assert!(service.verified_ledger().contains("retrieval"));
    service.stop();
    let (content, said) = doctor(&data);
    assert!(content && said.contains("results are not reranked"), "{said}");
    server.be(Mood::Good);
    let (content, said) = doctor(&data);
    assert!(content && said.contains("ok    the reranker works"), "{said}");
}

#[test]
fn r_096_a_pack_whose_lines_were_reranked_is_delivered_again_byte_for_byte() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let service = started(&server, &dir.path().join("data"), "");
    KEPT.iter().for_each(|words| keep(&service, "anna", words));
    let anna = service.person("anna");
    let pack = |question: &str| {
        let body = json!({"question": question, "budget": 400, "project_state": "include"});
        anna.post("/v1/context", &body, None).unwrap()
    };
    for (question, first) in [(OF_CONTRACT, KEPT[1]), (OF_GARDEN, KEPT[2])] {
        let delivered = pack(question);
        let view = delivered.json().unwrap();
        assert_eq!(view["reranking"], "applied", "{view}");
        let turn = view["turn"].as_str().unwrap();
        let at = |words: &str| turn.find(words).unwrap();
        assert!(KEPT.iter().all(|words| at(first) <= at(words)), "{turn}");
        assert!(view["items"][0]["score"]["rerank"].is_number());
        let again = anna.get(&format!("/v1/packs/{}", view["pack_id"].as_str().unwrap())).unwrap();
        assert_eq!(again.body, delivered.body);
    }
    server.be(Mood::Body("nonsense"));
    let mut view = pack(OF_CONTRACT).json().unwrap();
    assert_eq!(view["reranking"], "not_applied");
    assert_eq!(view["items"].as_array_mut().unwrap().len(), 3);
}

#[test]
fn a_reranker_is_sent_only_what_its_asker_is_delivered() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let service = started(&server, &dir.path().join("data"), "texts = 2\n");
    KEPT.iter().for_each(|words| keep(&service, "anna", words));
    keep(&service, "bert", "The ship of Bert has an open end");
    server.calls();
    let found = ask(&service, OF_CONTRACT);
    let [call] = server.calls().try_into().unwrap();
    assert_eq!(call.texts().len(), 2, "no more than configured");
    assert!(call.texts().iter().all(|sent| texts(&found).contains(&sent.as_str())), "{:?}", call.texts());
    assert_eq!(texts(&found).len(), 3);
    // One result needs no order.
    let only = ask_for(&service, 1);
    assert_eq!((server.calls().len(), &only["reranking"]), (0, &json!("not_applied")));
}

fn ask_for(service: &Running, k: u16) -> Value {
    let body = json!({"question": OF_CONTRACT, "k": k});
    service.person("anna").post("/v1/recall", &body, None).unwrap().success().unwrap()
}

#[test]
fn a_slow_reranker_costs_no_more_than_its_time_limit_and_one_that_comes_late_is_taken_up() {
    // Nobody answers there yet.
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &toml("tei", &format!("http://{address}"), ""));
    let service = Running::start(&data);
    assert!(service.log().contains("results are not reranked"), "{}", service.log());
    KEPT.iter().for_each(|words| keep(&service, "anna", words));
    assert_eq!(ask(&service, OF_CONTRACT)["reranking"], "not_applied");
    let server = Scripted::on(place, Mood::Good);
    soon("the reranker is taken up", || ask(&service, OF_CONTRACT)["reranking"] == "applied");
    server.be(Mood::Slow(Duration::from_secs(5)));
    #[expect(clippy::disallowed_methods, reason = "the test measures how long a request really waits")]
    let began = Instant::now();
    assert_eq!(texts(&ask(&service, OF_CONTRACT)).len(), 3);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // Neither question nor text is in the log (I-12).
    assert!(!service.log().contains("open end"), "{}", service.log());
}

#[test]
fn a_wrongly_configured_reranker_stops_the_start_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Scripted::start(Mood::Body("{}"));
    configured(&data, &toml("tei", &server.url, ""));
    let mut serve = binary();
    serve.args(["serve", "--no-model", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let done = serve.output().unwrap();
    let said = text(&done.stderr);
    assert!(!done.status.success() && said.contains("reranker.engine"), "{said}");
    assert!(!data.exists(), "something was created");
}
