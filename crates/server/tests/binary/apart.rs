//! Two persons in each of two tenants at once, over real sockets: every operation of the API is allowed to who
//! may and denied to who may not, and no word of one reaches another.

use std::collections::BTreeSet;
use std::sync::Mutex;

use merkwelt_server::http::routes::ROUTES;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::running::Running;

/// A key and, for most, the person it acts for.
#[derive(Clone)]
struct Voice {
    agent: ureq::Agent,
    url: String,
    key: String,
    subject: Option<&'static str>,
}

struct Heard {
    status: u16,
    body: String,
}

impl Voice {
    fn new(url: &str, key: &str, subject: Option<&'static str>) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
        Self { agent: config.build().into(), url: url.to_owned(), key: key.to_owned(), subject }
    }

    fn say(&self, method: &str, path: &str, body: Option<&Value>) -> Heard {
        let mut request = ureq::http::Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.key));
        if let Some(subject) = self.subject {
            request = request.header("merkwelt-subject", subject);
        }
        let mut response = match body {
            Some(body) => {
                // A text alone is a document.
                let (media, text) = match body.as_str() {
                    Some(text) => ("text/plain", text.to_owned()),
                    None => ("application/json", body.to_string()),
                };
                self.agent.run(request.header("content-type", media).body(text).unwrap())
            }
            None => self.agent.run(request.body(()).unwrap()),
        }
        .unwrap();
        let status = response.status().as_u16();
        Heard { status, body: response.body_mut().read_to_string().unwrap() }
    }
}

impl Heard {
    fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn word(&self, name: &str) -> String {
        self.value()[name].as_str().unwrap_or_else(|| panic!("no {name} in {}", self.body)).to_owned()
    }
}

/// A tenant: who administers it, who acts for its persons, who audits it.
#[derive(Clone)]
struct House {
    name: &'static str,
    admin: String,
    app: String,
    auditor: String,
}

fn house(service: &Running, name: &'static str) -> House {
    let instance = Voice::new(&service.url, &service.keys.admin, None);
    let admin = instance.say("POST", "/v1/tenants", Some(&json!({ "name": name }))).word("key");
    let voice = Voice::new(&service.url, &admin, None);
    let key = |role: &str, act_for: bool| {
        let wanted = json!({ "label": role, "role": role, "act_for": act_for });
        voice.say("POST", "/v1/keys", Some(&wanted)).word("key")
    };
    House { name, app: key("app", true), auditor: key("auditor", false), admin }
}

/// One person's things and the word that stands in all of them.
#[derive(Clone)]
struct Person {
    mark: String,
    voice: Voice,
    admin: Voice,
    auditor: Voice,
    group: String,
    memory: String,
    conversation: String,
    pack: String,
    key: String,
    source: String,
    revision: String,
    passage: String,
}

/// What was asked of a route, and whether it was allowed.
type Asked = Mutex<BTreeSet<(&'static str, &'static str, bool)>>;

/// Says something that must be answered, and notes the route.
fn allowed(asked: &Asked, voice: &Voice, route: usize, path: &str, body: Option<Value>) -> Heard {
    let (method, template, _) = ROUTES[route];
    let heard = voice.say(method, path, body.as_ref());
    assert!((200..300).contains(&heard.status), "{method} {path}: {} {}", heard.status, heard.body);
    asked.lock().unwrap().insert((method, template, true));
    heard
}

fn denied(asked: &Asked, voice: &Voice, route: usize, path: &str, body: Option<Value>) {
    let (method, template, _) = ROUTES[route];
    let heard = voice.say(method, path, body.as_ref());
    assert_eq!(heard.status, 404, "{method} {path}: {}", heard.body);
    assert_eq!(heard.value()["code"], "not_found");
    asked.lock().unwrap().insert((method, template, false));
}

fn route(method: &str, template: &str) -> usize {
    ROUTES.iter().position(|(m, t, _)| *m == method && *t == template).unwrap()
}

