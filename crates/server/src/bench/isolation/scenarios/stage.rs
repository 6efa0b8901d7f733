//! What a scenario plays on: two tenants of the world under attack, new people in them, and calls whose answers
//! are searched for everything that does not belong to who asked.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::bench::dice::Dice;
use crate::bench::isolation::catalogue::Operation;
use crate::bench::isolation::judge::{Seen, Tally, Wrong};
use crate::bench::isolation::marks::Sight;
use crate::bench::isolation::world::{Company, World};
use crate::bench::wire::{Answer, Ask, Wire};

/// A person whom the scenario made up.
#[derive(Debug, Clone)]
pub(super) struct Player {
    pub(super) tenant: usize,
    pub(super) key: String,
    pub(super) name: String,
    /// Whether the key is bound to this person; then requests name nobody.
    pub(super) bound: bool,
}

impl Player {
    /// A request of this person.
    pub(super) fn request(&self, method: &str, path: &str) -> Ask {
        let ask = Ask::new(method, path).key(&self.key);
        if self.bound { ask } else { ask.subject(&self.name) }
    }
}

/// The stage of one scenario.
pub(super) struct Stage<'w> {
    pub(super) world: &'w World,
    pub(super) operations: &'w [Operation],
    pub(super) a: &'w Company,
    pub(super) b: &'w Company,
    pub(super) dice: Dice,
    pub(super) wire: Wire,
    pub(super) leaks: Vec<String>,
    tally: Tally,
}

impl<'w> Stage<'w> {
    pub(super) fn set(world: &'w World, operations: &'w [Operation], seed: u64, part: u64) -> Option<Self> {
        let (a, b) = (world.companies.first()?, world.companies.get(1)?);
        let dice = Dice::seeded(seed, 0x5CE0_0000 + part);
        Some(Self {
            world,
            operations,
            a,
            b,
            dice,
            wire: Wire::to(world.address),
            leaks: Vec::new(),
            tally: Tally::default(),
        })
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    /// Somebody new in tenant `a` (0) or `b` (1).
    pub(super) fn player(&mut self, tenant: usize) -> Player {
        let key = if tenant == 0 { self.a.app.clone() } else { self.b.app.clone() };
        Player { tenant, key, name: format!("player-{}", self.dice.letters(12)), bound: false }
    }

    /// A new word that nobody has said before.
    pub(super) fn word(&mut self) -> String {
        format!("w{}", self.dice.letters(11))
    }

    /// A key of a role in tenant `b`, bound to a subject.
    pub(super) fn key(&mut self, role: &str, subject: &str) -> anyhow::Result<String> {
        let admin = self.b.admin.clone();
        self.key_by(&admin, role, subject)
    }

    /// The same by the admin of a tenant.
    pub(super) fn key_by(&mut self, admin: &str, role: &str, subject: &str) -> anyhow::Result<String> {
        let wanted =
            json!({"label": format!("s-{}", self.dice.letters(8)), "role": role, "subject": subject});
        let ask = Ask::new("POST", "/v1/keys").key(admin).json(&wanted);
        let made = self.wire.send(&ask)?.success()?;
        made.get("key").and_then(Value::as_str).map(ToOwned::to_owned).context("no key was made")
    }

    /// Sends what somebody of a tenant sends.
    pub(super) fn send(&mut self, tenant: usize, ask: &Ask) -> anyhow::Result<Answer> {
        let sent = ask.bytes();
        let answer = self.wire.raw(&sent, ask.method == "HEAD")?;
        // Nobody planted anything for the players but what everybody in their tenant may see.
        let sight = Sight {
            tenant: Some(tenant),
            content: true,
            directory: true,
            evidence: true,
            ..Sight::nothing()
        };
        let before = self.tally.n_wrong.get(&Wrong::Leak).copied();
        let seen = Seen {
            place: &format!("scenario {} {}", ask.method, ask.target),
            who: "a player",
            sight: &sight,
            sent: &sent,
        };
        self.tally.look(&self.world.marks, &seen, &answer);
        if self.tally.n_wrong.get(&Wrong::Leak).copied() != before {
            self.leaks.push(format!("{} {}", ask.method, ask.target));
        }
        Ok(answer)
    }

    /// Sends what a person's application sends.
    pub(super) fn ask(
        &mut self,
        who: &Player,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let mut ask = who.request(method, path);
        if let Some(body) = body {
            ask = ask.json(body);
        }
        self.send(who.tenant, &ask)
    }

    /// Keeps a fact and tells its id.
    pub(super) fn remember(&mut self, who: &Player, text: &str) -> anyhow::Result<String> {
        self.keep(who, &json!({"kind": "user_fact", "text": text}))
    }

    /// Keeps what a body says and tells its id.
    pub(super) fn keep(&mut self, who: &Player, body: &Value) -> anyhow::Result<String> {
        let written = self.ask(who, "POST", "/v1/memories", Some(body))?.success()?;
        written.get("id").and_then(Value::as_str).map(ToOwned::to_owned).context("nothing was written")
    }

    /// The texts with a word in them that a search for the word finds; it may rank others behind them.
    pub(super) fn found(&mut self, who: &Player, word: &str) -> anyhow::Result<Vec<String>> {
        let mut found = self.recall(who, word)?;
        found.retain(|text| text.contains(word));
        Ok(found)
    }

    /// The texts that a search finds.
    pub(super) fn recall(&mut self, who: &Player, question: &str) -> anyhow::Result<Vec<String>> {
        let body = json!({"question": question, "k": 10});
        let found = self.ask(who, "POST", "/v1/recall", Some(&body))?.success()?;
        Ok(texts(found.get("hits")))
    }

    /// The texts of the whole list.
    pub(super) fn list(&mut self, who: &Player) -> anyhow::Result<Vec<String>> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.ask(who, "GET", &format!("/v1/memories?limit=500{cursor}"), None)?.success()?;
            all.extend(texts(page.get("items")));
            match page.get("next").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(all),
            }
        }
    }

    /// The whole context pack as text.
    pub(super) fn context(&mut self, who: &Player, question: &str) -> anyhow::Result<String> {
        let body = json!({"question": question, "budget": 4000, "project_state": "include"});
        let pack = self.ask(who, "POST", "/v1/context", Some(&body))?.success()?;
        Ok(["/system/rules", "/system/facts", "/turn"]
            .map(|part| pack.pointer(part).and_then(Value::as_str).unwrap_or_default().to_owned())
            .join("\n"))
    }

    /// The texts that a word is in on any path: search, list, context.
    pub(super) fn everywhere(&mut self, who: &Player, word: &str) -> anyhow::Result<Vec<String>> {
        let mut found = self.recall(who, word)?;
        found.extend(self.list(who)?);
        found.push(self.context(who, word)?);
        found.retain(|text| text.contains(word));
        Ok(found)
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|item| item.get("text")?.as_str().map(ToOwned::to_owned)).collect()
}

/// Whether an answer is a refusal.
pub(super) fn refused(answer: &Answer, what: &str) -> anyhow::Result<()> {
    ensure!((400..500).contains(&answer.status), "{what} was answered {}", answer.status);
    Ok(())
}
