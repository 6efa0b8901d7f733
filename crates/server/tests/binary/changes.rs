//! Another embedding model while the service serves: reads and writes go on, each answer comes from one model, and
//! death, a missing engine and a changed mind cost nothing but time.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use merkwelt_app::embedding::model_id;
use merkwelt_app::{App, EmbeddingModel, NextModel, RecallRequest, RunContext, StatementRequest};
use merkwelt_authz::Request;
use merkwelt_domain::memory::{Kind, Particulars};
use merkwelt_domain::{Content, Purpose, TenantId};
use merkwelt_inference::embed::Error;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role};
use merkwelt_server::config::{Config, Places};
use merkwelt_server::embedding::{Engine as _, Remote, Wanted};
use merkwelt_server::model::BlockingThreads;
use merkwelt_server::wiring;
use merkwelt_store::change::NewOwner;
use merkwelt_store::query::{KindSet, TopK, Turns};
use merkwelt_store_sqlite::{FillPlace, Sqlite};
use serde_json::{Value, json};

use crate::engines::{ask, by_meaning, configured, remember, soon, toml};
use crate::running::{Running, run, text};
use crate::scripted::{DIMENSION, Mood, Scripted, WIDE};

const CONTRACT: &str = "The agreement ends in December";
const QUESTION: &str = "Wann läuft mein Vertrag ab?";
const SHIP: &str = "The vessel is in the harbour";
const N_FACTS: usize = 150;

/// The present model alone. A busy machine may take its time: an engine that counts as away would be another test.
fn before(former: &Scripted) -> String {
    patient(&toml("openai", &former.url, ""))
}

fn patient(text: &str) -> String {
    text.replace("_seconds = 1\n", "_seconds = 20\n")
}

/// The coming model beside the present one.
fn with_next(former: &Scripted, new: &Scripted) -> String {
    before(former) + &alone(new).replace("[embedding]", "[next_embedding]")
}

/// The coming model as the only one.
fn alone(new: &Scripted) -> String {
    patient(&toml("tei", &new.url, "batch = 8\n"))
        .replace(&format!("dimension = {DIMENSION}"), &format!("dimension = {WIDE}"))
}

fn state(service: &Running) -> String {
    let (status, told) = service.ready();
    assert_eq!(status, 200, "{told}");
    told["embedding_change"]["state"].as_str().unwrap_or("none").to_owned()
}

/// Texts that were sent to be kept; trial sentences and questions are not among them.
fn n_sent(server: &Scripted) -> usize {
    let texts = server.calls().into_iter().flat_map(|call| call.texts());
    texts.filter(|text| text.contains("fact") || text == CONTRACT || text == SHIP).count()
}

fn fill(service: &Running) {
    let facts: Vec<_> =
        (0..N_FACTS).map(|n| json!({"kind": "user_fact", "text": format!("fact {n}")})).collect();
    for part in facts.chunks(50) {
        let done = service.person("anna").post("/v1/memories/batch", &json!({ "memories": part }), None);
        assert!(done.unwrap().status < 300);
    }
    remember(service, CONTRACT);
    remember(service, SHIP);
}

/// Another tenant with a fact; the key of its application.
pub(crate) fn second_tenant(service: &Running) -> String {
    let admin = service.client(&service.keys.admin);
    let made = admin.post("/v1/tenants", &json!({"name": "second"}), None).unwrap().success().unwrap();
    let tenant = service.client(made["key"].as_str().unwrap());
    let wanted = json!({"label": "app", "role": "app", "act_for": true});
    let made = tenant.post("/v1/keys", &wanted, None).unwrap().success().unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let fact = json!({"kind": "user_fact", "text": CONTRACT});
    service.client(&key).acting_for("bob").post("/v1/memories", &fact, None).unwrap().success().unwrap();
    key
}