impl Person {
    /// Everything of the API that a person and her house may do.
    fn live(asked: &Asked, service: &Running, house: &House, name: &'static str, round: usize) -> Self {
        let voice = Voice::new(&service.url, &house.app, Some(name));
        let admin = Voice::new(&service.url, &house.admin, None);
        let auditor = Voice::new(&service.url, &house.auditor, None);
        let mark = format!("mark-{}-{name}-{round}", house.name);
        let group = format!("{name}-{round}");
        let go = |voice: &Voice, method, template: &str, path: &str, body| {
            allowed(asked, voice, route(method, template), path, body)
        };
        let post = |voice: &Voice, path: &str, body| go(voice, "POST", path, path, Some(body));
        post(&admin, "/v1/groups", json!({ "name": group }));
        let members = format!("/v1/groups/{group}/members");
        go(&admin, "POST", "/v1/groups/{name}/members", &members, Some(json!({ "add": [name] })));
        go(&admin, "GET", "/v1/groups/{name}/members", &members, None);
        go(&admin, "GET", "/v1/groups", "/v1/groups", None);
        let wanted = json!({ "label": "new", "role": "agent" });
        let key = post(&admin, "/v1/keys", wanted).word("id");
        go(&admin, "GET", "/v1/keys", "/v1/keys", None);
        let conversation = post(&voice, "/v1/conversations", json!({ "keep_days": 3 })).word("id");
        let turns = format!("/v1/conversations/{conversation}/turns");
        let turn = json!({ "role": "person", "text": format!("Said {mark}") });
        go(&voice, "POST", "/v1/conversations/{id}/turns", &turns, Some(turn));
        go(&voice, "GET", "/v1/conversations", "/v1/conversations", None);
        let fact = |text: &str, owner: Value| json!({ "kind": "user_fact", "text": text, "owner": owner });
        let memory =
            post(&voice, "/v1/memories", fact(&format!("Likes {mark}"), json!("subject"))).word("id");
        let of_group = fact(&format!("Shared {mark}"), json!({ "group": group }));
        post(&voice, "/v1/memories/batch", json!({ "memories": [of_group] }));
        let question =
            json!({ "question": "What was said, liked and shared?", "conversation": conversation });
        let pack = post(&voice, "/v1/context", question).word("pack_id");
        let title = json!({ "title": format!("Policy of {name} {round}"), "groups": [group] });
        let source = post(&voice, "/v1/sources", title).word("id");
        let at = format!("/v1/sources/{source}");
        let put = |text: String| {
            let path = format!("{at}/revisions");
            go(&voice, "PUT", "/v1/sources/{id}/revisions", &path, Some(text.into())).word("revision_id")
        };
        let revision = put(format!("Written {mark}. Goods may be returned."));
        let publish = json!({ "revision_id": revision });
        go(&voice, "POST", "/v1/sources/{id}/publish", &format!("{at}/publish"), Some(publish));
        let draft = format!("{at}/revisions/{}", put(format!("Drafted {mark}.")));
        go(&voice, "DELETE", "/v1/sources/{id}/revisions/{revision}", &draft, None);
        let manifest = format!("{at}/revisions/{revision}");
        let manifest = go(&voice, "GET", "/v1/sources/{id}/revisions/{revision}", &manifest, None);
        let passage = manifest.value()["passages"][0]["id"].as_str().unwrap().to_owned();
        go(&voice, "GET", "/v1/sources", "/v1/sources", None);
        go(&voice, "GET", "/v1/sources/{id}", &at, None);
        let audience = json!({ "groups": [group] });
        go(&voice, "PUT", "/v1/sources/{id}/audience", &format!("{at}/audience"), Some(audience));
        let answer = json!({
            "question": "What is written?", "answer": format!("It says {mark}"), "model": "m", "prompt": "p",
            "sources": [{ "source_id": source, "revision": 1 }],
        });
        post(&voice, "/v1/answers", answer);
        Self {
            mark,
            voice,
            admin,
            auditor,
            group,
            memory,
            conversation,
            pack,
            key,
            source,
            revision,
            passage,
        }
    }

