//! Sources of the real binary under many clients at once: no answer that was asked for after a change rests on
//! what was before it, on any path.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use merkwelt_server::cli::Client;
use serde_json::{Value, json};

use crate::running::{Running, run, text};

const CLIENTS: usize = 64;
const REVISIONS: u64 = 12;
const QUESTION: &str = "What is the limit for travel expenses?";

/// The values that a text says, such as `value-0007`.
fn values(said: &str) -> Vec<u64> {
    said.match_indices("value-").filter_map(|(at, _)| said[at + 6..].get(..4)?.parse().ok()).collect()
}

/// What every client knows of the past.
#[derive(Default)]
struct History {
    /// The last revision whose publication was acknowledged.
    published: AtomicU64,
    /// Whether the withdrawal of the right was acknowledged.
    revoked: AtomicBool,
    over: AtomicBool,
}

impl History {
    /// Asks on one path, and compares what came with what was known before it was asked.
    fn ask(&self, path: &str, ask: impl FnOnce() -> String) -> Result<u64, String> {
        let (least, revoked) = (self.published.load(Ordering::SeqCst), self.revoked.load(Ordering::SeqCst));
        let said = values(&ask());
        if revoked && !said.is_empty() {
            return Err(format!("{path}: {said:?} after the right was taken away"));
        }
        match said.iter().find(|value| **value < least) {
            Some(old) => Err(format!("{path}: value {old} after {least} was published")),
            None => Ok(said.len() as u64),
        }
    }
}

fn body(client: &Client, path: &str, body: &Value) -> Value {
    client.post(path, body, None).unwrap().success().unwrap()
}

/// One client: it searches, takes a pack, looks for a kept answer, keeps one, and resolves a citation.
fn client(person: &Client, source: &str, history: &History) -> Result<u64, String> {
    let mut n_seen = 0;
    let maker = json!({ "question": QUESTION, "model": "m", "prompt": "p" });
    while !history.over.load(Ordering::SeqCst) {
        let mut last = Value::Null;
        n_seen += history.ask("recall", || {
            last = body(person, "/v1/recall", &json!({ "question": QUESTION }));
            last["hits"].to_string()
        })?;
        n_seen += history
            .ask("context", || body(person, "/v1/context", &json!({ "question": QUESTION })).to_string())?;
        n_seen += history.ask("lookup", || body(person, "/v1/answers/lookup", &maker).to_string())?;
        let hit = &last["hits"][0];
        if let Some(said) = hit["text"].as_str() {
            let mut kept = maker.clone();
            kept["answer"] = json!(said);
            kept["sources"] = json!([{ "source_id": source, "revision": hit["citation"]["revision"] }]);
            // It may have been replaced meanwhile: then it is refused.
            let status = person.post("/v1/answers", &kept, None).unwrap().status;
            assert!(matches!(status, 201 | 400 | 503), "{status}");
            let cited = format!("/v1/citations/{}", hit["id"].as_str().unwrap());
            let resolved = || person.get(&cited).unwrap();
            let revoked = history.revoked.load(Ordering::SeqCst);
            let answer = resolved();
            if revoked && answer.status == 200 {
                return Err("citation: resolved after the right was taken away".to_owned());
            }
            let newer = history.published.load(Ordering::SeqCst);
            let answer = resolved();
            let resolved = answer.json().unwrap();
            let number = hit["citation"]["revision"].as_u64().unwrap();
            if answer.status == 200 && resolved["current"] == true && number < newer {
                return Err(format!("citation: revision {number} is current after {newer}"));
            }
        }
    }
    Ok(n_seen)
}

#[test]
fn r_056_under_64_clients_nothing_rests_on_what_was_replaced_or_revoked_before_it_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let (app, admin) = (service.client(&service.keys.app), service.client(&service.keys.tenant));
    body(&admin, "/v1/groups", &json!({ "name": "sales" }));
    body(&admin, "/v1/groups/sales/members", &json!({ "add": ["anna"] }));
    let made = body(&app, "/v1/sources", &json!({ "title": "Travel", "groups": ["sales"] }));
    let source = made["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sources/{source}/revisions?publish=true");
    let publish = |number: u64| {
        let words = format!("The limit for travel expenses is value-{number:04} euros.");
        app.put(&path, "text/plain", words.as_bytes()).unwrap().success().unwrap();
    };
    publish(1);
    let history = History::default();
    history.published.store(1, Ordering::SeqCst);
    let n_seen: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (person, source, history) = (service.person("anna"), source.clone(), &history);
                scope.spawn(move || client(&person, &source, history))
            })
            .collect();
        for number in 2..=REVISIONS {
            publish(number);
            history.published.store(number, Ordering::SeqCst);
        }
        body(&admin, "/v1/groups/sales/members", &json!({ "remove": ["anna"] }));
        history.revoked.store(true, Ordering::SeqCst);
        thread::sleep(std::time::Duration::from_millis(300));
        history.over.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap().unwrap()).sum()
    });
    assert!(n_seen > 0, "nobody saw anything, so nothing was tested");
}

#[test]
fn r_063_the_release_drill_passes_on_the_real_service_and_writes_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let file = |name: &str, key: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, key).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (app, admin) = (file("app", &service.keys.app), file("admin", &service.keys.tenant));
    let report = dir.path().join("report.json");
    let page = dir.path().join("report.html");
    let done = run(&[
        "release-test",
        "--url",
        &service.url,
        "--key-file",
        &app,
        "--admin-key-file",
        &admin,
        "--json",
        report.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    assert!(text(&done.stdout).contains("nothing stale was served at any step"));
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let states: Vec<&str> =
        report["steps"].as_array().unwrap().iter().map(|s| s["source_state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active", "active", "active", "deleted", "active"]);
    assert_eq!(report["steps"][1]["asked"].as_array().unwrap().len(), 2);
    assert!(std::fs::read_to_string(page).unwrap().contains("Nothing stale was served."));
}