/// Whether an answer is right, and right by one model: mixed spaces would take contracts for tea.
fn is_right(found: &Value) -> bool {
    let hits = found["hits"].as_array().unwrap();
    let far =
        hits.iter().skip(1).all(|hit| hit["score"]["cosine"].as_f64().is_none_or(|cosine| cosine < 0.9));
    by_meaning(found, CONTRACT) && far
}

/// Tells the others to end, also if the test fails.
struct Ended<'o>(&'o AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits as `soon` does, for as long as a busy machine needs to look through everything several times.
fn late(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..4 {
        for _ in 0..300 {
            if happened() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    panic!("not within two minutes: {what}");
}

/// Reads and writes of both tenants, until `until` holds; then kills the service if that is wanted. Nothing may fail
/// before that. Tells how many requests there were.
fn under_load(service: &Running, second: &str, kill: bool, until: impl FnMut() -> bool) -> usize {
    let (over, n_done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let repeat = |act: &dyn Fn(usize) -> bool| {
        for number in 0.. {
            let went = act(number);
            if over.load(Ordering::SeqCst) {
                return;
            }
            assert!(went, "a request failed or was answered wrongly");
            n_done.fetch_add(1, Ordering::SeqCst);
        }
    };
    let asked = json!({"question": QUESTION, "k": 5});
    let reads = |client: &merkwelt_server::cli::Client| {
        let answer = client.post("/v1/recall", &asked, None);
        answer.is_ok_and(|answer| answer.status == 200 && is_right(&answer.json().unwrap()))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| repeat(&|_| reads(&service.person("anna"))));
        scope.spawn(|| repeat(&|_| reads(&service.client(second).acting_for("bob"))));
        scope.spawn(|| {
            let run = n_done.load(Ordering::SeqCst);
            repeat(&|number| {
                std::thread::sleep(Duration::from_millis(20));
                let body =
                    json!({"kind": "user_fact", "text": format!("late fact {run} {number} {}", service.url)});
                let done = service.person("anna").post("/v1/memories", &body, None);
                done.is_ok_and(|answer| answer.status < 300)
            });
        });
        scope.spawn(|| {
            repeat(&|_| {
                std::thread::sleep(Duration::from_millis(30));
                let pack = json!({"question": QUESTION, "budget": 400});
                let pack = service.person("anna").post("/v1/context", &pack, None);
                pack.is_ok_and(|pack| pack.status == 200 && pack.json().unwrap()["retrieval"] == "hybrid")
            });
        });
        let ended = Ended(&over);
        late("the condition under load", until);
        drop(ended);
        if kill {
            let pid = service.pid().to_string();
            assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        }
    });
    n_done.load(Ordering::SeqCst)
}

#[test]
fn i_014_a_model_is_changed_while_reads_and_writes_go_on_through_kill_9_and_a_missing_engine() {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Good));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    configured(&data, &before(&former));
    let service = Running::start_with(&data, &[]);
    fill(&service);
    let second = second_tenant(&service);
    assert_eq!(state(&service), "none");
    let keys = service.stop();

    // kill -9 in the midst of it, while everybody reads and writes.
    configured(&data, &with_next(&former, &new));
    new.be(Mood::Wide(Duration::from_millis(10)));
    let service = Running::start_with(&data, &[]).with_keys(keys);
    let mut sent = 0;
    let n_requests = under_load(&service, &second, true, || {
        sent += n_sent(&new);
        sent >= 60
    });
    assert!(n_requests > 20, "{n_requests} requests");
    let keys = service.kill();
    sent += n_sent(&new);
    assert!(sent < N_FACTS, "it was killed too late: the test shows nothing");

    // The engine of the coming model is away: it waits, nothing else does.
    new.be(Mood::Status(503, None));
    let service = Running::start_with(&data, &[]).with_keys(keys);
    under_load(&service, &second, false, || state(&service) == "waiting");
    assert_eq!(service.ready().1["retrieval"], "hybrid");
    assert!(service.log().contains("the coming model waits for its engine"), "{}", service.log());
    let metrics = service.client("").get("/metrics").unwrap().body;
    assert!(metrics.contains("merkwelt_embedding_change_stage{stage=\"waiting\"} 1"), "{metrics}");

    // It comes, and the change goes on where it was, to its end.
    former.calls();
    new.calls();
    new.be(Mood::Wide(Duration::ZERO));
    let n_requests = under_load(&service, &second, false, || state(&service) == "complete");
    assert!(n_requests > 20, "{n_requests} requests");
    let again = n_sent(&new);
    assert!(again >= N_FACTS - sent, "{sent} sent before, {again} after");
    assert!(service.log().contains("make [next_embedding] the new [embedding]"), "{}", service.log());
    // The former engine is asked for nothing any more, and may go.
    former.be(Mood::Closes);
    former.calls();
    assert!(is_right(&ask(&service, QUESTION)) && by_meaning(&ask(&service, "Welches Schiff?"), SHIP));
    assert_eq!((former.calls().len(), &service.ready().1["retrieval"]), (0, &json!("hybrid")));
    soon("what was written during the change has its vector", || {
        let told = &service.ready().1["embedding_change"];
        told["left"] == 0 && told["refused"] == 0
    });
    let keys = service.stop();

    // The configuration of the change is still good, without the former engine.
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(state(&service) == "complete" && is_right(&ask(&service, QUESTION)));
    let keys = service.stop();
    let (content, said) = doctor(&data);
    assert!(content && said.contains("is complete: make [next_embedding] the new [embedding]"), "{said}");
    // So is that of the new model alone; the former model is refused.
    configured(&data, &alone(&new));
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(state(&service) == "none" && is_right(&ask(&service, QUESTION)));
    service.stop();
    former.be(Mood::Good);
    configured(&data, &before(&former));
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("vectors are of model"));
}

