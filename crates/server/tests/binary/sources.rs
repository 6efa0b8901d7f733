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

/// The values that a text says as holding now, such as `value-0007`. What is marked as historical says nothing
/// about now.
fn values(said: &str) -> Vec<u64> {
    let present = said.lines().filter(|line| !line.contains("[historical: "));
    let found = present.flat_map(|line| line.match_indices("value-").map(move |(at, _)| &line[at + 6..]));
    found.filter_map(|rest| rest.get(..4)?.parse().ok()).collect()
}

/// What every client knows of the past.
#[derive(Default)]
struct History {
    /// The last revision whose publication was acknowledged.
    published: AtomicU64,
    /// Whether the withdrawal of the right was acknowledged.
    revoked: AtomicBool,
    /// Whether the revocation of the second key was asked for, and whether it was acknowledged.
    key_asked: AtomicBool,
    key_revoked: AtomicBool,
    over: AtomicBool,
}

/// One client with its own conversation.
struct Person<'h> {
    http: Client,
    source: String,
    conversation: String,
    /// Whether its key is the one that is revoked.
    second: bool,
    history: &'h History,
    n_seen: u64,
}

/// What came back, and what was known before it was asked.
struct Said {
    status: u16,
    body: Value,
    least: u64,
    revoked: bool,
}

impl Person<'_> {
    /// Asks on one path; nothing if the key is not valid any more, which must then be so for good.
    fn send(&self, path: &str, body: Option<&Value>) -> Result<Option<Said>, String> {
        let history = self.history;
        let key_revoked = self.second && history.key_revoked.load(Ordering::SeqCst);
        let (least, revoked) =
            (history.published.load(Ordering::SeqCst), history.revoked.load(Ordering::SeqCst));
        let answer = match body {
            Some(body) => self.http.post(path, body, None),
            None => self.http.get(path),
        };
        let answer = answer.unwrap();
        if key_revoked && answer.status != 401 {
            return Err(format!("{path}: {} after the key was revoked", answer.status));
        }
        if answer.status == 401 {
            let asked = self.second && history.key_asked.load(Ordering::SeqCst);
            return if asked { Ok(None) } else { Err(format!("{path}: 401 with a valid key")) };
        }
        let body = answer.json().unwrap_or_default();
        Ok(Some(Said { status: answer.status, body, least, revoked }))
    }

    /// Compares what was said on a path with what was known before it was asked.
    fn check(&mut self, path: &str, said: &Said, text: &str) -> Result<(), String> {
        let values = values(text);
        if said.revoked && !values.is_empty() {
            return Err(format!("{path}: {values:?} after the right was taken away"));
        }
        self.n_seen += values.len() as u64;
        match values.iter().find(|value| **value < said.least) {
            Some(old) => Err(format!("{path}: value {old} after {} was published", said.least)),
            None => Ok(()),
        }
    }

    /// Searches, and asks about the best hit: cites it, keeps it as an answer, and says it in the conversation.
    fn search(&mut self) -> Result<Option<()>, String> {
        let asked = json!({ "question": QUESTION });
        let Some(said) = self.send("/v1/recall", Some(&asked))? else { return Ok(None) };
        self.check("recall", &said, &said.body["hits"].to_string())?;
        let hit = said.body["hits"][0].clone();
        let Some(text) = hit["text"].as_str() else { return Ok(Some(())) };
        let number = hit["citation"]["revision"].as_u64().unwrap();
        let basis = json!([{ "source_id": self.source, "revision": number }]);
        let kept = json!({
            "question": QUESTION, "model": "m", "prompt": "p", "answer": text, "sources": basis,
        });
        // It may have been replaced meanwhile: then it is refused.
        let Some(said) = self.send("/v1/answers", Some(&kept))? else { return Ok(None) };
        assert!(matches!(said.status, 201 | 400 | 503), "{}", said.status);
        let cited = format!("/v1/citations/{}", hit["id"].as_str().unwrap());
        let Some(said) = self.send(&cited, None)? else { return Ok(None) };
        if said.revoked && said.status == 200 {
            return Err("citation: resolved after the right was taken away".to_owned());
        }
        if said.status == 200 && said.body["current"] == true && number < said.least {
            return Err(format!("citation: revision {number} is current after {}", said.least));
        }
        let turn = json!({ "role": "assistant", "text": text, "rests_on": basis });
        let path = format!("/v1/conversations/{}/turns", self.conversation);
        let Some(said) = self.send(&path, Some(&turn))? else { return Ok(None) };
        assert!(matches!(said.status, 201 | 503), "{}", said.status);
        Ok(Some(()))
    }

    /// Takes a pack of the conversation, reads the conversation, and asks for the pack again.
    fn talk(&mut self) -> Result<Option<()>, String> {
        let asked = json!({ "question": QUESTION, "conversation": self.conversation });
        let Some(said) = self.send("/v1/context", Some(&asked))? else { return Ok(None) };
        self.check("context", &said, said.body["turn"].as_str().unwrap_or_default())?;
        let pack = said.body;
        let path = format!("/v1/conversations/{}?limit=500", self.conversation);
        let Some(said) = self.send(&path, None)? else { return Ok(None) };
        for turn in said.body["turns"].as_array().into_iter().flatten() {
            let old = turn["rests_on"][0]["revision"].as_u64().is_some_and(|number| number < said.least);
            if (old || said.revoked) && turn["historical"] != true {
                return Err(format!("conversation: {turn} after {} was published", said.least));
            }
        }
        let shows_documents =
            pack["items"].as_array().into_iter().flatten().any(|item| item["citation"].is_object());
        if let (Some(id), true) = (pack["pack_id"].as_str(), shows_documents) {
            let Some(said) = self.send(&format!("/v1/packs/{id}"), None)? else { return Ok(None) };
            if said.revoked && said.status == 200 {
                return Err("pack: shown again after the right was taken away".to_owned());
            }
        }
        Ok(Some(()))
    }

    fn look_up(&mut self) -> Result<Option<()>, String> {
        let asked = json!({ "question": QUESTION, "model": "m", "prompt": "p" });
        let Some(said) = self.send("/v1/answers/lookup", Some(&asked))? else { return Ok(None) };
        self.check("lookup", &said, &said.body.to_string())?;
        Ok(Some(()))
    }

    fn run(mut self) -> Result<u64, String> {
        while !self.history.over.load(Ordering::SeqCst) {
            // Each on its own, so that a revoked key is tried on every path until the end.
            self.search()?;
            self.talk()?;
            self.look_up()?;
        }
        Ok(self.n_seen)
    }
}

