//! Servers as embedding engines: every protocol, and everything such servers are known to do wrong. None of it
//! may cost more than a vector, and none may be an error of a search.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use merkwelt_domain::Env;
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_inference::{Embedder as _, Role};
use merkwelt_server::config::{Config, Places};
use merkwelt_server::embedding::{Engine as _, Remote, Unfit, Wanted};
use serde_json::{Value, json};

use crate::changes::second_tenant;
use crate::running::{Running, binary, run, text};
use crate::scripted::{DIMENSION, Mood, Scripted};
use crate::service::sockets;

const PROTOCOLS: [&str; 3] = ["openai", "ollama", "tei"];

pub(crate) fn toml(engine: &str, url: &str, more: &str) -> String {
    format!(
        "[embedding]\nengine = '{engine}'\nurl = '{url}'\nmodel = 'm'\ndimension = {DIMENSION}\nmax_tokens = 64\n\
         pooling = 'mean'\ncosine_floor = 0.2\ncosine_span = 0.8\nquestion_seconds = 1\ntimeout_seconds = 1\n{more}"
    )
}

fn remote_with(engine: &str, url: &str, more: &str) -> (Remote, Arc<FixedEnv>) {
    let places = Places { data_dir: "data".into(), instance_key: None, config: None };
    let config = Config::parse(&toml(engine, url, more), &places, None).unwrap();
    let Wanted::Remote(settings) = config.embedding else { panic!("not a server") };
    let env = Arc::new(FixedEnv::at(0));
    (Remote::to(*settings, env.clone() as Arc<dyn Env>).unwrap(), env)
}

/// An engine that was tried out, over a server that then is in a mood.
fn ready(engine: &str, mood: Mood, more: &str) -> (Scripted, Remote) {
    let server = Scripted::start(Mood::Good);
    let (remote, _) = remote_with(engine, &server.url, more);
    remote.try_out().unwrap();
    remote.admit();
    server.calls();
    server.be(mood);
    (server, remote)
}

/// The service over data in a directory, with a server for its engine; and where its data are.
fn serving(engine: &str, server: &Scripted, dir: &tempfile::TempDir) -> (PathBuf, Running) {
    let data = dir.path().join("data");
    configured(&data, &toml(engine, &server.url, ""));
    let service = Running::start_with(&data, &[]);
    (data, service)
}

fn worked(remote: &Remote, texts: &[&str]) -> Vec<bool> {
    let made = remote.embed_each(Role::Passage, texts);
    assert_eq!(made.len(), texts.len());
    for vector in made.iter().flatten() {
        let length: f32 = vector.as_slice().iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-4, "length {length}");
    }
    made.iter().map(Result::is_ok).collect()
}

const TEXTS: [&str; 5] = ["the contract", "roses in the garden", "a ship", "tea", "nothing in particular"];

#[test]
fn r_117_each_protocol_is_spoken_as_its_document_says() {
    for engine in PROTOCOLS {
        let (server, remote) =
            ready(engine, Mood::Good, "query_prefix = 'query: '\npassage_prefix = 'passage: '\n");
        assert_eq!(worked(&remote, &TEXTS), [true; 5]);
        let [call] = server.calls().try_into().unwrap();
        let sent: Vec<String> = TEXTS.iter().map(|text| format!("passage: {text}")).collect();
        let expected = match engine {
            "openai" => ("/v1/embeddings", json!({"model": "m", "input": sent, "encoding_format": "float"})),
            "ollama" => ("/api/embed", json!({"model": "m", "input": sent, "truncate": true})),
            _ => ("/embed", json!({"inputs": sent, "truncate": true, "normalize": true})),
        };
        assert_eq!((call.path.as_str(), &call.body, call.authorization), (expected.0, &expected.1, None));
        let question = remote.embed(Role::Query, &["Welches Schiff?"]).unwrap().pop().unwrap();
        assert_eq!(server.calls()[0].texts(), ["query: Welches Schiff?"]);
        let passages = remote.embed(Role::Passage, &TEXTS).unwrap();
        let near = passages.iter().map(|passage| passage.cosine(&question).unwrap()).collect::<Vec<_>>();
        assert!(near[2] > 0.9 && near.iter().filter(|cosine| **cosine > 0.5).count() == 1, "{near:?}");
    }
}