    /// Her house lets her conversation go along, and it is summed up and handed over to her alone.
    fn hands_over(&self, asked: &Asked) {
        let Self { voice, admin, conversation, mark, .. } = self;
        let go = |voice: &Voice, method, template: &str, path: &str, body: Option<Value>| {
            allowed(asked, voice, route(method, template), path, body)
        };
        let switch = "/v1/organisation-switch";
        go(admin, "PUT", switch, switch, Some(json!({ "rule": "continue" })));
        go(voice, "GET", switch, switch, None);
        let summary = json!({ "text": format!("Summed up {mark}"), "through": 1, "rule": "support-7" });
        let at = format!("/v1/conversations/{conversation}");
        go(voice, "POST", "/v1/conversations/{id}/summary", &format!("{at}/summary"), Some(summary));
        let handed = go(voice, "GET", "/v1/conversations/{id}/handover", &format!("{at}/handover"), None);
        assert!(handed.body.contains(&format!("Summed up {mark}")), "{}", handed.body);
    }

    /// Nobody else hands it over, and only who runs the house says what goes along.
    fn tries_to_take_over(&self, asked: &Asked, other: &Self) {
        let at = format!("/v1/conversations/{}", other.conversation);
        let summary = json!({ "text": "Taken over", "through": 1, "rule": "support-7" });
        let switch = "/v1/organisation-switch";
        for (voice, method, template, path, body) in [
            (&self.voice, "POST", "/v1/conversations/{id}/summary", format!("{at}/summary"), Some(summary)),
            (&self.voice, "GET", "/v1/conversations/{id}/handover", format!("{at}/handover"), None),
            (&self.voice, "PUT", switch, switch.to_owned(), Some(json!({ "rule": "continue" }))),
            (&self.auditor, "GET", switch, switch.to_owned(), None),
        ] {
            denied(asked, voice, route(method, template), &path, body);
        }
    }

    /// Her own things come to her, and nothing of `others`.
    fn reads(&self, asked: &Asked, others: &[String]) {
        let (memory, conversation, pack, passage) =
            (&self.memory, &self.conversation, &self.pack, &self.passage);
        let search = json!({ "question": "Likes said shared mark", "k": 200, "history": "all" });
        let pack_again = json!({ "question": "What was said?", "conversation": conversation });
        for (method, template, path, body) in [
            ("GET", "/v1/memories", "/v1/memories?limit=500".to_owned(), None),
            ("GET", "/v1/memories/{id}", format!("/v1/memories/{memory}"), None),
            ("GET", "/v1/conversations/{id}", format!("/v1/conversations/{conversation}"), None),
            ("GET", "/v1/packs/{id}", format!("/v1/packs/{pack}"), None),
            ("GET", "/v1/citations/{id}", format!("/v1/citations/{passage}"), None),
            ("POST", "/v1/recall", "/v1/recall".to_owned(), Some(search)),
            ("POST", "/v1/context", "/v1/context".to_owned(), Some(pack_again)),
        ] {
            let heard = allowed(asked, &self.voice, route(method, template), &path, body);
            assert!(heard.body.contains(&self.mark), "{method} {path} lacks {}: {}", self.mark, heard.body);
            self.sees_nothing_of(others, &heard);
        }
        // The others change sources at the same time, so a kept answer may have ended; it is never another's.
        let question = json!({ "question": "What is written?", "model": "m", "prompt": "p" });
        let look = route("POST", "/v1/answers/lookup");
        self.sees_nothing_of(
            others,
            &allowed(asked, &self.voice, look, "/v1/answers/lookup", Some(question)),
        );
        let check = route("POST", "/v1/authorizations/check");
        let may = json!({ "resource": { "memory": memory } });
        let may = allowed(asked, &self.voice, check, "/v1/authorizations/check", Some(may));
        assert_eq!(may.value()["allowed"], true, "{}", may.body);
    }

