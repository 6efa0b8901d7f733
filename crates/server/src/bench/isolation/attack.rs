//! The attempts: seeded combinations of an operation, a caller, a place that is not the caller's, and a way
//! to name it. Nothing here knows what is right; `judge` compares every answer with what the caller may see.

use serde_json::{Map, Value, json};

use super::aim::{HOSTILE_TEXT, IDENTITY_HEADERS, SCOPE_FIELDS, fill, twisted, unknown};
use super::catalogue::{Operation, compose};
use super::world::{Actor, World};
use crate::bench::dice::Dice;
use crate::bench::wire::{Ask, encoded};

/// What an attempt must not do, beyond showing something foreign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Whatever it answers, as long as nothing foreign is in it.
    Nothing,
    /// Never a success.
    Refusal,
}

/// One attempt; with a twin that must be answered alike.
#[derive(Debug, Clone)]
pub(super) struct Attempt<'w> {
    pub(super) class: &'static str,
    pub(super) operation: String,
    pub(super) actor: &'w Actor,
    pub(super) ask: Ask,
    pub(super) twin: Option<Ask>,
    pub(super) expect: Expect,
}

/// Makes attempts.
pub(super) struct Attacker<'w> {
    pub(super) world: &'w World,
    pub(super) operations: &'w [Operation],
    pub(super) dice: Dice,
}