#[test]
fn a_key_and_a_dimension_are_sent_only_if_they_are_configured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sk-test\n").unwrap();
    let more = format!("send_dimension = true\napi_key_file = '{}'\n", file.path().display());
    let (server, remote) = ready("openai", Mood::Good, &more);
    assert_eq!(worked(&remote, &["tea"]), [true]);
    let call = server.calls().remove(0);
    assert_eq!(
        (call.authorization.as_deref(), &call.body["dimensions"]),
        (Some("Bearer sk-test"), &json!(8))
    );
    assert!(!format!("{remote:?}").contains("sk-test"));
}

/// A certificate for this machine and its key, made by `openssl`.
fn certificate(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
                .split(' '),
        )
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output();
    if made.is_ok_and(|made| made.status.success()) {
        return Some((certificate, key));
    }
    println!("skipped: there is no openssl to make a certificate");
    None
}

#[test]
fn https_is_spoken_with_whom_the_named_certificates_vouch_for_and_with_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let Some((certificate, key)) = certificate(dir.path()) else { return };
    let server = Scripted::secure(&certificate, &key);
    let (trusted, _) =
        remote_with("openai", &server.url, &format!("ca_file = '{}'\n", certificate.display()));
    trusted.try_out().unwrap();
    trusted.admit();
    assert_eq!(worked(&trusted, &TEXTS), [true; 5]);
    let others = dir.path().join("others");
    std::fs::create_dir(&others).unwrap();
    let (other, _) = self::certificate(&others).unwrap();
    let (stranger, _) = remote_with("openai", &server.url, &format!("ca_file = '{}'\n", other.display()));
    let Err(Unfit::Wrong(said)) = stranger.try_out() else { panic!("a stranger is trusted") };
    assert!(said.contains("its certificate is not trusted") && said.contains("embedding.ca_file"), "{said}");
}

#[test]
fn one_text_that_a_server_cannot_take_spoils_no_other() {
    let without_the_third = [true, true, false, true, true];
    for engine in PROTOCOLS {
        for mood in [
            Mood::FailsOver("ship"),
            Mood::ClosesOver("ship"),
            Mood::StatusOver("ship", 401),
            Mood::StatusOver("ship", 403),
            Mood::StatusOver("ship", 502),
            Mood::StatusOver("ship", 503),
            Mood::StatusOver("ship", 226),
            Mood::StatusOver("ship", 302),
            Mood::StatusOver("ship", 404),
            Mood::StatusOver("ship", 424),
            Mood::Component("ship", "NaN"),
            Mood::Component("ship", "null"),
            Mood::Component("ship", "1e39"),
            Mood::Component("ship", "1e999"),
            Mood::Component("ship", "\"0.1\""),
            Mood::Zero("ship"),
        ] {
            let (_server, remote) = ready(engine, mood.clone(), "");
            assert_eq!(worked(&remote, &TEXTS), without_the_third, "{engine} {mood:?}");
            assert!(remote.is_available(), "{engine} {mood:?}");
        }
    }
}