    fn sees_nothing_of(&self, others: &[String], heard: &Heard) {
        let foreign = others.iter().find(|other| heard.body.contains(other.as_str()));
        assert!(foreign.is_none(), "{foreign:?} is shown to {}: {}", self.mark, heard.body);
    }

    /// Nothing that she may not: what is another's, and what her key's role does not allow.
    fn tries(&self, asked: &Asked, other: &Self) {
        let no = |voice: &Voice, method, template: &str, path: &str, body: Option<Value>| {
            denied(asked, voice, route(method, template), path, body);
        };
        let fact = || json!({ "kind": "user_fact", "text": format!("Taken {}", self.mark) });
        let (voice, Self { memory, conversation, pack, .. }) = (&self.voice, other);
        no(voice, "GET", "/v1/memories/{id}", &format!("/v1/memories/{memory}"), None);
        no(voice, "PUT", "/v1/memories/{id}", &format!("/v1/memories/{memory}"), Some(fact()));
        no(voice, "DELETE", "/v1/memories/{id}", &format!("/v1/memories/{memory}"), None);
        no(voice, "GET", "/v1/packs/{id}", &format!("/v1/packs/{pack}"), None);
        no(voice, "GET", "/v1/conversations/{id}", &format!("/v1/conversations/{conversation}"), None);
        no(voice, "DELETE", "/v1/conversations/{id}", &format!("/v1/conversations/{conversation}"), None);
        let turn = json!({ "role": "person", "text": "Taken over" });
        let turns = format!("/v1/conversations/{conversation}/turns");
        no(voice, "POST", "/v1/conversations/{id}/turns", &turns, Some(turn));
        let about = json!({ "question": "What?", "conversation": conversation });
        no(voice, "POST", "/v1/context", "/v1/context", Some(about.clone()));
        let mut into = fact();
        into["conversation"] = json!(conversation);
        no(voice, "POST", "/v1/memories", "/v1/memories", Some(into.clone()));
        no(voice, "POST", "/v1/memories/batch", "/v1/memories/batch", Some(json!({ "memories": [into] })));
        no(voice, "GET", "/v1/citations/{id}", &format!("/v1/citations/{}", other.passage), None);
        self.tries_sources(asked, other);
        self.tries_to_take_over(asked, other);
        // The auditor reads evidence and nothing else; the application administers nothing.
        for (method, path, body) in [
            ("GET", "/v1/memories", None),
            ("POST", "/v1/recall", Some(json!({ "question": "What?" }))),
            ("POST", "/v1/conversations", Some(json!({}))),
            ("GET", "/v1/conversations", None),
        ] {
            no(&self.auditor, method, path, path, body);
        }
        let group = &other.group;
        for (method, template, path, body) in [
            ("GET", "/v1/groups", "/v1/groups".to_owned(), None),
            ("POST", "/v1/groups", "/v1/groups".to_owned(), Some(json!({ "name": "mine" }))),
            ("DELETE", "/v1/groups/{name}", format!("/v1/groups/{group}"), None),
            ("GET", "/v1/groups/{name}/members", format!("/v1/groups/{group}/members"), None),
            (
                "POST",
                "/v1/groups/{name}/members",
                format!("/v1/groups/{group}/members"),
                Some(json!({ "add": ["eve"] })),
            ),
            ("GET", "/v1/keys", "/v1/keys".to_owned(), None),
            ("POST", "/v1/keys", "/v1/keys".to_owned(), Some(json!({ "label": "x", "role": "app" }))),
            ("DELETE", "/v1/keys/{id}", format!("/v1/keys/{}", other.key), None),
            ("GET", "/v1/tenants", "/v1/tenants".to_owned(), None),
            ("POST", "/v1/tenants", "/v1/tenants".to_owned(), Some(json!({ "name": "third" }))),
            ("GET", "/v1/ledger/checkpoint", "/v1/ledger/checkpoint".to_owned(), None),
            ("GET", "/v1/ledger/export", "/v1/ledger/export".to_owned(), None),
            ("GET", "/v1/ledger/entries/{index}/proof", "/v1/ledger/entries/0/proof".to_owned(), None),
        ] {
            no(voice, method, template, &path, body);
        }
    }