/// A service with facts under one configuration that was started again under another, of whose texts the coming engine
/// was sent about a third; how many they were.
fn gathering(data: &Path, first: &str, then: &str, new: &Scripted) -> (Running, usize) {
    configured(data, first);
    let service = Running::start_with(data, &[]);
    fill(&service);
    let keys = service.stop();
    configured(data, then);
    let service = Running::start_with(data, &[]).with_keys(keys);
    let mut sent = 0;
    soon("a third was sent", || {
        sent += n_sent(new);
        sent >= 60
    });
    (service, sent)
}

fn doctor(data: &Path) -> (bool, String) {
    let done = run(&["doctor", "--data-dir", data.to_str().unwrap()]);
    (done.status.success(), text(&done.stdout) + &text(&done.stderr))
}

#[test]
fn i_014_a_change_that_was_given_up_leaves_the_former_model_and_can_be_finished_or_dropped_by_command() {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Wide(Duration::from_millis(10))));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (service, mut sent) = gathering(&data, &before(&former), &with_next(&former, &new), &new);
    let keys = service.stop();
    sent += n_sent(&new);
    assert!(sent < N_FACTS, "it was stopped too late: the test shows nothing");
    let (content, said) = doctor(&data);
    assert!(content && said.contains("the coming model has vectors of"), "{said}");

    // Without [next_embedding] everything is as before it; what was gathered is kept and told.
    configured(&data, &before(&former));
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(state(&service) == "none" && is_right(&ask(&service, QUESTION)));
    let keys = service.stop();
    let (content, said) = doctor(&data);
    assert!(content && said.contains("were gathered and are not in use"), "{said}");

    // The command finishes what the service began.
    new.be(Mood::Wide(Duration::ZERO));
    new.calls();
    configured(&data, &alone(&new));
    let done = run(&["reembed", "--data-dir", data.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let again = n_sent(&new);
    assert!(again < N_FACTS, "what the service made is made again: {again} after {sent}");
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(is_right(&ask(&service, QUESTION)));
    service.stop();

    // Back again, given up, and dropped.
    configured(&data, &(alone(&new) + &before(&former).replace("[emb", "[next_emb")));
    former.be(Mood::Slow(Duration::from_millis(10)));
    let service = Running::start_with(&data, &[]);
    former.calls();
    soon("some were sent", || n_sent(&former) > 0);
    service.stop();
    configured(&data, &alone(&new));
    let done = run(&["reembed", "--data-dir", data.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let (content, said) = doctor(&data);
    assert!(content && !said.contains("were gathered"), "{said}");
}

/// Another model of the same dimension beside the present one.
fn with_revised(former: &Scripted, new: &Scripted) -> String {
    let next = patient(&toml("tei", &new.url, "batch = 8\nrevision = '2'\n"));
    before(former) + &next.replace("[embedding]", "[next_embedding]")
}

#[test]
fn a_change_ends_without_the_texts_that_the_coming_engine_refuses_and_counts_them() {
    for mood in [Mood::RefusesOver("vessel"), Mood::FailsOver("vessel"), Mood::ClosesOver("vessel")] {
        let (former, new) = (Scripted::start(Mood::Good), Scripted::start(mood));
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        configured(&data, &before(&former));
        let service = Running::start_with(&data, &[]);
        remember(&service, CONTRACT);
        let second = second_tenant(&service);
        for number in 0..3 {
            let body = json!({"kind": "user_fact", "text": format!("vessel {number}")});
            let bob = service.client(&second).acting_for("bob");
            bob.post("/v1/memories", &body, None).unwrap().success().unwrap();
        }
        let keys = service.stop();
        configured(&data, &with_revised(&former, &new));
        let service = Running::start_with(&data, &[]).with_keys(keys);
        let mut refused = 0;
        soon("the change ends", || {
            refused = service.ready().1["embedding_change"]["refused"].as_u64().unwrap_or(0).max(refused);
            state(&service) == "complete"
        });
        assert_eq!(refused, 3, "{}", service.log());
        new.calls();
        assert!(is_right(&ask(&service, QUESTION)) && new.calls().len() == 1);
    }
}

#[test]
fn i_014_tenants_do_not_change_to_an_engine_whose_weights_changed_while_its_vectors_gathered() {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Slow(Duration::from_millis(10))));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (service, _) = gathering(&data, &before(&former), &with_revised(&former, &new), &new);
    new.be(Mood::AnotherModel);
    soon("it is noticed", || {
        let state = state(&service);
        assert!(state == "gathering" || state == "waiting", "{state}");
        service.log().contains("another model stands behind the same name")
    });
    soon("it waits", || state(&service) == "waiting");
    assert!(is_right(&ask(&service, QUESTION)));
}

// From here on in this process, to hit the moment between the vector of a text and its use.

/// An engine that does something before its first vector for a role is used.
struct Held {
    inner: Arc<Remote>,
    role: Role,
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Embedder for Held {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        let made = self.inner.embed(role, texts);
        if role == self.role
            && let Some(first) = self.first.lock().unwrap().take()
        {
            first();
        }
        made
    }

    fn is_available(&self) -> bool {
        self.inner.is_available()
    }
}

fn remote(text: &str) -> Arc<Remote> {
    let places = Places { data_dir: "data".into(), instance_key: None, config: None };
    let Wanted::Remote(settings) = Config::parse(text, &places, None).unwrap().embedding else { panic!() };
    let remote = Remote::to(*settings, wiring::system_env()).unwrap();
    remote.try_out().unwrap();
    remote.admit();
    Arc::new(remote)
}

/// What the background does for a tenant, at once.
fn change(store: &Sqlite, tenant: &TenantId, to: &Remote) {
    let id = model_id(to);
    let _ = store.begin_gathering(tenant, &id).unwrap();
    let mut embed = |texts: &[&str]| Some(merkwelt_app::embedding::embed_passages(to, texts));
    let mut place = Some(FillPlace::default());
    while let Some(from) = place {
        place = store.gather_some(tenant, &id, from, &mut embed).unwrap().next;
    }
    store.begin_switching(&id).unwrap();
    assert!(store.switch_tenant(tenant, &id, 0).unwrap());
}

fn statement(text: &str) -> StatementRequest {
    StatementRequest {
        owner: NewOwner::Subject,
        kind: Kind::UserFact,
        text: Content::to_keep(text, Content::STATEMENT_MAX_BYTES).unwrap(),
        author: None,
        parts: Particulars::default(),
        conversation: None,
    }
}

/// Remembers a contract and a ship, then asks for the contract; `at` is the role over whose first vector the tenant
/// changes to the other model, and `there` says whether the engine of that one is there.
fn across_the_change(at: Role, there: bool) -> (Value, usize) {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Wide(Duration::ZERO)));
    let (present, next) = (remote(&before(&former)), remote(&alone(&new)));
    let dir = tempfile::tempdir().unwrap();
    let places = Places { data_dir: dir.path().join("data"), instance_key: None, config: None };
    let (config, env) = (Config::load(&places, None).unwrap(), wiring::system_env());
    let (store, founded) = wiring::found(&config, &env, Some(&model_id(&*present))).unwrap();
    let (store, tenant) = (Arc::new(store), founded.tenant.id.clone());
    let first = {
        let (store, next, new) = (Arc::clone(&store), Arc::clone(&next), new.clone());
        move || {
            change(&store, &tenant, &next);
            if !there {
                new.be(Mood::Closes);
            }
        }
    };
    let held = Held { inner: present, role: at, first: Mutex::new(Some(Box::new(first))) };
    let model = |embedder| EmbeddingModel { embedder, offload: Arc::new(BlockingThreads::new()) };
    let app: App = wiring::app(&config, Arc::clone(&store), env, Some(model(Arc::new(held)))).unwrap();
    let app = app.with_next_model(NextModel { model: model(next), in_use: Arc::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = || {
        let caller = runtime.block_on(app.authenticate(&founded.app)).unwrap();
        Request::new(caller, Some("anna".parse().unwrap()), Purpose::default())
    };
    for words in [CONTRACT, SHIP] {
        let _ = runtime.block_on(app.remember(&request(), &[statement(words)], None)).unwrap();
    }
    let question = RecallRequest {
        question: Content::question(QUESTION, 1_000).unwrap(),
        k: TopK::default(),
        kinds: KindSet::all().rankable(),
        turns: Turns::None,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        run: RunContext::default(),
    };
    let found = runtime.block_on(app.recall(&request(), &question)).unwrap();
    let id = model_id(&*remote(&alone(&Scripted::start(Mood::Wide(Duration::ZERO)))));
    let pending = store.fill_vectors(&id, &mut |texts| texts.iter().map(|_| None).collect(), &mut |_| ());
    (serde_json::from_slice(found.body()).unwrap(), usize::try_from(pending.unwrap().total).unwrap())
}

#[test]
fn i_014_a_question_that_is_on_its_way_while_its_tenant_changes_is_embedded_again() {
    let (found, n_pending) = across_the_change(Role::Query, true);
    assert!(is_right(&found), "{found}");
    assert_eq!(n_pending, 0);
}

#[test]
fn i_014_without_the_new_engine_such_a_question_is_answered_by_words_and_not_with_an_error() {
    let (found, _) = across_the_change(Role::Query, false);
    assert_eq!(
        (&found["retrieval"], &found["hits"][0]["score"]["cosine"]),
        (&json!("lexical"), &Value::Null)
    );
    assert_eq!(found["hits"].as_array().unwrap().len(), 2);
}

#[test]
fn i_014_a_write_that_is_on_its_way_while_its_tenant_changes_is_embedded_again_or_waits_for_its_vector() {
    let (found, n_pending) = across_the_change(Role::Passage, true);
    assert!(is_right(&found) && n_pending == 0, "{found} {n_pending}");
    let (found, n_pending) = across_the_change(Role::Passage, false);
    assert_eq!((&found["retrieval"], n_pending), (&json!("lexical"), 2));
}
