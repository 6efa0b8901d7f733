//! The whole HTTP face, from the bytes of a request to those of the answer, over the backend in memory.

#[expect(dead_code, reason = "each user of the stage uses its part of it")]
#[path = "../../../crates/server/tests/http/stage.rs"]
pub(crate) mod stage;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use merkwelt_authz::Role;
use merkwelt_ledger::verify_export;
use serde_json::{Value, json};
use stage::{Answer, Call, Stage};
use tokio::runtime::{Builder, Runtime};

/// Stands in what the other tenant keeps; nobody of the first may ever see it.
const FOREIGN: &str = "foreign-marker-7141";
/// What seeds say where a refusal could repeat them, and a ledger could keep them.
const CANARY: &str = "CANARY";

static RUNTIME: LazyLock<Mutex<Runtime>> =
    LazyLock::new(|| Mutex::new(Builder::new_current_thread().enable_time().build().unwrap()));

/// Waits for an answer on this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner).block_on(future)
}

/// Statuses that the document names, by method and template.
static DOCUMENTED: LazyLock<BTreeMap<(String, String), Vec<u16>>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(&merkwelt_server::http::openapi_json()).unwrap();
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let statuses = operation["responses"].as_object().unwrap();
            let statuses = statuses.keys().map(|status| status.parse().unwrap()).collect();
            found.insert((method.to_uppercase(), path.clone()), statuses);
        }
    }
    found
});

/// A request as a fuzzer writes it: `role METHOD /path`, header lines, an empty line, the body. Words in braces
/// stand for ids that exist.
struct Asked<'a> {
    role: Option<Role>,
    method: &'a str,
    path: String,
    headers: Vec<(&'a str, String)>,
    body: Vec<u8>,
}

impl<'a> Asked<'a> {
    fn read(bytes: &'a [u8], there: &There) -> Option<Self> {
        let split = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap_or(bytes.len());
        let head = std::str::from_utf8(bytes.get(..split)?).ok()?;
        let body = bytes.get(split + 2..).unwrap_or_default();
        let mut lines = head.split('\n');
        let mut words = lines.next()?.split(' ');
        let (role, method, path) = (words.next()?, words.next()?, words.next()?);
        let role = if role == "none" { None } else { Some(role.parse().ok()?) };
        let headers = lines
            .map(|line| line.split_once(": ").map(|(name, value)| (name, there.filled(value))))
            .collect::<Option<Vec<_>>>()?;
        let valid = |(name, value): &(&str, String)| {
            let known = axum::http::HeaderValue::from_bytes(value.as_bytes()).is_ok();
            axum::http::HeaderName::from_bytes(name.as_bytes()).is_ok() && known
        };
        let path = there.filled(path);
        let uri = path.parse::<axum::http::Uri>().ok().filter(|uri| uri.path().starts_with('/'))?;
        let fits = headers.iter().all(valid)
            && method.parse::<axum::http::Method>().is_ok()
            && uri.authority().is_none();
        let body = match std::str::from_utf8(body) {
            Ok(text) => there.filled(text).into_bytes(),
            Err(_) => body.to_vec(),
        };
        fits.then_some(Self { role, method, path, headers, body })
    }

    fn call<'s>(&self, stage: &'s Stage) -> Call<'s> {
        let mut call = stage.call(self.method, &self.path);
        if let Some(role) = self.role {
            call = call.key(stage.key(role));
        }
        for (name, value) in &self.headers {
            call = call.header(name, value);
        }
        if self.body.is_empty() { call } else { call.body(self.body.clone()) }
    }

    fn bare_path(&self) -> &str {
        self.path.split(['?', '#']).next().unwrap_or_default()
    }
}

/// Ids of what exists before the request.
struct There {
    /// Keys of the other tenant.
    keys: [String; 2],
    words: Vec<(&'static str, String)>,
}

impl There {
    fn filled(&self, text: &str) -> String {
        if !text.contains('{') {
            return text.to_owned();
        }
        self.words.iter().fold(text.to_owned(), |text, (word, id)| text.replace(word, id))
    }

    /// Ids of nothing, to see whether bytes are a request before an instance is made for them.
    fn nothing() -> Self {
        let words = ["{mem}", "{con}", "{pac}", "{foreign}", "{other_app}", "{other_admin}"];
        Self { keys: Default::default(), words: words.map(|word| (word, "id".to_owned())).into() }
    }