#[test]
fn r_117_texts_that_a_server_cannot_take_take_it_away_from_no_other_however_many_they_are() {
    let ships = ["a ship", "one more ship", "the third ship", "ship", "ships"];
    let n_trials = |server: &Scripted| {
        let texts = server.calls().into_iter().flat_map(|call| call.texts());
        texts.filter(|text| text.contains("Vereinbarung")).count()
    };
    for engine in PROTOCOLS {
        for mood in [Mood::FailsOver("ship"), Mood::RefusesOver("ship")] {
            let server = Scripted::start(Mood::Good);
            let (remote, env) = remote_with(engine, &server.url, "");
            remote.try_out().unwrap();
            remote.admit();
            server.calls();
            server.be(mood.clone());
            // Whether the server is to blame is asked once in a while, however often they are sent.
            for _ in 0..4 {
                assert_eq!(worked(&remote, &ships), [false; 5], "{engine} {mood:?}");
                assert!(remote.is_available(), "{engine} {mood:?}: texts took it away");
            }
            assert_eq!(n_trials(&server), 1, "{engine} {mood:?}");
            env.advance(60_000);
            assert_eq!(worked(&remote, &ships), [false; 5]);
            assert_eq!(n_trials(&server), 1);
            assert_eq!(worked(&remote, &TEXTS), [true, true, false, true, true]);
            // Soon after that a server which fails for everything is noticed all the same.
            server.be(Mood::Status(500, None));
            env.advance(10_000);
            assert_eq!(worked(&remote, &TEXTS), [false; 5]);
            assert!(!remote.is_available(), "{engine} {mood:?}");
        }
    }
    let (_server, remote) = ready("tei", Mood::SlowOver("ship", Duration::from_secs(3)), "");
    assert_eq!(worked(&remote, &["a ship"]), [false]);
    assert!(remote.is_available() && worked(&remote, &["tea"]) == [true], "a slow text took it away");
}

#[test]
fn many_texts_over_which_a_server_breaks_are_no_flood_of_calls() {
    for mood in [Mood::ClosesOver("ship"), Mood::StatusOver("ship", 403), Mood::StatusOver("ship", 404)] {
        let (server, remote) = ready("tei", mood.clone(), "");
        let ships = ["a ship"; 64];
        assert!(worked(&remote, &ships).iter().all(|is_made| !is_made));
        let n_calls = server.calls().len();
        // Divided to single texts there are two calls a text; a trial and one more call for every eighth.
        assert!(n_calls <= 64 * 2 + 2 * (64 * 2 / 8 + 1), "{n_calls} calls, {mood:?}");
        assert!(remote.is_available(), "{mood:?}");
    }
}

#[test]
fn an_answer_in_another_order_is_put_in_order_and_one_without_order_is_not_used() {
    let (server, remote) = ready("openai", Mood::Good, "");
    let in_order = remote.embed(Role::Passage, &TEXTS).unwrap();
    server.be(Mood::Shuffled);
    assert_eq!(remote.embed(Role::Passage, &TEXTS).unwrap(), in_order);
    // Alone each text has the number 0, so nothing can be mixed up.
    server.be(Mood::Doubled);
    assert_eq!(remote.embed(Role::Passage, &TEXTS).unwrap(), in_order);
    server.calls();
    server.be(Mood::OneMissing);
    assert_eq!(worked(&remote, &TEXTS), [false; 5]);
}

#[test]
fn vectors_are_scaled_to_length_one_whatever_the_server_says_it_did() {
    for engine in PROTOCOLS {
        let (server, remote) = ready(engine, Mood::Good, "");
        let right = remote.embed(Role::Passage, &TEXTS).unwrap();
        server.be(Mood::Long);
        let long = remote.embed(Role::Passage, &TEXTS).unwrap();
        assert!(right.iter().zip(&long).all(|(a, b)| a.cosine(b).unwrap() > 0.999_99));
    }
}

#[test]
fn a_limit_on_texts_in_a_call_is_met_by_dividing_and_a_configured_one_is_kept() {
    let (server, remote) = ready("tei", Mood::AtMost(2), "");
    assert_eq!(worked(&remote, &TEXTS), [true; 5]);
    let sizes: Vec<usize> = server.calls().iter().map(|call| call.texts().len()).collect();
    assert_eq!(sizes, [5, 2, 3, 1, 2]);
    let (server, remote) = ready("tei", Mood::AtMost(2), "batch = 2\n");
    assert_eq!(worked(&remote, &TEXTS), [true; 5]);
    let sizes: Vec<usize> = server.calls().iter().map(|call| call.texts().len()).collect();
    assert_eq!(sizes, [2, 2, 1]);
}