impl<'w> Attacker<'w> {
    /// The next attempt.
    pub(super) fn next(&mut self) -> Attempt<'w> {
        match self.dice.below(100) {
            0..30 => self.identities(),
            30..60 => self.pair(),
            60..80 => self.filters(),
            80..90 => self.bodies(),
            90..97 => self.addresses(),
            _ => self.protocol(),
        }
    }

    fn actor(&mut self) -> &'w Actor {
        let world = self.world;
        self.dice.pick(&world.actors).unwrap_or(&world.nobody)
    }

    /// An actor and an operation that it may try without harming its own tenant by right.
    fn who_and_what(&mut self) -> (&'w Actor, &'w Operation) {
        let actor = self.actor();
        let operations = self.operations;
        loop {
            let Some(operation) = self.dice.pick(operations) else { return (actor, &self.world.nothing) };
            let changes_directory = operation.method != "GET" && actor.governs;
            let large = operation.path.ends_with("/ledger/export");
            // A tenant of its own for every attempt, or a long ledger each time, would only fill the disk.
            if (changes_directory || large) && actor.key.is_some() && !actor.refused && !self.dice.chance(1) {
                continue;
            }
            return (actor, operation);
        }
    }

    /// The request of an actor, without anything forged.
    fn plain(&mut self, actor: &Actor, operation: &Operation) -> Ask {
        let target = self.target(actor, operation);
        let mut ask = Ask::new(&operation.method, &target);
        if let Some(schema) = &operation.body {
            let world = self.world;
            let body = compose(schema, "", &mut self.dice, &mut |name, dice| fill(world, actor, name, dice));
            ask = ask.json(&body);
        }
        signed(ask, actor)
    }

    fn target(&mut self, actor: &Actor, operation: &Operation) -> String {
        match operation.collection() {
            None => operation.path.clone(),
            Some(kind) => {
                let known = self.world.foreign(actor, kind, &mut self.dice);
                let id = known.unwrap_or_else(|| unknown(kind, &mut self.dice));
                with_id(&operation.path, &encoded(&id))
            }
        }
    }

    /// Forged, doubled and misspelt identities.
    fn identities(&mut self) -> Attempt<'w> {
        let (actor, operation) = self.who_and_what();
        let mut ask = self.plain(actor, operation);
        for _ in 0..=self.dice.below(3) {
            ask = self.forged(ask, actor);
        }
        let expect = if actor.refused && !operation.public { Expect::Refusal } else { Expect::Nothing };
        Attempt { class: "identity headers", operation: operation.name(), actor, ask, twin: None, expect }
    }

    fn forged(&mut self, mut ask: Ask, actor: &Actor) -> Ask {
        let victim = self.world.name_of_another(actor, &mut self.dice);
        let company = self.dice.pick(&self.world.companies);
        let (tenant, tenant_name) = company.map_or(("", ""), |c| (c.id.as_str(), c.name.as_str()));
        match self.dice.below(10) {
            0 if !actor.acts_for => ask.header(
                self.dice.word(&["Merkwelt-Subject", "MERKWELT-SUBJECT", "merkwelt-subject"]),
                &victim,
            ),
            1 => ask.header("Merkwelt-Subject", &victim).header("merkwelt-Subject", &victim),
            2 if !actor.acts_for => {
                ask.headers.retain(|(name, _)| name != "Merkwelt-Subject");
                let twisted = twisted(&victim, &mut self.dice);
                ask.header("Merkwelt-Subject", &twisted)
            }
            3 => ask.header("X-API-Key", &unknown("mk", &mut self.dice)),
            4 => {
                let second = self.dice.word(&[
                    "Basic YWRtaW46YWRtaW4=",
                    "Bearer",
                    "Bearer null",
                    "Bearer *",
                    "Negotiate x",
                ]);
                ask.header("authorization", second)
            }
            5 => {
                for (name, value) in &mut ask.headers {
                    if name == "Authorization" {
                        *name = self
                            .dice
                            .word(&["AUTHORIZATION", "authorization", "Proxy-Authorization"])
                            .to_owned();
                        if self.dice.chance(30) {
                            *value = value.replacen("Bearer ", "token ", 1);
                        }
                    }
                }
                ask
            }
            _ => {
                let name = self.dice.word(IDENTITY_HEADERS);
                let text = self.dice.word(&[
                    "admin",
                    "*",
                    "root",
                    "instance_admin",
                    "DELETE",
                    "/v1/tenants",
                    "127.0.0.1",
                ]);
                let values = [tenant, tenant_name, victim.as_str(), text];
                let value = self.dice.word(&values).to_owned();
                ask.header(name, &value)
            }
        }
    }

    /// A foreign id and an unknown one: the answers must not differ in a byte.
    fn pair(&mut self) -> Attempt<'w> {
        loop {
            let (actor, operation) = self.who_and_what();
            let Some(kind) = operation.collection() else { continue };
            let unknown_id = unknown(kind, &mut self.dice);
            let Some(foreign) = self.world.foreign(actor, kind, &mut self.dice) else { continue };
            if actor.governs && operation.method != "GET" {
                continue;
            }
            let mut ask = self.plain(actor, operation);
            ask.target = with_id(&operation.path, &encoded(&foreign));
            let twin = Ask { target: with_id(&operation.path, &encoded(&unknown_id)), ..ask.clone() };
            let name = operation.name();
            return Attempt {
                class: "foreign and unknown ids",
                operation: name,
                actor,
                ask,
                twin: Some(twin),
                expect: Expect::Refusal,
            };
        }
    }

    /// Searches and lists with filters that try to widen.
    fn filters(&mut self) -> Attempt<'w> {
        let actor = self.actor();
        let chosen =
            self.dice.word(&["/v1/recall", "/v1/recall", "/v1/context", "/v1/memories", "/v1/conversations"]);
        let method = if chosen.ends_with("recall") || chosen.ends_with("context") { "POST" } else { "GET" };
        let found = self.operations.iter().find(|o| o.path == chosen && o.method == method);
        let Some(operation) = found else { return self.addresses() };
        let mut ask = if method == "GET" {
            let query = self.query(actor, operation);
            Ask::new("GET", &format!("{chosen}?{query}"))
        } else {
            let mut body = self.question(actor);
            for _ in 0..self.dice.below(3) {
                let name = self.dice.word(&[
                    "metadata",
                    "kinds",
                    "history",
                    "conversation",
                    "interval",
                    "k",
                    "budget",
                ]);
                let value = self.hostile(actor, 0);
                body.insert(name.to_owned(), value);
            }
            if self.dice.chance(50) {
                let company = self.companion(actor);
                let filter = self.dice.word(&["kept_by", "depot", "*", "owner", "tenant"]).to_owned();
                let value = company.unwrap_or_else(|| json!("*"));
                body.insert("metadata".to_owned(), json!({ filter: value }));
            }
            Ask::new("POST", chosen).json(&Value::Object(body))
        };
        ask = signed(ask, actor);
        let expect = if actor.refused { Expect::Refusal } else { Expect::Nothing };
        Attempt { class: "filters", operation: operation.name(), actor, ask, twin: None, expect }
    }

    /// A question; half of them ask for exactly what is somebody else's.
    fn question(&mut self, actor: &Actor) -> Map<String, Value> {
        let text = match self.world.secret(actor, &mut self.dice) {
            Some(item) if self.dice.chance(60) => {
                if self.dice.chance(50) {
                    item.text.clone()
                } else {
                    format!("Where is {}?", item.mark)
                }
            }
            _ if self.dice.chance(50) => {
                format!("gate code depot {}", self.dice.word(&["Kiel", "Bremen", "Rostock"]))
            }
            _ => format!("x {}", self.dice.word(HOSTILE_TEXT)),
        };
        Map::from_iter([("question".to_owned(), json!(text))])
    }

    /// A mark of somebody else, as the value of a filter.
    fn companion(&mut self, actor: &Actor) -> Option<Value> {
        self.world.secret(actor, &mut self.dice).map(|item| json!(item.mark))
    }

    fn query(&mut self, actor: &Actor, operation: &Operation) -> String {
        let mut names: Vec<String> = operation.query.clone();
        names.extend(
            ["tenant", "subject", "user_id", "owner", "group", "limit", "cursor"].map(ToOwned::to_owned),
        );
        let mut parts = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let name = self.dice.pick(&names).cloned().unwrap_or_default();
            let value = match name.as_str() {
                "cursor" => self.world.cursor(&mut self.dice),
                "conversation" => {
                    self.world.foreign(actor, "conversations", &mut self.dice).unwrap_or_default()
                }
                "limit" => {
                    self.dice.word(&["1", "500", "0", "-1", "501", "18446744073709551616", "*"]).to_owned()
                }
                _ if self.dice.chance(50) => self.world.name_of_another(actor, &mut self.dice),
                _ => self.dice.word(HOSTILE_TEXT).to_owned(),
            };
            parts.push(format!("{name}={}", encoded(&value)));
        }
        parts.join("&")
    }

    /// Bodies that name somebody else, or are no bodies.
    fn bodies(&mut self) -> Attempt<'w> {
        loop {
            let (actor, operation) = self.who_and_what();
            if operation.body.is_none() {
                continue;
            }
            let mut ask = self.plain(actor, operation);
            let body: Value =
                ask.body.as_deref().and_then(|b| serde_json::from_slice(b).ok()).unwrap_or_default();
            ask.body = Some(self.mutated(body, actor));
            if self.dice.chance(10) {
                let kind = self.dice.word(&[
                    "text/plain",
                    "application/xml",
                    "application/json; charset=utf-16",
                    "",
                ]);
                ask = ask.header("Content-Type", kind);
            }
            let expect = if actor.refused { Expect::Refusal } else { Expect::Nothing };
            return Attempt { class: "bodies", operation: operation.name(), actor, ask, twin: None, expect };
        }
    }

    fn mutated(&mut self, body: Value, actor: &Actor) -> Vec<u8> {
        let text = body.to_string();
        match self.dice.below(12) {
            0 => b"null".to_vec(),
            1 => Vec::new(),
            2 => format!("[{text}]").into_bytes(),
            3 => text.get(..text.len() / 2).unwrap_or_default().as_bytes().to_vec(),
            4 => ("[".repeat(40) + &"]".repeat(40)).into_bytes(),
            5 => text.replacen('{', "{\"question\":\"a\",\"question\":\"b\",", 1).into_bytes(),
            6 => [text.as_bytes(), &[0xff, 0xfe]].concat(),
            _ => {
                let mut map = body.as_object().cloned().unwrap_or_default();
                for _ in 0..=self.dice.below(3) {
                    let names: Vec<String> = map.keys().cloned().collect();
                    // What may be stored holds no mark, or its writer would rightly find it again.
                    let (name, value) = match self.dice.pick(&names).cloned() {
                        Some(known) if self.dice.chance(40) => (known, self.harmless(actor)),
                        _ => (self.dice.word(SCOPE_FIELDS).to_owned(), self.hostile(actor, 0)),
                    };
                    map.insert(name, value);
                }
                Value::Object(map).to_string().into_bytes()
            }
        }
    }

    /// A value without anything of anybody in it.
    fn harmless(&mut self, actor: &Actor) -> Value {
        match self.dice.below(6) {
            0 => Value::Null,
            1 => json!(self.world.name_of_another(actor, &mut self.dice)),
            2 => json!({ self.dice.word(&["$ne", "or", "not", "group"]): [{}, "*"] }),
            3 => json!(-1),
            4 => json!([]),
            _ => json!(self.dice.word(HOSTILE_TEXT)),
        }
    }

    /// A value that tries to be more than a value.
    fn hostile(&mut self, actor: &Actor, depth: usize) -> Value {
        let victim = self.world.name_of_another(actor, &mut self.dice);
        match self.dice.below(if depth > 3 { 6 } else { 12 }) {
            0 => Value::Null,
            1 => json!(self.dice.word(HOSTILE_TEXT)),
            2 => json!(victim),
            3 => json!(self.dice.pick(&self.world.companies).map(|c| c.id.clone())),
            4 => self.companion(actor).unwrap_or(json!(true)),
            5 => json!([-1, 0, 1_000_000_007, 9_007_199_254_740_993_i64].get(self.dice.below(4))),
            6 => json!([]),
            7 => json!({}),
            8 => json!({ self.dice.word(&["$ne", "$gt", "$regex", "$exists", "$in"]): "" }),
            9 => json!({ self.dice.word(&["or", "OR", "$or", "any"]): [{}, self.hostile(actor, depth + 1)] }),
            10 => json!({ self.dice.word(&["not", "NOT", "$not"]): self.hostile(actor, depth + 1) }),
            _ => json!([self.hostile(actor, depth + 1), self.hostile(actor, depth + 1)]),
        }
    }

    /// Addresses: ids twisted, paths climbed, routes that are none.
    fn addresses(&mut self) -> Attempt<'w> {
        let (actor, operation) = self.who_and_what();
        let mut ask = self.plain(actor, operation);
        if let Some(kind) = operation.collection() {
            let foreign = self.world.foreign(actor, kind, &mut self.dice).unwrap_or_default();
            let text = self.dice.word(HOSTILE_TEXT);
            let id = match self.dice.below(4) {
                0 => twisted(&foreign, &mut self.dice),
                1 => encoded(text),
                2 => encoded(&format!("{foreign}{text}")),
                _ => encoded(&foreign.chars().rev().skip(1).collect::<String>()),
            };
            ask.target = with_id(&operation.path, &id);
        }
        let ending = self.dice.word(&[
            "",
            "/",
            "//",
            "/.",
            "/..",
            "/%2e%2e/",
            ";x=1",
            "?x=1",
            "#x",
            "/../tenants",
            "%00",
        ]);
        ask.target.push_str(ending);
        if self.dice.chance(10) {
            ask.target =
                format!("/{}{}", self.dice.word(&[".", "..", "%2e%2e", "v0", "V1", "admin", ""]), ask.target);
        }
        let expect = if actor.refused && !operation.public && ask.target.starts_with("/v1/") {
            Expect::Refusal
        } else {
            Expect::Nothing
        };
        Attempt { class: "addresses", operation: operation.name(), actor, ask, twin: None, expect }
    }

    /// Methods and framings that a client library would not send.
    fn protocol(&mut self) -> Attempt<'w> {
        let (actor, operation) = self.who_and_what();
        let mut ask = self.plain(actor, operation);
        match self.dice.below(5) {
            0 if !actor.governs => {
                ask.method = self.dice.word(&["HEAD", "OPTIONS", "PATCH", "TRACE", "PURGE", "get"]).to_owned()
            }
            1 => {
                ask.target =
                    format!("http://{}{}", self.dice.word(&["localhost", "admin", "merkwelt"]), ask.target)
            }
            2 => ask = ask.header("X-Fill", &"x".repeat(20_000)),
            3 => ask = ask.header("Expect", "100-continue").header("Upgrade", "h2c"),
            _ => ask = ask.header("Host", self.dice.word(&["", "localhost:1", "[::1]", "a,b"])),
        }
        Attempt {
            class: "protocol",
            operation: operation.name(),
            actor,
            ask,
            twin: None,
            expect: Expect::Nothing,
        }
    }
}

fn signed(ask: Ask, actor: &Actor) -> Ask {
    let ask = match &actor.key {
        Some(key) => ask.key(key),
        None => ask,
    };
    match &actor.subject {
        Some(name) => ask.subject(name),
        None => ask,
    }
}

fn with_id(path: &str, id: &str) -> String {
    let Some((before, rest)) = path.split_once('{') else { return path.to_owned() };
    let after = rest.split_once('}').map_or("", |(_, after)| after);
    format!("{before}{id}{after}")
}