    /// Sources belong to the tenant: the auditor's key may do nothing with them, and another tenant's
    /// application is a stranger.
    fn tries_sources(&self, asked: &Asked, other: &Self) {
        let at = format!("/v1/sources/{}", other.source);
        let one = format!("{at}/revisions/{}", other.revision);
        let revision = json!({ "revision_id": other.revision });
        let answer = json!({
            "question": "What?", "answer": "This", "model": "m", "prompt": "p",
            "sources": [{ "source_id": other.source, "revision": 1 }],
        });
        let look = json!({ "question": "What is written?", "model": "m", "prompt": "p" });
        let may = json!({ "resource": { "memory": other.memory } });
        let of_one = [
            ("GET", "/v1/sources/{id}", at.clone(), None),
            ("PUT", "/v1/sources/{id}/revisions", format!("{at}/revisions"), Some(json!("Taken over"))),
            ("GET", "/v1/sources/{id}/revisions/{revision}", one.clone(), None),
            ("DELETE", "/v1/sources/{id}/revisions/{revision}", one, None),
            ("POST", "/v1/sources/{id}/publish", format!("{at}/publish"), Some(revision.clone())),
            ("POST", "/v1/sources/{id}/restore", format!("{at}/restore"), Some(revision)),
            ("PUT", "/v1/sources/{id}/audience", format!("{at}/audience"), Some(json!({ "groups": null }))),
            ("POST", "/v1/sources/{id}/withdraw", format!("{at}/withdraw"), None),
            ("DELETE", "/v1/sources/{id}", at, None),
        ];
        for (method, template, path, body) in &of_one {
            denied(asked, &self.auditor, route(method, template), path, body.clone());
            if self.voice.key != other.voice.key {
                denied(asked, &self.voice, route(method, template), path, body.clone());
            }
        }
        for (method, path, body) in [
            ("POST", "/v1/sources", Some(json!({ "title": "Mine" }))),
            ("GET", "/v1/sources", None),
            ("POST", "/v1/answers", Some(answer)),
            ("POST", "/v1/answers/lookup", Some(look)),
            ("POST", "/v1/authorizations/check", Some(may)),
        ] {
            denied(asked, &self.auditor, route(method, path), path, body);
        }
    }

    /// What ends things, which is allowed to her alone.
    fn ends(&self, asked: &Asked) {
        let Self { voice, admin, auditor, group, memory, conversation, key, .. } = self;
        let go = |voice: &Voice, method, template: &str, path: &str, body: Option<Value>| {
            allowed(asked, voice, route(method, template), path, body)
        };
        let better = json!({ "kind": "user_fact", "text": format!("Likes {} more", self.mark) });
        go(voice, "PUT", "/v1/memories/{id}", &format!("/v1/memories/{memory}"), Some(better));
        go(voice, "DELETE", "/v1/memories/{id}", &format!("/v1/memories/{memory}"), None);
        go(voice, "DELETE", "/v1/conversations/{id}", &format!("/v1/conversations/{conversation}"), None);
        let at = format!("/v1/sources/{}", self.source);
        go(voice, "POST", "/v1/sources/{id}/withdraw", &format!("{at}/withdraw"), None);
        let revision = json!({ "revision_id": self.revision });
        go(voice, "POST", "/v1/sources/{id}/restore", &format!("{at}/restore"), Some(revision));
        go(voice, "DELETE", "/v1/sources/{id}", &at, None);
        go(admin, "DELETE", "/v1/groups/{name}", &format!("/v1/groups/{group}"), None);
        go(admin, "DELETE", "/v1/keys/{id}", &format!("/v1/keys/{key}"), None);
        go(auditor, "GET", "/v1/ledger/checkpoint", "/v1/ledger/checkpoint", None);
        let export = go(auditor, "GET", "/v1/ledger/export", "/v1/ledger/export", None);
        assert!(!export.body.contains("mark-"), "a ledger holds a word");
        go(auditor, "GET", "/v1/ledger/entries/{index}/proof", "/v1/ledger/entries/0/proof", None);
    }
}