#[test]
fn an_over_long_text_is_cut_until_it_is_taken_and_says_so() {
    let long = "tea and ships ".repeat(100);
    let (server, remote) = ready("openai", Mood::Longest(80), "");
    let made = remote.embed_each(Role::Passage, &["tea", &long]);
    assert!(!made[0].as_ref().unwrap().truncated());
    assert!(made[1].as_ref().unwrap().truncated());
    let lengths: Vec<usize> = server.calls().iter().map(|call| call.texts().last().unwrap().len()).collect();
    // Four bytes for each of 64 tokens, then half of it, and half again.
    assert_eq!(lengths, [256, 3, 256, 128, 64]);
    // A cut never divides a letter.
    let umlauts = "ä".repeat(500);
    assert_eq!(worked(&remote, &[&umlauts]), [true]);
}

#[test]
fn a_server_that_fails_for_everything_is_left_alone_after_a_few_calls() {
    let (server, remote) = ready("ollama", Mood::Status(500, None), "");
    let texts = vec!["tea"; 32];
    assert_eq!(worked(&remote, &texts), [false; 32]);
    assert!(server.calls().len() <= 12 && !remote.is_available());
    assert_eq!(worked(&remote, &texts), [false; 32]);
    assert_eq!(server.calls().len(), 0, "it was asked although it is away");
}

#[test]
fn whatever_takes_a_server_away_costs_one_call_or_a_trial_more_and_the_server_is_tried_out_before_it_is_asked_again()
 {
    let elsewhere = Scripted::start(Mood::Good);
    for engine in PROTOCOLS {
        for (mood, n_calls) in [
            (Mood::Status(429, Some(5)), 1),
            (Mood::Status(503, Some(5)), 1),
            // Texts could be to blame: the trial says that they are not.
            (Mood::Status(503, None), 2),
            (Mood::Status(401, None), 2),
            (Mood::Status(404, None), 2),
            (Mood::Redirect(format!("{}/v1/embeddings", elsewhere.url)), 2),
            (Mood::Components(4), 2),
            (Mood::Cut, 2),
            (Mood::Closes, 2),
            (Mood::Endless, 2),
        ] {
            let server = Scripted::start(Mood::Good);
            let (remote, env) = remote_with(engine, &server.url, "");
            remote.try_out().unwrap();
            remote.admit();
            server.calls();
            server.be(mood.clone());
            assert_eq!(worked(&remote, &TEXTS), [false; 5], "{engine} {mood:?}");
            assert_eq!((server.calls().len(), remote.is_available()), (n_calls, false), "{engine} {mood:?}");
            assert!(!remote.is_due(), "{engine} {mood:?}: it is not left alone");
            env.advance(5_000);
            assert!(remote.is_due() && remote.try_out().is_err(), "{engine} {mood:?}");
            assert!(!remote.is_due(), "it is left alone longer now");
            server.be(Mood::Good);
            env.advance(60_000);
            assert!(remote.is_due());
            remote.try_out().unwrap();
            assert!(!remote.is_available(), "nobody took it into use");
            remote.admit();
            assert_eq!(worked(&remote, &TEXTS), [true; 5], "{engine} {mood:?}");
        }
    }
    assert_eq!(elsewhere.calls().len(), 0, "a redirect was followed");
}