fn body(client: &Client, path: &str, body: &Value) -> Value {
    client.post(path, body, None).unwrap().success().unwrap()
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
    let second = body(&admin, "/v1/keys", &json!({ "label": "second", "role": "app", "act_for": true }));
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
            .map(|n| {
                let of_second = n % 4 == 0;
                let key = if of_second { second["key"].as_str().unwrap() } else { &service.keys.app };
                let http = service.client(key).acting_for("anna");
                let opened = body(&http, "/v1/conversations", &json!({ "keep_days": 1 }));
                let person = Person {
                    http,
                    source: source.clone(),
                    conversation: opened["id"].as_str().unwrap().to_owned(),
                    second: of_second,
                    history: &history,
                    n_seen: 0,
                };
                scope.spawn(move || person.run())
            })
            .collect();
        for number in 2..=REVISIONS {
            publish(number);
            history.published.store(number, Ordering::SeqCst);
            if number == REVISIONS / 2 {
                history.key_asked.store(true, Ordering::SeqCst);
                let path = format!("/v1/keys/{}", second["id"].as_str().unwrap());
                admin.delete(&path).unwrap().success().unwrap();
                history.key_revoked.store(true, Ordering::SeqCst);
            }
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
    for (key_file, admin_key_file) in [(&admin, &admin), (&app, &app)] {
        let keys = ["--key-file", key_file.as_str(), "--admin-key-file", admin_key_file.as_str()];
        let refused = run(&[&["release-test", "--url", &service.url], &keys[..]].concat());
        assert!(!refused.status.success() && text(&refused.stderr).contains("cannot "), "a wrong key passed");
    }
    let groups = service.client(&service.keys.tenant).get("/v1/groups").unwrap().json().unwrap();
    assert_eq!(groups["groups"], json!([]), "a refused drill leaves a group");
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