    async fn prepare(stage: &Stage) -> Self {
        let memory = stage.remember("anna", "Likes tea").await;
        let opened = stage.app("POST", "/v1/conversations", "anna").json(&json!({ "keep_days": 3 }));
        let conversation = opened.send().await.expect(201)["id"].as_str().unwrap().to_owned();
        let question = json!({ "question": "What does she like?" });
        let pack = stage.app("POST", "/v1/context", "anna").json(&question).send().await.expect(200);
        let (admin, app) = stage.second_tenant("other").await;
        let fact = json!({ "kind": "user_fact", "text": FOREIGN, "owner": "tenant" });
        let foreign = stage.call("POST", "/v1/memories").key(&app).json(&fact).send().await.expect(201);
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let keys = [admin.clone(), app.clone()];
        let words = vec![
            ("{mem}", memory),
            ("{con}", conversation),
            ("{pac}", word(&pack["pack_id"])),
            ("{foreign}", word(&foreign["id"])),
            ("{other_app}", app),
            ("{other_admin}", admin),
        ];
        Self { keys, words }
    }
}

/// No request ends in a defect; each answer is one that the document names; nothing of another tenant comes out;
/// a refusal repeats nothing; what was kept is delivered as it was sent; the ledger verifies and holds no word.
pub(crate) fn face(bytes: &[u8]) {
    if Asked::read(bytes, &There::nothing()).is_none() {
        return;
    }
    wait(async {
        let stage = Stage::new();
        let there = There::prepare(&stage).await;
        let Some(asked) = Asked::read(bytes, &there) else { return };
        let answer = asked.call(&stage).send().await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        // Whoever holds a key of the other tenant is no stranger there.
        let is_other =
            there.keys.iter().any(|key| asked.headers.iter().any(|(_, v)| v.contains(key.as_str())));
        assert!(is_other || !body.contains(FOREIGN), "{body}");
        check_status(&asked, &answer);
        if answer.status.is_client_error() {
            assert!(!body.contains(CANARY), "a refusal repeats what was sent: {body}");
        }
        if asked.method == "POST" && asked.bare_path() == "/v1/memories" && answer.status == 201 {
            delivered_as_sent(&stage, &asked, &answer).await;
        }
        let export = stage.call("GET", "/v1/ledger/export").key(stage.key(Role::Auditor)).send().await;
        verify_export(export.body.as_slice(), None, None).expect("the ledger verifies");
        let in_header = asked.headers.iter().any(|(_, value)| value.contains(CANARY));
        assert!(in_header || !export.text().contains(CANARY), "the ledger holds a word");
    });
}

fn check_status(asked: &Asked<'_>, answer: &Answer) {
    let status = answer.status.as_u16();
    let method = if asked.method == "HEAD" { "GET" } else { asked.method };
    // A fixed segment goes before a variable one, whatever the method.
    let templates = DOCUMENTED.keys().map(|(_, template)| template).filter(|t| fits(t, asked.bare_path()));
    let Some(template) = templates.min_by_key(|template| template.contains('{')) else {
        return assert!([404, 431].contains(&status), "{method} {} answers {status}", asked.path);
    };
    match DOCUMENTED.get(&(method.to_owned(), template.clone())) {
        Some(expected) => {
            assert!(expected.contains(&status), "{method} {template} answers {status}");
            assert!(status < 500, "{}", answer.text());
        }
        None => assert!([405, 431].contains(&status), "{method} {template} answers {status}"),
    }
}

/// Whether a path is one of a template.
fn fits(template: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found => {}
            (Some(wanted), Some(found)) if wanted.starts_with('{') && !found.is_empty() => {}
            _ => return false,
        }
    }
}

async fn delivered_as_sent(stage: &Stage, asked: &Asked<'_>, answer: &Answer) {
    let sent: Value = serde_json::from_slice(&asked.body).unwrap();
    let id = answer.value()["id"].as_str().unwrap().to_owned();
    let mut read = stage.call("GET", &format!("/v1/memories/{id}")).key(stage.key(Role::App));
    for (name, value) in
        asked.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("merkwelt-subject"))
    {
        read = read.header(name, value);
    }
    let read = read.send().await;
    // A group of which the asker is no member, or a time that has not come yet, is not read back.
    if read.status != 200 {
        return;
    }
    let read = read.value();
    let item = &read["items"][0];
    assert_eq!(item["kind"], sent["kind"]);
    let text = sent["text"].as_str().unwrap();
    assert!(item["text"] == text || !text.is_ascii(), "{item}");
    for field in ["metadata", "pointer", "no_expiry_reason"] {
        let empty = sent[field].is_null() || sent[field].as_object().is_some_and(|map| map.is_empty());
        assert!(empty || item[field] == sent[field], "{field}: {} became {}", sent[field], item[field]);
    }
}