#[test]
fn a_slow_server_gets_smaller_calls_and_a_question_waits_for_a_second_at_most() {
    let (server, remote) = ready("openai", Mood::Slow(Duration::from_millis(150)), "batch = 16\n");
    let texts = vec!["tea"; 16];
    #[expect(clippy::disallowed_methods, reason = "the test measures how long a call may take")]
    let began = Instant::now();
    assert_eq!(worked(&remote, &texts), [false; 16]);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(remote.is_available(), "it works, only slower");
    while worked(&remote, &texts[..4]) != [true; 4] {}
    server.be(Mood::Slow(Duration::from_secs(4)));
    #[expect(clippy::disallowed_methods, reason = "the test measures how long a call may take")]
    let began = Instant::now();
    assert!(remote.embed(Role::Query, &["tea"]).unwrap_err().is_away());
    assert!(began.elapsed() < Duration::from_secs(3) && !remote.is_available());
}

#[test]
fn a_server_that_cannot_be_right_is_refused_with_a_text_that_says_what_to_do() {
    let said = |mood, engine: &str| {
        let server = Scripted::start(mood);
        let (remote, _) = remote_with(engine, &server.url, "");
        match remote.try_out().unwrap_err() {
            Unfit::Wrong(said) => said,
            Unfit::Away(said) => panic!("it is not only away: {said}"),
        }
    };
    assert!(
        said(Mood::Components(4), "tei").contains("4 numbers for a text, but the model is described with 8")
    );
    assert!(said(Mood::Body("{}"), "openai").contains("not what the OpenAI protocol says"));
    assert!(said(Mood::Body("<html>"), "ollama").contains("embedding.engine"));
    assert!(said(Mood::Zero(""), "tei").contains("no usable vector"));
    assert!(said(Mood::Component("", "0.9e9"), "openai").contains("pooling or prefixes"));
    assert!(said(Mood::Status(401, None), "openai").contains("embedding.api_key_file"));
    assert!(said(Mood::Status(404, None), "openai").contains("embedding.model"));
    assert!(said(Mood::Redirect("http://127.0.0.1:1/".into()), "tei").contains("no redirect is followed"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (remote, _) = remote_with("tei", &format!("http://{nobody}"), "");
    assert!(matches!(remote.try_out(), Err(Unfit::Away(_))));
}

#[test]
fn i_014_another_model_behind_the_same_name_is_noticed_when_the_server_comes_back() {
    let (server, remote) = ready("ollama", Mood::Closes, "");
    assert_eq!(worked(&remote, &["tea"]), [false]);
    server.be(Mood::AnotherModel);
    let said = remote.try_out().unwrap_err().to_string();
    assert!(said.contains("another model stands behind the same name"), "{said}");
    server.be(Mood::Good);
    remote.try_out().unwrap();
}

// From here on with the real binary.

pub(crate) fn configured(data: &Path, text: &str) {
    let mut name = data.file_name().unwrap().to_owned();
    name.push(".toml");
    std::fs::write(data.with_file_name(name), text).unwrap();
}

pub(crate) fn remember(service: &Running, words: &str) {
    let body = json!({"kind": "user_fact", "text": words});
    service.person("anna").post("/v1/memories", &body, None).unwrap().success().unwrap();
}

pub(crate) fn ask(service: &Running, question: &str) -> Value {
    let body = json!({"question": question, "k": 3});
    service.person("anna").post("/v1/recall", &body, None).unwrap().success().unwrap()
}

/// Whether a question finds a text by its meaning.
pub(crate) fn by_meaning(found: &Value, words: &str) -> bool {
    let hit = &found["hits"][0];
    found["retrieval"] == "hybrid" && hit["text"] == words && hit["score"]["cosine"].as_f64() > Some(0.9)
}

/// Waits for something that happens beside the requests.
pub(crate) fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..300 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within half a minute: {what}");
}

const CONTRACT: &str = "The agreement ends in December";
const QUESTION: &str = "Wann läuft mein Vertrag ab?";

#[test]
fn r_117_a_failing_engine_makes_searches_lexical_and_never_an_error_and_what_was_missed_is_filled_in() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let (_, service) = serving("openai", &server, &dir);
    remember(&service, "Roses grow in the garden");
    remember(&service, CONTRACT);
    assert!(by_meaning(&ask(&service, QUESTION), CONTRACT));
    assert_eq!(service.ready().1["retrieval"], "hybrid");
    // It goes away; nothing of it is an error.
    server.be(Mood::Status(503, None));
    let ship = "The vessel is in the harbour";
    remember(&service, ship);
    let found = ask(&service, QUESTION);
    assert_eq!(
        (&found["retrieval"], &found["hits"][0]["score"]["cosine"]),
        (&json!("lexical"), &Value::Null)
    );
    assert_eq!(ask(&service, "vessel")["hits"][0]["text"], ship);
    let pack = json!({"question": QUESTION, "budget": 400});
    let pack = service.person("anna").post("/v1/context", &pack, None).unwrap().success().unwrap();
    assert_eq!((&pack["retrieval"], &service.ready().1["retrieval"]), (&json!("lexical"), &json!("lexical")));
    assert_eq!(service.ready().0, 200);
    // It comes back; what was written meanwhile gets its vector without a new start.
    server.be(Mood::Good);
    soon("the missing vector is filled in", || by_meaning(&ask(&service, "Welches Schiff?"), ship));
    assert_eq!(service.ready().1["retrieval"], "hybrid");
    // What a server says in an error is not repeated, because it may repeat the text (I-12).
    let log = service.log();
    assert!(
        log.contains("retrieval is lexical") && !log.contains("vessel") && !log.contains("Vertrag"),
        "{log}"
    );
}

