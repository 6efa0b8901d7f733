//! Sudden death of the real program: at every fault point, at random under many writers, and in the middle of
//! an erasure. Afterwards what was acknowledged is stored and found, what was not is there whole or not at all,
//! and the ledger verifies.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use merkwelt_authz::{Request, action, authenticate, authorize};
use merkwelt_domain::FaultPoint;
use merkwelt_server::cli::Client;
use merkwelt_server::config::{Config, Places};
use merkwelt_server::wiring;
use merkwelt_store::Store as _;
use merkwelt_store::conformance::block;
use serde_json::{Value, json};

use crate::running::{Keys, Running, binary, doctor, serve, size, text, texts};

const SIGABRT: i32 = 6;

/// The three memories of one batch; they share a word that nothing else has.
fn batch(word: &str) -> Value {
    let one = |part: &str| json!({"kind": "user_fact", "text": format!("{word} {part}")});
    json!({"memories": [one("first"), one("second"), one("third")]})
}

/// What the writers of one life of the service were told.
#[derive(Default)]
struct Told {
    /// Word and person of every batch that was sent.
    sent: Mutex<BTreeMap<String, String>>,
    acknowledged: Mutex<BTreeSet<String>>,
}

/// Sends one batch. `None` when the service is gone.
fn send(client: &Client, told: &Told, person: &str, word: &str) -> Option<()> {
    told.sent.lock().unwrap().insert(word.to_owned(), person.to_owned());
    match client.post("/v1/memories/batch", &batch(word), None) {
        Ok(answer) => {
            assert_eq!(answer.status, 200, "{}", answer.body);
            told.acknowledged.lock().unwrap().insert(word.to_owned());
            Some(())
        }
        Err(_) => None,
    }
}

/// Holds everything that is promised against what is there. `all` collects what was told over several lives.
fn hold_to_the_promise(service: &Running, all: &Told) {
    let (sent, acknowledged) = (all.sent.lock().unwrap(), all.acknowledged.lock().unwrap());
    let persons: BTreeSet<_> = sent.values().collect();
    let mut found = BTreeMap::<String, usize>::new();
    for person in persons {
        for text in texts(&service.person(person)) {
            *found.entry(text.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    for word in sent.keys() {
        let (found, acknowledged) = (found.get(word).copied().unwrap_or(0), acknowledged.contains(word));
        assert!(
            found == 3 || (found == 0 && !acknowledged),
            "{word}: {found} of 3, acknowledged: {acknowledged}"
        );
    }
    let n_stored: usize = found.values().sum();
    // Searching is asked for the last of each person; it would need all of the index.
    let last: BTreeMap<_, _> = acknowledged.iter().map(|word| (&sent[word], word)).collect();
    for (person, word) in last {
        let asked =
            service.person(person).post("/v1/recall", &json!({"question": word, "k": 5}), None).unwrap();
        let hits = asked.success().unwrap()["hits"].as_array().unwrap().clone();
        let found =
            hits.iter().filter(|hit| hit["text"].as_str().unwrap().starts_with(&format!("{word} "))).count();
        assert_eq!(found, 3, "{word} is stored and not found");
    }
    let ledger = service.verified_ledger();
    assert_eq!(ledger.matches("\"type\":\"memory_written\"").count(), n_stored, "rows and evidence differ");
    assert!(service.log().lines().all(|line| !line.contains("status=5")), "{}", service.log());
}

fn restarted(data: &Path, keys: Keys) -> Running {
    Running::start(data).with_keys(keys)
}

/// A service that dies at the `arrival`th arrival at `point`.
fn doomed(data: &Path, point: FaultPoint, arrival: u32) -> Command {
    let mut command = serve(binary(), data);
    command.env("MERKWELT_ABORT_AT", format!("{}:{arrival}", point.name()));
    command
}

#[test]
fn r_100_a_death_at_any_fault_point_of_a_write_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut keys = Running::start(&data).stop();
    let all = Told::default();
    let deaths = [
        (FaultPoint::AfterKey, 3),
        (FaultPoint::BeforeCommit, 1),
        (FaultPoint::BeforeCommit, 9),
        (FaultPoint::AfterCommit, 7),
        (FaultPoint::BeforeShard, 5),
        (FaultPoint::AfterEntry, 2),
    ];
    for (point, arrival) in deaths {
        let service = Running::launch(doomed(&data, point, arrival)).unwrap().with_keys(keys);
        let life = format!("{}x{arrival}", point.name().replace('-', ""));
        write_until_death(&service, &life, &all);
        let died;
        (keys, died) = service.wait();
        assert_eq!(died.signal(), Some(SIGABRT), "{point:?} was not reached");
        let service = restarted(&data, keys);
        hold_to_the_promise(&service, &all);
        keys = service.stop();
    }
    let (content, said) = doctor(&data);
    assert!(content, "{said}");
}

/// Batches of old and new persons, and new keys, until the service is gone.
fn write_until_death(service: &Running, life: &str, all: &Told) {
    const ROUNDS_MAX: usize = 60;
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || {
                for round in 0..ROUNDS_MAX {
                    let person =
                        if round % 2 == 0 { "anna".to_owned() } else { format!("p{life}r{round}w{writer}") };
                    let word = format!("w{life}r{round}w{writer}");
                    if send(&service.person(&person), all, &person, &word).is_none() {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            let tenant = service.client(&service.keys.tenant);
            for round in 0..ROUNDS_MAX {
                let key = json!({"label": format!("k{round}"), "role": "auditor"});
                let Ok(made) = tenant.post("/v1/keys", &key, None) else { return };
                let made = made.success().unwrap();
                let Ok(seen) = service.client(made["key"].as_str().unwrap()).get("/v1/ledger/checkpoint")
                else {
                    return;
                };
                assert_eq!(seen.status, 200, "an acknowledged key does not work");
            }
        });
    });
}

/// Sizes of the long run: `MERKWELT_CRASH_WRITERS`, `_ITEMS` and `_ROUNDS`.
#[test]
fn r_100_what_was_acknowledged_survives_kill_9_and_the_ledger_verifies() {
    let (writers, items) = (size("CRASH_WRITERS", 8), size("CRASH_ITEMS", 20));
    let rounds = size("CRASH_ROUNDS", 3);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    // A slow machine is not what is looked at here; a refusal because something was locked is.
    std::fs::write(dir.path().join("data.toml"), "[server]\nrequest_seconds = 600\n").unwrap();
    let mut keys = Running::start(&data).stop();
    let all = Told::default();
    for round in 0..rounds {
        let service = restarted(&data, keys);
        let (done, at_work) = (AtomicUsize::new(0), AtomicUsize::new(writers));
        // Later in each round, so that the kill meets the first writes, the checkpoints and the last ones.
        let enough = 1 + (round * writers * items) / rounds;
        std::thread::scope(|scope| {
            let (service, done, at_work, all) = (&service, &done, &at_work, &all);
            for writer in 0..writers {
                scope.spawn(move || {
                    let person = format!("person{}", writer % 8);
                    let client = service.person(&person);
                    for item in 0..items {
                        if send(&client, all, &person, &format!("w{round}x{writer}x{item}")).is_none() {
                            break;
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    at_work.fetch_sub(1, Ordering::SeqCst);
                });
            }
            while done.load(Ordering::SeqCst) < enough && at_work.load(Ordering::SeqCst) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = service.pid().to_string();
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        });
        keys = service.kill();
        let service = restarted(&data, keys);
        hold_to_the_promise(&service, &all);
        keys = service.kill();
    }
    let n_acknowledged = all.acknowledged.lock().unwrap().len();
    assert!(n_acknowledged >= rounds, "only {n_acknowledged} batches were acknowledged");
    let (content, said) = doctor(&data);
    assert!(content, "{said}");
}

const CHILD: &str = "MERKWELT_TEST_ERASE";

/// The other half of the test below: erases a person and dies on the way. There is no address to erase a
/// person yet, so it works on the opened data like the service does.
#[test]
fn the_child_that_dies_in_the_middle_of_an_erasure() {
    #[expect(clippy::disallowed_methods, reason = "the parent says what to do through the environment")]
    let Ok(orders) = std::env::var(CHILD) else { return };
    let (data, key) = orders.split_once('|').unwrap();
    let places = Places { data_dir: data.into(), instance_key: None, config: None };
    let store = wiring::open(&Config::load(&places, None).unwrap(), &wiring::system_env(), None).unwrap();
    let now = wiring::system_env().now();
    let caller = block::on(authenticate(&store, &key.parse().unwrap(), now)).unwrap();
    let request = Request::new(caller, Some("anna".parse().unwrap()), "erasure".parse().unwrap());
    let pass = block::on(authorize::<action::Erase>(&store, &request)).unwrap();
    let _ = block::on(store.erase(&pass, now)).unwrap();
}

fn erase_and_die(data: &Path, key: &str, point: Option<FaultPoint>) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "crash::the_child_that_dies_in_the_middle_of_an_erasure"])
        .env(CHILD, format!("{}|{key}", data.display()));
    if let Some(point) = point {
        child.env("MERKWELT_ABORT_AT", format!("{}:1", point.name()));
    }
    child.output().unwrap()
}