const ROUNDS: usize = 2;

#[test]
fn r_036_every_operation_is_allowed_and_denied_over_http_to_two_people_in_two_tenants_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let houses = [house(&service, "acme"), house(&service, "globex")];
    let asked = Asked::default();
    let instance = Voice::new(&service.url, &service.keys.admin, None);
    allowed(&asked, &instance, route("GET", "/v1/tenants"), "/v1/tenants", None);
    let tenant = json!({ "name": "initech" });
    allowed(&asked, &instance, route("POST", "/v1/tenants"), "/v1/tenants", Some(tenant));
    let people: Vec<_> = houses.iter().flat_map(|house| ["anna", "bert"].map(|name| (house, name))).collect();
    let mut past: Vec<Person> = Vec::new();
    for round in 0..ROUNDS {
        let now = at_once(&people, |_, (house, name)| Person::live(&asked, &service, house, name, round));
        past.extend(now.iter().cloned());
        at_once(&now, |nth, me| {
            let own = |other: &&Person| other.mark[..other.mark.len() - 1] == me.mark[..me.mark.len() - 1];
            let others: Vec<_> = past.iter().filter(|other| !own(other)).collect();
            let marks: Vec<_> = others.iter().map(|other| other.mark.clone()).collect();
            me.hands_over(&asked);
            me.reads(&asked, &marks);
            others.iter().skip(nth % 2).step_by(2).for_each(|other| me.tries(&asked, other));
            me.reads(&asked, &marks);
        });
        at_once(&now, |_, me| me.ends(&asked));
    }
    let asked = asked.into_inner().unwrap();
    for (method, template, _) in ROUTES {
        assert!(asked.contains(&(*method, *template, true)), "{method} {template} was never allowed");
        assert!(asked.contains(&(*method, *template, false)), "{method} {template} was never denied");
    }
}

/// Does something for each at the same time. What one finds wrong ends the test, not the others.
fn at_once<T: Sync, R: Send>(each: &[T], act: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let act = &act;
        let started: Vec<_> =
            each.iter().enumerate().map(|(nth, one)| scope.spawn(move || act(nth, one))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn r_037_marks_of_one_conversation_never_appear_in_the_context_of_another_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let houses = [house(&service, "acme"), house(&service, "globex")];
    let mut voices = Vec::new();
    for house in &houses {
        for name in ["anna", "bert"] {
            let voice = Voice::new(&service.url, &house.app, Some(name));
            // One kept conversation and one of this sitting only, of the same person.
            for body in [json!({ "keep_days": 3 }), json!({})] {
                let id = voice.say("POST", "/v1/conversations", Some(&body)).word("id");
                voices.push((voice.clone(), id));
            }
        }
    }
    at_once(&voices, |number, (voice, id)| {
        for turn in 0..6 {
            let mark = format!("marker{number}x{turn}");
            let said = json!({ "role": "user", "text": format!("The secret word is {mark}") });
            let path = format!("/v1/conversations/{id}/turns");
            assert_eq!(voice.say("POST", &path, Some(&said)).status, 201);
            let question =
                json!({ "question": "What is the secret word?", "conversation": id, "last_turns": 20 });
            let pack = voice.say("POST", "/v1/context", Some(&question));
            assert!(pack.body.contains(&mark), "{mark} is missing in {}", pack.body);
            for rest in pack.body.split("marker").skip(1) {
                assert_eq!(rest.split('x').next(), Some(number.to_string().as_str()), "{}", pack.body);
            }
        }
    });
}