#[test]
fn a_text_that_the_engine_cannot_take_stays_pending_and_is_found_by_its_words() {
    let server = Scripted::start(Mood::FailsOver("vessel"));
    let dir = tempfile::tempdir().unwrap();
    let (data, service) = serving("ollama", &server, &dir);
    let many: Vec<Value> = ["a vessel", CONTRACT, "tea in the garden"]
        .iter()
        .map(|text| json!({"kind": "user_fact", "text": text}))
        .collect();
    let done = service.person("anna").post("/v1/memories/batch", &json!({"memories": many}), None).unwrap();
    assert!(done.status < 300, "{}", done.body);
    assert!(by_meaning(&ask(&service, QUESTION), CONTRACT));
    let found = ask(&service, "vessel");
    assert_eq!(found["hits"][0]["text"], "a vessel");
    let keys = service.stop();
    // The engine was mended: the next start embeds what is left, without being asked.
    server.be(Mood::Good);
    let service = Running::start_with(&data, &[]).with_keys(keys);
    soon("the text is embedded", || by_meaning(&ask(&service, "Welches Schiff?"), "a vessel"));
}

/// Questions for some seconds; how many were not answered by meaning.
fn n_lexical(service: &Running) -> usize {
    let answers = (0..40).map(|_| {
        std::thread::sleep(Duration::from_millis(150));
        ask(service, QUESTION)
    });
    answers.filter(|found| !by_meaning(found, CONTRACT)).count()
}

#[test]
fn r_117_three_refused_texts_of_one_tenant_leave_the_others_their_engine_now_and_after_a_start() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let (data, service) = serving("openai", &server, &dir);
    remember(&service, CONTRACT);
    server.be(Mood::RefusesOver("vessel"));
    let person = second_tenant(&service);
    for number in 0..3 {
        let body = json!({"kind": "user_fact", "text": format!("vessel {number}")});
        service
            .client(&person)
            .acting_for("bob")
            .post("/v1/memories", &body, None)
            .unwrap()
            .success()
            .unwrap();
    }
    assert_eq!(n_lexical(&service), 0, "{}", service.log());
    let keys = service.stop();
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert_eq!(n_lexical(&service), 0, "{}", service.log());
    assert_eq!(service.ready().1["retrieval"], "hybrid");
}