#[test]
fn r_069_a_death_at_any_fault_point_of_an_erasure_is_made_good_at_the_next_start() {
    let points = [
        FaultPoint::BeforeCommit,
        FaultPoint::AfterCommit,
        FaultPoint::AfterTombstone,
        FaultPoint::AfterDestroy,
        FaultPoint::BeforeVacuum,
        FaultPoint::BeforeReceipt,
    ];
    for point in points {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let service = Running::start(&data);
        for person in ["anna", "bob"] {
            let fact = json!({"kind": "user_fact", "text": format!("{person} leads the depot")});
            service.person(person).post("/v1/memories", &fact, None).unwrap().success().unwrap();
        }
        let officer = json!({"label": "officer", "role": "privacy_officer", "act_for": true});
        let officer = service.client(&service.keys.tenant).post("/v1/keys", &officer, None).unwrap();
        let officer = officer.success().unwrap()["key"].as_str().unwrap().to_owned();
        let keys = service.stop();
        let died = erase_and_die(&data, &officer, Some(point));
        assert_eq!(died.status.signal(), Some(SIGABRT), "{point:?} was not reached: {}", text(&died.stdout));
        let service = restarted(&data, keys);
        let ledger = service.verified_ledger();
        let (requested, receipts) = ("erasure_requested", "erasure_receipt");
        let accepted = ledger.contains(requested);
        // Accepted means finished once the service listens; not accepted means that nothing happened.
        assert_eq!(ledger.matches(receipts).count(), usize::from(accepted), "{point:?}");
        assert_eq!(accepted, point != FaultPoint::BeforeCommit, "{point:?}");
        assert_eq!(texts(&service.person("anna")).len(), usize::from(!accepted), "{point:?}");
        assert_eq!(texts(&service.person("bob")), ["bob leads the depot"]);
        service.stop();
        let (content, said) = doctor(&data);
        assert!(content, "{point:?}: {said}");
        if !accepted {
            let erased = erase_and_die(&data, &officer, None);
            assert!(erased.status.success(), "{}", text(&erased.stderr));
        }
    }
}