#[test]
fn r_117_a_text_over_which_the_server_closes_takes_the_engine_from_nobody_now_and_after_it_was_away() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let (_, service) = serving("openai", &server, &dir);
    remember(&service, CONTRACT);
    server.be(Mood::Status(503, None));
    remember(&service, "a vessel");
    server.be(Mood::ClosesOver("vessel"));
    soon("the engine is taken up again", || by_meaning(&ask(&service, QUESTION), CONTRACT));
    assert_eq!(n_lexical(&service), 0, "the others have no engine: {}", service.log());
    remember(&service, "one more vessel");
    assert_eq!(n_lexical(&service), 0, "the others have no engine: {}", service.log());
}

#[test]
fn an_engine_that_is_not_there_at_the_start_is_taken_up_when_it_comes() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &toml("tei", &format!("http://{address}"), ""));
    let service = Running::start_with(&data, &[]);
    remember(&service, CONTRACT);
    assert_eq!(ask(&service, QUESTION)["retrieval"], "lexical");
    assert!(service.log().contains("nobody listens at its address"), "{}", service.log());
    let _server = Scripted::on(TcpListener::bind(address).unwrap(), Mood::Good);
    soon("the engine is taken up", || by_meaning(&ask(&service, QUESTION), CONTRACT));
}

#[test]
fn a_wrongly_configured_engine_stops_the_start_with_what_to_do() {
    let server = Scripted::start(Mood::Components(5));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &toml("openai", &server.url, ""));
    let mut serve = binary();
    let serve = serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data).output().unwrap();
    let said = text(&serve.stderr);
    assert!(
        !serve.status.success() && said.contains("embedding.dimension") && said.contains("--no-model"),
        "{said}"
    );
    assert!(!data.exists(), "something was created");
}

#[test]
fn i_014_data_of_one_engine_are_refused_to_another_model_and_to_another_model_of_the_same_name() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let (data, service) = serving("openai", &server, &dir);
    remember(&service, CONTRACT);
    service.stop();
    let refused = |config: &str| {
        configured(&data, config);
        let done = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
        assert!(!done.status.success());
        text(&done.stderr)
    };
    let said = refused(&toml("openai", &server.url, "passage_prefix = 'passage: '\n"));
    assert!(said.contains("run `merkwelt reembed`"), "{said}");
    server.be(Mood::AnotherModel);
    let said = refused(&toml("openai", &server.url, ""));
    assert!(said.contains("another model stands behind the same name"), "{said}");
}

#[test]
fn r_118_with_a_configured_engine_its_address_is_the_only_one_that_is_called() {
    let (server, proxy) = (Scripted::start(Mood::Good), Scripted::start(Mood::Good));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &toml("openai", &server.url, ""));
    let mut command = binary();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        command.env(name, &proxy.url);
    }
    let service = Running::launch(command).unwrap();
    let hex = |url: &str| format!(":{:04X}", url.rsplit(':').next().unwrap().parse::<u16>().unwrap());
    let (own, engine) = (hex(&service.url), hex(&server.url));
    for number in 0..5 {
        remember(&service, &format!("fact {number}"));
        ask(&service, QUESTION);
        for (local, remote) in sockets(service.pid()) {
            assert!(local.ends_with(&own) || remote.ends_with(&engine), "a socket {local} -> {remote}");
        }
    }
    assert!(server.calls().len() >= 10 && proxy.calls().is_empty());
}

#[test]
fn calls_to_a_server_at_once_are_no_more_than_configured() {
    let server = Scripted::start(Mood::Good);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &toml("openai", &server.url, "concurrency = 2\n"));
    let service = Running::start_with(&data, &[]);
    remember(&service, CONTRACT);
    server.be(Mood::Slow(Duration::from_millis(60)));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            let service = &service;
            std::thread::Builder::new().spawn_scoped(scope, || ask(service, QUESTION)).unwrap();
        }
    });
    // One more may be at work for what is missing.
    assert!(server.most_at_once() <= 3, "{}", server.most_at_once());
    soon("questions are answered by meaning", || by_meaning(&ask(&service, QUESTION), CONTRACT));
}
